"""Metrics of a ranking: nDCG, recall and reciprocal rank. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the normalised discounted cumulative gain: 2**grade - 1, discounted by the logarithm
    of the rank.
    """
    gain = sum(
        (2 ** grades.get(name, 0) - 1) / math.log2(rank + 2)
        for rank, name in enumerate(ranking[:k])
    )
    ideal = sum(
        (2**grade - 1) / math.log2(rank + 2)
        for rank, grade in enumerate(sorted(grades.values(), reverse=True)[:k])
    )
    return gain / ideal if ideal else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the share of relevant documents that are among the first k."""
    relevant = {name for name, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, int]) -> float:
    """Return 1 over the rank of the first relevant document; 0 if there is none."""
    return next((1 / rank for rank, name in enumerate(ranking, 1) if grades.get(name, 0) > 0), 0.0)
