"""Moving: real text from the embedded store to others and back, and catalogs between engines.

On each store the same queries are compared with the embedded one, and pages are timed: the first,
those of its window, and those past it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import unspool
from common import HERE, Figure, parser, percentile, show, tell, workspace
from trees import copy_python
from unspool.index import vectors
from words import questions

sys.path.append(str(HERE.parent / "tests"))
from servers import PostgresServer
from store_servers import get_server

PROJECT = "text"
WINDOW_PAGES = 10  # pages 1 to 10 are within the window
PAST_PAGES = 10  # further pages
TOP = 10
Top = list[list[int]]  # chunk ids of the best results of each query


def main() -> None:
    """Parse the options and run."""
    options = parser(__doc__)
    options.add_argument("--stores", nargs="*", default=["qdrant", "chroma"])
    options.add_argument("--megabytes", type=int, default=20, help="text to index")
    options.add_argument("--queries", type=int, default=200)
    options.add_argument("--walks", type=int, default=20)
    options.add_argument("--catalogs", action="store_true", help="also move the catalog")
    given = options.parse_args()
    with workspace(given.keep) as folder:
        figures = list(
            _measure(folder, given.stores, given.megabytes, given.queries, given.walks, given.seed)
        )
        if given.catalogs:
            figures += _move_catalogs(folder, questions(given.queries, given.seed))
    show("moving", figures, as_json=given.json)


def _load(database: str, store: str = "") -> unspool.Settings:
    """Return settings for a catalog, with its vectors in a store."""
    given: dict[str, object] = {"database": database}
    if store:
        server = get_server(store)
        given |= {"vectors": server.address, "vectors_key": server.key, "vectors_timeout_s": 120}
    return unspool.Settings.load(arguments=given, environment={}, folder=Path("/nowhere"))


def _measure(
    folder: Path, stores: Sequence[str], megabytes: int, queries: int, walks: int, seed: int
) -> Iterator[Figure]:
    database = f"sqlite:///{folder}/moving.db"
    with unspool.open(settings=_load(database)) as corpus:
        if not corpus.status():
            tell(f"indexing {megabytes} MB")
            copy_python(folder / "tree", total_bytes=megabytes << 20)
            corpus.index(folder / "tree", project=PROJECT)
        yield Figure(name="chunks", value=sum(one.chunks for one in corpus.status()))
    asked = questions(queries, seed)
    expected = _search(_load(database), asked)
    yield from _walk("embedded", _load(database), asked[:walks])
    for store in stores:
        tell(f"moving to {store}")
        report = unspool.move(to=get_server(store).address, settings=_load(database, store))
        yield Figure(name=f"{store}: moved in", value=report.seconds, unit="s")
        yield Figure(
            name=f"{store}: agreement of samples", value=report.agreement, bound=0.97, at_least=True
        )
        found = _search(_load(database, store), asked)
        yield Figure(
            name=f"{store}: overlap of the top {TOP} with the embedded store",
            value=_compare(found, expected),
            bound=0.99,
            at_least=True,
            note=f"{sum(one == other for one, other in zip(found, expected, strict=True))} of "
            f"{len(asked)} equal in order",
        )
        yield from _walk(store, _load(database, store), asked[:walks])
    tell("moving back")
    back = unspool.move(to="catalog", settings=_load(database))
    yield Figure(
        name="back in the catalog: agreement", value=back.agreement, bound=1, at_least=True
    )


def _search(settings: unspool.Settings, asked: Sequence[str]) -> Top:
    with unspool.open(settings=settings) as corpus:
        search = partial(corpus.search, projects=PROJECT, alpha=1.0, limit=TOP)
        return [[hit.chunk.id for hit in search(query).hits] for query in asked]


def _compare(found: Top, expected: Top) -> float:
    pairs = zip(found, expected, strict=True)
    return fmean(len(set(one) & set(other)) / max(1, len(other)) for one, other in pairs)


def _walk(store: str, settings: unspool.Settings, asked: Sequence[str]) -> Iterator[Figure]:
    """Time the pages of walks. Nothing is fetched ahead, so that each page pays for itself."""
    first: list[float] = []
    later: list[float] = []
    past: list[float] = []
    given = {"prefetch": "off", "window": 200}
    with unspool.open(settings=settings.with_arguments(given)) as corpus:
        corpus.search("warm up", projects=PROJECT)
        for query in asked:
            begun = time.perf_counter()
            page = corpus.search(query, projects=PROJECT, limit=20, alpha=1.0)
            first.append(time.perf_counter() - begun)
            for _ in range(WINDOW_PAGES + PAST_PAGES - 1):
                if page.continuation is None:
                    break
                begun = time.perf_counter()
                page = page.more()
                seconds = time.perf_counter() - begun
                (later if page.served is unspool.Served.WINDOW else past).append(seconds)
    base = percentile(first, 0.5)
    kind = vectors.get_adapter_name(settings.vectors.address)
    is_native = bool(kind) and vectors.list_adapters()[kind].capabilities.native_continuation
    yield Figure(name=f"{store}: page 1, p50", value=1000 * base, unit="ms")
    if later:
        share = 100 * percentile(later, 0.5) / base
        yield Figure(name=f"{store}: pages of the window", value=share, unit="%", bound=10)
    if past:
        share = 100 * percentile(past, 0.5) / base
        bound = 24 if is_native else 40
        yield Figure(name=f"{store}: pages past the window", value=share, unit="%", bound=bound)


def _move_catalogs(folder: Path, asked: Sequence[str]) -> Iterator[Figure]:
    """Move the catalog to PostgreSQL and back to another file."""
    source, last = f"sqlite:///{folder}/moving.db", f"sqlite:///{folder}/back.db"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PostgresServer.start())
        middle = server.create_database()
        expected = _search(_load(source), asked)
        for name, before, after in (
            ("SQLite to PostgreSQL", source, middle),
            ("PostgreSQL to SQLite", middle, last),
        ):
            tell(f"moving from {name}")
            report = unspool.move(to=after, settings=_load(before))
            found = _search(_load(after), asked)
            yield Figure(name=f"{name}: moved in", value=report.seconds, unit="s")
            yield Figure(
                name=f"{name}: overlap of the top {TOP}",
                value=_compare(found, expected),
                bound=1,
                at_least=True,
            )


if __name__ == "__main__":
    main()
