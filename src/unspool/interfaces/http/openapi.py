"""The published description of the service: what FastAPI makes of the routes, with filters,
keys, headers, codes of errors and examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.requests import Request

from unspool import errors
from unspool.interfaces.http import errors as own
from unspool.interfaces.http.admission import PUBLIC
from unspool.interfaces.http.examples import EXAMPLES, error_example
from unspool.interfaces.http.filtering import PLACE
from unspool.interfaces.http.filtering import SCHEMAS as FILTERS
from unspool.interfaces.http.responses import JsonResponse, encoded
from unspool.interfaces.http.routing import SHAPES

ABOUT = """Search in what is indexed, page by page, within a token budget; documents, conversations and responses are stored and read.

Errors have one shape: `{"error": {"code", "message", "request_id"}}`. Codes keep their meaning, messages are for people."""  # noqa: E501
TAGS = {
    "search": "Find chunks by meaning and by word",
    "answers": "Answers from what is found",
    "projects": "What there is",
    "documents": "Texts by their paths",
    "jobs": "Indexing in the background",
    "conversations": "What was said",
    "history": "What endpoints, jobs and tools responded",
    "operations": "For those who run the service",
}
_KEYS = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "a key that `unspool key create` made",
    },
    "header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "the same in a header of its own",
    },
}
_HEADERS = {
    "X-Request-ID": {
        "description": (
            "The request's id: the one that was sent, if it is 1 to 64 letters, digits, dots, "
            "dashes or underscores, else a new one"
        ),
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    },
    "Location": {"description": "the address of the job", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "in how many seconds to try again",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {"description": "how a key is shown", "schema": {"type": "string"}},
}
_STARTS = "start_index"  # the operation that answers with a job
_LINKS = {
    _STARTS: {
        name: {"operationId": operation, "parameters": {"job": "$response.body#/id"}}
        for name, operation in (
            ("job", "get_job"),
            ("events", "watch_job"),
            ("cancel", "cancel_job"),
        )
    }
}


def publish(app: FastAPI) -> None:
    """Serve the description at /openapi.json: with the need for a key where there are any."""

    async def description(request: Request) -> JsonResponse:
        service = request.app.state.service
        has_keys = await service.brief.run(service.corpus.keys.are_used)
        # which takes a moment the first time
        return JsonResponse(await service.parsing.run(_encoded, app, has_keys))

    app.add_route("/openapi.json", description, methods=["GET"], include_in_schema=False)


@lru_cache(maxsize=4)
def _encoded(app: FastAPI, has_keys: bool) -> bytes:
    return encoded(described(app, has_keys=has_keys))


def described(app: FastAPI, *, has_keys: bool) -> dict[str, Any]:
    """The description."""
    tags = [{"name": name, "description": about} for name, about in TAGS.items()]
    made: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes, tags=tags
    )
    parts = made["components"]
    parts["schemas"] |= {**_shapes(), **FILTERS}
    parts["headers"] = _HEADERS
    parts["responses"] = {}
    _place_filters(made)
    if has_keys:
        parts["securitySchemes"] = _KEYS
    for path, methods in made["paths"].items():
        for operation in methods.values():
            if has_keys and path not in PUBLIC:
                operation["security"] = [{name: []} for name in _KEYS]
            for status, response in operation["responses"].items():
                if _shape_of(response) == "Error":
                    parts["responses"].setdefault(_error_name(status), _failure(status, response))
                    operation["responses"][status] = {
                        "$ref": f"#/components/responses/{_error_name(status)}"
                    }
                else:
                    _complete(response, operation["operationId"])
    return made


def _shapes() -> dict[str, Any]:
    """The shapes that routes refer to, and those within them."""
    adapters = [(name, "validation", TypeAdapter(shape)) for name, shape in SHAPES.items()]
    _, found = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    return dict(found["$defs"])


def _shape_of(response: dict[str, Any]) -> str:
    return str(
        response.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    ).rpartition("/")[2]


def _error_name(status: str) -> str:
    return "Error" + status


def _failure(status: str, response: dict[str, Any]) -> dict[str, Any]:
    """A response with an error: its codes and headers, and an example."""
    codes = sorted(codes_of(int(status)))
    content = {**response["content"]["application/json"], "example": error_example(codes[0])}
    further = {"429": "Retry-After", "503": "Retry-After", "401": "WWW-Authenticate"}.get(status)
    headers = _referred("X-Request-ID", *([further] if further else []))
    return {
        "description": ", ".join(f"`{code}`" for code in codes),
        "headers": headers,
        "content": {"application/json": content},
    }


def _complete(response: dict[str, Any], operation: str) -> None:
    """A response with its headers, an example, and where it leads."""
    response["headers"] = _referred("X-Request-ID", *(["Location"] if operation == _STARTS else []))
    if (name := _shape_of(response)) in EXAMPLES:
        response["content"]["application/json"]["example"] = EXAMPLES[name]
    if operation in _LINKS:
        response["links"] = _LINKS[operation]


def _referred(*headers: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in headers}


def codes_of(status: int) -> set[str]:
    """The codes of errors that a status stands for."""
    return {
        kind.code
        for kind in _kinds(errors.UnspoolError)
        if kind.http_status == status and kind.__module__ in (errors.__name__, own.__name__)
    }


def _kinds(root: type[errors.UnspoolError]) -> Iterator[type[errors.UnspoolError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _place_filters(node: Any) -> None:
    """Put the filters' schema where its place is held."""
    if isinstance(node, dict):
        if node.pop(PLACE, False):
            node["$ref"] = "#/components/schemas/Filter"
        for value in node.values():
            _place_filters(value)
    elif isinstance(node, list):
        for value in node:
            _place_filters(value)
