"""Source trees to index: real Python files copied from this interpreter, or generated ones."""

from __future__ import annotations

import random
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from words import Vocabulary


def python_files() -> Iterator[tuple[str, Path]]:
    """Every .py file of the standard library, then of the installed packages, with the path it
    gets in a copy.
    """
    paths = sysconfig.get_paths()
    for name, root in (("lib", Path(paths["stdlib"])), ("packages", Path(paths["purelib"]))):
        for file in sorted(root.rglob("*.py")):
            relative = file.relative_to(root).as_posix()
            if (
                file.is_symlink()
                or not file.is_file()
                or (name == "lib" and "site-packages" in relative)
            ):
                continue
            yield f"{name}/{relative}", file


def copy_python(into: Path, *, files: int | None = None, total_bytes: int | None = None) -> int:
    """Copy this Python's files until there are so many, or so many bytes; returns how many there
    are.
    """
    return copy_files(python_files(), into, files=files, total_bytes=total_bytes)


def copy_files(
    found: Iterable[tuple[str, Path]],
    into: Path,
    *,
    files: int | None = None,
    total_bytes: int | None = None,
) -> int:
    """The same for any files, each with the path it gets."""
    count = size = 0
    for name, file in found:
        if (files is not None and count >= files) or (
            total_bytes is not None and size >= total_bytes
        ):
            break
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        count, size = count + 1, size + file.stat().st_size
    return count


def generate(into: Path, *, files: int, seed: int, functions: int = 12) -> None:
    """Write Python files of random functions; the same ones for the same seed."""
    vocabulary = Vocabulary.load()
    for number in range(files):
        target = into / f"package_{number % 7}" / f"module_{number}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            source(vocabulary, random.Random(f"{seed}/{number}"), functions), encoding="utf-8"
        )


def source(vocabulary: Vocabulary, rng: random.Random, functions: int) -> str:
    """The text of one generated module."""
    parts = [f'"""{" ".join(vocabulary.sample(rng, 8)).capitalize()}."""\n']
    for _ in range(functions):
        name, first, second = (word.lower() for word in vocabulary.sample(rng, 3))
        body = [
            f"    {a}_{b} = {first}.{c}({second}, {d!r})"
            for a, b, c, d in (vocabulary.sample(rng, 4) for _ in range(rng.randint(4, 16)))
        ]
        doc = " ".join(vocabulary.sample(rng, 10))
        parts.append(
            "\n".join(
                [
                    f"\ndef {name}_{second}({first}, {second}):",
                    f'    """{doc}."""',
                    *body,
                    f"    return {first}\n",
                ]
            )
        )
    return "\n".join(parts)
