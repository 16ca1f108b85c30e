"""Filters of hits, as a small tree that every store can translate. Pure.

    {"language": "python"}                          equal
    {"language": ["python", "go"]}                  one of
    {"path": "src/**/*.py"}                         glob; without a slash it matches the file name at any depth
    {"modified": {"ge": "2026-01-01", "lt": ...}}   ranges: lt, le, gt, ge
    {"conversation": "c1", "speaker": "ann"}        messages of a speaker; "assistant" is every speaker but persons
    {"time": {"ge": "2026-01-01"}}                  messages from then on; {"time": "2026-01-01"} is the whole day
    {"language": {"not": "python"}}                 includes documents without a language
    {"not": {...}}, {"any": [{...}, {...}]}, {"all": [...]}
    {"metadata.author": "ann"}                      a document's own metadata; "metadata": {"author": "ann"} is the same
All fields of a mapping must match.
"""  # noqa: E501

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any

from unspool.domain.documents import MAX_NAME_LENGTH, MAX_NUMBER, Kind, Scalar, storable, to_utc
from unspool.errors import FilterError

FIELDS = (
    "project",
    "document",
    "path",
    "language",
    "kind",
    "heading",
    "modified",
    "conversation",
    "speaker",
    "time",
)
TIMES = ("modified", "time")
# fields that select parts of documents
INSIDE = frozenset(("heading", "speaker", "time"))
_RANGES = ("lt", "le", "gt", "ge")
_SIGNS = {
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "=": "eq",
    "==": "eq",
    "!=": "not",
    "ne": "not",
}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_LAST_DAY = datetime(9999, 12, 31, tzinfo=UTC)
_MAX_DEPTH = 20
# fields whose list of values is one condition; metadata is like them
LISTED = frozenset(("project", "document", "language", "kind", "conversation"))
MAX_LISTED = 1000
# each value of another field is one condition; Python caches 512 compiled globs
MAX_PATTERNS = 100
MAX_PARTS = 64
MAX_VALUE_LENGTH = 4096
_MAX_CONDITIONS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Comparison of a field with a value.

    `op` is eq, lt, le, gt or ge; for `path` eq is a glob, for `heading` it is 'contains'.
    """

    field: str
    op: str
    value: Scalar | datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """Negation. It matches documents without the field, too."""

    inner: Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """Conjunction. Without parts it is always true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """Disjunction. Without parts it is never true."""

    parts: tuple[Filter, ...]


Filter = Compare | Not | AllOf | AnyOf


def parse(where: Mapping[str, Any] | None) -> Filter | None:
    """Return the filter of a mapping, or None for none.

    Reject unknown fields and operators, and name the known ones.
    """
    if not where:
        return None
    condition = _parse_mapping(where, 0)
    if (count := _count(condition)) > _MAX_CONDITIONS:
        raise FilterError(
            f"the filter compares {count} times; give one that does so at most {_MAX_CONDITIONS} "
            f"times"
        )
    if (count := len(list_values(condition, "path"))) > MAX_PATTERNS:
        raise FilterError(
            f"the filter has {count} path patterns; give at most {MAX_PATTERNS}, or `document` "
            f"with whole paths"
        )
    return condition


def _parse_mapping(where: object, depth: int) -> Filter:
    if not isinstance(where, Mapping):
        raise FilterError(
            f"a filter is a mapping such as {{'language': 'python'}}; this is a "
            f"{type(where).__name__}"
        )
    if depth > _MAX_DEPTH:
        raise FilterError(f"the filter is nested more than {_MAX_DEPTH} deep; flatten it")
    parts: list[Filter] = []
    for key, value in where.items():
        if key == "not":
            parts.append(Not(inner=_parse_mapping(value, depth + 1)))
        elif key in ("any", "all"):
            parts.append(_parse_list(key, value, depth + 1))
        elif key == "metadata" and isinstance(value, Mapping):
            parts.extend(_parse_field(f"metadata.{name}", inner) for name, inner in value.items())
        else:
            parts.append(_parse_field(key, value))
    return parts[0] if len(parts) == 1 else AllOf(parts=tuple(parts))


def _parse_list(key: str, value: object, depth: int) -> Filter:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise FilterError(f"{key!r} takes a list of filters, not a {type(value).__name__}")
    if len(value) > MAX_PARTS:
        raise FilterError(
            f"{key!r} has {len(value)} parts; give at most {MAX_PARTS}, or one field with a list "
            f"of values"
        )
    inner = tuple(_parse_mapping(part, depth) for part in value)
    return AnyOf(parts=inner) if key == "any" else AllOf(parts=inner)


def _parse_field(name: str, value: object) -> Filter:
    if name not in FIELDS and not (
        isinstance(name, str) and name.startswith("metadata.") and len(name) > 9
    ):
        near = difflib.get_close_matches(str(name), [*FIELDS, "metadata."], n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise FilterError(
            f"no field {str(name)[:60]!r} to filter by; {hint}fields are {', '.join(FIELDS)} and "
            f"metadata.<key>"
        )
    if len(name) > 9 + MAX_NAME_LENGTH or not storable(name):
        raise FilterError(
            f"no document has metadata called {name[9:60]!r}...; keys have up to "
            f"{MAX_NAME_LENGTH} characters, and no NUL"
        )
    if not isinstance(value, Mapping):
        return _parse_equal(name, value)
    parts: list[Filter] = []
    for op, operand in value.items():
        op = _SIGNS.get(op, op)
        if op in ("eq", "in"):
            parts.append(_parse_equal(name, operand))
        elif op in ("not", "not in"):
            parts.append(Not(inner=_parse_equal(name, operand)))
        elif op in _RANGES:
            parts.append(_parse_range(name, op, operand))
        else:
            raise FilterError(
                f"no operator {str(op)[:40]!r} on {name!r}; operators are eq, in, not, lt, le, "
                f"gt, ge"
            )
    return parts[0] if len(parts) == 1 else AllOf(parts=tuple(parts))


def _parse_equal(name: str, value: object) -> Filter:
    if isinstance(value, list | tuple | set | frozenset):
        most = MAX_LISTED if is_listed(name) else MAX_PATTERNS
        if len(value) > most:
            raise FilterError(f"{name!r} lists {len(value)} values; give at most {most}")
        if any(isinstance(one, list | tuple | set | frozenset) for one in value):
            raise FilterError(f"{name!r} lists a list; give the values themselves")
        return AnyOf(parts=tuple(_parse_equal(name, one) for one in value))
    if name in TIMES and _is_day(value):  # the whole day
        return AllOf(parts=tuple(_parse_range(name, op, value) for op in ("ge", "le")))
    return Compare(field=name, op="eq", value=_check_value(name, value))


def _is_day(value: object) -> bool:
    return (
        _DAY.fullmatch(value) is not None
        if isinstance(value, str)
        else isinstance(value, date) and not isinstance(value, datetime)
    )


def _parse_range(name: str, op: str, value: object) -> Compare:
    """Parse a range. `le` and `gt` of a day mean its end, `ge` and `lt` its beginning."""
    if name not in TIMES and not name.startswith("metadata."):
        raise FilterError(
            f"{name!r} has no order, so {op!r} cannot be used; ranges work on {', '.join(TIMES)} "
            f"and metadata.<key>"
        )
    if (
        name in TIMES
        and op in ("le", "gt")
        and _is_day(value)
        and (begin := _parse_time(name, value)) < _LAST_DAY
    ):
        return Compare(field=name, op="lt" if op == "le" else "ge", value=begin + timedelta(days=1))
    return Compare(field=name, op=op, value=_check_value(name, value))


def _check_value(name: str, value: object) -> Scalar | datetime:
    """Return a value that the field can have. Reject any other."""
    is_metadata = name.startswith("metadata.")
    if name in TIMES:
        return _parse_time(name, value)
    if is_metadata and isinstance(value, int | float):
        if not abs(value) < MAX_NUMBER:
            raise FilterError(
                f"the number for {name[:60]!r} is not one that metadata has; keep it within 2**63, "
                f"and finite"
            )
        return value
    if not isinstance(value, str) or not (value or is_metadata):
        kinds = "a string, number or boolean" if is_metadata else "a string that is not empty"
        raise FilterError(f"{name[:60]!r} is compared with {str(value)[:40]!r}; give {kinds}")
    if name == "kind" and value not in list(Kind):
        raise FilterError(f"kind {value!r} does not exist; kinds are {', '.join(Kind)}")
    if len(value) > MAX_VALUE_LENGTH or not storable(value):
        raise FilterError(
            f"the value for {name[:60]!r} has more than {MAX_VALUE_LENGTH} characters, or contains "
            f"a NUL or a lone surrogate; give another"
        )
    return value.lower() if name == "language" else value


def _parse_time(name: str, value: object) -> datetime:
    if not isinstance(value, date | str):
        raise FilterError(
            f"{name} is compared with a {type(value).__name__}; give a datetime or an ISO string"
        )
    try:
        return to_utc(value if isinstance(value, datetime) else datetime.fromisoformat(str(value)))
    except ValueError:
        raise FilterError(
            f"{name} is compared with {str(value)[:40]!r}; give a time such as 2026-01-31 or "
            f"2026-01-31T12:00:00Z"
        ) from None


def list_comparisons(condition: Filter) -> Iterator[Compare]:
    """Yield every comparison of a filter, in order."""
    if isinstance(condition, Compare):
        yield condition
    else:
        parts = (condition.inner,) if isinstance(condition, Not) else condition.parts
        yield from chain.from_iterable(map(list_comparisons, parts))


def _count(condition: Filter) -> int:
    """Return the number of conditions. A list of values counts as one."""
    if isinstance(condition, Compare) or (
        isinstance(condition, AnyOf) and get_listed_field(condition)
    ):
        return 1
    parts = (condition.inner,) if isinstance(condition, Not) else condition.parts
    return sum(map(_count, parts))


def is_listed(field: str) -> bool:
    """Return True if a list of values of the field is one condition."""
    return field in LISTED or field.startswith("metadata.")


def get_listed_field(condition: AnyOf) -> str:
    """Return the field of a list of values that is one condition; '' for any other filter."""
    fields = {
        part.field if isinstance(part, Compare) and part.op == "eq" else ""
        for part in condition.parts
    }
    field = fields.pop() if len(fields) == 1 and len(condition.parts) > 1 else ""
    return field if is_listed(field) else ""


def list_fields(condition: Filter) -> frozenset[str]:
    """Return every field of a filter."""
    return frozenset(one.field for one in list_comparisons(condition))


def list_values(condition: Filter, field: str) -> list[str]:
    """Return the values that a filter compares a field with, in order."""
    values = (str(one.value) for one in list_comparisons(condition) if one.field == field)
    return list(dict.fromkeys(values))
