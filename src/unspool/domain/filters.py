"""Filters: what a hit must be, as a small tree that every store can translate. Pure.

    {"language": "python"}                          equal
    {"language": ["python", "go"]}                  one of
    {"path": "src/**/*.py"}                         glob; without a slash it matches the file name at any depth
    {"modified": {"ge": "2026-01-01", "lt": ...}}   ranges: lt, le, gt, ge
    {"conversation": "c1", "speaker": "ann"}        what somebody said there; "speaker": "assistant" is what no person said
    {"time": {"ge": "2026-01-01"}}                  what was said from then on; {"time": "2026-01-01"} is the whole day
    {"language": {"not": "python"}}                 also keeps what has no language
    {"not": {...}}, {"any": [{...}, {...}]}, {"all": [...]}
    {"metadata.author": "ann"}                      a document's own metadata; "metadata": {"author": "ann"} is the same
Several fields in one mapping must all hold.
"""  # noqa: E501

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from unspool.domain.documents import MAX_NAME_LENGTH, MAX_NUMBER, Kind, Scalar, storable
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
# looks into documents: of some only a part is let through
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
# a list of values is looked up as one; of metadata, too
LISTED = frozenset(("project", "document", "language", "kind", "conversation"))
MAX_LISTED = 1000
# of other fields each value is compared by itself; globs on every path, and Python keeps 512
# compiled expressions
MAX_PATTERNS = 100
MAX_PARTS = 64
_MAX_CONDITIONS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """One field against one value.

    `op` is eq, lt, le, gt or ge; for `path` eq is a glob, for `heading` it is 'contains'.
    """

    field: str
    op: str
    value: Scalar | datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """True where the inner one is not, which includes what lacks the field."""

    inner: Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """True where every part is; an empty one is always true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """True where at least one part is; an empty one never is."""

    parts: tuple[Filter, ...]


Filter = Compare | Not | AllOf | AnyOf


def parse(where: Mapping[str, Any] | None) -> Filter | None:
    """The filter that a mapping describes, or None for none.

    Unknown fields and operators are refused with the known ones named.
    """
    if not where:
        return None
    condition = _mapping(where, 0)
    if (count := _count(condition)) > _MAX_CONDITIONS:
        raise FilterError(
            f"the filter compares {count} times; give one that does so at most {_MAX_CONDITIONS} "
            f"times"
        )
    if (count := len(values_of(condition, "path"))) > MAX_PATTERNS:
        raise FilterError(
            f"the filter has {count} path patterns; give at most {MAX_PATTERNS}, or `document` "
            f"with whole paths"
        )
    return condition


def _mapping(where: object, depth: int) -> Filter:
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
            parts.append(Not(inner=_mapping(value, depth + 1)))
        elif key in ("any", "all"):
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise FilterError(f"{key!r} takes a list of filters, not a {type(value).__name__}")
            if len(value) > MAX_PARTS:
                raise FilterError(
                    f"{key!r} has {len(value)} parts; give at most {MAX_PARTS}, or one field "
                    f"with a list of values"
                )
            inner = tuple(_mapping(part, depth + 1) for part in value)
            parts.append(AnyOf(parts=inner) if key == "any" else AllOf(parts=inner))
        elif key == "metadata" and isinstance(value, Mapping):
            parts.extend(_field(f"metadata.{name}", inner) for name, inner in value.items())
        else:
            parts.append(_field(key, value))
    return parts[0] if len(parts) == 1 else AllOf(parts=tuple(parts))


def _field(name: str, value: object) -> Filter:
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
        return _equal(name, value)
    parts: list[Filter] = []
    for op, operand in value.items():
        op = _SIGNS.get(op, op)
        if op in ("eq", "in"):
            parts.append(_equal(name, operand))
        elif op in ("not", "not in"):
            parts.append(Not(inner=_equal(name, operand)))
        elif op in _RANGES:
            parts.append(_range(name, op, operand))
        else:
            raise FilterError(
                f"no operator {str(op)[:40]!r} on {name!r}; operators are eq, in, not, lt, le, "
                f"gt, ge"
            )
    return parts[0] if len(parts) == 1 else AllOf(parts=tuple(parts))


def _equal(name: str, value: object) -> Filter:
    if isinstance(value, list | tuple | set | frozenset):
        most = MAX_LISTED if is_listed(name) else MAX_PATTERNS
        if len(value) > most:
            raise FilterError(f"{name!r} lists {len(value)} values; give at most {most}")
        if any(isinstance(one, list | tuple | set | frozenset) for one in value):
            raise FilterError(f"{name!r} lists a list; give the values themselves")
        return AnyOf(parts=tuple(_equal(name, one) for one in value))
    if name in TIMES and _is_day(value):  # all of it
        begin = _moment(name, value)
        end = begin + timedelta(days=1) if begin < _LAST_DAY else begin
        return AllOf(
            parts=(
                Compare(field=name, op="ge", value=begin),
                Compare(field=name, op="lt", value=end),
            )
        )
    return Compare(field=name, op="eq", value=_value(name, value))


def _is_day(value: object) -> bool:
    return (
        _DAY.fullmatch(value) is not None
        if isinstance(value, str)
        else isinstance(value, date) and not isinstance(value, datetime)
    )


def _range(name: str, op: str, value: object) -> Compare:
    """Up to a day and after a day mean its end, from a day on and before a day its beginning."""
    if name not in TIMES and not name.startswith("metadata."):
        raise FilterError(
            f"{name!r} has no order, so {op!r} cannot be used; ranges work on {', '.join(TIMES)} "
            f"and metadata.<key>"
        )
    if (
        name in TIMES
        and op in ("le", "gt")
        and _is_day(value)
        and (begin := _moment(name, value)) < _LAST_DAY
    ):
        return Compare(field=name, op="lt" if op == "le" else "ge", value=begin + timedelta(days=1))
    return Compare(field=name, op=op, value=_value(name, value))


def _value(name: str, value: object) -> Scalar | datetime:
    if name in TIMES:
        return _moment(name, value)
    if name.startswith("metadata."):
        return _own(name, value)
    if not isinstance(value, str) or not value:
        raise FilterError(f"{name!r} is compared with {value!r}; give a string that is not empty")
    if name == "kind" and value not in list(Kind):
        raise FilterError(f"kind {value!r} does not exist; kinds are {', '.join(Kind)}")
    if not storable(value):
        raise FilterError(
            f"the value for {name!r} holds a NUL or a lone surrogate; nothing that is stored does"
        )
    if len(value) > 4096:
        raise FilterError(f"the value for {name!r} has {len(value)} characters; give at most 4096")
    return value


def _own(name: str, value: object) -> Scalar:
    """A value of a document's own metadata, where those are that documents may have."""
    if not isinstance(value, str | int | float | bool):
        raise FilterError(
            f"{name[:60]!r} is compared with a {type(value).__name__}; give a string, number or "
            f"boolean"
        )
    if isinstance(value, str) and (len(value) > 4096 or not storable(value)):
        raise FilterError(
            f"the string for {name[:60]!r} has more than 4096 characters, or holds a NUL or a "
            f"lone surrogate; give another"
        )
    if not isinstance(value, str) and not abs(value) < MAX_NUMBER:
        raise FilterError(
            f"the number for {name[:60]!r} is not one that metadata has; keep it within 2**63, "
            f"and finite"
        )
    return value


def _moment(name: str, value: object) -> datetime:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day)
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise FilterError(
                f"{name} is compared with {value[:40]!r}; give a time such as 2026-01-31 or "
                f"2026-01-31T12:00:00Z"
            ) from None
    else:
        raise FilterError(
            f"{name} is compared with a {type(value).__name__}; give a datetime or an ISO string"
        )
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:  # at the first or the last hour that there is
        return moment.replace(tzinfo=UTC)


def _count(condition: Filter) -> int:
    if isinstance(condition, Compare):
        return 1
    if isinstance(condition, Not):
        return _count(condition.inner)
    return (
        1
        if isinstance(condition, AnyOf) and listed_field(condition)
        else sum(map(_count, condition.parts))
    )


def is_listed(field: str) -> bool:
    """Whether a list of values of the field is looked up as one."""
    return field in LISTED or field.startswith("metadata.")


def listed_field(condition: AnyOf) -> str:
    """The field of which it lists values that are looked up as one; empty where it is something
    else.
    """
    fields = {
        part.field if isinstance(part, Compare) and part.op == "eq" else ""
        for part in condition.parts
    }
    field = fields.pop() if len(fields) == 1 and len(condition.parts) > 1 else ""
    return field if is_listed(field) else ""


def fields_of(condition: Filter) -> frozenset[str]:
    """Every field that a filter looks at."""
    if isinstance(condition, Compare):
        return frozenset((condition.field,))
    if isinstance(condition, Not):
        return fields_of(condition.inner)
    return frozenset().union(*(fields_of(part) for part in condition.parts))


def values_of(condition: Filter, field: str) -> list[str]:
    """What a filter compares a field with, in order."""
    if isinstance(condition, Compare):
        return [str(condition.value)] if condition.field == field else []
    if isinstance(condition, Not):
        return values_of(condition.inner, field)
    return list(
        dict.fromkeys(value for part in condition.parts for value in values_of(part, field))
    )
