"""Responses: JSON, and server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from typing import Any, TypeVar

from anyio import CancelScope
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

EVENTS = "text/event-stream"
PING_S = 15.0  # between events, because proxies close silent connections
PAGE_BYTES = 8_000_000  # of a page whose items may be large
_T = TypeVar("_T")
_Shape = TypeVar("_Shape", bound=Mapping[str, Any])


class JsonResponse(Response):
    """Response with a value as JSON, or with JSON as bytes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else encode(content)


def encode(content: Any) -> bytes:
    """Return a value as JSON in UTF-8. A lone surrogate becomes its escape."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def fit_page(items: Iterable[_Shape]) -> Iterator[_Shape]:
    """Yield the first items that fit on a page, at least one."""
    left = PAGE_BYTES
    for item in items:
        length = len(encode(item))
        if length > left < PAGE_BYTES:
            return
        left -= length
        yield item


def encode_event(name: str, data: Mapping[str, Any]) -> bytes:
    """Return a server-sent event. JSON is one line, so no data can start another event."""
    return b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


class EventStream(StreamingResponse):
    """Server-sent events, with a comment while there are none.

    The iterator is closed when the client disconnects or the service stops.
    """

    media_type = EVENTS

    def __init__(
        self, events: AsyncGenerator[bytes], *, stopping: asyncio.Event, last: bytes
    ) -> None:
        super().__init__(
            _add_pings(events, stopping, last),
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().__call__(scope, receive, send)


async def _add_pings(
    events: AsyncGenerator[bytes], stopping: asyncio.Event, last: bytes
) -> AsyncGenerator[bytes]:
    """Yield events and comments; when the service stops, the last event."""
    stop: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
    following: asyncio.Future[Any] = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait(
                [following, stop], timeout=PING_S, return_when=asyncio.FIRST_COMPLETED
            )
            if stop in done:
                yield last
                return
            chunk = following.result() if done else b": \n\n"
            if chunk is None:
                return
            yield chunk
            if done:
                following = asyncio.ensure_future(anext(events, None))
    finally:
        stop.cancel()
        following.cancel()
        # a disconnect cancels the task again at every await
        with CancelScope(shield=True):
            await asyncio.gather(following, return_exceptions=True)
            await events.aclose()


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_until_disconnect(
    receive: Receive, work: Awaitable[_T], stop: Callable[[], None]
) -> _T:
    """Return the result of some work. It is stopped when the client disconnects or time is up."""
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait([running, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientDisconnect
        return running.result()
    finally:
        leaving.cancel()
        if not running.done():
            stop()
            running.cancel()
