"""Keys, in SQL. Each function is part of a caller's transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.schema import keys
from unspool.domain.keys import Key, Role


def insert(connection: Connection, key: Key, sha: bytes) -> None:
    """Store a new key by what proves it."""
    connection.execute(
        sa.insert(keys).values(
            id=key.id,
            name=key.name,
            sha=sha,
            role=key.role.value,
            projects=list(key.projects),
            created_at=key.created_at,
            expires_at=key.expires_at,
        )
    )


def find(connection: Connection, id_: str) -> tuple[Key, bytes] | None:
    """A key by its id, with what proves it."""
    row = connection.execute(_FIND, {"b_id": id_}).first()
    return None if row is None else (_key(row), bytes(row.sha))


def every(connection: Connection) -> list[Key]:
    """All keys, oldest first."""
    return [
        _key(row)
        for row in connection.execute(sa.select(keys).order_by(keys.c.created_at, keys.c.id))
    ]


def revoke(connection: Connection, id_: str, now: datetime) -> Key | None:
    """End a key now, unless it has been ended before; None where there is none."""
    connection.execute(
        sa.update(keys).where(keys.c.id == id_, keys.c.revoked_at.is_(None)).values(revoked_at=now)
    )
    found = find(connection, id_)
    return None if found is None else found[0]


def has_any(connection: Connection) -> bool:
    """Whether there has ever been a key."""
    return connection.execute(_ANY).first() is not None


_FIND = sa.select(keys).where(keys.c.id == sa.bindparam("b_id"))
_ANY = sa.select(keys.c.id).limit(1)


def _key(row: Any) -> Key:
    return Key(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        projects=tuple(row.projects),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
