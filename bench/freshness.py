"""Measure the cost of comparing the hits of a page with their files."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import unspool
from common import Figure, parser, percentile, show, workspace
from unspool.catalog.chunks import IndexedFile
from unspool.search.freshness import find_stale

PAGES, HITS, DEPTH = 2_000, 10, 4


def describe(root: Path, file: Path) -> IndexedFile:
    """Return a file as the catalog stores it."""
    found = file.stat()
    path = file.relative_to(root).as_posix()
    return IndexedFile(str(root), path, found.st_size, found.st_mtime_ns)


def create_apart(root: Path) -> list[IndexedFile]:
    """Create the files of a page without one folder in common: the worst case."""
    made = []
    for number in range(HITS):
        file = root.joinpath(*(f"d{number}-{level}" for level in range(DEPTH)), "file.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        made.append(describe(root, file))
    return made


def measure(pages: Sequence[Sequence[IndexedFile]]) -> float:
    """Return the median time for a page in microseconds."""
    taken = []
    for page in pages:
        begun = time.perf_counter()
        find_stale(page)
        taken.append(1e6 * (time.perf_counter() - begun))
    return percentile(taken, 0.5)


def main() -> None:
    options = parser(__doc__).parse_args()
    package = Path(unspool.__file__).resolve().parent
    sources = [describe(package, file) for file in sorted(package.rglob("*.py"))]
    chosen = random.Random(options.seed)
    with workspace(options.keep) as folder:
        pages = [chosen.sample(sources, HITS) for _ in range(PAGES)]
        apart = create_apart(folder.resolve() / "tree")
        begun = time.perf_counter()
        for _ in range(PAGES):
            os.lstat(package)
        call = 1e6 * (time.perf_counter() - begun) / PAGES
        note = f"of {len(sources)} files of this package"
        figures = [
            Figure(name=f"{HITS} hits", value=measure(pages), unit="µs", bound=200, note=note),
            Figure(
                name=f"{HITS} hits without a common folder",
                value=measure([apart] * PAGES),
                unit="µs",
                note=f"{DEPTH} folders deep",
            ),
            Figure(name="one call of lstat", value=call, unit="µs"),
        ]
    show("freshness", figures, as_json=options.json)


if __name__ == "__main__":
    main()
