"""History of responses of an endpoint, a job or a tool, newest first: whole for programs, in
small pages for agents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from unspool.domain.documents import storable
from unspool.domain.options import option
from unspool.errors import InputError

PAGE, MAX_PAGE = 2, 10  # records of a page for agents, which pay for each
READ, MAX_READ = 100, 1_000  # for programs
MAX_OFFSET = 10**12
MAX_STREAM_LENGTH = 1_000
MAX_BODY_LENGTH = 10_000_000
MAX_AGE_S = 100 * 365 * 86_400
SHOWN = 1_000  # characters of a body that agents see
CUT = "...[truncated]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Stored response of a stream. `number` counts in the order of arrival."""

    stream: str
    number: int
    at: datetime
    body: str
    warnings: tuple[str, ...] = ()  # of the append that stored it


class Excerpt(NamedTuple):
    """Record for a page. `text` is at least the beginning that is shown."""

    number: int
    at: datetime
    sha: bytes
    length: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """Record on a page.

    `body` is None if the next newer record on the page has the same body. `length` counts the whole
    body.
    """

    number: int
    at: datetime
    body: str | None
    length: int
    is_truncated: bool
    same_as_newer: bool  # also if the newer record is on the page before


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Page of records for agents, newest first."""

    stream: str
    records: tuple[HistoryEntry, ...]
    limit: int
    offset: int
    has_more: bool

    @property
    def next_offset(self) -> int | None:
        """Offset of the next page; None if there is none."""
        return self.offset + len(self.records) if self.has_more else None

    @property
    def next(self) -> str | None:
        """Request for the next page; None if there is none."""
        return (
            f"older records: limit={self.limit}, offset={self.next_offset}"
            if self.has_more
            else None
        )

    @property
    def text(self) -> str:
        """Page as text for an agent. As JSON it has twice as many tokens."""
        lines = [line for entry in self.records for line in _format_entry(entry)]
        return "\n".join(
            [
                *(lines or ["no records" if not self.offset else "no older records"]),
                *([self.next] if self.next else []),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """Stream in a list. `newest` is the time of its newest record, if it has any."""

    project: str
    stream: str
    records: int
    newest: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Limits of a stream: most records, and their age in seconds. 0 is no limit."""

    max_records: int = option(
        0,
        "most records of a stream of responses; 0 means no limit",
        low=0,
        high=MAX_OFFSET,
    )
    max_age_s: int = option(
        0, "lifetime of records, in seconds; 0 means no limit", low=0, high=MAX_AGE_S
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            value, most = getattr(self, one.name), one.metadata["high"]
            if not _is_whole(value) or not 0 <= value <= most:
                raise InputError(
                    f"{one.name} is {value!r}; give a whole number from 1 to {most}, or 0 for no "
                    f"bound"
                )

    def since(self, now: datetime) -> datetime | None:
        """Return the time of the oldest record that may be shown."""
        return now - timedelta(seconds=self.max_age_s) if self.max_age_s else None

    def within(self, limit: int, offset: int) -> int:
        """Return how many records from an offset on may be shown."""
        return min(limit, max(0, self.max_records - offset)) if self.max_records else limit

    def excess(self, kept: int) -> int:
        """Return how many of the oldest records exceed the limit."""
        return max(0, kept - self.max_records) if self.max_records else 0


def check_stream(name: str) -> None:
    """Reject a stream name that is empty, too long or not a line of text."""
    if not isinstance(name, str):
        raise InputError(f"the name of a stream is a {type(name).__name__}; give text")
    if (
        not name
        or len(name) > MAX_STREAM_LENGTH
        or name != name.strip()
        or not storable(name)
        or any(c < " " or "\x7f" <= c <= "\x9f" for c in name)
    ):
        raise InputError(
            f"stream name {name[:80]!r} cannot be used; give 1 to {MAX_STREAM_LENGTH} characters "
            f"without control characters or outer spaces"
        )


def check_body(body: str) -> None:
    """Reject a body that is no text or too long."""
    if not isinstance(body, str):
        raise InputError(
            f"the body of a record is a {type(body).__name__}; give text, such as bytes.decode() "
            f"or json.dumps() makes"
        )
    if len(body) > MAX_BODY_LENGTH:
        raise InputError(
            f"the body of a record has {len(body)} characters; give at most {MAX_BODY_LENGTH}, "
            f"or put it as a document"
        )


def normalize_time(at: datetime | None) -> datetime:
    """Return the time of a record in UTC; by default now."""
    if at is None:
        return datetime.now(UTC)
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InputError(
            "the time of a record has no time zone; give an aware datetime such as "
            "datetime.now(UTC)"
        )
    if not 1 < at.year < 9999:  # a time zone could lead out of the calendar
        raise InputError(f"the time of a record is in the year {at.year}; give one from 2 to 9998")
    return at.astimezone(UTC)


def check_range(limit: int, offset: int, *, most: int) -> None:
    """Reject a limit or an offset that is out of range."""
    if not _is_whole(limit) or not 1 <= limit <= most:
        raise InputError(f"limit is {limit!r}; give a whole number from 1 to {most}")
    if not _is_whole(offset) or not 0 <= offset <= MAX_OFFSET:
        raise InputError(
            f"offset is {offset!r}; give a whole number from 0 to {MAX_OFFSET}, the number of "
            f"newer records to leave out"
        )


def fingerprint(body: str) -> bytes:
    """Return the fingerprint of a body."""
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()


def cut(text: str, length: int) -> str:
    """Return a body of this length as an agent sees it: whole if it is short."""
    return text[:SHOWN] + CUT if length > SHOWN else text


def span(limit: int, offset: int) -> tuple[int, int]:
    """Return the limit and offset of the records that a page is built from.

    They include an older one after the page and a newer one before it.
    """
    check_range(limit, offset, most=MAX_PAGE)
    before = 1 if offset else 0
    return limit + before + 1, offset - before


def build_history_page(
    stream: str, found: Sequence[Excerpt], *, limit: int, offset: int, full: bool = False
) -> HistoryPage:
    """Return the page of the records in its span.

    With `full` every body is whole, even if it repeats.
    """
    newer = found[0].sha if offset and found else None
    rows = found[1:] if offset else found
    entries = []
    for position, row in enumerate(rows[:limit]):
        same = row.sha == newer
        # The first record always has its body: the reader may not know the page before.
        body = row.text if full else None if same and position else cut(row.text, row.length)
        is_truncated = body is not None and not full and row.length > SHOWN
        entries.append(
            HistoryEntry(
                number=row.number,
                at=row.at,
                body=body,
                length=row.length,
                is_truncated=is_truncated,
                same_as_newer=same,
            )
        )
        newer = row.sha
    return HistoryPage(
        stream=stream,
        records=tuple(entries),
        limit=limit,
        offset=offset,
        has_more=len(rows) > limit,
    )


def _format_entry(entry: HistoryEntry) -> Iterator[str]:
    about = f"[{entry.number}] {entry.at:%Y-%m-%d %H:%M:%S}Z"
    about += f", {entry.length} characters" if entry.is_truncated else ""
    yield about + (", same as the newer one" if entry.same_as_newer else "")
    if entry.body is not None:
        yield entry.body


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
