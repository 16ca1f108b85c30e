"""Jobs: indexing in the background, with its progress as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from unspool import wire
from unspool.domain.jobs import Job
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import JobId, JobsQuery, Project
from unspool.interfaces.http.responses import EVENTS, EventStream, JsonResponse, encode_event
from unspool.interfaces.http.routing import create_router, list_responses
from unspool.interfaces.http.service import ApiCaller, CurrentCaller, read, write

POLL_S = 0.5  # as often as progress is written
routes = create_router("jobs")
_AS_BEFORE = requests.IndexBody()
_EXAMPLE = (
    'event: progress\ndata: {"id":"3f9c2a1b4d5e6f70","state":"running",...}\n\nevent: done\n'
    'data: {"id":"3f9c2a1b4d5e6f70","state":"done",...}\n\n'
)
_EVENTS = {EVENTS: {"example": _EXAMPLE}}


@routes.post(
    "/projects/{project}/index",
    summary="Index in the background",
    status_code=202,
    responses=list_responses(Job, 404, status=202, body=True),
)
async def start_index(
    caller: CurrentCaller, project: Project, body: requests.IndexBody = _AS_BEFORE
) -> JsonResponse:
    """Update a project from a folder under the service's roots or a git address, or from where it
    was indexed before; for admins. The answer is a job.
    """
    start = partial(caller.jobs.index, project, body.source, ref=body.ref)
    job = await caller.service.writes.run(start)
    return JsonResponse(
        wire.encode(job), status_code=202, headers={"Location": f"/v1/jobs/{job.id}"}
    )


@routes.get("/jobs", summary="List jobs", responses=list_responses({"jobs": list[Job]}))
@read
def list_jobs(caller: CurrentCaller, query: Annotated[JobsQuery, Query()]) -> wire.Json:
    """Return the jobs of the projects that the key can see, newest first, of all processes."""
    return wire.encode({"jobs": caller.jobs.list(limit=query.limit)})


@routes.get("/jobs/{job}", summary="Look at a job", responses=list_responses(Job, 404))
@read
def get_job(caller: CurrentCaller, job: JobId) -> wire.Json:
    """Return the state of a job."""
    return wire.encode(caller.jobs.get(job))


@routes.delete("/jobs/{job}", summary="Cancel a job", responses=list_responses(Job, 404))
@write
def cancel_job(caller: CurrentCaller, job: JobId) -> wire.Json:
    """End a job that waits, or ask one that runs to stop; for admins.

    A job that has ended stays as it is.
    """
    return wire.encode(caller.jobs.cancel(job))


@routes.get(
    "/jobs/{job}/events",
    summary="Watch a job",
    response_class=Response,
    responses=list_responses(None, 404, more=_EVENTS),
)
async def watch_job(caller: CurrentCaller, job: JobId) -> EventStream:
    """Return a job's progress as server-sent events: `progress` at each change, and at the end an
    event named after the final state.
    """
    caller.move(caller.service.streams)
    first = await caller.service.reads.run(caller.jobs.get, job)
    return caller.stream(_watch(caller, first))


async def _watch(caller: ApiCaller, job: Job) -> AsyncGenerator[bytes]:
    sent: Job | None = None
    try:
        while not job.state.is_over:
            if job != sent:
                yield encode_event("progress", wire.encode(job))
                sent = job
            await asyncio.sleep(POLL_S)
            job = await caller.service.reads.run(caller.jobs.get, job.id)
        yield encode_event(job.state.value, wire.encode(job))
    except Exception as error:  # noqa: BLE001 - for example, the project was removed with its jobs
        yield caller.report(error)
