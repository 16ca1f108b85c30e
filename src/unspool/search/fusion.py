"""Two lists into one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.index.ports import Vectors

Sums = npt.NDArray[np.float64]


class Scale(NamedTuple):
    """How raw scores become fused ones: each side's mean and deviation, then the lowest and the
    highest sum; and what becomes of messages.
    """

    meaning: tuple[float, float] = (0.0, 0.0)
    words: tuple[float, float] = (0.0, 0.0)
    low: float = 0.0
    high: float = 0.0
    context: float = 1.0  # what a message's score with its neighbours' part is divided by

    @classmethod
    def of(cls, values: Sequence[float]) -> Scale:
        """From the numbers of `flat`."""
        a, b, c, d, low, high, *rest = values
        return cls((a, b), (c, d), low, high, *rest)

    @property
    def flat(self) -> tuple[float, ...]:
        return (*self.meaning, *self.words, self.low, self.high, self.context)


def scale(meaning: Vectors | None, words: Vectors | None, alpha: float) -> Scale:
    """The scale on which these candidates lie from 0 to 1.

    Every candidate is scored on both sides, whichever retriever brought it; each side is brought to
    mean 0 and deviation 1, so that a few rare words that match weigh more than the small
    differences of meaning. Measured with alpha .4: code-repos .860, cosqa .466, scifact .720;
    spreading each side over 0 to 1 instead: .856, .455, .718; reciprocal ranks are worse than words
    alone on five of seven sets.
    """
    both = Scale(meaning=_moments(meaning), words=_moments(words))
    sums = _sums(meaning, words, alpha, both)
    return both._replace(low=float(sums.min()), high=float(sums.max())) if len(sums) else both


def fuse(meaning: Vectors | None, words: Vectors | None, alpha: float, on: Scale) -> Vectors:
    """One score per candidate from both sides.

    Those that the scale was made of get 0 to 1; where they are all alike, 1.
    """
    sums = _sums(meaning, words, alpha, on)
    width = on.high - on.low
    return (
        ((sums - on.low) / width).astype(np.float32)
        if width > 1e-9
        else np.where(sums >= on.low, 1.0, 0.0).astype(np.float32)
    )


def _sums(meaning: Vectors | None, words: Vectors | None, alpha: float, on: Scale) -> Sums:
    if meaning is None or words is None:
        only = meaning if meaning is not None else words
        return np.zeros(0) if only is None else _filled(only).astype(np.float64)
    return alpha * _standard(meaning, on.meaning) + (1 - alpha) * _standard(words, on.words)


def _moments(scores: Vectors | None) -> tuple[float, float]:
    if scores is None or not len(scores):
        return 0.0, 0.0
    filled = _filled(scores).astype(np.float64)
    return float(filled.mean()), float(filled.std())


def _standard(scores: Vectors, moments: tuple[float, float]) -> Sums:
    mean, deviation = moments
    filled = _filled(scores).astype(np.float64)
    return (filled - mean) / deviation if deviation > 1e-6 else np.zeros_like(filled)


def _filled(scores: Vectors) -> Vectors:
    if not len(scores) or not np.isnan(scores).any():
        return scores
    return np.nan_to_num(scores, nan=0.0 if np.isnan(scores).all() else float(np.nanmin(scores)))
