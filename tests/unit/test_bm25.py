"""BM25 as an inner product of sparse vectors: the same numbers as BM25 written out, in places
that stay, under keys that find everything.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unspool.index.bm25 import AVERAGE_LENGTH, K1, B, compute_idf
from unspool.index.postgres import terms
from unspool.index.postgres.terms import DIMENSIONS, LEVELS, TermDimensions

words = st.text(alphabet="abcdeé名 \U0001f600", min_size=1, max_size=4)
chunks = st.lists(st.lists(words, min_size=1, max_size=80), min_size=1, max_size=12)
projects = st.integers(0, 2**63 - 1)


def written_out(query: set[str], chunk: list[str], among: list[list[str]]) -> float:
    """The BM25 of a chunk among others, with the average length that the vectors assume."""
    total = 0.0
    for term in query:
        frequency = chunk.count(term)
        holding = sum(term in other for other in among)
        rarity = math.log(1 + (len(among) - holding + 0.5) / (holding + 0.5))
        total += (
            rarity
            * frequency
            * (K1 + 1)
            / (frequency + K1 * (1 - B + B * len(chunk) / AVERAGE_LENGTH))
        )
    return total


@given(chunks, st.sets(words, max_size=6), projects)
def test_the_inner_product_is_bm25(among: list[list[str]], query: set[str], project: int) -> None:
    places = TermDimensions(project)
    holding = Counter(term for chunk in among for term in set(chunk))
    asked = {places[term]: compute_idf(holding[term], len(among)) for term in query}
    # a quarter of a billion places, yet it may happen
    assume(len({places[term] for term in (*holding, *query)}) == len({*holding, *query}))
    for chunk in among:
        body = terms.build_vector(places, chunk)
        product = sum(
            asked.get(at, 0.0) * weight
            for at, weight in zip(body.dimensions.tolist(), body.weights.tolist(), strict=True)
        )
        assert product == pytest.approx(written_out(query, chunk, among), rel=1e-5, abs=1e-6)


@given(projects, st.lists(words, min_size=1, max_size=50))
def test_a_term_has_one_place_in_a_project_whoever_asks_and_in_whatever_order(
    project: int, some: list[str]
) -> None:
    first, second = TermDimensions(project), TermDimensions(project)
    expected = {term: first[term] for term in some}
    assert {term: second[term] for term in reversed(some)} == expected
    assert all(0 <= at < DIMENSIONS for at in expected.values())
    assert all(0 <= key < 2**31 for key in terms.list_keys(expected.values()))


def test_the_places_of_terms_are_told_apart_and_so_are_those_of_projects() -> None:
    # What is stored depends on them: other places would need another format.
    some = [f"term{number}" for number in range(2_000)]
    one, other = TermDimensions(1), TermDimensions(2)
    assert len({one[term] for term in some}) > 1_990
    assert len({one[term] for term in some} & {other[term] for term in some}) < 10
    assert (one["walrus"], one["名"], other["walrus"]) == (86657074, 65197289, 62798492)


def test_more_terms_than_are_remembered_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "_MAX_CACHED", 10)
    small, some = TermDimensions(7), [f"term{number}" for number in range(35)]
    first = [small[term] for term in some]
    assert [small[term] for term in some] == first
    assert len(small) <= 11


def test_a_lone_surrogate_is_a_term_like_any_other() -> None:
    assert terms.build_vector(TermDimensions(1), ["\ud800", "\ud800"]).dimensions.tolist() == [
        TermDimensions(1)["\ud800"]
    ]


def test_no_terms_make_an_empty_vector() -> None:
    body = terms.build_vector(TermDimensions(1), [])
    assert body.dimensions.size == body.weights.size == body.keys.size == 0


@given(st.lists(words, min_size=1, max_size=300), projects)
def test_a_body_is_in_order_each_place_once_with_the_level_of_its_weight(
    chunk: list[str], project: int
) -> None:
    body = terms.build_vector(TermDimensions(project), chunk)
    assert (body.dimensions.dtype, body.weights.dtype, body.keys.dtype) == (
        np.int32,
        np.float32,
        np.int32,
    )
    assert np.all(np.diff(body.dimensions) > 0) and len(body.dimensions) == len(
        {TermDimensions(project)[term] for term in chunk}
    )
    assert np.all(body.weights > 0) and np.all(body.weights < K1 + 1)
    assert set(body.keys.tolist()) <= set(terms.list_keys(body.dimensions.tolist()))
    for at, weight, key in zip(
        body.dimensions.tolist(), body.weights.tolist(), body.keys.tolist(), strict=True
    ):
        assert key == 4 * at + sum(weight >= np.float32(level) for level in LEVELS)


@given(st.lists(words, max_size=100), projects)
def test_the_binary_form_is_what_pgvector_reads(chunk: list[str], project: int) -> None:
    pgvector = pytest.importorskip(
        "pgvector", reason="pgvector is not installed; pip install 'unspool[postgres]'"
    )
    body = terms.build_vector(TermDimensions(project), chunk)
    read = pgvector.SparseVector.from_binary(body.to_binary())
    assert read.dimensions() == DIMENSIONS
    assert list(read.indices()) == body.dimensions.tolist()
    assert list(read.values()) == body.weights.tolist()


places_asked = st.dictionaries(st.integers(0, 50), st.floats(0.01, 10), min_size=1, max_size=8)


@given(places_asked, st.data(), st.integers(0, 300))
def test_the_keys_that_bring_the_most_come_first_until_there_are_enough(
    query: dict[int, float], data: st.DataObject, enough: int
) -> None:
    counts = data.draw(
        st.dictionaries(st.sampled_from(terms.list_keys(query)), st.integers(1, 200), max_size=20)
    )
    chosen = terms.choose_keys(query, counts, enough)
    assert len(chosen) == len(set(chosen)) and set(chosen) <= counts.keys()
    total = sum(counts[key] for key in chosen)
    assert total >= enough or set(chosen) == counts.keys()
    if chosen:
        assert total - counts[chosen[-1]] < enough  # not one more than it takes
    brings = [query[key // 4] * (0.5, 0.75, 1.1, 1.6)[key % 4] for key in chosen]
    assert brings == sorted(brings, reverse=True)
    left = [query[key // 4] * (0.5, 0.75, 1.1, 1.6)[key % 4] for key in counts.keys() - set(chosen)]
    assert not left or not brings or max(left) <= brings[-1]


@given(st.integers(1, 10_000))
def test_a_term_is_worth_more_the_rarer_it_is_and_never_less_than_nothing(total: int) -> None:
    worth = [
        compute_idf(frequency, total) for frequency in range(0, total + 1, max(1, total // 20))
    ]
    assert worth == sorted(worth, reverse=True) and min(worth) > 0
    # a count that another writer has just raised
    assert compute_idf(total + 5, total) > 0
