"""Operations on streams: histories of responses of an endpoint, a job or a tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Query

from unspool import wire
from unspool.corpus import Corpus
from unspool.domain.history import MAX_OFFSET, HistoryPage, Record, StreamStatus
from unspool.errors import NotFoundError
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import Project, RecordsQuery, Stream, WholeRecordsQuery
from unspool.interfaces.http.responses import fit_page
from unspool.interfaces.http.routing import create_router, list_responses
from unspool.interfaces.http.service import CurrentCaller, read, write
from unspool.memory.history import History

routes = create_router("history")
READ_AT_ONCE = 10  # records, each up to 10 MB
_ALL = "/projects/{project}/streams"
_ONE = _ALL + "/{stream}"


@routes.get(
    _ALL, summary="List streams", responses=list_responses({"streams": list[StreamStatus]}, 404)
)
@read
def list_streams(caller: CurrentCaller, project: Project) -> wire.Json:
    """Return the streams of a project, by name, with the number of records of each."""
    found = caller.corpus.streams(project=project)
    if not found:
        caller.corpus.count(project=project)  # rejects an unknown project
    return wire.encode({"streams": found})


@routes.get(
    _ONE,
    summary="Read whole records",
    responses=list_responses({"records": list[Record], "count": int, "next": int | None}, 404),
)
@read
def read_stream(
    caller: CurrentCaller,
    project: Project,
    stream: Stream,
    query: Annotated[WholeRecordsQuery, Query()],
) -> wire.Json:
    """Return records with their whole bodies, newest first, up to 8 MB; for programs.

    `next` is the `offset` of the next page.
    """
    history = _find_stream(caller.corpus, project, stream)
    newest = _read_newest(history, query.limit, query.offset)
    records = list(fit_page(wire.encode(record, full=True) for record in newest))
    count, following = history.count(), query.offset + len(records)
    has_more = records and following < min(count, MAX_OFFSET + 1)
    return {"records": records, "count": count, "next": following if has_more else None}


@routes.delete(_ONE, summary="Remove a stream", responses=list_responses({"cleared": int}, 404))
@write
def clear_stream(caller: CurrentCaller, project: Project, stream: Stream) -> wire.Json:
    """Remove every record of a stream. The next record is number 1."""
    return {"cleared": _find_stream(caller.corpus, project, stream).clear()}


@routes.get(
    _ONE + "/records", summary="Look at records", responses=list_responses(HistoryPage, 404)
)
@read
def list_records(
    caller: CurrentCaller, project: Project, stream: Stream, query: Annotated[RecordsQuery, Query()]
) -> wire.Json:
    """Return a few records for an agent, newest first. Long bodies are cut, repeated ones only
    flagged.
    """
    history = _find_stream(caller.corpus, project, stream)
    return wire.encode(history.page(query.limit, query.offset, full=query.full))


@routes.post(
    _ONE + "/records",
    summary="Keep a response",
    responses=list_responses({"appended": Record}, 404, body=True),
)
@write
def append_record(
    caller: CurrentCaller, project: Project, stream: Stream, body: requests.RecordBody
) -> wire.Json:
    """Add a response to a stream, which is created if it does not exist.

    Secrets in the response are masked before it is stored.
    """
    history = caller.corpus.history(stream, project=project)
    return wire.encode({"appended": history.append(body.body, body.at)})


@routes.post(
    _ONE + "/prune", summary="Remove old records", responses=list_responses({"cleared": int}, 404)
)
@write
def prune_stream(caller: CurrentCaller, project: Project, stream: Stream) -> wire.Json:
    """Remove every record that is older than the settings keep."""
    return {"cleared": _find_stream(caller.corpus, project, stream).prune()}


def _find_stream(corpus: Corpus, project: str, stream: str) -> History:
    """Return a stream that exists, even if all of its records have expired."""
    if not corpus.has_stream(stream, project=project):
        raise NotFoundError(
            f"no stream {stream[:80]!r} in project {project!r}; the list of streams names them"
        )
    return corpus.history(stream, project=project)


def _read_newest(history: History, limit: int, offset: int) -> Iterator[Record]:
    """Yield records, newest first. A few are read at a time, because a stream may exceed memory.

    A record that arrives meanwhile shifts the others.
    """
    count, last = 0, None
    while count < limit and offset + count <= MAX_OFFSET:
        records = history.read(min(READ_AT_ONCE, limit - count), offset + count)
        if not records:
            return
        yield from (record for record in records if last is None or record.number < last)
        count, last = count + len(records), records[-1].number
