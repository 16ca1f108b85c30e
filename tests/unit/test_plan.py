"""What a query asks for."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.errors import InputError
from unspool.index import analysis
from unspool.search.plan import (
    MAX_QUERY_CHARACTERS,
    MAX_TERMS,
    SYMBOL_SHARE,
    QueryPlan,
    drop_idle_terms,
    make_plan,
)


def planned(query: str, alpha: float | None = None, limit: int = 10) -> QueryPlan:
    return make_plan(query, alpha=alpha, best_alpha=0.4, limit=limit, depth=200)


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u3000"])
def test_an_empty_query_is_refused(query: str) -> None:
    with pytest.raises(InputError, match="empty"):
        planned(query)


def test_a_query_of_100_000_characters_is_refused_with_the_limit() -> None:
    with pytest.raises(InputError, match=str(MAX_QUERY_CHARACTERS)):
        planned("word " * 20_000)
    assert planned("w" * MAX_QUERY_CHARACTERS).query


@pytest.mark.parametrize("alpha", [2, -0.1, 1.0001, float("nan"), float("inf")])
def test_an_alpha_that_is_no_share_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha is"):
        planned("query words", alpha)


@pytest.mark.parametrize(
    ("alpha", "words", "vectors"), [(0, True, False), (0.5, True, True), (1, False, True)]
)
def test_alpha_decides_which_retrievers_are_asked(alpha: float, words: bool, vectors: bool) -> None:
    plan = planned("query words", alpha)
    assert (plan.alpha, plan.uses_words, plan.uses_vectors) == (alpha, words, vectors)


@pytest.mark.parametrize(
    ("query", "alpha"),
    [
        ("how are continuations signed", 0.4),
        ("parse_config", 0.4 * SYMBOL_SHARE),
        ("parseConfig loadFile", 0.4 * SYMBOL_SHARE),
        ("tokenizer", 0.4 * SYMBOL_SHARE),
        ("where is parse_config called", 0.4),
        ("what is this", 1.0),
        ("???", 1.0),
    ],
)
def test_unset_the_shape_of_the_query_chooses(query: str, alpha: float) -> None:
    assert planned(query).alpha == pytest.approx(alpha)


@pytest.mark.parametrize(
    ("query", "identifiers"),
    [
        ("where is parse_config called", {"parseconfig"}),
        ("the parseConfig function", {"parseconfig"}),
        ("what does `load` do", {"load"}),
        ("open() fails", {"open"}),
        ("os.path.join on windows", {"os", "path", "join"}),
        ("Foo::bar and a->b", {"foo", "bar"}),
        ("_private things", {"private"}),
        ("tokenizer", {"tokenizer"}),
        ("how do I open a file", set()),
        ("e x", set()),
    ],
)
def test_names_that_are_spelled_as_code_are_recognised(query: str, identifiers: set[str]) -> None:
    assert planned(query).identifiers == identifiers


def test_the_pool_is_never_smaller_than_the_page() -> None:
    assert planned("query words", limit=10).pool == 100
    assert planned("query words", limit=700).pool == 700


def test_only_so_many_different_terms_are_looked_for_but_repeats_stay() -> None:
    plan = planned(
        " ".join(f"{letter}{other}word" for letter in string.ascii_lowercase for other in "bcd")
        + " abword"
    )
    assert len([term for term in set(plan.terms) if term.count("word") == 1]) == MAX_TERMS
    assert plan.terms.count("abword") == 2


@pytest.mark.parametrize("spelling", ["chunk_id", "chunkId", "ChunkID", "chunkid"])
def test_words_side_by_side_also_ask_for_the_name_that_they_make(spelling: str) -> None:
    assert set(analysis.extract_terms(spelling)) & set(
        planned("a chunk's id, or the chunk id").weights
    ) >= {"chunkid"}


def test_the_language_of_the_majority_is_not_looked_for() -> None:
    plan = planned("python sort list")
    assert [language for _, language in plan.idle] == ["python"]
    assert "python" not in drop_idle_terms(plan, "python", plan.weights)
    assert set(planned("sort list").terms) <= set(drop_idle_terms(plan, "python", plan.weights))
    assert drop_idle_terms(plan, "go", plan.weights) == plan.weights


def test_a_query_of_nothing_but_languages_keeps_them() -> None:
    only = planned("python py")
    assert drop_idle_terms(only, "python", only.weights) == only.weights


@given(st.text(min_size=1, max_size=300).filter(lambda text: bool(text.strip())))
def test_any_query_can_be_planned(query: str) -> None:
    plan = planned(query)
    assert plan.uses_words or plan.uses_vectors
    assert 0 <= plan.alpha <= 1
    assert len(set(plan.terms)) <= 2 * MAX_TERMS
