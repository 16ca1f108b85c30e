"""One catalog, two processes that index and two that search: do all succeed, and does a search wait
for a writer?

Two projects are half indexed first. One searcher asks a project that nobody writes, the other one
that is being indexed. Their p95 is taken while all is quiet, while two processes index the rest of
two folders, and while two processes index the same folder. For scale it is taken too beside two
processes that only burn CPU: what is lost there, no catalog could give back.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
    tell,
    workspace,
)
from contents import contents
from filling import PROJECT, fill
from unspool.corpus import Corpus
from unspool.errors import UnspoolError
from unspool.settings import Settings
from words import questions

FILES = 300
BASE_CHUNKS = 20_000
RATIO = 3.0
TIMEOUT_S = 900


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--files", type=int, default=FILES, help="per folder")
    options.add_argument(
        "--seconds", type=float, default=8.0, help="of searching while all is quiet"
    )
    given = options.parse_args()
    with workspace(given.keep) as folder:
        figures = measure(folder, files=given.files, seconds=given.seconds, seed=given.seed)
    show("sharing", figures, as_json=given.json)


def measure(folder: Path, *, files: int, seconds: float, seed: int) -> list[Figure]:
    """Every situation in turn."""
    file = folder / "sharing.db"
    for marker in folder.glob("sharing.db.*.done"):
        marker.unlink()  # what an earlier measurement added has to go
    tell("filling")
    fill(file, chunks=BASE_CHUNKS, seed=seed, fast=True)
    database = address(file)
    one, two = folder / "one", folder / "two"
    for tree, number in ((one, 1), (two, 2)):
        trees.generate(tree, files=files // 2, seed=seed + number)
        call_fresh("sharing:index", str(tree), database, tree.name)
    tell("quiet")
    quiet = _searched(database, seed, lambda: time.sleep(seconds))
    tell("beside processes that burn CPU")
    burning = _searched(database, seed, lambda: _burn(seconds))
    tell("two processes index two folders")
    for tree, number in ((one, 1), (two, 2)):
        trees.generate(tree, files=files, seed=seed + number)
    indexed: list[Any] = []
    different = _searched(
        database,
        seed,
        lambda: indexed.extend(
            _together([(str(one), database, "one"), (str(two), database, "two")])
        ),
    )
    tell("two processes index one folder")
    trees.generate(one, files=files, seed=seed + 3)
    same = _searched(
        database, seed, lambda: indexed.extend(_together([(str(one), database, "one")] * 2))
    )
    complete = [contents(database, name) for name in ("one", "two")]
    return _figures(quiet, burning, different, same, indexed, complete, files)


def _figures(
    quiet: Any,
    burning: Any,
    different: Any,
    same: Any,
    indexed: list[Any],
    complete: list[Any],
    files: int,
) -> list[Figure]:
    figures = [
        Figure(
            name="indexing processes that failed",
            value=sum(bool(run["error"]) for run in indexed),
            unit=f"of {len(indexed)}",
            bound=0,
        ),
        Figure(
            name="searches that failed",
            value=sum(
                len(s["errors"])
                for situation in (quiet, burning, different, same)
                for s in situation
            ),
            bound=0,
        ),
        Figure(
            name="documents indexed",
            value=sum(one["document_count"] - len(one["unindexed"]) for one in complete),
            bound=2 * files,
            at_least=True,
        ),
        Figure(
            name="ids missing, wrong or twice in what is derived", value=_wrong(complete), bound=0
        ),
    ]
    for index, asked in enumerate(("a project at rest", "the project that is indexed")):
        idle = percentile(quiet[index]["times"], 0.95)
        figures.append(
            Figure(
                name=f"{asked}: p95, quiet",
                value=idle,
                unit="ms",
                note=f"{len(quiet[index]['times'])} searches",
            )
        )
        for name, situation in (
            ("CPU burnt", burning),
            ("two folders indexed", different),
            ("one folder indexed twice", same),
        ):
            times = situation[index]["times"]
            p95 = percentile(times, 0.95)
            bound = None if situation is burning else RATIO
            note = (
                f"{p95:.1f} ms; p50 {percentile(times, 0.5):.1f}, worst {max(times):.0f}; "
                f"{len(times)} searches"
            )
            figures.append(
                Figure(
                    name=f"{asked}: p95, {name} / quiet", value=p95 / idle, bound=bound, note=note
                )
            )
    return figures


def _wrong(complete: Sequence[dict[str, Any]]) -> int:
    return sum(sum(one["vectors_differ"]) + sum(one["words_differ"]) for one in complete)


def _searched(database: str, seed: int, meanwhile: Callable[[], None]) -> list[Any]:
    """What two searching processes saw while something else happened."""
    searchers = [
        start_fresh("sharing:search", database, project, questions(200, seed))
        for project in (PROJECT, "one")
    ]
    with ExitStack() as stack:
        for searcher in searchers:
            stack.callback(searcher.kill)
            assert searcher.stdout is not None
            searcher.stdout.readline()  # it is warm now
        for searcher in searchers:
            _go(searcher)
        meanwhile()
        return [
            answer_of(searcher, searcher.communicate("stop\n", timeout=TIMEOUT_S)[0])
            for searcher in searchers
        ]


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def search(database: str, project: str, asked: list[str]) -> dict[str, Any]:
    """Search without pause from 'go' on stdin until 'stop'.

    Returns the milliseconds of each search, and errors.
    """
    times: list[float] = []
    errors: list[str] = []
    with Corpus(Settings.of(database=database)) as corpus:
        for query in asked[:40]:
            corpus.search(query, projects=project)
        print("warm", flush=True)
        sys.stdin.readline()
        while not select.select([sys.stdin], [], [], 0)[0]:
            begun = time.perf_counter()
            try:
                corpus.search(asked[len(times) % len(asked)], projects=project)
            except UnspoolError as error:
                errors.append(str(error))
            times.append(1000 * (time.perf_counter() - begun))
            time.sleep(0.005)  # two people asking, not two loops that leave no core to anyone
    return {"times": times, "errors": errors}


def index(tree: str, database: str, project: str) -> dict[str, Any]:
    """One indexing run."""
    try:
        with Corpus(Settings.of(database=database)) as corpus:
            report = corpus.index(tree, project=project)
    except UnspoolError as error:
        return {"error": str(error)}
    return {"error": "", "chunks": report.chunks, "busy": report.busy, "failed": report.failed}


def _together(runs: Sequence[tuple[str, str, str]]) -> list[Any]:
    """Index in as many processes at once."""
    return _ended([start_fresh("sharing:index", *run) for run in runs])


def _burn(seconds: float) -> None:
    """Two processes that compute; two indexing runs with their workers are more than that."""
    _ended([start_fresh("sharing:burn", seconds) for _ in range(2)])


def burn(seconds: float) -> None:
    """Compute, to no end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(10_000))


def _ended(processes: list[subprocess.Popen[str]]) -> list[Any]:
    with ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
        return [
            answer_of(process, process.communicate(timeout=TIMEOUT_S)[0]) for process in processes
        ]


if __name__ == "__main__":
    main()
