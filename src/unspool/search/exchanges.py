"""Exchanges: the messages around a hit in a conversation.

No message is on a page twice, neither as a hit and beside one, nor beside two hits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from unspool.domain.documents import Chunk
from unspool.domain.queries import Said

MOST = 240  # characters of a message that only stands beside a hit


class Exchange(NamedTuple):
    """Message of a hit, with the messages before and after it that are shown too."""

    message: Said | None = None
    before: tuple[Said, ...] = ()
    after: tuple[Said, ...] = ()

    @property
    def context(self) -> str:
        """Text that is shown beside the hit."""
        return "\n".join(said.line for said in (*self.before, *self.after))


NONE = Exchange()


def build_exchanges(chunks: Sequence[Chunk], said: Mapping[int, Sequence[Said]]) -> list[Exchange]:
    """Return the exchange around each chunk of a page, in order.

    `said` maps a chunk to its message and the neighbours of that.
    """
    # also those that somebody replaced since they were read
    taken = {(chunk.project, chunk.path, chunk.lines.first) for chunk in chunks}
    found = []
    for chunk in chunks:
        if chunk.id not in said:
            found.append(NONE)
            continue
        number = chunk.lines.first
        own = next((one for one in said[chunk.id] if one.number == number), None)
        new = [
            one
            for one in said[chunk.id]
            if (chunk.project, chunk.path, one.number) not in taken and one.text.strip()
        ]
        taken.update((chunk.project, chunk.path, one.number) for one in new)
        shown = [_shorten(one) for one in new]
        found.append(
            Exchange(
                message=None
                if own is None
                else replace(own, text=chunk.text, is_cut=chunk.text.strip() != own.text.strip()),
                before=tuple(one for one in shown if one.number < number),
                after=tuple(one for one in shown if one.number > number),
            )
        )
    return found


def _shorten(said: Said) -> Said:
    text = " ".join(said.text.split())
    return (
        replace(said, text=text[:MOST].rstrip() + "…", is_cut=True)
        if len(text) > MOST
        else replace(said, text=text)
    )
