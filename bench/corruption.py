"""Random damage to the derived folder: no search may be silently wrong, `doctor` must find it, and
`repair` must fix it.

Each time one file is damaged: a flipped bit, a truncation, a zeroed range, or two files swapped.
Then a search, `doctor` and `repair` each get the damaged folder. Rankings are compared with those
before, scores included.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from common import Figure, address, parser, show, tell, workspace
from filling import PROJECT, fill
from unspool import diagnosis
from unspool.corpus import Corpus
from unspool.errors import UnspoolError
from unspool.index.embedded import checksums
from unspool.settings import Settings
from words import questions

QUESTIONS = 6
ZEROED_BYTES = 4096


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--chunks", type=int, nargs="+", default=[2_000, 100_000])
    options.add_argument(
        "--corruptions", type=int, nargs="+", default=[280, 20], help="as many as there are sizes"
    )
    given = options.parse_args()
    figures: list[Figure] = []
    with workspace(given.keep) as folder:
        for chunks, count in zip(given.chunks, given.corruptions, strict=True):
            tell(f"{chunks} chunks")
            file = fill(folder / f"{chunks}.db", chunks=chunks, seed=given.seed, fast=True).file
            figures += measure(file, count, given.seed)
            figures.append(measure_opening(file))
    show("corruption", figures, as_json=given.json)


def measure(file: Path, count: int, seed: int) -> list[Figure]:
    """Damage the folder again and again; returns what became of it."""
    derived = file.with_name(file.name + ".derived")
    with Corpus(Settings.of(database=address(file))) as corpus:
        corpus.refresh()  # a run that was interrupted may have left it damaged
    sound = file.with_name(file.name + ".sound")
    shutil.rmtree(sound, ignore_errors=True)
    shutil.copytree(derived, sound)
    asked = questions(QUESTIONS, seed)
    expected = _rank(file, asked)
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        damage = _choose_damage(rng, derived)
        for step in (_search, _diagnose, _repair):
            damage()
            seen[step(file, asked, expected)] += 1
            _restore(sound, derived)
        if number % 20 == 19:
            tell(f"  {number + 1}: {dict(seen)}")
    chunks = f"{file.stem} chunks, {count} corruptions"
    return [
        Figure(name=f"{chunks}: searches silently different", value=seen["wrong"], bound=0),
        Figure(
            name=f"{chunks}: searches right", value=seen["right"], note=f"{seen['refused']} refused"
        ),
        Figure(name=f"{chunks}: not found by doctor", value=seen["not found"], bound=0),
        Figure(name=f"{chunks}: not fixed by repair", value=seen["not fixed"], bound=0),
    ]


def measure_opening(file: Path) -> Figure:
    """Open the folder with and without verification, in turn."""

    def open_once() -> float:
        with Corpus(Settings.of(database=address(file))) as corpus:
            row = corpus._access.resolve_one(PROJECT, "measure")
            begun = time.perf_counter()
            corpus._resources.session.indexes.is_filled(row.id)
            return 1e3 * (time.perf_counter() - begun)

    verified, plain = [], []
    for _ in range(9):
        verified.append(open_once())
        with patch.object(checksums, "EAGER_BYTES", 0):
            plain.append(open_once())
    extra = sorted(verified)[4] - sorted(plain)[4]
    return Figure(
        name=f"{file.stem} chunks: verification on opening",
        value=extra,
        unit="ms",
        bound=50,
        note=f"without it {sorted(plain)[4]:.1f} ms",
    )


def _choose_damage(rng: random.Random, derived: Path) -> Callable[[], None]:
    files = sorted(file for file in derived.rglob("*") if file.is_file() and file.stat().st_size)
    file = rng.choice(files)
    content = file.read_bytes()
    at = rng.randrange(len(content))
    kind = rng.choice(["flip", "truncate", "zero", "swap"])
    if kind == "truncate":
        changed = content[:at]
    elif kind == "zero" and any(content[at : at + ZEROED_BYTES]):
        changed = (
            content[:at]
            + bytes(len(content[at : at + ZEROED_BYTES]))
            + content[at + ZEROED_BYTES :]
        )
    elif kind == "swap":
        others = [one for one in files if one != file and one.read_bytes() != content]
        return _swap(file, rng.choice(others))
    else:
        changed = content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]

    def damage() -> None:
        file.write_bytes(changed)

    return damage


def _swap(one: Path, other: Path) -> Callable[[], None]:
    def damage() -> None:
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)

    return damage


def _restore(sound: Path, derived: Path) -> None:
    shutil.rmtree(derived)
    shutil.copytree(sound, derived, copy_function=shutil.copyfile)


def _rank(file: Path, asked: list[str]) -> list[list[tuple[int, float]]]:
    with Corpus(Settings.of(database=address(file))) as corpus:
        pages = [
            corpus.search(one, projects=PROJECT, alpha=alpha, limit=50)
            for one in asked
            for alpha in (None, 0.0, 1.0)
        ]
        return [[(hit.chunk.id, hit.score) for hit in page.hits] for page in pages]


def _search(file: Path, asked: list[str], expected: list[list[tuple[int, float]]]) -> str:
    try:
        return "right" if _rank(file, asked) == expected else "wrong"
    except UnspoolError:
        return "refused"


def _diagnose(file: Path, asked: list[str], expected: list[list[tuple[int, float]]]) -> str:
    del asked, expected
    return (
        "not found"
        if all(check.ok for check in diagnosis.diagnose(Settings.of(database=address(file))))
        else "found"
    )


def _repair(file: Path, asked: list[str], expected: list[list[tuple[int, float]]]) -> str:
    with suppress(UnspoolError), Corpus(Settings.of(database=address(file))) as corpus:
        corpus.refresh()
        row = corpus._access.resolve_one(PROJECT, "measure")
        if not corpus._resources.session.indexes.find_damage(row.id):
            return "fixed" if _search(file, asked, expected) == "right" else "not fixed"
    return "not fixed"


if __name__ == "__main__":
    main()
