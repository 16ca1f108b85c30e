"""Calls to hosted models over HTTP: a client, and the meaning of each response.

Embedders and answers use it.
"""

from __future__ import annotations

import email.utils
import functools
import logging
import re
import ssl
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

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
from unspool.streaming import ResponseStream

# a word such as context_length_exceeded; a sentence may repeat what was sent, or the key
_REASON = re.compile(r"[\w.-]{1,60}")
_AZURE = re.compile(r"https?://[^/?#]*\.azure\.(com|us|cn)(:[0-9]+)?([/?#]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names for error messages: the prefix of the variables, the variable of the model, and two
    cures.
    """

    prefix: str
    model: str
    slower: str  # cure if a server asks for fewer calls
    refused: str  # possible cause if a server refuses a request


class _Meaning(NamedTuple):
    """Error class, sentence and cure for some HTTP statuses."""

    statuses: frozenset[int]
    error: type[UnspoolError]
    happened: str
    cure: str


_MEANINGS = (
    _Meaning(
        frozenset({401, 403}),
        RejectedError,
        "refused the key",
        "set {prefix}_KEY to one that may use this model",
    ),
    _Meaning(
        frozenset({402, 429}),
        RejectedError,
        "has no quota left for this key",
        "raise it there, or set another {prefix}_KEY",
    ),
    _Meaning(
        frozenset({404, 405, *range(300, 400)}),
        RejectedError,
        "has no such model or address",
        "correct {model} or {prefix}_URL",
    ),
    _Meaning(frozenset({408}), ServiceTimeoutError, "gave up waiting", "try again"),
)


class ServerOptions(Protocol):
    """Options of a server: address, key and time limit of a call."""

    @property
    def url(self) -> str:
        """Address; empty for the provider's own."""

    @property
    def key(self) -> str:
        """Key; empty for none."""

    @property
    def timeout_s(self) -> int:
        """Time limit of a call."""


def load_certificates() -> ssl.SSLContext:
    """Return the trusted certificates as httpx loads them, but once instead of for each client,
    which takes 25 ms.
    """
    return _load_certificates(ssl.get_default_verify_paths())


@functools.lru_cache(maxsize=4)
def _load_certificates(paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # reads the same variables as `paths`


class ModelServer:
    """Address of a hosted model.

    Safe to use from several threads. Redirects are not followed, because they could leak the key.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        options: ServerOptions,
        *,
        url: str,
        path: str = "",
        example: str,
        names: Names,
        headers: Mapping[str, str],
        kept: int = 20,
    ) -> None:
        """Open a client. `url` is the provider's own address, `path` is appended to either."""
        _check_access(provider, model, options, example=example, names=names)
        self._url = build_url(options.url or url, path, names)
        parts = urlsplit(self._url)
        port = f":{parts.port}" if parts.port else ""
        self.place = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
        self.name = f"{provider}:{model}"
        self.names = names
        self.timeout_s: float = options.timeout_s
        self._key = options.key
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(self.timeout_s, connect=min(CONNECT_S, self.timeout_s)),
            headers=dict(headers),
            limits=httpx2.Limits(max_keepalive_connections=kept),
            verify=load_certificates(),
        )
        weakref.finalize(self, self._client.close)
        # it logs every address it calls, which may contain a password
        logging.getLogger("httpx2").setLevel(logging.WARNING)

    def post(self, body: Mapping[str, Any]) -> Any:
        """Return the server's response to a request, read as JSON."""
        deadline = time.monotonic() + self.timeout_s
        try:
            with self._client.stream("POST", self._url, json=body) as coming:
                data = bytearray()
                for piece in coming.iter_raw():
                    data += piece
                    # the client limits only the wait for each piece
                    if time.monotonic() > deadline:
                        raise self.late()
        except httpx2.TimeoutException as error:
            raise self.late() from error
        except httpx2.HTTPError as error:
            raise self.away(error) from error
        response = httpx2.Response(coming.status_code, headers=coming.headers, content=bytes(data))
        if response.status_code != 200:
            raise self.error_of(response)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise ServiceError(
                f"{self} did not answer with JSON; is {self.names.prefix}_URL the address of its "
                f"API?"
            ) from error

    def stream(self, body: Mapping[str, Any]) -> ResponseStream:
        """Return the server's response, piece by piece."""
        return ResponseStream(
            self,
            lambda extensions: self._client.stream(
                "POST", self._url, json=body, extensions=extensions
            ),
        )

    def away(self, error: Exception) -> UnreachableError:
        """Return the error for a server that could not be reached."""
        return UnreachableError(
            f"{self} cannot be reached ({type(error).__name__}); start it, or correct "
            f"{self.names.prefix}_URL"
        )

    def late(self) -> ServiceTimeoutError:
        """Return the error for a server that took too long."""
        return ServiceTimeoutError(
            f"{self} did not answer in time; try again, or raise {self.names.prefix}_TIMEOUT_S"
        )

    def wrong(self, what: str) -> ServiceError:
        """Return the error for an invalid response."""
        return ServiceError(f"{self} {what}; nothing of it was kept, check that server")

    def __str__(self) -> str:
        return f"{self.name} at {self.place}"

    def error_of(self, response: httpx2.Response) -> UnspoolError:
        """Return the error for a response without success."""
        status, reason, names = response.status_code, _read_reason(response), self.names
        if self._key and self._key in reason:
            reason = ""
        said = f"{status} {reason}".strip()
        after = retry_after(response.headers)
        if status == 429 and reason not in ("insufficient_quota", "billing_hard_limit_reached"):
            return RateLimitedError(
                f"{self} asks to be called less often ({said}); {names.slower}", retry_after=after
            )
        if status in (503, 529) and after is not None:
            return RateLimitedError(
                f"{self} has too much to do ({said}); try again later", retry_after=after
            )
        for one in _MEANINGS:
            if status in one.statuses:
                cure = one.cure.format(prefix=names.prefix, model=names.model)
                return one.error(f"{self} {one.happened} ({said}); {cure}")
        if 400 <= status < 500:
            return _RefusedError(
                f"{self.name} refused what it was sent ({said}); {names.refused}", response
            )
        return UnreachableError(f"{self} is not well ({said}); try again later")


def _check_access(
    provider: str, model: str, options: ServerOptions, *, example: str, names: Names
) -> None:
    """Reject a missing model, an invalid key, and a missing key for the provider's own server."""
    if not model:
        raise ConfigError(
            f"{provider} needs a model; set {names.model}={provider}:{example}, or the name your "
            f"server has for one"
        )
    if not options.key and not options.url:
        raise ConfigError(
            f"{provider} needs a key; set {names.prefix}_KEY, or {names.prefix}_URL to a server "
            f"of your own that speaks the same"
        )
    if not options.key.isascii() or re.search(r"[\s\x00-\x1f]", options.key):
        raise ConfigError(
            f"{names.prefix}_KEY contains a space or a character that no key has; copy it again"
        )


def bearer_header(key: str) -> dict[str, str]:
    """Return the header that most servers expect a key in."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def key_headers(key: str, url: str) -> dict[str, str]:
    """Return the header for a key in OpenAI's protocol. Azure expects another one."""
    return {"api-key": key} if key and _AZURE.match(url) else bearer_header(key)


def build_url(url: str, path: str, names: Names) -> str:
    """Return an address with the path of a call, unless it already ends with the path.

    Its query stays, which Azure needs. Reject an address that cannot be called.
    """
    try:
        parts = urlsplit(url)
        is_valid = (
            parts.scheme in ("http", "https")
            and parts.port != 0
            and (parts.hostname or "").encode("idna")
            and httpx2.URL(url)
        )
    # an invalid port or host name; the message would repeat the address with its password
    except (ValueError, httpx2.InvalidURL):
        is_valid = False
    if not is_valid:
        raise AddressError(
            f"{names.prefix}_URL is no address of a server; give one such as "
            f"http://localhost:11434/v1"
        )
    given = parts.path.rstrip("/") if path else parts.path
    return urlunsplit(parts._replace(path=given if given.endswith(path) else f"{given}{path}"))


class _RefusedError(InputError):
    """Refusal of a request by its server.

    `about` is the response, for comparison only. It is never shown.
    """

    def __init__(self, message: str, response: httpx2.Response) -> None:
        super().__init__(message)
        self.about = response.text[:2000]

    def __reduce__(self) -> tuple[Any, ...]:
        return InputError, (str(self),)


def is_about(error: InputError, word: str) -> bool:
    """Return True if a server refused a request because of the field of this name."""
    return isinstance(error, _RefusedError) and word in error.about


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait: a number, a date, or milliseconds."""
    if _NUMBER.fullmatch(milliseconds := headers.get("retry-after-ms", "")):
        return float(milliseconds) / 1000
    text = headers.get("retry-after", "")
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):  # OverflowError: a huge time zone
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _read_reason(response: httpx2.Response) -> str:
    """Return the server's word for the error, if it has one."""
    try:
        found = response.json()
    except (ValueError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else {}
    words = [error.get(name) for name in ("code", "type")] if isinstance(error, dict) else []
    return next((word for word in words if isinstance(word, str) and _REASON.fullmatch(word)), "")
