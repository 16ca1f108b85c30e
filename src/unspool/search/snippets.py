"""Snippets: the few lines of a chunk that show why it was found. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate

from unspool.domain.documents import Chunk, Kind
from unspool.domain.queries import Snippet
from unspool.index import analysis

LINES = 6
MAX_MESSAGE = 480  # characters of a message
# characters of one line; minified code and prose without line breaks are cut around the match
MAX_LINE = 240


def cut_snippet(
    text: str, first_line: int, wanted: frozenset[str], *, lines: int = LINES, most: int = 0
) -> Snippet:
    """Return the `lines` lines with the most different wanted terms, with the matches marked.

    The earliest lines win a tie.
    """
    found = analysis.get_matcher(wanted).find(text) if wanted else []
    spans = [(start, stop) for start, stop, _ in found]
    rows = text.split("\n")
    starts = list(accumulate((len(row) + 1 for row in rows), initial=0))
    begin = _find_best_lines(found, starts, len(rows), lines) if found and len(rows) > lines else 0
    end = min(begin + lines, len(rows))
    while begin < end - 1 and not rows[begin].strip():
        begin += 1
    while end > begin + 1 and not rows[end - 1].strip():
        end -= 1
    low, high = starts[begin], starts[end] - 1
    most = most or lines * MAX_LINE
    if high - low > most:
        low, high = _cut_around(spans, low, high, most)
    marks = tuple((max(a, low) - low, min(b, high) - low) for a, b in spans if a < high and b > low)
    return Snippet(
        text=text[low:high], first_line=first_line + bisect_right(starts, low) - 1, marks=marks
    )


def make_cutter(wanted: frozenset[str]) -> Callable[[Chunk], Snippet]:
    """Return a function that cuts the snippet of a chunk."""
    return partial(_cut_chunk, wanted)


def _cut_chunk(wanted: frozenset[str], chunk: Chunk) -> Snippet:
    if chunk.kind is Kind.CHAT:  # a message is one line of its conversation
        return replace(
            cut_snippet(chunk.text, chunk.lines.first, wanted, most=MAX_MESSAGE),
            first_line=chunk.lines.first,
        )
    return cut_snippet(chunk.text, chunk.lines.first, wanted)


def _find_best_lines(
    found: list[tuple[int, int, frozenset[str]]], starts: list[int], rows: int, lines: int
) -> int:
    terms_by_row: dict[int, set[str]] = {}
    for start, _, terms in found:
        terms_by_row.setdefault(bisect_right(starts, start) - 1, set()).update(terms)
    best, best_score = 0, 0.0
    for row in terms_by_row:
        begin = max(0, min(row - 1, rows - lines))  # a line of context before the match
        inside = [terms for other, terms in terms_by_row.items() if begin <= other < begin + lines]
        score = len(set().union(*inside)) + 0.01 * sum(len(terms) for terms in inside)
        if score > best_score or (score == best_score and begin < best):
            best, best_score = begin, score
    return best


def _cut_around(spans: list[tuple[int, int]], low: int, high: int, size: int) -> tuple[int, int]:
    first = next((a for a, b in spans if low <= a < high), low)
    begin = max(low, min(first - size // 4, high - size))
    return begin, min(high, begin + size)
