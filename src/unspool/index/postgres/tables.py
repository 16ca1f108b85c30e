"""The table of a vector space, and the indexes over it. Each space has its own table, so that
several dimensions live side by side.

Each large project has an index of its own: it is smaller than one over all, a search in it never
meets another project's vectors, and writing into small projects, which need no index, does not have
to keep one up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from unspool.catalog import driver
from unspool.errors import ConfigError
from unspool.index.options import Metric, VectorOptions
from unspool.index.postgres import partitioning

MAX_DIMENSION = {"vector": 2_000, "halfvec": 4_000}  # of what an index takes
MAX_KEPT = 16_000  # of what a column takes, of either type
# up to this a vector is kept in its row: two and more to a page. Longer ones are kept apart, as
# PostgreSQL does by itself
INLINE_BYTES = 4_000

# what is called `name` in this catalog, not in another one in sight
OWN = "to_regclass(format('%%I.%%I', current_schema(), %(name)s::text))"
OPERATOR = {Metric.COSINE: "<=>", Metric.L2: "<->", Metric.INNER: "<#>"}
_CLASS = {Metric.COSINE: "cosine_ops", Metric.L2: "l2_ops", Metric.INNER: "ip_ops"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorTable:
    """Where the vectors of a space are."""

    space_id: int
    type: str  # vector or halfvec
    dimension: int

    @property
    def name(self) -> str:
        return f"vectors_{self.space_id}"

    def index_sql(self, part: str, project: int, options: VectorOptions, rows: int) -> str:
        """How the index over a project's vectors is made, in the table or in one of its
        partitions.
        """
        parameters = (
            (
                f"m = {options.hnsw_m}, ef_construction = "
                f"{max(options.hnsw_ef_construction, 2 * options.hnsw_m)}"
            )
            if options.index == "hnsw"
            else f"lists = {lists(options, rows)}"
        )
        return (
            f"CREATE INDEX CONCURRENTLY {self.index_name(project, options)} ON {part} "
            f"USING {options.index} (vector {self.type}_{_CLASS[options.metric]}) WITH "
            f"({parameters}) WHERE project_id = {project:d}"
        )

    def index_name(self, project: int, options: VectorOptions) -> str:
        """What the index over a project's vectors is called for these options."""
        return f"ix_{self.name}_{project}_{options.index}_{options.metric}"


def lists(options: VectorOptions, rows: int) -> int:
    """How many lists an IVFFlat index gets: a thousandth of the rows up to a million, then their
    root.
    """
    return options.ivfflat_lists or max(10, rows // 1000 if rows <= 1_000_000 else int(rows**0.5))


def type_for(dimension: int, options: VectorOptions) -> str:
    """How vectors of a dimension are kept."""
    kind = (
        options.type
        if options.type != "auto"
        else "vector"
        if dimension <= MAX_DIMENSION["vector"]
        else "halfvec"
    )
    if dimension > MAX_KEPT:
        raise ConfigError(
            f"a {kind} has {MAX_KEPT} dimensions at most, the embedder gives {dimension}; choose "
            f"another UNSPOOL_EMBEDDER"
        )
    return kind


def find(connection: Connection, space_id: int) -> VectorTable | None:
    """The table of a space, if it was made."""
    query = (
        f"SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = "
        f"{OWN} AND a.attname = 'vector' AND NOT a.attisdropped"
    )
    found = connection.exec_driver_sql(query, {"name": f"vectors_{space_id}"}).scalar()
    if found is None:
        return None
    match = re.fullmatch(r"(?:.*\.)?(vector|halfvec)\((\d+)\)", str(found))
    assert match is not None
    return VectorTable(space_id=space_id, type=match[1], dimension=int(match[2]))


def names(connection: Connection) -> list[str]:
    """The tables of all spaces."""
    found = connection.exec_driver_sql("SELECT id FROM spaces ORDER BY id").fetchall()
    return [f"vectors_{id_}" for (id_,) in found if find(connection, id_) is not None]


def ensure(
    connection: Connection, space_id: int, dimension: int, options: VectorOptions
) -> VectorTable:
    """The table of a space, made if need be; inside a writing transaction."""
    connection.exec_driver_sql(
        "SELECT id FROM spaces WHERE id = %(id)s FOR UPDATE", {"id": space_id}
    )
    known = find(connection, space_id)
    if known is not None:
        return known
    table = VectorTable(space_id=space_id, type=type_for(dimension, options), dimension=dimension)
    partitions = partitioning.count(connection)
    connection.exec_driver_sql(
        f"CREATE TABLE {table.name} (project_id bigint NOT NULL, chunk_id bigint NOT NULL, "
        f"document_id bigint NOT NULL, "
        f"vector {table.type}({dimension}) NOT "
        f"NULL){' PARTITION BY HASH (project_id)' if partitions > 1 else ''}"
    )
    if dimension * (4 if table.type == "vector" else 2) <= INLINE_BYTES:
        # which partitions take over
        connection.exec_driver_sql(
            f"ALTER TABLE {table.name} ALTER COLUMN vector SET STORAGE PLAIN"
        )
    if partitions > 1:
        partitioning.add_partitions(connection, table.name, partitions)
    for statement in partitioning.vector_keys(table.name):
        connection.exec_driver_sql(statement)
    return table


def part_of(connection: Connection, table: VectorTable, project: int) -> str:
    """The table, or the partition of it, that holds a project's vectors; '' for a project that
    has none.
    """
    statement = (
        f"SELECT relname FROM pg_class WHERE oid = (SELECT tableoid FROM {table.name} WHERE "
        f"project_id = %(project)s LIMIT 1)"
    )
    return str(connection.exec_driver_sql(statement, {"project": project}).scalar() or "")


def remove(connection: Connection, table: VectorTable, project: int, ids: Sequence[int]) -> None:
    """Forget the vectors of chunks."""
    statement = (
        f"DELETE FROM {table.name} WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s)"
    )
    driver.execute(connection, statement, {"project": project, "ids": list(ids)})


def has_index(connection: Connection, name: str) -> bool | None:
    """Whether an index is there and complete; None where a build of it was broken off."""
    query = f"SELECT indisvalid FROM pg_index WHERE indexrelid = {OWN}"
    found = connection.exec_driver_sql(query, {"name": name}).scalar()
    return False if found is None else True if found else None
