"""Two lists into one. Pure."""

from __future__ import annotations

import numpy as np

from unspool.vectors.base import Vectors


def fuse(meaning: Vectors | None, words: Vectors | None, alpha: float) -> Vectors:
    """One score per candidate from both sides, from 0 to 1.

    Every candidate is scored on both sides, whichever retriever brought it; each side is brought to mean 0 and deviation 1, so that a few
    rare words that match weigh more than the small differences of meaning. Measured with alpha .4: code-repos .860, cosqa .466, scifact
    .720; spreading each side over 0 to 1 instead: .856, .455, .718; reciprocal ranks are worse than words alone on five of seven sets.
    """
    if meaning is None:
        assert words is not None
        return spread(words)
    if words is None:
        return spread(meaning)
    return spread(alpha * standard(meaning) + (1 - alpha) * standard(words))


def standard(scores: Vectors) -> Vectors:
    """Scores with mean 0 and deviation 1; NaN counts as the lowest."""
    filled = _filled(scores).astype(np.float64)
    deviation = float(filled.std()) if len(filled) else 0.0
    moved = (filled - filled.mean()) / deviation if deviation > 1e-6 else np.zeros_like(filled)
    return moved.astype(np.float32)


def spread(scores: Vectors) -> Vectors:
    """Scores moved and stretched so that the lowest is 0 and the highest 1; all alike are all 1."""
    filled = _filled(scores)
    if not len(filled):
        return filled
    low, high = float(filled.min()), float(filled.max())
    stretched: Vectors = (filled - low) / (high - low) if high - low > 1e-9 else np.ones_like(filled)
    return stretched


def _filled(scores: Vectors) -> Vectors:
    if not len(scores) or not np.isnan(scores).any():
        return scores
    return np.nan_to_num(scores, nan=0.0 if np.isnan(scores).all() else float(np.nanmin(scores)))
