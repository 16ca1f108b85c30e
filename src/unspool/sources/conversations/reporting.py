"""Report of records that cannot be read, with their position in the export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from unspool.domain.reports import BadRecord
from unspool.sources.conversations.values import parse_time


class RecordError(Exception):
    """A record cannot be read. The message says why."""


@dataclass(frozen=True, slots=True)
class ErrorLog:
    """Bad records of an export, and the position that is being read."""

    source: str
    position: str = ""
    records: list[BadRecord] = field(default_factory=list)

    @contextmanager
    def at(self, position: str) -> Iterator[ErrorLog]:
        """Report a `RecordError` raised in this block, at a position inside the current one."""
        inner = ErrorLog(self.source, f"{self.position} {position}".strip(), self.records)
        try:
            yield inner
        except RecordError as error:
            inner.add(str(error))

    def add(self, reason: str) -> None:
        """Report a bad record at the current position."""
        self.records.append(
            BadRecord(source=self.source, position=self.position or "the whole file", reason=reason)
        )

    def drain(self) -> Iterator[BadRecord]:
        """Yield the records reported since the last call."""
        records = self.records.copy()
        self.records.clear()
        yield from records

    def parse_time(self, value: object) -> datetime | None:
        """Parse a time. Report an invalid one and return None: the message is kept without it."""
        try:
            return parse_time(value)
        except ValueError as error:
            self.add(f"{error}; kept without a time")
            return None
