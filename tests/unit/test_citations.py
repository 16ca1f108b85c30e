"""Citations: what counts as one, what is taken out, and that it makes no difference how the text
was cut.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unspool.answering.citations import MAX_LENGTH, Citations, remove_citations

quick = settings(max_examples=400, deadline=None)


def checked(text: str, shown: int = 3) -> tuple[str, list[int], int]:
    citations = Citations(shown)
    return citations.feed(text) + citations.finish(), citations.used, citations.dropped


@pytest.mark.parametrize(
    ("text", "wanted", "used", "dropped"),
    [
        ("It is so [1].", "It is so [1].", [1], 0),
        ("So [3] and [1], again [3].", "So [3] and [1], again [3].", [3, 1], 0),
        ("So [1, 3].", "So [1, 3].", [1, 3], 0),
        ("So [1][2].", "So [1][2].", [1, 2], 0),
        ("So [1; 2] and [ 3 ].", "So [1; 2] and [ 3 ].", [1, 2, 3], 0),
        ("All [1-3].", "All [1-3].", [1, 2, 3], 0),
        ("So [4].", "So.", [], 1),
        ("So[4].", "So.", [], 1),
        ("[4] says so.", " says so.", [], 1),
        ("So [1, 4, 9].", "So [1].", [1], 2),
        ("So [2-9].", "So [2, 3].", [2, 3], 1),
        ("So [3-1].", "So.", [], 1),
        ("So [0].", "So.", [], 1),
        ("So [1][7][2].", "So [1][2].", [1, 2], 1),
        (f"So [{'9' * 50}].", "So.", [], 1),
        ("So [9,] and [1,].", "So and [1,].", [1], 1),
        ("So [1,\u00a09] and [2\u202f; 8\t].", "So [1] and [2].", [1, 2], 2),
        ("So [2—9].", "So [2, 3].", [2, 3], 1),
        ("So【1】and【9】, ［2］ and ［8］.", "So【1】and, ［2］ and.", [1, 2], 2),
        ("So 【1, 9】 [【8】].", "So [1] [?].", [1], 2),
        ("So 【9】(see there).", "So(see there).", [], 1),
    ],
)
def test_numbers_that_were_shown_stay_and_others_go(
    text: str, wanted: str, used: list[int], dropped: int
) -> None:
    assert checked(text) == (wanted, used, dropped)


@pytest.mark.parametrize(
    "text",
    [
        "[x] and [ ] and [] and [,] and [a1]",
        "- [ ] to do\n- [x] done",
        "see [9](https://example.org) there",
        "a[0] is the first",
        "`a[9]` and ``b[`8`]``",
        "```python\nx = [9]\ny[7]\n```",
        "~~~\n[9]\n~~~",
        "```\n[9]",
        "on [2026-11-16]",
        "[9",
        "[" + ", ".join(["9"] * MAX_LENGTH) + "]",
        "٣ [٣]",
    ],
)
def test_what_is_no_citation_is_left_alone(text: str) -> None:
    assert checked(text) == (text, [], 0)


def test_code_ends_where_it_ends() -> None:
    assert checked("```\na[9]\n```\nSo [9] [1].")[0] == "```\na[9]\n```\nSo [1]."
    assert checked("`a[9]` [9]")[0] == "`a[9]`"
    assert checked("a lone ` [9]\nand [9]")[0] == "a lone ` [9]\nand"


def test_what_is_left_does_not_become_a_citation() -> None:
    assert checked("[[9]8]") == ("[?8]", [], 1)
    assert checked("[1, [9]2]") == ("[1, ?2]", [], 1)


def test_nothing_is_a_citation_where_nothing_was_shown() -> None:
    assert remove_citations("It is so [1], and so [2, 3]. `a[1]`") == "It is so, and so. `a[1]`"


def test_no_more_is_held_back_than_could_be_a_citation() -> None:
    citations = Citations(3)
    assert citations.feed("word ") == "word"
    assert citations.feed("[") == ""
    assert citations.feed("b") == " [b"
    assert citations.feed(" [1") == ""
    assert citations.feed("]") == ""  # it may be a link
    assert citations.feed(".") == " [1]."


PARTS = st.one_of(
    st.sampled_from(
        [
            *(
                "[ ] ( ) ` `` ``` ~~~ , ; - – 0 1 2 3 7 99 a é . [1] [9] [1,9] a[0] [1](x) 【 】 "
                "［7］"
            ).split(),
            "\n",
            " ",
            "\u00a0",
            " [2]",
            "[1, 9]",
        ]
    ),
    st.text(max_size=5),
)
TEXTS = st.lists(PARTS, max_size=30).map("".join)


@quick
@given(text=TEXTS, cuts=st.lists(st.integers(0, 120), max_size=12))
@example(text="a [[9]1]", cuts=[3, 4, 5, 6])
@example(text="``` [9]\n[9]", cuts=[1, 2, 8])
def test_however_a_text_is_cut_the_result_is_the_same(text: str, cuts: list[int]) -> None:
    citations = Citations(3)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [citations.feed(text[a:b]) for a, b in pairwise(places)]
    assert ("".join(pieces) + citations.finish(), citations.used, citations.dropped) == checked(
        text
    )


@quick
@given(text=TEXTS.filter(lambda text: "`" not in text and "~" not in text))
def test_outside_of_code_no_number_is_left_that_was_not_shown(text: str) -> None:
    left, used, dropped = checked(text)
    found = re.findall(r"(?<![\w])\[ *([0-9]+) *\](?!\()", left)
    assert all(1 <= int(number) <= 3 for number in found)
    assert set(map(int, found)) <= set(used)
    assert set(used) <= {1, 2, 3} and len(used) == len(set(used))
    assert (left == text) == (dropped == 0)


@quick
@given(text=TEXTS, shown=st.integers(0, 5))
def test_held_text_is_never_longer_than_a_citation(text: str, shown: int) -> None:
    citations = Citations(shown)
    given_back = 0
    for given_in, character in enumerate(text, 1):
        given_back += len(citations.feed(character))
        if not citations.dropped:
            assert given_in - given_back <= MAX_LENGTH + 1
