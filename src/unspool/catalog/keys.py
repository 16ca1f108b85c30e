"""Access keys of a service. Each function is part of the caller's transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from unspool.catalog.schema import keys
from unspool.domain.keys import Key, Role


def insert_key(connection: sa.Connection, key: Key, sha: bytes) -> None:
    """Store a new key with the hash of its secret."""
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


def find_key(connection: sa.Connection, id_: str) -> tuple[Key, bytes] | None:
    """Return a key and the hash of its secret."""
    row = connection.execute(_FIND, {"b_id": id_}).first()
    return None if row is None else (_build_key(row), bytes(row.sha))


def list_keys(connection: sa.Connection) -> list[Key]:
    """Return all keys, oldest first."""
    rows = connection.execute(sa.select(keys).order_by(keys.c.created_at, keys.c.id))
    return [_build_key(row) for row in rows]


def revoke_key(connection: sa.Connection, id_: str, now: datetime) -> Key | None:
    """Revoke a key, unless it is revoked already, and return it; None if it does not exist."""
    connection.execute(
        sa.update(keys).where(keys.c.id == id_, keys.c.revoked_at.is_(None)).values(revoked_at=now)
    )
    found = find_key(connection, id_)
    return None if found is None else found[0]


def has_keys(connection: sa.Connection) -> bool:
    """Return true if a key has ever existed."""
    return connection.execute(_ANY).first() is not None


_FIND = sa.select(keys).where(keys.c.id == sa.bindparam("b_id"))
_ANY = sa.select(keys.c.id).limit(1)


def _build_key(row: Any) -> Key:
    return Key(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        projects=tuple(row.projects),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
