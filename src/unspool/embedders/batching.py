"""Which texts go into a call together. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def batches(sizes: Sequence[int], *, most: int, tokens: int, is_padded: bool) -> list[list[int]]:
    """The places of texts of these sizes, in tokens, in batches of at most `most` texts and
    `tokens` tokens; 0 tokens is no bound.

    A batch of texts that are padded to the longest counts as if all were as long, so those go
    together by length, longest first: what does not fit into memory shows at once. A text that
    alone exceeds `tokens` goes alone.
    """
    order = (
        sorted(range(len(sizes)), key=lambda place: -sizes[place])
        if is_padded
        else range(len(sizes))
    )
    made: list[list[int]] = []
    held = longest = 0
    for place in order:
        size = max(1, sizes[place])
        grown = max(longest, size) * (len(made[-1]) + 1) if is_padded and made else held + size
        if not made or len(made[-1]) >= most or (tokens and grown > tokens):
            made.append([])
            held = longest = 0
        made[-1].append(place)
        held, longest = held + size, max(longest, size)
    return made
