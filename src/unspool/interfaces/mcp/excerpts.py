"""Excerpts of hits: all of a short hit, the lines that matched of a longer one. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from unspool.domain.documents import Lines
from unspool.domain.queries import Hit, Page

SHOWN_TOKENS, BEST = 160, 2  # of each of the best hits of a search, and the number of those
# of each of the others: enough to decide whether to read it. Search, more, read and two histories
# came to 6600 tokens without
LATER_TOKENS = 80
MAX_COPIES = 3
MAX_WITHIN = 160  # characters: headings can be whole sentences
CUT = " [...]"
CHARACTERS_PER_TOKEN = 8  # of text that compresses well; more are not tried
Count = Callable[[str], int]
Hits = Sequence[dict[str, Any]]


def shorten_hits(page: Page, count: Count, *, max_tokens: int = SHOWN_TOKENS) -> Hits:
    """Return the hits of a page, each with at most that many tokens of text."""
    with_project = len(page.projects) > 1
    return [
        shorten_hit(
            hit,
            count,
            max_tokens=min(max_tokens, SHOWN_TOKENS if hit.rank <= BEST else LATER_TOKENS),
            with_project=with_project,
        )
        for hit in page.hits
    ]


def shorten_hit(
    hit: Hit, count: Count, *, max_tokens: int = SHOWN_TOKENS, with_project: bool = False
) -> dict[str, Any]:
    """Return a hit with at most that many tokens of text."""
    text, lines = _cut_excerpt(hit, count, max_tokens)
    within = " ".join(hit.within.split())
    values = {
        "at": hit.chunk.location,
        "project": hit.chunk.project if with_project else "",
        "within": within if len(within) <= MAX_WITHIN else within[: MAX_WITHIN - 3] + "...",
        "shown": "" if lines is None else str(lines),
        "text": text,
        "also": list(hit.copies[:MAX_COPIES]),
        "changed": hit.changed,
        "stale": bool(hit.stale),
    }
    return {name: value for name, value in values.items() if value}


def _cut_excerpt(hit: Hit, count: Count, max_tokens: int) -> tuple[str, Lines | None]:
    """Return text of a hit, and its lines if it is not all of the hit.

    A message comes with the messages around it if they fit.
    """
    chunk, snippet = hit.chunk, hit.snippet
    if hit.message and (hit.before or hit.after):
        message = f"> {hit.message.speaker}: {chunk.text}"
        before, after = ([one.line for one in some] for some in (hit.before, hit.after))
        exchange = "\n".join([*before, message, *after])
        if count(exchange) <= max_tokens:
            return exchange, None
    if chunk.token_count <= max_tokens:
        return chunk.text.rstrip(), None
    if hit.message:
        return clip(snippet.text, count, max_tokens), chunk.lines
    matches = {snippet.text.count("\n", 0, begin) for begin, _ in snippet.marks}
    text, first = fit_lines(snippet.text.split("\n"), matches, count, max_tokens)
    begin = snippet.first_line + first
    lines = Lines(begin, begin + text.count("\n"))
    return text, None if lines == chunk.lines and text == chunk.text else lines


def fit_lines(
    rows: Sequence[str], wanted: set[int], count: Count, max_tokens: int
) -> tuple[str, int]:
    """Return the lines around the wanted ones that fit, and the number of the first.

    A single line that is too long is cut.
    """
    begin, end = 0, len(rows)
    while end - begin > 1 and count("\n".join(rows[begin:end])) > max_tokens:
        # The end without a match goes first, the last line where both or neither have one.
        if begin not in wanted and end - 1 in wanted:
            begin += 1
        else:
            end -= 1
    text = "\n".join(rows[begin:end])
    return clip(text, count, max_tokens), begin


def clip(text: str, count: Count, max_tokens: int) -> str:
    """Return the beginning of a text that fits, with a mark where it was cut."""
    if count(text) <= max_tokens:
        return text
    lengths = range(1, min(len(text), max_tokens * CHARACTERS_PER_TOKEN))
    length = bisect_right(lengths, max_tokens, key=lambda length: count(text[:length] + CUT))
    return text[:length] + CUT if length else ""
