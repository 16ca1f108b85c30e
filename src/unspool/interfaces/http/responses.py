"""Responses: JSON as `render` makes it, and events as they come.

Both are written without checking again what types have checked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

EVENTS = "text/event-stream"
# how often something is sent where nothing happens: whoever stands between may close what is silent
PING_S = 15.0
LAST_S = 0.1  # for what comes to its end while the service stops
READ_S = 30.0  # how long a client may leave an event unread
PAGE_BYTES = 8_000_000  # of a page whose parts may be large: what is more is on the next
_T = TypeVar("_T")
_Shape = TypeVar("_Shape", bound=Mapping[str, Any])


class GoneError(Exception):
    """Whoever asked does not wait for the answer any more."""


class JsonResponse(Response):
    """A value as JSON. A lone surrogate becomes its escape."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else encoded(content)


def encoded(content: Any) -> bytes:
    """A value as JSON in UTF-8."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def fitting(found: Iterable[_Shape]) -> Iterator[_Shape]:
    """The first ones of what a page is made of, as many as fit; one in any case."""
    left = PAGE_BYTES
    for one in found:
        length = len(encoded(one))
        if length > left < PAGE_BYTES:
            return
        left -= length
        yield one


def event(name: str, data: Mapping[str, Any]) -> bytes:
    """An event as a stream has it. JSON is one line, so no data can begin another event."""
    return b"event: " + name.encode() + b"\ndata: " + encoded(data) + b"\n\n"


class EventStream(Response):
    """Events as they come.

    When the client goes away, or does not read, the iterator is closed at once, also while it
    waits.
    """

    media_type = EVENTS

    def __init__(self, events: AsyncIterator[bytes], *, over: asyncio.Event, last: bytes) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._over = over  # the service stops
        self._last = last  # the event that says so

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        ends = [asyncio.ensure_future(gone(receive)), asyncio.ensure_future(self._over.wait())]
        try:
            await self._write(send, ends)
        finally:
            for one in ends:
                one.cancel()
            await self._events.aclose()  # type: ignore[attr-defined]
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, ends: Sequence[asyncio.Future[Any]]) -> None:
        following: asyncio.Future[bytes | None] | None = None
        now = asyncio.get_running_loop().time
        end: float | None = None  # when the last event is sent, once the service stops
        try:
            while True:
                following = following or asyncio.ensure_future(anext(self._events, None))
                done, _ = await asyncio.wait(
                    [following, *ends], timeout=PING_S, return_when=asyncio.FIRST_COMPLETED
                )
                if ends[0] in done:
                    return
                if ends[1] in done:
                    end = end or now() + LAST_S
                    # what is at its end needs no other
                    await asyncio.wait([following], timeout=end - now())
                is_last = end is not None and (now() >= end or not following.done())
                chunk: bytes | None = self._last if is_last else b": \n\n"
                if following.done() and not is_last:
                    chunk, following = following.result(), None
                if chunk is None:
                    return
                async with asyncio.timeout(READ_S):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if is_last:
                    return
        except (OSError, TimeoutError):
            return
        finally:
            if following is not None:
                following.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await following


async def gone(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Awaitable[_T], stop: Callable[[], None]) -> _T:
    """What work comes to. If the client goes away before, or time is up, it is stopped."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait([doing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise GoneError
        return doing.result()
    finally:
        leaving.cancel()
        if not doing.done():
            stop()
            doing.cancel()
