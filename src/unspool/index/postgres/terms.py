"""BM25 as an inner product of sparse vectors. Pure.

A chunk's vector holds, for each of its terms, how much the term counts in it: its frequency,
saturated and weighed by the chunk's length. A query's vector holds how rare each term is. Their
inner product is the BM25 score, and pgvector computes it where the rows are.

A term's place in the vector is a hash of the term and its project, so that an index over the terms
of all projects finds those of one alone. That index holds keys: a place together with the level of
the weight there. A query that has to look at common terms begins with the chunks in which they
weigh much, and never reads the many in which they weigh little.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.index.analysis import PADDING
from unspool.index.bm25 import weigh_terms

PLACES = 2**28  # of a vector; with a level a place still fits into 31 bits
LEVELS = (0.6, 0.9, 1.3)  # weights that part one level from the next; a weight is below 2.2
_TYPICAL = (0.5, 0.75, 1.1, 1.6)  # the weight that a level stands for
_MAX_REMEMBERED = 400_000  # terms; about 40 MB at worst

Keys = npt.NDArray[np.int32]


class Body(NamedTuple):
    """A chunk's terms by their place, in order, with their weights."""

    places: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]

    @property
    def keys(self) -> Keys:
        """Each place with the level of its weight."""
        keys: Keys = self.places * np.int32(4) + np.searchsorted(
            LEVELS, self.weights, side="right"
        ).astype(np.int32)
        return keys

    def to_binary(self) -> bytes:
        """As PostgreSQL takes a sparse vector."""
        size = len(self.places)
        return (
            struct.pack(">iii", PLACES, size, 0)
            + self.places.astype(">i4").tobytes()
            + self.weights.astype(">f4").tobytes()
        )


class Places(dict[str, int]):
    """Where each term of a project stands in its vectors, counted from 0; looked up once."""

    def __init__(self, project: int) -> None:
        super().__init__()
        self._project = project & 0xFFFFFFFF

    def __missing__(self, term: str) -> int:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        at = self[term] = zlib.crc32(term.encode("utf-8", "surrogatepass"), self._project) % PLACES
        return at


def body(places: Places, terms: Iterable[str]) -> Body:
    """The vector of a chunk."""
    counts = Counter(terms)
    total = counts.total()
    counts.pop(PADDING, None)  # makes a text longer, and is not looked for
    # Of two terms in one place, which is one pair in a quarter of a billion, one counts.
    at, first = np.unique(
        np.fromiter(map(places.__getitem__, counts), dtype=np.int32, count=len(counts)),
        return_index=True,
    )
    frequencies = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))[first]
    return Body(at, weigh_terms(frequencies, total))


def keys_of(places: Iterable[int]) -> list[int]:
    """The keys under which chunks with a term in one of these places are found."""
    return [4 * at + level for at in places for level in range(4)]


def leading(query: Mapping[int, float], counts: Mapping[int, int], enough: int) -> list[int]:
    """The keys that bring the most, until together they occur often enough: what has none of them
    is hardly among the best.

    `query` holds the weight of each place that is asked for, `counts` how many chunks have each
    key.
    """
    chosen: list[int] = []
    total = 0
    for key in sorted(counts, key=lambda key: (-query[key // 4] * _TYPICAL[key % 4], key)):
        if total >= enough:
            break
        chosen.append(key)
        total += counts[key]
    return chosen
