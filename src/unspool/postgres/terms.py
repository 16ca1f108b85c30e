"""BM25 as an inner product of sparse vectors. Pure.

A chunk's vector holds, for each of its terms, how much the term counts in it: its frequency, saturated and weighed by the chunk's length. A
query's vector holds how rare each term is. Their inner product is the BM25 score, and pgvector computes it where the rows are.

A term's place in the vector is a hash of the term and its project, so that an index over the terms of all projects finds those of one alone.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

DIMENSIONS = 1_000_000_000  # what a sparse vector may have
K1, B = 1.2, 0.75  # as the embedded index has them
AVERAGE = 150  # terms of a chunk


class Body(NamedTuple):
    """A chunk's terms by their place, with their weights."""

    terms: list[int]
    weights: list[float]


def place(project: int, term: str) -> int:
    """Where a term of a project stands in its vectors, counted from 0."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"), project & 0xFFFFFFFF) % DIMENSIONS


def body(project: int, terms: Iterable[str]) -> Body:
    """The vector of a chunk."""
    counts = Counter(terms)
    scale = K1 * (1 - B + B * counts.total() / AVERAGE)
    weights: dict[int, float] = {}
    for term, count in counts.items():
        at = place(project, term)
        weights[at] = weights.get(at, 0.0) + count * (K1 + 1) / (count + scale)
    ordered = sorted(weights.items())
    return Body([at for at, _ in ordered], [weight for _, weight in ordered])


def rarity(frequency: int, chunks: int) -> float:
    """How much a term tells that so many of the chunks hold."""
    return math.log(1 + (max(chunks - frequency, 0) + 0.5) / (frequency + 0.5))


def leading(frequencies: Mapping[int, int], enough: int) -> list[int]:
    """The rarest terms, until together they occur often enough: what holds none of them cannot be among the best."""
    chosen: list[int] = []
    total = 0
    for term, frequency in sorted(frequencies.items(), key=lambda item: (item[1], item[0])):
        if total >= enough:
            break
        if frequency:
            chosen.append(term)
            total += frequency
    return chosen
