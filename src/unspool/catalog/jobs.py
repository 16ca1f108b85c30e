"""Jobs of a service, shared by all of its processes.

A job whose process is silent for long is reported as interrupted. Its row is not changed: a process
that was only delayed continues its job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import sqlalchemy as sa

from unspool.catalog.schema import jobs
from unspool.catalog.statements import lock_table, split_batches
from unspool.domain.jobs import Job, JobState
from unspool.domain.reports import Progress

# six heartbeats; a batch that locks the catalog takes well under a second
SILENCE = timedelta(seconds=30)
KEPT_FOR = timedelta(days=7)
KEPT_AT_MOST = 1_000  # ended jobs

_OPEN = (JobState.QUEUED, JobState.RUNNING)
_is_open = jobs.c.state.in_(_OPEN)
_COLUMNS = [jobs.c[name] for name in (*Job.__dataclass_fields__, "heartbeat_at")]


class ClaimResult(Enum):
    """Result of an attempt to begin a job."""

    CLAIMED = "claimed"
    BUSY = "busy"  # another job of the project runs
    CANCELLED = "cancelled"  # while it waited


def read_clock(connection: sa.Connection) -> datetime:
    """Return the time of the database server, or of this machine for SQLite."""
    if connection.dialect.name != "postgresql":
        return datetime.now(UTC)
    now: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return now.astimezone(UTC)


def insert_job(connection: sa.Connection, job: Job, *, worker: str, join: bool) -> Job:
    """Store a new job and delete old ones.

    `join` returns a job that already waits for the same project and source instead.
    """
    lock_table(connection, jobs, exclusive=True)
    now = job.created_at
    if join and (waiting := _find_waiting(connection, job, now)) is not None:
        return waiting
    values = {
        "id": job.id,
        "project": job.project,
        "source": job.source,
        "state": job.state.value,
        "created_at": now,
        "heartbeat_at": now,
    }
    connection.execute(
        sa.insert(jobs).values(
            **values, worker=worker, cancel=False, progress={}, report={}, error_code="", error=""
        )
    )
    _delete_old(connection, now)
    return job


def _find_waiting(connection: sa.Connection, job: Job, now: datetime) -> Job | None:
    query = sa.select(*_COLUMNS).where(
        jobs.c.project == job.project,
        jobs.c.source == job.source,
        jobs.c.state == JobState.QUEUED,
        ~jobs.c.cancel,
        jobs.c.heartbeat_at >= now - SILENCE,
    )
    row = connection.execute(query.order_by(jobs.c.created_at).limit(1)).first()
    return None if row is None else _build_job(row, now)


def find_job(
    connection: sa.Connection, id_: str, *, projects: Collection[str] | None, now: datetime
) -> Job | None:
    """Return a job if it belongs to one of the projects. None means all projects."""
    query = sa.select(*_COLUMNS).where(jobs.c.id == id_, _match_projects(projects))
    row = connection.execute(query).first()
    return None if row is None else _build_job(row, now)


def list_jobs(
    connection: sa.Connection, *, projects: Collection[str] | None, limit: int, now: datetime
) -> list[Job]:
    """Return jobs of the projects, newest first."""
    query = (
        sa.select(*_COLUMNS)
        .where(_match_projects(projects))
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
    )
    return [_build_job(row, now) for row in connection.execute(query.limit(limit))]


def count_jobs(
    connection: sa.Connection, *, projects: Collection[str] | None, now: datetime
) -> dict[JobState, int]:
    """Count the jobs by state."""
    state = sa.case(
        (_is_open & (jobs.c.heartbeat_at < now - SILENCE), JobState.INTERRUPTED.value),
        else_=jobs.c.state,
    )
    each = sa.select(state.label("state")).where(_match_projects(projects)).subquery()
    rows = connection.execute(sa.select(each.c.state, sa.func.count()).group_by(each.c.state))
    return {**dict.fromkeys(JobState, 0), **{JobState(state): number for state, number in rows}}


def claim_job(connection: sa.Connection, job: Job, *, now: datetime) -> ClaimResult:
    """Begin a job, unless a process runs another job of its project."""
    lock_table(connection, jobs, exclusive=True)
    running = sa.select(jobs.c.id).where(
        jobs.c.project == job.project,
        jobs.c.state == JobState.RUNNING,
        jobs.c.heartbeat_at >= now - SILENCE,
    )
    if connection.execute(running.limit(1)).first() is not None:
        return ClaimResult.BUSY
    queued = sa.update(jobs).where(
        jobs.c.id == job.id, jobs.c.state == JobState.QUEUED, ~jobs.c.cancel
    )
    changed = connection.execute(
        queued.values(state=JobState.RUNNING.value, started_at=now, heartbeat_at=now)
    ).rowcount
    return ClaimResult.CLAIMED if changed else ClaimResult.CANCELLED


def renew_jobs(
    connection: sa.Connection,
    ids: Iterable[str],
    *,
    progress: Mapping[str, Progress],
    now: datetime,
) -> None:
    """Renew the heartbeats of jobs, and store the progress of some."""
    for batch in split_batches(sorted(ids)):
        connection.execute(
            sa.update(jobs).where(jobs.c.id.in_(batch), _is_open).values(heartbeat_at=now)
        )
    for id_, value in progress.items():
        connection.execute(
            sa.update(jobs).where(jobs.c.id == id_, _is_open).values(progress=asdict(value))
        )


def find_active(connection: sa.Connection, ids: Iterable[str]) -> frozenset[str]:
    """Return the ids of those jobs that have neither ended nor been cancelled."""
    found: set[str] = set()
    for batch in split_batches(ids):
        found.update(
            connection.execute(
                sa.select(jobs.c.id).where(jobs.c.id.in_(batch), _is_open, ~jobs.c.cancel)
            ).scalars()
        )
    return frozenset(found)


def finish_jobs(
    connection: sa.Connection,
    ids: Iterable[str],
    state: JobState,
    *,
    now: datetime,
    progress: Progress | None = None,
    report: Mapping[str, Any] | None = None,
    error_code: str = "",
    error: str = "",
) -> None:
    """Store how jobs ended. Jobs that have ended before are not changed."""
    values: dict[str, Any] = {
        "state": state.value,
        "finished_at": now,
        "heartbeat_at": now,
        "error_code": error_code,
        "error": error,
    }
    values |= {} if progress is None else {"progress": asdict(progress)}
    values |= {} if report is None else {"report": dict(report)}
    for batch in split_batches(sorted(ids)):
        connection.execute(sa.update(jobs).where(jobs.c.id.in_(batch), _is_open).values(**values))


def cancel_job(connection: sa.Connection, id_: str, *, now: datetime) -> None:
    """End a waiting job, and ask a running one to stop. An interrupted job stays interrupted."""
    alive = (jobs.c.id == id_, jobs.c.heartbeat_at >= now - SILENCE)
    waits = sa.update(jobs).where(*alive, jobs.c.state == JobState.QUEUED)
    connection.execute(waits.values(state=JobState.CANCELLED.value, cancel=True, finished_at=now))
    connection.execute(
        sa.update(jobs).where(*alive, jobs.c.state == JobState.RUNNING).values(cancel=True)
    )


def delete_jobs(connection: sa.Connection, project: str) -> None:
    """Delete the jobs of a project. A running one is asked to stop and deleted later."""
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.project == project, jobs.c.state == JobState.RUNNING)
        .values(cancel=True)
    )
    connection.execute(
        sa.delete(jobs).where(jobs.c.project == project, jobs.c.state != JobState.RUNNING)
    )


def _delete_old(connection: sa.Connection, now: datetime) -> None:
    """Delete ended jobs: those of long ago, and the oldest if there are many."""
    over = ~_is_open | (jobs.c.heartbeat_at < now - SILENCE)
    connection.execute(sa.delete(jobs).where(over, jobs.c.heartbeat_at < now - KEPT_FOR))
    many = (
        sa.select(jobs.c.id)
        .where(over)
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .offset(KEPT_AT_MOST)
    )
    for batch in split_batches(connection.execute(many).scalars().all()):
        connection.execute(sa.delete(jobs).where(jobs.c.id.in_(batch)))


def _match_projects(projects: Collection[str] | None) -> sa.ColumnElement[bool]:
    return sa.true() if projects is None else jobs.c.project.in_(sorted(projects))


def _build_job(row: Any, now: datetime) -> Job:
    values = dict(row._mapping)
    heartbeat, state = values.pop("heartbeat_at"), JobState(values["state"])
    if not state.is_over and heartbeat < now - SILENCE:
        values |= {"state": JobState.INTERRUPTED, "finished_at": heartbeat}
    else:
        values["state"] = state
    values["progress"] = Progress(**values["progress"]) if values["progress"] else None
    return Job(**values)
