"""Address and key of a service, the meaning of its responses, and when to retry.

Nothing is sent here.
"""

from __future__ import annotations

import ipaddress
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from unspool import errors
from unspool.calling import CONNECT_S, retry_after
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
from unspool.pacing import pause_after
from unspool.settings.masking import MASK

GRACE_S = 10.0  # beyond what a request may take: the way there and back
RETRIES = 3
PATIENCE_S = 30.0  # somebody waits: a service that asks for more than this is not waited for
MAX_MESSAGE = 2_000  # characters of what a service says is wrong
_T = TypeVar("_T")
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
    """Service at an address. Its `str` never contains the key."""

    def __init__(self, address: str, *, key: str, request_s: float, answer_s: float) -> None:
        self.place = _place(address)
        if not key.isascii() or re.search(r"[\s\x00-\x1f\x7f]", key):
            raise ConfigError("the key holds a space or a character that no key has; copy it again")
        if key and not _is_private(self.place):
            warnings.warn(
                f"the key is sent to {self.place} without encryption; use https:// for any "
                f"machine but this one",
                stacklevel=3,
            )
        self._key = key
        self.request_s = request_s + GRACE_S
        # of an answer from the question to its last word
        self.timeout_s = request_s + answer_s + GRACE_S

    def __str__(self) -> str:
        return f"the service at {self.place}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        own = {"Accept": "application/json, text/event-stream", "User-Agent": "unspool"}
        return {**own, "Authorization": f"Bearer {self._key}"} if self._key else own

    @property
    def is_encrypted(self) -> bool:
        """True if the connection is encrypted."""
        return self.place.startswith("https:")

    @property
    def patience(self) -> httpx2.Timeout:
        """Time-outs of each step of a request."""
        return httpx2.Timeout(self.request_s, connect=min(CONNECT_S, self.request_s))

    def url(self, call: Call[Any]) -> str:
        """The whole address of a call."""
        return self.place + call.target

    def value(self, call: Call[_T], answer: httpx2.Response) -> _T:
        """Parse a response. Raise the error that it contains."""
        if answer.status_code not in (200, 201, 202):
            raise self.error_of(answer)
        try:
            return call.parse(answer.json())
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self.strange(
                f"with something that cannot be read ({type(error).__name__})"
            ) from error

    def error_of(self, answer: httpx2.Response) -> UnspoolError:
        """Return the error of a failed response, as a corpus of this process raises it."""
        said = _parse_error(answer)
        if said is None:
            return self._by_proxy(answer.status_code)
        code, message, request_id = said
        error = self.build_error(
            code, message, status=answer.status_code, retry_after=retry_after(answer.headers)
        )
        if request_id:
            error.request_id = request_id
            error.add_note(f"{self} knows more of it as request {request_id}")
        return error

    def build_error(
        self, code: str, message: str, *, status: int = 500, retry_after: float | None = None
    ) -> UnspoolError:
        """The error that a code stands for."""
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

    def _by_proxy(self, status: int) -> UnspoolError:
        """Return the error for a response of a proxy."""
        if status in (429, 502, 503, 504):
            return UnreachableError(
                f"{self} cannot be reached through what stands before it ({status}); try again "
                f"later"
            )
        if 300 <= status < 400:
            return ServiceError(
                f"{self} says that it is elsewhere ({status}); give the address that it leads to"
            )
        return self.strange(f"with {status} and not as unspool does")

    def strange(self, how: str) -> ServiceError:
        """An answer that is none."""
        return ServiceError(
            f"{self} answered {how}; check that this is the address of `unspool serve`, of a "
            f"version like this one"
        )

    def away(self, error: Exception) -> UnreachableError:
        """A service that could not be reached."""
        return UnreachableError(
            f"{self} cannot be reached ({type(error).__name__}); start it with `unspool serve`, "
            f"or correct the address"
        )

    def late(self) -> ServiceTimeoutError:
        """A service that took too long."""
        return ServiceTimeoutError(
            f"{self} did not answer in time; try again, or raise UNSPOOL_SERVE_TIMEOUT_S there "
            f"and here"
        )

    def pause(self, call: Call[Any], error: UnspoolError, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none."""
        may_help = call.repeats or isinstance(error, ThrottledError)  # which has done nothing yet
        if (
            attempt > RETRIES
            or not may_help
            or isinstance(error, ServiceTimeoutError | OverdueError)
        ):
            return None
        pause = pause_after(error, attempt)
        return pause if pause is not None and pause <= PATIENCE_S else None


def _place(address: str) -> str:
    """The address as it is called and shown.

    One that holds a password is refused and not repeated.
    """
    try:
        parts = urlsplit(address.strip())
        is_one = (
            parts.scheme in ("http", "https")
            and parts.port != 0
            and bool((parts.hostname or "").encode("idna"))
        )
    except ValueError:  # a port that is no number, a name that is none
        is_one = False
    if not is_one:
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


def _parse_error(answer: httpx2.Response) -> tuple[str, str, str] | None:
    """Code, message and request id of an error as unspool writes it."""
    try:
        found = json.loads(answer.content)["error"]
        code, message, request_id = found["code"], found["message"], found.get("request_id") or ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not all(isinstance(one, str) for one in (code, message, request_id)):
        return None
    return code, message[:MAX_MESSAGE], request_id[:100]


def _by_code() -> dict[str, type[UnspoolError]]:
    """Every error of the tree under its code; where two have the same, the one nearer to the
    root.
    """
    known: dict[str, type[UnspoolError]] = {}
    waiting: list[type[UnspoolError]] = [UnspoolError]
    while waiting:
        one = waiting.pop(0)
        known.setdefault(one.code, one)
        waiting += [other for other in one.__subclasses__() if other.__module__ == errors.__name__]
    return known


_BY_CODE = _by_code()
