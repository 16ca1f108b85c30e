"""Vectors of texts, by vector space and SHA-256 of the text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import spaces
from unspool.catalog.schema import embeddings
from unspool.catalog.statements import insert_missing, lock_table, split_batches
from unspool.errors import ConflictError


def insert_embeddings(connection: Connection, space_id: int, vectors: Mapping[bytes, bytes]) -> int:
    """Store the vectors of texts that have none, and return their number."""
    rows = sorted((space_id, sha, vector) for sha, vector in vectors.items())
    return insert_missing(connection, embeddings, ("space_id", "text_sha", "vector"), rows)


def store_embeddings(
    connection: Connection, shas: Collection[bytes], vectors: Mapping[bytes, bytes], space_id: int
) -> int:
    """Store vectors, check that each of the texts has one, and return the number of new ones."""
    lock_table(connection, embeddings, exclusive=False)
    spaces.check_active(connection, space_id)
    count = insert_embeddings(connection, space_id, vectors)
    needed = set(shas) - vectors.keys()
    missing = needed - find_embedded(connection, space_id, needed)
    if missing:  # they existed when the batch was prepared
        raise ConflictError(
            f"{len(missing)} embeddings were deleted while they were needed; run again"
        )
    return count


def find_embedded(connection: Connection, space_id: int, shas: Iterable[bytes]) -> set[bytes]:
    """Return those of the texts that have a vector."""
    known: set[bytes] = set()
    for batch in split_batches(shas):
        query = sa.select(embeddings.c.text_sha).where(
            embeddings.c.space_id == space_id, embeddings.c.text_sha.in_(batch)
        )
        known.update(connection.execute(query).scalars())
    return known
