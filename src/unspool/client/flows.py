"""What takes several calls.

Each flow yields what is to be sent or waited for, and is given the answer: both faces run the same
ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, TypeVar

from unspool.client import calls, parsing
from unspool.client.call import Call, encoded
from unspool.domain.conversations import Conversation, check_saved
from unspool.domain.documents import (
    Document,
    DocumentRecord,
    Passage,
    Status,
    check_listed,
    check_project,
    checked_status,
    usable_name,
)
from unspool.domain.history import HistoryPage, Record, StreamStatus
from unspool.domain.jobs import Job, JobState
from unspool.domain.reports import (
    BadRecord,
    IndexReport,
    OnProgress,
    ProjectStatus,
    RememberReport,
)
from unspool.errors import (
    AmbiguousError,
    ConflictError,
    InputError,
    NotFoundError,
    SwitchedError,
    TooLargeError,
    UnreachableError,
    UnspoolError,
)

if TYPE_CHECKING:
    from unspool.sources.conversations.loading import ImportCounts

# between two looks at a job: progress is written twice a second
FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 1.0
LISTED = 1_000  # documents in one answer
SENT = 1_000  # documents or conversations in one request: no service takes more
SHOWN = 20  # names in a message
_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class Pause:
    """Something to wait for: time that passes."""

    seconds: float


Flow = Generator[Call[Any] | Pause, Any, _T]


# Indexing


def index(
    source: str,
    *,
    project: str | None,
    ref: str,
    on_progress: OnProgress | None,
    made: Callable[[str, str], UnspoolError],
) -> Flow[IndexReport]:
    """Have the service index something, and watch it.

    Whoever stops watching, stops the job; one that is only out of sight goes on.
    """
    from unspool.sources import git

    if not git.is_git_url(source):
        _check_path(source)
        if project is None:
            project, source = yield from _project_at(source)
    name = project or git.project_name(source)
    job: Job = yield from _watched(
        (yield calls.start_index(name, source=source, ref=ref)), on_progress
    )
    if job.state is JobState.FAILED:
        raise made(job.error_code, job.error)
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


def _watched(job: Job, on_progress: OnProgress | None) -> Flow[Job]:
    """A job when it is over."""
    wait, told, is_in_sight = FIRST_LOOK_S, None, True
    try:
        while not job.state.is_over:
            yield Pause(wait)
            wait = min(LONGEST_LOOK_S, wait * 1.5)
            is_in_sight = False
            job = yield calls.job(job.id)
            is_in_sight = True
            if on_progress is not None and job.progress is not None and job.progress != told:
                told = job.progress
                on_progress(told)
    except BaseException as error:
        if is_in_sight or not isinstance(error, UnspoolError):
            with suppress(UnspoolError):  # it is gone already, or cannot be told
                yield calls.cancel(job.id)
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


def _project_at(source: str) -> Flow[tuple[str, str]]:
    """The project that was indexed from a path of the service or a folder above it, and from
    where; or a name for a new one.
    """
    known: list[ProjectStatus] = yield calls.status()
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


# Documents


def put(documents: Sequence[Document], *, most: int) -> Flow[IndexReport]:
    """Store documents, in as few requests of at most so many bytes as there can be; each request
    is stored whole or not at all.
    """
    if not documents:
        raise InputError("no document was given; put takes at least one")
    if (count := len({document.project for document in documents})) > 1:
        raise InputError(f"the documents belong to {count} projects; put one project at a time")
    if len({document.path for document in documents}) < len(documents):
        raise InputError("two of the documents have the same path; give each path once")
    reports: list[IndexReport] = []
    for batch in _batches(documents, lambda one: len(encoded(calls.document_of(one))), most=most):
        reports += yield from _put(batch)
    return reduce(_together, reports)


def _put(documents: Sequence[Document]) -> Flow[list[IndexReport]]:
    """Store a batch; halves of it where the service takes less at once."""
    try:
        return [(yield calls.put(documents))]
    except TooLargeError:
        if len(documents) == 1:
            raise
    half = len(documents) // 2
    first = yield from _put(documents[:half])
    return first + (yield from _put(documents[half:]))


def _together(one: IndexReport, other: IndexReport) -> IndexReport:
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


def documents(
    *,
    project: str | None,
    status: Status | str | None,
    path: str | None,
    after: str | None,
    limit: int | None,
) -> Flow[list[DocumentRecord]]:
    """Documents of one project or of all, as many requests as they take."""
    check_listed(project, after, limit)
    wanted = checked_status(status)
    found: list[DocumentRecord] = []
    for name in [project] if project is not None else (yield from names()):
        left = None if limit is None else limit - len(found)
        if left == 0:
            break
        try:
            if path is None:
                found += yield from _documents(name, wanted, after, left)
            else:
                found += yield from _document(name, path, wanted, after)
        except NotFoundError:
            if project is not None:
                raise
            continue  # somebody has just removed it
    return found


def _documents(
    project: str, status: Status | None, after: str | None, limit: int | None
) -> Flow[list[DocumentRecord]]:
    found: list[DocumentRecord] = []
    while True:
        left = LISTED if limit is None else min(LISTED, limit - len(found))
        some, after = yield calls.documents(project, status=status, after=after, limit=left)
        found += some
        if after is None or len(found) == limit:
            return found


def records(stream: calls.Stream, *, limit: int, offset: int) -> Flow[list[Record]]:
    """Whole responses, which a service gives as many of at once as are not too large."""
    found: list[Record]
    found, following = yield from absent(
        calls.records(stream, limit=limit, offset=offset), ([], None)
    )
    while following is not None and len(found) < limit:
        some, following = yield calls.records(stream, limit=limit - len(found), offset=following)
        found += some
    return found


def history_page(stream: calls.Stream, *, limit: int, offset: int, full: bool) -> Flow[HistoryPage]:
    """Responses as an agent gets them; of a stream that does not exist none, as in a corpus."""
    none = HistoryPage(stream=stream.stream, records=(), limit=limit, offset=offset, has_more=False)
    return (
        yield from absent(calls.history_page(stream, limit=limit, offset=offset, full=full), none)
    )


def _document(
    project: str, path: str, status: Status | None, after: str | None
) -> Flow[list[DocumentRecord]]:
    try:
        found: DocumentRecord = yield calls.document(project, path)
    except NotFoundError:
        # which says so if it is the project that there is none of
        yield calls.project_status(project)
        return []
    return (
        [found] if status in (None, found.status) and (after is None or found.path > after) else []
    )


def read(path: str, *, project: str | None, first: int, last: int | None) -> Flow[Passage]:
    """Lines of a document, of the only project where none is named."""
    if not (isinstance(first, int) and first >= 1 and (last is None or isinstance(last, int))):
        raise InputError(
            f"lines {first!r} to {last!r} cannot be read; lines are whole numbers counted from 1"
        )
    if last is not None and last < first:
        raise InputError(
            f"line {last} is before line {first}; give the first line and then the last"
        )
    name = project or (yield from _only_project("read"))
    return (yield calls.read(name, path, first=first, last=last))  # type: ignore[no-any-return]


def _only_project(task: str) -> Flow[str]:
    known: list[ProjectStatus] = yield calls.status()
    filled = [one.name for one in known if one.chunks] or [one.name for one in known]
    if len(filled) > 1:
        shown = ", ".join(filled[:SHOWN])
        raise AmbiguousError(
            f"there are {len(filled)} projects and none was named; name one or more of: {shown}; "
            f"or '*' for all (--project on the command line)"
        )
    if not filled:
        raise NotFoundError(f"{task} needs one project; nothing is indexed yet")
    return filled[0]


def names() -> Flow[list[str]]:
    """The names of the projects."""
    known: list[ProjectStatus] = yield calls.status()
    return [one.name for one in known]


def status(project: str | None) -> Flow[list[ProjectStatus]]:
    """All projects, or one."""
    if project is None:
        return (yield calls.status())  # type: ignore[no-any-return]
    return [(yield calls.project_status(project))]


def count(project: str | None) -> Flow[int]:
    """How many chunks there are."""
    return sum(one.chunks for one in (yield from status(project)))


def streams(project: str | None) -> Flow[list[StreamStatus]]:
    """The streams of one project or of all.

    A project that does not exist has none, as in a corpus.
    """
    found: list[StreamStatus] = []
    for name in [project] if project is not None else (yield from names()):
        found += yield from absent(calls.streams(name), [])
    return found


# Conversations


def save(conversations: Sequence[Conversation]) -> Flow[RememberReport]:
    """Store conversations, all or none: in one request, therefore."""
    check_saved(conversations)
    return (yield calls.save(conversations))  # type: ignore[no-any-return]


def load(
    files: Sequence[str | Path] | str | Path,
    *,
    project: str,
    on_progress: OnProgress | None,
    most: int,
) -> Flow[RememberReport]:
    """Read exports here, and have the service store what is in them, batch by batch."""
    from unspool.sources.conversations import loading

    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    if not paths:
        raise InputError("no file was given; name at least one export")
    check_project(project)
    started = time.monotonic()
    intake = loading.ImportCounts()
    for read in loading.read_batches(
        paths, project=project, counts=intake, on_progress=on_progress
    ):
        for batch in _batches(
            read, lambda one: len(encoded(calls.conversation_of(one))), most=most
        ):
            yield from _load(batch, intake)
    return intake.report(project, time.monotonic() - started)


def _load(some: Sequence[Conversation], intake: ImportCounts) -> Flow[None]:
    """Have a batch stored.

    Where it is refused, halves of it, until it is known which one is; the others go in.
    """
    try:
        intake.add((yield calls.save(some)))
        return
    except (InputError, ConflictError) as error:
        if isinstance(error, SwitchedError):
            raise
        if len(some) == 1:
            intake.add_bad_record(
                BadRecord(source=some[0].id, position="the whole conversation", reason=str(error))
            )
            return
    half = len(some) // 2
    yield from _load(some[:half], intake)
    yield from _load(some[half:], intake)


def exists(project: str, id_: str) -> Flow[bool]:
    """Whether there is a conversation."""
    return (yield from absent(calls.conversation(project, id_, last=0), None)) is not None


def absent(call: Call[_T], otherwise: _U) -> Flow[_T | _U]:
    """What a call gives, or something else where there is no such thing."""
    try:
        return (yield call)  # type: ignore[no-any-return]
    except NotFoundError:
        return otherwise


def _batches(
    given: Sequence[_T], size: Callable[[_T], int], *, most: int
) -> Generator[list[_T], None, None]:
    """The same in their order, so many at a time that each request has at most so many bytes;
    one that is larger goes alone.
    """
    batch: list[_T] = []
    total = 0
    for one in given:
        bytes_ = size(one) + 1
        if batch and (total + bytes_ > most or len(batch) == SENT):
            yield batch
            batch, total = [], 0
        batch.append(one)
        total += bytes_
    if batch:
        yield batch
