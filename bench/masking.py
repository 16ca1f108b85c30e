"""Masking of secrets: planted forms that stay readable, maskings in real folders, and the share of
indexing time.

Maskings in real folders are printed for reading: test keys and passwords are masked on purpose, and
only a person can tell what is wrong.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trees
from common import HERE, Figure, address, call_fresh, empty, parser, show, tell, workspace
from unspool.errors import UnspoolError
from unspool.sources.folders import scan
from unspool.sources.reading import Reading, read
from unspool.sources.secrets.masking import mask_secrets

sys.path.insert(0, str(HERE.parent / "tests"))

FILES = 1500
SEEDS = 20
SAMPLES = 40
_CONTEXT = 60


class Masking(NamedTuple):
    """A masked place of a file, with the text around it."""

    path: str
    line: int
    kind: str
    before: str
    secret: str


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "folders",
        type=Path,
        nargs="*",
        help="folders whose maskings are counted; by default this Python's own packages",
    )
    options.add_argument(
        "--samples", type=int, default=SAMPLES, help="maskings to print for reading"
    )
    options.add_argument(
        "--files", type=int, default=FILES, help="files of the tree whose indexing is measured"
    )
    options.add_argument(
        "--oracle", action="store_true", help="also scan the masked corpus with detect-secrets"
    )
    given = options.parse_args()
    figures = list(_measure_corpus(oracle=given.oracle))
    with workspace(given.keep) as folder:
        tree = empty(folder / "tree")
        trees.copy_python(tree, files=given.files)
        figures += _measure_folders(given.folders or [tree], samples=given.samples, seed=given.seed)
        figures += _measure_time(tree, folder)
    show("masking", figures, as_json=given.json)


def _measure_corpus(*, oracle: bool) -> Iterator[Figure]:
    import secrets_corpus

    counts: dict[str, int] = Counter()
    left: dict[str, int] = Counter()
    for seed in range(1, SEEDS + 1):
        for form in secrets_corpus.build(seed):
            counts[form.group] += 1
            left[form.group] += secrets_corpus.is_readable(
                form.secret, mask_secrets(form.text, form.path)[0]
            )
    note = f"{len(secrets_corpus.build())} forms, {SEEDS} secrets each"
    yield Figure(
        name="planted secrets that stay readable", value=sum(left.values()), bound=0, note=note
    )
    for group, count in counts.items():
        yield Figure(name=f"  {group}", value=left[group], note=f"of {count}")
    if oracle:
        yield from _ask_oracle(secrets_corpus.build())


def _ask_oracle(forms: Sequence[Any]) -> Iterator[Figure]:
    """Count the forms that detect-secrets finds before masking, and how long it takes."""
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    found = 0
    started = time.process_time()
    with default_settings():
        for form in forms:
            hits = [
                secret
                for line in form.text.split("\n")
                for secret in scan_line(line)
                if "Entropy" not in secret.type
            ]
            found += any(
                form.secret in (hit.secret_value or "") or (hit.secret_value or " ") in form.secret
                for hit in hits
            )
    seconds = time.process_time() - started
    size = sum(len(form.text) for form in forms)
    yield Figure(
        name="forms that detect-secrets finds",
        value=found,
        note=f"of {len(forms)}, without its entropy plugins",
    )
    yield Figure(name="time of detect-secrets", value=seconds / size * 1e9, unit="ns/character")


def _measure_folders(folders: Sequence[Path], *, samples: int, seed: int) -> Iterator[Figure]:
    maskings: list[Masking] = []
    files = 0
    for folder in folders:
        for count, found in _scan_folder(folder):
            files += count
            maskings += found
    by_file: dict[str, list[Masking]] = defaultdict(list)
    for masking in maskings:
        by_file[masking.path].append(masking)
    chosen = random.Random(seed).sample(sorted(by_file), min(samples, len(by_file)))
    for path in chosen:
        one = by_file[path][0]
        tell(f"{path}:{one.line}  {one.kind}  {one.before}[[{one.secret}]]")
    yield Figure(name="files read", value=files)
    yield Figure(
        name="files with a masking",
        value=len(by_file),
        note=f"{len(chosen)} printed above; count those that are wrong",
    )
    for kind, count in Counter(masking.kind for masking in maskings).most_common(8):
        yield Figure(name=f"  {kind}", value=count, note="places")


def _scan_folder(folder: Path) -> Iterator[tuple[int, list[Masking]]]:
    for found in scan(folder).found:
        try:
            reading = read(found)
        except UnspoolError:
            continue
        if isinstance(reading, Reading):
            yield 1, _describe(Path(found.file), found.path, reading) if reading.masked else []


def _describe(file: Path, path: str, reading: Reading) -> list[Masking]:
    """Return the masked places with their secrets.

    The original text is read anew; extracted text has no original.
    """
    original = (
        file.read_text(encoding=reading.encoding, errors="replace").lstrip("\ufeff")
        if reading.encoding
        else ""
    )
    lines, masked = original.split("\n"), reading.text.split("\n")
    found = []
    for one in reading.masked:
        if one.line > min(len(lines), len(masked)):
            continue
        pair = list(zip(lines[one.line - 1], masked[one.line - 1], strict=False))
        first = next((at for at, (before, after) in enumerate(pair) if before != after), 0)
        last = next((at for at in range(first, len(pair)) if pair[at][0] == pair[at][1]), len(pair))
        line = lines[one.line - 1]
        found.append(
            Masking(
                path,
                one.line,
                one.kind,
                line[max(0, first - _CONTEXT) : first].strip(),
                line[first:last][:_CONTEXT],
            )
        )
    return found


def _measure_time(tree: Path, folder: Path) -> Iterator[Figure]:
    tell("indexing, and masking alone")
    for old in folder.glob("masking.db*"):
        old.unlink() if old.is_file() else None
    indexed = call_fresh("indexing:measure", str(tree), address(folder / "masking.db"))
    alone = call_fresh("masking:measure_masking", str(tree))
    cpu = indexed["cpu_own"] + indexed["cpu_children"]
    size = alone["characters"]
    yield Figure(
        name="masking, share of indexing",
        value=100 * alone["seconds"] / cpu,
        unit="%",
        bound=10,
        note=f"{alone['seconds']:.2f} of {cpu:.1f} s CPU",
    )
    yield Figure(
        name="masking",
        value=alone["seconds"] / size * 1e9,
        unit="ns/character",
        note=f"{size / 1e6:.1f} million characters",
    )


def measure_masking(tree: str) -> dict[str, float]:
    """Mask the files of a tree; returns processor time and size."""
    texts = [
        (file.name, file.read_text(encoding="utf-8", errors="replace"))
        for file in sorted(Path(tree).rglob("*.py"))
    ]
    started = time.process_time()
    for name, text in texts:
        mask_secrets(text, name)
    return {
        "seconds": time.process_time() - started,
        "characters": sum(len(text) for _, text in texts),
    }


if __name__ == "__main__":
    main()
