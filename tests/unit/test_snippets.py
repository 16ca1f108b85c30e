"""Snippets: the lines that show why a chunk was found."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from unspool.index import analysis
from unspool.search.snippets import LINES, MAX_LINE, cut_snippet

TEXT = "\n".join(
    [
        "import os",
        "",
        "def load(path):",
        "    return path",
        "",
        "",
        "def parse_config(text):",
        "    config = text",
        "    return config",
        "",
        "",
        "done = 1",
    ]
)


def wanted(query: str) -> frozenset[str]:
    return frozenset(analysis.extract_terms(query))


def test_the_stretch_with_most_of_the_wanted_words_is_shown_with_a_line_before_it() -> None:
    shown = cut_snippet(TEXT, 100, wanted("parse config"))
    assert shown.text.splitlines()[0] == "def parse_config(text):"
    assert shown.first_line == 106
    assert [shown.text[a:b] for a, b in shown.marks] == ["parse_config", "config", "config"]


def test_without_a_match_the_beginning_is_shown_without_marks() -> None:
    shown = cut_snippet(TEXT, 1, wanted("zebra"))
    assert (shown.first_line, shown.marks) == (1, ())
    assert TEXT.startswith(shown.text)
    assert cut_snippet(TEXT, 1, frozenset()) == shown


def test_more_different_words_win_over_one_word_many_times() -> None:
    text = "\n".join(["cache " * 5, *["x"] * 20, "cache eviction policy", *["y"] * 20])
    assert "eviction" in cut_snippet(text, 1, wanted("cache eviction policy")).text


def test_blank_lines_at_the_edges_are_left_out() -> None:
    shown = cut_snippet("\n\n\nneedle\n\n\n\n", 1, wanted("needle"))
    assert (shown.text, shown.first_line, shown.marks) == ("needle", 4, ((0, 6),))


def test_a_very_long_line_is_cut_around_its_match() -> None:
    text = "word " * 2000 + "needle " + "more " * 2000
    shown = cut_snippet(text, 3, wanted("needle"))
    assert len(shown.text) == LINES * MAX_LINE
    assert [shown.text[a:b] for a, b in shown.marks] == ["needle"]
    assert shown.first_line == 3


words = st.sampled_from(
    [
        "parseConfig",
        "parse",
        "config",
        "walrus",
        "東京",
        "the",
        "größe",
        "",
        " ",
        "x" * 300,
        "é",
        "\t",
    ]
)
lines = st.lists(st.lists(words, max_size=12).map(" ".join), max_size=40)


@given(
    lines.map("\n".join),
    st.integers(1, 1000),
    st.sampled_from(["parse config", "walrus", "東京", "größe the", ""]),
    st.integers(1, 10),
)
@example("", 1, "walrus", 6)
@example("\n", 1, "walrus", 6)
@example("\r\nwalrus\r\n", 1, "walrus", 1)
def test_a_snippet_is_a_part_of_the_text_at_its_line_and_its_marks_are_wanted_words(
    text: str, first_line: int, query: str, count: int
) -> None:
    terms = wanted(query)
    shown = cut_snippet(text, first_line, terms, lines=count)
    rows = text.split("\n")
    at = shown.first_line - first_line
    assert 0 <= at < len(rows)
    offset = "\n".join(rows[at:]).find(shown.text)
    assert 0 <= offset <= len(rows[at])
    assert shown.text.count("\n") < count
    assert len(shown.text) <= count * MAX_LINE
    for a, b in shown.marks:
        assert 0 <= a < b <= len(shown.text)
        # a cut may go through a word
        assert (
            (terms & set(analysis.extract_terms(shown.text[a:b]))) or a == 0 or b == len(shown.text)
        )
    assert list(shown.marks) == sorted(shown.marks)


@given(lines.map("\n".join))
def test_a_text_that_holds_a_wanted_word_shows_one(text: str) -> None:
    if "walrus" in text:
        assert cut_snippet(text, 1, wanted("walrus")).marks
    else:
        assert cut_snippet(text, 1, wanted("walrus")).marks == ()
