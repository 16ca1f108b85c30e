"""Packing of text between boundaries into pieces.

A text is cut where the depth is lowest. Parts that fit stay whole, and small neighbours are joined.
A part without boundaries is split by its length.

`semantic-text-splitter` was weighed against this module. It knows neither symbols nor heading
paths, does not attach comments to what they describe, and calls a Python token counter many times
per piece. Only its idea of ranked boundaries is used.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unspool.chunking.measure import UNCOUNTED, SourceText, Span, find_line_starts
from unspool.domain.documents import Piece

# Shares of the target. A crumb is not worth a piece of its own; two large definitions in one piece
# hide each other in a search.
_CRUMB = 1 / 4
_LARGE = 1 / 3
_JOINT = 2  # tokens: the line ends between two units, which are in neither's count

_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+|[。！？]")
_CLAUSE_END = re.compile(r"[,;}\])>]")
_SPACE = re.compile(r"\s")
_LINE = re.compile(r"\n(?P<indent>[^\S\n]*)(?P<first>[^\n]?)")
_CLOSING = ("}", ")", "]", "end", "</", "fi", "done", "esac")
_DEEPEST_INDENT = 30
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")  # emoji sequences fall apart at these


class Cut(NamedTuple):
    """Offset where the text may be cut. Cuts of the lowest depth come first."""

    at: int
    depth: int


class _Part(NamedTuple):
    """A stretch of the text and the cuts inside it, `cuts[low:high]`.

    Oversized ones are still to be cut, the others are finished.
    """

    start: int
    end: int
    low: int
    high: int
    span: Span
    is_oversized: bool
    is_crumb: bool = False


def find_paragraph_cuts(text: str) -> list[Cut]:
    """Return the cuts between paragraphs and, at a lower rank, between lines."""
    paragraphs = {found.end() for found in _BLANK_LINES.finditer(text)}
    return [Cut(at, 0 if at in paragraphs else 1) for at in find_line_starts(text)]


def find_line_cuts(text: str) -> list[Cut]:
    """Return the cuts between lines by indentation, those after a blank line first.

    A line that only closes a block stays with the block.
    """
    cuts = []
    after_blank = False
    for line in _LINE.finditer(text):
        at, first = line.span("indent")
        if line["first"] and not text.startswith(_CLOSING, first):
            cuts.append(Cut(at, 2 * min(first - at, _DEEPEST_INDENT) + (not after_blank)))
        after_blank = not line["first"]
    return cuts


def pack(page: SourceText, cuts: Sequence[Cut], marks: Sequence[int] = ()) -> list[Piece]:
    """Return the pieces in order. `cuts` are sorted, and so are `marks`, the offsets of names.

    A section or definition is packed only with its siblings, never with its parent's.
    """
    whole = page.measure(0, len(page.text))
    if whole is None:
        return []
    if whole.token_count <= page.target:
        return [page.build_piece(whole)]
    packer = _Packer(page, cuts, marks)
    done: list[Span] = []
    parts = [_Part(0, len(page.text), 0, len(cuts), whole, is_oversized=True)]
    while parts:
        part = parts.pop()
        if not part.is_oversized:
            _append(page, done, part)
        elif part.low == part.high:
            done.extend(_split(page, part.start, part.end))
        else:
            parts.extend(reversed(packer.cut(part)))
    return [page.build_piece(span) for span in done]


def _append(page: SourceText, done: list[Span], part: _Part) -> None:
    if part.is_crumb and done and done[-1].token_count + part.span.token_count <= page.limit:
        joined = page.measure(done[-1].start, part.end)
        if joined is not None and joined.token_count <= page.limit:
            done[-1] = joined
            return
    done.append(part.span)


class _Packer(NamedTuple):
    """Text to pack with its cuts and the offsets of its names."""

    page: SourceText
    cuts: Sequence[Cut]
    marks: Sequence[int]

    def cut(self, part: _Part) -> list[_Part]:
        """Cut a part at its lowest depth; return its packs and its oversized units, in order."""
        return [done for group in self._group(part) for done in self._measure(group)]

    def _group(self, part: _Part) -> Iterator[list[_Part]]:
        """Yield the units that share a pack. An oversized unit is alone."""
        group: list[_Part] = []
        tokens, has_large, is_first = 0, False, True
        for unit in self._iterate_units(part):
            size = unit.span.token_count
            is_large = size >= _LARGE * self.page.target and self._is_named(unit, unit)
            # What leads up to an oversized unit goes with it if it is short: a class's signature
            # with its first method, a constant with its user.
            if unit.is_oversized and group and tokens < _CRUMB * self.page.target:
                is_head = is_first and len(group) == 1
                if is_head or not self._is_named(group[0], group[-1]):
                    unit = unit._replace(start=group[0].start)
                    group, tokens = [], 0
            is_full = tokens + _JOINT + size > self.page.target
            if group and (is_full or (is_large and has_large)):
                yield group
                group, tokens, has_large, is_first = [], 0, False, False
            tokens += size + (_JOINT if group else 0)
            group.append(unit)
            has_large = has_large or is_large
        if group:
            yield group

    def _iterate_units(self, part: _Part) -> Iterator[_Part]:
        """Yield the parts between the cuts of the lowest depth, without blank ones."""
        low, high, begin = part.low, part.high, part.start
        depth = min([cut.depth for cut in self.cuts[low:high]])
        for index in range(low, high + 1):
            if index < high and self.cuts[index].depth != depth:
                continue
            stop = self.cuts[index].at if index < high else part.end
            span = self.page.measure(begin, stop, exact=False)
            if span is not None:
                yield _Part(begin, stop, low, index, span, span.token_count > self.page.limit)
            begin, low = stop, index + 1

    def _measure(self, group: list[_Part]) -> Iterator[_Part]:
        """Count the units together; halve the group where the estimate was too low."""
        first, last = group[0], group[-1]
        span: Span | None = first.span
        if not first.is_oversized and (len(group) > 1 or not first.span.is_exact):
            span = self.page.measure(first.start, last.end)
        if span is None:
            return
        if span.token_count <= self.page.limit:
            crumb = span.token_count < _CRUMB * self.page.target and not self._is_named(first, last)
            yield _Part(first.start, last.end, 0, 0, span, is_oversized=False, is_crumb=crumb)
        elif len(group) == 1:
            yield first._replace(is_oversized=True)
        else:
            middle = len(group) // 2
            yield from self._measure(group[:middle])
            yield from self._measure(group[middle:])

    def _is_named(self, first: _Part, last: _Part) -> bool:
        at = bisect_left(self.marks, first.start)
        return at < len(self.marks) and self.marks[at] < last.end


def _split(page: SourceText, start: int, end: int) -> Iterator[Span]:
    """Yield pieces of a part without better boundaries, each within the limit.

    The length is guessed from the tokens per character so far, so the work stays linear in the
    text. Only a single character that is by itself more than the limit comes out longer than it.
    """
    sample = page.measure(start, min(end, start + 2 * page.limit))
    density = _compute_density(sample, 3.0)
    while start < end:
        stop, span = _take(page, start, end, size=max(1, int(density * page.target)))
        if span is not None:
            density = _compute_density(span, density)
            yield span
        start = stop


def _take(page: SourceText, start: int, end: int, *, size: int) -> tuple[int, Span | None]:
    if end - start <= size * 1.3:  # rather one full piece than a full one and a crumb
        size = end - start
    while True:
        stop = _find_boundary(page.text, start, start + size) if start + size < end else end
        span = page.measure(start, stop)
        if span is None or span.token_count <= page.limit or stop - start == 1:
            return stop, span
        share = 0.5 if span.token_count == UNCOUNTED else 0.8 * page.limit / span.token_count
        size = max(1, min(stop - start - 1, int((stop - start) * share)))


def _find_boundary(text: str, start: int, stop: int) -> int:
    """Return the best cut in the second half of `text[start:stop]`.

    The order is blank line, line, sentence, clause, word, anywhere.
    """
    middle = start + (stop - start) // 2
    for mark in ("\n\n", "\n\r\n", "\n"):
        found = text.rfind(mark, middle, stop)
        if found >= 0:
            return found + len(mark)
    for pattern in (_SENTENCE_END, _CLAUSE_END, _SPACE):
        ends = [match.end() for match in pattern.finditer(text, middle, stop)]
        if ends:
            return ends[-1]
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


def _compute_density(span: Span | None, default: float) -> float:
    if span is None or span.token_count == UNCOUNTED:
        return default
    return min(5.0, max(0.1, (span.end - span.start) / max(1, span.token_count)))
