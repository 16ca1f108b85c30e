"""What a tool hands back: text for models that read text, the same as values for those that read
JSON. Pure.

Clients forward one or the other to the model, never both, and none says which: each has to be
enough by itself. Values that say nothing are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from unspool.domain.continuations import MAX_CHARACTERS
from unspool.domain.documents import Kind, Lines, Passage, Status
from unspool.domain.history import HistoryPage, StreamStatus
from unspool.domain.queries import Page
from unspool.domain.reports import IndexReport, ProjectStatus, RememberReport
from unspool.interfaces import render
from unspool.interfaces.mcp import text as words
from unspool.interfaces.mcp.showing import Count, Shown

# from here on another search is better than the next page: one session of 50 calls spent 42 630
# tokens on reading on
MANY_PAGES = 3
MAX_NOTES, MAX_NOTE = 4, 240
FAILURES = 3
ALL = "these are all hits"
_STAND_IN = "x" * MAX_CHARACTERS
NAMES, MAX_VALUE = 5, 60  # projects in an advice, characters of a condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer in both forms."""

    text: str
    values: dict[str, Any]

    def tokens(self, count: Count) -> int:
        """What the larger of the two costs the model that reads it."""
        return max(count(self.text), count(render.line(self.values)))


def page(
    page: Page,
    seen: Sequence[Shown],
    *,
    notes: Sequence[str] = (),
    end: str = ALL,
    conditions: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    """The first so many hits of a page. Where that is not all of them, what it will cost with the
    continuation that leads to the others.

    A continuation that carries its ranking has thousands of characters. No model should pay for
    them and copy them, so it is left out.
    """
    is_part = len(seen) < len(page.hits)
    remaining = page.remaining + len(page.hits) - len(seen)
    continuation = page.continuation or (_STAND_IN if is_part else None)
    if continuation is not None and len(continuation) > MAX_CHARACTERS:
        continuation = None
        end = (
            f"{remaining} further hits have no page of their own here; a larger limit, a larger "
            f"max_tokens or other words show more"
        )
    advice = _advice(page, continuation is not None, end, conditions)
    told = _notes((*notes, *page.warnings, *page.notes))
    ending = words.notes(told)
    if continuation is not None:
        ending.append(
            f"more: {remaining} further hits, each less relevant; "
            f'more(continuation="{continuation}") gives the next page'
        )
    if advice:
        ending.append(f"stop: {advice}" if continuation is not None else f"end: {advice}")
    values = {
        "hits": [_hit(one) for one in seen],
        "page": page.number if page.number > 1 else 0,
        "remaining": remaining,
        "continuation": continuation,
        "advice": advice,
        "notes": told,
    }
    return Answer(
        text=words.page(seen, ending, first_rank=page.hits[0].rank if page.hits else 1),
        values=_lean(values, "hits"),
    )


def _advice(page: Page, goes_on: bool, end: str, conditions: Mapping[str, str]) -> str:
    if not page.hits:
        if page.number > 1:
            return "there is nothing more"
        if not page.projects:
            return "there is nothing to find yet"
        return _nothing(page.projects, conditions)
    if not goes_on:
        return end
    if page.relevance_dropped:
        return (
            "the rest is hardly relevant; stop here unless something is still missing, and then "
            "search in other words"
        )
    if page.number >= MANY_PAGES:
        return (
            f"this is page {page.number}; what is not found by now is found sooner by another "
            f"search than by reading on"
        )
    return ""


def _nothing(projects: Sequence[str], conditions: Mapping[str, str]) -> str:
    where = ", ".join(projects[:NAMES]) + (
        f" and {len(projects) - NAMES} other projects" if len(projects) > NAMES else ""
    )
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


def _hit(one: Shown) -> dict[str, Any]:
    values = {
        "at": one.at,
        "project": one.project,
        "within": one.within,
        "shown": "" if one.lines is None else str(one.lines),
        "text": one.text,
        "also": list(one.also),
        "changed": one.is_changed,
        "stale": one.is_stale,
    }
    return _lean(values)


def passage(
    passage: Passage,
    text: str,
    lines: Lines,
    *,
    upto: int,
    with_project: bool = False,
    notes: Sequence[str] = (),
) -> Answer:
    """Lines of a document.

    `upto` is the last line that was asked for: where it was not reached, the answer says how to go
    on.
    """
    follows = f"{passage.path}:{Lines(lines.last + 1, upto)}" if lines.last < upto else ""
    told = _notes(notes)
    ending = [
        *words.notes(told),
        *([words.line(f'more: read(path="{follows}") goes on')] if follows else []),
    ]
    values = {
        "at": f"{passage.path}:{lines}",
        "project": passage.project if with_project else "",
        "title": passage.title if passage.kind is Kind.CHAT else "",
        "of": passage.last_line,
        "text": text,
        "next": follows,
        "notes": told,
    }
    return Answer(text=words.passage(passage, text, lines, ending), values=_lean(values, "text"))


def history(page: HistoryPage, *, notes: Sequence[str] = ()) -> Answer:
    """Records of a stream."""
    told = _notes(notes)
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
    values = {
        "stream": page.stream,
        "records": [_lean(one, "body") for one in records],
        "has_more": page.has_more,
        "next": page.next,
        "notes": told,
    }
    return Answer(
        text=words.history(page, words.notes(told)), values=_lean(values, "records", "has_more")
    )


def streams(
    found: Sequence[StreamStatus], *, offset: int = 0, left: int = 0, notes: Sequence[str] = ()
) -> Answer:
    """Streams behind the first `offset`; `left` others follow them."""
    told = _notes(notes)
    follows = f"{left} further streams: offset={offset + len(found)}" if left else ""
    rows = [{"stream": one.stream, "project": one.project, "records": one.records} for one in found]
    values = {"streams": rows, "has_more": left > 0, "next": follows, "notes": told}
    ending = [*words.notes(told), *([f"more: {follows}"] if follows else [])]
    return Answer(
        text=words.streams(found, ending, is_start=not offset),
        values=_lean(values, "streams", "has_more"),
    )


def projects(
    found: Sequence[ProjectStatus], *, after: str = "", notes: Sequence[str] = ()
) -> Answer:
    """The projects there are. `after` is the last of them where others follow."""
    told = _notes(notes)
    rows, lines = [], []
    for one in found:
        documents, failed = sum(one.documents.values()), one.documents.get(Status.FAILED, 0)
        pending = sum(
            one.documents.get(status, 0)
            for status in (Status.PENDING, Status.INDEXING, Status.STALE)
        )
        rows.append(
            _lean(
                {
                    "name": one.name,
                    "documents": documents,
                    "pending": pending,
                    "failed": failed,
                    "chunks": one.chunks,
                    "root": one.root,
                },
                "documents",
                "chunks",
            )
        )
        line = f"{one.name}: {documents} documents, {one.chunks} chunks"
        lines.append(
            words.line(
                line
                + (f", {pending} not indexed yet" if pending else "")
                + (f", {failed} failed" if failed else "")
                + (f", from {one.root}" if one.root else "")
            )
        )
    ending = [
        *words.notes(told),
        *([f'more: list_projects(after="{after}") gives the next ones'] if after else []),
    ]
    text = "\n".join(
        [*(lines or ["nothing is indexed yet" if not after else "no further projects"]), *ending]
    )
    return Answer(
        text=text, values=_lean({"projects": rows, "after": after, "notes": told}, "projects")
    )


def remembered(report: RememberReport, conversation: str, *, notes: Sequence[str] = ()) -> Answer:
    """What became of something to remember."""
    masked = [f"{len(report.masked)} secrets were masked"] if report.masked else []
    told = _notes((*notes, *masked, *report.warnings))
    line = (
        f"remembered in {conversation!r} of project {report.project!r}"
        if report.messages
        else f"{conversation!r} holds that already; nothing changed"
    )
    values = {
        "project": report.project,
        "conversation": conversation,
        "new": report.messages,
        "notes": told,
    }
    return Answer(text="\n".join([line, *words.notes(told)]), values=_lean(values, "new"))


def indexed(report: IndexReport, *, notes: Sequence[str] = ()) -> Answer:
    """What an indexing run did."""
    masked = [f"{len(report.masked)} secrets were masked"] if report.masked else []
    skipped = [f"{sum(report.skipped.values())} files were left out"] if report.skipped else []
    busy = [f"{report.busy} documents are being indexed by another run"] if report.busy else []
    told = _notes((*notes, *masked, *skipped, *busy, *report.warnings))
    failures = [
        words.line(f"{one.path}: {one.error}")[:MAX_NOTE] for one in report.failures[:FAILURES]
    ]
    counts = {
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "failed": report.failed,
    }
    line = f"{report.project}: " + ", ".join(
        f"{count} {what}" for what, count in counts.items() if count or what == "added"
    )
    text = "\n".join(
        [
            f"{line}; {report.chunks} chunks in {report.seconds:.1f} s",
            *(f"failed: {one}" for one in failures),
            *words.notes(told),
        ]
    )
    values = {
        "project": report.project,
        **counts,
        "chunks": report.chunks,
        "seconds": report.seconds,
        "failures": failures,
        "notes": told,
    }
    return Answer(text=text, values=_lean(values, *counts, "chunks", "seconds"))


def _notes(found: Sequence[str]) -> list[str]:
    """A few of them, none longer than a sentence or two."""
    lines = [" ".join(one.split()) for one in dict.fromkeys(found)]
    return [
        one if len(one) <= MAX_NOTE else one[: MAX_NOTE - 3] + "..." for one in lines[:MAX_NOTES]
    ]


def _lean(values: dict[str, Any], *kept: str) -> dict[str, Any]:
    """Values without what is empty, zero or false; some are kept as they are, unless there are
    none at all.
    """
    return {
        name: value
        for name, value in values.items()
        if value or (name in kept and value is not None)
    }
