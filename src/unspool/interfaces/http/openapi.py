"""OpenAPI description of the service: FastAPI's, with filters, keys, headers, codes of errors and
examples.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request

from unspool import errors, wire
from unspool.interfaces.http import errors as own
from unspool.interfaces.http.authentication import PUBLIC
from unspool.interfaces.http.filtering import PLACE
from unspool.interfaces.http.filtering import SCHEMAS as FILTERS
from unspool.interfaces.http.responses import JsonResponse, encode
from unspool.interfaces.http.routing import SCHEMAS

ABOUT = """Search indexed texts, page by page, within a token budget. Store and read documents, conversations and responses.

Errors have one shape: `{"error": {"code", "message", "request_id"}}`. Codes are stable, messages are for people."""  # noqa: E501
TAGS = {
    "search": "Search by meaning and by word",
    "answers": "Answers from the results of a search",
    "projects": "Projects and their counts",
    "documents": "Documents by path",
    "jobs": "Indexing in the background",
    "conversations": "Conversations and their messages",
    "history": "Responses of endpoints, jobs and tools",
    "operations": "Health, metrics and stores",
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
        "description": "the same key in another header",
    },
}
_HEADERS = {
    "X-Request-ID": {
        "description": (
            "id of the request: the one that was sent, if it is 1 to 64 letters, digits, dots, "
            "dashes or underscores, else a new one"
        ),
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    },
    "Location": {"description": "the address of the job", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "seconds to wait before the next attempt",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {"description": "scheme of authentication", "schema": {"type": "string"}},
}
_ERROR = wire.schema({"error": {"code": str, "message": str, "request_id": str}})
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


async def publish(request: Request) -> JsonResponse:
    """Respond with the description."""
    service = request.app.state.service
    has_keys = await service.lookups.run(service.corpus.keys.are_used)
    # in a thread, because the first description takes a second
    return JsonResponse(await service.parsing.run(_encode_description, request.app, has_keys))


@lru_cache(maxsize=4)
def _encode_description(app: FastAPI, has_keys: bool) -> bytes:
    return encode(describe(app, has_keys=has_keys))


def describe(app: FastAPI, *, has_keys: bool) -> dict[str, Any]:
    """Return the description. Operations need a key if any exist."""
    tags = [{"name": name, "description": about} for name, about in TAGS.items()]
    made: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes, tags=tags
    )
    parts = made["components"]
    parts["schemas"] |= {**SCHEMAS, **FILTERS, "Error": _ERROR}
    parts["headers"] = _HEADERS
    parts["responses"] = {}
    if has_keys:
        parts["securitySchemes"] = _KEYS
    for path, methods in made["paths"].items():
        for operation in methods.values():
            if has_keys and path not in PUBLIC:
                operation["security"] = [{name: []} for name in _KEYS]
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    name = f"Error{status}"
                    parts["responses"][name] = _describe_error(status)
                    operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
                else:
                    _complete_response(response, operation["operationId"])
    return dict(_place_filters(made))


def _describe_error(status: str) -> dict[str, Any]:
    """Return a response with an error: its codes and headers, and an example."""
    codes = sorted(list_codes(int(status)))
    example = wire.example(_ERROR, {})
    example["error"]["code"] = codes[0]
    content = {"schema": {"$ref": wire.REFERENCE + "Error"}, "example": example}
    further = {"429": "Retry-After", "503": "Retry-After", "401": "WWW-Authenticate"}.get(status)
    headers = _refer_headers("X-Request-ID", *([further] if further else []))
    return {
        "description": ", ".join(f"`{code}`" for code in codes),
        "headers": headers,
        "content": {"application/json": content},
    }


def _complete_response(response: dict[str, Any], operation: str) -> None:
    """Add headers, an example and links to a response."""
    response["headers"] = _refer_headers(
        "X-Request-ID", *(["Location"] if operation == _STARTS else [])
    )
    # FastAPI would drop the nulls of an example that a route declares
    content = response.get("content", {}).get("application/json")
    if content:
        content["example"] = wire.example(content["schema"], SCHEMAS)
    if operation in _LINKS:
        response["links"] = _LINKS[operation]


def _refer_headers(*headers: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in headers}


def list_codes(status: int) -> set[str]:
    """Return the codes of errors with a status."""
    known = [*vars(errors).values(), *vars(own).values()]
    return {
        kind.code
        for kind in known
        if isinstance(kind, type)
        and issubclass(kind, errors.UnspoolError)
        and kind is not errors.UnspoolError
        and kind.http_status == status
    }


def _place_filters(description: dict[str, Any]) -> Any:
    """Refer to the schema of filters, which pydantic does not know."""
    reference = '"$ref": "#/components/schemas/Filter"'
    return json.loads(json.dumps(description).replace(f'"{PLACE}": true', reference))
