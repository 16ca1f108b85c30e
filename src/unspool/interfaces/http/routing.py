"""Routes of the service, whose bodies are strict JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from unspool import wire
from unspool.errors import InputError
from unspool.interfaces.http.errors import SHOWN, MediaTypeError
from unspool.interfaces.http.fields import MAX_NAMES

# errors of any call of the corpus, and of requests with a body
EVERYWHERE = (401, 403, 409, 421, 422, 429, 500, 501, 502, 503, 504)
WITH_BODY = (408, 413, 415)
MAX_PARTS = 1_000_000  # values of a whole body, at all depths
INLINE_BYTES = 100_000  # a larger body is parsed in a thread, so that other requests do not wait
SCHEMAS: dict[str, Any] = {}  # of the values in responses, by name
_SEE = "/openapi.json describes the body"


class JsonRequest(Request):
    """Request whose body is strict JSON in UTF-8: no NaN, no lone surrogates, and limits of depth
    and width.
    """

    async def load(self) -> None:
        """Parse the body before FastAPI does, which would convert our errors."""
        body = await self.body()
        kind = self.headers.get("content-type", "").partition(";")[0]
        if body and kind.strip().lower() != "application/json":
            raise MediaTypeError(
                "the body is not sent as JSON; give the header `Content-Type: application/json`"
            )
        if len(body) > INLINE_BYTES:
            self._parsed = await self.app.state.service.parsing.run(parse_body, body)
        elif body:
            self._parsed = parse_body(body)

    async def json(self) -> Any:
        return self._parsed


class JsonRoute(APIRoute):
    """Route that parses its body itself and returns responses as they are.

    The name of its function is the id of the operation.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options["operation_id"] = options.get("operation_id") or endpoint.__name__
        super().__init__(path, endpoint, **{**options, "response_model": None})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def load_and_handle(request: Request) -> Response:
            own = JsonRequest(request.scope, request.receive)
            if self.body_field is not None:
                await own.load()
            return await handle(own)

        return load_and_handle


def parse_body(body: bytes) -> Any:
    """Return the value of a body.

    The number of names is limited, because each unknown name would be an error of its own.
    """
    try:
        # a cache doubles the time of names that are all different
        whole = from_json(body, allow_inf_nan=False, cache_strings="none")
    except ValueError as error:
        raise InputError(f"the body is not JSON in UTF-8 ({str(error)[:SHOWN]}); {_SEE}") from None
    left, parts = [whole], 1
    while left:
        value = left.pop()
        if isinstance(value, dict) and len(value) > MAX_NAMES:
            raise InputError(
                f"an object in the body has {len(value)} names; give at most {MAX_NAMES}; {_SEE}"
            )
        if isinstance(value, dict | list):
            parts += len(value)
            if parts > MAX_PARTS:
                raise InputError(
                    f"the body has more than {MAX_PARTS} values; send it in parts; {_SEE}"
                )
            children = value.values() if isinstance(value, dict) else value
            left.extend(child for child in children if isinstance(child, dict | list))
    return whole


def create_router(tag: str, *, prefix: str = "/v1") -> APIRouter:
    """Return a router for the operations of one tag."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=JsonRoute, redirect_slashes=False)


def list_responses(
    kind: Any = None,
    *statuses: int,
    status: int = 200,
    body: bool = False,
    only: tuple[int, ...] = (),
    more: Mapping[str, Any] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """Return the responses of an operation: a value of a type, and its errors.

    The errors are those of every operation and further `statuses`, or `only` some.
    """
    errors = sorted(only or {*EVERYWHERE, *statuses, *(WITH_BODY if body else ())})
    content = {
        **({} if kind is None else {"application/json": {"schema": wire.schema(kind, SCHEMAS)}}),
        **(more or {}),
    }
    # `openapi.describe` adds the codes of errors
    return {status: {"content": content}, **{error: {} for error in errors}}
