"""Indexing a Python source tree end to end: the first run, again with nothing changed, with one
changed file, with one deleted file.

Each run is a process of its own with the default settings.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trees
from common import (
    Figure,
    address,
    call_fresh,
    empty,
    folder_mb,
    memory_mb,
    parser,
    show,
    tell,
    workspace,
)
from unspool.corpus import Corpus
from unspool.settings import Settings

FILES = 5000
Run = dict[str, Any]


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "tree",
        type=Path,
        nargs="?",
        help="a folder to copy and index; by default this Python's own library and packages",
    )
    options.add_argument("--files", type=int, default=FILES, help="stop copying at so many files")
    given = options.parse_args()
    with workspace(given.keep) as folder:
        tree = empty(folder / "tree")
        count = _copy(given.tree, tree, given.files)
        if count < given.files:
            tell(
                f"there are only {count} Python files here, not {given.files}; the figures are "
                f"of a smaller tree"
            )
        for old in folder.glob("indexing.db*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        database = folder / "indexing.db"
        figures = list(_figures(count, _runs(tree, database), database))
    show("indexing", figures, as_json=given.json)


def _copy(source: Path | None, into: Path, files: int) -> int:
    if source is None:
        return trees.copy_python(into, files=files)
    return trees.copy_files(
        ((file.relative_to(source).as_posix(), file) for file in sorted(source.rglob("*.py"))),
        into,
        files=files,
    )


def _runs(tree: Path, database: Path) -> Iterator[tuple[str, Run]]:
    def run() -> Run:
        return call_fresh("indexing:measure", str(tree), address(database))

    tell("first run")
    yield "first", run()
    tell("nothing changed")
    yield "again", run()
    files = sorted(tree.rglob("*.py"))
    changed, deleted = files[len(files) // 2], files[len(files) // 3]
    changed.write_text(
        "def added_by_the_measurement():\n    return 1\n"
        + changed.read_text(encoding="utf-8", errors="replace"),
        encoding="utf-8",
    )
    tell("one changed file")
    yield "changed", run()
    deleted.unlink()
    tell("one deleted file")
    yield "deleted", run()


def measure(tree: str, database: str) -> Run:
    """One run, from opening the catalog to closing it."""
    before = time.perf_counter()
    with Corpus(Settings.of(database=database)) as corpus:
        report = corpus.index(tree, project="tree")
    seconds = time.perf_counter() - before
    own, children = _cpu()
    return {
        "seconds": seconds,
        "chunks": report.chunks,
        "added": report.added,
        "updated": report.updated,
        "removed": report.removed,
        "failed": report.failed,
        "skipped": sum(report.skipped.values()),
        "cpu_own": own,
        "cpu_children": children,
        "peak_mb": memory_mb().get("VmHWM", float("nan")),
    }


def _cpu() -> tuple[float, float]:
    own, children = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def _figures(count: int, runs: Iterator[tuple[str, Run]], database: Path) -> Iterator[Figure]:
    done = dict(runs)
    first, again, changed, deleted = done["first"], done["again"], done["changed"], done["deleted"]
    cpu = first["cpu_own"] + first["cpu_children"]
    note = (
        f"{count} files, {first['chunks']} chunks, {first['failed']} failed, {first['skipped']} "
        f"skipped"
    )
    yield Figure(
        name="first run",
        value=first["chunks"] / first["seconds"],
        unit="chunks/s",
        bound=2000,
        at_least=True,
        note=note,
    )
    yield Figure(name="first run", value=first["seconds"], unit="s")
    yield Figure(
        name="first run, cores kept busy",
        value=cpu / first["seconds"],
        note="less than 2 on a busy machine means that others took the rest",
    )
    yield Figure(name="first run, CPU of the parent", value=first["cpu_own"], unit="s")
    yield Figure(
        name="first run, CPU of the workers",
        value=first["cpu_children"],
        unit="s",
        note="with the kernel's part",
    )
    yield Figure(
        name="first run, chunks per CPU second, two cores",
        value=2 * first["chunks"] / cpu,
        unit="chunks/s",
        note="what two idle cores could give",
    )
    yield Figure(name="first run, peak memory of the parent", value=first["peak_mb"], unit="MB")
    yield Figure(name="catalog", value=folder_mb(database), unit="MB")
    yield Figure(
        name="derived folder",
        value=folder_mb(database.with_name(database.name + ".derived")),
        unit="MB",
    )
    share = 100 * again["seconds"] / first["seconds"]
    yield Figure(
        name="nothing changed, share of the first run",
        value=share,
        unit="%",
        bound=5,
        note=f"{again['seconds']:.2f} s",
    )
    yield Figure(
        name="one changed file",
        value=changed["seconds"],
        unit="s",
        bound=1,
        note=f"{changed['updated']} updated, {changed['cpu_own']:.2f} s of CPU",
    )
    yield Figure(
        name="one deleted file",
        value=deleted["seconds"],
        unit="s",
        note=f"{deleted['removed']} removed, {deleted['cpu_own']:.2f} s of CPU",
    )


if __name__ == "__main__":
    main()
