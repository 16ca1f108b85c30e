"""Responses as streams of bytes, which any thread can end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

import httpx2

from unspool.errors import ServiceTimeoutError, UnreachableError, UnspoolError

MAX_ERROR_BYTES = 65_536  # of the body of an error


class StreamingServer(Protocol):
    """Server that responds with a stream: its time limit and its errors."""

    timeout_s: float

    def error_of(self, response: httpx2.Response) -> UnspoolError:
        """Return the error for a response without success."""

    def away(self, error: Exception) -> UnreachableError:
        """Return the error for a server that could not be reached."""

    def late(self) -> ServiceTimeoutError:
        """Return the error for a server that took too long."""


class ResponseStream:
    """Response in bytes, as they arrive.

    `close` may be called from any thread and ends the request at once, as does the time limit. The
    first piece is empty: it reports that the server has accepted the request.
    """

    def __init__(
        self,
        server: StreamingServer,
        call: Callable[[dict[str, Any]], AbstractContextManager[httpx2.Response]],
    ) -> None:
        self._server = server
        self._call = call
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_closed = self._is_late = False
        self.content_type = ""  # known with the first piece

    def __iter__(self) -> Generator[bytes, None, None]:
        # the client limits only the wait for each piece
        timer = threading.Timer(self._server.timeout_s, self._expire)
        timer.daemon = True
        timer.start()
        has_begun = False
        try:
            with self._call({"trace": self._trace}) as coming:
                if coming.status_code != 200:
                    raise self._server.error_of(_read_error(coming))
                has_begun = True
                self.content_type = (
                    coming.headers.get("content-type", "").partition(";")[0].strip().lower()
                )
                yield b""
                yield from coming.iter_bytes()
            self._check()  # a cut connection can look like a complete response
        except httpx2.HTTPError as error:
            self._check()
            if isinstance(error, httpx2.TimeoutException):
                raise self._server.late() from error
            if has_begun:
                raise UnreachableError(
                    f"{self._server} broke off in the middle of its answer "
                    f"({type(error).__name__}); try again"
                ) from error
            raise self._server.away(error) from error
        finally:
            timer.cancel()
            with self._guard:
                self._socket = None

    def close(self) -> None:
        """End the request. A thread that reads gets a `CancelledError`."""
        self._is_closed = True
        self._cut()

    def _expire(self) -> None:
        self._is_late = True
        self._cut()

    def _check(self) -> None:
        if self._is_closed:
            raise CancelledError
        if self._is_late:
            raise self._server.late()

    def _trace(self, name: str, details: dict[str, Any]) -> None:
        """Remember the socket, which the client reports.

        Closing the response from another thread would not wake the reader.
        """
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._guard:
                self._socket = details["return_value"].get_extra_info("socket")
            self._check()  # it may have been closed before the socket existed

    def _cut(self) -> None:
        with self._guard:
            if self._socket is not None:
                with suppress(OSError):  # the socket is closed
                    # the method of TLS sockets would say goodbye first
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _read_error(coming: httpx2.Response) -> httpx2.Response:
    """Return a response with the beginning of its body, which may be endless."""
    body = b""
    for piece in coming.iter_bytes(MAX_ERROR_BYTES):
        body += piece
        if len(body) >= MAX_ERROR_BYTES:
            break
    headers = coming.headers.copy()
    headers.pop("content-encoding", None)  # the body is unpacked
    return httpx2.Response(coming.status_code, headers=headers, content=body)
