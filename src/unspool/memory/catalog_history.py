"""Histories of responses in a catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy.engine import Connection

from unspool.access.scope import OWNER, Scope
from unspool.catalog import Catalog, history
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
    build_history_page,
    check_range,
    check_stream,
    fingerprint,
    span,
)
from unspool.domain.keys import Role
from unspool.memory.history import prepare_record

_T = TypeVar("_T")
PRUNED_AT_ONCE = 5_000  # records in one transaction of `prune`, so that nobody waits long


class CatalogHistory:
    """A history that all processes with this catalog share. Safe to use from several threads."""

    def __init__(
        self,
        catalog: Catalog,
        stream: str,
        *,
        project: str = DEFAULT_PROJECT,
        retention: Retention | None = None,
        scope: Scope = OWNER,
    ) -> None:
        check_stream(stream)
        check_project(project)
        self.stream = stream
        self.project = project
        self._catalog = catalog
        self._retention = retention or Retention()
        self._scope = scope

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response with a time, by default now. Secrets are masked."""
        self._scope.require(Role.WRITE, "storing responses")
        new = prepare_record(self.stream, body, at)
        sha = fingerprint(new.body)

        def work(connection: Connection) -> Record:
            record, row = history.append_record(
                connection, self.project, self.stream, at=new.at, body=new.body, sha=sha
            )
            self._prune(connection, row, history.PRUNED_BY_APPEND)
            return record

        return replace(self._catalog.transact(work), warnings=new.warnings)

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Return complete records, newest first, without the first `offset`."""
        check_range(limit, offset, most=MAX_READ)
        within = self._retention.within(limit, offset)
        return self._read(
            lambda connection, row: history.read_records(
                connection, row.id, self.stream, limit=within, offset=offset, since=self._since()
            ),
            [],
        )

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. With `full`, every body is complete."""
        most, begin = span(limit, offset)
        excerpts: list[Excerpt] = self._read(
            lambda connection, row: history.read_excerpts(
                connection,
                row.id,
                limit=self._retention.within(most, begin),
                offset=begin,
                since=self._since(),
                characters=None if full else SHOWN,
            ),
            [],
        )
        return build_history_page(self.stream, excerpts, limit=limit, offset=offset, full=full)

    def count(self) -> int:
        """Return the number of readable records."""
        return self._read(
            lambda connection, row: history.count_records(
                connection, row, retention=self._retention, since=self._since()
            ),
            0,
        )

    def prune(self) -> int:
        """Remove every record past the retention, and return how many."""
        total = 0
        while removed := self._change(lambda c, row: self._prune(c, row, PRUNED_AT_ONCE)):
            total += removed
        return total

    def clear(self) -> int:
        """Remove every record with the stream, and return how many. The next gets number 1."""
        return self._change(history.delete_stream)

    def _read(self, read: Callable[[Connection, history.StreamRow], _T], otherwise: _T) -> _T:
        with self._catalog.read() as connection:
            row = history.find_stream(connection, self.project, self.stream)
            return otherwise if row is None else read(connection, row)

    def _change(self, work: Callable[[Connection, history.StreamRow], int]) -> int:
        """Change the stream in a transaction that no other writer of the stream enters."""
        self._scope.require(Role.WRITE, "removing responses")

        def change(connection: Connection) -> int:
            row = history.find_stream(connection, self.project, self.stream, lock=True)
            return 0 if row is None else work(connection, row)

        return self._catalog.transact(change)

    def _prune(self, connection: Connection, row: history.StreamRow, most: int) -> int:
        return history.prune_stream(
            connection, row, retention=self._retention, since=self._since(), most=most
        )

    def _since(self) -> datetime | None:
        return self._retention.since(datetime.now(UTC))
