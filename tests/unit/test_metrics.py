"""Measures of a ranking, against values worked out by hand."""

from __future__ import annotations

import pytest

from unspool.evaluation.metrics import ndcg, recall, reciprocal_rank


@pytest.mark.parametrize(
    ("ranking", "grades", "k", "value"),
    [
        (["a", "b"], {"a": 1}, 10, 1.0),
        (["b", "a"], {"a": 1}, 10, 0.6309297535714575),  # 1 / log2(3)
        (["b", "c", "a"], {"a": 1}, 10, 0.5),  # 1 / log2(4)
        (["b", "c", "a"], {"a": 1}, 2, 0.0),
        (["a", "x", "b"], {"a": 1, "b": 1}, 10, 0.9197207891481876),  # 1.5 / (1 + 1 / log2(3))
        # (1 + 3 / log2(3)) / (3 + 1 / log2(3))
        (["b", "a"], {"a": 2, "b": 1}, 10, 0.7967075809905066),
        (["a"], {"a": 1, "b": 1, "c": 1}, 1, 1.0),
        (["a"], {"a": 0}, 10, 0.0),
        ([], {"a": 1}, 10, 0.0),
        (["a"], {}, 10, 0.0),
    ],
)
def test_ndcg(ranking: list[str], grades: dict[str, int], k: int, value: float) -> None:
    assert ndcg(ranking, grades, k) == pytest.approx(value)


@pytest.mark.parametrize(
    ("ranking", "grades", "k", "value"),
    [
        (["a", "b", "c"], {"a": 1, "c": 2}, 10, 1.0),
        (["a", "b", "c"], {"a": 1, "c": 2}, 2, 0.5),
        (["a", "b"], {"a": 0, "b": 1}, 1, 0.0),
        ([], {"a": 1}, 10, 0.0),
        (["a"], {"a": 0}, 10, 0.0),
    ],
)
def test_recall(ranking: list[str], grades: dict[str, int], k: int, value: float) -> None:
    assert recall(ranking, grades, k) == value


@pytest.mark.parametrize(
    ("ranking", "grades", "value"),
    [
        (["a"], {"a": 1}, 1.0),
        (["x", "y", "a", "b"], {"a": 1, "b": 3}, 1 / 3),
        (["x", "a"], {"x": 0, "a": 1}, 0.5),
        (["x"], {"a": 1}, 0.0),
        ([], {}, 0.0),
    ],
)
def test_reciprocal_rank(ranking: list[str], grades: dict[str, int], value: float) -> None:
    assert reciprocal_rank(ranking, grades) == pytest.approx(value)
