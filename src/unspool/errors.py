"""Every error unspool raises on purpose, and nothing else.

    UnspoolError                     code, exit_code, http_status, retryable
    ├─ ConfigError                   the operator must change something
    │  ├─ AddressError               unknown scheme, bad or unknown option
    │  └─ MissingDependencyError     an extra or a program is not installed
    ├─ AccessError                   the caller may not do this
    │  ├─ UnauthenticatedError       no key, or one that is not known or not valid any more
    │  ├─ ForbiddenError             the key's role does not allow it
    │  └─ ThrottledError             too many calls; retryable, with retry_after
    ├─ InputError                    the request is wrong
    │  ├─ AmbiguousError             it was not said which of several projects is meant
    │  ├─ FilterError                a filter names an unknown field or operator
    │  ├─ ContinuationError          a continuation cannot be followed: a class and a code for each reason
    │  │  ├─ MalformedContinuationError, ForeignContinuationError, SweptContinuationError
    │  │  └─ ExpiredContinuationError, OutdatedContinuationError, DeniedContinuationError
    │  ├─ DimensionError             a vector has the wrong length
    │  └─ TooLargeError              more was sent than is taken
    ├─ NotFoundError                 no such document or path
    │  └─ UnknownProjectError        no such project; the same code
    ├─ ConflictError                 what is stored contradicts what was asked
    │  └─ SwitchedError              another embedder's vectors are in use now; retryable
    ├─ UnsupportedError              this store cannot do that; names the capability
    └─ ServiceError                  a system we call failed
       ├─ UnreachableError           retryable
       ├─ ServiceTimeoutError        retryable
       ├─ OverdueError               the service itself did not finish in time
       ├─ RateLimitedError           retryable, with retry_after
       └─ RejectedError              key or quota refused; not retryable

A message says what happened, with which value, and what to do next. It never holds a key, a
password or indexed text. Anything that is not an `UnspoolError` is a bug.
"""  # noqa: E501

from __future__ import annotations

from typing import ClassVar


class UnspoolError(Exception):
    """The root of the tree; catch this to catch everything unspool raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    request_id: str = ""  # what a service's log knows it by; empty for one of this process


class ConfigError(UnspoolError):
    """A setting is wrong; the message names it and the fix."""

    code = "config"


class AddressError(ConfigError):
    """An address has an unknown scheme or option."""

    code = "address"


class MissingDependencyError(ConfigError, ImportError):
    """Something optional is needed and not installed; the message holds the install command."""

    code = "missing_dependency"


class AccessError(UnspoolError):
    """Whoever asks may not do this."""

    code = "access"
    http_status = 403


class UnauthenticatedError(AccessError):
    """No key was shown, or one that is not known, has expired or was revoked."""

    code = "unauthenticated"
    http_status = 401


class ForbiddenError(AccessError):
    """The key that was shown does not allow it; the message names the role that does."""

    code = "forbidden"


class ThrottledError(AccessError):
    """Too much was asked for at once; later it will be answered."""

    code = "throttled"
    http_status = 429
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InputError(UnspoolError, ValueError):
    """The request is wrong: a value is out of range, empty or malformed."""

    code = "input"
    http_status = 422


class AmbiguousError(InputError):
    """There are several of what was not named; the message lists them."""

    code = "ambiguous"
    http_status = 409


class FilterError(InputError):
    """A filter names an unknown field, or an operator that the field does not have."""

    code = "filter"


class ContinuationError(InputError):
    """A continuation cannot be followed; `code` says why.

    `request` is the search that it resumes, if that is still known.
    """

    code = "continuation"

    def __init__(self, message: str, *, request: object = None) -> None:
        super().__init__(message)
        self.request = request


class MalformedContinuationError(ContinuationError):
    """It is not a continuation, or it was cut or mistyped."""

    code = "continuation_malformed"
    http_status = 404


class ForeignContinuationError(ContinuationError):
    """It was given out by another catalog."""

    code = "continuation_foreign"
    http_status = 404


class SweptContinuationError(ContinuationError):
    """It is not known, or not any more: its place was needed for newer ones."""

    code = "continuation_swept"
    http_status = 404


class ExpiredContinuationError(ContinuationError):
    """It is older than `continuation_s` allows."""

    code = "continuation_expired"
    http_status = 410


class OutdatedContinuationError(ContinuationError):
    """The vector space that it was made with is not in use any more."""

    code = "continuation_outdated"
    http_status = 410


class DeniedContinuationError(ContinuationError):
    """It was given to another caller."""

    code = "continuation_denied"
    http_status = 403


class DimensionError(InputError):
    """A vector's length is not that of the vector space."""

    code = "dimension"
    http_status = 409


class TooLargeError(InputError):
    """More was sent than is taken at once."""

    code = "too_large"
    http_status = 413


class NotFoundError(UnspoolError, LookupError):
    """No such path, project or document."""

    code = "not_found"
    exit_code = 1
    http_status = 404


class UnknownProjectError(NotFoundError):
    """No such project, for whoever asks. `project` is the name that was given."""

    def __init__(self, message: str, *, project: str) -> None:
        super().__init__(message)
        self.project = project


class ConflictError(UnspoolError):
    """What is stored was made by another program, version or embedder, or by a concurrent
    writer.
    """

    code = "conflict"
    http_status = 409


class SwitchedError(ConflictError):
    """The catalog went over to another embedder while it was being written; the next attempt
    follows it.
    """

    code = "switched"
    retryable = True


class UnsupportedError(UnspoolError):
    """The store lacks the capability that the message names."""

    code = "unsupported"
    http_status = 501


class ServiceError(UnspoolError):
    """A system that unspool calls (a database, a disk, a provider) failed."""

    code = "service"
    exit_code = 3
    http_status = 502


class UnreachableError(ServiceError):
    """The system did not answer, or only that it cannot."""

    code = "unreachable"
    http_status = 503
    retryable = True


class ServiceTimeoutError(ServiceError):
    """The system did not answer in time."""

    code = "timeout"
    http_status = 504
    retryable = True


class OverdueError(ServiceError):
    """What was asked for took longer than a request to this service may."""

    code = "overdue"
    http_status = 504
    retryable = True


class RateLimitedError(ServiceError):
    """The system asked to be called less often."""

    code = "rate_limited"
    http_status = 503
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RejectedError(ServiceError):
    """The system refused the key, the quota or the request; trying again will not help."""

    code = "rejected"
