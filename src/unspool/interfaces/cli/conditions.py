"""Filters as people type them: `language=python,go`, `modified>=2026-01-01`,
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
_WHOLE, _BROKEN = (
    re.compile(r"[+-]?\d{1,18}"),
    re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)(e[+-]?\d+)?", re.IGNORECASE),
)


def combined(
    conditions: Sequence[str],
    whole: str | None,
    *,
    languages: Sequence[str] = (),
    paths: Sequence[str] = (),
    kinds: Sequence[str] = (),
) -> dict[str, Any] | None:
    """The one filter that all of them make together; None where there is none."""
    parts = [condition(text) for text in conditions]
    if whole is not None:
        parts.append(_object(whole))
    for field, values in (
        ("language", _split(languages)),
        ("path", list(paths)),
        ("kind", _split(kinds)),
    ):
        if values:
            parts.append({field: values})
    return together(parts)


def together(parts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """A filter that holds where every part does."""
    return None if not parts else parts[0] if len(parts) == 1 else {"all": list(parts)}


def condition(text: str) -> dict[str, Any]:
    """One condition.

    Values between commas mean any of them; quotes make one string of whatever they hold.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise FilterError(
            f"{text[:80]!r} is no condition; give FIELD=VALUE, or !=, >=, <=, > or < in place of ="
        )
    field, sign, value = match.groups()
    quoted = _QUOTED.fullmatch(value)
    typed = field.startswith("metadata.")
    if quoted:
        return {field: {_OPERATORS[sign]: quoted.group(1) or quoted.group(2) or ""}}
    values = [_scalar(part.strip()) if typed else part.strip() for part in value.split(",")]
    return {field: {_OPERATORS[sign]: values[0] if len(values) == 1 else values}}


def _scalar(text: str) -> Scalar:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _BROKEN.fullmatch(text) else text


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FilterError(
            f'--filter is not JSON ({str(error)[:80]}); give an object such as {{"language": '
            f'"python"}}'
        ) from None
    if not isinstance(value, dict):
        raise FilterError(
            f'--filter is a {type(value).__name__}; give an object such as {{"language": "python"}}'
        )
    return value


def _split(values: Sequence[str]) -> list[str]:
    return [part.strip() for value in values for part in value.split(",")]
