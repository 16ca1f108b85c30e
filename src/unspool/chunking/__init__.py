"""Cutting of texts into pieces. Pure: only grammars are loaded and kept."""

from __future__ import annotations

from collections.abc import Callable

from unspool.chunking import code, markdown
from unspool.chunking.languages import kind_of, language_of
from unspool.chunking.markdown import title_of
from unspool.chunking.measure import Ruler, SourceText
from unspool.chunking.packing import find_line_cuts, find_paragraph_cuts, pack
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
    """Return the pieces of a text in order, none over `limit` tokens.

    Every character but white space is in exactly one piece.

    Small neighbours share a piece up to `target` tokens; what belongs together stays together up to
    `limit`. `count` is called with text in which lone surrogates are replaced; a `ruler`, where the
    tokenizer has one, spares most of those calls. Only a single character that alone exceeds the
    limit gives a longer piece.
    """
    if limit < 1 or (target is not None and target < 1):
        raise InputError(f"limit is {limit} and target is {target}; give at least 1 token")
    page = SourceText(
        text,
        limit=limit,
        target=min(limit, target or max(1, int(limit * _TARGET))),
        count=count,
        ruler=ruler,
    )
    if language in (markdown.MARKDOWN, markdown.RST):
        return markdown.cut(page, language)
    if kind is Kind.DOCS:
        return pack(page, find_paragraph_cuts(page.text))
    pieces = code.cut(page, language) if kind is Kind.CODE else []
    return pieces or pack(page, find_line_cuts(page.text))
