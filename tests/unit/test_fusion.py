"""Two lists into one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unspool.search import fusion


def v(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


scores = st.integers(1, 30).flatmap(
    lambda n: arrays(np.float32, n, elements=st.floats(-10, 10, width=32))
)
pairs = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        arrays(np.float32, n, elements=st.floats(-1, 1, width=32)),
        arrays(np.float32, n, elements=st.floats(0, 50, width=32)),
    )
)


def fuse(meaning: np.ndarray | None, words: np.ndarray | None, alpha: float) -> np.ndarray:
    """Fused on the candidates' own scale, as the first segment of a walk is."""
    return fusion.fuse_scores(meaning, words, alpha, fusion.measure_scale(meaning, words, alpha))


@given(scores)
def test_one_side_alone_keeps_its_order_and_reaches_from_0_to_1(given_scores: np.ndarray) -> None:
    moved = fuse(given_scores, None, 1)
    assert moved.min() >= 0
    assert moved.max() == pytest.approx(1)
    assert (np.diff(moved[np.argsort(given_scores)]) >= 0).all()


@given(pairs, pairs, st.floats(0, 1))
def test_later_candidates_are_fused_as_if_they_had_been_there(
    first: tuple, later: tuple, alpha: float
) -> None:
    """The scale is fixed by the first ones: how a candidate is scored does not depend on who
    comes with it.
    """
    scale = fusion.measure_scale(*first, alpha)
    together = [np.concatenate(sides) for sides in zip(first, later, strict=True)]
    joined = fusion.fuse_scores(*together, alpha, scale)
    apart = np.concatenate(
        [fusion.fuse_scores(*first, alpha, scale), fusion.fuse_scores(*later, alpha, scale)]
    )
    assert np.allclose(joined, apart, atol=1e-4)


@given(pairs, st.floats(0, 1))
def test_a_scale_survives_being_written_down(
    sides: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    scale = fusion.measure_scale(*sides, alpha)
    assert fusion.Scale.from_values(json.loads(json.dumps(scale.flat))) == scale


@given(pairs, st.floats(0, 1))
def test_a_fused_score_is_always_a_number_from_0_to_1(
    sides: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    fused = fuse(*sides, alpha)
    assert np.isfinite(fused).all()
    assert fused.min() >= 0
    assert fused.max() <= 1 + 1e-6


@given(pairs, st.floats(0.0625, 0.9375))
def test_what_is_at_least_as_good_on_both_sides_is_never_ranked_below(
    sides: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    meaning, words = sides
    fused = fuse(meaning, words, alpha)
    better = (meaning[:, None] >= meaning) & (words[:, None] >= words)
    assert (fused[:, None] - fused)[better].min() >= -1e-4


def test_alpha_decides_which_side_wins() -> None:
    meaning, words = v(1, 0), v(0, 1)
    assert fuse(meaning, words, 0.6).argmax() == 0
    assert fuse(meaning, words, 0.4).argmax() == 1
    assert fuse(meaning, words, 0.5).tolist() == [1, 1]


def test_one_side_alone_keeps_its_order() -> None:
    assert fuse(v(0.2, 0.9, 0.5), None, 1).argsort().tolist() == [0, 2, 1]
    assert fuse(None, v(3, 1, 2), 0).argsort().tolist() == [1, 2, 0]


def test_what_has_no_vector_counts_as_the_farthest() -> None:
    fused = fuse(v(0.9, np.nan, 0.1), v(0, 0, 0), 0.5)
    assert fused.tolist() == [1, 0, 0]
    assert fuse(v(np.nan, np.nan), v(1, 2), 0.5).tolist() == [0, 1]
    assert fuse(v(np.nan), None, 1).tolist() == [1]


def test_candidates_that_are_all_alike_are_all_1_and_none_are_none() -> None:
    assert fuse(v(0.3, 0.3), v(5, 5), 0.4).tolist() == [1, 1]
    assert fuse(v(), v(), 0.4).tolist() == []
    assert fuse(v(), None, 1).tolist() == []
