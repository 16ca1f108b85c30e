"""Projects and indexing runs."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import jobs
from unspool.catalog.schema import (
    chunks,
    documents,
    embeddings,
    projects,
    removals,
    runs,
    sequences,
)
from unspool.catalog.statements import hold, insert_new
from unspool.errors import ConflictError, NotFoundError

# A run says that it lives with every batch, which is every few seconds; three minutes of silence is
# a dead run.
HEARTBEAT_LIMIT = timedelta(minutes=3)
# the tokens of this process's own runs; in a container every process may have the same number
_at_work: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRow:
    """A project as the catalog knows it. `seq` counts the changes of its chunks."""

    id: int
    name: str
    root: str
    seq: int
    floor: int
    created_at: datetime


class ProjectVersion(NamedTuple):
    """A project at the time of a search."""

    id: int
    name: str
    seq: int


def name_sha(name: str) -> bytes:
    """The key of a project's or document's name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()


def all_projects(connection: Connection) -> list[ProjectRow]:
    """Every project, by name."""
    return [_row(row) for row in connection.execute(_select().order_by(projects.c.name))]


def by_ids(connection: Connection, ids: Sequence[int]) -> list[ProjectRow]:
    """Those of the projects that still exist, by name."""
    return [
        _row(row)
        for row in connection.execute(
            _select().where(projects.c.id.in_(ids)).order_by(projects.c.name)
        )
    ]


def find(connection: Connection, name: str, *, alone: bool = False) -> ProjectRow | None:
    """The project of that name; `alone`, nobody else may write it until the transaction ends."""
    row = connection.execute(_FIND_ALONE if alone else _FIND, {"b_sha": name_sha(name)}).first()
    return _row(row) if row else None


def take(connection: Connection, project_id: int) -> bool:
    """Have a project to oneself for writing until the transaction ends; False where it is gone.

    One writer at a time is what all that is written here relies on.
    """
    return (
        connection.execute(
            sa.select(projects.c.id).where(projects.c.id == project_id).with_for_update()
        ).first()
        is not None
    )


def ensure(connection: Connection, name: str, *, root: str = "") -> ProjectRow:
    """The project of that name, made if need be, to oneself.

    A root given for a project without one is noted; another root is a conflict.
    """
    known = find(connection, name, alone=True)
    # more than once where another one made it at the same time and it was forgotten at once
    while known is None:
        values = {
            "name": name,
            "name_sha": name_sha(name),
            "root": root,
            "seq": 0,
            "floor": 0,
            "created_at": datetime.now(UTC),
        }
        insert_new(connection, projects, values)
        known = find(connection, name, alone=True)
    if root and known.root and known.root != root:
        raise ConflictError(
            f"project {name!r} was indexed from {known.root}, not {root}; give this one another "
            f"name with --project, or forget that one first"
        )
    if root and not known.root:
        connection.execute(sa.update(projects).where(projects.c.id == known.id).values(root=root))
        known = replace(known, root=root)
    return known


def next_seq(connection: Connection, project_id: int, *, feeds: bool) -> int:
    """The next sequence number; call it inside the transaction that changes chunks.

    `feeds`, there is something that catches up by it.
    """
    seq = connection.execute(_NEXT_SEQ, {"b_id": project_id}).scalar()
    if seq is None:
        raise NotFoundError(
            "the project was forgotten while it was being written; index it again if that was "
            "not meant"
        )
    if feeds:
        connection.execute(
            sa.insert(sequences).values(project_id=project_id, seq=seq, stamp=secrets.randbits(62))
        )
    return int(seq)


_NEXT_SEQ = (
    sa.update(projects)
    .where(projects.c.id == sa.bindparam("b_id"))
    .values(seq=projects.c.seq + 1)
    .returning(projects.c.seq)
)


def drop(connection: Connection, project_id: int) -> int:
    """Remove a project with everything under it, and its jobs, which know it by name; returns
    how many documents went.
    """
    name = connection.execute(
        sa.select(projects.c.name).where(projects.c.id == project_id)
    ).scalar()
    if name is not None:
        jobs.forget(connection, name)
    count = connection.execute(
        sa.select(sa.func.count()).where(documents.c.project_id == project_id)
    ).scalar_one()
    connection.execute(sa.delete(chunks).where(chunks.c.project_id == project_id))
    connection.execute(sa.delete(removals).where(removals.c.project_id == project_id))
    connection.execute(sa.delete(documents).where(documents.c.project_id == project_id))
    connection.execute(sa.delete(projects).where(projects.c.id == project_id))
    return int(count)


def prune_removals(connection: Connection, project_id: int, *, upto: int) -> None:
    """Forget removals that have been absorbed; whoever is further behind starts anew."""
    if connection.execute(
        sa.delete(removals).where(removals.c.project_id == project_id, removals.c.seq <= upto)
    ).rowcount:
        connection.execute(
            sa.update(projects).where(projects.c.id == project_id).values(floor=upto)
        )
    connection.execute(
        sa.delete(sequences).where(sequences.c.project_id == project_id, sequences.c.seq < upto)
    )


def prune_embeddings(connection: Connection) -> int:
    """Drop the embeddings of texts that no chunk holds any more; returns how many went."""
    hold(connection, embeddings, alone=True)  # nobody may be about to rely on one that goes
    unused = sa.except_(sa.select(embeddings.c.text_sha), sa.select(chunks.c.text_sha))
    return connection.execute(
        sa.delete(embeddings).where(embeddings.c.text_sha.in_(unused))
    ).rowcount


@contextmanager
def at_work() -> Iterator[str]:
    """The token of a run that this process begins.

    It is over when this ends, also where that could not be noted.
    """
    token = secrets.token_hex(8)
    _at_work.add(token)
    try:
        yield token
    finally:
        _at_work.discard(token)


def begin_run(connection: Connection, project_id: int, token: str) -> int:
    """Note that this process indexes a project; returns the run's id."""
    now = datetime.now(UTC)
    connection.execute(
        sa.delete(runs).where(runs.c.project_id == project_id, runs.c.finished_at.is_not(None))
    )
    result = connection.execute(
        sa.insert(runs).values(
            project_id=project_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            process=token,
            started_at=now,
            heartbeat_at=now,
        )
    )
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


def beat(connection: Connection, run_id: int, *, finished: bool = False) -> None:
    """Say that a run is alive, or that it has ended."""
    now = datetime.now(UTC)
    values = {"heartbeat_at": now, "finished_at": now} if finished else {"heartbeat_at": now}
    connection.execute(sa.update(runs).where(runs.c.id == run_id).values(**values))


def live_runs(connection: Connection, project_id: int) -> frozenset[int]:
    """The runs that are still at work: not ended, heard of lately and, on this machine, with a
    process that exists.
    """
    return _live(connection, runs.c.project_id == project_id)


def any_live_run(connection: Connection) -> bool:
    """Whether anything is being indexed at the moment, in whichever project."""
    return bool(_live(connection, sa.true()))


def _live(connection: Connection, which: sa.ColumnElement[bool]) -> frozenset[int]:
    query = sa.select(
        runs.c.id, runs.c.host, runs.c.pid, runs.c.process, runs.c.heartbeat_at
    ).where(which, runs.c.finished_at.is_(None))
    now, host = datetime.now(UTC), socket.gethostname()
    return frozenset(
        run_id
        for run_id, run_host, pid, process, heartbeat in connection.execute(query)
        if now - heartbeat < HEARTBEAT_LIMIT and (run_host != host or _exists(pid, process))
    )


def _exists(pid: int, process: str) -> bool:
    if pid == os.getpid():
        return process in _at_work
    if os.name == "nt":  # signal 0 would end the process there; the heartbeat alone decides
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _select() -> sa.Select[tuple[int, str, str, int, int, datetime]]:
    return sa.select(
        projects.c.id,
        projects.c.name,
        projects.c.root,
        projects.c.seq,
        projects.c.floor,
        projects.c.created_at,
    )


_FIND = _select().where(projects.c.name_sha == sa.bindparam("b_sha"))
_FIND_ALONE = _FIND.with_for_update()


def _row(row: sa.Row[tuple[int, str, str, int, int, datetime]]) -> ProjectRow:
    return ProjectRow(
        id=row.id,
        name=row.name,
        root=row.root,
        seq=row.seq,
        floor=row.floor,
        created_at=row.created_at,
    )
