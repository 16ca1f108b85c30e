"""Table of a vector space, its rows and its indexes.

Each space has its own table, because a table has a single dimension. Each large project has its own
index. It is smaller than an index over all projects, and a search in it never visits vectors of
other projects. Small projects need no index, and writing them does not update any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pgvector import HalfVector, Vector
from sqlalchemy.engine import Connection

from unspool.catalog import driver
from unspool.catalog.feed import ChunkText
from unspool.errors import ConfigError, ConflictError
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Vectors
from unspool.index.postgres import partitioning

MAX_DIMENSION = {"vector": 2_000, "halfvec": 4_000}  # of an indexed column
MAX_STORED = 16_000  # of a column of either type
# Up to this size a vector is stored in its row, so that two and more fit a page. PostgreSQL stores
# longer ones out of line.
INLINE_BYTES = 4_000

# resolves `name` in the catalog's schema only
OWN = "to_regclass(format('%%I.%%I', current_schema(), %(name)s::text))"
OPERATOR = {Metric.COSINE: "<=>", Metric.L2: "<->", Metric.INNER: "<#>"}
_CLASS = {Metric.COSINE: "cosine_ops", Metric.L2: "l2_ops", Metric.INNER: "ip_ops"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorTable:
    """Table of the vectors of a space."""

    space_id: int
    type: str  # vector or halfvec
    dimension: int

    @property
    def name(self) -> str:
        """Name of the table."""
        return f"vectors_{self.space_id}"

    def encode(self, vector: Vectors) -> Vector | HalfVector:
        """Return a vector as a value of the column."""
        return Vector(vector) if self.type == "vector" else HalfVector(vector)

    def build_index_sql(self, part: str, project: int, options: VectorOptions, rows: int) -> str:
        """Return the statement that creates a project's index in the table or a partition."""
        parameters = f"lists = {choose_lists(options, rows)}"
        if options.index == "hnsw":
            ef = max(options.hnsw_ef_construction, 2 * options.hnsw_m)
            parameters = f"m = {options.hnsw_m}, ef_construction = {ef}"
        return (
            f"CREATE INDEX CONCURRENTLY {self.name_index(project, options)} ON {part} "
            f"USING {options.index} (vector {self.type}_{_CLASS[options.metric]}) WITH "
            f"({parameters}) WHERE project_id = {project:d}"
        )

    def name_index(self, project: int, options: VectorOptions) -> str:
        """Return the name of a project's index for these options."""
        return f"ix_{self.name}_{project}_{options.index}_{options.metric}"


def choose_lists(options: VectorOptions, rows: int) -> int:
    """Return the number of lists of an IVFFlat index.

    By default it is a thousandth of the rows up to a million, then their square root.
    """
    return options.ivfflat_lists or max(10, rows // 1000 if rows <= 1_000_000 else int(rows**0.5))


def choose_type(dimension: int, options: VectorOptions) -> str:
    """Return the column type for vectors of a dimension."""
    kind = options.type
    if kind == "auto":
        kind = "vector" if dimension <= MAX_DIMENSION["vector"] else "halfvec"
    if dimension > MAX_STORED:
        raise ConfigError(
            f"a {kind} has {MAX_STORED} dimensions at most, the embedder returns {dimension}; "
            f"choose another UNSPOOL_EMBEDDER"
        )
    return kind


def find_table(connection: Connection, space_id: int) -> VectorTable | None:
    """Return the table of a space, if it exists."""
    found = connection.exec_driver_sql(
        "SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = "
        f"{OWN} AND a.attname = 'vector' AND NOT a.attisdropped",
        {"name": f"vectors_{space_id}"},
    ).scalar()
    if found is None:
        return None
    match = re.fullmatch(r"(?:.*\.)?(vector|halfvec)\((\d+)\)", str(found))
    assert match is not None
    return VectorTable(space_id=space_id, type=match[1], dimension=int(match[2]))


def list_tables(connection: Connection) -> list[str]:
    """Return the names of the existing tables of all spaces."""
    found = connection.exec_driver_sql("SELECT id FROM spaces ORDER BY id").scalars().all()
    return [f"vectors_{id_}" for id_ in found if find_table(connection, id_) is not None]


def ensure_table(
    connection: Connection, space_id: int, dimension: int, options: VectorOptions
) -> VectorTable:
    """Return the table of a space; create it if it does not exist."""
    connection.exec_driver_sql(
        "SELECT id FROM spaces WHERE id = %(id)s FOR UPDATE", {"id": space_id}
    )
    known = find_table(connection, space_id)
    if known is not None:
        return known
    table = VectorTable(
        space_id=space_id, type=choose_type(dimension, options), dimension=dimension
    )
    partitions = partitioning.count_partitions(connection)
    suffix = " PARTITION BY HASH (project_id)" if partitions > 1 else ""
    connection.exec_driver_sql(
        f"CREATE TABLE {table.name} (project_id bigint NOT NULL, chunk_id bigint NOT NULL, "
        f"document_id bigint NOT NULL, vector {table.type}({dimension}) NOT NULL){suffix}"
    )
    if dimension * (4 if table.type == "vector" else 2) <= INLINE_BYTES:
        # partitions inherit it
        connection.exec_driver_sql(
            f"ALTER TABLE {table.name} ALTER COLUMN vector SET STORAGE PLAIN"
        )
    if partitions > 1:
        partitioning.add_partitions(connection, table.name, partitions)
    for statement in partitioning.build_vector_keys_sql(table.name):
        connection.exec_driver_sql(statement)
    return table


def find_part(connection: Connection, table: VectorTable, project: int) -> str:
    """Return the table or partition that contains a project's vectors; '' if there are none."""
    found = connection.exec_driver_sql(
        f"SELECT relname FROM pg_class WHERE oid = (SELECT tableoid FROM {table.name} WHERE "
        f"project_id = %(project)s LIMIT 1)",
        {"project": project},
    )
    return str(found.scalar() or "")


def add_vectors(
    connection: Connection,
    table: VectorTable,
    project: int,
    chunks: Sequence[ChunkText],
    known: Mapping[bytes, bytes],
) -> None:
    """Insert the vectors of chunks; those that are not in `known` are read from the catalog."""
    vectors = dict(known)
    missing = list({chunk.text_sha for chunk in chunks} - vectors.keys())
    if missing:
        statement = (
            "SELECT text_sha, vector FROM embeddings WHERE space_id = %(space)s AND text_sha = "
            "ANY(%(shas)s)"
        )
        values = {"space": table.space_id, "shas": missing}
        vectors.update(driver.fetch_rows(connection, statement, values))
        if any(sha not in vectors for sha in missing):
            raise ConflictError(
                "some embeddings are missing in the catalog; index again to create them"
            )
    columns = {"project_id": "int8", "chunk_id": "int8", "document_id": "int8"}
    rows = [
        (
            project,
            chunk.id,
            chunk.document_id,
            table.encode(np.frombuffer(vectors[chunk.text_sha], dtype="<f4")),
        )
        for chunk in chunks
    ]
    driver.copy_rows(connection, table.name, {**columns, "vector": table.type}, rows)


def delete_vectors(
    connection: Connection, table: VectorTable, project: int, ids: Sequence[int]
) -> None:
    """Delete the vectors of chunks."""
    driver.execute(
        connection,
        f"DELETE FROM {table.name} WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s)",
        {"project": project, "ids": list(ids)},
    )


def has_valid_index(connection: Connection, name: str) -> bool | None:
    """Return whether an index exists and is valid; None if its build did not finish."""
    query = f"SELECT indisvalid FROM pg_index WHERE indexrelid = {OWN}"
    found = connection.exec_driver_sql(query, {"name": name}).scalar()
    return False if found is None else True if found else None
