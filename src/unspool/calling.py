"""Calls to hosted models over HTTP: one client, and one table of what an answer means.

Embedders and answers use it.
"""

from __future__ import annotations

import email.utils
import functools
import logging
import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx2

from unspool.errors import (
    AddressError,
    ConfigError,
    InputError,
    RateLimitedError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)

# a word such as context_length_exceeded; a sentence may repeat what was sent, or the key
_REASON = re.compile(r"[\w.-]{1,60}")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
CONNECT_S = 10.0
MAX_ERROR_BYTES = 65_536  # of what a server says instead of beginning to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What messages tell to change: the beginning of the variables' names, the one that names
    the model, and two hints.
    """

    prefix: str
    model: str
    slower: str  # what helps where a server asks to be called less often
    refused: str  # what may be the matter where it refuses what it was sent

    @property
    def url(self) -> str:
        return f"{self.prefix}_URL"

    @property
    def key(self) -> str:
        return f"{self.prefix}_KEY"

    @property
    def timeout(self) -> str:
        return f"{self.prefix}_TIMEOUT_S"


def trusted() -> ssl.SSLContext:
    """Whose certificates are believed, as httpx reads it, but not anew for each client, which
    takes 25 ms.
    """
    return _trusted(ssl.get_default_verify_paths())


@functools.lru_cache(maxsize=4)
def _trusted(paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # the environment says where they are, as `paths` tells


class Called(Protocol):
    """Who answers with a stream: how long one may take, and what it means that none comes."""

    timeout_s: float

    def error_of(self, answer: httpx2.Response) -> UnspoolError:
        """What an answer that is no success means."""
        ...

    def away(self, error: Exception) -> UnreachableError:
        """A server that could not be reached."""
        ...

    def late(self) -> ServiceTimeoutError:
        """A server that took too long."""
        ...


class Server:
    """One address that is called.

    Safe to use from several threads; it follows no redirection, which could carry the key
    elsewhere.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        key: str,
        timeout_s: float,
        headers: Mapping[str, str],
        names: Names,
        kept: int = 20,
    ) -> None:
        parts = parts_of(url, names)
        if not key.isascii() or re.search(r"[\s\x00-\x1f]", key):
            raise ConfigError(
                f"{names.key} holds a space or a character that no key has; copy it again"
            )
        port = f":{parts.port}" if parts.port else ""
        self.place = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
        self.names = names
        self.timeout_s = timeout_s
        self._name = name
        self._url = url
        self._key = key
        patience = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        limits = httpx2.Limits(max_keepalive_connections=kept)
        self._client = httpx2.Client(
            timeout=patience, headers=dict(headers), limits=limits, verify=trusted()
        )
        weakref.finalize(self, self._client.close)
        # it notes every address it calls, and one may hold a password
        logging.getLogger("httpx2").setLevel(logging.WARNING)

    def post(self, body: Mapping[str, Any]) -> Any:
        """What the server answers, read as JSON; whatever it says instead of an answer is an
        error that names it.
        """
        deadline = time.monotonic() + self.timeout_s
        try:
            with self._client.stream("POST", self._url, json=body) as coming:
                data = bytearray()
                for some in coming.iter_raw():
                    data += some
                    # the client only bounds the wait for each piece
                    if time.monotonic() > deadline:
                        raise self.late()
                answer = httpx2.Response(
                    coming.status_code, headers=coming.headers, content=bytes(data)
                )
        except httpx2.TimeoutException as error:
            raise self.late() from error
        except httpx2.HTTPError as error:
            raise self.away(error) from error
        if answer.status_code != 200:
            raise self.error_of(answer)
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise ServiceError(
                f"{self} did not answer with JSON; is {self.names.url} the address of its API?"
            ) from error

    def stream(self, body: Mapping[str, Any]) -> Stream:
        """What the server answers, piece by piece as it comes."""
        return Stream(
            self,
            lambda extensions: self._client.stream(
                "POST", self._url, json=body, extensions=extensions
            ),
        )

    def away(self, error: Exception) -> UnreachableError:
        """A server that could not be reached."""
        return UnreachableError(
            f"{self} cannot be reached ({type(error).__name__}); start it, or correct "
            f"{self.names.url}"
        )

    def late(self) -> ServiceTimeoutError:
        """A server that took too long."""
        return ServiceTimeoutError(
            f"{self} did not answer in time; try again, or raise {self.names.timeout}"
        )

    def wrong(self, what: str) -> ServiceError:
        """An answer that is none."""
        return ServiceError(f"{self} {what}; nothing of it was kept, see to that server")

    def __str__(self) -> str:
        return f"{self._name} at {self.place}"

    def error_of(self, answer: httpx2.Response) -> UnspoolError:
        """What an answer that is no success means."""
        status, reason = answer.status_code, _reason(answer)
        if self._key and self._key in reason:
            reason = ""
        said = f"{status} {reason}".strip()
        if status == 429 and reason not in ("insufficient_quota", "billing_hard_limit_reached"):
            after = retry_after(answer.headers)
            return RateLimitedError(
                f"{self} asks to be called less often ({said}); {self.names.slower}",
                retry_after=after,
            )
        if status in (503, 529) and (after := retry_after(answer.headers)) is not None:
            return RateLimitedError(
                f"{self} has too much to do ({said}); try again later", retry_after=after
            )
        if status in (401, 403):
            return RejectedError(
                f"{self} refused the key ({said}); set {self.names.key} to one that may use this "
                f"model"
            )
        if status in (402, 429):
            return RejectedError(
                f"{self} has no quota left for this key ({said}); raise it there, or set another "
                f"{self.names.key}"
            )
        if status in (404, 405) or 300 <= status < 400:
            return RejectedError(
                f"{self} has no such model or address ({said}); correct {self.names.model} or "
                f"{self.names.url}"
            )
        if status == 408:
            return ServiceTimeoutError(f"{self} gave up waiting ({said}); try again")
        if 400 <= status < 500:
            return _RefusedError(
                f"{self._name} refused what it was sent ({said}); {self.names.refused}", answer
            )
        return UnreachableError(f"{self} is not well ({said}); try again later")


class Stream:
    """One answer in bytes, as they come. `close` may be called from any thread and ends the request
    at once; so does the time limit.

    The first bytes are none: they say that the server has accepted, which may be long before it has
    something to say.
    """

    def __init__(
        self,
        server: Called,
        call: Callable[[dict[str, Any]], AbstractContextManager[httpx2.Response]],
    ) -> None:
        self._server = server
        self._call = call
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_closed = self._is_late = False
        self.content_type = ""  # known with the first bytes

    def __iter__(self) -> Generator[bytes, None, None]:
        # the client only bounds the wait for each piece
        late = threading.Timer(self._server.timeout_s, self._expire)
        late.daemon = True
        late.start()
        has_begun = False
        try:
            with self._call({"trace": self._trace}) as coming:
                if coming.status_code != 200:
                    raise self._server.error_of(_read_part(coming))
                has_begun = True
                self.content_type = (
                    coming.headers.get("content-type", "").partition(";")[0].strip().lower()
                )
                yield b""
                yield from coming.iter_bytes()
            self._check()  # a connection that was cut can look like one that ended
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
            late.cancel()
            with self._guard:
                self._socket = None

    def close(self) -> None:
        """End it. Whoever is reading gets a `CancelledError`."""
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
        """Told by the client of each step: the way to the socket, which closing the response
        from another thread would not wake.
        """
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._guard:
                self._socket = details["return_value"].get_extra_info("socket")
            self._check()  # it may have been closed before there was a socket to cut

    def _cut(self) -> None:
        with self._guard:
            if self._socket is not None:
                with suppress(OSError):  # it is gone already
                    # not that of TLS, which would say good-bye first
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _read_part(coming: httpx2.Response) -> httpx2.Response:
    """An answer with the beginning of what it says, which is where a server says what is wrong;
    it may go on and on.
    """
    said = b""
    for piece in coming.iter_bytes(MAX_ERROR_BYTES):
        said += piece
        if len(said) >= MAX_ERROR_BYTES:
            break
    headers = coming.headers.copy()
    headers.pop("content-encoding", None)  # it is unpacked already
    return httpx2.Response(coming.status_code, headers=headers, content=said)


def check_access(
    provider: str, model: str, *, url: str, key: str, example: str, names: Names
) -> None:
    """Refuse a provider without a model, or without the key that the provider's own server
    wants.
    """
    if not model:
        raise ConfigError(
            f"{provider} needs a model; set {names.model}={provider}:{example}, or the name your "
            f"server has for one"
        )
    if not key and not url:
        raise ConfigError(
            f"{provider} wants a key; set {names.key}, or {names.url} to a server of your own "
            f"that speaks the same"
        )


def key_headers(key: str, url: str) -> dict[str, str]:
    """How a key is shown to a server that speaks as OpenAI does; Azure wants it under another
    name.
    """
    if not key:
        return {}
    is_azure = (urlsplit(url).hostname or "").endswith((".azure.com", ".azure.us", ".azure.cn"))
    return {"api-key": key} if is_azure else {"Authorization": f"Bearer {key}"}


def endpoint(url: str, path: str, names: Names) -> str:
    """An address with the path of a call, unless it ends with it already; what stands behind a
    question mark, as Azure has it, stays.
    """
    parts = parts_of(url, names)
    given = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=given if given.endswith(path) else f"{given}{path}"))


def parts_of(url: str, names: Names) -> SplitResult:
    """The parts of an address, if it is one that can be called."""
    try:
        parts = urlsplit(url)
        if (
            parts.scheme in ("http", "https")
            and parts.port != 0
            and (parts.hostname or "").encode("idna")
            and httpx2.URL(url)
        ):
            return parts
    except (
        ValueError,
        httpx2.InvalidURL,
        # a port that is no number, a name that is none; the message would repeat the address, with
        # what it may hold
    ):
        pass
    raise AddressError(
        f"{names.url} is no address of a server; give one such as http://localhost:11434/v1"
    )


class _RefusedError(InputError):
    """The server says that the request is wrong.

    `about` holds what it said, for the caller to look into, never to show.
    """

    def __init__(self, message: str, answer: httpx2.Response) -> None:
        super().__init__(message)
        self.about = answer.text[:2000]

    def __reduce__(self) -> tuple[Any, ...]:
        return InputError, (str(self),)


def is_about(error: InputError, word: str) -> bool:
    """Whether a server refused a request because of a field of this name."""
    return isinstance(error, _RefusedError) and word in error.about


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to be left alone, in seconds: a number, a date, or milliseconds as
    some have it.
    """
    if _NUMBER.fullmatch(milliseconds := headers.get("retry-after-ms", "")):
        return float(milliseconds) / 1000
    text = headers.get("retry-after", "")
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):  # the last for a time zone without end
        return None
    return max(
        0.0,
        (
            (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)
        ).total_seconds(),
    )


def _reason(answer: httpx2.Response) -> str:
    """The word that a server has for what is wrong."""
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else {}
    words = [error.get(name) for name in ("code", "type")] if isinstance(error, dict) else []
    return next((word for word in words if isinstance(word, str) and _REASON.fullmatch(word)), "")
