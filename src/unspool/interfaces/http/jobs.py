"""Jobs: indexing for somebody who does not wait, with its progress as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from unspool.domain.jobs import Job
from unspool.interfaces import render, shapes
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import JobId, JobsAsked, Project
from unspool.interfaces.http.responses import EVENTS, EventStream, JsonResponse, event
from unspool.interfaces.http.routing import gives, router
from unspool.interfaces.http.service import Asking, Caller

LOOK_EVERY_S = 0.5  # as often as progress is written
routes = router("jobs")
_AS_BEFORE = requests.IndexRequest()
_EXAMPLE = (
    'event: progress\ndata: {"id":"3f9c2a1b4d5e6f70","state":"running",...}\n\nevent: done\n'
    'data: {"id":"3f9c2a1b4d5e6f70","state":"done",...}\n\n'
)
_EVENTS = {EVENTS: {"example": _EXAMPLE}}


@routes.post(
    "/projects/{project}/index",
    operation_id="start_index",
    summary="Index in the background",
    status_code=202,
    responses=gives(shapes.Job, 404, status=202, body=True),
)
async def start_index(
    asking: Asking, project: Project, body: requests.IndexRequest = _AS_BEFORE
) -> JsonResponse:
    """Bring a project up to date with a folder under the service's roots or a git address, or with
    what it was indexed from; for admins. The answer is a job."""
    job = await asking.service.writes.run(
        lambda: asking.jobs.index(project, body.source, ref=body.ref)
    )
    return JsonResponse(
        render.job(job), status_code=202, headers={"Location": f"/v1/jobs/{job.id}"}
    )


@routes.get("/jobs", operation_id="list_jobs", summary="List jobs", responses=gives(shapes.Jobs))
async def list_jobs(asking: Asking, asked: Annotated[JobsAsked, Query()]) -> JsonResponse:
    """Jobs of the projects that the key can see, newest first, whichever process runs them."""
    return await asking.json(
        lambda view: {"jobs": [render.job(one) for one in asking.jobs.list(limit=asked.limit)]}
    )


@routes.get(
    "/jobs/{job}", operation_id="get_job", summary="Look at a job", responses=gives(shapes.Job, 404)
)
async def get_job(asking: Asking, job: JobId) -> JsonResponse:
    """How a job stands."""
    return await asking.json(lambda view: render.job(asking.jobs.get(job)))


@routes.delete(
    "/jobs/{job}",
    operation_id="cancel_job",
    summary="Cancel a job",
    responses=gives(shapes.Job, 404),
)
async def cancel_job(asking: Asking, job: JobId) -> JsonResponse:
    """End a job that waits, or ask one that runs to stop; for admins.

    One that is over stays as it is.
    """
    return await asking.written(lambda view: render.job(asking.jobs.cancel(job)))


@routes.get(
    "/jobs/{job}/events",
    operation_id="watch_job",
    summary="Watch a job",
    response_class=Response,
    responses=gives(None, 404, more=_EVENTS),
)
async def watch_job(asking: Asking, job: JobId) -> EventStream:
    """A job's progress as server-sent events: `progress` whenever it has changed, at last one
    that is called after the state it ended in.
    """
    asking.move(asking.service.streams)
    first = await asking.service.threads.run(asking.jobs.get, job)
    return asking.stream(_watched(asking, first))


async def _watched(asking: Caller, job: Job) -> AsyncIterator[bytes]:
    told: Job | None = None
    try:
        while not job.state.is_over:
            if job != told:
                yield event("progress", render.job(job))
                told = job
            await asyncio.sleep(LOOK_EVERY_S)
            job = await asking.service.threads.run(asking.jobs.get, job.id)
        yield event(job.state.value, render.job(job))
    except Exception as error:  # noqa: BLE001 - such as that the catalog does not answer, or the project was removed with its jobs
        yield event("error", asking.failed(error))
