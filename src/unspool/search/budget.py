"""Token budgets: a hit is shown whole, as a snippet, or as its location alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unspool.domain.documents import Chunk
from unspool.domain.queries import Form, Snippet


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Form in which a hit is shown, and its cost in tokens."""

    form: Form
    tokens: int
    with_context: bool = False  # what stands beside it is shown, too


def format_header(chunk: Chunk) -> str:
    """Return the line above a hit: its location and its name. It counts towards the budget."""
    place = chunk.symbol or " > ".join(chunk.headings)
    return f"{chunk.location} {place}".rstrip()


def fit_hits(
    chunks: Sequence[Chunk],
    cut: Callable[[Chunk], Snippet],
    *,
    max_tokens: int,
    count: Callable[[str], int],
    contexts: Sequence[str] = (),
) -> list[Fitted]:
    """Return the form of each hit, in order, within a token budget; 0 means no budget.

    The list is shorter than the chunks if not even a location fits any more. A hit is shown whole
    only if the locations of all later hits still fit: a page that shows one hit and hides nine is
    no page. Contexts, the text beside hits, get the tokens that are left once every hit has its
    form.
    """
    heads = [count(format_header(chunk)) for chunk in chunks]
    around = [count(context) if context else 0 for context in contexts] or [0] * len(chunks)
    if not max_tokens:
        return [
            Fitted(form=Form.WHOLE, tokens=head + chunk.token_count + beside, with_context=True)
            for head, chunk, beside in zip(heads, chunks, around, strict=True)
        ]
    fitted: list[Fitted] = []
    left = max_tokens
    reserved = _reserve_headers(heads, max_tokens)
    for index, chunk in enumerate(chunks):
        reserved -= heads[index] if index < len(heads) else 0
        room = left - max(reserved, 0)
        best = _choose_form(heads[index], chunk, cut, room, left, count)
        if best is None:
            break
        fitted.append(best)
        left -= best.tokens
    for index, one in enumerate(fitted):
        if 0 < around[index] <= left and one.form is Form.WHOLE:
            fitted[index] = Fitted(
                form=one.form, tokens=one.tokens + around[index], with_context=True
            )
            left -= around[index]
    return fitted


def shorten_hit(chunk: Chunk, count: Callable[[str], int]) -> Fitted:
    """Return the shortest form of a hit, whatever the budget."""
    return Fitted(form=Form.LOCATION, tokens=count(format_header(chunk)))


def _reserve_headers(heads: Sequence[int], max_tokens: int) -> int:
    total = 0
    for head in heads:
        if total + head > max_tokens:
            break
        total += head
    return total


def _choose_form(
    head: int,
    chunk: Chunk,
    cut: Callable[[Chunk], Snippet],
    room: int,
    left: int,
    count: Callable[[str], int],
) -> Fitted | None:
    if head + chunk.token_count <= room:
        return Fitted(form=Form.WHOLE, tokens=head + chunk.token_count)
    short = head + count(cut(chunk).text)
    if short <= room:
        return Fitted(form=Form.SNIPPET, tokens=short)
    return Fitted(form=Form.LOCATION, tokens=head) if head <= left else None
