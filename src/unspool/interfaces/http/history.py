"""Histories of responses: what came back from an endpoint, a job or a tool."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from unspool.interfaces import render, shapes
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import Project, RecordsAsked, Stream, WholeRecordsAsked
from unspool.interfaces.http.responses import JsonResponse
from unspool.interfaces.http.routing import gives, router
from unspool.interfaces.http.service import Asking
from unspool.views import View

routes = router("history")
_ALL = "/projects/{project}/streams"
_ONE = _ALL + "/{stream}"


@routes.get(_ALL, operation_id="list_streams", summary="List streams", responses=gives(shapes.Streams, 404))
async def list_streams(asking: Asking, project: Project) -> JsonResponse:
    """The streams of a project, by name, with how many records each has."""
    return await asking.json(lambda view: render.streams(view.streams(project=project)))


@routes.get(_ONE, operation_id="read_stream", summary="Read whole records", responses=gives(shapes.Records, 404))
async def read_stream(asking: Asking, project: Project, stream: Stream, asked: Annotated[WholeRecordsAsked, Query()]) -> JsonResponse:
    """Records with their whole bodies, newest first; for programs. A stream that does not exist has none."""

    def found(view: View) -> shapes.Records:
        history = view.history(stream, project=project)
        return {"records": [render.record(one) for one in history.read(asked.limit, asked.offset)], "count": history.count()}

    return await asking.json(found)


@routes.delete(_ONE, operation_id="clear_stream", summary="Remove a stream", responses=gives(shapes.Cleared, 404))
async def clear_stream(asking: Asking, project: Project, stream: Stream) -> JsonResponse:
    """Remove every record of a stream; the next one is number 1."""
    return await asking.written(lambda view: {"cleared": view.history(stream, project=project).clear()})


@routes.get(_ONE + "/records", operation_id="list_records", summary="Look at records", responses=gives(shapes.HistoryPage, 404))
async def list_records(asking: Asking, project: Project, stream: Stream, asked: Annotated[RecordsAsked, Query()]) -> JsonResponse:
    """A few records for an agent, newest first: long bodies are cut, repeated ones only flagged."""

    def found(view: View) -> shapes.HistoryPage:
        return render.history_page(view.history(stream, project=project).page(asked.limit, asked.offset, full=asked.full))

    return await asking.json(found)


@routes.post(_ONE + "/records", operation_id="append_record", summary="Keep a response", responses=gives(shapes.Appended, 404, body=True))
async def append_record(asking: Asking, project: Project, stream: Stream, body: requests.RecordRequest) -> JsonResponse:
    """Add a response to a stream, which is made if there is none. Secrets in it are masked before it is stored."""
    return await asking.written(lambda view: render.appended(view.history(stream, project=project).append(body.body, body.at)))


@routes.post(_ONE + "/prune", operation_id="prune_stream", summary="Remove old records", responses=gives(shapes.Cleared, 404))
async def prune_stream(asking: Asking, project: Project, stream: Stream) -> JsonResponse:
    """Remove every record that is past what the settings keep."""
    return await asking.written(lambda view: {"cleared": view.history(stream, project=project).prune()})
