"""Which request is being answered: whoever is told of an event can say which one it belongs to."""

from __future__ import annotations

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("unspool_request_id", default="")  # '' outside of any
