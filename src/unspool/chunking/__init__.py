"""Text in, pieces out. Pure: nothing is read, written or remembered but the grammars."""

from __future__ import annotations

from collections.abc import Callable

from unspool.chunking import code, markdown
from unspool.chunking.languages import kind_of, language_of
from unspool.chunking.markdown import title_of
from unspool.chunking.measure import Page, Ruler
from unspool.chunking.packing import pack
from unspool.chunking.prose import line_cuts, paragraph_cuts
from unspool.domain.documents import Kind, Piece
from unspool.errors import InputError

__all__ = ["chunk", "kind_of", "language_of", "title_of"]

# The preferred size as a share of the limit: 350 of 512 tokens leaves room for a definition that is
# a little longer to stay whole.
_TARGET = 0.68


def chunk(
    text: str,
    *,
    language: str,
    kind: Kind,
    limit: int,
    count: Callable[[str], int],
    target: int | None = None,
    ruler: Ruler | None = None,
) -> list[Piece]:
    """The text's pieces in order, none over `limit` tokens, every character but white space in
    exactly one.

    Small neighbours share a piece up to `target` tokens; what belongs together stays together up to
    `limit`. `count` is called with text in which lone surrogates are replaced; a `ruler`, where the
    tokenizer has one, spares most of those calls. Only a single character that alone exceeds the
    limit gives a longer piece.
    """
    if limit < 1 or (target is not None and target < 1):
        raise InputError(f"limit is {limit} and target is {target}; give at least 1 token")
    page = Page(
        text,
        limit=limit,
        target=min(limit, target or max(1, int(limit * _TARGET))),
        count=count,
        ruler=ruler,
    )
    if language in (markdown.MARKDOWN, markdown.RST):
        return markdown.cut(page, language)
    pieces = code.cut(page, language) if kind is Kind.CODE else None
    if pieces is not None:
        return pieces
    cuts = paragraph_cuts(page.text) if kind is Kind.DOCS else line_cuts(page.text)
    return [
        Piece(
            start=span.start,
            end=span.end,
            lines=page.lines(span.start, span.end),
            token_count=span.token_count,
        )
        for span in pack(page, cuts)
    ]
