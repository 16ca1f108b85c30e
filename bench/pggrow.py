"""How PostgreSQL's vector search grows: clustered vectors by COPY, the index as the store builds
it, searches through the store.

Three million vectors of 384 dimensions: `python bench/pggrow.py --sizes 10000 30000 100000 300000
1000000 3000000 --shared-buffers 4GB`. By the bytes of each vector at 100000 their table takes 5 GB
and their index 6; with the write-ahead log have 25 GB of disk free, and 8 GB of memory, since a
search is fast only while the index fits. The store builds within 2 GB, which hold the graph of
800000 such vectors; beyond that a build goes on on disk, and much slower.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from pgvector import HalfVector, Vector

import pgdata
from common import Figure, parser, percentile, show, tell
from unspool.catalog import Catalog, projects, schema
from unspool.catalog.driver import copy_rows
from unspool.catalog.postgres import PostgresCatalog
from unspool.index.options import VectorOptions
from unspool.index.postgres import tables
from unspool.index.postgres.tables import VectorTable
from unspool.index.vectors.pgvector import EXACT_BELOW, PgvectorIndex, VectorFacts

DIMENSION = 384
SIZES = (10_000, 30_000, 100_000)
# vectors of a cluster; how far one is from its centre, where 1 is as far as the centre from the
# origin
PER_CLUSTER, SPREAD = 200, 0.6
BATCH = 10_000
WARM_UP = 20
DOCUMENT = 10  # chunks of one

Matrix = npt.NDArray[np.float32]


def main() -> None:
    options = parser(__doc__)
    pgdata.add_options(options)
    options.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options.add_argument("--dimension", type=int, default=DIMENSION)
    options.add_argument("--type", choices=("auto", "vector", "halfvec"), default="auto")
    options.add_argument("--queries", type=int, default=100)
    options.add_argument(
        "--sample",
        type=int,
        default=30,
        help="queries that are also answered exactly, for the recall",
    )
    options.add_argument("--shared-buffers", default="1GB", help="of the server that is started")
    given = options.parse_args()
    figures: list[Figure] = []
    measured: list[tuple[int, Growth]] = []
    with pgdata.place(given.server, {"shared_buffers": given.shared_buffers}) as place:
        for size in sorted(given.sizes):
            tell(f"{size} vectors of {given.dimension}")
            grown = measure(
                place,
                size,
                given.dimension,
                VectorOptions(type=given.type),
                given.queries,
                given.sample,
                given.seed,
            )
            figures += _figures(size, grown)
            measured.append((size, grown))
    figures += _growth(measured)
    show("pggrow", figures, as_json=given.json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What one size gave."""

    fill_s: float
    build_s: float
    first_ms: float
    times_ms: list[float]  # as the store searches: up to EXACT_BELOW it compares every vector
    index_ms: list[float]  # by the index, whatever the size
    exact_ms: list[float]
    recalls: list[float]
    table_mb: float
    index_mb: float


def measure(
    place: pgdata.Place,
    size: int,
    dimension: int,
    options: VectorOptions,
    queries: int,
    sample: int,
    seed: int,
) -> Growth:
    """Fill, build and search in a catalog of its own."""
    with (
        place.fresh() as address,
        opened(address) as catalog,
        own_space(catalog, dimension, options) as table,
    ):
        begun = time.perf_counter()
        for first in range(0, size, BATCH):
            add(
                catalog,
                table,
                1,
                first,
                clustered(min(BATCH, size - first), dimension, seed, size, first),
            )
        fill_s = time.perf_counter() - begun
        build_s = build(catalog, table, 1, options)
        store = searching(catalog, table, 1, size, options)
        asked = clustered(queries + WARM_UP, dimension, seed, size, size)
        first_ms = timed(store, asked[0], 10)[0]
        for vector in asked[1:WARM_UP]:
            store.search(1, vector, k=10)
        times_ms = [timed(store, vector, 10)[0] for vector in asked[WARM_UP:]]
        by_index = searching(catalog, table, 1, size, replace(options, exact_below=1))
        for vector in asked[:WARM_UP]:
            by_index.search(1, vector, k=10)
        answers = [timed(by_index, vector, 10) for vector in asked[WARM_UP:]]
        exact_ms, recalls = [], []
        for vector, (_, found) in list(zip(asked[WARM_UP:], answers, strict=True))[:sample]:
            before = time.perf_counter()
            with catalog.read() as connection:
                exact = store.queries.search_exact(connection, 1, vector, 10, None)
            exact_ms.append(1000 * (time.perf_counter() - before))
            recalls.append(pgdata.recall(found, exact.scores.tolist()))
        table_mb, index_mb = sizes(catalog, table, 1, options)
    return Growth(
        fill_s=fill_s,
        build_s=build_s,
        first_ms=first_ms,
        times_ms=times_ms,
        index_ms=[spent for spent, _ in answers],
        exact_ms=exact_ms,
        recalls=recalls,
        table_mb=table_mb,
        index_mb=index_mb,
    )


@contextmanager
def opened(address: str) -> Iterator[PostgresCatalog]:
    """A catalog, made if need be."""
    catalog = Catalog.open(address)
    assert isinstance(catalog, PostgresCatalog)
    try:
        yield catalog
    finally:
        catalog.close()


@contextmanager
def own_space(
    catalog: PostgresCatalog, dimension: int, options: VectorOptions
) -> Iterator[VectorTable]:
    """The table of a vector space that no embedder uses; gone afterwards."""
    with catalog.write() as connection:
        projects.ensure_project(connection, "bench")  # an index of a missing project is deleted
        values = {
            "embedder": "bench",
            "revision": f"{time.time_ns()}",
            "dimension": dimension,
            "active": False,
            "created_at": datetime.now(UTC),
        }
        space = int(
            connection.execute(
                sa.insert(schema.spaces).values(values).returning(schema.spaces.c.id)
            ).scalar_one()
        )
        table = tables.ensure_table(connection, space, dimension, options)
    try:
        yield table
    finally:
        with catalog.write() as connection:
            connection.exec_driver_sql(f"DROP TABLE {table.name}")
            connection.execute(sa.delete(schema.spaces).where(schema.spaces.c.id == space))


def clustered(count: int, dimension: int, seed: int, size: int, first: int) -> Matrix:
    """Points on the sphere in clusters whose number grows with the size: the more text, the more
    topics. The same for the same numbers.
    """
    clusters = max(8, size // PER_CLUSTER)
    rng = np.random.default_rng([seed, size, first])
    which = rng.integers(0, clusters, size=count)
    rows = _centres(seed, clusters, dimension)[which] + rng.standard_normal(
        (count, dimension), dtype=np.float32
    ) * np.float32(SPREAD / math.sqrt(dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


_kept: dict[tuple[int, int, int], Matrix] = {}


def _centres(seed: int, clusters: int, dimension: int) -> Matrix:
    """Centres of clusters, themselves around centres of larger ones, so that clusters have
    neighbours.
    """
    key = (seed, clusters, dimension)
    if key not in _kept:
        _kept.clear()
        rng = np.random.default_rng([seed, clusters])
        above = rng.standard_normal((max(2, clusters // 20), dimension), dtype=np.float32)
        rows = above[rng.integers(0, len(above), size=clusters)] + rng.standard_normal(
            (clusters, dimension), dtype=np.float32
        ) * np.float32(0.8)
        _kept[key] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return _kept[key]


def add(
    catalog: PostgresCatalog, table: VectorTable, project: int, first: int, rows: Matrix
) -> None:
    """Vectors into a space's table, numbered from `first`."""
    kind: Any = Vector if table.type == "vector" else HalfVector
    columns = {
        "project_id": "int8",
        "chunk_id": "int8",
        "document_id": "int8",
        "vector": table.type,
    }
    with catalog.write() as connection:
        copy_rows(
            connection,
            table.name,
            columns,
            [
                (project, first + at, (first + at) // DOCUMENT, kind(row))
                for at, row in enumerate(rows)
            ],
        )


def build(
    catalog: PostgresCatalog, table: VectorTable, project: int, options: VectorOptions
) -> float:
    """Make the index as the store does; returns the seconds."""
    store = PgvectorIndex(catalog, space_id=table.space_id, table=table, options=options)
    begun = time.perf_counter()
    store.builder.build(project)
    spent = time.perf_counter() - begun
    with catalog.read() as connection:
        assert store.builder.is_built(connection, project)
    return spent


def searching(
    catalog: PostgresCatalog, table: VectorTable, project: int, size: int, options: VectorOptions
) -> PgvectorIndex:
    """The store over a space's table, knowing that there is an index.

    There are no documents, so it is told how many chunks there are.
    """
    with catalog.autocommit() as connection:
        connection.exec_driver_sql(f"VACUUM ANALYZE {table.name}")
    store = PgvectorIndex(catalog, space_id=table.space_id, table=table, options=options)
    store.facts[project] = VectorFacts(0, size, True)
    return store


def timed(store: PgvectorIndex, vector: Matrix, k: int) -> tuple[float, list[float]]:
    """The milliseconds of a search, and the scores that it found."""
    begun = time.perf_counter()
    found = store.search(1, vector, k=k)
    return 1000 * (time.perf_counter() - begun), found.scores.tolist()


def sizes(
    catalog: PostgresCatalog, table: VectorTable, project: int, options: VectorOptions
) -> tuple[float, float]:
    """MB of the table alone, and of the index over its vectors."""
    names = {"table": table.name, "index": table.name_index(project, options)}
    with catalog.read() as connection:
        row = connection.exec_driver_sql(
            "SELECT pg_table_size(to_regclass(%(table)s)), "
            "pg_relation_size(to_regclass(%(index)s))",
            names,
        ).one()
    return row[0] / 1e6, row[1] / 1e6


def _figures(size: int, grown: Growth) -> Iterator[Figure]:
    name = f"{size} vectors"
    way = "every vector is compared" if size <= EXACT_BELOW else "by the index"
    yield Figure(
        name=f"{name}: COPY",
        value=size / grown.fill_s,
        unit="vectors/s",
        note=f"{grown.fill_s:.1f} s, making them included",
    )
    yield Figure(name=f"{name}: build", value=grown.build_s, unit="s")
    yield Figure(name=f"{name}: table", value=grown.table_mb, unit="MB")
    yield Figure(name=f"{name}: index", value=grown.index_mb, unit="MB")
    yield Figure(
        name=f"{name}: top 10, p50",
        value=percentile(grown.times_ms, 0.5),
        unit="ms",
        note=f"{way}; the first {grown.first_ms:.0f} ms",
    )
    yield Figure(name=f"{name}: top 10, p95", value=percentile(grown.times_ms, 0.95), unit="ms")
    yield Figure(
        name=f"{name}: by the index, p50", value=percentile(grown.index_ms, 0.5), unit="ms"
    )
    yield Figure(
        name=f"{name}: by the index, p95", value=percentile(grown.index_ms, 0.95), unit="ms"
    )
    yield Figure(name=f"{name}: exact, p50", value=percentile(grown.exact_ms, 0.5), unit="ms")
    note = (
        f"over {len(grown.recalls)} queries; {sum(one < 0.5 for one in grown.recalls)} of them "
        f"below .5, worst {min(grown.recalls):.1f}"
    )
    yield Figure(
        name=f"{name}: recall@10 by the index",
        value=fmean(grown.recalls),
        bound=0.95,
        at_least=True,
        note=note,
    )


def _growth(measured: Sequence[tuple[int, Growth]]) -> Iterator[Figure]:
    """By how much time grows with each doubling, from one size to the next."""
    for (small, before), (large, after) in pairwise(measured):
        doublings = math.log2(large / small)
        name = f"{small} to {large}: per doubling,"
        ratio = percentile(after.index_ms, 0.5) / percentile(before.index_ms, 0.5)
        yield Figure(
            name=f"{name} search by the index times",
            value=ratio ** (1 / doublings),
            note="2 is linear, 1 is constant",
        )
        yield Figure(
            name=f"{name} build times", value=(after.build_s / before.build_s) ** (1 / doublings)
        )


if __name__ == "__main__":
    main()
