"""Errors as responses of one shape: `{"error": {"code", "message", "request_id"}}`, with the
status of their class.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Scope

from unspool.domain.keys import Role
from unspool.errors import (
    AccessError,
    InputError,
    NotFoundError,
    UnauthenticatedError,
    UnreachableError,
    UnspoolError,
)
from unspool.interfaces import disclosure
from unspool.interfaces.http.responses import JsonResponse
from unspool.observability import Observer
from unspool.observability.context import request_id

SHOWN = 60  # characters of a value in a message
CALLER = "unspool.caller"  # key of the `ApiCaller` in the scope of a request
BUG = "this is a bug in unspool; its log has the details under this request id"
STOPPING = "the service is stopping; try again in a moment"


class HostError(AccessError):
    """The request names a host that is not the service."""

    code = "host"
    http_status = 421


class OriginError(AccessError):
    """A web page of another origin made the request."""

    code = "origin"


class MethodError(InputError):
    """The address does not support the method."""

    code = "method"
    http_status = 405

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not possible at this address; use {allowed}")
        self.allowed = allowed


class MediaTypeError(InputError):
    """The body is not JSON."""

    code = "media_type"
    http_status = 415


class SlowError(InputError):
    """The body did not arrive in time."""

    code = "slow"
    http_status = 408


class BugError(UnspoolError):
    """The service raised an unexpected exception."""

    code = "bug"


class DownError(UnreachableError):
    """The service stops or cannot work. Its message contains no secrets."""


async def reraise(_: Request, error: Exception) -> JsonResponse:
    """Raise FastAPI's own errors again, for `middleware.RequestMiddleware` to convert."""
    raise error


def convert(error: BaseException, scope: Scope) -> UnspoolError:
    """Return the error of ours for an exception that ended a request."""
    match error:
        case UnspoolError():
            return error
        case asyncio.CancelledError():
            return DownError(STOPPING)
        case RequestValidationError():
            return describe_invalid(error.errors(), _list_body_fields(scope))
        case HTTPException(status_code=404):
            return NotFoundError(
                "no operation has this address; /openapi.json lists the operations"
            )
        case HTTPException(status_code=405):
            allowed = {method for route in find_routes(scope) for method in route.methods or ()}
            return MethodError(scope["method"], ", ".join(sorted(allowed)))
    bug = BugError(BUG)
    bug.__cause__ = error
    return bug


def report(error: UnspoolError, observer: Observer, role: Role | None) -> dict[str, Any]:
    """Report an error to the observer, and return the JSON for a caller of a role."""
    observer.error(error.code, error.__cause__ if isinstance(error, BugError) else None)
    return create_body(error, role)


def create_response(error: BaseException, scope: Scope) -> JsonResponse:
    """Report an exception, and return the response to the request that it ended."""
    own = convert(error, scope)
    role = scope[CALLER].corpus.scope.role if CALLER in scope else None
    return JsonResponse(
        report(own, scope["app"].state.service.observer, role),
        status_code=own.http_status,
        headers=_list_headers(own, scope),
    )


def create_body(error: UnspoolError, role: Role | None = None) -> dict[str, Any]:
    """Return an error as JSON, with what a caller of a role may read of it."""
    is_safe = isinstance(error, DownError | BugError)
    message = str(error) if is_safe else disclosure.words(error, role)
    return {"error": {"code": error.code, "message": message, "request_id": request_id.get()}}


def _list_headers(error: UnspoolError, scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = 'Bearer realm="unspool"'
    # a client that waits for "100 Continue" may send the body or a next request
    if isinstance(error, SlowError) or "expect" in Headers(scope=scope):
        headers["Connection"] = "close"
    if isinstance(error, MethodError):
        headers["Allow"] = error.allowed
    wait = getattr(error, "retry_after", None)
    if wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return headers


def find_routes(scope: Scope) -> Iterator[Route]:
    """Yield the routes at the address of a request, for whatever method."""
    routes: Sequence[Route] = scope["app"].state.table
    return (route for route in routes if route.path_regex.match(scope["path"]))


def _list_body_fields(scope: Scope) -> list[str]:
    """Return the names that the body of a request may contain."""
    field = getattr(scope.get("route"), "body_field", None)
    return [] if field is None else list(getattr(field.field_info.annotation, "model_fields", ()))


def describe_invalid(
    problems: Sequence[Mapping[str, Any]], names: Sequence[str] = ()
) -> InputError:
    """Return the error for the first problem of a request: its place, its value and the cure.

    Of a value, only the beginning is shown.
    """
    first = problems[0]
    cause = (first.get("ctx") or {}).get("error")
    place = _describe_place(first["loc"])
    if isinstance(cause, InputError):
        return type(cause)(f"{place}: {cause}")
    if first["type"] == "extra_forbidden" and names and tuple(first["loc"][:-1]) == ("body",):
        return InputError(f"{place} is not known; known names are {', '.join(names)}")
    more = f"; {len(problems) - 1} more errors" if len(problems) > 1 else ""
    return InputError(f"{place} {_describe_problem(first)}{more}")


def _describe_place(location: Sequence[str | int]) -> str:
    """Return the name of a value as the caller wrote it, such as `where.path of the body`."""
    kind, *rest = location or ("body",)
    name = "".join(
        f"[{part}]" if isinstance(part, int) else f".{str(part)[:SHOWN]}" for part in rest
    ).lstrip(".")
    if name == kind:
        return f"the field {name}"
    return f"{name} of the {kind}" if name else f"the {kind}"


_CURES = {
    "int_type": "give a whole number",
    "float_type": "give a number",
    "finite_number": "give a number that is finite",
    "bool_type": "give true or false",
    "string_type": "give text",
    "list_type": "give a list",
    "dict_type": "give an object",
    "model_type": "give an object",
    "model_attributes_type": "give an object",
    "greater_than_equal": "give at least {ge}",
    "less_than_equal": "give at most {le}",
    "string_too_short": "give at least {min_length} characters",
    "string_too_long": "give at most {max_length} characters",
    "too_short": "give at least {min_length} of them",
    "too_long": "give at most {max_length} of them",
    "literal_error": "give {expected}",
    "string_pattern_mismatch": (
        "it may not be blank, nor contain NUL or other characters outside of its pattern in "
        "/openapi.json"
    ),
}


def _describe_problem(problem: Mapping[str, Any]) -> str:
    kind = problem["type"]
    if kind == "missing":
        return "is missing; give it"
    if kind == "extra_forbidden":
        return "is not known; leave it out, /openapi.json lists the known names"
    cure = (
        _CURES[kind].format(**(problem.get("ctx") or {}))
        if kind in _CURES
        else str(problem["msg"])[:200]
    )
    return f"is {_shorten(problem.get('input'))}; {cure}"


def _shorten(value: object) -> str:
    """Return a value for a message, or its kind if it is large."""
    if isinstance(value, str):
        return (
            repr(value)
            if len(value) <= SHOWN
            else f"{value[:SHOWN]!r}... of {len(value)} characters"
        )
    if (
        isinstance(value, bool | float)
        or value is None
        or (isinstance(value, int) and abs(value) < 10**18)
    ):
        return repr(value)
    return {int: "a very large number", dict: "an object", list: "a list"}.get(
        type(value), f"a {type(value).__name__}"
    )
