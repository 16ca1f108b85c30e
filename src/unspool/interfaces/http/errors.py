"""Every error as a response of one shape: `{"error": {"code", "message", "request_id"}}`, with
the status that its class names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
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
from unspool.interfaces import disclosure, render
from unspool.interfaces.http.responses import JsonResponse
from unspool.observability.context import request_id

if TYPE_CHECKING:
    from unspool.interfaces.http.service import Service

SHOWN = 60  # characters of a value in a message
CALLER = "unspool.caller"  # where a request's scope has its `Caller`
GONE = 499  # the status that proxies record for a client that has disconnected
BUG = "this is a bug in unspool; its log says more under this request id"


class HostError(AccessError):
    """The request was made to a name that is none of the service's."""

    code = "host"
    http_status = 421


class OriginError(AccessError):
    """A web page of another origin made the request."""

    code = "origin"


class MethodError(InputError):
    """The address exists, and is not to be called like this."""

    code = "method"
    http_status = 405


class MediaTypeError(InputError):
    """The body is not JSON."""

    code = "media_type"
    http_status = 415


class SlowError(InputError):
    """The body did not arrive in time."""

    code = "slow"
    http_status = 408


class BugError(UnspoolError):
    """Something else than an `UnspoolError` was raised."""

    code = "bug"


class DownError(UnreachableError):
    """The service itself stops, or cannot work. Its words are the door's own."""


def stopping() -> DownError:
    """What is said to whoever is still waiting when the service stops."""
    return DownError("the service is stopping; try again in a moment")


def role_of(scope: Scope) -> Role | None:
    """The role of whoever asks; None where `Admission` has not found out."""
    caller = scope.get(CALLER)
    return None if caller is None else caller.view.scope.role


def response(
    error: UnspoolError, service: Service, scope: Scope, *, headers: Mapping[str, str] | None = None
) -> JsonResponse:
    """The answer to a request that ended with an error, which whoever watches is told of."""
    service.observer.error(error.code, error.__cause__ if isinstance(error, BugError) else None)
    return JsonResponse(
        body(error, role_of(scope)),
        status_code=error.http_status,
        headers={**_headers(error), **(headers or {})},
    )


def body(error: UnspoolError, role: Role | None = None) -> dict[str, Any]:
    """What is said of an error to somebody of a role."""
    words = str(error) if isinstance(error, DownError | BugError) else disclosure.words(error, role)
    shape = render.error(error.code, words)
    return {"error": {**shape["error"], "request_id": request_id.get()}}


def _headers(error: UnspoolError) -> dict[str, str]:
    headers: dict[str, str] = {}
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = 'Bearer realm="unspool"'
    wait = getattr(error, "retry_after", None)
    if wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return headers


# What FastAPI calls


async def on_error(request: Request, error: Exception) -> JsonResponse:
    """For everything that unspool raises."""
    assert isinstance(error, UnspoolError)
    return response(error, request.app.state.service, request.scope)


async def on_invalid(request: Request, error: Exception) -> JsonResponse:
    """For what does not fit the schema."""
    assert isinstance(error, RequestValidationError)
    return response(
        invalid(error.errors(), _names(request)), request.app.state.service, request.scope
    )


async def on_disconnect(request: Request, error: Exception) -> Response:
    """Return the response for a client that has disconnected, which only metrics and logs see."""
    return Response(status_code=GONE)


async def on_http(request: Request, error: Exception) -> JsonResponse:
    """For what the router refuses."""
    assert isinstance(error, HTTPException)
    service = request.app.state.service
    if error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        refused = MethodError(f"{request.method} is not possible here; it may be {allowed}")
        return response(refused, service, request.scope, headers={"Allow": allowed})
    if error.status_code == 404:
        return response(
            NotFoundError("there is nothing at this address; /openapi.json lists what there is"),
            service,
            request.scope,
        )
    # only what is wrong with a body's JSON is left
    wrong = InputError(f"{error.detail}; /openapi.json says what is taken")
    return response(wrong, service, request.scope)


def _methods(request: Request) -> set[str]:
    """Every method that the address can be called with, whichever route it is."""
    path = request.scope["path"]
    found = (route for route in request.app.state.table if route.path_regex.match(path))
    return {method for route in found for method in route.methods or ()}


def invalid_json(error: ValueError) -> HTTPException:
    """For a body that is no JSON. FastAPI lets nothing else through where it reads a body."""
    return HTTPException(422, f"the body is not JSON in UTF-8 ({str(error)[:SHOWN]})")


def too_much(what: str) -> HTTPException:
    """For a body that is JSON, and more of it than any request needs."""
    return HTTPException(422, what)


def _names(request: Request) -> Sequence[str]:
    """What the body of a request may name."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return [] if field is None else list(getattr(field.field_info.annotation, "model_fields", ()))


def invalid(found: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> InputError:
    """The first thing that is wrong with a request: where it stands, what it is, and the cure.

    Values are shown by their beginning alone.
    """
    first = found[0]
    cause = (first.get("ctx") or {}).get("error")
    where = _place(first["loc"])
    if isinstance(cause, InputError):
        return type(cause)(f"{where}: {cause}")
    if first["type"] == "extra_forbidden" and names and tuple(first["loc"][:-1]) == ("body",):
        return InputError(f"{where} is not known; it may have {', '.join(names)}")
    more = f"; {len(found) - 1} more like it" if len(found) > 1 else ""
    return InputError(f"{where} {_complaint(first)}{more}")


def _place(location: Sequence[str | int]) -> str:
    """`where.path` of the body, `limit` of the query: as the caller wrote it."""
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
        "it may not be blank, nor hold NUL or whatever else its pattern in /openapi.json leaves out"
    ),
}


def _complaint(problem: Mapping[str, Any]) -> str:
    kind = problem["type"]
    if kind == "missing":
        return "is missing; give it"
    if kind == "extra_forbidden":
        return "is not known; leave it out, /openapi.json lists what is taken"
    cure = (
        _CURES[kind].format(**(problem.get("ctx") or {}))
        if kind in _CURES
        else str(problem["msg"])[:200]
    )
    return f"is {_shown(problem.get('input'))}; {cure}"


def _shown(value: object) -> str:
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
