"""Characters that a terminal obeys: people see another one, programs an escape of the same
value.
"""

from __future__ import annotations

import json
import re
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from unspool.interfaces.controls import clean, clean_lines, escape_json

UNSAFE = [*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
DIRECTIONS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")

hostile = st.sampled_from([chr(code) for code in (*range(0x20), *UNSAFE, 0xD800, 0xDFFF)])
texts = st.lists(hostile | st.characters() | st.just('\\"'), max_size=20).map("".join)
lone = texts.filter(lambda text: not re.search(r"[\ud800-\udbff][\udc00-\udfff]", text))


def is_unsafe(character: str) -> bool:
    """Return whether a terminal may obey a character, by its properties in Unicode."""
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in DIRECTIONS
        or character in "\u061c\u200e\u200f"
    )


@settings(deadline=None)
@given(st.dictionaries(lone, lone, max_size=3))
def test_escaped_json_has_the_same_values_and_nothing_that_a_terminal_obeys(
    value: dict[str, str],
) -> None:
    text = escape_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not any(map(is_unsafe, text))


@settings(deadline=None)
@given(texts)
def test_clean_text_is_as_long_and_has_nothing_that_a_terminal_obeys_but_tabs(text: str) -> None:
    shown = clean(text)
    assert len(shown) == len(text)
    assert not any(is_unsafe(character) for character in shown if character != "\t")
    assert clean(shown) == shown


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "P", "Zs"]))))
def test_lines_stay_lines_and_plain_text_stays_as_it_is(lines: list[str]) -> None:
    assert clean_lines("\n".join(lines)) == "\n".join(lines)


def test_every_character_that_unicode_calls_a_control_is_covered() -> None:
    for code in range(0x110000):
        character = chr(code)
        if is_unsafe(character) and character != "\t":
            assert clean(character) != character, hex(code)
            assert not is_unsafe(escape_json(json.dumps(character, ensure_ascii=False))[1]), hex(
                code
            )
