"""Histories of responses: the protocol, and the history in memory.

`memory/catalog_history.py` is the history in a catalog. One suite of tests covers both.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from unspool.domain.history import (
    MAX_READ,
    PAGE,
    READ,
    Excerpt,
    HistoryPage,
    Record,
    Retention,
    build_history_page,
    check_body,
    check_range,
    check_stream,
    fingerprint,
    normalize_time,
    span,
)


class History(Protocol):
    """The responses of one stream, newest first.

    Records with the same time are in the order of arrival. A record past the retention is never
    returned, even before it is removed.
    """

    @property
    def stream(self) -> str:
        """Name of the stream."""

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response with a time, by default now. Secrets are masked before it is stored.

        This removes some records that are past the retention. A record that is itself past the
        retention is not kept.
        """

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Return complete records, newest first, without the first `offset`. For programs."""

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. Long bodies are truncated, repeated ones flagged.

        With `full`, every body is complete.
        """

    def count(self) -> int:
        """Return the number of readable records."""

    def prune(self) -> int:
        """Remove every record past the retention, and return how many."""

    def clear(self) -> int:
        """Remove every record, and return how many. The next record gets number 1."""


class MemoryHistory:
    """A history with the lifetime of this object. Safe to use from several threads."""

    def __init__(self, stream: str = "memory", *, retention: Retention | None = None) -> None:
        check_stream(stream)
        self.stream = stream
        self._retention = retention or Retention()
        self._guard = threading.Lock()
        self._last = 0
        self._records: list[tuple[datetime, int, bytes, str]] = []  # oldest first

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response with a time, by default now. Secrets are masked."""
        record = prepare_record(self.stream, body, at)
        with self._guard:
            self._last += 1
            record = replace(record, number=self._last)
            row = (record.at, record.number, fingerprint(record.body), record.body)
            insort(self._records, row)
            self._prune()
        return record

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Return complete records, newest first, without the first `offset`."""
        check_range(limit, offset, most=MAX_READ)
        return [
            Record(stream=self.stream, number=number, at=at, body=body)
            for at, number, _, body in self._list_newest(limit, offset)
        ]

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. With `full`, every body is complete."""
        excerpts = [
            Excerpt(number=number, at=at, sha=sha, length=len(body), text=body)
            for at, number, sha, body in self._list_newest(*span(limit, offset))
        ]
        return build_history_page(self.stream, excerpts, limit=limit, offset=offset, full=full)

    def count(self) -> int:
        """Return the number of readable records."""
        with self._guard:
            return len(self._records) - self._count_excess()

    def prune(self) -> int:
        """Remove every record past the retention, and return how many."""
        with self._guard:
            return self._prune()

    def clear(self) -> int:
        """Remove every record, and return how many. The next record gets number 1."""
        with self._guard:
            removed, self._last = len(self._records), 0
            self._records.clear()
            return removed

    def _list_newest(self, limit: int, offset: int) -> list[tuple[datetime, int, bytes, str]]:
        with self._guard:
            stop = len(self._records) - offset
            start = max(stop - limit, self._count_excess())
            return self._records[start : max(start, stop)][::-1]

    def _count_excess(self) -> int:
        since = self._retention.since(datetime.now(UTC))
        old = 0 if since is None else bisect_left(self._records, (since,))
        return old + self._retention.excess(len(self._records) - old)

    def _prune(self) -> int:
        expired = self._count_excess()
        del self._records[:expired]
        return expired


def prepare_record(stream: str, body: str, at: datetime | None) -> Record:
    """Return a record without its number. A secret in the stream's name gives a warning.

    Secrets in the body are masked, and characters that a database rejects are replaced.
    """
    from unspool.sources.reading import mask_value
    from unspool.sources.secrets.masking import warn_about_secrets

    check_body(body)
    return Record(
        stream=stream,
        number=0,
        at=normalize_time(at),
        body=mask_value(body),
        warnings=tuple(warn_about_secrets("stream", [stream])),
    )
