"""Connection to the server of a vector store: its address, its errors and its retries.

Every adapter of a server uses it. An adapter names the failures of its driver in a table; this
module has the error class, the message and the cure of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from unspool.errors import (
    AddressError,
    DimensionError,
    RateLimitedError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
)
from unspool.index.options import VectorOptions
from unspool.index.ports import DamagedError
from unspool.pacing import Backoff, retry

_T = TypeVar("_T")
OptionValue = bool | int | str
LONGEST_PAUSE_S = 5.0  # a search waits no longer for a server that asks to be called later


class StoreFailure(Enum):
    """Failure of a call, with the error class, and what happened and what to do."""

    UNREACHABLE = (UnreachableError, "cannot be reached", "start it, or correct UNSPOOL_VECTORS")
    TIMEOUT = (
        ServiceTimeoutError,
        "did not answer in time",
        "try again, or raise UNSPOOL_VECTORS_TIMEOUT_S",
    )
    BUSY = (RateLimitedError, "asks to be called less often", "try again later")
    KEY = (RejectedError, "refused the key", "set UNSPOOL_VECTORS_KEY to one that may write")
    REFUSED = (RejectedError, "refused a request", "check its version and its log")
    DIMENSION = (DimensionError, "has vectors of another length", "run `unspool repair`")
    BROKEN = (ServiceError, "failed", "see its log, and try again")
    LOST = (DamagedError, "has lost its points", "they are written again")

    def __init__(self, error: type[Exception], happened: str, cure: str) -> None:
        self.error = error
        self.happened = happened
        self.cure = cure


class Diagnosis(NamedTuple):
    """Failure that an exception of a driver means. The reason is a status or a type, no text."""

    failure: StoreFailure
    reason: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Address of a server, without its key. Options have the types of their defaults."""

    scheme: str
    host: str
    port: int
    path: str
    options: Mapping[str, OptionValue]

    @property
    def is_encrypted(self) -> bool:
        """True if the server is called by TLS."""
        return self.scheme.endswith("https")

    @property
    def place(self) -> str:
        """Place for messages."""
        return f"{self.scheme}://{self.host}:{self.port}"


def parse_store_address(
    address: str, *, pattern: str, port: int, options: Mapping[str, OptionValue]
) -> StoreAddress:
    """Parse an address. `port` is the default, `options` has the known ones with defaults.

    The port is 0 for a hosted service, whose addresses name no server.
    """
    try:
        parts = urlsplit(address)
        found_port = parts.port or port
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise AddressError(f"UNSPOOL_VECTORS is no address; give {pattern}") from None
    if parts.username is not None or parts.password is not None:
        raise AddressError("UNSPOOL_VECTORS contains a key; give it in UNSPOOL_VECTORS_KEY")
    if not parts.hostname and port:
        raise AddressError(f"UNSPOOL_VECTORS names no server; give {pattern}")
    if parts.fragment or (parts.netloc and not port):
        raise AddressError(f"UNSPOOL_VECTORS is no address; give {pattern}")
    values = dict(options)
    for name, value in given:
        if name not in options:
            raise AddressError(
                f"UNSPOOL_VECTORS has the unknown option {name[:40]!r}; known are: "
                f"{', '.join(options) or 'none'}"
            )
        values[name] = _parse_option(name, value, options[name])
    return StoreAddress(
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=found_port,
        path=unquote(parts.path).strip("/"),
        options=values,
    )


def _parse_option(name: str, value: str, default: OptionValue) -> OptionValue:
    """Return an option of the address with the type of its default."""
    if isinstance(default, bool):
        if value not in ("on", "off"):
            raise AddressError(f"the option {name} of UNSPOOL_VECTORS is {value[:40]!r}; on or off")
        return value == "on"
    if isinstance(default, int):
        if not value.isdecimal():
            raise AddressError(
                f"the option {name} of UNSPOOL_VECTORS is {value[:40]!r}; give a number"
            )
        return int(value)
    return value


class StoreConnection:
    """Calls to a server: failures are translated, and those that may pass are repeated."""

    def __init__(
        self,
        place: str,
        options: VectorOptions,
        diagnose: Callable[[Exception], Diagnosis | None],
    ) -> None:
        self.place = place
        self._diagnose = diagnose  # None for an exception that is a defect
        self._retries = options.retries
        self._backoff = Backoff()
        self._closed = threading.Event()

    def call(self, action: Callable[[], _T]) -> _T:
        """Call the driver. The action may run several times, so it must be idempotent."""
        return retry(
            lambda: self._attempt(action),
            backoff=self._backoff,
            retries=self._retries,
            patience_s=LONGEST_PAUSE_S,
            abandoned=self._closed,
        )

    def _attempt(self, action: Callable[[], _T]) -> _T:
        try:
            return action()
        except Exception as error:
            diagnosis = self._diagnose(error)
            if diagnosis is None:
                raise
            # The text of a driver may contain an address with a key, so it is not even chained.
            raise self._translate(diagnosis) from None

    def _translate(self, diagnosis: Diagnosis) -> Exception:
        failure, reason, retry_after = diagnosis
        message = f"the vector store {self.place} {failure.happened} ({reason}); {failure.cure}"
        if failure.error is RateLimitedError:
            return RateLimitedError(message, retry_after=retry_after)
        return failure.error(message)

    def close(self) -> None:
        """End the waits of other threads."""
        self._closed.set()
