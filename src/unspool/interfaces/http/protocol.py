"""uvicorn's HTTP protocol, with limits of headers and of the time to read a response."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from unspool.errors import InputError, TooLargeError
from unspool.interfaces.http.errors import create_body
from unspool.interfaces.http.responses import JsonResponse

# longer than a client keeps an unused connection, so that none is closed under a request
KEEP_ALIVE_S = 30
HEADERS_S = 10.0  # time for the first headers of a connection
HEADERS_BYTES = 65_536
MAX_QUEUED = 100  # requests that a client sends before it has a response; uvicorn keeps them all
UNREAD_S = 30.0  # time for a client to read a part of a response


class LimitedProtocol(HttpToolsProtocol):
    """Connection that ends unless headers arrive and responses are read in time.

    uvicorn's protocol for h11 limits headers itself, but takes longer: 39 % for /health, 4 to 7 %
    for projects, documents and searches (CPU time, 10th percentile of 40 runs).
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_body = False
        self._size = 0  # of headers that are incomplete
        self._deadline = self.loop.call_later(HEADERS_S, self._abort_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        cycle, is_body = self.cycle, self._is_body
        super().data_received(data)
        # data in which headers end is not counted, as the rest of it may be a body
        self._size = 0 if is_body or self.cycle is not cycle else self._size + len(data)
        if self._size > HEADERS_BYTES or len(self.pipeline) > MAX_QUEUED:
            self._refuse(
                431, TooLargeError(f"the headers have more than {HEADERS_BYTES} bytes; send fewer")
            )

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._is_body = True

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_body = False

    def send_400_response(self, msg: str) -> None:
        """Respond to a request that is invalid HTTP; uvicorn's own response is no JSON."""
        self._refuse(400, InputError("the request is not valid HTTP/1.1"))

    def on_response_complete(self) -> None:
        self._deadline.cancel()
        self._deadline = self.loop.call_later(KEEP_ALIVE_S + HEADERS_S, self._abort_if_idle)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._unread.cancel()
        super().resume_writing()

    def shutdown(self) -> None:
        """End streams, because the server waits for them when it stops."""
        self.app.state.service.stopping.set()
        super().shutdown()

    def _abort_if_idle(self) -> None:
        """Abort the connection, unless a request is in progress."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def _refuse(self, status: int, error: InputError) -> None:
        """Respond with an error and close the connection. A response in progress is cut off."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
        elif not self.transport.is_closing():
            response = JsonResponse(create_body(error), headers={"Connection": "close"})
            headers = [b"%b: %b\r\n" % header for header in response.raw_headers]
            self.transport.write(
                b"".join([STATUS_LINE[status], *headers, b"\r\n", bytes(response.body)])
            )
            self.transport.close()
