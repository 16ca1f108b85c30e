"""Cutting without a syntax: paragraphs and lines as boundaries, and the last resort for what has
none.

`semantic-text-splitter` was weighed against the hand-written cutter: it knows neither symbols nor
heading paths, does not attach comments to what they describe, and calls a Python token counter many
times per piece; so only its idea of ranked boundaries is kept.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from unspool.chunking.measure import UNCOUNTED, Page, Span

_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+|[。！？]")
_CLAUSE_END = re.compile(r"[,;}\])>]")
_SPACE = re.compile(r"\s")
_INDENTED = re.compile(r"[^\S\n]*")
_CLOSING = ("}", ")", "]", "end", "</", "fi", "done", "esac")
_DEEPEST_INDENT = 30
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")  # emoji sequences fall apart at these


class Cut(NamedTuple):
    """A place where the text may be cut; where the depth is lowest is where it is cut first."""

    at: int
    depth: int


def paragraph_cuts(text: str) -> list[Cut]:
    """Paragraphs first, then lines."""
    paragraphs = {found.end() for found in _BLANK_LINES.finditer(text)}
    return [Cut(at, 0 if at in paragraphs else 1) for at in _line_starts(text)]


def line_cuts(text: str) -> list[Cut]:
    """Lines by indentation, those after a blank line first; a line that only closes something
    stays with what it closes.
    """
    cuts = []
    after_blank = False
    for at in _line_starts(text):
        indented = _INDENTED.match(text, at)
        first = indented.end() if indented else at
        if first == len(text) or text[first] == "\n":
            after_blank = True
            continue
        if not text.startswith(_CLOSING, first):
            cuts.append(Cut(at, 2 * min(first - at, _DEEPEST_INDENT) + (not after_blank)))
        after_blank = False
    return cuts


def split(page: Page, start: int, end: int) -> Iterator[Span]:
    """Pieces of a part that offers no better boundary, each within the limit.

    The length is guessed from the tokens per character so far, so the work stays linear in the
    text. Only a single character that is by itself more than the limit comes out longer than it.
    """
    sample = page.measure(start, min(end, start + 2 * page.limit))
    density = _characters_per_token(sample, 3.0)
    while start < end:
        stop, span = _take(page, start, end, size=max(1, int(density * page.target)))
        if span is not None:
            density = _characters_per_token(span, density)
            yield span
        start = stop


def _take(page: Page, start: int, end: int, *, size: int) -> tuple[int, Span | None]:
    if end - start <= size * 1.3:  # rather one full piece than a full one and a crumb
        size = end - start
    while True:
        stop = _boundary(page.text, start, start + size) if start + size < end else end
        span = page.measure(start, stop)
        if span is None or span.token_count <= page.limit or stop - start == 1:
            return stop, span
        share = 0.5 if span.token_count == UNCOUNTED else 0.8 * page.limit / span.token_count
        size = max(1, min(stop - start - 1, int((stop - start) * share)))


def _boundary(text: str, start: int, stop: int) -> int:
    """The best place in the second half of `text[start:stop]`: blank line, line, sentence,
    clause, word, anywhere.
    """
    middle = start + (stop - start) // 2
    for mark in ("\n\n", "\n\r\n", "\n"):
        found = text.rfind(mark, middle, stop)
        if found >= 0:
            return found + len(mark)
    for pattern in (_SENTENCE_END, _CLAUSE_END, _SPACE):
        last = 0
        for match in pattern.finditer(text, middle, stop):
            last = match.end()
        if last:
            return last
    while (
        stop - start > 1
        and stop - middle > 0
        and (
            unicodedata.combining(text[stop])
            or text[stop] in _JOINERS
            or text[stop - 1] == "\u200d"
        )
    ):
        stop -= 1
    return stop


def _characters_per_token(span: Span | None, default: float) -> float:
    if span is None or span.token_count == UNCOUNTED:
        return default
    return min(5.0, max(0.1, (span.end - span.start) / max(1, span.token_count)))


def _line_starts(text: str) -> list[int]:
    return [found.end() for found in re.finditer("\n", text)]
