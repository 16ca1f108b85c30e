"""The reference page of the HTTP service, from its own description: every operation, what it
takes, and what it answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from tables import cell, table

from unspool.interfaces.http.app import create_app
from unspool.interfaces.http.openapi import TAGS, describe
from unspool.settings import Settings

Json = Mapping[str, Any]
WIDTH = 150  # of a line of an example
PARTS = ("GivenMessage", "NamedDocument", "NamedConversation")


class Field(NamedTuple):
    """What an operation takes."""

    name: str
    place: str
    is_required: bool
    schema: Json


def page(note: str) -> str:
    """The page."""
    description = describe(create_app(Settings()), has_keys=True)
    out = [
        "# HTTP",
        "",
        note,
        "",
        (
            "How the service is run and used is told in [HTTP](../http.md); `GET /openapi.json` "
            "has "
            "all this for programs."
        ),
        "",
    ]
    out += [
        (
            "Every operation can also end with one of the [errors](../http.md#errors) whose "
            "statuses "
            "stand behind its answer."
        ),
        "",
    ]
    schemas = description["components"]["schemas"]
    shown: set[str] = set()
    for tag, about in TAGS.items():
        out += [f"## {tag.capitalize()}", "", f"{about}.", ""]
        for address, methods in description["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag]:
                    out += _operation(f"{method.upper()} {address}", operation, schemas, shown)
    out += ["## Parts of bodies", ""]
    for name in PARTS:
        out += [
            f"### {name}",
            "",
            schemas[name]["description"],
            "",
            *_table(_fields(schemas[name])),
        ]
    return "\n".join(out)


def _operation(name: str, operation: Json, schemas: Json, shown: set[str]) -> Iterator[str]:
    yield from (f"### {operation['summary']}", "", f"`{name}`", "", operation["description"], "")
    given = [
        Field(one["name"], one["in"], one["required"], one["schema"])
        for one in operation.get("parameters", ())
    ]
    body = _body(operation, schemas)
    given += _fields(body)
    if given:
        yield from _table(given)
    for example in body.get("examples", ())[:1]:
        yield from ("```json", _shown(example), "```", "")
    yield from _answer(operation["responses"], shown)


def _fields(schema: Json) -> list[Field]:
    return [
        Field(name, "body", name in schema.get("required", ()), one)
        for name, one in schema.get("properties", {}).items()
    ]


def _table(fields: list[Field]) -> list[str]:
    return [
        *table(
            ["name", "in", "is", "default", "about"], [list(map(cell, _row(one))) for one in fields]
        ),
        "",
    ]


def _row(one: Field) -> tuple[str, ...]:
    default = "must be given" if one.is_required else f"`{json.dumps(one.schema.get('default'))}`"
    return (
        f"`{one.name}`",
        one.place,
        _type(one.schema),
        default,
        str(one.schema.get("description", "")),
    )


def _body(operation: Json, schemas: Json) -> Json:
    if "requestBody" not in operation:
        return {}
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    found: Json = schemas[reference.rpartition("/")[2]]
    return found


def _answer(responses: Json, shown: set[str]) -> Iterator[str]:
    """What comes back, with an example where it is the first of its shape, and the statuses of
    errors.
    """
    good, bad = (
        [status for status in responses if (status < "400") is is_good] for is_good in (True, False)
    )
    for status in good:
        kinds = responses[status].get("content", {})
        shape = kinds.get("application/json", {})
        name = _name(shape.get("schema", {}))
        names = [name if name and kind == "application/json" else f"`{kind}`" for kind in kinds]
        errors = f" Errors: {', '.join(bad)}." if bad else ""
        yield from (
            f"Answers {status} {HTTPStatus(int(status)).phrase}{' with ' if names else ''}{' or '.join(names)}.{errors}",
            "",
        )
        if "example" in shape and name not in shown:
            shown.add(name)
            yield from ("```json", _shown(shape["example"]), "```", "")


def _name(schema: Json) -> str:
    """Return the name of a response's type, or its keys if it has no name."""
    if "$ref" in schema:
        return f"a `{schema['$ref'].rpartition('/')[2]}`"
    return ", ".join(f"`{key}`" for key in schema.get("properties", ()))


def _type(schema: Json) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "a [filter](filters.md)" if name == "Filter" else f"[{name}](#{name.lower()})"
    if "const" in schema or "enum" in schema:
        return ", ".join(
            f"`{json.dumps(one)}`" for one in schema.get("enum", [schema.get("const")])
        )
    if schema.get("format") == "date-time":
        return "time, such as `2026-01-31T12:00:00Z`"
    kind = {
        "integer": "whole number",
        "null": "`null`",
        "array": "list",
        "boolean": "true or false",
    }.get(schema.get("type", ""), schema.get("type", "any"))
    inner = f" of {_type(schema['items'])}" if "items" in schema else ""
    low, high = (schema.get(one) for one in ("minimum", "maximum"))
    bounds = "" if high is None else f", {_number(low)} to {_number(high)}"
    length = f", up to {schema['maxLength']} characters" if "maxLength" in schema else ""
    return f"{kind}{inner}{bounds}{length}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{int(value)}" if value == int(value) else f"{value}"


def _shown(value: Any) -> str:
    """JSON on as few lines as keep it readable."""
    return "\n".join(_lines(value, ""))


def _lines(value: Any, indent: str) -> list[str]:
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent + flat) <= WIDTH or not isinstance(value, dict | list) or not value:
        return [flat]
    keys = (
        [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    )
    inner = value.values() if isinstance(value, dict) else value
    out = ["{" if isinstance(value, dict) else "["]
    for number, (key, one) in enumerate(zip(keys, inner, strict=True), 1):
        first, *rest = _lines(one, indent + "  ")
        out += [f"  {key}{first}", *(f"  {line}" for line in rest)]
        out[-1] += "," if number < len(value) else ""
    return [*out, "}" if isinstance(value, dict) else "]"]
