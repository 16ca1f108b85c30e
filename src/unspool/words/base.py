"""The WordIndex port: chunks by word, inside one project at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from unspool.domain.filters import Filter
from unspool.vectors.base import Ids, Matches, Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """How many chunks a project has, and how many of them hold each term."""

    chunks: int
    frequencies: Mapping[str, int]


class WordIndex(Protocol):
    """Scores are BM25 over the terms of `words.analysis`, each times its weight; higher is
    better.
    """

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Matches:
        """The k best chunks that hold at least one of the terms."""

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """The score of each id, in order; 0 for what holds none of the terms."""

    def statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """What makes the scores of one project comparable with another's."""
