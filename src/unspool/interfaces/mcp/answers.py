"""Answers of the tools: values for clients that forward JSON, text for those that forward text.

Clients forward one form or the other to the model, never both, and none says which. So each form
is complete. Values that are empty, zero or false are left out. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unspool import wire
from unspool.domain.continuations import MAX_CHARACTERS
from unspool.domain.documents import Kind, Lines, Passage, Status
from unspool.domain.history import HistoryPage, StreamStatus
from unspool.domain.queries import Page
from unspool.domain.reports import IndexReport, ProjectStatus, RememberReport
from unspool.interfaces.mcp.excerpts import Count, Hits
from unspool.interfaces.mcp.text import join_line, render_text

# from here on another search is better than the next page: one session of 50 calls spent 42 630
# tokens on further pages
MANY_PAGES = 3
MAX_NOTES, MAX_NOTE = 4, 240
FAILURES = 3
ALL = "these are all hits"
_STAND_IN = "x" * MAX_CHARACTERS
NAMES, MAX_VALUE = 5, 60  # projects in an advice, characters of a condition


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """Answer of a tool.

    The text follows from the values, the rank of the first hit and the unit of a document.
    """

    values: dict[str, Any]
    first_rank: int = 1
    unit: str = "lines"

    @property
    def text(self) -> str:
        """The text form."""
        return render_text(self.values, first_rank=self.first_rank, unit=self.unit)

    def tokens(self, count: Count) -> int:
        """Return the tokens of the larger form."""
        return max(count(self.text), count(wire.write_line(self.values)))


def build_page(
    page: Page,
    hits: Hits,
    *,
    notes: Sequence[str] = (),
    end: str = ALL,
    conditions: Mapping[str, str] | None = None,
) -> ToolAnswer:
    """Answer with the first hits of a page.

    If hits are left out, a stand-in has the length of the continuation that will lead to them. A
    continuation that contains its ranking has thousands of characters. No model should pay for
    them and copy them, so it is left out.
    """
    is_part = len(hits) < len(page.hits)
    remaining = page.remaining + len(page.hits) - len(hits)
    continuation = page.continuation or (_STAND_IN if is_part else None)
    if continuation is not None and len(continuation) > MAX_CHARACTERS:
        continuation = None
        end = (
            f"{remaining} further hits have no page of their own here; a larger limit, a larger "
            f"max_tokens or other words show more"
        )
    values = {
        "hits": hits,
        "page": page.number if page.number > 1 else 0,
        "remaining": remaining,
        "continuation": continuation,
        "advice": _advise(page, continuation is not None, end, conditions or {}),
        "notes": _shorten_notes(*notes, *page.warnings, *page.notes),
    }
    return ToolAnswer(
        values=_drop_empty(values, "hits"), first_rank=page.hits[0].rank if page.hits else 1
    )


def _advise(page: Page, has_more: bool, end: str, conditions: Mapping[str, str]) -> str:
    if not page.hits:
        if page.number > 1:
            return "there is nothing more"
        if not page.projects:
            return "there is nothing to find yet"
        return _advise_other_words(page.projects, conditions)
    if not has_more:
        return end
    if page.relevance_dropped:
        return (
            "the rest is hardly relevant; stop here unless something is still missing, and then "
            "search in other words"
        )
    if page.number >= MANY_PAGES:
        return (
            f"this is page {page.number}; another search finds what is missing sooner than "
            f"further pages"
        )
    return ""


def _advise_other_words(projects: Sequence[str], conditions: Mapping[str, str]) -> str:
    where = ", ".join(projects[:NAMES])
    if len(projects) > NAMES:
        where += f" and {len(projects) - NAMES} other projects"
    if not conditions:
        return f"nothing found in {where}; try other words, or list_projects"
    asked = " and ".join(
        f"{name} {value if len(value) <= MAX_VALUE else value[:MAX_VALUE] + '...'!r}"
        for name, value in conditions.items()
    )
    return (
        f"nothing found in {where} with {asked}; leave {' and '.join(conditions)} out, try other "
        f"words, or list_projects"
    )


def build_passage(
    passage: Passage,
    text: str,
    lines: Lines,
    *,
    last: int,
    with_project: bool = False,
    notes: Sequence[str] = (),
) -> ToolAnswer:
    """Answer with lines of a document. If they end before `last`, say where to continue."""
    values = {
        "at": f"{passage.path}:{lines}",
        "project": passage.project if with_project else "",
        "title": passage.title if passage.title != passage.path else "",
        "of": passage.last_line,
        "text": text,
        "next": f"{passage.path}:{Lines(lines.last + 1, last)}" if lines.last < last else "",
        "notes": _shorten_notes(*notes),
    }
    unit = "messages" if passage.kind is Kind.CHAT else "lines"
    return ToolAnswer(values=_drop_empty(values, "text"), unit=unit)


def build_history(page: HistoryPage, *, notes: Sequence[str] = ()) -> ToolAnswer:
    """Answer with records of a stream."""
    records = [
        {
            "number": one.number,
            "at": f"{one.at:%Y-%m-%dT%H:%M:%SZ}",
            "body": one.body,
            "length": one.length if one.is_truncated else 0,
            "same_as_newer": one.same_as_newer,
        }
        for one in page.records
    ]
    empty = "" if records else "no older records" if page.offset else "no records"
    values = {
        "stream": page.stream,
        "records": [_drop_empty(one, "body") for one in records],
        "has_more": page.has_more,
        "next": page.next,
        "notes": _shorten_notes(empty, *notes),
    }
    return ToolAnswer(values=_drop_empty(values, "records", "has_more"))


def build_streams(
    found: Sequence[StreamStatus], size: int, *, offset: int = 0, notes: Sequence[str] = ()
) -> ToolAnswer:
    """Answer with the first streams after an offset."""
    left = len(found) - size
    empty = "" if found else "no further streams" if offset else "no streams of responses yet"
    values = {
        "streams": [
            {"stream": one.stream, "project": one.project, "records": one.records}
            for one in found[:size]
        ],
        "has_more": left > 0,
        "next": f"{left} further streams: offset={offset + size}" if left else "",
        "notes": _shorten_notes(empty, *notes),
    }
    return ToolAnswer(values=_drop_empty(values, "streams", "has_more"))


def build_projects(
    found: Sequence[ProjectStatus], size: int, *, after: str = "", notes: Sequence[str] = ()
) -> ToolAnswer:
    """Answer with the first projects after the one called `after`."""
    empty = "" if found else "no further projects" if after else "nothing is indexed yet"
    values = {
        "projects": [_describe_project(one) for one in found[:size]],
        "after": found[size - 1].name if size < len(found) else "",
        "notes": _shorten_notes(empty, *notes),
    }
    return ToolAnswer(values=_drop_empty(values, "projects"))


def _describe_project(project: ProjectStatus) -> dict[str, Any]:
    documents = project.documents
    values = {
        "name": project.name,
        "documents": sum(documents.values()),
        "pending": sum(
            documents.get(status, 0) for status in (Status.PENDING, Status.INDEXING, Status.STALE)
        ),
        "failed": documents.get(Status.FAILED, 0),
        "chunks": project.chunks,
        "root": project.root,
    }
    return _drop_empty(values, "documents", "chunks")


def build_memory(
    report: RememberReport, conversation: str, *, notes: Sequence[str] = ()
) -> ToolAnswer:
    """Answer with the result of `remember`."""
    values = {
        "project": report.project,
        "conversation": conversation,
        "new": report.messages,
        "notes": _shorten_notes(
            *notes,
            "" if report.messages else "this text was stored before; nothing changed",
            _note_count(len(report.masked), "secret", "masked"),
            *report.warnings,
        ),
    }
    return ToolAnswer(values=_drop_empty(values, "new"))


def build_run(report: IndexReport, *, notes: Sequence[str] = ()) -> ToolAnswer:
    """Answer with the result of an indexing run."""
    counts = ("added", "updated", "unchanged", "removed", "failed", "chunks", "seconds")
    values = {
        "project": report.project,
        **{name: getattr(report, name) for name in counts},
        "failures": [
            join_line(f"{one.path}: {one.error}")[:MAX_NOTE] for one in report.failures[:FAILURES]
        ],
        "notes": _shorten_notes(
            *notes,
            _note_count(len(report.masked), "secret", "masked"),
            _note_count(sum(report.skipped.values()), "file", "left out"),
            _note_count(report.busy, "document", "left to another run"),
            *report.warnings,
        ),
    }
    return ToolAnswer(values=_drop_empty(values, *counts))


def _note_count(count: int, noun: str, verb: str) -> str:
    if not count:
        return ""
    return f"1 {noun} was {verb}" if count == 1 else f"{count} {noun}s were {verb}"


def _shorten_notes(*found: str) -> list[str]:
    """Return the first notes, each without line breaks and cut to a sentence or two."""
    lines = [" ".join(one.split()) for one in dict.fromkeys(found) if one]
    return [
        one if len(one) <= MAX_NOTE else one[: MAX_NOTE - 3] + "..." for one in lines[:MAX_NOTES]
    ]


def _drop_empty(values: dict[str, Any], *kept: str) -> dict[str, Any]:
    """Return values without those that are empty, zero or false, except `kept`.

    None is always dropped.
    """
    return {
        name: value
        for name, value in values.items()
        if value or (name in kept and value is not None)
    }
