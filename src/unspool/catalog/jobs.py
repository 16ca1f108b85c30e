"""Jobs, in SQL: every process of a service reads the same rows, and one that has been silent for
long counts as gone.

A row says what its process last wrote. Whether that process still lives is told by the heartbeat,
when the row is read: nobody writes for it, so one that was only held up is at work again once it
goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.schema import jobs
from unspool.catalog.statements import batches, hold
from unspool.domain.jobs import Job, JobState
from unspool.domain.reports import Progress

# six heartbeats; a batch that holds the catalog takes well under a second
SILENCE = timedelta(seconds=30)
KEPT_FOR = timedelta(days=7)
KEPT_AT_MOST = 1_000  # of those that are over

_OPEN = (JobState.QUEUED, JobState.RUNNING)
_is_open = jobs.c.state.in_(_OPEN)
_COLUMNS = [jobs.c[name] for name in (*Job.__dataclass_fields__, "heartbeat_at")]


class Claim(Enum):
    """What came of an attempt to begin a job."""

    TAKEN = "taken"
    LATER = "later"  # another job of the project runs
    GONE = "gone"  # it was cancelled while it waited


def now(connection: Connection) -> datetime:
    """The time by the clock of the database, or of this machine where that has none of its own."""
    if connection.dialect.name != "postgresql":
        return datetime.now(UTC)
    found: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return found.astimezone(UTC)


def add(connection: Connection, job: Job, *, worker: str, join: bool) -> Job:
    """Store a new job, and remove old ones.

    `join`, one for the same project and source that waits already is returned in its place.
    """
    hold(connection, jobs, alone=True)
    now = job.created_at
    if join:
        waits = (
            jobs.c.project == job.project,
            jobs.c.source == job.source,
            jobs.c.state == JobState.QUEUED,
            ~jobs.c.cancel,
        )
        row = connection.execute(
            sa.select(*_COLUMNS)
            .where(*waits, jobs.c.heartbeat_at >= now - SILENCE)
            .order_by(jobs.c.created_at)
            .limit(1)
        ).first()
        if row is not None:
            return _job(row, now)
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
    _sweep(connection, now)
    return job


def find(
    connection: Connection, id_: str, *, projects: Collection[str] | None, now: datetime
) -> Job | None:
    """The job of that id, where it belongs to one of the projects; None stands for all of them."""
    row = connection.execute(sa.select(*_COLUMNS).where(jobs.c.id == id_)).first()
    return (
        None
        if row is None or (projects is not None and row.project not in projects)
        else _job(row, now)
    )


def newest(
    connection: Connection, *, projects: Collection[str] | None, limit: int, now: datetime
) -> list[Job]:
    """Jobs of the projects, newest first."""
    query = (
        sa.select(*_COLUMNS)
        .where(_within(projects))
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
    )
    return [_job(row, now) for row in connection.execute(query.limit(limit))]


def count(
    connection: Connection, *, projects: Collection[str] | None, now: datetime
) -> dict[JobState, int]:
    """How many jobs stand where."""
    lost = sa.case(
        (_is_open & (jobs.c.heartbeat_at < now - SILENCE), JobState.INTERRUPTED.value),
        else_=jobs.c.state,
    )
    each = sa.select(lost.label("state")).where(_within(projects)).subquery()
    rows = connection.execute(sa.select(each.c.state, sa.func.count()).group_by(each.c.state))
    return {**dict.fromkeys(JobState, 0), **{JobState(state): number for state, number in rows}}


def claim(connection: Connection, job: Job, *, now: datetime) -> Claim:
    """Begin a job, unless another one of its project is running, in whichever process."""
    hold(connection, jobs, alone=True)
    runs = (
        jobs.c.project == job.project,
        jobs.c.state == JobState.RUNNING,
        jobs.c.heartbeat_at >= now - SILENCE,
    )
    if connection.execute(sa.select(jobs.c.id).where(*runs).limit(1)).first() is not None:
        return Claim.LATER
    begun = sa.update(jobs).where(
        jobs.c.id == job.id, jobs.c.state == JobState.QUEUED, ~jobs.c.cancel
    )
    changed = connection.execute(
        begun.values(state=JobState.RUNNING.value, started_at=now, heartbeat_at=now)
    ).rowcount
    return Claim.TAKEN if changed else Claim.GONE


def beat(
    connection: Connection, ids: Iterable[str], *, progress: Mapping[str, Progress], now: datetime
) -> None:
    """Say that these jobs are alive, and how far some of them are."""
    for some in batches(sorted(ids)):
        connection.execute(
            sa.update(jobs).where(jobs.c.id.in_(some), _is_open).values(heartbeat_at=now)
        )
    for id_, one in progress.items():
        connection.execute(
            sa.update(jobs).where(jobs.c.id == id_, _is_open).values(progress=asdict(one))
        )


def wanted(connection: Connection, ids: Iterable[str]) -> frozenset[str]:
    """Those of the jobs that are neither over nor asked to stop."""
    found: set[str] = set()
    for some in batches(ids):
        found.update(
            connection.execute(
                sa.select(jobs.c.id).where(jobs.c.id.in_(some), _is_open, ~jobs.c.cancel)
            ).scalars()
        )
    return frozenset(found)


def finish(
    connection: Connection,
    ids: Iterable[str],
    state: JobState,
    *,
    now: datetime,
    progress: Progress | None = None,
    report: Mapping[str, Any] | None = None,
    error_code: str = "",
    error: str = "",
) -> None:
    """Say how jobs ended; what is over already stays as it is."""
    values: dict[str, Any] = {
        "state": state.value,
        "finished_at": now,
        "heartbeat_at": now,
        "error_code": error_code,
        "error": error,
    }
    values |= {} if progress is None else {"progress": asdict(progress)}
    values |= {} if report is None else {"report": dict(report)}
    for some in batches(sorted(ids)):
        connection.execute(sa.update(jobs).where(jobs.c.id.in_(some), _is_open).values(**values))


def cancel(connection: Connection, id_: str, *, now: datetime) -> None:
    """End a job that waits, and ask one that runs to stop.

    One whose process is gone stays interrupted.
    """
    alive = (jobs.c.id == id_, jobs.c.heartbeat_at >= now - SILENCE)
    waits = sa.update(jobs).where(*alive, jobs.c.state == JobState.QUEUED)
    connection.execute(waits.values(state=JobState.CANCELLED.value, cancel=True, finished_at=now))
    connection.execute(
        sa.update(jobs).where(*alive, jobs.c.state == JobState.RUNNING).values(cancel=True)
    )


def forget(connection: Connection, project: str) -> None:
    """Remove the jobs of a project that goes.

    One that runs is asked to stop, and is seen until it is swept; one that waits never begins.
    """
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.project == project, jobs.c.state == JobState.RUNNING)
        .values(cancel=True)
    )
    connection.execute(
        sa.delete(jobs).where(jobs.c.project == project, jobs.c.state != JobState.RUNNING)
    )


def _sweep(connection: Connection, now: datetime) -> None:
    """Remove jobs that are over: those of long ago, and the oldest where there are many."""
    over = ~_is_open | (jobs.c.heartbeat_at < now - SILENCE)
    connection.execute(sa.delete(jobs).where(over, jobs.c.heartbeat_at < now - KEPT_FOR))
    many = (
        sa.select(jobs.c.id)
        .where(over)
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .offset(KEPT_AT_MOST)
    )
    for some in batches(connection.execute(many).scalars().all()):
        connection.execute(sa.delete(jobs).where(jobs.c.id.in_(some)))


def _within(projects: Collection[str] | None) -> sa.ColumnElement[bool]:
    return sa.true() if projects is None else jobs.c.project.in_(sorted(projects))


def _job(row: Any, now: datetime) -> Job:
    values = dict(row._mapping)
    heartbeat, state = values.pop("heartbeat_at"), JobState(values["state"])
    if not state.is_over and heartbeat < now - SILENCE:
        values |= {"state": JobState.INTERRUPTED, "finished_at": heartbeat}
    else:
        values["state"] = state
    values["progress"] = Progress(**values["progress"]) if values["progress"] else None
    return Job(**values)
