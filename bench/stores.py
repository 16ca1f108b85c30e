"""Vector stores: a search through the adapter against the driver's own call, recall, filters.

A store is given by the name of its adapter, whose server the tests can start, or by its address.
Vectors are drawn around centres, and so are queries. Filters are independent of the vectors.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import Figure, parser, percentile, show, tell
from unspool.domain import filters
from unspool.index.options import VectorOptions
from unspool.index.ports import NO_IDS, Ids, Points, VectorIndex, Vectors, Within
from unspool.index.vectors import get_adapter_name, open_vectors

DIMENSION = 256
CENTRES = 500
SPREAD = 1.3  # as in flat.py
APPLIED = 10_000  # points per call
DEPTHS = (10, 200)
SHARES = {"few": 0.01, "some": 0.1, "half": 0.5}
PROJECT, OTHER = 7, 8
Search = Callable[[Vectors, int], list[int]]  # takes the query and k, returns ids


def main() -> None:
    options = parser(__doc__)
    options.add_argument("stores", nargs="+", help="adapters or addresses, such as qdrant")
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--queries", type=int, default=100)
    options.add_argument("--projects", type=int, default=0, help="also so many of 20 points each")
    given = options.parse_args()
    figures: list[Figure] = []
    for store in given.stores:
        address, key = _find_server(store)
        tell(f"{store}: {given.rows} vectors")
        base = VectorOptions(address=address, key=key, timeout_s=120)
        if given.rows:
            figures += _measure(store, base, given.rows, given.queries, given.seed)
        if given.projects:
            figures += _measure_projects(store, base, given.projects, given.seed)
    show("stores", figures, as_json=given.json)


def _find_server(store: str) -> tuple[str, str]:
    """Return address and key: of a server of the tests, or as given with UNSPOOL_VECTORS_KEY."""
    if "://" in store:
        return store, os.environ.get("UNSPOOL_VECTORS_KEY", "")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from store_servers import get_server

    server = get_server(store)
    return server.address, server.key


def _measure(
    store: str, base: VectorOptions, rows: int, queries: int, seed: int
) -> Iterator[Figure]:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CENTRES, DIMENSION), dtype=np.float32)
    points = _make_points(rng, centres, rows)
    asked = _make_clusters(rng, centres, queries)
    collection = f"bench_{secrets.token_hex(4)}"

    def open_(options: VectorOptions) -> VectorIndex:
        return open_vectors(options, collection=collection, dimension=DIMENSION)

    exact = open_(replace(base, exact_below=10_000_000))
    graph = open_(replace(base, exact_below=1))
    exact.read_epoch()
    try:
        yield _fill(store, exact, points)
        scheme = get_adapter_name(base.address)
        if scheme in SETTLE:
            started = time.perf_counter()
            SETTLE[scheme](exact)
            seconds = time.perf_counter() - started
            yield Figure(name=f"{store}: indexed after", value=seconds, unit="s")
        direct = DIRECT.get(scheme)
        for name, index in (("exact", exact), ("graph", graph)):
            own = None if direct is None else direct(index, is_exact=name == "exact")
            yield from _compare(f"{store}, {name}", index, own, points, asked)
            yield from _filter(f"{store}, {name}", index, points, asked)
    finally:
        exact.drop()
        exact.close()
        graph.close()


def _measure_projects(
    store: str, base: VectorOptions, projects: int, seed: int
) -> Iterator[Figure]:
    """Write, search and drop many small projects. One of them is empty in the end."""
    rng = np.random.default_rng(seed)
    points = _make_points(rng, rng.standard_normal((10, DIMENSION), dtype=np.float32), 20)
    collection = f"bench_{secrets.token_hex(4)}"
    index = open_vectors(base, collection=collection, dimension=DIMENSION)
    index.read_epoch()
    try:
        steps: dict[str, Callable[[int], Any]] = {
            "written": lambda project: index.apply(project, points, NO_IDS),
            "first search": lambda project: index.search(project, points.vectors[0], k=10),
            "second search": lambda project: index.search(project, points.vectors[1], k=10),
            "dropped": index.drop,
        }
        for name, step in steps.items():
            times = [_time(partial(step, project))[0] for project in range(1, projects + 1)]
            yield Figure(
                name=f"{store}: a project of {projects}, {name}, p50",
                value=1000 * percentile(times, 0.5),
                unit="ms",
            )
        left = sum(index.count(project) for project in range(1, projects + 1, 50))
        yield Figure(name=f"{store}: points left after the drops", value=left, bound=0)
    finally:
        index.drop()
        index.close()


def _make_clusters(rng: np.random.Generator, centres: Vectors, rows: int) -> Vectors:
    chosen = centres[rng.integers(0, len(centres), rows)]
    vectors = chosen + SPREAD * rng.standard_normal((rows, DIMENSION), dtype=np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def _make_points(rng: np.random.Generator, centres: Vectors, rows: int) -> Points:
    """Return points whose language is the name of a share, or empty."""
    ids = np.arange(1, rows + 1, dtype=np.int64)
    names = np.full(rows, "", dtype="<U4")
    shuffled = rng.permutation(rows)
    start = 0
    for name, share in SHARES.items():
        end = start + int(share * rows)
        names[shuffled[start:end]] = name
        start = end
    vectors = _make_clusters(rng, centres, rows)
    return Points(ids, ids // 5, ["code"] * rows, names.tolist(), vectors)


def _fill(store: str, index: VectorIndex, points: Points) -> Figure:
    """Store all points in one project, and every tenth in another one."""
    started = time.perf_counter()
    for start in range(0, len(points.ids), APPLIED):
        end = start + APPLIED
        index.apply(PROJECT, Points(*(column[start:end] for column in points)), NO_IDS)
    seconds = time.perf_counter() - started
    for start in range(0, len(points.ids) // 10, APPLIED):
        end = min(start + APPLIED, len(points.ids) // 10)
        index.apply(OTHER, Points(*(column[start:end] for column in points)), NO_IDS)
    rate = len(points.ids) / seconds
    return Figure(name=f"{store}: stored per second", value=rate, unit="points")


def _compare(
    name: str, index: VectorIndex, own: Search | None, points: Points, asked: Vectors
) -> Iterator[Figure]:
    """Measure recall, and the adapter's time against the driver's, in turn."""

    def search(query: Vectors, k: int) -> list[int]:
        return index.search(PROJECT, query, k=k).ids.tolist()  # type: ignore[no-any-return]

    for k in DEPTHS:
        truth = _find_nearest(points, asked, k)
        ours, theirs, recalls = [], [], []
        for number, (query, nearest) in enumerate(zip(asked, truth, strict=True)):
            if own is not None and number % 2:  # the second of the two finds warm caches
                theirs.append(_time(partial(own, query, k))[0])
            seconds, found = _time(partial(search, query, k))
            ours.append(seconds)
            recalls.append(len(nearest & set(found)) / k)
            if own is not None and not number % 2:
                theirs.append(_time(partial(own, query, k))[0])
        ms = 1e3 * percentile(ours, 0.5)
        yield Figure(name=f"{name}: {k} nearest, p50", value=ms, unit="ms")
        if theirs:
            driver_ms = 1e3 * percentile(theirs, 0.5)
            note = f"driver {driver_ms:.2f} ms"
            yield Figure(name=f"{name}: {k} nearest, times driver", value=ms / driver_ms, note=note)
        yield Figure(name=f"{name}: recall@{k}", value=float(np.mean(recalls)))


def _filter(name: str, index: VectorIndex, points: Points, asked: Vectors) -> Iterator[Figure]:
    """Measure searches behind filters that accept shares of the points."""
    if "language" not in index.capabilities.filter_fields:
        return
    languages = np.array(points.languages)
    for language, share in SHARES.items():
        kept = np.flatnonzero(languages == language)
        part = Points(points.ids[kept], points.documents[kept], [], [], points.vectors[kept])
        condition = filters.parse({"language": language})
        within = Within(filter=condition, total=len(kept))
        for k in DEPTHS:
            times, recalls, shortest = [], [], k
            for query, nearest in zip(asked, _find_nearest(part, asked, k), strict=True):
                search = partial(index.search, PROJECT, query, k=k, within=within)
                seconds, found = _time(search)
                times.append(seconds)
                recalls.append(len(nearest & set(found.ids.tolist())) / k)
                shortest = min(shortest, len(found.ids))
            note = f"p50 {1e3 * percentile(times, 0.5):.2f} ms, at least {shortest} results"
            label = f"{name}: {share:.0%} filter, recall@{k}"
            yield Figure(name=label, value=float(np.mean(recalls)), note=note)


def _find_nearest(points: Points, asked: Vectors, k: int) -> list[set[int]]:
    scores = asked @ points.vectors.T
    ids: Ids = points.ids[np.argpartition(-scores, k, axis=1)[:, :k]]
    return [set(row) for row in ids.tolist()]


def _time(action: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = action()
    return time.perf_counter() - started, found


# What is particular to a store: the driver's own call, and the end of its work in the background


def _call_qdrant(index: Any, *, is_exact: bool) -> Search:
    """Return a search by the client's `query_points`, by gRPC, with the adapter's parameters."""
    from qdrant_client import QdrantClient, models

    address = index._address
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a key without TLS
        client = QdrantClient(
            url=f"http://{address.host}:{address.port}",
            grpc_port=address.options["grpc_port"] or address.port + 1,
            prefer_grpc=True,
            api_key=index._options.key or None,
            timeout=120,
            check_compatibility=False,
        )
    field = models.FieldCondition(key="project", match=models.MatchValue(value=str(PROJECT)))

    def search(query: Vectors, k: int) -> list[int]:
        found = client.query_points(
            index._name,
            query=query.tolist(),
            limit=k + 1,  # as the adapter does, which orders ties
            query_filter=models.Filter(must=[field]),
            search_params=models.SearchParams(
                exact=is_exact, hnsw_ef=None if is_exact else max(128, 4 * (k + 1))
            ),
            with_payload=False,
        )
        return [point.id for point in found.points]

    return search


def _settle_qdrant(index: Any) -> None:
    from qdrant_client import grpc as api

    index._resolve(create=False)
    request = api.GetCollectionInfoRequest(collection_name=index._name)
    quiet = 0
    while quiet < 5:  # the optimizer starts a moment after a write
        found = index._call("collections.Get", request).result
        quiet = quiet + 1 if found.status == api.CollectionStatus.Green else 0
        time.sleep(0.3)


DIRECT: dict[str, Callable[..., Search]] = {"qdrant": _call_qdrant}
SETTLE: dict[str, Callable[[Any], None]] = {"qdrant": _settle_qdrant}


if __name__ == "__main__":
    main()
