"""Filters in requests: objects that `domain.filters` parses, and their schema."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from unspool.domain import filters
from unspool.domain.documents import MAX_NAME_LENGTH, MAX_NUMBER, Kind
from unspool.interfaces.http.fields import DAY, MAX_NAMES, TIME, WHOLE

# replaced in the published schema by a reference to `Filter`, which pydantic does not know
PLACE = "x-filter"
_REFERENCE = "#/components/schemas/"


def _check_filter(where: dict[str, Any]) -> dict[str, Any]:
    filters.parse(where)
    return where


Where = Annotated[dict[str, Any], AfterValidator(_check_filter), WithJsonSchema({PLACE: True})]


def _one_or_more(
    value: dict[str, Any], *, ranges: bool = False, most: int = filters.MAX_LISTED
) -> dict[str, Any]:
    """Return the schema of a comparison: a value, a list of values, or operators on either."""
    several = {"anyOf": [value, {"type": "array", "items": value, "maxItems": most}]}
    operators = {
        **dict.fromkeys(("eq", "in", "not"), several),
        **(dict.fromkeys(("lt", "le", "gt", "ge"), value) if ranges else {}),
    }
    return {
        "anyOf": [
            *several["anyOf"],
            {"type": "object", "properties": operators, "additionalProperties": False},
        ]
    }


def _refer(name: str) -> dict[str, str]:
    return {"$ref": _REFERENCE + name}


_WORD = {"type": "string", "minLength": 1, "maxLength": 4096, "pattern": WHOLE}
_SCALAR = {
    "anyOf": [
        {"type": "string", "maxLength": 4096, "pattern": WHOLE},
        {"type": "number", "exclusiveMinimum": -MAX_NUMBER, "exclusiveMaximum": MAX_NUMBER},
        {"type": "boolean"},
    ]
}
_FILTERS = {"type": "array", "items": _refer("Filter"), "maxItems": filters.MAX_PARTS}

SCHEMAS: dict[str, dict[str, Any]] = {
    "Filter": {
        "type": "object",
        "description": (
            "Conditions that a hit must match, all of them. A path is a glob, `*` within a "
            "folder and `**` across folders."
        ),
        "properties": {
            **dict.fromkeys(
                ("project", "document", "language", "conversation"), _refer("FilterWords")
            ),
            **dict.fromkeys(("path", "heading", "speaker"), _refer("FilterPatterns")),
            "kind": _refer("FilterKinds"),
            **dict.fromkeys(("modified", "time"), _refer("FilterTimes")),
            "metadata": {
                "type": "object",
                "maxProperties": MAX_NAMES,
                "propertyNames": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_NAME_LENGTH,
                    "pattern": WHOLE,
                },
                "additionalProperties": _refer("FilterScalars"),
            },
            "not": _refer("Filter"),
            "any": _FILTERS,
            "all": _FILTERS,
        },
        "patternProperties": {
            rf"^metadata\.[^\x00]{{1,{MAX_NAME_LENGTH}}}$": _refer("FilterScalars")
        },
        "additionalProperties": False,
        "maxProperties": MAX_NAMES,
        "examples": [
            {"language": ["python", "go"], "path": "src/**"},
            {"modified": {"ge": "2026-01-01"}, "not": {"metadata.draft": True}},
        ],
    },
    "FilterWords": {
        "description": "A string, any of several, or operators on them.",
        **_one_or_more(_WORD),
    },
    "FilterPatterns": {
        "description": "A glob, a part of a heading or a speaker, any of several, or operators on them.",  # noqa: E501
        **_one_or_more(_WORD, most=filters.MAX_PATTERNS),
    },
    "FilterKinds": {
        "description": "Kind of text.",
        **_one_or_more({"type": "string", "enum": [kind.value for kind in Kind]}),
    },
    "FilterTimes": {
        "description": "A whole day, or a time; without an offset it is UTC.",
        **_one_or_more({"anyOf": [DAY, TIME]}, ranges=True, most=filters.MAX_PATTERNS),
    },
    "FilterScalars": {
        "description": "A value of the metadata of a document.",
        **_one_or_more(_SCALAR, ranges=True),
    },
}
