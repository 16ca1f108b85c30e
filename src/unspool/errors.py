"""Errors that unspool raises on purpose.

    UnspoolError                     code, exit_code, http_status, retryable, hint
    ├─ ConfigError                   the operator must change something
    │  ├─ AddressError               unknown scheme, bad or unknown option
    │  └─ MissingDependencyError     an extra or a program is not installed
    ├─ AccessError                   the caller may not do this
    │  ├─ UnauthenticatedError       no key, or one that is unknown, expired or revoked
    │  ├─ ForbiddenError             the key's role does not allow it
    │  └─ ThrottledError             too many calls; retryable, with retry_after
    ├─ InputError                    the request is wrong
    │  ├─ AmbiguousError             several projects exist and none was named
    │  ├─ FilterError                a filter names an unknown field or operator
    │  ├─ ContinuationError          a continuation is invalid: a class and a code for each reason
    │  │  ├─ MalformedContinuationError, ForeignContinuationError, SweptContinuationError
    │  │  └─ ExpiredContinuationError, OutdatedContinuationError, DeniedContinuationError
    │  ├─ DimensionError             a vector has the wrong length
    │  └─ TooLargeError              the request is too large
    ├─ NotFoundError                 no such document or path
    │  └─ UnknownProjectError        no such project; the same code
    ├─ ConflictError                 the stored data contradicts the request
    │  └─ SwitchedError              the embedder was switched meanwhile; retryable
    ├─ UnsupportedError              this store cannot do that; names the capability
    └─ ServiceError                  a system we call failed
       ├─ UnreachableError           retryable
       ├─ ServiceTimeoutError        retryable
       ├─ OverdueError               the service itself did not finish in time
       ├─ RateLimitedError           retryable, with retry_after
       └─ RejectedError              key or quota refused; not retryable

A message states the problem, the value and the cure. A cure that differs between the command line
and MCP is a `Hint`. A message never contains a key, a password or indexed text. Anything that is
not an `UnspoolError` is a bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar


class Hint(StrEnum):
    """Action that resolves an error. Each door words it for its users."""

    LIST_DOCUMENTS = "list_documents"
    NAME_PROJECT = "name_project"
    RENAME_PROJECT = "rename_project"


# Advice of `str(error)`. HTTP sends the same, so that a remote corpus raises the same message.
COMMANDS: Mapping[Hint, str] = {
    Hint.LIST_DOCUMENTS: "`unspool documents` lists them",
    Hint.NAME_PROJECT: "give it with --project",
    Hint.RENAME_PROJECT: "give this one another name with --project, or forget that one first",
}


class UnspoolError(Exception):
    """Base of all errors that unspool raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    request_id: str = ""  # id in the log of a service; empty for an error of this process

    def __init__(self, message: str = "", *, hint: Hint | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        return self.explain(COMMANDS)

    def explain(self, advice: Mapping[Hint, str]) -> str:
        """Return the message, followed by the advice of a door where there is some."""
        message = super().__str__()
        if self.hint is None or self.hint not in advice:
            return message
        return f"{message}; {advice[self.hint]}"


class ConfigError(UnspoolError):
    """Invalid setting. The message names it and the cure."""

    code = "config"


class AddressError(ConfigError):
    """Address with an unknown scheme or option."""

    code = "address"


class MissingDependencyError(ConfigError, ImportError):
    """Missing optional package or program. The message contains the command that installs it."""

    code = "missing_dependency"


class AccessError(UnspoolError):
    """Call that the caller may not make."""

    code = "access"
    http_status = 403


class UnauthenticatedError(AccessError):
    """Missing, unknown, expired or revoked key."""

    code = "unauthenticated"
    http_status = 401


class ForbiddenError(AccessError):
    """Call that the role of the key does not allow. The message names the necessary role."""

    code = "forbidden"


class ThrottledError(AccessError):
    """Call over the rate limit. A later one succeeds."""

    code = "throttled"
    http_status = 429
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InputError(UnspoolError, ValueError):
    """Invalid request: a value is out of range, empty or malformed."""

    code = "input"
    http_status = 422


class AmbiguousError(InputError):
    """Missing name where several are possible. The message lists them."""

    code = "ambiguous"
    http_status = 409


class FilterError(InputError):
    """Filter with an unknown field, or an operator that the field does not support."""

    code = "filter"


class ContinuationError(InputError):
    """Invalid continuation. `code` states the reason.

    `request` is the search that it resumes, if it is still known.
    """

    code = "continuation"

    def __init__(self, message: str, *, request: object = None) -> None:
        super().__init__(message)
        self.request = request


class MalformedContinuationError(ContinuationError):
    """Text that is no continuation, or a mistyped one."""

    code = "continuation_malformed"
    http_status = 404


class ForeignContinuationError(ContinuationError):
    """Continuation of another catalog."""

    code = "continuation_foreign"
    http_status = 404


class SweptContinuationError(ContinuationError):
    """Unknown continuation, or one that was removed for newer ones."""

    code = "continuation_swept"
    http_status = 404


class ExpiredContinuationError(ContinuationError):
    """Continuation that is older than `continuation_s`."""

    code = "continuation_expired"
    http_status = 410


class OutdatedContinuationError(ContinuationError):
    """Continuation of a vector space that is no longer in use."""

    code = "continuation_outdated"
    http_status = 410


class DeniedContinuationError(ContinuationError):
    """Continuation of another caller."""

    code = "continuation_denied"
    http_status = 403


class DimensionError(InputError):
    """Vector of another length than the vector space."""

    code = "dimension"
    http_status = 409


class TooLargeError(InputError):
    """Request that is too large."""

    code = "too_large"
    http_status = 413


class NotFoundError(UnspoolError, LookupError):
    """Missing path, project or document."""

    code = "not_found"
    exit_code = 1
    http_status = 404


class UnknownProjectError(NotFoundError):
    """Project that does not exist for the caller. `project` is its name."""

    def __init__(self, message: str, *, project: str) -> None:
        super().__init__(message)
        self.project = project


class ConflictError(UnspoolError):
    """Conflict with data of another program, version, embedder or concurrent writer."""

    code = "conflict"
    http_status = 409


class SwitchedError(ConflictError):
    """Switch of the catalog to another embedder during a write. The next attempt uses it."""

    code = "switched"
    retryable = True


class UnsupportedError(UnspoolError):
    """Missing capability of a store. The message names it."""

    code = "unsupported"
    http_status = 501


class ServiceError(UnspoolError):
    """Failure of a system that unspool calls: a database, a disk, a provider."""

    code = "service"
    exit_code = 3
    http_status = 502


class UnreachableError(ServiceError):
    """System that did not respond, or reported that it is down."""

    code = "unreachable"
    http_status = 503
    retryable = True


class ServiceTimeoutError(ServiceError):
    """System that did not respond in time."""

    code = "timeout"
    http_status = 504
    retryable = True


class OverdueError(ServiceError):
    """Request that exceeded the time limit of this service."""

    code = "overdue"
    http_status = 504
    retryable = True


class RateLimitedError(ServiceError):
    """System that asked for fewer calls."""

    code = "rate_limited"
    http_status = 503
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RejectedError(ServiceError):
    """System that refused the key, the quota or the request. Retries would fail, too."""

    code = "rejected"
