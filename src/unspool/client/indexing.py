"""Indexing in a service: jobs for sources, and batches of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from pathlib import PurePosixPath, PureWindowsPath
from typing import TypeVar

from unspool import wire
from unspool.client.call import Call, build_path, delete, encode_json, get, in_project, post
from unspool.client.service import Service
from unspool.domain.documents import Document, check_put, clean_name
from unspool.domain.jobs import Job, JobState
from unspool.domain.reports import IndexReport, OnProgress, ProjectStatus
from unspool.errors import (
    ConflictError,
    InputError,
    TooLargeError,
    UnreachableError,
    UnspoolError,
)
from unspool.threads import get_cancellation

# between two requests for the state of a job, whose progress is written twice a second
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
CLEANUP_S = 5.0  # to cancel a job after the task that waits for it was cancelled
MAX_BATCH = 1_000  # documents or conversations in one request: no service takes more
_T = TypeVar("_T")


def index_source(
    service: Service, source: str, *, project: str | None, ref: str, on_progress: OnProgress | None
) -> IndexReport:
    """Let the service index a source, and wait for the job.

    A caller that stops waiting cancels the job. A job that cannot be reached continues.
    """
    from unspool.sources import git

    if not git.is_git_url(source):
        _check_path(source)
        if project is None:
            project, source = _find_project_at(service, source)
    name = project or git.project_name(source)
    body = {"source": source, "ref": ref or None}
    call = post(in_project(name, "index"), Job, body=body, repeats=False)
    job = _watch(service, service.send(call), on_progress)
    if job.state is JobState.FAILED:
        raise service.build_error(job.error_code, job.error)
    if job.state is JobState.CANCELLED:
        raise ConflictError(
            f"job {job.id} for project {name!r} was cancelled by another caller; index again, what "
            f"was stored stays"
        )
    if job.state is JobState.INTERRUPTED:
        raise UnreachableError(
            f"the service was stopped while it ran job {job.id} for project {name!r}; index "
            f"again, what was stored stays"
        )
    return wire.decode(IndexReport, job.report)


def _watch(service: Service, job: Job, on_progress: OnProgress | None) -> Job:
    """Wait until a job is over, and return it."""
    cancellation = get_cancellation()
    cancellation.cleanup_s = CLEANUP_S
    path = build_path("jobs", job.id)
    pause, shown, is_reachable = FIRST_PAUSE_S, None, True
    try:
        while not job.state.is_over:
            cancellation.wait(pause)
            pause = min(LONGEST_PAUSE_S, pause * 1.5)
            is_reachable = False
            job = service.send(get(path, Job))
            is_reachable = True
            if on_progress is not None and job.progress is not None and job.progress != shown:
                shown = job.progress
                on_progress(shown)
    except BaseException as error:
        if is_reachable or not isinstance(error, UnspoolError):
            with suppress(UnspoolError):  # the job is over already, or out of reach
                service.send(delete(path, Job))
        raise
    return job


def _check_path(source: str) -> None:
    if not source.strip() or "\x00" in source:
        raise InputError("the path is empty; give a folder, a file or a git URL")
    if not (PurePosixPath(source).is_absolute() or PureWindowsPath(source).is_absolute()):
        raise InputError(
            f"{source!r} is no absolute path; a service indexes folders of its own machine, give "
            f"the path that it has there, or a git URL"
        )


def list_projects() -> Call[list[ProjectStatus]]:
    """Build the request for every project."""
    return get("/v1/projects", list[ProjectStatus], "projects")


def _find_project_at(service: Service, source: str) -> tuple[str, str]:
    """Return the name and the root of the project that contains a path of the service.

    For a path in no project, return a new name and the path.
    """
    known = service.send(list_projects())
    kind = PurePosixPath if PurePosixPath(source).is_absolute() else PureWindowsPath
    path = kind(source)
    roots = {kind(one.root): one for one in known if one.root}
    found = next((roots[place] for place in (path, *path.parents) if place in roots), None)
    if found is not None:
        # all of it: indexing a part would remove the rest
        return found.name, found.root
    name = clean_name(path.name) or "root"
    if name in {one.name for one in known}:
        raise InputError(
            f"there is a project {name!r} already, which was not indexed from {source!r}; give "
            f"it a name with `project`"
        )
    return name, source


def put_documents(service: Service, documents: Sequence[Document], *, most: int) -> IndexReport:
    """Store documents in as few requests of at most `most` bytes as possible.

    Each request is stored completely or not at all.
    """
    check_put(documents)
    reports: list[IndexReport] = []
    for batch in split_batches(documents, most=most):
        reports += _put_batch(service, batch)
    return reduce(_merge_reports, reports)


def _put_batch(service: Service, documents: Sequence[Document]) -> list[IndexReport]:
    """Store a batch; halves of it if the service accepts less at once."""
    call = post(
        in_project(documents[0].project, "documents"),
        IndexReport,
        body={"documents": documents},
        method="PUT",
        # a document that was replaced has another version the second time
        repeats=all(one.version is None for one in documents),
    )
    try:
        return [service.send(call)]
    except TooLargeError:
        if len(documents) == 1:
            raise
    half = len(documents) // 2
    return _put_batch(service, documents[:half]) + _put_batch(service, documents[half:])


def _merge_reports(one: IndexReport, other: IndexReport) -> IndexReport:
    counts = {
        name: getattr(one, name) + getattr(other, name)
        for name in ("added", "updated", "unchanged", "failed", "busy", "chunks", "embedded")
    }
    return replace(
        one,
        **counts,
        seconds=round(one.seconds + other.seconds, 3),
        masked=one.masked + other.masked,
        failures=one.failures + other.failures,
        warnings=tuple(dict.fromkeys(one.warnings + other.warnings)),
    )


def split_batches(values: Sequence[_T], *, most: int) -> Iterator[list[_T]]:
    """Yield the values in order, in batches of at most `most` bytes of JSON.

    A value that is larger is a batch by itself.
    """
    batch: list[_T] = []
    total = 0
    for value in values:
        size = len(encode_json(value)) + 1
        if batch and (total + size > most or len(batch) == MAX_BATCH):
            yield batch
            batch, total = [], 0
        batch.append(value)
        total += size
    if batch:
        yield batch
