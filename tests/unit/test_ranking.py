"""Code-aware ranking: each boost moves what it is meant to move, and nothing else decides the
order.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.catalog.chunks import Candidate
from unspool.search import ranking
from unspool.search.plan import make_plan
from unspool.search.ranking import Ranked, group_copies, rank_candidates


def candidate(
    id_: int,
    path: str,
    *,
    document: int | None = None,
    defines: str = "",
    kind: str = "code",
    line: int = 1,
    project: int = 1,
    text: int | None = None,
) -> Candidate:
    return Candidate(
        id=id_,
        document_id=id_ if document is None else document,
        position=0,
        path=path,
        symbol="",
        defines=defines,
        kind=kind,
        language="python",
        first_line=line,
        project_id=project,
        copy_key=id_ if text is None else text,
    )


def order(
    query: str, candidates: list[Candidate], fused: dict[int, float] | None = None
) -> list[Ranked]:
    plan = make_plan(query, alpha=None, best_alpha=0.4, limit=10, depth=200)
    return rank_candidates(
        candidates,
        fused or dict.fromkeys([one.id for one in candidates], 0.5),
        terms=plan.terms,
        identifiers=plan.identifiers,
    )


def ids(ranked: list[Ranked]) -> list[int]:
    return [one.candidate.id for one in ranked]


def test_without_any_boost_the_fused_score_decides() -> None:
    some = [candidate(1, "a.py"), candidate(2, "b.py"), candidate(3, "c.py")]
    ranked = order("walrus", some, {1: 0.2, 2: 0.9, 3: 0.5})
    assert ids(ranked) == [2, 3, 1]
    assert [one.score for one in ranked] == [0.9, 0.5, 0.2]
    assert all(one.reasons == () for one in ranked)


@pytest.mark.parametrize(
    ("query", "winner", "loser", "reason"),
    [
        (
            "how does the tokenizer work",
            candidate(2, "z/tokenizer.py"),
            candidate(1, "a/main.py"),
            "file name",
        ),
        (
            "parse config",
            candidate(2, "z/parse_config.py"),
            candidate(1, "a/parse_arguments.py"),
            "file name",
        ),
        (
            "cache eviction",
            candidate(2, "z/cache/main.py"),
            candidate(1, "a/other/main.py"),
            "folder",
        ),
        (
            "where is parseConfig",
            candidate(2, "z.py", defines="other\nparse_config"),
            candidate(1, "a.py", defines="other"),
            "defines parse_config",
        ),
        (
            "parse the config",
            candidate(2, "z.py", defines="parseConfig"),
            candidate(1, "a.py", defines="parse_args"),
            "defines parseConfig",
        ),
        (
            "parse_config()",
            candidate(2, "z.py", defines="parseConfig"),
            candidate(1, "a.py", defines="parse"),
            "defines parseConfig",
        ),
    ],
)
def test_a_boost_lifts_what_it_is_for_and_says_so(
    query: str, winner: Candidate, loser: Candidate, reason: str
) -> None:
    ranked = order(query, [loser, winner])
    assert ids(ranked) == [2, 1]
    assert reason in ranked[0].reasons


@pytest.mark.parametrize(
    "path",
    [
        "tests/b.py",
        "src/test_b.py",
        "b_test.go",
        "src/__tests__/b.js",
        "b.spec.ts",
        "fixtures/b.py",
        "src/FooTest.java",
        "conftest.py",
    ],
)
def test_tests_are_ranked_lower_unless_they_are_asked_for(path: str) -> None:
    some = [candidate(1, path), candidate(2, "src/zzz.py")]
    ranked = order("walrus", some, {1: 0.6, 2: 0.5})
    assert ids(ranked) == [2, 1]
    assert "a test, ranked lower" in ranked[1].reasons
    assert ids(order("walrus tests", some, {1: 0.6, 2: 0.5})) == [1, 2]


@pytest.mark.parametrize(
    "path",
    ["src/attestation.py", "src/contest.py", "src/latest.py", "inspect.py", "src/protest/x.py"],
)
def test_a_name_that_only_contains_test_is_no_test(path: str) -> None:
    assert order("walrus", [candidate(1, path)])[0].reasons == ()


@pytest.mark.parametrize(
    "path",
    [
        "examples/b.py",
        "vendor/x/b.py",
        "legacy/b.py",
        "third_party/b.c",
        "bench/b.py",
        "src/compat.py",
    ],
)
def test_examples_and_copies_are_ranked_lower(path: str) -> None:
    ranked = order("walrus", [candidate(1, path), candidate(2, "src/zzz.py")], {1: 0.55, 2: 0.5})
    assert ids(ranked) == [2, 1]
    assert any("example" in reason for reason in ranked[1].reasons)


def test_a_file_of_code_with_several_good_chunks_wins_over_one_with_a_single_good_chunk() -> None:
    several = [
        candidate(1, "b.py", document=1, line=1),
        candidate(2, "b.py", document=1, line=20),
        candidate(3, "b.py", document=1, line=40),
    ]
    ranked = order("walrus", [candidate(9, "a.py"), *several], {1: 0.5, 2: 0.48, 3: 0.46, 9: 0.55})
    assert ids(ranked)[:2] == [1, 9]


def test_prose_that_was_cut_in_two_does_not_gain_from_it() -> None:
    halves = [
        candidate(1, "b.md", document=1, kind="docs"),
        candidate(2, "b.md", document=1, kind="docs", line=20),
    ]
    assert (
        ids(
            order("walrus", [candidate(9, "a.md", kind="docs"), *halves], {1: 0.5, 2: 0.5, 9: 0.51})
        )[0]
        == 9
    )


def test_one_file_does_not_fill_the_page() -> None:
    many = [candidate(n, "b.py", document=1, line=n) for n in range(1, 9)]
    ranked = order(
        "walrus",
        [*many, candidate(20, "a.py"), candidate(21, "c.py")],
        dict.fromkeys(range(1, 9), 0.5) | {20: 0.45, 21: 0.4},
    )
    assert {20, 21} <= set(ids(ranked)[:4])


def test_ties_are_broken_by_path_then_line_then_id() -> None:
    some = [
        candidate(5, "b.md", kind="docs"),
        candidate(4, "a.md", kind="docs", line=7),
        candidate(9, "a.md", kind="docs", line=3),
        candidate(3, "a.md", kind="docs", line=7),
    ]
    assert ids(order("walrus", some)) == [9, 3, 4, 5]


paths = st.sampled_from(
    [
        "a.py",
        "src/cache.py",
        "tests/test_cache.py",
        "docs/cache.md",
        "examples/x.py",
        "src/walrus/feed.py",
    ]
)
many = st.lists(
    st.tuples(
        paths,
        st.integers(0, 5),
        st.sampled_from(["", "cache", "parse_config\nfeed"]),
        st.integers(1, 9),
        st.integers(0, 4),
    ),
    max_size=20,
)


@given(
    many,
    st.sampled_from(["cache", "walrus feed", "parseConfig", "test the cache"]),
    st.randoms(use_true_random=False),
)
def test_the_order_does_not_depend_on_the_order_of_the_candidates(
    rows: list[tuple], query: str, chance: random.Random
) -> None:
    documents: dict[tuple[str, int], int] = {}
    some = []
    for id_, (path, which, defines, line, _) in enumerate(rows):
        key = (f"{which}/{path}", which)
        some.append(
            candidate(
                id_,
                key[0],
                document=documents.setdefault(key, len(documents)),
                defines=defines,
                line=line,
            )
        )
    fused = {id_: row[4] / 4 for id_, row in enumerate(rows)}
    expected = order(query, list(some), fused)
    shuffled = list(some)
    chance.shuffle(shuffled)
    assert order(query, shuffled, fused) == expected
    assert sorted(ids(expected)) == list(range(len(rows)))
    assert [one.score for one in expected] == sorted((one.score for one in expected), reverse=True)


def test_every_candidate_keeps_its_fused_score_for_the_explanation() -> None:
    ranked = order("tokenizer", [candidate(1, "tokenizer.py")], {1: 0.25})
    assert ranked[0].fused == 0.25
    assert ranked[0].score == pytest.approx(0.25 + ranking.NAME_BOOST)


def test_copies_stand_behind_the_best_of_them_and_known_texts_are_only_counted() -> None:
    some = [
        candidate(1, "a.py", text=7),
        candidate(2, "b.py", text=8),
        candidate(3, "c.py", text=7),
        candidate(4, "d.py", text=9),
    ]
    ranked = order("walrus", some, {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6})
    grouped, repeats = group_copies(ranked, frozenset())
    assert [(one.candidate.id, is_copy) for one, is_copy in grouped] == [
        (1, False),
        (3, True),
        (2, False),
        (4, False),
    ]
    assert repeats == []
    grouped, repeats = group_copies(ranked, frozenset([some[0].text_key]))
    assert [one.candidate.id for one, _ in grouped] == [2, 4]
    assert {one.candidate.id for one in repeats} == {1, 3}


def test_the_same_text_in_two_projects_is_no_copy() -> None:
    some = [candidate(1, "a.py", text=7, project=1), candidate(2, "a.py", text=7, project=2)]
    assert [is_copy for _, is_copy in group_copies(order("walrus", some), frozenset())[0]] == [
        False,
        False,
    ]
