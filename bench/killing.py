"""Indexing, killed at random instants and run again: is the result that of an undisturbed run?

Each time a new catalog is begun, the process is killed by SIGKILL somewhere between its first and
its last moment, and a second process runs to the end. Documents, chunk ids, texts, vectors and the
ids in both halves of the derived index are then compared.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trees
from common import (
    Figure,
    address,
    call_fresh,
    empty,
    parser,
    percentile,
    show,
    start_fresh,
    tell,
    workspace,
)
from unspool.catalog import Catalog, projects
from unspool.catalog import chunks as chunk_rows
from unspool.corpus import Corpus
from unspool.settings import Settings

FILES = 300
JOBS = 2  # so that there are workers on a machine with one core too
PROJECT = "tree"
WORKER_SECONDS = 5.0  # within which a worker has to notice that its parent is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What one kill came to."""

    stage: str  # how far the run had got
    workers: int
    workers_left: int
    differs: tuple[str, ...]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--files", type=int, default=FILES)
    given = options.parse_args()
    with workspace(given.keep) as folder:
        tree = empty(folder / "tree")
        trees.generate(tree, files=given.files, seed=given.seed, functions=30)
        expected, seconds = _undisturbed(tree, folder)
        rng = random.Random(given.seed)
        kills = []
        for number in range(given.kills):
            instant = (number + rng.random()) / given.kills * seconds
            kills.append(_kill(tree, empty(folder / "killed"), instant, expected))
            tell(
                f"{number + 1}/{given.kills}: after {instant:.2f} of {seconds:.2f} s, "
                f"{kills[-1].stage}: {', '.join(kills[-1].differs) or 'agrees'}"
            )
        shutil.rmtree(folder / "killed")
    show("killing", _figures(kills, expected, seconds), as_json=given.json)


def _figures(kills: list[Kill], expected: dict[str, Any], seconds: float) -> list[Figure]:
    agree = sum(not kill.differs for kill in kills)
    note = (
        f"{expected['document_count']} documents, {expected['chunk_count']} chunks, "
        f"{seconds:.1f} s undisturbed"
    )
    stages = Counter(kill.stage for kill in kills)
    differences = Counter(what for kill in kills for what in kill.differs)
    return [
        Figure(
            name="kills after which the result is the same",
            value=agree,
            unit=f"of {len(kills)}",
            bound=len(kills),
            at_least=True,
            note=note,
        ),
        Figure(
            name="workers that outlived their parent",
            value=sum(kill.workers_left for kill in kills),
            bound=0,
            note=f"of {sum(kill.workers for kill in kills)}",
        ),
        *(
            Figure(name=f"killed when {stage}", value=count)
            for stage, count in stages.most_common()
        ),
        *(
            Figure(name=f"differs: {what}", value=count)
            for what, count in differences.most_common()
        ),
    ]


def _undisturbed(tree: Path, folder: Path) -> tuple[dict[str, Any], float]:
    """What a run leaves when nobody disturbs it, and how long it takes: the median of three."""
    times = []
    for _ in range(3):
        database = address(empty(folder / "undisturbed") / "catalog.db")
        times.append(call_fresh("killing:index", str(tree), database))
        found = call_fresh("contents:contents", database, PROJECT)
    shutil.rmtree(folder / "undisturbed")
    return found, percentile(times, 0.5)


def index(tree: str, database: str) -> float:
    """A whole run; says when it begins, so that the kill can be timed from there.

    Returns the seconds it took.
    """
    print("begun", flush=True)
    begun = time.perf_counter()
    with Corpus(Settings.of(database=database, jobs=JOBS)) as corpus:
        corpus.index(tree, project=PROJECT)
    return time.perf_counter() - begun


def _kill(tree: Path, folder: Path, instant: float, expected: dict[str, Any]) -> Kill:
    database = address(folder / "catalog.db")
    process = start_fresh("killing:index", str(tree), database)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(instant)
    workers = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = _still_there(workers)
    stage = (
        "already finished" if process.returncode == 0 else _stage(folder / "catalog.db", expected)
    )
    call_fresh("killing:index", str(tree), database)
    found = call_fresh("contents:contents", database, PROJECT)
    differs = tuple(name for name in expected if found[name] != expected[name])
    return Kill(stage=stage, workers=len(workers), workers_left=left, differs=differs)


def _stage(file: Path, expected: dict[str, Any]) -> str:
    """How far a killed run had got, by what the catalog holds."""
    if not file.exists():
        return "there was no catalog yet"
    catalog = Catalog.open(address(file))
    try:
        with catalog.read() as connection:
            row = projects.find_project(connection, PROJECT)
            stored = 0 if row is None else chunk_rows.count_chunks(connection, row.id)
    finally:
        catalog.close()
    if not stored:
        return "nothing was stored yet"
    return (
        "a part was stored"
        if stored < expected["chunk_count"]
        else "all was stored, not all absorbed"
    )


def _children(pid: int) -> list[int]:
    """The processes whose parent this is; none where there is no /proc."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == pid:
            found.append(int(file.parent.name))
    return found


def _still_there(pids: list[int]) -> int:
    """How many have not ended by themselves in time; those are ended here."""
    until = time.monotonic() + WORKER_SECONDS
    while (alive := [pid for pid in pids if _running(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    return len(alive)


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    main()
