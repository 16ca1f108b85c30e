"""Places of secrets in a text, and the text that is scanned. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

SecretSpan = tuple[int, int, str]  # start, end, kind
_MIN_DISTINCT = 6  # fewer different characters: "ghp_xxxxxxxx" in a manual


class Trust(IntEnum):
    """Likelihood that a secret name has a real value, by the kind of file."""

    PROGRAM = 0
    PROSE = 1
    SETTINGS = 2
    CREDENTIALS = 3


class ScannedText(NamedTuple):
    """A text that is scanned.

    `flat` is the text in ASCII, one byte for each character, and `folded` the same in lower case.
    """

    text: str
    flat: bytes
    folded: bytes
    path: str
    trust: Trust


# yields the secrets that belong to an anchor at a position
SecretFinder = Callable[[ScannedText, int], Iterator[SecretSpan]]


def is_monotonous(value: str) -> bool:
    """Tell if a value has so few different characters that it is an illustration."""
    return len(set(value)) < _MIN_DISTINCT


def iterate_anchors(
    text: str, searched: bytes, anchor: bytes, expression: re.Pattern[str]
) -> Iterator[re.Match[str]]:
    """Yield the matches that begin at an occurrence of `anchor` in `searched`, without overlaps."""
    at = searched.find(anchor)
    while at >= 0:
        found = expression.match(text, at)
        if found:
            yield found
        at = searched.find(anchor, found.end() if found else at + len(anchor))


def get_line(text: str, at: int, most: int = 400) -> tuple[int, int]:
    """Return start and end of the line around a position, at most `most` characters to each
    side.
    """
    least = max(0, at - most)
    start = text.rfind("\n", least, at) + 1
    end = text.find("\n", at, at + most)
    return start or least, end if end >= 0 else min(len(text), at + most)
