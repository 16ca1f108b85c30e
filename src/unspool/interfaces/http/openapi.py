"""The published description of the service: what FastAPI makes of the routes, with filters, keys, headers, codes of errors and examples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request

from unspool import errors
from unspool.interfaces.http import errors as own
from unspool.interfaces.http.admission import PUBLIC
from unspool.interfaces.http.examples import EXAMPLES, error_example
from unspool.interfaces.http.filtering import PLACE, SCHEMAS
from unspool.interfaces.http.responses import JsonResponse, encoded

ABOUT = """Search in what is indexed, page by page, within a token budget; documents, conversations and responses are stored and read.

Errors have one shape: `{"error": {"code", "message", "request_id"}}`. Codes keep their meaning, messages are for people."""
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
    "bearer": {"type": "http", "scheme": "bearer", "description": "a key that `unspool key create` made"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "the same in a header of its own"},
}
_REQUEST_ID = {
    "description": "The request's id: the one that was sent, if it is 1 to 64 letters, digits, dots, dashes or underscores, else a new one",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
}
_SECONDS = {"description": "in how many seconds to try again", "schema": {"type": "integer", "minimum": 1}}
_CHALLENGE = {"description": "how a key is shown", "schema": {"type": "string"}}
_WITH_RETRY = ("429", "503")


def publish(app: FastAPI) -> None:
    """Serve the description at /openapi.json: with the need for a key where there are any."""

    async def description(request: Request) -> JsonResponse:
        service = request.app.state.service
        has_keys = await service.threads.run(service.corpus.keys.are_used)
        return JsonResponse(_encoded(app, has_keys))

    app.add_route("/openapi.json", description, methods=["GET"], include_in_schema=False)


@lru_cache(maxsize=4)
def _encoded(app: FastAPI, has_keys: bool) -> bytes:
    return encoded(described(app, has_keys=has_keys))


def described(app: FastAPI, *, has_keys: bool) -> dict[str, Any]:
    """The description."""
    tags = [{"name": name, "description": about} for name, about in TAGS.items()]
    made: dict[str, Any] = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes, tags=tags)
    made["components"]["schemas"].update(SCHEMAS)
    _place_filters(made)
    if has_keys:
        made["components"]["securitySchemes"] = _KEYS
    for path, methods in made["paths"].items():
        for operation in methods.values():
            if has_keys and path not in PUBLIC:
                operation["security"] = [{name: []} for name in _KEYS]
            for status, response in operation["responses"].items():
                _complete(status, response)
    return made


def _complete(status: str, response: dict[str, Any]) -> None:
    """A response with its headers, its codes and an example."""
    headers = response.setdefault("headers", {})
    headers["X-Request-ID"] = _REQUEST_ID
    if status in _WITH_RETRY:
        headers["Retry-After"] = _SECONDS
    if status == "401":
        headers["WWW-Authenticate"] = _CHALLENGE
    json = response.get("content", {}).get("application/json")
    if json is None:
        return
    name = json["schema"].get("$ref", "").rpartition("/")[2]
    if name == "Error":
        codes = sorted(codes_of(int(status)))
        response["description"] = f"{', '.join(f'`{code}`' for code in codes)}"
        json["example"] = error_example(codes[0])
    elif name in EXAMPLES:
        json["example"] = EXAMPLES[name]


def codes_of(status: int) -> set[str]:
    """The codes of errors that a status stands for."""
    return {kind.code for kind in _kinds(errors.UnspoolError) if kind.http_status == status and kind.__module__ in (errors.__name__, own.__name__)}


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
