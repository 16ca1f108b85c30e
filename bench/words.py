"""Words, texts and questions that look like those of a code base, made from the standard library
of the running Python.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Self

_WORD = re.compile(r"[A-Za-z_]\w{1,40}")
_MAX_WORDS = 60_000


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words, most frequent first, and the running total of their weights by Zipf's law."""

    words: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def load(cls) -> Self:
        """The vocabulary of the standard library's own sources."""
        words = _frequent_words()
        return cls(words, tuple(accumulate(1 / (rank + 2.7) for rank in range(len(words)))))

    def sample(self, rng: random.Random, count: int) -> list[str]:
        """So many words, frequent ones often."""
        return rng.choices(self.words, cum_weights=self.weights, k=count)


@cache
def _frequent_words() -> tuple[str, ...]:
    counts: Counter[str] = Counter()
    for file in _modules():
        counts.update(_WORD.findall(file.read_text(encoding="utf-8", errors="ignore")))
    return tuple(
        word
        for word, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MAX_WORDS]
    )


def _modules() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    return sorted(
        file
        for pattern in ("*.py", "*/*.py")
        for file in root.glob(pattern)
        if "site-packages" not in file.parts
    )


def questions(count: int, seed: int) -> list[str]:
    """What people ask of code: four in five are the first line of a function's documentation,
    one in five is a name.
    """
    sentences: list[str] = []
    names: list[str] = []
    for file in _modules():
        for node in ast.walk(_parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
                doc := ast.get_docstring(node)
            ):
                line = doc.split("\n", 1)[0].strip()
                if 3 <= len(line.split()) <= 12:
                    sentences.append(line)
                    names.append(node.name)
    rng = random.Random(seed)
    return [rng.choice(names if number % 5 == 4 else sentences) for number in range(count)]


def _parsed(file: Path) -> ast.AST:
    try:
        return ast.parse(file.read_text(encoding="utf-8", errors="ignore"))
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
