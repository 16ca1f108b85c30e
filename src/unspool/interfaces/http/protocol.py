"""uvicorn's HTTP protocol, with what it lacks: headers that take for ever or never end close the connection, and streams hear of a stop."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADERS_S = 10.0  # how long the headers of a request may take to arrive
HEADERS_BYTES = 65_536
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b'content-length: 81\r\n\r\n{"error":{"code":"too_large","message":"the headers have more than 65536 bytes"}}'
)

_Base: Any = AutoHTTPProtocol  # httptools' where it is installed, else h11's


class BoundedProtocol(_Base):  # type: ignore[misc]
    """A connection. Between requests uvicorn's own time limit holds, within one that of `middleware.Bounds`; this is for what lies between."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        if not self._is_answering():
            self._size += len(data)
        super().data_received(data)
        if self.cycle is not before or self._is_answering():
            self._settle()
        elif self._size > HEADERS_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            self._expect()

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
