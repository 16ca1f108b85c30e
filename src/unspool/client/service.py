"""Connection to a service: sends calls, retries them, and turns responses into values or errors."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from unspool import errors
from unspool.calling import CONNECT_S, load_certificates, retry_after
from unspool.client.call import Call
from unspool.errors import (
    AddressError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    OverdueError,
    RateLimitedError,
    ServiceError,
    ServiceTimeoutError,
    ThrottledError,
    TooLargeError,
    UnauthenticatedError,
    UnreachableError,
    UnspoolError,
    UnsupportedError,
)
from unspool.pacing import compute_pause
from unspool.settings.masking import MASK
from unspool.streaming import ResponseStream
from unspool.threads import get_cancellation

GRACE_S = 10.0  # for the network, beyond the time that the service gives a request
RETRIES = 3
PATIENCE_S = 30.0  # the longest pause that a service may ask for: a person waits
MAX_MESSAGE = 2_000  # characters of an error message
# raised by the parsers for a body that is not what this version expects
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
_T = TypeVar("_T")
_U = TypeVar("_U")
_BY_CODE: Mapping[str, type[UnspoolError]] = {
    kind.code: kind
    # parents are defined before their subclasses, and win where both have the same code
    for kind in reversed(vars(errors).values())
    if isinstance(kind, type) and issubclass(kind, UnspoolError)
}
_BY_STATUS: Mapping[int, type[UnspoolError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    421: ConfigError,
    429: ThrottledError,
    501: UnsupportedError,
    503: UnreachableError,
    504: OverdueError,
}


class Service:
    """Service at an address. Safe to use from several threads. Its `str` never contains the key."""

    def __init__(self, address: str, *, key: str, request_s: float, answer_s: float) -> None:
        self.place = _parse_address(address)
        if not key.isascii() or re.search(r"[\s\x00-\x1f\x7f]", key):
            raise ConfigError("the key holds a space or a character that no key has; copy it again")
        if key and not _is_private(self.place):
            warnings.warn(
                f"the key is sent to {self.place} without encryption; use https:// for any "
                f"machine but this one",
                stacklevel=3,
            )
        self._key = key
        self._request_s = request_s + GRACE_S
        # of an answer, from the question to its last word
        self.timeout_s = request_s + answer_s + GRACE_S
        self._is_closed = False
        options: dict[str, Any] = {
            "timeout": httpx2.Timeout(self._request_s, connect=min(CONNECT_S, self._request_s)),
            "headers": {
                "Accept": "application/json, text/event-stream",
                "User-Agent": "unspool",
                **({"Authorization": f"Bearer {key}"} if key else {}),
            },
            "verify": load_certificates(),
            # a proxy of the environment could read an unencrypted request and its key
            "trust_env": self.place.startswith("https:"),
        }
        self._client = httpx2.Client(**options)
        # Each answer has its own connection: its socket, which another thread may have to close,
        # is known only while the connection is made.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._stream_client = httpx2.Client(**options, limits=limits)
        weakref.finalize(self, self._client.close)
        weakref.finalize(self, self._stream_client.close)
        # it logs every URL, which contains names of documents
        logging.getLogger("httpx2").setLevel(logging.WARNING)

    def __str__(self) -> str:
        return f"the service at {self.place}"

    def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        self._client.close()
        self._stream_client.close()

    def send(self, call: Call[_T]) -> _T:
        """Send a call and return its value. Retry as long as that may help."""
        return self.retry(call, partial(self._send_once, call))

    def find(self, call: Call[_T], otherwise: _U) -> _T | _U:
        """Send a call and return its value, or `otherwise` if nothing is found."""
        try:
            return self.send(call)
        except NotFoundError:
            return otherwise

    def stream(self, call: Call[Any]) -> ResponseStream:
        """Return the response as a stream of bytes."""
        self._check_open()
        request = self.build_request(call)
        return ResponseStream(
            self,
            lambda extensions: self._stream_client.stream(**request, extensions=extensions),
        )

    def retry(self, call: Call[Any], attempt: Callable[[], _T]) -> _T:
        """Return the result of the first attempt at a call that succeeds."""
        cancellation = get_cancellation()
        number, pause = 1, 0.0
        while True:
            cancellation.wait(pause)
            try:
                return attempt()
            except UnspoolError as error:
                chosen = self.choose_pause(call, error, number)
                if chosen is None:
                    raise
            number, pause = number + 1, chosen

    def choose_pause(self, call: Call[Any], error: UnspoolError, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none."""
        # a throttled request has changed nothing
        may_repeat = call.repeats or isinstance(error, ThrottledError)
        is_late = isinstance(error, ServiceTimeoutError | OverdueError)
        if attempt > RETRIES or not may_repeat or is_late:
            return None
        pause = compute_pause(error, attempt)
        return pause if pause is not None and pause <= PATIENCE_S else None

    def _send_once(self, call: Call[_T]) -> _T:
        self._check_open()
        deadline = time.monotonic() + self._request_s
        body = bytearray()
        try:
            with self._client.stream(**self.build_request(call)) as response:
                for data in response.iter_bytes():
                    body += data
                    # the client limits only the wait for each piece
                    if time.monotonic() > deadline:
                        raise self.late()
        except httpx2.TimeoutException as error:
            raise self.late() from error
        except httpx2.HTTPError as error:
            self._check_open()
            raise self.away(error) from error
        headers = response.headers.copy()
        headers.pop("content-encoding", None)  # the body is decoded already
        complete = httpx2.Response(response.status_code, headers=headers, content=bytes(body))
        return self.parse_response(call, complete)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError("the corpus is closed; open it again")

    def build_request(self, call: Call[Any]) -> dict[str, Any]:
        """Return the arguments with which an HTTP client sends a call."""
        headers = {} if call.content is None else {"Content-Type": "application/json"}
        url = self.place + call.target
        return {"method": call.method, "url": url, "content": call.content, "headers": headers}

    def parse_response(self, call: Call[_T], response: httpx2.Response) -> _T:
        """Return the value of a response. Raise the error that it contains."""
        if response.status_code not in (200, 201, 202):
            raise self.error_of(response)
        try:
            return call.parse(response.json())
        except UNREADABLE as error:
            raise self.build_protocol_error(
                f"with something that cannot be read ({type(error).__name__})"
            ) from error

    def error_of(self, response: httpx2.Response) -> UnspoolError:
        """Return the error of a failed response, as a corpus of this process raises it."""
        found, status = _parse_error(response), response.status_code
        if found is None:
            return self._build_proxy_error(status)
        code, message, request_id = found
        pause = retry_after(response.headers)
        error = self.build_error(code, message, status=status, retry_after=pause)
        if request_id:
            error.request_id = request_id
            error.add_note(f"{self} logged it as request {request_id}")
        return error

    def build_error(
        self, code: str, message: str, *, status: int = 500, retry_after: float | None = None
    ) -> UnspoolError:
        """Return the error of a code."""
        if self._key:
            message = message.replace(self._key, MASK)
        kind = (
            _BY_CODE.get(code)
            or _BY_STATUS.get(status)
            or (InputError if 400 <= status < 500 else ServiceError)
        )
        if issubclass(kind, ThrottledError | RateLimitedError):
            return kind(message, retry_after=retry_after)
        return kind(message)

    def _build_proxy_error(self, status: int) -> UnspoolError:
        """Return the error for a response that unspool has not written."""
        if status in (429, 502, 503, 504):
            return UnreachableError(
                f"{self} cannot be reached through its proxy ({status}); try again later"
            )
        if 300 <= status < 400:
            return ServiceError(
                f"{self} redirects to another address ({status}); give that address"
            )
        return self.build_protocol_error(f"with {status} and not as unspool does")

    def build_protocol_error(self, how: str) -> ServiceError:
        """Return the error for a response that no service of this version gives."""
        return ServiceError(
            f"{self} answered {how}; check that this is the address of `unspool serve`, of a "
            f"version like this one"
        )

    def away(self, error: Exception) -> UnreachableError:
        """Return the error for a service that cannot be reached."""
        return UnreachableError(
            f"{self} cannot be reached ({type(error).__name__}); start it with `unspool serve`, "
            f"or correct the address"
        )

    def late(self) -> ServiceTimeoutError:
        """Return the error for a service that took too long."""
        return ServiceTimeoutError(
            f"{self} did not answer in time; try again, or raise UNSPOOL_SERVE_TIMEOUT_S there "
            f"and here"
        )


def _parse_address(address: str) -> str:
    """Return an address without its trailing slash.

    An address with a password is refused, and the message does not repeat it.
    """
    try:
        parts = urlsplit(address.strip())
        is_valid = (
            parts.scheme in ("http", "https")
            and parts.port != 0
            and bool((parts.hostname or "").encode("idna"))
        )
    except ValueError:  # an invalid port or host name
        is_valid = False
    if not is_valid:
        raise AddressError(
            "this is no address of a service; give one such as http://localhost:8765"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise AddressError(
            f"the address of a service is only a place, such as http://{parts.hostname}:8765; a "
            f"key is given as key=, or by UNSPOOL_KEY"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _is_private(place: str) -> bool:
    """Return True if nobody on the way can read the traffic."""
    parts = urlsplit(place)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse_error(response: httpx2.Response) -> tuple[str, str, str] | None:
    """Return code, message and request id of an error; None if unspool has not written it."""
    try:
        found = response.json()["error"]
        code, message, request_id = found["code"], found["message"], found.get("request_id") or ""
    except UNREADABLE:
        return None
    is_text = all(isinstance(one, str) for one in (code, message, request_id))
    return (code, message[:MAX_MESSAGE], request_id[:100]) if is_text else None
