"""Context of the current request, and events that only the doors know."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

request_id: ContextVar[str] = ContextVar("unspool_request_id", default="")  # '' outside of any


@dataclass(slots=True, kw_only=True)
class Request:
    """HTTP request, completed by the code that answers it.

    `route` is the template, never the path. `key` is the id of a key, never the key. The status of
    a request that was not answered is 0.
    """

    method: str
    route: str = ""
    status: int = 0
    key: str = ""
    total_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEvent:
    """Call of a tool by an agent. The outcome is "ok" or the code of an error."""

    tool: str
    outcome: str
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """Error that a door answered with. Only a bug has a cause."""

    code: str
    cause: BaseException | None = None


DoorEvent = Request | ToolCallEvent | ErrorResponse
