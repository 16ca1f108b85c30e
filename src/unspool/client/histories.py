"""Responses that are kept in a service."""

from __future__ import annotations

from datetime import datetime

from unspool.client import calls, flows
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
        return self._sender.run(flows.records(self._place, limit=limit, offset=offset))

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. Long bodies are truncated, repeated ones flagged.

        With `full`, every body is complete.
        """
        return self._sender.run(
            flows.history_page(self._place, limit=limit, offset=offset, full=full)
        )

    def count(self) -> int:
        """Return the number of readable records."""
        return self._sender.run(flows.absent(calls.record_count(self._place), 0))

    def prune(self) -> int:
        """Remove every record past the retention, and return how many."""
        return self._sender.run(flows.absent(calls.prune_history(self._place), 0))

    def clear(self) -> int:
        """Remove every record, and return how many. The next record gets number 1."""
        return self._sender.run(flows.absent(calls.clear_history(self._place), 0))
