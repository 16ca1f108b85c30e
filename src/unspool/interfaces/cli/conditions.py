"""Filters on the command line: `language=python,go`, `modified>=2026-01-01`,
`metadata.year!=2024`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from unspool.domain.documents import Scalar
from unspool.errors import FilterError

_CONDITION = re.compile(r"\s*([^=!<>\s]+)\s*(==|!=|>=|<=|=|>|<)\s*(.*?)\s*", re.DOTALL)
_OPERATORS = {"=": "eq", "==": "eq", "!=": "not", ">=": "ge", "<=": "le", ">": "gt", "<": "lt"}
_QUOTED = re.compile(r"\"(.*)\"|'(.*)'", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)(e[+-]?\d+)?", re.IGNORECASE)


def parse_options(
    conditions: Sequence[str], whole: str | None, *, path: Sequence[str], **fields: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the filters of --where, --filter, --path and other fields.

    A value of `fields` may contain several between commas.
    """
    parts = [parse_condition(text) for text in conditions]
    if whole is not None:
        parts.append(_parse_object(whole))
    split = {
        field: [part.strip() for value in values for part in value.split(",")]
        for field, values in fields.items()
    }
    return parts + [{field: list(some)} for field, some in (split | {"path": path}).items() if some]


def join(parts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return a filter for chunks that match every part; None without parts."""
    return None if not parts else parts[0] if len(parts) == 1 else {"all": list(parts)}


def parse_condition(text: str) -> dict[str, Any]:
    """Return the filter of a condition.

    Commas separate values of which any may match. Quotes make one string of their content.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise FilterError(
            f"{text[:80]!r} is no condition; give FIELD=VALUE, or !=, >=, <=, > or < in place of ="
        )
    field, sign, value = match.groups()
    quoted = _QUOTED.fullmatch(value)
    if quoted:
        return {field: {_OPERATORS[sign]: quoted.group(1) or quoted.group(2) or ""}}
    parse = _parse_scalar if field.startswith("metadata.") else str
    values = [parse(part.strip()) for part in value.split(",")]
    return {field: {_OPERATORS[sign]: values[0] if len(values) == 1 else values}}


def _parse_scalar(text: str) -> Scalar:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def _parse_object(text: str) -> dict[str, Any]:
    cure = 'give an object such as {"language": "python"}'
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FilterError(f"--filter is not JSON ({str(error)[:80]}); {cure}") from None
    if not isinstance(value, dict):
        raise FilterError(f"--filter is a {type(value).__name__}; {cure}")
    return value
