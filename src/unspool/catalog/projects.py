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

from unspool.catalog import driver, jobs
from unspool.catalog.schema import (
    chunks,
    documents,
    embeddings,
    projects,
    removals,
    runs,
)
from unspool.catalog.statements import POSTGRES, count_rows, insert_if_missing, lock_table
from unspool.errors import ConflictError, Hint

# A run renews its heartbeat with every batch, every few seconds. After three minutes it is dead.
HEARTBEAT_LIMIT = timedelta(minutes=3)
# Tokens of the runs of this process. In a container every process may have the same pid.
_own_runs: set[str] = set()
_PROJECT_LOCK = 0x756E7370  # first half of the key of a project's advisory lock

_SELECT = sa.select(
    projects.c.id,
    projects.c.name,
    projects.c.root,
    projects.c.seq,
    projects.c.chunk_count,
    projects.c.created_at,
)
_FIND = _SELECT.where(projects.c.name_sha == sa.bindparam("b_sha"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRow:
    """Row of a project. `seq` is the number of its last change."""

    id: int
    name: str
    root: str
    seq: int
    chunk_count: int
    created_at: datetime


class ProjectVersion(NamedTuple):
    """A project at the time of a search."""

    id: int
    name: str
    seq: int
    chunk_count: int


def hash_name(name: str) -> bytes:
    """Return the key of a project's or document's name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()


def list_projects(connection: sa.Connection, ids: Sequence[int] | None = None) -> list[ProjectRow]:
    """Return all projects, or those of the ids that exist, by name."""
    query = _SELECT if ids is None else _SELECT.where(projects.c.id.in_(ids))
    rows = connection.execute(query.order_by(projects.c.name))
    return [ProjectRow(**row._mapping) for row in rows]


def find_project(connection: sa.Connection, name: str) -> ProjectRow | None:
    """Return a project, if it exists."""
    row = connection.execute(_FIND, {"b_sha": hash_name(name)}).first()
    return ProjectRow(**row._mapping) if row else None


def share_project(connection: sa.Connection, project_id: int) -> bool:
    """Keep a project from being locked until the transaction ends; False if it is deleted.

    Several writers share a project. Each locks the rows of the documents that it changes.
    """
    return _lock(connection, project_id, "pg_advisory_xact_lock_shared")


def lock_project(connection: sa.Connection, project_id: int) -> bool:
    """Exclude all writers of a project until the transaction ends; False if it is deleted."""
    return _lock(connection, project_id, "pg_advisory_xact_lock")


def _lock(connection: sa.Connection, project_id: int, function: str) -> bool:
    # SQLite has one writer at a time. Of two catalogs in a database, projects with the same
    # number wait for each other, which is rare and harmless.
    if connection.dialect.name == POSTGRES:
        values = {"kind": _PROJECT_LOCK, "id": project_id & 0x7FFFFFFF}
        driver.execute(connection, f"SELECT {function}(%(kind)s, %(id)s)", values)
    query = sa.select(projects.c.id).where(projects.c.id == project_id)
    return connection.execute(query).first() is not None


def ensure_project(connection: sa.Connection, name: str, *, root: str = "") -> ProjectRow:
    """Return a project, created if it is missing, and share it.

    A project without a root gets the given one. Another root is a conflict.
    """
    known = find_project(connection, name)
    # It repeats if another writer deleted the project just now.
    while known is None or not share_project(connection, known.id):
        values = {
            "name": name,
            "name_sha": hash_name(name),
            "root": root,
            "seq": 0,
            "floor": 0,
            "chunk_count": 0,
            "created_at": datetime.now(UTC),
        }
        insert_if_missing(connection, projects, values)
        known = find_project(connection, name)
    if root and known.root and known.root != root:
        raise ConflictError(
            f"project {name!r} was indexed from {known.root}, not {root}",
            hint=Hint.RENAME_PROJECT,
        )
    if root and not known.root:
        connection.execute(sa.update(projects).where(projects.c.id == known.id).values(root=root))
        known = replace(known, root=root)
    return known


def drop_project(connection: sa.Connection, project_id: int) -> int:
    """Delete a project with its jobs and all rows, and return the number of its documents."""
    name = connection.execute(
        sa.select(projects.c.name).where(projects.c.id == project_id)
    ).scalar()
    if name is not None:
        jobs.delete_jobs(connection, name)
    count = count_rows(connection, documents.c.project_id == project_id)
    for table in (chunks, removals, documents):
        connection.execute(sa.delete(table).where(table.c.project_id == project_id))
    connection.execute(sa.delete(projects).where(projects.c.id == project_id))
    return count


def prune_embeddings(connection: sa.Connection) -> int:
    """Delete the embeddings of texts that no chunk contains, and return their number."""
    # No writer may be about to rely on an embedding that is deleted here.
    lock_table(connection, embeddings, exclusive=True)
    unused = sa.except_(sa.select(embeddings.c.text_sha), sa.select(chunks.c.text_sha))
    return connection.execute(
        sa.delete(embeddings).where(embeddings.c.text_sha.in_(unused))
    ).rowcount


@contextmanager
def issue_run_token() -> Iterator[str]:
    """Provide the token of a run of this process.

    The run is over when this ends, even if that could not be stored.
    """
    token = secrets.token_hex(8)
    _own_runs.add(token)
    try:
        yield token
    finally:
        _own_runs.discard(token)


def begin_run(connection: sa.Connection, project_id: int, token: str) -> int:
    """Store that this process indexes a project, and return the run's id."""
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


def renew_run(connection: sa.Connection, run_id: int, *, finished: bool = False) -> None:
    """Renew the heartbeat of a run, or end it."""
    now = datetime.now(UTC)
    values = {"heartbeat_at": now, "finished_at": now} if finished else {"heartbeat_at": now}
    connection.execute(sa.update(runs).where(runs.c.id == run_id).values(**values))


def list_live_runs(connection: sa.Connection, project_id: int | None = None) -> frozenset[int]:
    """Return the ids of live runs, of one project or of all.

    A live run has not ended, has a recent heartbeat and, on this machine, an existing process.
    """
    query = sa.select(runs).where(runs.c.finished_at.is_(None))
    if project_id is not None:
        query = query.where(runs.c.project_id == project_id)
    now, host = datetime.now(UTC), socket.gethostname()
    return frozenset(
        run.id
        for run in connection.execute(query)
        if now - run.heartbeat_at < HEARTBEAT_LIMIT
        and (run.host != host or _is_running(run.pid, run.process))
    )


def _is_running(pid: int, process: str) -> bool:
    if pid == os.getpid():
        return process in _own_runs
    # On Windows signal 0 would end the process; there the heartbeat alone decides.
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
