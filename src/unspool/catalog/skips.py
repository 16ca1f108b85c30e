"""Files that earlier runs rejected by their content, so that the next run need not read them."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.projects import hash_name
from unspool.catalog.schema import skipped
from unspool.catalog.statements import split_batches
from unspool.domain.reports import Skip


def record_skips(
    connection: Connection, project_id: int, skips: Sequence[tuple[Skip, int, int]], *, recipe: str
) -> None:
    """Store skipped files with size and modification time, and the recipe that rejected them."""
    delete_skips(connection, project_id, [skip.path for skip, _, _ in skips])
    rows = [
        {
            "project_id": project_id,
            "path_sha": hash_name(skip.path),
            "path": skip.path,
            "size_bytes": size,
            "modified_ns": modified,
            "reason": skip.reason,
            "detail": skip.detail,
            "recipe": recipe,
        }
        for skip, size, modified in skips
    ]
    if rows:
        connection.execute(sa.insert(skipped), rows)


def load_skips(
    connection: Connection, project_id: int, *, recipe: str
) -> dict[str, tuple[int, int, Skip]]:
    """Return path -> size, modification time and skip of the files that a recipe rejected."""
    rows = connection.execute(
        sa.select(skipped).where(skipped.c.project_id == project_id, skipped.c.recipe == recipe)
    )
    return {
        row.path: (
            row.size_bytes,
            row.modified_ns,
            Skip(path=row.path, reason=row.reason, detail=row.detail),
        )
        for row in rows
    }


def delete_skips(connection: Connection, project_id: int, paths: Sequence[str]) -> None:
    """Delete skips of files that no longer exist or are indexed now."""
    for batch in split_batches(paths):
        query = sa.delete(skipped).where(
            skipped.c.project_id == project_id,
            skipped.c.path_sha.in_([hash_name(path) for path in batch]),
        )
        connection.execute(query)
