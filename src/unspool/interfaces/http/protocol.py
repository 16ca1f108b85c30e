"""uvicorn's HTTP protocol, with what it lacks: headers that take for ever or never end and answers
that nobody reads close the connection, and streams hear of a stop."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADERS_S = 10.0  # how long the headers of a request may take to arrive
HEADERS_BYTES = 65_536
# what is left unread of an answer takes memory: how long a client may read none of it, or next to
# none
UNREAD_S = 30.0
READ_BYTES = 65_536
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\n"
    b'content-length: 81\r\n\r\n{"error":{"code":"too_large","message":"the headers have more '
    b'than 65536 bytes"}}'
)

_Base: Any = AutoHTTPProtocol  # httptools' where it is installed, else h11's


class BoundedProtocol(_Base):  # type: ignore[misc]
    """A connection.

    Between requests uvicorn's own time limit holds, within one that of `middleware.Bounds`; this is
    for what lies between.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        # else it is of a body; who sends the next request before an answer has no more room
        if not self._is_answering() or not before.more_body:
            self._size += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._settle()
        elif self._size > HEADERS_BYTES and not self.transport.is_closing():
            if self._is_answering():
                self.transport.abort()
                return
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif not self._is_answering():
            self._expect()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._unwatch()
        super().resume_writing()

    def shutdown(self) -> None:
        self.app.stop()
        super().shutdown()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEADERS_S, self.transport.close)

    def _settle(self) -> None:
        self._size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Close the connection if too little of what waits to be sent is read.

        Nothing is added to that in the meantime.
        """
        before = self.transport.get_write_buffer_size()

        def look() -> None:
            if before - self.transport.get_write_buffer_size() < READ_BYTES:
                self.transport.abort()
            else:
                self._watch()

        self._unwatch()
        self._reading = self.loop.call_later(UNREAD_S, look)

    def _unwatch(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
