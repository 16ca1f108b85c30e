"""How long a search takes, by size of the catalog, and what memory a process that only searches
needs.
"""

from __future__ import annotations

import pkgutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from common import Figure, address, call_fresh, memory_mb, parser, percentile, show, tell, workspace
from filling import PROJECT, fill
from unspool.corpus import Corpus
from unspool.settings import Settings
from words import questions

BOUNDS_MS = {10_000: 10.0, 100_000: 20.0, 1_000_000: 60.0}
MEMORY_MB = {100_000: 350.0}
MODES: dict[str, float | None] = {"hybrid": None, "meaning": 1.0, "word": 0.0}
WARM_UP = 20
STAGES = {
    "catch up": ("unspool.index.indexes.Indexes.catch_up",),
    "embed": ("unspool.embedders.static.StaticEmbedder.embed_query",),
    "vectors": (
        "unspool.index.retriever.VectorRetriever.search",
        "unspool.index.retriever.VectorRetriever.score",
    ),
    "words": (
        "unspool.index.words.embedded.EmbeddedWords.search",
        "unspool.index.words.embedded.EmbeddedWords.score",
    ),
    "candidates": ("unspool.search.retrieve.chunk_rows.load_candidates",),
    "ranking": (
        "unspool.search.segments.ranking.rank_candidates",
        "unspool.search.segments.fusion.fuse_scores",
    ),
    "hydrate, snippets": ("unspool.search.engine.build_page",),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--chunks", type=int, nargs="+", default=[10_000, 100_000], help="sizes to measure"
    )
    options.add_argument(
        "--fast",
        action="store_true",
        help="random vectors instead of embedding each text; for a million chunks",
    )
    options.add_argument("--queries", type=int, default=200)
    given = options.parse_args()
    figures: list[Figure] = []
    with workspace(given.keep) as folder:
        for chunks in given.chunks:
            file = folder / f"{chunks}{'-fast' if given.fast else ''}.db"
            tell(f"filling a catalog with {chunks} chunks")
            filled = fill(file, chunks=chunks, seed=given.seed, fast=given.fast)
            if filled.seconds:
                figures.append(
                    Figure(
                        name=f"{chunks} chunks: filling",
                        value=chunks / filled.seconds,
                        unit="chunks/s",
                        note="stored and absorbed",
                    )
                )
            figures += _figures(
                chunks,
                call_fresh(
                    "searching:measure", address(file), questions(given.queries, given.seed)
                ),
            )
    show("searching", figures, as_json=given.json)


def _figures(chunks: int, measured: dict[str, Any]) -> Iterator[Figure]:
    for mode, times in measured["times"].items():
        bound = BOUNDS_MS.get(chunks) if mode == "hybrid" else None
        yield Figure(
            name=f"{chunks} chunks: {mode}, p50",
            value=percentile(times, 0.5),
            unit="ms",
            bound=bound,
            note=f"{percentile(measured['cpu'][mode], 0.5):.2f} ms of CPU",
        )
        yield Figure(name=f"{chunks} chunks: {mode}, p95", value=percentile(times, 0.95), unit="ms")
    yield Figure(
        name=f"{chunks} chunks: open and first search", value=measured["first_ms"], unit="ms"
    )
    for stage, milliseconds in measured["stages"].items():
        yield Figure(
            name=f"{chunks} chunks: hybrid, {stage}",
            value=milliseconds,
            unit="ms",
            note="p50 of the stage",
        )
    memory = measured["memory"]
    if memory:
        note = f"{memory['RssAnon']:.0f} of its own, {memory['RssFile']:.0f} mapped files"
        yield Figure(
            name=f"{chunks} chunks: resident memory",
            value=memory["VmRSS"],
            unit="MB",
            bound=MEMORY_MB.get(chunks),
            note=note,
        )


def measure(database: str, asked: list[str]) -> dict[str, Any]:
    """Open, search, and nothing else.

    Runs in a fresh process, so its memory is that of a process that searches.
    """
    begun = time.perf_counter()
    with Corpus(Settings.of(database=database)) as corpus:
        corpus.search(asked[0], projects=PROJECT)
        first_ms = 1000 * (time.perf_counter() - begun)
        times: dict[str, list[float]] = {}
        cpu: dict[str, list[float]] = {}
        memory: dict[str, float] = {}
        for mode, alpha in MODES.items():
            for query in asked[:WARM_UP]:
                corpus.search(query, projects=PROJECT, alpha=alpha, limit=10)
            pairs = [
                _timed(
                    lambda query=query, alpha=alpha: corpus.search(
                        query, projects=PROJECT, alpha=alpha, limit=10
                    )
                )
                for query in asked
            ]
            times[mode] = [wall for wall, _ in pairs]
            cpu[mode] = [spent for _, spent in pairs]
            memory = memory or memory_mb()
        stages = _stages(corpus, asked)
    return {"first_ms": first_ms, "times": times, "cpu": cpu, "stages": stages, "memory": memory}


def _stages(corpus: Corpus, asked: list[str]) -> dict[str, float]:
    """The median of each stage, in a pass of its own, since the stopwatches cost a little too."""
    spent: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        clocks = {
            stage: [stack.enter_context(_stopwatch(name)) for name in names]
            for stage, names in STAGES.items()
        }
        for query in asked:
            for clock in (clock for some in clocks.values() for clock in some):
                clock[0] = 0.0
            corpus.search(query, projects=PROJECT, limit=10)
            for stage, some in clocks.items():
                spent[stage].append(1000 * sum(clock[0] for clock in some))
    return {stage: percentile(times, 0.5) for stage, times in spent.items()}


@contextmanager
def _stopwatch(target: str) -> Iterator[list[float]]:
    """The seconds spent in a function since they were last set to 0."""
    total = [0.0]
    module, _, name = target.rpartition(".")
    original = getattr(pkgutil.resolve_name(module), name)

    def timed(*arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return original(*arguments, **named)
        finally:
            total[0] += time.perf_counter() - begun

    with patch(target, timed):
        yield total


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds by the clock, and of this process's own work: the second hardly changes when
    the machine is busy.
    """
    begun, own = time.perf_counter(), time.process_time()
    call()
    return 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - own)


if __name__ == "__main__":
    main()
