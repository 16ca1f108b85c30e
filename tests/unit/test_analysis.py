"""Words: which texts meet, and where in a text the words are that were asked for."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.index import analysis
from unspool.index.analysis import (
    PADDING,
    PADDING_TERMS,
    PATH_WEIGHT,
    STOP_WORDS,
    extract_chunk_terms,
    extract_terms,
    get_matcher,
)


@pytest.mark.parametrize(
    "spellings",
    [
        [
            "parseConfig",
            "parse_config",
            "parse config",
            "ParseConfig",
            "PARSE_CONFIG",
            "parse-config",
            "parse.config()",
            "__parse_config__",
        ],
        ["HTTPServer", "http_server", "http server", "HttpServer", "HTTP_SERVER"],
        ["utf8Decoder", "utf_8_decoder", "UTF 8 decoders"],
        ["indexing documents", "indexed document", "indexDocuments"],
    ],
)
def test_spellings_of_the_same_words_meet(spellings: list[str]) -> None:
    """Every one finds every other by all the words that it is made of."""
    shared = set.intersection(*(set(extract_terms(spelling)) for spelling in spellings))
    assert len(shared) >= 2, {spelling: extract_terms(spelling) for spelling in spellings}


def test_an_identifier_is_also_kept_whole_however_it_is_spelled() -> None:
    assert set(extract_terms("parseConfig")) & set(extract_terms("parseconfig")) == {"parseconfig"}
    assert (
        extract_terms("parseConfig")
        == extract_terms("parse_config")
        == ["pars", "config", "parseconfig"]
    )


@pytest.mark.parametrize("word", ["loadFiles", "HTTPServers", "parseConfigs", "cachingProxies"])
def test_an_identifier_meets_its_own_lower_case_also_when_it_has_an_ending(word: str) -> None:
    assert set(extract_terms(word)) & set(extract_terms(word.lower()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京都", ["東京", "京都"]),
        ("東", ["東"]),
        ("日本 東京", ["日本", "東京"]),
        ("한국어", ["한국", "국어"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
    ],
)
def test_scripts_without_spaces_become_pairs(text: str, expected: list[str]) -> None:
    assert extract_terms(text) == expected


def test_mixed_words_give_the_terms_of_both_scripts() -> None:
    found = extract_terms("Pythonで検索")
    assert "python" in found
    assert "検索" in found
    assert {"pars", "config"} <= set(extract_terms("parseConfig関数"))


def test_stop_words_are_dropped_also_inside_identifiers_but_not_inside_the_whole() -> None:
    assert extract_terms("How is the thing to be done") == extract_terms("thing done")
    assert extract_terms(" ".join(STOP_WORDS)) == []
    assert extract_terms("is_valid") == ["valid", "isvalid"]


def test_hashes_and_base64_give_no_terms() -> None:
    assert extract_terms("x" * 65) == []
    assert extract_terms("x" * 64) != []


@given(st.text(max_size=200))
def test_terms_never_hold_what_the_word_index_splits_by(text: str) -> None:
    """The index joins them by spaces and splits by white space: anything else would be two extract_terms
    there.
    """
    assert all(term and not re.search(r"\s", term) for term in extract_terms(text))


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_text_has_the_terms_of_its_parts(left: str, right: str) -> None:
    assert extract_terms(f"{left}\n{right}") == extract_terms(left) + extract_terms(right)


words = st.sampled_from(
    [
        "parseConfig",
        "parse",
        "config",
        "Größe",
        "東京タワー",
        "a",
        "the",
        "x1",
        "_private",
        "don't",
        "e.g.",
        "\n",
        "  ",
        "—",
        "😀",
    ]
)


@given(
    st.lists(words, max_size=30).map(" ".join),
    st.sampled_from(["parse config", "größe", "東京", "x1", "nothing here"]),
)
def test_matches_are_exactly_the_words_that_hold_a_wanted_term(text: str, query: str) -> None:
    wanted = frozenset(extract_terms(query))
    expected = [
        found.span()
        for found in re.finditer(r"\w+", text)
        if wanted & set(extract_terms(found.group()))
    ]
    assert [(start, end) for start, end, _ in get_matcher(wanted).find(text)] == expected


def test_nothing_wanted_matches_nothing() -> None:
    assert get_matcher(frozenset()).find("parse config") == []


def test_a_chunk_is_found_by_its_text_its_path_its_headings_and_its_symbol() -> None:
    found = extract_chunk_terms(
        kind="code",
        path="src/cache.py",
        title="Storage",
        headings="Guide\nEviction",
        symbol="Cache.evict",
        text="oldest entry",
    )
    assert set(extract_terms("oldest entry cache storage guide eviction evict")) <= set(found)
    assert found.count("src") == PATH_WEIGHT
    assert PADDING not in found


def test_a_message_is_found_by_its_text_its_day_its_speaker_and_its_title_but_not_by_its_id() -> (
    None
):
    found = extract_chunk_terms(
        kind="chat",
        path="walrus/17",
        title="Boats",
        headings="Saturday, 4 May 2024",
        symbol="Ann Ünal",
        text="they sail",
    )
    assert sorted(set(found) - {PADDING}) == sorted(
        set(extract_terms("they sail Saturday 4 May 2024 Ann Ünal Boats"))
    )
    assert (
        extract_chunk_terms(kind="chat", path="x", title="", headings="", symbol="", text="")
        == [PADDING] * PADDING_TERMS
    )


@given(st.text(max_size=50))
def test_nobody_can_ask_for_what_makes_messages_as_long_as_each_other(text: str) -> None:
    assert PADDING not in extract_terms(text)
    assert (
        extract_chunk_terms(
            kind="chat", path="", title=text, headings="", symbol="", text=text
        ).count(PADDING)
        == PADDING_TERMS
    )


def test_threads_get_the_same_terms_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a table that is cleared all the time and threads that switch all the time, a shared
    stemmer would mix words up.
    """
    texts = [
        f"running{i} parseConfig{i} indexedDocuments testing{i % 7} 東京{i}" for i in range(400)
    ]
    expected = [extract_terms(text) for text in texts]
    monkeypatch.setattr(analysis, "_MAX_CACHED", 10)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(3):
                assert list(pool.map(extract_terms, texts)) == expected
    finally:
        sys.setswitchinterval(interval)
