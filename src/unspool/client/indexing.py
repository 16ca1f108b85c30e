"""Documents on their way to a service: jobs that index, and batches of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

from unspool.client import calls, parsing
from unspool.client.call import encode_json
from unspool.client.sending import Sender
from unspool.domain.documents import Document, usable_name
from unspool.domain.jobs import Job, JobState
from unspool.domain.reports import IndexReport, OnProgress
from unspool.errors import (
    ConflictError,
    InputError,
    TooLargeError,
    UnreachableError,
    UnspoolError,
)
from unspool.threads import get_cancellation

# between two looks at a job: progress is written twice a second
FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 1.0
CLEANUP_S = 5.0  # to cancel a job after the task that waits for it was cancelled
SENT = 1_000  # documents or conversations in one request: no service takes more
_T = TypeVar("_T")


def index_source(
    sender: Sender, source: str, *, project: str | None, ref: str, on_progress: OnProgress | None
) -> IndexReport:
    """Let the service index a source, and wait for the job.

    A caller that stops waiting cancels the job. A job that cannot be reached continues.
    """
    from unspool.sources import git

    if not git.is_git_url(source):
        _check_path(source)
        if project is None:
            project, source = _find_project_at(sender, source)
    name = project or git.project_name(source)
    job = _watch(sender, sender.send(calls.start_index(name, source=source, ref=ref)), on_progress)
    if job.state is JobState.FAILED:
        raise sender.service.build_error(job.error_code, job.error)
    if job.state is JobState.CANCELLED:
        raise ConflictError(
            f"job {job.id} for project {name!r} was cancelled by somebody; index again, what was "
            f"stored stays"
        )
    if job.state is JobState.INTERRUPTED:
        raise UnreachableError(
            f"the service was stopped while it ran job {job.id} for project {name!r}; index "
            f"again, what was stored stays"
        )
    return parsing.index_report(job.report)


def _watch(sender: Sender, job: Job, on_progress: OnProgress | None) -> Job:
    """Wait until a job is over, and return it."""
    cancellation = get_cancellation()
    cancellation.cleanup_s = CLEANUP_S
    wait, shown, is_in_sight = FIRST_LOOK_S, None, True
    try:
        while not job.state.is_over:
            cancellation.wait(wait)
            wait = min(LONGEST_LOOK_S, wait * 1.5)
            is_in_sight = False
            job = sender.send(calls.job(job.id))
            is_in_sight = True
            if on_progress is not None and job.progress is not None and job.progress != shown:
                shown = job.progress
                on_progress(shown)
    except BaseException as error:
        if is_in_sight or not isinstance(error, UnspoolError):
            with suppress(UnspoolError):  # the job is over already, or out of reach
                sender.send(calls.cancel(job.id))
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


def _find_project_at(sender: Sender, source: str) -> tuple[str, str]:
    """Return the project that was indexed from a path of the service or a folder above it, and
    its root; otherwise a name for a new project.
    """
    known = sender.send(calls.status())
    kind = PurePosixPath if PurePosixPath(source).is_absolute() else PureWindowsPath
    path = kind(source)
    roots = {kind(one.root): one for one in known if one.root}
    found = next((roots[place] for place in (path, *path.parents) if place in roots), None)
    if found is not None:
        return found.name, found.root  # all of it: of a part, the rest would be taken to be gone
    name = usable_name(path.name) or "root"
    if name in {one.name for one in known}:
        raise InputError(
            f"there is a project {name!r} already, which was not indexed from {source!r}; give "
            f"it a name with `project`"
        )
    return name, source


def put_documents(sender: Sender, documents: Sequence[Document], *, most: int) -> IndexReport:
    """Store documents in as few requests of at most `most` bytes as possible.

    Each request is stored completely or not at all.
    """
    if not documents:
        raise InputError("no document was given; put takes at least one")
    if (count := len({document.project for document in documents})) > 1:
        raise InputError(f"the documents belong to {count} projects; put one project at a time")
    if len({document.path for document in documents}) < len(documents):
        raise InputError("two of the documents have the same path; give each path once")
    reports: list[IndexReport] = []
    for batch in split_batches(documents, calls.document_of, most=most):
        reports += _put_batch(sender, batch)
    return reduce(_merge_reports, reports)


def _put_batch(sender: Sender, documents: Sequence[Document]) -> list[IndexReport]:
    """Store a batch; halves of it if the service accepts less at once."""
    try:
        return [sender.send(calls.put(documents))]
    except TooLargeError:
        if len(documents) == 1:
            raise
    half = len(documents) // 2
    return _put_batch(sender, documents[:half]) + _put_batch(sender, documents[half:])


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


def split_batches(
    values: Sequence[_T], encode: Callable[[_T], Mapping[str, Any]], *, most: int
) -> Iterator[list[_T]]:
    """Yield the values in order, in batches of at most `most` bytes of JSON.

    A value that is larger is a batch by itself.
    """
    batch: list[_T] = []
    total = 0
    for value in values:
        size = len(encode_json(encode(value))) + 1
        if batch and (total + size > most or len(batch) == SENT):
            yield batch
            batch, total = [], 0
        batch.append(value)
        total += size
    if batch:
        yield batch
