"""Jobs: long tasks that a service does for somebody who does not wait, in threads of its own, their
state in the catalog.

Every process of a service sees every job and can cancel it, also one that runs in another process:
the asking is a flag of the job's row, which its process looks at twice a second. A task is told to
stop by an exception out of its next report of progress; an indexing run may be broken off there and
goes on from there when it is started again.

One job of a project runs at a time, in whichever process; others wait in the queue of the process
that took them. Whoever asks for what waits already, the same source for the same project, is given
the job that waits. A job that has begun is no such answer: what changed since then would be missed.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool.domain.documents import check_project, storable
from unspool.domain.jobs import Job, JobState
from unspool.domain.keys import Role
from unspool.domain.reports import IndexReport, Progress
from unspool.errors import (
    InputError,
    NotFoundError,
    ServiceError,
    ThrottledError,
    UnreachableError,
    UnspoolError,
)

# the real imports are where they are used: doors that have no jobs need not wait for a database's
# drivers
if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from unspool.catalog import Catalog
    from unspool.corpus import Corpus
    from unspool.views import View

# how often progress is written, and how soon a job that runs hears that it was cancelled
LOOK_EVERY_S = 0.5
HEARTBEAT_S = 5.0
# until a job that has to wait for one in another process, or for the database, is tried again
RETRY_S = 0.5
# how long the end of a job waits for a database that does not answer; after that it reads as
# interrupted anyway
PATIENCE_S = 30.0
# failures and masked secrets that a report keeps of each; their numbers are always whole
LISTED = 200
MAX_LIMIT = 1_000
_ID = re.compile(r"[0-9a-f]{16}")

Work = Callable[[Callable[[Progress], None]], IndexReport]


class _StoppedError(BaseException):
    """Leads a task out of its work: no `except Exception` on the way may take it for a failure."""


@dataclass(slots=True, eq=False)
class _Task:
    """A job of this process."""

    job: Job
    work: Work
    context: Context  # of whoever asked, so that what is logged during the work names the request
    is_stored: bool = False
    due: float = 0.0  # by the monotonic clock
    thread: int = 0
    stop: JobState | None = None  # what it becomes when it stops
    progress: Progress | None = None
    written: Progress | None = None

    def tell(self, progress: Progress) -> None:
        """Note how far it is; leave where that was asked for.

        Threads that only watch over a part of the work are left alone.
        """
        self.progress = progress
        if self.stop is not None and threading.get_ident() == self.thread:
            raise _StoppedError


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    state: JobState
    report: Mapping[str, Any] = field(default_factory=dict)
    error_code: str = ""
    error: str = ""


class Jobs:
    """The jobs of a corpus, and the threads that do those of this process. There are threads only
    while there is something to do.

    `projects`, wherever it is taken, are the names that exist for whoever asks, None for all: a job
    of any other is as if there were none.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        at_once: int = 2,
        queue: int = 100,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        if at_once < 1 or queue < 0:
            raise InputError(
                f"at_once is {at_once} and queue is {queue}; at least one job runs at once, and "
                f"no fewer than none wait"
            )
        self._corpus = corpus
        self._at_once = at_once
        self._most = at_once + queue
        self._clock = clock
        self._worker = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._changed = threading.Condition()
        self._waiting: list[_Task] = []
        self._running: list[_Task] = []
        self._threads: set[threading.Thread] = set()
        self._keeper: threading.Thread | None = None
        self._is_closed = False
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, project: str, source: str, work: Work, *, ref: str = "") -> Job:
        """Queue a task, and return at once. `source` and `ref` are shown to those who may see the
        job, passwords left out.

        Where a job for the same project, source and ref waits already, it is that one.
        """
        check_project(project)
        shown, is_whole = _shown(source, ref)
        job = Job(
            id=secrets.token_hex(8),
            project=project,
            source=shown,
            state=JobState.QUEUED,
            created_at=datetime.now(UTC),
        )
        task = _Task(job, work, copy_context())
        with self._changed:
            if self._is_closed:
                raise UnreachableError(
                    "the service is stopping and takes no more jobs; try again in a moment"
                )
            if len(self._waiting) + len(self._running) >= self._most:
                raise ThrottledError(
                    "too many jobs wait already; try again in a minute", retry_after=60
                )
            self._waiting.append(task)
        try:
            stored = self._store(task, join=is_whole)
        except BaseException:
            self._leave(task)
            raise
        if stored.id != job.id:
            self._leave(task)
            return stored
        with self._changed:
            task.job, task.is_stored = stored, True
            if not self._is_closed:
                self._ensure_threads()
                self._changed.notify_all()
                return stored
        self._finish([task], _End(state=JobState.INTERRUPTED))  # it was closed meanwhile
        return replace(stored, state=JobState.INTERRUPTED)

    def get(self, id: str, *, projects: Collection[str] | None = None) -> Job:
        """How a job stands.

        One whose process has not been heard of for half a minute reads as interrupted.
        """
        from unspool.catalog import jobs

        found = None
        if isinstance(id, str) and _ID.fullmatch(id):
            with self._catalog.read() as connection:
                found = jobs.find_job(connection, id, projects=projects, now=self._now(connection))
        if found is None:
            raise NotFoundError(f"no job {str(id)[:40]!r}; those that are over are kept for a week")
        return found

    def list(self, *, projects: Collection[str] | None = None, limit: int = 100) -> list[Job]:
        """Jobs, newest first."""
        from unspool.catalog import jobs

        if not 1 <= limit <= MAX_LIMIT:
            raise InputError(f"limit is {limit}; give a number from 1 to {MAX_LIMIT}")
        with self._catalog.read() as connection:
            return jobs.list_jobs(
                connection, projects=_named(projects), limit=limit, now=self._now(connection)
            )

    def counts(self, *, projects: Collection[str] | None = None) -> dict[JobState, int]:
        """How many jobs stand where, of every process; each state is there."""
        from unspool.catalog import jobs

        with self._catalog.read() as connection:
            return jobs.count_jobs(connection, projects=_named(projects), now=self._now(connection))

    def cancel(self, id: str, *, projects: Collection[str] | None = None) -> Job:
        """End a job that waits; ask one that runs to stop, which it does at its next report of
        progress. What is over stays as it is.
        """
        from unspool.catalog import jobs

        if not self.get(id, projects=projects).state.is_over:
            self._catalog.transact(
                lambda connection: jobs.cancel_job(connection, id, now=self._now(connection))
            )
            with self._changed:
                self._drop({id})
        return self.get(id, projects=projects)

    def close(self, drain_s: float = 10.0) -> None:
        """Ask what runs to stop, wait that long for it, and say of the rest that it was
        interrupted. What waits does not begin.

        A task that does not report progress meanwhile goes on in its thread until it does.
        """
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            unbegun = [task for task in self._waiting if task.is_stored]
            self._waiting.clear()
            for task in self._running:
                task.stop = task.stop or JobState.INTERRUPTED
            threads = [*self._threads, *([self._keeper] if self._keeper else [])]
            self._changed.notify_all()
        self._closing.set()
        self._finish(unbegun, _End(state=JobState.INTERRUPTED))
        deadline = time.monotonic() + drain_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            late = list(self._running)
        self._finish(late, _End(state=JobState.INTERRUPTED))

    # Inside

    @property
    def _catalog(self) -> Catalog:
        return self._corpus._parts.catalog

    def _store(self, task: _Task, *, join: bool) -> Job:
        from unspool.catalog import jobs

        def add(connection: Connection) -> Job:
            return jobs.insert_job(
                connection,
                replace(task.job, created_at=self._now(connection)),
                worker=self._worker,
                join=join,
            )

        return self._catalog.transact(add)

    def _now(self, connection: Connection) -> datetime:
        """The time by a clock that all processes share: those on other machines may be early or
        late.
        """
        from unspool.catalog import jobs

        return jobs.read_clock(connection) if self._clock is None else self._clock()

    def _leave(self, task: _Task) -> None:
        with self._changed:
            self._waiting = [one for one in self._waiting if one is not task]
            self._changed.notify_all()

    def _ensure_threads(self) -> None:
        """Have somebody at work; with the lock held.

        They are no daemons: a process that ends waits for them, or closes this first.
        """
        if len(self._threads) < min(self._at_once, len(self._waiting) + len(self._running)):
            thread = threading.Thread(target=self._serve, name="unspool-job")
            self._threads.add(thread)
            thread.start()
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name="unspool-jobs")
            self._keeper.start()

    def _serve(self) -> None:
        """Do what waits until nothing does."""
        try:
            while (task := self._next()) is not None:
                try:
                    if self._claim(task):
                        self._finish([task], self._run(task))
                finally:
                    with self._changed:
                        self._running.remove(task)
                        self._changed.notify_all()
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _next(self) -> _Task | None:
        """The first one that waits and may begin; it counts as running from now on.

        None where nothing waits, and the thread is over then.
        """
        with self._changed:
            while self._waiting:
                busy = {task.job.project for task in self._running}
                now = time.monotonic()
                able = [
                    task
                    for task in self._waiting
                    if task.is_stored and task.job.project not in busy
                ]
                if able and (task := min(able, key=lambda one: max(one.due, now))).due <= now:
                    self._waiting.remove(task)
                    self._running.append(task)
                    return task
                self._changed.wait(min((task.due - now for task in able), default=None))
            # with the lock held: whoever adds a task now starts another one
            self._threads.discard(threading.current_thread())
            return None

    def _claim(self, task: _Task) -> bool:
        """Whether a task may begin. If not yet, it waits on at its old place."""
        from unspool.catalog import jobs
        from unspool.catalog.jobs import ClaimResult

        try:
            claim = self._catalog.transact(
                lambda connection: jobs.claim_job(connection, task.job, now=self._now(connection))
            )
        except ServiceError:
            claim = ClaimResult.BUSY
        except UnspoolError:  # the corpus was closed under it
            claim = ClaimResult.CANCELLED
        if claim is not ClaimResult.BUSY:
            return claim is ClaimResult.CLAIMED
        with self._changed:
            if not self._is_closed and task.stop is None:
                task.due = time.monotonic() + RETRY_S
                self._waiting.insert(0, task)
                self._waiting.sort(key=lambda one: one.job.created_at)
                return False
        self._finish([task], _End(state=task.stop or JobState.INTERRUPTED))
        return False

    def _run(self, task: _Task) -> _End:
        task.thread = threading.get_ident()
        try:
            if task.stop is not None:
                raise _StoppedError
            report = task.context.run(task.work, task.tell)
            return _End(state=JobState.DONE, report=_plain(report))
        except _StoppedError:
            return _End(state=task.stop or JobState.INTERRUPTED)
        except UnspoolError as error:
            return _End(state=JobState.FAILED, error_code=error.code, error=str(error))
        except BaseException:  # the thread has others to do, and what it says may hold anything
            logging.getLogger("unspool").exception("job %s failed on a bug", task.job.id)
            return _End(
                state=JobState.FAILED,
                error_code="bug",
                error=f"this is a bug in unspool; the service's log says more of job {task.job.id}",
            )

    def _finish(self, tasks: Sequence[_Task], end: _End) -> None:
        """Write how tasks ended, as soon as the database answers."""
        from unspool.catalog import jobs

        last = tasks[0].progress if len(tasks) == 1 else None
        values = asdict(end)

        def write(connection: Connection) -> None:
            jobs.finish_jobs(
                connection,
                [task.job.id for task in tasks],
                now=self._now(connection),
                progress=last,
                **values,
            )

        deadline = time.monotonic() + PATIENCE_S
        while tasks:
            try:
                self._catalog.transact(write)
                return
            except UnspoolError as error:
                if (
                    not isinstance(error, ServiceError)
                    or time.monotonic() > deadline
                    or self._closing.wait(RETRY_S)
                ):
                    logging.getLogger("unspool").warning(
                        "the end of %d jobs could not be written: %s", len(tasks), error.code
                    )
                    return

    # The keeper: what is said of jobs while they run

    def _keep(self) -> None:
        """Write progress and heartbeats, and look who is to stop, as long as there are jobs."""
        beaten = time.monotonic()
        try:
            while not self._closing.wait(LOOK_EVERY_S):
                with self._changed:
                    tasks = [task for task in (*self._waiting, *self._running) if task.is_stored]
                    if not self._waiting and not self._running:
                        self._keeper = None
                        return
                with suppress(UnspoolError):  # the next look may be luckier
                    if time.monotonic() - beaten >= HEARTBEAT_S or any(
                        task.progress is not task.written for task in tasks
                    ):
                        beaten = self._beat(tasks)
                    self._look(tasks)
        finally:
            with self._changed:
                self._keeper = None if self._keeper is threading.current_thread() else self._keeper

    def _beat(self, tasks: Collection[_Task]) -> float:
        from unspool.catalog import jobs

        began = time.monotonic()
        news = {
            task.job.id: (task, task.progress)
            for task in tasks
            if task.progress is not None and task.progress is not task.written
        }
        progress = {id_: one for id_, (_, one) in news.items()}
        ids = [task.job.id for task in tasks]
        self._catalog.transact(
            lambda connection: jobs.renew_jobs(
                connection, ids, progress=progress, now=self._now(connection)
            )
        )
        for task, one in news.values():
            task.written = one
        return began

    def _look(self, tasks: Collection[_Task]) -> None:
        from unspool.catalog import jobs

        ids = {task.job.id for task in tasks}
        with self._catalog.read() as connection:
            gone = ids - jobs.find_active(connection, ids)
        if gone:
            with self._changed:
                self._drop(gone)

    def _drop(self, ids: Collection[str]) -> None:
        """Begin none of these tasks, and stop those that run; with the lock held."""
        self._waiting = [task for task in self._waiting if task.job.id not in ids]
        for task in self._running:
            if task.job.id in ids:
                task.stop = task.stop or JobState.CANCELLED
        self._changed.notify_all()


class JobsView:
    """Jobs as one caller sees them, as `View` is the corpus: those of its projects, and for
    those who may index all that is known of them.
    """

    def __init__(self, jobs: Jobs, view: View) -> None:
        self._jobs = jobs
        self._view = view
        self._scope = view.scope

    def index(self, project: str, source: str | None = None, *, ref: str = "") -> Job:
        """Bring a project up to date in the background; with no source, with what it was indexed
        from.
        """
        from unspool.sources import git

        view, meant = self._view, source or self._view.source_of(project)
        view.check_source(meant, project=project)
        git.check_ref(meant, ref)
        return self._jobs.start(
            project,
            meant,
            lambda tell: view.index(meant, project=project, ref=ref, on_progress=tell),
            ref=ref,
        )

    def get(self, id: str) -> Job:
        """How a job stands."""
        return self._told(self._jobs.get(id, projects=self._scope.projects))

    def list(self, *, limit: int = 100) -> list[Job]:
        """Jobs, newest first."""
        return [
            self._told(one) for one in self._jobs.list(projects=self._scope.projects, limit=limit)
        ]

    def cancel(self, id: str) -> Job:
        """End a job that waits, or ask one that runs to stop."""
        self.get(id)
        self._scope.need(Role.ADMIN, "cancelling a job")
        return self._jobs.cancel(id, projects=self._scope.projects)

    def _told(self, job: Job) -> Job:
        """A job without what the caller may not know of it: where on the server it reads, which
        its error may name, too.
        """
        if self._scope.role.allows(Role.ADMIN):
            return job
        return replace(
            job,
            source="",
            error="indexing failed; a key with the role admin is told why" if job.error else "",
        )


def _shown(source: str, ref: str) -> tuple[str, bool]:
    """What a job's source is called, and whether that is all of it: two sources that differ in
    what is left out are not the same.
    """
    from unspool.sources import folders, git

    text = str(source)
    shown = (
        git.redact(text)
        if git.is_git_url(text)
        else folders.storable(text).replace("\x00", "\ufffd")
    )
    return (f"{shown}#{folders.storable(ref)}" if ref else shown), shown == text


def _plain(report: IndexReport) -> dict[str, Any]:
    """A report as it is kept: as `IndexReport` names things, without the files that were left
    out, which may be very many.
    """
    values = asdict(
        replace(report, skips=(), failures=report.failures[:LISTED], masked=report.masked[:LISTED])
    )
    del values["skips"]
    for what, found in (("failures", report.failures), ("masked secrets", report.masked)):
        if len(found) > LISTED:
            values["warnings"] = (
                *values["warnings"],
                f"{len(found)} {what} in all; the first {LISTED} are listed",
            )
    return values


def _named(projects: Collection[str] | None) -> Collection[str] | None:
    """Those of the names that a project can have; a database may refuse to look for another."""
    return None if projects is None else [name for name in projects if storable(name)]
