"""BM25 as an inner product of sparse vectors. Pure.

A chunk's vector contains the BM25 weight of each of its terms: the frequency, saturated and
normalised by the chunk's length. A query's vector contains the inverse document frequency of each
term. Their inner product is the BM25 score, and pgvector computes it in the database.

A term's dimension is a hash of the term and its project. So an index over the terms of all projects
finds those of a single project. That index contains keys: a dimension together with the level of
the weight. A query with common terms starts with the chunks in which they have a high weight, and
never reads the many chunks in which they have a low weight.
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

DIMENSIONS = 2**28  # of a vector; a dimension together with a level fits 31 bits
LEVELS = (0.6, 0.9, 1.3)  # boundaries between levels; a weight is below 2.2
_TYPICAL = (0.5, 0.75, 1.1, 1.6)  # the typical weight of each level
_MAX_CACHED = 400_000  # terms; about 40 MB at worst

Keys = npt.NDArray[np.int32]


class TermVector(NamedTuple):
    """Weights of a chunk's terms, in the order of their dimensions."""

    dimensions: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]

    @property
    def keys(self) -> Keys:
        """Each dimension together with the level of its weight."""
        levels = np.searchsorted(LEVELS, self.weights, side="right")
        keys: Keys = self.dimensions * np.int32(4) + levels.astype(np.int32)
        return keys

    def to_binary(self) -> bytes:
        """Return the binary format of a sparse vector in PostgreSQL."""
        return (
            struct.pack(">iii", DIMENSIONS, len(self.dimensions), 0)
            + self.dimensions.astype(">i4").tobytes()
            + self.weights.astype(">f4").tobytes()
        )


class TermDimensions(dict[str, int]):
    """Dimension of each term of a project, counted from 0 and computed once."""

    def __init__(self, project: int) -> None:
        super().__init__()
        self._project = project & 0xFFFFFFFF

    def __missing__(self, term: str) -> int:
        if len(self) >= _MAX_CACHED:
            self.clear()
        digest = zlib.crc32(term.encode("utf-8", "surrogatepass"), self._project)
        self[term] = digest % DIMENSIONS
        return digest % DIMENSIONS


def build_vector(dimensions: TermDimensions, terms: Iterable[str]) -> TermVector:
    """Return the vector of a chunk."""
    counts = Counter(terms)
    total = counts.total()
    counts.pop(PADDING, None)  # padding only makes a text longer; nobody searches for it
    # If two terms share a dimension, only one counts: one pair in a quarter of a billion.
    own, first = np.unique(
        np.array([dimensions[term] for term in counts], dtype=np.int32), return_index=True
    )
    frequencies = np.array(list(counts.values()), dtype=np.float32)[first]
    return TermVector(own, weigh_terms(frequencies, total))


def list_keys(dimensions: Iterable[int]) -> list[int]:
    """Return the keys of chunks that have a term in one of these dimensions."""
    return [4 * dimension + level for dimension in dimensions for level in range(4)]


def choose_keys(query: Mapping[int, float], counts: Mapping[int, int], enough: int) -> list[int]:
    """Return the keys that add most to a score, until `enough` chunks have them.

    A chunk with none of them is rarely among the best. `query` contains the weight of each
    dimension, and `counts` the number of chunks of each key.
    """
    chosen: list[int] = []
    total = 0
    for key in sorted(counts, key=lambda key: (-query[key // 4] * _TYPICAL[key % 4], key)):
        if total >= enough:
            break
        chosen.append(key)
        total += counts[key]
    return chosen
