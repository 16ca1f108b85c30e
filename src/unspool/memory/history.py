"""Histories of responses: one in memory, one in a catalog.

Both do the same, and one suite of tests says so.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from unspool.domain.documents import DEFAULT_PROJECT, check_project
from unspool.domain.history import (
    MAX_READ,
    PAGE,
    READ,
    SHOWN,
    Excerpt,
    HistoryPage,
    Record,
    Retention,
    check_body,
    check_range,
    check_stream,
    checked_time,
    fingerprint,
    page_of,
    span,
)

# the real imports are where they are used: `import unspool` stays under a tenth of a second
if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from unspool.catalog import Catalog

PRUNED_AT_ONCE = 5_000  # records in one transaction of `prune`, so that nobody waits long for it


class History(Protocol):
    """The responses of one stream, newest first: by their time, and those of the same time by when
    they came.

    What is past the retention is never shown, whether or not it has been removed yet.
    """

    @property
    def stream(self) -> str:
        """Its name."""
        ...

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response, given now unless a time is named. Secrets in it are masked before it is
        stored.

        A few records that are past the retention go. One that is older than what is kept is not
        kept either.
        """
        ...

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Whole records, newest first, without the first `offset`; for programs."""
        ...

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """A few records for an agent: long bodies are cut, repeated ones only flagged.

        `full`, they are all there and whole.
        """
        ...

    def count(self) -> int:
        """How many records there are to read."""
        ...

    def prune(self) -> int:
        """Remove everything that is past the retention; returns how many records went."""
        ...

    def clear(self) -> int:
        """Remove every record; returns how many went. The next one is number 1."""
        ...


class MemoryHistory:
    """A history that lasts as long as this object. Safe to use from several threads."""

    def __init__(self, stream: str = "memory", *, retention: Retention | None = None) -> None:
        check_stream(stream)
        self.stream = stream
        self._retention = retention or Retention()
        self._guard = threading.Lock()
        self._last = 0
        self._records: list[tuple[datetime, int, bytes, str]] = []  # oldest first

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response, given now unless a time is named.

        Secrets in it are masked before it is kept.
        """
        moment, text = _prepare(body, at)
        with self._guard:
            self._last += 1
            number = self._last
            insort(self._records, (moment, number, fingerprint(text), text))
            self._prune()
        return Record(
            stream=self.stream,
            number=number,
            at=moment,
            body=text,
            warnings=_describe_stream(self.stream),
        )

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Whole records, newest first, without the first `offset`."""
        check_range(limit, offset, most=MAX_READ)
        return [
            Record(stream=self.stream, number=number, at=at, body=body)
            for at, number, _, body in self._newest(limit, offset)
        ]

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """A few records for an agent: long bodies are cut, repeated ones only flagged.

        `full`, they are all there and whole.
        """
        rows = self._newest(*span(limit, offset))
        found = [
            Excerpt(number=number, at=at, sha=sha, length=len(body), text=body)
            for at, number, sha, body in rows
        ]
        return page_of(self.stream, found, limit=limit, offset=offset, full=full)

    def count(self) -> int:
        """How many records there are to read."""
        with self._guard:
            return len(self._records) - self._past()

    def prune(self) -> int:
        """Remove everything that is past the retention; returns how many records went."""
        with self._guard:
            return self._prune()

    def clear(self) -> int:
        """Remove every record; returns how many went. The next one is number 1."""
        with self._guard:
            gone, self._last = len(self._records), 0
            self._records.clear()
            return gone

    def _newest(self, limit: int, offset: int) -> list[tuple[datetime, int, bytes, str]]:
        with self._guard:
            stop = len(self._records) - offset
            start = max(stop - limit, self._past())
            return self._records[start : max(start, stop)][::-1]

    def _past(self) -> int:
        """How many of the oldest are past the retention."""
        since = self._retention.since(datetime.now(UTC))
        old = 0 if since is None else bisect_left(self._records, (since,))
        return old + self._retention.excess(len(self._records) - old)

    def _prune(self) -> int:
        gone = self._past()
        del self._records[:gone]
        return gone


class CatalogHistory:
    """A history in a catalog: shared by every process that opens it.

    Safe to use from several threads.
    """

    def __init__(
        self,
        catalog: Catalog,
        stream: str,
        *,
        project: str = DEFAULT_PROJECT,
        retention: Retention | None = None,
    ) -> None:
        check_stream(stream)
        check_project(project)
        self.stream = stream
        self.project = project
        self._catalog = catalog
        self._retention = retention or Retention()

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response, given now unless a time is named.

        Secrets in it are masked before it is stored.
        """
        from unspool.catalog import history

        moment, text = _prepare(body, at)
        sha = fingerprint(text)

        def work(connection: Connection) -> Record:
            record, row = history.append_record(
                connection, self.project, self.stream, at=moment, body=text, sha=sha
            )
            history.prune_stream(
                connection,
                row,
                retention=self._retention,
                since=self._since(),
                most=history.PRUNED_BY_APPEND,
            )
            return record

        return replace(self._catalog.transact(work), warnings=_describe_stream(self.stream))

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Whole records, newest first, without the first `offset`, which the database leaves
        out.
        """
        from unspool.catalog import history

        check_range(limit, offset, most=MAX_READ)
        within = self._retention.within(limit, offset)
        with self._catalog.read() as connection:
            row = history.find_stream(connection, self.project, self.stream)
            if row is None:
                return []
            return history.read_records(
                connection, row.id, self.stream, limit=within, offset=offset, since=self._since()
            )

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """A few records for an agent: long bodies are cut, repeated ones only flagged.

        `full`, they are all there and whole.
        """
        from unspool.catalog import history

        most, begin = span(limit, offset)
        within = self._retention.within(most, begin)
        shown = None if full else SHOWN
        with self._catalog.read() as connection:
            row = history.find_stream(connection, self.project, self.stream)
            found = (
                []
                if row is None
                else history.read_excerpts(
                    connection,
                    row.id,
                    limit=within,
                    offset=begin,
                    since=self._since(),
                    characters=shown,
                )
            )
        return page_of(self.stream, found, limit=limit, offset=offset, full=full)

    def count(self) -> int:
        """How many records there are to read."""
        from unspool.catalog import history

        with self._catalog.read() as connection:
            row = history.find_stream(connection, self.project, self.stream)
            return (
                0
                if row is None
                else history.count_records(
                    connection, row, retention=self._retention, since=self._since()
                )
            )

    def prune(self) -> int:
        """Remove everything that is past the retention; returns how many records went."""
        from unspool.catalog import history

        def work(connection: Connection) -> int:
            row = history.find_stream(connection, self.project, self.stream, lock=True)
            return (
                0
                if row is None
                else history.prune_stream(
                    connection,
                    row,
                    retention=self._retention,
                    since=self._since(),
                    most=PRUNED_AT_ONCE,
                )
            )

        total = 0
        while gone := self._catalog.transact(work):
            total += gone
        return total

    def clear(self) -> int:
        """Remove every record and the stream with them; returns how many went.

        The next one is number 1.
        """
        from unspool.catalog import history

        def work(connection: Connection) -> int:
            row = history.find_stream(connection, self.project, self.stream, lock=True)
            return 0 if row is None else history.delete_stream(connection, row)

        return self._catalog.transact(work)

    def _since(self) -> datetime | None:
        return self._retention.since(datetime.now(UTC))


def _prepare(body: str, at: datetime | None) -> tuple[datetime, str]:
    """Return the time and the body as they are stored: without secrets, and without characters
    that a database refuses.
    """
    from unspool.sources.reading import mask_value

    check_body(body)
    return checked_time(at), mask_value(body)


def _describe_stream(stream: str) -> tuple[str, ...]:
    """Return a warning if the name of a stream contains a secret."""
    from unspool.sources.secrets.addresses import describe_exposed

    return tuple(describe_exposed("stream", [stream]))
