"""Nearest vectors: the exact scan, the product's two-stage scan over signs, and faiss's Hamming
scan where it is installed.

Vectors are drawn around centres, as embeddings of a corpus with topics lie; queries are drawn
around the same centres.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np

from common import Figure, parser, percentile, show, tell
from unspool.index.embedded import flat
from unspool.index.embedded.checksums import Column

DIMENSION = 256
CENTRES = 500
# of a cluster against the distance of the centres: the nearest neighbours' cosines lie about .4 to
# .6, as with the default model
SPREAD = 1.3
QUERIES = 30


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    given = options.parse_args()
    figures: list[Figure] = []
    for rows in given.rows:
        tell(f"{rows} vectors")
        figures += _figures(rows, given.seed)
    show("flat", figures, as_json=given.json)


def _figures(rows: int, seed: int) -> Iterator[Figure]:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CENTRES, DIMENSION), dtype=np.float32)
    view = _view(_clustered(rng, centres, rows))
    queries = _clustered(rng, centres, QUERIES)
    with patch.object(flat, "EXACT_ROWS", rows):
        exact_ms, exact = _timed(lambda query: flat.search(view, query, 10, None).ids, queries)
        _, exact_200 = _timed(lambda query: flat.search(view, query, 200, None).ids, queries)
    with patch.object(flat, "EXACT_ROWS", 0):
        signs_ms, signs = _timed(lambda query: flat.search(view, query, 10, None).ids, queries)
        signs_200_ms, signs_200 = _timed(
            lambda query: flat.search(view, query, 200, None).ids, queries
        )
    yield Figure(
        name=f"{rows} rows: exact, p50",
        value=exact_ms,
        unit="ms",
        note="used" if rows <= flat.EXACT_ROWS else "",
    )
    yield Figure(
        name=f"{rows} rows: two stages, 10 nearest, p50",
        value=signs_ms,
        unit="ms",
        note="used" if rows > flat.EXACT_ROWS else "",
    )
    yield Figure(name=f"{rows} rows: two stages, 200 nearest, p50", value=signs_200_ms, unit="ms")
    yield Figure(name=f"{rows} rows: exact / two stages", value=exact_ms / signs_ms)
    yield from _faiss(rows, view, queries)
    yield Figure(name=f"{rows} rows: recall@10 of two stages", value=_recall(exact, signs))
    yield Figure(name=f"{rows} rows: recall@200 of two stages", value=_recall(exact_200, signs_200))


def _faiss(rows: int, view: flat.VectorView, queries: np.ndarray) -> Iterator[Figure]:
    """The first stage alone, done by faiss; the candidates would still have to be scored."""
    try:
        import faiss
    except ImportError:
        return
    codes = view.codes.all().view(np.uint8)
    milliseconds, _ = _timed(
        lambda query: faiss.knn_hamming(
            flat.pack_signs(query[None, :]).view(np.uint8), codes, flat.MIN_CANDIDATES
        )[1][0],
        queries,
    )
    yield Figure(
        name=f"{rows} rows: faiss, signs only, p50",
        value=milliseconds,
        unit="ms",
        note=f"{faiss.omp_get_max_threads()} threads",
    )


def _clustered(rng: np.random.Generator, centres: np.ndarray, count: int) -> np.ndarray:
    rows = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    rows *= SPREAD
    rows += centres[rng.integers(0, len(centres), size=count)]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _view(vectors: np.ndarray) -> flat.VectorView:
    """What `flat.open_view` gives, without the files."""
    ids = np.arange(len(vectors), dtype=np.int64)
    state = flat.VectorState(source="", dimension=DIMENSION, rows=len(vectors))
    return flat.VectorView(
        state,
        Column(vectors),
        Column(flat.pack_signs(vectors)),
        Column(ids),
        Column(ids),
        None,
        ((ids, ids),),
    )


def _timed(
    call: Callable[[np.ndarray], np.ndarray], queries: np.ndarray
) -> tuple[float, list[np.ndarray]]:
    times, answers = [], []
    call(queries[0])
    for query in queries:
        begun = time.perf_counter()
        answers.append(call(query))
        times.append(1000 * (time.perf_counter() - begun))
    return percentile(times, 0.5), answers


def _recall(wanted: list[np.ndarray], found: list[np.ndarray]) -> float:
    return float(
        np.mean(
            [
                len(np.intersect1d(one, other)) / len(one)
                for one, other in zip(wanted, found, strict=True)
            ]
        )
    )


if __name__ == "__main__":
    main()
