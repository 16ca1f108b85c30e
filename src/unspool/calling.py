"""Calls to hosted models over HTTP: one client, and one table of what an answer means."""

from __future__ import annotations

import email.utils
import logging
import re
import time
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx2

from unspool.embedders.options import EmbedderOptions
from unspool.errors import (
    AddressError,
    ConfigError,
    InputError,
    RateLimitedError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
)

_REASON = re.compile(r"[\w.-]{1,60}")  # a word such as context_length_exceeded; a sentence may repeat what was sent, or the key
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
CONNECT_S = 10.0


class Server:
    """One address that is called. Safe to use from several threads; it follows no redirection, which could carry the key elsewhere."""

    def __init__(self, url: str, *, name: str, key: str, timeout_s: float, headers: Mapping[str, str]) -> None:
        parts = parts_of(url)
        if not key.isascii() or re.search(r"[\s\x00-\x1f]", key):
            raise ConfigError("UNSPOOL_EMBEDDER_KEY holds a space or a character that no key has; copy it again")
        port = f":{parts.port}" if parts.port else ""
        self.place = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
        self._name = name
        self._url = url
        self._key = key
        self._timeout_s = timeout_s
        self._client = httpx2.Client(timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)), headers=dict(headers))
        weakref.finalize(self, self._client.close)
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it notes every address it calls, and one may hold a password

    @classmethod
    def of(cls, provider: str, model: str, options: EmbedderOptions, *, url: str, example: str) -> Server:
        """The server of a provider that takes its key as most do; refused without a model, or without the key that the provider's own wants."""
        if not model:
            raise ConfigError(f"{provider} needs a model; set UNSPOOL_EMBEDDER={provider}:{example}")
        if not options.key and not options.url:
            raise ConfigError(
                f"{provider} wants a key; set UNSPOOL_EMBEDDER_KEY, or UNSPOOL_EMBEDDER_URL to a server of your own that speaks the same"
            )
        headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
        return cls(options.url or url, name=f"{provider}:{model}", key=options.key, timeout_s=options.timeout_s, headers=headers)

    def post(self, body: Mapping[str, Any]) -> Any:
        """What the server answers, read as JSON; whatever it says instead of an answer is an error that names it."""
        late = f"{self} did not answer in time; try again, or raise UNSPOOL_EMBEDDER_TIMEOUT_S"
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._client.stream("POST", self._url, json=body) as coming:
                data = bytearray()
                for some in coming.iter_raw():
                    data += some
                    if time.monotonic() > deadline:  # the client only bounds the wait for each piece
                        raise ServiceTimeoutError(late)
                answer = httpx2.Response(coming.status_code, headers=coming.headers, content=bytes(data))
        except httpx2.TimeoutException as error:
            raise ServiceTimeoutError(late) from error
        except httpx2.HTTPError as error:
            raise UnreachableError(f"{self} cannot be reached ({type(error).__name__}); start it, or correct UNSPOOL_EMBEDDER_URL") from error
        if answer.status_code != 200:
            raise self._error(answer)
        try:
            return answer.json()
        except ValueError as error:
            raise ServiceError(f"{self} did not answer with JSON; is UNSPOOL_EMBEDDER_URL the address of its API?") from error

    def wrong(self, what: str) -> ServiceError:
        """An answer that is none."""
        return ServiceError(f"{self} {what}; nothing of it was kept, see to that server")

    def __str__(self) -> str:
        return f"{self._name} at {self.place}"

    def _error(self, answer: httpx2.Response) -> Exception:
        status, reason = answer.status_code, _reason(answer)
        if self._key and self._key in reason:
            reason = ""
        said = f"{status} {reason}".strip()
        if status == 429 and reason not in ("insufficient_quota", "billing_hard_limit_reached"):
            after = retry_after(answer.headers)
            return RateLimitedError(f"{self} asks to be called less often ({said}); lower UNSPOOL_EMBEDDER_CONCURRENCY", retry_after=after)
        if status in (401, 403):
            return RejectedError(f"{self} refused the key ({said}); set UNSPOOL_EMBEDDER_KEY to one that may use this model")
        if status in (402, 429):
            return RejectedError(f"{self} has no quota left for this key ({said}); raise it there, or set another UNSPOOL_EMBEDDER_KEY")
        if status in (404, 405) or 300 <= status < 400:
            return RejectedError(f"{self} has no such model or address ({said}); correct UNSPOOL_EMBEDDER or UNSPOOL_EMBEDDER_URL")
        if status == 408:
            return ServiceTimeoutError(f"{self} gave up waiting ({said}); try again")
        if 400 <= status < 500:
            return _RefusedError(
                f"{self} refused what it was sent ({said}); a text it does not take, or a setting such as UNSPOOL_EMBEDDER_DIMENSION", answer
            )
        return UnreachableError(f"{self} is not well ({said}); try again later")


def parts_of(url: str) -> SplitResult:
    """The parts of an address, if it is one that can be called."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.port != 0 and (parts.hostname or "").encode("idna") and httpx2.URL(url):
            return parts
    except (
        ValueError,
        httpx2.InvalidURL,
    ):  # a port that is no number, a name that is none; the message would repeat the address, with what it may hold
        pass
    raise AddressError("UNSPOOL_EMBEDDER_URL is no address of a server; give one such as http://localhost:11434/v1")


class _RefusedError(InputError):
    """The server says that the request is wrong. `about` holds what it said, for the caller to look into, never to show."""

    def __init__(self, message: str, answer: httpx2.Response) -> None:
        super().__init__(message)
        self.about = answer.text[:2000]

    def __reduce__(self) -> tuple[Any, ...]:
        return InputError, (str(self),)


def is_about(error: InputError, word: str) -> bool:
    """Whether a server refused a request because of a field of this name."""
    return isinstance(error, _RefusedError) and word in error.about


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to be left alone, in seconds: a number, a date, or milliseconds as some have it."""
    if _NUMBER.fullmatch(milliseconds := headers.get("retry-after-ms", "")):
        return float(milliseconds) / 1000
    text = headers.get("retry-after", "")
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def _reason(answer: httpx2.Response) -> str:
    """The word that a server has for what is wrong."""
    try:
        found = answer.json()
    except ValueError:
        return ""
    error = found.get("error", found) if isinstance(found, dict) else {}
    words = [error.get(name) for name in ("code", "type")] if isinstance(error, dict) else []
    return next((word for word in words if isinstance(word, str) and _REASON.fullmatch(word)), "")
