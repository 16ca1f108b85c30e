"""BM25 as an inner product of sparse vectors. Pure.

A chunk's vector holds, for each of its terms, how much the term counts in it: its frequency, saturated and weighed by the chunk's length. A
query's vector holds how rare each term is. Their inner product is the BM25 score, and pgvector computes it where the rows are.

A term's place in the vector is a hash of the term and its project, so that an index over the terms of all projects finds those of one alone.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

DIMENSIONS = 1_000_000_000  # what a sparse vector may have
K1, B = 1.2, 0.75  # as the embedded index has them
AVERAGE = 150  # terms of a chunk
_MAX_REMEMBERED = 400_000  # terms; about 40 MB at worst


class Body(NamedTuple):
    """A chunk's terms by their place, in order, with their weights."""

    terms: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]

    def to_binary(self) -> bytes:
        """As PostgreSQL takes a sparse vector."""
        size = len(self.terms)
        return struct.pack(">iii", DIMENSIONS, size, 0) + self.terms.astype(">i4").tobytes() + self.weights.astype(">f4").tobytes()


class Places(dict[str, int]):
    """Where each term of a project stands in its vectors, counted from 0; looked up once."""

    def __init__(self, project: int) -> None:
        super().__init__()
        self._project = project & 0xFFFFFFFF

    def __missing__(self, term: str) -> int:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        at = self[term] = zlib.crc32(term.encode("utf-8", "surrogatepass"), self._project) % DIMENSIONS
        return at


def body(places: Places, terms: Iterable[str]) -> Body:
    """The vector of a chunk."""
    counts = Counter(terms)
    # Of two terms in one place, which is one pair in a billion, one counts.
    at, first = np.unique(np.fromiter(map(places.__getitem__, counts), dtype=np.int32, count=len(counts)), return_index=True)
    found = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))[first]
    return Body(at, found * (K1 + 1) / (found + K1 * (1 - B + B * counts.total() / AVERAGE)))


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
