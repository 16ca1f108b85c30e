"""Jobs: long tasks that a service runs in threads of its own while the caller does not wait.

The state of every job is in the catalog, so every process of a service can read and cancel it. To
cancel a running job, a flag is set in its row, and its process polls that flag. The task then stops
with an exception at its next report of progress. An indexing run that stops there can be resumed.

Only one job of a project runs at a time, in any process. Others wait in the queue of the process
that accepted them. A request that equals a queued job, with the same project and source, returns
that job. A running job does not count, because it would miss changes made since its start.
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
from contextlib import AbstractContextManager, suppress
from contextvars import Context, copy_context
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog
from unspool.catalog import jobs as rows
from unspool.domain.documents import check_project, storable
from unspool.domain.jobs import Job, JobState
from unspool.domain.keys import Role
from unspool.domain.reports import IndexReport, OnProgress, Progress
from unspool.errors import (
    InputError,
    NotFoundError,
    ServiceError,
    ThrottledError,
    UnreachableError,
    UnspoolError,
)
from unspool.sources import folders, git

if TYPE_CHECKING:
    from unspool.corpus import Corpus

# interval between writes of progress, and between polls for cancelled jobs
POLL_S = 0.5
HEARTBEAT_S = 5.0
# delay before another attempt, if another process runs a job of the project or the database failed
RETRY_S = 0.5
# longest wait for a database that does not answer at the end of a job; later the job reads as
# interrupted anyway
PATIENCE_S = 30.0
# failures and masked secrets that a report lists; their counts are complete
LISTED = 200
MAX_LIMIT = 1_000
_ID = re.compile(r"[0-9a-f]{16}")

Work = Callable[[OnProgress], IndexReport]


class _StoppedError(BaseException):
    """Stops a task. Not an `Exception`, so that no handler on the way treats it as a failure."""


@dataclass(slots=True, eq=False)
class _Task:
    """A job of this process."""

    job: Job
    work: Work
    context: Context  # of the caller, so that log lines of the work name the request
    is_stored: bool = False
    due: float = 0.0  # by the monotonic clock
    thread: int = 0
    stop: JobState | None = None  # requested final state
    progress: Progress | None = None
    saved_progress: Progress | None = None

    def report_progress(self, progress: Progress) -> None:
        """Record progress, and stop if that was requested.

        Only the thread of the work is stopped, not a thread that watches a part of it.
        """
        self.progress = progress
        if self.stop is not None and threading.get_ident() == self.thread:
            raise _StoppedError


class JobQueue(AbstractContextManager["JobQueue"]):
    """The jobs of a corpus, and the threads that run those of this process.

    Threads exist only while there is work. The argument `projects` of several methods contains the
    names that the caller can see, None for all. Jobs of other projects behave as if they did not
    exist.
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
                f"at_once is {at_once} and queue is {queue}; give at least 1 and at least 0"
            )
        self._corpus = corpus
        self._at_once = at_once
        self._capacity = at_once + queue
        self._clock = clock
        self._worker = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._changed = threading.Condition()
        self._waiting: list[_Task] = []
        self._running: list[_Task] = []
        self._threads: set[threading.Thread] = set()
        self._monitor: threading.Thread | None = None
        self._is_closed = False
        self._closing = threading.Event()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, project: str, source: str, work: Work, *, ref: str = "") -> Job:
        """Queue a task, and return at once.

        If a job for the same project, source and ref is queued already, return that one. `source`
        and `ref` are stored without passwords.
        """
        check_project(project)
        shown, is_complete = _describe_source(source, ref)
        job = Job(
            id=secrets.token_hex(8),
            project=project,
            source=shown,
            state=JobState.QUEUED,
            created_at=datetime.now(UTC),
        )
        task = _Task(job, work, copy_context())
        self._reserve(task)
        try:
            # a source with a secret left out may differ from one that looks the same
            stored = self._store(task, join=is_complete)
        except BaseException:
            self._withdraw(task)
            raise
        if stored.id != job.id:
            self._withdraw(task)
            return stored
        with self._changed:
            task.job, task.is_stored = stored, True
            if not self._is_closed:
                self._ensure_threads()
                self._changed.notify_all()
                return stored
        self._finish([task], JobState.INTERRUPTED)
        return replace(stored, state=JobState.INTERRUPTED)

    def get(self, id: str, *, projects: Collection[str] | None = None) -> Job:
        """Return a job.

        A job whose process has sent no heartbeat for half a minute reads as interrupted.
        """
        job = None
        if isinstance(id, str) and _ID.fullmatch(id):
            with self._catalog.read() as connection:
                job = rows.find_job(connection, id, projects=projects, now=self._now(connection))
        if job is None:
            raise NotFoundError(f"no job {str(id)[:40]!r}; finished jobs are kept for a week")
        return job

    def list(self, *, projects: Collection[str] | None = None, limit: int = 100) -> list[Job]:
        """Return jobs, newest first."""
        if not 1 <= limit <= MAX_LIMIT:
            raise InputError(f"limit is {limit}; give a number from 1 to {MAX_LIMIT}")
        with self._catalog.read() as connection:
            names, now = _filter_names(projects), self._now(connection)
            return rows.list_jobs(connection, projects=names, limit=limit, now=now)

    def count_by_state(self, *, projects: Collection[str] | None = None) -> dict[JobState, int]:
        """Return the number of jobs in every state, over all processes."""
        with self._catalog.read() as connection:
            names, now = _filter_names(projects), self._now(connection)
            return rows.count_jobs(connection, projects=names, now=now)

    def cancel(self, id: str, *, projects: Collection[str] | None = None) -> Job:
        """End a queued job, or ask a running one to stop at its next report of progress.

        A finished job stays unchanged.
        """
        if not self.get(id, projects=projects).state.is_over:
            self._catalog.transact(
                lambda connection: rows.cancel_job(connection, id, now=self._now(connection))
            )
            with self._changed:
                self._stop({id})
        return self.get(id, projects=projects)

    def close(self, drain_s: float = 10.0) -> None:
        """Ask running jobs to stop, and wait so long for them. Queued jobs do not start.

        Jobs that are still running then are recorded as interrupted. Their threads continue until
        their next report of progress.
        """
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            queued = [task for task in self._waiting if task.is_stored]
            self._waiting.clear()
            for task in self._running:
                task.stop = task.stop or JobState.INTERRUPTED
            threads = [*self._threads, *([self._monitor] if self._monitor else [])]
            self._changed.notify_all()
        self._closing.set()
        self._finish(queued, JobState.INTERRUPTED)
        deadline = time.monotonic() + drain_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            late = [*self._running]
        self._finish(late, JobState.INTERRUPTED)

    # The queue

    @property
    def _catalog(self) -> Catalog:
        return self._corpus._resources.catalog

    def _now(self, connection: Connection) -> datetime:
        """Return the time of the database, because the clocks of other machines may differ."""
        return rows.read_clock(connection) if self._clock is None else self._clock()

    def _reserve(self, task: _Task) -> None:
        with self._changed:
            if self._is_closed:
                raise UnreachableError(
                    "the service is stopping and accepts no more jobs; try again in a moment"
                )
            if len(self._waiting) + len(self._running) >= self._capacity:
                raise ThrottledError(
                    "too many jobs are queued already; try again in a minute", retry_after=60
                )
            self._waiting.append(task)

    def _withdraw(self, task: _Task) -> None:
        with self._changed:
            self._waiting = [one for one in self._waiting if one is not task]
            self._changed.notify_all()

    def _store(self, task: _Task, *, join: bool) -> Job:
        def add(connection: Connection) -> Job:
            job = replace(task.job, created_at=self._now(connection))
            return rows.insert_job(connection, job, worker=self._worker, join=join)

        return self._catalog.transact(add)

    def _ensure_threads(self) -> None:
        """Start the threads that are needed. The caller has the lock.

        They are not daemons: a process that ends waits for them, or closes this object first.
        """
        if len(self._threads) < min(self._at_once, len(self._waiting) + len(self._running)):
            thread = threading.Thread(target=self._serve, name="unspool-job")
            self._threads.add(thread)
            thread.start()
        if self._monitor is None:
            self._monitor = threading.Thread(target=self._watch, name="unspool-jobs")
            self._monitor.start()

    # Threads that run jobs

    def _serve(self) -> None:
        """Run queued tasks until there are none."""
        try:
            while (task := self._next()) is not None:
                try:
                    if self._claim(task):
                        self._run(task)
                finally:
                    with self._changed:
                        self._running.remove(task)
                        self._changed.notify_all()
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _next(self) -> _Task | None:
        """Move the next task that may start to the running ones, and return it.

        Return None if nothing is queued. The thread ends then.
        """
        with self._changed:
            while self._waiting:
                busy = {task.job.project for task in self._running}
                now = time.monotonic()
                ready = [
                    task
                    for task in self._waiting
                    if task.is_stored and task.job.project not in busy
                ]
                if ready and (task := min(ready, key=lambda one: max(one.due, now))).due <= now:
                    self._waiting.remove(task)
                    self._running.append(task)
                    return task
                self._changed.wait(min((task.due - now for task in ready), default=None))
            # while locked: whoever queues a task now must start another thread
            self._threads.discard(threading.current_thread())
            return None

    def _claim(self, task: _Task) -> bool:
        """Return True if a task may run now. Otherwise queue it again at its old place."""
        try:
            claim = self._catalog.transact(
                lambda connection: rows.claim_job(connection, task.job, now=self._now(connection))
            )
        except ServiceError:
            claim = rows.ClaimResult.BUSY
        except UnspoolError:  # the corpus was closed
            claim = rows.ClaimResult.CANCELLED
        if claim is not rows.ClaimResult.BUSY:
            return claim is rows.ClaimResult.CLAIMED
        with self._changed:
            if not self._is_closed and task.stop is None:
                task.due = time.monotonic() + RETRY_S
                self._waiting.insert(0, task)
                self._waiting.sort(key=lambda one: one.job.created_at)
                return False
        self._finish([task], task.stop or JobState.INTERRUPTED)
        return False

    def _run(self, task: _Task) -> None:
        task.thread = threading.get_ident()
        try:
            if task.stop is not None:
                raise _StoppedError
            report = task.context.run(task.work, task.report_progress)
            self._finish([task], JobState.DONE, report=_encode_report(report))
        except _StoppedError:
            self._finish([task], task.stop or JobState.INTERRUPTED)
        except UnspoolError as error:
            self._finish([task], JobState.FAILED, error_code=error.code, error=str(error))
        except BaseException:  # the thread has other jobs to run; the message may contain secrets
            logging.getLogger("unspool").exception("job %s failed on a bug", task.job.id)
            message = f"this is a bug in unspool; the service's log says more of job {task.job.id}"
            self._finish([task], JobState.FAILED, error_code="bug", error=message)

    def _finish(
        self,
        tasks: Sequence[_Task],
        state: JobState,
        *,
        report: Mapping[str, Any] | None = None,
        error_code: str = "",
        error: str = "",
    ) -> None:
        """Store the end of tasks as soon as the database answers."""

        def write(connection: Connection) -> None:
            rows.finish_jobs(
                connection,
                [task.job.id for task in tasks],
                state,
                now=self._now(connection),
                progress=tasks[0].progress if len(tasks) == 1 else None,
                report=report,
                error_code=error_code,
                error=error,
            )

        deadline = time.monotonic() + PATIENCE_S
        while tasks:
            try:
                self._catalog.transact(write)
                return
            except UnspoolError as failure:
                if (
                    not isinstance(failure, ServiceError)
                    or time.monotonic() > deadline
                    or self._closing.wait(RETRY_S)
                ):
                    logging.getLogger("unspool").warning(
                        "the end of %d jobs could not be written: %s", len(tasks), failure.code
                    )
                    return

    # The monitor thread

    def _watch(self) -> None:
        """Write progress and heartbeats, and stop cancelled jobs, while there are jobs."""
        renewed = time.monotonic()
        try:
            while not self._closing.wait(POLL_S):
                with self._changed:
                    tasks = [task for task in (*self._waiting, *self._running) if task.is_stored]
                    if not self._waiting and not self._running:
                        self._monitor = None
                        return
                with suppress(UnspoolError):  # the next poll may succeed
                    if time.monotonic() - renewed >= HEARTBEAT_S or any(
                        task.progress is not task.saved_progress for task in tasks
                    ):
                        renewed = self._renew(tasks)
                    self._poll_requests(tasks)
        finally:
            with self._changed:
                if self._monitor is threading.current_thread():
                    self._monitor = None

    def _renew(self, tasks: Collection[_Task]) -> float:
        """Write heartbeats and new progress, and return when that began."""
        began = time.monotonic()
        changed = [
            (task, task.progress)
            for task in tasks
            if task.progress is not None and task.progress is not task.saved_progress
        ]
        ids = [task.job.id for task in tasks]
        progress = {task.job.id: new for task, new in changed}
        self._catalog.transact(
            lambda connection: rows.renew_jobs(
                connection, ids, progress=progress, now=self._now(connection)
            )
        )
        for task, new in changed:
            task.saved_progress = new
        return began

    def _poll_requests(self, tasks: Collection[_Task]) -> None:
        ids = {task.job.id for task in tasks}
        with self._catalog.read() as connection:
            cancelled = ids - rows.find_active(connection, ids)
        if cancelled:
            with self._changed:
                self._stop(cancelled)

    def _stop(self, ids: Collection[str]) -> None:
        """Remove tasks from the queue, and stop running ones. The caller has the lock."""
        self._waiting = [task for task in self._waiting if task.job.id not in ids]
        for task in self._running:
            if task.job.id in ids:
                task.stop = task.stop or JobState.CANCELLED
        self._changed.notify_all()


class ScopedJobs:
    """Jobs in the scope of one caller."""

    def __init__(self, jobs: JobQueue, corpus: Corpus) -> None:
        self._jobs = jobs
        self._corpus = corpus
        self._scope = corpus.scope

    def index(self, project: str, source: str | None = None, *, ref: str = "") -> Job:
        """Index a project in the background, from its recorded source if none is given."""
        corpus = self._corpus
        self._scope.require(Role.ADMIN, "indexing")
        corpus._access.check(project)
        actual = source or corpus.source_of(project)
        self._scope.check_source(actual)
        git.check_ref(actual, ref)
        return self._jobs.start(
            project,
            actual,
            lambda emit: corpus.index(actual, project=project, ref=ref, on_progress=emit),
            ref=ref,
        )

    def get(self, id: str) -> Job:
        """Return a job."""
        return self._redact(self._jobs.get(id, projects=self._scope.projects))

    def list(self, *, limit: int = 100) -> list[Job]:
        """Return jobs, newest first."""
        jobs = self._jobs.list(projects=self._scope.projects, limit=limit)
        return [self._redact(job) for job in jobs]

    def cancel(self, id: str) -> Job:
        """End a queued job, or ask a running one to stop."""
        self.get(id)
        self._scope.require(Role.ADMIN, "cancelling a job")
        return self._jobs.cancel(id, projects=self._scope.projects)

    def _redact(self, job: Job) -> Job:
        """Remove the source from a job, and the error that may name it, unless the caller is an
        admin.
        """
        if self._scope.role.allows(Role.ADMIN):
            return job
        error = "indexing failed; a key with the role admin is told why" if job.error else ""
        return replace(job, source="", error=error)


def _describe_source(source: str, ref: str) -> tuple[str, bool]:
    """Return a source without secrets, and True if nothing was left out."""
    text = str(source)
    shown = (
        git.redact(text)
        if git.is_git_url(text)
        else folders.make_storable(text).replace("\x00", "\ufffd")
    )
    return (f"{shown}#{folders.make_storable(ref)}" if ref else shown), shown == text


def _encode_report(report: IndexReport) -> dict[str, Any]:
    """Return the fields of a report without the skipped files, which may be very many."""
    values = asdict(
        replace(report, skips=(), failures=report.failures[:LISTED], masked=report.masked[:LISTED])
    )
    del values["skips"]
    for noun, listed in (("failures", report.failures), ("masked secrets", report.masked)):
        if len(listed) > LISTED:
            warning = f"{len(listed)} {noun} in all; the first {LISTED} are listed"
            values["warnings"] = (*values["warnings"], warning)
    return values


def _filter_names(projects: Collection[str] | None) -> Collection[str] | None:
    """Return the names that a project can have. A database may reject a query with others."""
    return None if projects is None else [name for name in projects if storable(name)]
