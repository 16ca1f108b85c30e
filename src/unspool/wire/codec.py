"""Values to JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from unspool.wire.forms import FORMS, PLAIN, PLAIN_FORM, Json, find_members

_T = TypeVar("_T")


def encode(
    value: object, *, explain: bool = False, full: bool = False, skips: bool = False
) -> Json:
    """Return a value as JSON.

    With `explain` a hit has its reason. With `full` hits, citations and records have all that is
    stored of them. With `skips` a report lists the files that were left out.
    """
    options = {"": True, "explain": explain, "full": full, "skips": skips}
    return _encode(value, {name for name, is_set in options.items() if is_set})


def _encode(value: Any, options: Collection[str]) -> Json:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_encode(inner, options) for inner in value]
    if is_dataclass(kind):
        return {
            name: get(value) if is_plain else _encode(get(value), options)
            for name, get, option, is_plain, _ in find_members(kind)
            if option in options
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return {str(name): _encode(inner, options) for name, inner in value.items()}


def write_line(value: Json) -> str:
    """Return JSON as one line of text."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def decode(kind: type[_T], data: Json) -> _T:
    """Return a value of a type from JSON.

    Unknown keys are ignored, because a newer service may send more. A missing key is the default
    of its field, or a `KeyError`.
    """
    read: Callable[[Json], _T] = _find_reader(cast("Hashable", kind))
    return read(data)


def make_decoder(kind: type[_T], key: str | None = None) -> Callable[[Json], _T]:
    """Return a function that decodes JSON, or the value under a key of an object."""
    return (
        (lambda data: decode(kind, data)) if key is None else lambda data: decode(kind, data[key])
    )


@cache
def _find_reader(kind: Any) -> Callable[[Json], Any]:
    """Return the function that decodes a type."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if is_dataclass(kind):
        return partial(_read_object, kind)
    if NoneType in inner:
        read = _find_reader(inner[0])
        return lambda data: None if data is None else read(data)
    if origin is Callable:  # sent as its result
        read = _find_reader(inner[-1])
        return lambda data: partial(_return_first, read(data))
    return _find_plain_reader(origin, inner) if isinstance(origin, type) else _return_first


def _find_plain_reader(kind: type, inner: tuple[Any, ...]) -> Callable[[Json], Any]:
    """Return the function that decodes a type that is no object of ours."""
    if kind is datetime:
        return datetime.fromisoformat
    if kind is float:
        return lambda data: math.nan if data is None else data
    if issubclass(kind, Enum):
        return kind
    if issubclass(kind, Mapping):
        name, read = map(_find_reader, inner)
        return lambda data: {name(key): read(value) for key, value in data.items()}
    if issubclass(kind, Sequence) and inner:  # every item has the type of the first
        read, build = _find_reader(inner[0]), list if kind is list else tuple
        return lambda data: build(map(read, data))
    if issubclass(kind, tuple):  # a named one
        return lambda data: kind(*data)
    return _return_first


def _return_first(value: Any, *_: object) -> Any:
    return value


def _read_object(kind: Any, data: Json) -> Any:
    """Build an object from the keys of its fields."""
    data = FORMS.get(kind, PLAIN_FORM).restore(data)
    return kind(
        **{
            name: read(data[name])
            for name, read, is_required in _find_fields(kind)
            if is_required or name in data
        }
    )


@cache
def _find_fields(kind: Any) -> list[tuple[str, Callable[[Json], Any], bool]]:
    """Return the fields of a dataclass: name, function that decodes it, and no default."""
    hints = get_type_hints(kind)
    return [
        (one.name, _find_reader(hints[one.name]), one.default is one.default_factory is MISSING)
        for one in fields(kind)
    ]
