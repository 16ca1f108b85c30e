"""Connections to a service, over which calls are sent."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, TypeVar

import httpx2

from unspool.calling import Stream, trusted
from unspool.client.call import Call
from unspool.client.service import Service
from unspool.errors import InputError, NotFoundError, UnspoolError
from unspool.threads import get_cancellation

_T = TypeVar("_T")
_U = TypeVar("_U")


class Sender:
    """Connections to a service. Safe to use from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._is_closed = False
        self._client = httpx2.Client(**_build_options(service))
        # One connection for each answer: how to reach its socket, and end it from another thread,
        # is known only while it is made.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._apart = httpx2.Client(**_build_options(service), limits=limits)
        weakref.finalize(self, self._client.close)
        weakref.finalize(self, self._apart.close)
        # it logs every address it calls, and with it what was asked for
        logging.getLogger("httpx2").setLevel(logging.WARNING)

    def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        self._client.close()
        self._apart.close()

    def send(self, call: Call[_T]) -> _T:
        """Send a call and return its value. Retry as long as that may help."""
        return self.retry(call, partial(self._send_once, call))

    def find(self, call: Call[_T], otherwise: _U) -> _T | _U:
        """Send a call and return its value, or `otherwise` if nothing is found."""
        try:
            return self.send(call)
        except NotFoundError:
            return otherwise

    def retry(self, call: Call[Any], attempt: Callable[[], _T]) -> _T:
        """Return the result of the first attempt at a call that succeeds."""
        cancellation = get_cancellation()
        pause: float | None = 0.0
        for number in count(1):
            cancellation.wait(pause or 0.0)
            try:
                return attempt()
            except UnspoolError as error:
                pause = self.service.pause(call, error, number)
                if pause is None:
                    raise
        raise AssertionError("unreachable")

    def stream(self, call: Call[Any]) -> Stream:
        """Return the response as a stream of bytes."""
        self._check_open()
        url, content = self.service.url(call), call.content()
        return Stream(
            self.service,
            lambda extensions: self._apart.stream(
                call.method,
                url,
                content=content,
                headers=_build_headers(content),
                extensions=extensions,
            ),
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError("the corpus is closed; open it again")

    def _send_once(self, call: Call[_T]) -> _T:
        self._check_open()
        content = call.content()
        deadline = time.monotonic() + self.service.request_s
        try:
            with self._client.stream(
                call.method,
                self.service.url(call),
                content=content,
                headers=_build_headers(content),
            ) as coming:
                data = bytearray()
                for some in coming.iter_bytes():
                    data += some
                    # the client only bounds the wait for each piece
                    if time.monotonic() > deadline:
                        raise self.service.late()
        except httpx2.TimeoutException as error:
            raise self.service.late() from error
        except httpx2.HTTPError as error:
            self._check_open()
            raise self.service.away(error) from error
        return self.service.value(call, _build_response(coming, data))


def _build_options(service: Service) -> dict[str, Any]:
    """Return the options of every HTTP client.

    A proxy that the environment names reads all that is not encrypted, the key with it.
    """
    return {
        "timeout": service.patience,
        "headers": service.headers,
        "verify": trusted(),
        "trust_env": service.is_encrypted,
    }


def _build_headers(content: bytes | None) -> dict[str, str]:
    return {} if content is None else {"Content-Type": "application/json"}


def _build_response(coming: httpx2.Response, data: bytearray) -> httpx2.Response:
    """Return a response with its complete, uncompressed body."""
    headers = coming.headers.copy()
    headers.pop("content-encoding", None)
    return httpx2.Response(coming.status_code, headers=headers, content=bytes(data))
