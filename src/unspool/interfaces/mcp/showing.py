"""What of a hit a model is shown: all of a short one, of a longer one the lines that matched.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unspool.domain.documents import Lines
from unspool.domain.queries import Hit

SHOWN_TOKENS, BEST = 160, 2  # of each of the best hits of a search, and how many those are
# of each of the others: enough to see whether to read it. Search, more, read and two histories came
# to 6600 tokens without
LATER_TOKENS = 80
MAX_COPIES = 3
MAX_WITHIN = 160  # characters: headings can be whole sentences
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A hit as a model gets it.

    `lines` are those of the document that `text` holds; None where that is all of the hit.
    """

    at: str
    project: str
    within: str
    text: str
    lines: Lines | None
    also: tuple[str, ...]
    is_changed: bool
    is_stale: bool


def room_for(rank: int) -> int:
    """Tokens of text for a hit by its place among all that were found."""
    return SHOWN_TOKENS if rank <= BEST else LATER_TOKENS


def shorten_hit(
    hit: Hit, count: Count, *, most: int = SHOWN_TOKENS, with_project: bool = False
) -> Shown:
    """Return a hit with at most that many tokens of text."""
    chunk = hit.chunk
    text, lines = (
        _message(hit, count, most) if hit.message is not None else _lines(hit, count, most)
    )
    return Shown(
        at=chunk.location,
        project=chunk.project if with_project else "",
        within=_line(hit.within, MAX_WITHIN),
        text=text,
        lines=lines,
        also=hit.copies[:MAX_COPIES],
        is_changed=hit.changed,
        is_stale=bool(hit.stale),
    )


def _lines(hit: Hit, count: Count, most: int) -> tuple[str, Lines | None]:
    chunk = hit.chunk
    if chunk.token_count <= most:
        return chunk.text.rstrip(), None
    snippet = hit.snippet
    marked = {snippet.text.count("\n", 0, begin) for begin, _ in snippet.marks}
    text, first = fitted(snippet.text.split("\n"), marked, count, most)
    begin = snippet.first_line + first
    shown = Lines(begin, begin + text.count("\n"))
    return text, None if shown == chunk.lines and text == chunk.text else shown


def _message(hit: Hit, count: Count, most: int) -> tuple[str, Lines | None]:
    """A message with what was said around it, if there is room; of a long one the part that
    matched.
    """
    assert hit.message is not None
    whole = hit.chunk.text
    if hit.before or hit.after:
        exchange = "\n".join(
            [
                *(one.line for one in hit.before),
                f"> {hit.message.speaker}: {whole}",
                *(one.line for one in hit.after),
            ]
        )
        if count(exchange) <= most:
            return exchange, None
    if hit.chunk.token_count <= most:
        return whole, None
    return clipped(hit.snippet.text, count, most), hit.chunk.lines


def fitted(rows: Sequence[str], wanted: set[int], count: Count, most: int) -> tuple[str, int]:
    """The lines around the wanted ones that have room, and the first of them; of a single line
    that is too long, its beginning.
    """
    begin, end = 0, len(rows)
    while end - begin > 1 and count("\n".join(rows[begin:end])) > most:
        # The end without a match goes first, the last line where both or neither have one.
        if begin not in wanted and end - 1 in wanted:
            begin += 1
        else:
            end -= 1
    text = "\n".join(rows[begin:end])
    return (text if count(text) <= most else clipped(text, count, most)), begin


def clipped(text: str, count: Count, most: int) -> str:
    """The beginning of a text that has room, with a sign where it was cut."""
    if count(text) <= most:
        return text
    low, high = 0, min(len(text), most * 8)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle] + CUT) <= most else (low, middle - 1)
    return text[:low] + CUT if low else ""


CUT = " [...]"


def _line(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
