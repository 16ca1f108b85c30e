"""A route of the service: its body is JSON of the one kind, and whatever it raises is one of our
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from unspool.errors import UnspoolError
from unspool.interfaces import shapes
from unspool.interfaces.http.errors import BUG, BugError, MediaTypeError, invalid_json, too_much
from unspool.interfaces.http.fields import MAX_NAMES
from unspool.interfaces.http.responses import GoneError

# What any call of the corpus may end with, and what sending a body may
EVERYWHERE = (401, 403, 409, 421, 422, 429, 500, 501, 502, 503, 504)
WITH_BODY = (408, 413, 415)
MAX_PARTS = 1_000_000  # values of a whole body, however they are nested
# bytes; what is larger is read in a thread, so that others do not wait for it
READ_AT_ONCE = 100_000
SHAPES: dict[str, Any] = {}  # that routes refer to


class JsonRequest(Request):
    """A request whose body is strict JSON in UTF-8: no NaN, no lone surrogates, no depth and no
    width that would exhaust us.
    """

    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= READ_AT_ONCE:
            return _read(body)
        return await self.app.state.service.parsing.run(_read, body)


class Route(APIRoute):
    """A route that lets only `UnspoolError`s out, and reads a body before FastAPI does, whose
    own errors about it are of another shape.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        has_body = self.body_field is not None

        async def run(request: Request) -> Response:
            own = JsonRequest(request.scope, request.receive)
            try:
                if (
                    has_body
                    and await own.body()
                    and not _is_json(own.headers.get("content-type", ""))
                ):
                    raise MediaTypeError(
                        "the body is not sent as JSON; give the header `Content-Type: "
                        "application/json`"
                    )
                return await handle(own)
            except (UnspoolError, HTTPException, RequestValidationError, GoneError):
                raise
            except ClientDisconnect:
                raise GoneError from None
            except Exception as error:
                raise BugError(BUG) from error

        return run


def _read(body: bytes) -> Any:
    """What a body says.

    Each name that is not known would be an error of its own, so that there is a bound to names.
    """
    try:
        # a cache doubles the time of names that are all different
        whole = from_json(body, allow_inf_nan=False, cache_strings="none")
    except ValueError as error:
        raise invalid_json(error) from None
    left, parts = [whole], 1
    while left:
        one = left.pop()
        if isinstance(one, dict) and len(one) > MAX_NAMES:
            raise too_much(f"an object in the body has {len(one)} names; give at most {MAX_NAMES}")
        if isinstance(one, dict | list):
            parts += len(one)
            if parts > MAX_PARTS:
                raise too_much(f"the body has more than {MAX_PARTS} values; send it in parts")
            left.extend(
                value
                for value in (one.values() if isinstance(one, dict) else one)
                if isinstance(value, dict | list)
            )
    return whole


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def router(tag: str) -> APIRouter:
    """Routes on one theme."""
    return APIRouter(prefix="/v1", tags=[tag], route_class=Route, redirect_slashes=False)


def gives(
    shape: Any = None,
    *statuses: int,
    status: int = 200,
    body: bool = False,
    only: tuple[int, ...] = (),
    more: Mapping[str, Any] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """What an operation answers with, and the errors that it may end with: those of every operation
    and further ones, or some `only`.

    By reference: pydantic takes a second to look at every shape of every route, which can wait
    until somebody asks for the description.
    """
    errors = sorted(only or {*EVERYWHERE, *statuses, *(WITH_BODY if body else ())})
    content = {
        **({} if shape is None else {"application/json": {"schema": refer(shape)}}),
        **(more or {}),
    }
    return {
        status: {"content": content},
        **{
            one: {"content": {"application/json": {"schema": refer(shapes.Error)}}}
            for one in errors
        },
    }


def refer(shape: Any) -> dict[str, str]:
    """A reference to a shape, which the description is going to hold then."""
    SHAPES[shape.__name__] = shape
    return {"$ref": f"#/components/schemas/{shape.__name__}"}
