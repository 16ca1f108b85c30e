"""JSON schemas of types, and examples that are valid against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from inspect import cleandoc
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from unspool.wire.forms import Json, find_members

REFERENCE = "#/components/schemas/"
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_TIME = "2026-01-31T12:00:00+00:00"
_NUMBERS = {"integer": 1, "number": 0.5, "boolean": False}
# texts in examples by key; the names of keys where an object may have any
_TEXTS = {
    "answer": "With `open()` [1].",
    "author": "ann",
    "body": '{"status": "ok"}',
    "capabilities": "max_k",
    "code": "not_found",
    "context": "[1] docs/sessions.md:1-3\n# Sessions\n\nA session is opened by `open()`.",
    "continuation": "Ah0CmZqkYr3mKtkKrnwBCgI",
    "embedder": "static",
    "headings": "Sessions",
    "id": "461168601842738790",
    "language": "markdown",
    "languages": "markdown",
    "message": "what happened, with which value, and what to do next",
    "metadata": "author",
    "model": "openai:gpt-5-mini",
    "next": "older records: limit=2, offset=1",
    "path": "docs/sessions.md",
    "project": "shop",
    "projects": "shop",
    "query": "how are sessions opened",
    "question": "How are sessions opened?",
    "request_id": "c2f0e19b7d3a4f58",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "skipped": "binary",
    "source": "https://github.com/pallets/click",
    "speaker": "ann",
    "status": "ok",
    "stream": "nightly-build",
    "symbol": "Session.open",
    "text": "A session is opened by `open()`.",
    "title": "Sessions",
}


def schema(kind: Any, found: dict[str, Json] | None = None) -> Json:
    """Return the JSON schema of a type.

    A dictionary of types is an object, a list of one type an array; a key that ends in `?` may be
    missing. A dataclass is a reference, and its own schema is added to `found`.
    """
    found = {} if found is None else found
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if isinstance(kind, dict):
        return _describe_object(kind, found)
    if isinstance(kind, list):
        return {"type": "array", "items": schema(kind[0], found)}
    if origin is Annotated:
        return {**schema(inner[0], found), "description": inner[1]}
    if is_dataclass(kind):
        return _refer(kind, found)
    return _describe_plain(origin, inner, found)


def _describe_plain(kind: type, inner: tuple[Any, ...], found: dict[str, Json]) -> Json:
    """Return the schema of a type that is no object of ours."""
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if kind is datetime:
        return {"type": "string", "format": "date-time"}
    if issubclass(kind, Enum):
        return {"type": "string", "enum": [one.value for one in kind]}
    if issubclass(kind, Mapping):
        if issubclass(inner[0], Enum):  # a count for each member
            return _describe_object({one.value: inner[1] for one in inner[0]}, found)
        return {"type": "object", "additionalProperties": schema(inner[1], found)}
    if issubclass(kind, Sequence):  # every item has the type of the first
        items = inner or tuple(get_type_hints(kind).values())
        is_fixed = len(items) > 1 and Ellipsis not in items
        size = dict.fromkeys(("minItems", "maxItems"), len(items)) if is_fixed else {}
        return {"type": "array", "items": schema(items[0], found), **size}
    # of numbers NaN and the infinities are null; a single one says so in its form
    choices = (*inner, NoneType) if float in inner and NoneType not in inner else inner
    return {"anyOf": [schema(one, found) for one in choices]}


def _describe_object(kinds: Mapping[str, Any], found: dict[str, Json]) -> Json:
    return {
        "type": "object",
        "properties": {name.rstrip("?"): schema(kind, found) for name, kind in kinds.items()},
        "required": [name for name in kinds if not name.endswith("?")],
    }


def _refer(kind: Any, found: dict[str, Json]) -> Json:
    """Return a reference to the schema of a dataclass, which is added if it is missing."""
    name = kind.__name__
    if name not in found:
        found[name] = {"description": cleandoc(kind.__doc__)}  # before a class within refers to it
        kinds = {one.name + ("?" if one.option else ""): one.kind for one in find_members(kind)}
        found[name] |= _describe_object(kinds, found)
    return {"$ref": REFERENCE + name}


def example(described: Json, found: Mapping[str, Json]) -> Json:
    """Return an example of a schema. Optional keys are left out."""
    return _fill(described, "", found)


def _fill(part: Json, key: str, found: Mapping[str, Json]) -> Json:
    """Return an example of the schema that a key has."""
    if "$ref" in part:
        return _fill(found[part["$ref"].removeprefix(REFERENCE)], key, found)
    if "anyOf" in part:
        first = part["anyOf"][0]
        # null for an object that may be missing, so that parts of an example agree
        return None if "$ref" in first else _fill(first, key, found)
    if "additionalProperties" in part:
        name = _TEXTS.get(key, "name")
        return {name: _fill(part["additionalProperties"], name, found)}
    if "properties" in part:
        return {name: _fill(part["properties"][name], name, found) for name in part["required"]}
    if "items" in part:
        item = _fill(part["items"], key, found)
        return [item] * part.get("minItems", 1 if item else 0)
    if part["type"] == "string":
        return part.get("enum", [_TIME if "format" in part else _TEXTS.get(key, "")])[0]
    return _NUMBERS[part["type"]]
