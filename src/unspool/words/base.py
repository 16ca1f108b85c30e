"""The WordIndex port: chunks by word, inside one project at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from unspool.domain.filters import Filter
from unspool.vectors.base import Ids, Matches, Vectors


class WordIndex(Protocol):
    """Scores are BM25 over the terms of `words.analysis`, each times its weight; higher is better."""

    def search(self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None) -> Matches:
        """The k best chunks that hold at least one of the terms."""

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """The score of each id, in order; 0 for what holds none of the terms."""
