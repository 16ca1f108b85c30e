"""What the pages after the first cost, and whether walks keep out of each other's way.

A walk goes from page to page by continuations. Beside it, query by query, stands what a caller
without them would do: ask for ten times as many hits as the page has number, and keep the last ten.
Page 1 is a query that was never asked before, in a process that is warm. Everything happens in a
copy of the filled catalog, whose kept rankings and query vectors are thrown away before each
measurement.

After the promises come figures for what was considered: fetching ahead, and always searching deep.
"""

from __future__ import annotations

import random
import select
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trees
from common import (
    Figure,
    address,
    answer_of,
    call_fresh,
    parser,
    percentile,
    show,
    start_fresh,
    table,
    tell,
    workspace,
)
from filling import PROJECT, fill
from sharing import burn  # noqa: F401  a fresh process calls it by its name here
from unspool.catalog.windows import WindowStore
from unspool.corpus import Corpus
from unspool.domain.documents import Document
from unspool.domain.events import Event, PageServed
from unspool.domain.queries import Page
from unspool.embedders.static import StaticEmbedder
from unspool.settings import Settings
from words import Vocabulary, questions

MODES: dict[str, float | None] = {"hybrid": None, "meaning": 1.0, "word": 0.0}
SHOWN = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40)
LONGEST = 60  # pages of a walk: of a hybrid one the window holds up to 40
LIMIT = 10
INSIDE, PAST, DURING = 0.10, 0.40, 2.0  # of page 1, of page 1, of an idle search
CONTINUATION = 32  # characters
WARM_UP = 20  # queries
WALKERS, WALKED = 64, 10
ROUNDS, ROUND_S = 4, 5.0
BATCH = 20  # documents in one put
PAUSE_S = 0.05  # what a reader takes at least, and a fetch ahead has
CONSIDERED = 20  # queries of the walks with pauses
DEEP = 1600


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--chunks", type=int, default=100_000)
    options.add_argument("--queries", type=int, default=60)
    given = options.parse_args()
    with workspace(given.keep) as folder:
        file = folder / f"{given.chunks}.db"
        tell(f"filling a catalog with {given.chunks} chunks")
        fill(file, chunks=given.chunks, seed=given.seed, fast=False)
        with tempfile.TemporaryDirectory(prefix="paging-", dir=folder) as own:
            tables, figures = measure(
                _copied(file, Path(own)), queries=given.queries, seed=given.seed
            )
    if given.json:
        figures += [
            one for mode, rows in tables.items() for row in rows for one in _as_figures(mode, row)
        ]
    else:
        for mode, rows in tables.items():
            _print(mode, rows)
    show("paging", figures, as_json=given.json)


def measure(
    file: Path, *, queries: int, seed: int
) -> tuple[dict[str, list[dict[str, float]]], list[Figure]]:
    """The rows by page number of each mode, and the figures."""
    asked = list(dict.fromkeys(questions(2 * (queries + WARM_UP + WALKERS), seed)))
    walks: dict[str, Any] = {}
    for mode, alpha in MODES.items():
        tell(f"walking, {mode}")
        walks[mode] = call_fresh("paging:walk", _fresh(file), asked[: queries + WARM_UP], alpha)
    tell(f"{WALKERS} walkers at once")
    crowd = call_fresh("paging:together", _fresh(file), asked[: WALKERS + WARM_UP])
    tell("walking with pauses, and searching deep")
    considered = call_fresh("paging:consider", _fresh(file), asked[: queries + WARM_UP])
    # the last, since it leaves another project behind
    tell("searching while another process indexes")
    beside = call_fresh("paging:beside", _fresh(file), asked[: queries + WARM_UP], seed)
    tables = {mode: [_row(one, number) for number in SHOWN] for mode, one in walks.items()}
    hybrid = walks["hybrid"]
    return tables, [
        *_promised(hybrid),
        *_crowded(crowd),
        *_disturbed(beside),
        *_considered(hybrid, considered),
    ]


# By page number


def walk(database: str, asked: list[str], alpha: float | None) -> dict[str, Any]:
    """Walk every query to its end or for `LONGEST` pages, and ask for the same pages without
    continuations. Runs in a fresh process.
    """
    pages: list[dict[str, Any]] = []
    plain: list[dict[str, float]] = []
    embeddings: list[int] = []
    characters = 0
    with ExitStack() as stack:
        corpus = stack.enter_context(Corpus(Settings.of(database=database)))
        without = stack.enter_context(Corpus(Settings.of(database=database, window=0)))
        counted = stack.enter_context(_embeddings())
        for query in asked[:WARM_UP]:
            list(_walked(corpus, query, alpha, 30))
            for number in (1, 5, 20):
                without.search(query, projects=PROJECT, alpha=alpha, limit=LIMIT * number)
        for index, query in enumerate(asked[WARM_UP:]):
            if index % 2:  # whoever comes second finds the files in memory
                plain += _without(without, query, alpha)
            before, first = counted[0], len(pages)
            for page, measured in _walked(corpus, query, alpha, LONGEST):
                pages.append({"query": index, **measured})
                characters = max(characters, len(page.continuation or ""))
                if page.number == WALKED:
                    embeddings.append(counted[0] - before)
            if len(pages) - first < WALKED:
                embeddings.append(counted[0] - before)
            if not index % 2:
                plain += _without(without, query, alpha)
    return {"pages": pages, "plain": plain, "embeddings": embeddings, "characters": characters}


def _walked(
    corpus: Corpus, query: str, alpha: float | None, longest: int, pause_s: float = 0.0
) -> Iterator[tuple[Page, dict[str, Any]]]:
    """Page after page, each with its milliseconds by our clock and by the product's own event."""
    events: list[Event] = []
    unobserve = corpus.observe(events.append)
    ask: Callable[[], Page] = lambda: corpus.search(  # noqa: E731
        query, projects=PROJECT, alpha=alpha, limit=LIMIT
    )
    try:
        for _ in range(longest):
            events.clear()
            begun = time.perf_counter()
            page = ask()
            spent = 1000 * (time.perf_counter() - begun)
            (event,) = (event for event in events if isinstance(event, PageServed))
            yield page, {"ms": spent, **_parts(event)}
            if page.continuation is None:
                return
            ask = page.more
            if pause_s:
                time.sleep(pause_s)
    finally:
        unobserve()


def _parts(event: PageServed) -> dict[str, Any]:
    return {
        "number": event.number,
        "served": event.served.value,
        "searched": event.searched,
        "embed": 1000 * event.embed_s,
        "search": 1000 * event.search_s,
        "hydrate": 1000 * event.hydrate_s,
        "total": 1000 * event.total_s,
    }


def _without(corpus: Corpus, query: str, alpha: float | None) -> list[dict[str, float]]:
    """What a caller pays who has to ask for all pages up to the one he wants."""
    out = []
    for number in SHOWN:
        begun = time.perf_counter()
        hits = corpus.search(query, projects=PROJECT, alpha=alpha, limit=LIMIT * number).hits[
            LIMIT * (number - 1) :
        ]
        if hits:
            out.append({"number": number, "ms": 1000 * (time.perf_counter() - begun)})
    return out


@contextmanager
def _embeddings() -> Iterator[list[int]]:
    """How many queries were embedded, by whomever."""
    count = [0]
    original = StaticEmbedder.embed_query

    def counted(self: StaticEmbedder, text: str) -> Any:
        count[0] += 1
        return original(self, text)

    with patch.object(StaticEmbedder, "embed_query", counted):
        yield count


def _row(measured: dict[str, Any], number: int) -> dict[str, float]:
    pages = [page for page in measured["pages"] if page["number"] == number]
    plain = [one["ms"] for one in measured["plain"] if one["number"] == number]
    first = _p50(page["ms"] for page in measured["pages"] if page["number"] == 1)
    return {
        "page": number,
        "walks": len(pages),
        **{
            served: sum(page["served"] == served for page in pages)
            for served in ("window", "wider", "hint")
        },
        "searched %": 100 * sum(page["searched"] for page in pages) / max(len(pages), 1),
        "p50 ms": _p50(page["ms"] for page in pages),
        **{part: _p50(page[part] for page in pages) for part in ("embed", "search", "hydrate")},
        "% of page 1": 100 * _p50(page["ms"] for page in pages) / first,
        "without: p50 ms": _p50(plain),
        "% of page 1, without": 100 * _p50(plain) / first,
    }


def _print(mode: str, rows: Sequence[dict[str, float]]) -> None:
    print(f"\n{mode}; 'without' asks for ten times as many hits as the page has number")
    head = [
        "page",
        "walks",
        "window/wider/hint",
        "searched",
        "p50 ms",
        "embed",
        "search",
        "hydrate",
        "% of page 1",
        "without: p50 ms",
        "%",
        "",
    ]
    table(
        head,
        [
            [
                f"{row['page']}",
                f"{row['walks']}",
                f"{row['window']}/{row['wider']}/{row['hint']}",
                f"{row['searched %']:.0f} %",
                *(f"{row[name]:.2f}" for name in ("p50 ms", "embed", "search", "hydrate")),
                f"{row['% of page 1']:.0f} %",
                f"{row['without: p50 ms']:.2f}",
                f"{row['% of page 1, without']:.0f} %",
                "",
            ]
            for row in rows
            if row["walks"]
        ],
    )


def _as_figures(mode: str, row: dict[str, float]) -> Iterator[Figure]:
    for name, value in row.items():
        if name != "page" and row["walks"]:
            yield Figure(name=f"{mode}, page {row['page']}: {name}", value=value)


def _promised(measured: dict[str, Any]) -> Iterator[Figure]:
    pages = measured["pages"]
    first = _p50(page["ms"] for page in pages if page["number"] == 1)
    inside = [page["ms"] for page in pages if 2 <= page["number"] <= 10]
    past = [page for page in pages if page["served"] != "window"]
    deeper = [page["ms"] for page in past if page["searched"]]
    yield Figure(
        name="hybrid: page 1, p50",
        value=first,
        unit="ms",
        note=f"{sum(page['number'] == 1 for page in pages)} queries",
    )
    yield Figure(
        name="hybrid: pages 2 to 10 / page 1, p50",
        value=_p50(inside) / first,
        bound=INSIDE,
        note=f"{_p50(inside):.2f} ms",
    )
    note = f"{_p50(page['ms'] for page in past):.2f} ms; {len(past)} pages up to page {LONGEST}"
    yield Figure(
        name="hybrid: pages past the window / page 1, p50",
        value=_p50(page["ms"] for page in past) / first,
        bound=PAST,
        note=note,
    )
    note = f"{_p50(deeper):.2f} ms; {len(deeper)} pages"
    yield Figure(
        name="hybrid: pages that search past the window / page 1, p50",
        value=_p50(deeper) / first,
        note=note,
    )
    yield Figure(
        name="embeddings in a walk of ten pages, most", value=max(measured["embeddings"]), bound=1
    )
    yield Figure(
        name="longest continuation",
        value=measured["characters"],
        unit="characters",
        bound=CONTINUATION,
    )


# Many at once


def together(database: str, asked: list[str]) -> dict[str, Any]:
    """Walk in as many threads as there are walkers, then alone. Runs in a fresh process."""
    with Corpus(Settings.of(database=database)) as corpus:
        for query in asked[:WARM_UP]:
            _ids(corpus, query)
        queries = asked[WARM_UP:]
        gate = threading.Barrier(len(queries))

        def begin(query: str) -> list[tuple[float, list[int]]]:
            gate.wait()
            return _ids(corpus, query)

        begun = time.perf_counter()
        with ThreadPoolExecutor(len(queries)) as threads:
            walkers: list[Future[list[tuple[float, list[int]]]]] = [
                threads.submit(begin, query) for query in queries
            ]
        seconds = time.perf_counter() - begun
        errors = [repr(error) for walker in walkers if (error := walker.exception()) is not None]
        mixed = 0
        alone: list[float] = []
        first: list[float] = []
        later: list[float] = []
        for query, walker in zip(queries, walkers, strict=True):
            expected = _ids(corpus, query)
            alone += [spent for spent, _ in expected]
            if walker.exception() is None:
                begin_ms, *rest = (spent for spent, _ in walker.result())
                first.append(begin_ms)
                later += rest
                mixed += abs(len(walker.result()) - len(expected))
                mixed += sum(
                    seen != right
                    for (_, seen), (_, right) in zip(walker.result(), expected, strict=False)
                )
    return {
        "errors": errors,
        "mixed": mixed,
        "first": first,
        "later": later,
        "alone": alone,
        "seconds": seconds,
    }


def _ids(corpus: Corpus, query: str) -> list[tuple[float, list[int]]]:
    """The milliseconds and the chunks of each page.

    Without events: they are those of all threads.
    """
    out: list[tuple[float, list[int]]] = []
    page: Page | None = None
    for _ in range(WALKED):
        begun = time.perf_counter()
        page = corpus.search(query, projects=PROJECT, limit=LIMIT) if page is None else page.more()
        out.append((1000 * (time.perf_counter() - begun), [hit.chunk.id for hit in page.hits]))
        if page.continuation is None:
            break
    return out


def _crowded(crowd: dict[str, Any]) -> Iterator[Figure]:
    times = [*crowd["first"], *crowd["later"]]
    yield Figure(
        name=f"{WALKERS} walkers at once: errors",
        value=len(crowd["errors"]),
        bound=0,
        note="; ".join(sorted(set(crowd["errors"])))[:120],
    )
    yield Figure(
        name=f"{WALKERS} walkers at once: pages that differ from the walk alone",
        value=crowd["mixed"],
        unit=f"of {len(times)}",
        bound=0,
    )
    note = (
        f"p50 {_p50(times):.1f}; alone p95 {percentile(crowd['alone'], 0.95):.1f}; "
        f"{len(times) / crowd['seconds']:.0f} pages/s"
    )
    yield Figure(
        name=f"{WALKERS} walkers at once: p95 of a page",
        value=percentile(times, 0.95),
        unit="ms",
        note=note,
    )
    first, later = crowd["first"], crowd["later"]
    note = (
        f"page 1, where all begin at once: p50 {_p50(first):.0f}, p95 "
        f"{percentile(first, 0.95):.0f} ms"
    )
    yield Figure(
        name=f"{WALKERS} walkers at once: p95 of pages 2 to {WALKED}",
        value=percentile(later, 0.95),
        unit="ms",
        note=note,
    )


# While somebody writes


def beside(database: str, asked: list[str], seed: int) -> dict[str, Any]:
    """Search in rounds: quiet, beside a process that only computes, beside one that indexes.

    Runs in a fresh process.
    """
    seen: dict[str, dict[str, list[list[float]]]] = {
        name: {"search": [], "freeze": []} for name in ("idle", "burning", "indexing")
    }
    written: list[dict[str, Any]] = []
    with Corpus(Settings.of(database=database)) as corpus, _freezing() as frozen:
        for query in asked:
            corpus.search(query, projects=PROJECT)

        def round_of(name: str) -> None:
            frozen.clear()
            seen[name]["search"].append(_searched(corpus, asked))
            seen[name]["freeze"].append(list(frozen))

        for number in range(ROUNDS):
            round_of("idle")
            computing = start_fresh("paging:burn", ROUND_S + 2)
            try:
                time.sleep(0.5)
                round_of("burning")
            finally:
                computing.kill()
                computing.communicate()
            writing = start_fresh("paging:write", database, f"written-{number}", seed + number)
            try:
                assert writing.stdout is not None
                writing.stdout.readline()  # it has begun
                round_of("indexing")
                written.append(answer_of(writing, writing.communicate("stop\n", timeout=120)[0]))
            finally:
                writing.kill()
    return {"seen": seen, "written": written}


def _searched(corpus: Corpus, asked: Sequence[str]) -> list[float]:
    """The milliseconds of each search of a round."""
    times: list[float] = []
    until = time.monotonic() + ROUND_S
    while time.monotonic() < until:
        begun = time.perf_counter()
        corpus.search(asked[len(times) % len(asked)], projects=PROJECT, limit=LIMIT)
        times.append(1000 * (time.perf_counter() - begun))
        time.sleep(0.005)  # somebody who asks, not a loop that leaves no core to anyone
    return times


@contextmanager
def _freezing() -> Iterator[list[float]]:
    """The milliseconds that keeping each window took."""
    times: list[float] = []
    original = WindowStore.insert

    def timed(self: WindowStore, name: bytes, *given: Any, **named: Any) -> None:
        begun = time.perf_counter()
        original(self, name, *given, **named)
        times.append(1000 * (time.perf_counter() - begun))

    with patch.object(WindowStore, "insert", timed):
        yield times


def write(database: str, project: str, seed: int) -> dict[str, Any]:
    """Put batch after batch of documents into a project until 'stop' on stdin."""
    vocabulary, rng = Vocabulary.load(), random.Random(seed)
    chunks = batches = 0
    begun = time.perf_counter()
    with Corpus(Settings.of(database=database)) as corpus:
        while not (batches and select.select([sys.stdin], [], [], 0)[0]):
            names = [f"package_{batches}/module_{number}.py" for number in range(BATCH)]
            some = [
                Document(path=name, text=trees.source(vocabulary, rng, 12), project=project)
                for name in names
            ]
            chunks += corpus.put(*some).chunks
            batches += 1
            if batches == 1:
                begun, chunks = time.perf_counter(), 0
                print("writing", flush=True)
    return {"chunks": chunks, "batches": batches, "seconds": time.perf_counter() - begun}


def _disturbed(measured: dict[str, Any]) -> Iterator[Figure]:
    seen, written = measured["seen"], measured["written"]
    p95 = {
        name: percentile([one for times in seen[name]["search"] for one in times], 0.95)
        for name in seen
    }
    count = sum(map(len, seen["idle"]["search"]))
    yield Figure(
        name="search, idle: p95",
        value=p95["idle"],
        unit="ms",
        note=f"{count} searches in {ROUNDS} rounds",
    )
    for name, bound in (("burning", None), ("indexing", DURING)):
        rounds = [
            percentile(busy, 0.95) / percentile(quiet, 0.95)
            for busy, quiet in zip(seen[name]["search"], seen["idle"]["search"], strict=True)
        ]
        times = [one for some in seen[name]["search"] for one in some]
        note = (
            f"{p95[name]:.1f} ms; p50 {_p50(times):.1f}, worst {max(times):.0f}; by round "
            f"{', '.join(f'{one:.2f}' for one in rounds)}"
        )
        what = "another process computes" if name == "burning" else "another process indexes"
        yield Figure(
            name=f"search while {what} / idle, p95",
            value=p95[name] / p95["idle"],
            bound=bound,
            note=note,
        )
    pace = sum(one["chunks"] for one in written) / sum(one["seconds"] for one in written)
    yield Figure(
        name="indexed meanwhile",
        value=pace,
        unit="chunks/s",
        note=f"{sum(one['batches'] for one in written)} batches of {BATCH} documents",
    )
    for name in seen:
        times = [one for some in seen[name]["freeze"] for one in some]
        yield Figure(
            name=f"freezing a window, {name}: p95",
            value=percentile(times, 0.95),
            unit="ms",
            note=f"p50 {_p50(times):.2f}",
        )


# What was considered


def consider(database: str, asked: list[str]) -> dict[str, Any]:
    """Walks with pauses, with and without fetching ahead; first pages of
    windows of both sizes. Runs in a fresh process.
    """
    ahead: dict[str, list[Any]] = {"none": [], "prefetch": []}
    depths: dict[str, list[float]] = {"usual": [], "deep": []}
    with ExitStack() as stack:

        def opened(**changed: Any) -> Corpus:
            corpus = stack.enter_context(Corpus(Settings.of(database=database, **changed)))
            for query in asked[:WARM_UP]:
                list(_walked(corpus, query, None, 15))
            corpus.warm(asked)  # whoever comes second would find the vectors
            return corpus

        corpora = {"none": opened(prefetch="off"), "prefetch": opened(prefetch="on")}
        for index, query in enumerate(asked[WARM_UP:][:CONSIDERED]):
            for name, corpus in list(corpora.items())[:: 1 if index % 2 else -1]:
                pages = [measured for _, measured in _walked(corpus, query, None, LONGEST, PAUSE_S)]
                ahead[name] += [{"query": index, **page} for page in pages]
        sizes = {"usual": opened(), "deep": opened(window=DEEP)}
        for index, query in enumerate(asked[WARM_UP:]):
            for name, corpus in list(sizes.items())[:: 1 if index % 2 else -1]:
                ((_, measured),) = _walked(corpus, query, None, 1)
                depths[name].append(measured["ms"])
    return {"ahead": ahead, "depths": depths, "window": Settings().search.window}


def _considered(hybrid: dict[str, Any], measured: dict[str, Any]) -> Iterator[Figure]:
    inside = [
        page
        for page in hybrid["pages"]
        if page["number"] > 1 and not page["searched"] and page["served"] == "window"
    ]
    share = _p50(page["hydrate"] / page["ms"] for page in inside)
    note = (
        f"{_p50(page['hydrate'] for page in inside):.2f} of "
        f"{_p50(page['ms'] for page in inside):.2f} ms: the most that hydrating ahead could save"
    )
    yield Figure(
        name="considered: hydration's share of a page inside the window, p50",
        value=share,
        note=note,
    )
    ahead = measured["ahead"]
    # The pages that had to search without fetching ahead; with it, they are the same pages of the
    # same walks, whether they still search or not.
    wanted = {
        (page["query"], page["number"])
        for page in ahead["none"]
        if page["number"] > 1 and page["searched"]
    }
    for name, pages in ahead.items():
        if not pages:
            yield Figure(
                name="considered: the same pages, fetched ahead: p50",
                value=float("nan"),
                note="there is no setting for it",
            )
            continue
        some = [page for page in pages if (page["query"], page["number"]) in wanted]
        what = (
            "pages that make the walk longer" if name == "none" else "the same pages, fetched ahead"
        )
        note = (
            f"p95 {percentile([page['ms'] for page in some], 0.95):.2f}; {len(some)} pages, "
            f"{sum(page['searched'] for page in some)} of them searched"
        )
        yield Figure(
            name=f"considered: {what}: p50",
            value=_p50(page["ms"] for page in some),
            unit="ms",
            note=note + f"; {1000 * PAUSE_S:.0f} ms pauses",
        )
        others = [
            page["ms"]
            for page in pages
            if page["number"] > 1 and (page["query"], page["number"]) not in wanted
        ]
        note = f"p95 {percentile(others, 0.95):.2f}; {len(others)} pages"
        yield Figure(
            name=f"considered: all other pages{'' if name == 'none' else ', fetched ahead'}: p50",
            value=_p50(others),
            unit="ms",
            note=note,
        )
    usual, deep = (_p50(measured["depths"][name]) for name in ("usual", "deep"))
    yield Figure(
        name=f"considered: page 1 with window={measured['window']}, p50",
        value=usual,
        unit="ms",
        note="vectors of the queries known",
    )
    yield Figure(
        name=f"considered: page 1 with window={DEEP}, p50",
        value=deep,
        unit="ms",
        note=f"{deep / usual:.2f} times",
    )


# Files


def _copied(file: Path, into: Path) -> Path:
    """A catalog with its index, and without what it keeps of searches: indexing into it spoils
    nobody's.
    """
    for name in (file.name, f"{file.name}-wal"):
        if (file.parent / name).exists():
            shutil.copy2(file.parent / name, into / name)
    derived = f"{file.name}.derived"
    shutil.copytree(file.parent / derived, into / derived)
    return into / file.name


def _fresh(file: Path) -> str:
    """The catalog's address, with nothing left of earlier searches: a query vector would be
    found there.
    """
    for old in file.parent.glob(f"{file.name}.windows*"):
        old.unlink()
    return address(file)


def _p50(values: Iterator[float] | Sequence[float]) -> float:
    return percentile(list(values), 0.5)


if __name__ == "__main__":
    main()
