"""Lines of a document come back from its chunks as they were; of white space between two chunks
only how much there was is known.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from unspool.catalog.passages import cut_lines, fill_gap, join_chunks
from unspool.chunking import chunk, kind_of

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Row(NamedTuple):
    """A chunk as it is stored."""

    position: int
    start_offset: int
    end_offset: int
    first_line: int
    text: str


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def stored(text: str, *, language: str = "python", limit: int = 12) -> list[Row]:
    pieces = chunk(text, language=language, kind=kind_of(language), limit=limit, count=words)
    return [
        Row(number, one.start, one.end, one.lines.first, text[one.start : one.end])
        for number, one in enumerate(pieces)
    ]


def plain(text: str) -> list[str]:
    """Its lines without what stands at their ends, and without blank ones at the end of all,
    which no chunk holds.
    """
    return [line.rstrip() for line in text.rstrip().split("\n")]


def holds_indentation(text: str, rows: list[Row]) -> bool:
    """Whether each chunk that begins a line holds its indentation. One that is longer than a chunk
    may be, or stands in the way of a cut_lines in a text without other places for it, is in none."""
    before = [text[: row.start_offset].rpartition("\n")[2] for row in rows]
    return not any(blank and blank.isspace() for blank in before)


CLASS = """class A:
    def one(self):
        return self.first + 1

    def two(self):
        return self.second + 2


def after():
    return 3
"""


@pytest.mark.parametrize(
    "text",
    [
        CLASS * 3,
        (CLASS * 3).replace("\n", "\r\n"),
        (CLASS * 3).replace("    ", "\t"),
        "\n\n" + CLASS * 2,
        "\r\n\r\n" + CLASS.replace("\n", "\r\n"),
    ],
    ids=[
        "plain",
        "carriage returns",
        "tabs",
        "blank lines first",
        "blank lines with carriage returns first",
    ],
)
def test_what_has_no_blanks_at_ends_of_lines_comes_back_exactly(text: str) -> None:
    rows = stored(text)
    assert len(rows) > 2
    assert join_chunks(rows) == (text.rstrip(), 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n", "  \n"),
        ("\n\n", "\n    \n"),
        ("\n\n", "\n\t\n\n"),
        ("\n\n", " \t\r\n   \r\n"),
        ("\n", "\x0c\n"),
    ],
    ids=[
        "blanks at ends",
        "blanks on blank lines",
        "tabs on blank lines",
        "mixed ends",
        "form feeds",
    ],
)
def test_blanks_at_ends_of_lines_never_become_indentation(old: str, new: str) -> None:
    text = (CLASS * 3).replace(old, new)
    rows = stored(text)
    assert len(rows) > 2
    found, at = join_chunks(rows)
    assert (plain(found), at, len(found)) == (plain(text), 1, len(text.rstrip()))


def test_the_parts_of_a_line_stay_on_it() -> None:
    text = "one two three four five six seven   eight nine ten " * 9
    rows = stored(text, language="text", limit=5)
    assert len(rows) > 9
    assert join_chunks(rows) == (text.rstrip(), 1)


def test_some_of_the_chunks_begin_with_the_first_line_of_theirs() -> None:
    text = CLASS * 3
    rows = stored(text)
    assert join_chunks(rows[2:5]) == (
        text[rows[2].start_offset : rows[4].end_offset],
        rows[2].first_line,
    )


def test_no_chunks_are_no_text() -> None:
    assert join_chunks([]) == ("", 1)
    assert cut_lines("", 1, 1, 0) == ""


@pytest.mark.parametrize(
    ("length", "breaks", "has_returns", "expected"),
    [
        (0, 0, False, ""),
        (3, 0, True, "   "),
        (2, 2, True, "\n\n"),
        (4, 2, True, "\r\n\r\n"),
        (4, 2, False, "  \n\n"),
        (7, 2, True, "   \r\n\r\n"),
        (3, 2, True, " \n\n"),
    ],
)
def test_blanks_stand_before_line_breaks(
    length: int, breaks: int, has_returns: bool, expected: str
) -> None:
    assert fill_gap(length, breaks, has_returns=has_returns) == expected


lines = st.builds(
    lambda indentation, body, end: indentation + body + end,
    st.sampled_from(["", "    ", "\t", "        ", " "]),
    st.sampled_from(
        [
            "",
            "",
            "def f(x):",
            "return x",
            "class A:",
            "# a note",
            "a b c d e f g h i j k l m n o p",
            "}",
            "漢字 🙂",
            "- item",
            "```",
        ]
    ),
    st.sampled_from(["", "", "", " ", "  \t", "\r", " \r", "\x0c"]),
)


@quick
@given(
    st.lists(lines, max_size=40).map("\n".join),
    st.sampled_from(["python", "markdown", "text", "json", "javascript"]),
    st.integers(10, 40),
)
def test_whatever_the_text_its_lines_come_back(text: str, language: str, limit: int) -> None:
    rows = stored(text, language=language, limit=limit)
    found, at = join_chunks(rows)
    assert (at, len(found)) == (1, len(text.rstrip()))
    for row in rows:
        assert found[row.start_offset : row.end_offset] == row.text
    assert [line.strip() for line in plain(found)] == [line.strip() for line in plain(text)]
    if holds_indentation(text, rows):
        assert plain(found) == plain(text)


@quick
@given(
    st.lists(lines.map(str.rstrip), max_size=40),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["python", "markdown", "text"]),
)
def test_a_text_whose_chunks_show_how_lines_end_comes_back_exactly(
    given_lines: list[str], end: str, language: str
) -> None:
    text = end.join(given_lines)
    rows = stored(text, language=language)
    assume(holds_indentation(text, rows))
    assume(
        end == "\n"
        or all(end in one.text + other.text for one, other in pairwise([*rows[:1], *rows]))
    )
    assert join_chunks(rows) == (text.rstrip(), 1)


@quick
@given(st.lists(lines, min_size=1, max_size=25).map("\n".join), st.data())
def test_as_many_lines_are_cut_as_were_asked_for(text: str, data: st.DataObject) -> None:
    rows = stored(text)
    assume(holds_indentation(text, rows))
    found, at = join_chunks(rows)
    last_line = found.count("\n") + 1
    first = data.draw(st.integers(1, last_line))
    last = data.draw(st.integers(first, last_line))
    some = cut_lines(found, at, first, last).split("\n")
    assert len(some) == last - first + 1
    assert [line.rstrip() for line in some] == plain(text)[first - 1 : last]
