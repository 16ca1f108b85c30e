"""Answers that keep to a token budget as they are rendered, without losing anything: what has no
room comes with the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from unspool.domain.documents import Kind, Lines, Passage
from unspool.domain.history import CUT, HistoryPage, StreamStatus
from unspool.domain.queries import Page
from unspool.domain.reports import ProjectStatus
from unspool.errors import InputError
from unspool.interfaces.mcp import answers
from unspool.interfaces.mcp.answers import Answer
from unspool.interfaces.mcp.showing import (
    SHOWN_TOKENS,
    Count,
    Shown,
    clipped,
    room_for,
    shorten_hit,
)

MAX_LINES = 2_000  # that are read at once
# tokens of text for a hit that has no room even alone
_NARROWER = (SHOWN_TOKENS, 120, 80, 40, 20, 0)


def page(
    ask: Callable[[int], Page],
    limit: int,
    *,
    most: int,
    count: Count,
    render: Callable[[Page, Sequence[Shown]], Answer],
) -> Answer:
    """A page of up to `limit` hits that `ask` gives.

    Of too many, fewer are asked for, so that the others lead the next page.
    """
    found = ask(limit)
    seen = _seen(found, count)
    whole = render(found, seen)
    if whole.tokens(count) <= most:
        return whole
    if len(seen) <= 1:
        return _narrowed(found, most=most, count=count, render=render)
    size = _most(len(seen) - 1, lambda size: render(found, seen[:size]).tokens(count) <= most)
    return page(ask, size or 1, most=most, count=count, render=render)


def _seen(page: Page, count: Count, most: int = SHOWN_TOKENS) -> list[Shown]:
    return [
        shorten_hit(
            hit, count, most=min(most, room_for(hit.rank)), with_project=len(page.projects) > 1
        )
        for hit in page.hits
    ]


def _narrowed(
    found: Page, *, most: int, count: Count, render: Callable[[Page, Sequence[Shown]], Answer]
) -> Answer:
    for room in _NARROWER:
        answer = render(found, _seen(found, count, room))
        if answer.tokens(count) <= most:
            return answer
    raise too_little(answer.tokens(count), most)


def passage(
    read: Callable[[int], Passage],
    first: int,
    last: int,
    *,
    most: int,
    count: Count,
    with_project: bool,
    notes: Sequence[str],
) -> Answer:
    """Lines from `first` on, up to `last` as far as there is room.

    `read` gives them up to a line.
    """
    found = read(min(last, first + MAX_LINES - 1))

    def answer(text: str, lines: Lines, more: Sequence[str] = ()) -> Answer:
        return answers.passage(
            found,
            text,
            lines,
            upto=min(last, found.last_line),
            with_project=with_project,
            notes=(*notes, *more),
        )

    whole = answer(found.text, found.lines)
    if whole.tokens(count) <= most:
        return whole
    rows = found.text.split("\n") if found.kind is not Kind.CHAT else None

    def part(to: int) -> Answer:
        return answer(
            "\n".join(rows[: to - first + 1]) if rows is not None else read(to).text,
            Lines(first, to),
        )

    size = _most(
        found.lines.last - first, lambda size: part(first + size - 1).tokens(count) <= most
    )
    if size:
        return part(first + size - 1)
    text = rows[0] if rows is not None else read(first).text
    cut = [
        (
            f"{'message' if rows is None else 'line'} {first} is longer than the answer may be and "
            f"was cut"
        )
    ]
    empty = answer("", Lines(first, first), cut).tokens(count)
    room = most - empty
    while room > 0:
        beginning = answer(clipped(text, count, room), Lines(first, first), cut)
        if beginning.tokens(count) <= most:
            return beginning
        # JSON needs signs of its own for quotes and line breaks
        room -= max(beginning.tokens(count) - most, 8)
    raise too_little(empty, most)


def history(
    ask: Callable[[int], HistoryPage],
    limit: int,
    *,
    most: int,
    count: Count,
    notes: Sequence[str] = (),
) -> Answer:
    """Up to `limit` records; of too many, fewer, and `next` goes on from there."""
    for size in range(limit, 0, -1):
        found = ask(size)
        answer = answers.history(found, notes=notes)
        if answer.tokens(count) <= most:
            return answer
    # a single body of up to 1000 characters has no room: in some scripts each costs a token or two
    for length in (600, 300, 150, 60, 0):
        records = tuple(
            replace(one, body=_shorter(one.body, length), is_truncated=True)
            for one in found.records
        )
        answer = answers.history(replace(found, records=records), notes=notes)
        if answer.tokens(count) <= most:
            return answer
    raise too_little(answer.tokens(count), most)


def _shorter(body: str | None, length: int) -> str | None:
    return None if body is None else body.removesuffix(CUT)[:length] + CUT


def streams(
    found: Sequence[StreamStatus],
    offset: int,
    *,
    most: int,
    count: Count,
    notes: Sequence[str] = (),
) -> Answer:
    """As many streams behind the first `offset` as there is room for, at least one; `next` goes
    on from there.
    """
    behind = found[offset:]

    def answer(size: int) -> Answer:
        return answers.streams(behind[:size], offset=offset, left=len(behind) - size, notes=notes)

    return answer(
        max(
            _most(len(behind), lambda size: answer(size).tokens(count) <= most), min(1, len(behind))
        )
    )


def projects(
    found: Sequence[ProjectStatus],
    limit: int,
    *,
    most: int,
    count: Count,
    notes: Sequence[str] = (),
) -> Answer:
    """As many projects as there is room for, at least one, and no more than `limit`."""

    def answer(size: int) -> Answer:
        return answers.projects(
            found[:size], after=found[size - 1].name if 0 < size < len(found) else "", notes=notes
        )

    return answer(
        max(
            _most(min(len(found), limit), lambda size: answer(size).tokens(count) <= most),
            min(1, len(found)),
        )
    )


def _most(size: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `size` that fits; 0 where none does."""
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def too_little(needed: int, most: int) -> InputError:
    """What is said where not even the least has room."""
    return InputError(
        f"the answer needs {needed} tokens and max_tokens is {most}; give a larger max_tokens"
    )
