"""Histories of responses: what came back from an endpoint, a job or a tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Query

from unspool.domain.history import MAX_OFFSET, Record
from unspool.errors import NotFoundError
from unspool.interfaces import render, shapes
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import Project, RecordsAsked, Stream, WholeRecordsAsked
from unspool.interfaces.http.responses import JsonResponse, fitting
from unspool.interfaces.http.routing import gives, router
from unspool.interfaces.http.service import Asking
from unspool.views import HistoryView, View

routes = router("history")
AT_ONCE = 10  # records that are read, each up to 10 MB
_ALL = "/projects/{project}/streams"
_ONE = _ALL + "/{stream}"


@routes.get(
    _ALL, operation_id="list_streams", summary="List streams", responses=gives(shapes.Streams, 404)
)
async def list_streams(asking: Asking, project: Project) -> JsonResponse:
    """The streams of a project, by name, with how many records each has."""

    def found(view: View) -> shapes.Streams:
        there = view.streams(project=project)
        if not there:
            view.check_project(project)
        return render.streams(there)

    return await asking.json(found)


@routes.get(
    _ONE,
    operation_id="read_stream",
    summary="Read whole records",
    responses=gives(shapes.Records, 404),
)
async def read_stream(
    asking: Asking, project: Project, stream: Stream, asked: Annotated[WholeRecordsAsked, Query()]
) -> JsonResponse:
    """Records with their whole bodies, newest first, up to 8 MB of them; for programs.

    `next` is the `offset` of the following ones.
    """

    def found(view: View) -> shapes.Records:
        history = _kept(view, project, stream)
        shown = list(fitting(map(render.record, _newest(history, asked.limit, asked.offset))))
        count, following = history.count(), asked.offset + len(shown)
        return {
            "records": shown,
            "count": count,
            "next": following if shown and following < min(count, MAX_OFFSET + 1) else None,
        }

    return await asking.json(found)


@routes.delete(
    _ONE,
    operation_id="clear_stream",
    summary="Remove a stream",
    responses=gives(shapes.Cleared, 404),
)
async def clear_stream(asking: Asking, project: Project, stream: Stream) -> JsonResponse:
    """Remove every record of a stream; the next one is number 1."""
    return await asking.written(lambda view: {"cleared": _kept(view, project, stream).clear()})


@routes.get(
    _ONE + "/records",
    operation_id="list_records",
    summary="Look at records",
    responses=gives(shapes.HistoryPage, 404),
)
async def list_records(
    asking: Asking, project: Project, stream: Stream, asked: Annotated[RecordsAsked, Query()]
) -> JsonResponse:
    """A few records for an agent, newest first: long bodies are cut, repeated ones only flagged."""

    def found(view: View) -> shapes.HistoryPage:
        return render.history_page(
            _kept(view, project, stream).page(asked.limit, asked.offset, full=asked.full)
        )

    return await asking.json(found)


@routes.post(
    _ONE + "/records",
    operation_id="append_record",
    summary="Keep a response",
    responses=gives(shapes.Appended, 404, body=True),
)
async def append_record(
    asking: Asking, project: Project, stream: Stream, body: requests.RecordRequest
) -> JsonResponse:
    """Add a response to a stream, which is made if there is none.

    Secrets in it are masked before it is stored.
    """
    return await asking.written(
        lambda view: render.appended(
            view.history(stream, project=project).append(body.body, body.at)
        )
    )


@routes.post(
    _ONE + "/prune",
    operation_id="prune_stream",
    summary="Remove old records",
    responses=gives(shapes.Cleared, 404),
)
async def prune_stream(asking: Asking, project: Project, stream: Stream) -> JsonResponse:
    """Remove every record that is past what the settings keep."""
    return await asking.written(lambda view: {"cleared": _kept(view, project, stream).prune()})


def _kept(view: View, project: str, stream: str) -> HistoryView:
    """A stream that there is, also one of whose records none is to be read any more."""
    if not view.has_stream(stream, project=project):
        raise NotFoundError(
            f"no stream {stream[:80]!r} in project {project!r}; the list of streams names them"
        )
    return view.history(stream, project=project)


def _newest(history: HistoryView, limit: int, offset: int) -> Iterator[Record]:
    """Records as they are wanted, a few at a time: a stream may hold more than there is memory.

    One that comes in the meantime shifts the others.
    """
    given, last = 0, None
    while given < limit and offset + given <= MAX_OFFSET:
        some = history.read(min(AT_ONCE, limit - given), offset + given)
        if not some:
            return
        yield from (one for one in some if last is None or one.number < last)
        given, last = given + len(some), some[-1].number
