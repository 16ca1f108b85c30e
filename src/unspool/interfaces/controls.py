"""Control characters, which a terminal obeys, and characters that reorder the text around them.

Indexed text may contain any of them. People see a replacement, programs the same value as an
escape.
"""

from __future__ import annotations

import re

# DEL and C1, marks and overrides of the writing direction, separators of lines and paragraphs, lone
# surrogates. C0 is apart: JSON has escapes for it anyway, and a tab may stay in what people read.
_UNSAFE = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(rf"[\x00-\x08\x0a-\x1f{_UNSAFE}]")
_IN_JSON = re.compile(rf"[{_UNSAFE}]")


def clean(text: str) -> str:
    """Return one line of text that a terminal only shows.

    Each replaced character stays visible as another one.
    """
    return _IN_TEXT.sub(_replace, text)


def clean_lines(text: str) -> str:
    """Return text of several lines, each of which is clean."""
    return "\n".join(map(clean, text.split("\n")))


def escape_json(text: str) -> str:
    """Return JSON with the same values, in which these characters are escapes.

    Outside of strings JSON has none of them.
    """
    return _IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _replace(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"  # U+2400 begins the pictures of C0
