"""Responses that are kept in a service."""

from __future__ import annotations

from datetime import datetime

from unspool.client import calls
from unspool.client.sending import Sender
from unspool.domain.history import PAGE, READ, HistoryPage, Record


class RemoteHistory:
    """A history in a service, which keeps as much of it as its own settings say."""

    def __init__(self, sender: Sender, place: calls.Stream) -> None:
        self._sender = sender
        self._place = place

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._place.stream

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response with a time, by default now. Secrets are masked before it is stored.

        This removes some records that are past the retention. A record that is itself past the
        retention is not kept.
        """
        return self._sender.send(calls.append_record(self._place, body, at))

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Return complete records, newest first, without the first `offset`. For programs."""
        found: list[Record]
        found, following = self._sender.find(
            calls.records(self._place, limit=limit, offset=offset), ([], None)
        )
        # a service returns as many at once as are not too large
        while following is not None and len(found) < limit:
            some, following = self._sender.send(
                calls.records(self._place, limit=limit - len(found), offset=following)
            )
            found += some
        return found

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. Long bodies are truncated, repeated ones flagged.

        With `full`, every body is complete.
        """
        none = HistoryPage(
            stream=self.stream, records=(), limit=limit, offset=offset, has_more=False
        )
        return self._sender.find(
            calls.history_page(self._place, limit=limit, offset=offset, full=full), none
        )

    def count(self) -> int:
        """Return the number of readable records."""
        return self._sender.find(calls.record_count(self._place), 0)

    def prune(self) -> int:
        """Remove every record past the retention, and return how many."""
        return self._sender.find(calls.prune_history(self._place), 0)

    def clear(self) -> int:
        """Remove every record, and return how many. The next record gets number 1."""
        return self._sender.find(calls.clear_history(self._place), 0)
