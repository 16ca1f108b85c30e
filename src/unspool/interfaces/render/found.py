"""What a search finds and what an answer is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.domain.answers import Answer, Citation
from unspool.domain.documents import Chunk
from unspool.domain.queries import Form, Hit, Page, Said
from unspool.interfaces.render.values import finite, metadata, moment

if TYPE_CHECKING:
    from unspool.interfaces import shapes


def page(page: Page, *, explained: bool = False, full: bool = False) -> shapes.Page:
    """A page of hits.

    With `explained` each hit carries its reason, with `full` what is stored of its chunk.
    """
    return {
        "query": page.query,
        "projects": list(page.projects),
        "alpha": page.alpha,
        "hits": [hit(one, explained=explained, full=full) for one in page.hits],
        "sources": [
            {
                "project": source.project,
                "path": source.path,
                "title": source.title,
                "language": source.language,
                "hits": source.hits,
                "best_score": finite(source.best_score),
            }
            for source in page.sources
        ],
        "insights": {
            "languages": dict(page.insights.languages),
            "files": page.insights.files,
            "earliest": moment(page.insights.earliest),
            "latest": moment(page.insights.latest),
        },
        "notes": list(page.notes),
        "warnings": list(page.warnings),
        "tokens": page.tokens,
        "tokens_remaining": page.tokens_remaining,
        "number": page.number,
        "served": page.served.value,
        "stability": page.stability.value,
        "remaining": page.remaining,
        "relevance_dropped": page.relevance_dropped,
        "continuation": page.continuation,
    }


def hit(hit: Hit, *, explained: bool = False, full: bool = False) -> shapes.Hit:
    """Return a hit; `text` is limited by the budget.

    With `full` a program gets the rest of the chunk, too.
    """
    chunk = hit.chunk
    values: shapes.Hit = {
        "rank": hit.rank,
        "score": finite(hit.score),
        "origin": hit.origin.value,
        "form": hit.form.value,
        "project": chunk.project,
        "path": chunk.path,
        "lines": [chunk.lines.first, chunk.lines.last],
        "symbol": chunk.symbol,
        "headings": list(chunk.headings),
        "title": chunk.title,
        "language": chunk.language,
        "kind": chunk.kind.value,
        "start": chunk.start,
        "end": chunk.end,
        "text": hit.text,
        "snippet": {
            "text": hit.snippet.text,
            "first_line": hit.snippet.first_line,
            "marks": [list(mark) for mark in hit.snippet.marks],
        },
        "tokens": hit.tokens,
        "modified": moment(chunk.modified),
        "metadata": metadata(chunk.metadata),
        "changed": hit.changed,
        "stale": hit.stale,
        "copies": list(hit.copies),
        "message": None if hit.message is None else said(hit.message, with_text=False),
        "before": [said(one) for one in hit.before],
        "after": [said(one) for one in hit.after],
    }
    if explained:
        values["reason"] = hit.reason
    if full:
        values["chunk"] = {
            **_unshown(chunk),
            "text": None if hit.form is Form.WHOLE else chunk.text,
        }
    return values


def chunk(chunk: Chunk) -> shapes.Chunk:
    """A chunk as it is stored."""
    return {
        "project": chunk.project,
        "path": chunk.path,
        "lines": [chunk.lines.first, chunk.lines.last],
        "symbol": chunk.symbol,
        "headings": list(chunk.headings),
        "title": chunk.title,
        "language": chunk.language,
        "kind": chunk.kind.value,
        "start": chunk.start,
        "end": chunk.end,
        "text": chunk.text,
        "modified": moment(chunk.modified),
        "metadata": metadata(chunk.metadata),
        **_unshown(chunk),
    }


def _unshown(chunk: Chunk) -> shapes.ChunkRest:
    """What a page does not show of a chunk.

    Its id is text: not every reader of JSON keeps 63 bits of a number.
    """
    return {
        "id": str(chunk.id),
        "index": chunk.index,
        "level": chunk.level,
        "defines": list(chunk.defines),
        "token_count": chunk.token_count,
        "status": chunk.status.value,
    }


def answer(answer: Answer, *, full: bool = False) -> shapes.Answer:
    """An answer with what it cites; with `full` each citation carries its hit."""
    return {
        "question": answer.question,
        "found": answer.found,
        "text": answer.text,
        "model": answer.model,
        "citations": [citation(one, full=full) for one in answer.citations],
        "dropped_citations": answer.dropped_citations,
        "context": answer.context,
        "usage": {
            "searches": answer.usage.searches,
            "hits": answer.usage.hits,
            "shown": answer.usage.shown,
            "context_tokens": answer.usage.context_tokens,
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
        },
        "notes": list(answer.notes),
        "warnings": list(answer.warnings),
    }


def citation(citation: Citation, *, full: bool = False) -> shapes.Citation:
    """Where something that was cited stands; with `full` all of it."""
    chunk = citation.hit.chunk
    values: shapes.Citation = {
        "number": citation.number,
        "project": citation.project,
        "path": citation.path,
        "lines": [citation.lines.first, citation.lines.last],
        "symbol": chunk.symbol,
        "headings": list(chunk.headings),
        "start": chunk.start,
        "end": chunk.end,
        "score": finite(citation.score),
    }
    return {**values, "hit": hit(citation.hit, full=True)} if full else values


def said(said: Said, *, with_text: bool = True) -> shapes.Said:
    """A message; that of a hit without its text, which the hit has."""
    values: shapes.Said = {
        "number": said.number,
        "speaker": said.speaker,
        "kind": said.kind.value,
        "at": moment(said.at),
        "is_cut": said.is_cut,
    }
    if with_text:
        values["text"] = said.text
    return values
