"""Arguments of tool calls: their schemas, and the values that a model sent. Pure.

Models call tools as they know them from elsewhere. So common other names of an argument are
accepted, a number may be text, and a list may stand for one text. Everything else is rejected with
the names that are valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unspool.errors import InputError

MAX_TEXT = 1_000_000  # characters of one argument
MAX_NUMBER = 999_999_999  # of an argument without its own maximum; databases reject huge integers
_WRAPPERS = frozenset("arguments args params parameters input inputs kwargs tool_input".split())
_EXPLANATIONS = frozenset(  # arguments that models add about the call itself
    (
        "explanation reason reasoning thought thoughts rationale justification purpose intent why "
        "one_sentence_explanation random_string"
    ).split()
)
_IGNORED = frozenset("tags metadata labels".split())  # common in other tools, no use here
# With one of these, the model wants no change. Ignoring it would make one.
_TRIALS = frozenset("dry_run preview simulate".split())
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """Argument of a tool: a text, or a whole number if its default is one.

    `also` are other names, the likelier first. An argument that is not published is accepted, but
    missing in the schema. `joins` is put between the parts of a list. Without it, a list of several
    is rejected.
    """

    name: str
    about: str = ""
    default: str | int = ""
    low: int = 0
    high: int = 0
    is_required: bool = False
    is_published: bool = True
    joins: str = ""
    also: str = ""

    @property
    def names(self) -> list[str]:
        """All names, the own one first."""
        return [self.name, *self.also.split()]

    @property
    def is_number(self) -> bool:
        """True for a whole number, False for text."""
        return isinstance(self.default, int)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema, without unions: some models reject those."""
        kind = "integer" if self.is_number else "string"
        bounds = {"minimum": self.low, "maximum": self.high} if self.high else {}
        default = {} if self.is_required or self.default == "" else {"default": self.default}
        return {"type": kind, "description": self.about, **default, **bounds}


@dataclass(slots=True)
class GivenArguments:
    """Values of all arguments of a tool, and notes for the caller about their interpretation."""

    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def build_schema(arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return the input schema of a tool."""
    published = [one for one in arguments if one.is_published]
    return {
        "type": "object",
        "properties": {one.name: one.schema() for one in published},
        "required": [one.name for one in published if one.is_required],
    }


def parse_arguments(
    tool: str, arguments: Sequence[Argument], given: Mapping[str, Any] | None
) -> GivenArguments:
    """Return the values of a call by the names of the arguments, with defaults."""
    given = {name: value for name, value in _unwrap(given or {}).items() if value is not None}
    published = [one for one in arguments if one.is_published]
    names = ", ".join(one.name if one.is_required else f"{one.name}?" for one in published)
    usage = f"give {tool}({names})"
    known = _EXPLANATIONS.union(*(one.names for one in arguments))
    unknown = sorted(name for name in given if not known & {name, normalize_name(name)})
    ignored = [name for name in unknown if _is_ignored(normalize_name(name), given[name])]
    if len(unknown) > len(ignored):
        rejected = _list_names([name for name in unknown if name not in ignored])
        raise InputError(f"{tool} has no argument {rejected}; {usage}")
    out = GivenArguments()
    if ignored:
        verb = "was" if len(ignored) == 1 else "were"
        out.notes.append(f"{_list_names(ignored)} {verb} ignored")
    # An exact name takes precedence over a similar one.
    sent = {normalize_name(name): value for name, value in given.items()} | given
    for one in arguments:
        value = next((sent[name] for name in one.names if name in sent), None)
        if value is None and one.is_required:
            about = f"{one.about[0].lower()}{one.about[1:].rstrip('.')}"
            raise InputError(f"{tool} needs {one.name!r} ({about}); {usage}")
        if value is None:
            out.values[one.name] = one.default
        else:
            parse = _parse_number if one.is_number else _parse_text
            out.values[one.name] = parse(one, value, out.notes)
        if one.is_required and not str(out.values[one.name]).strip():
            raise InputError(f"{one.name} is empty; {usage}")
    return out


def split_names(text: str) -> list[str]:
    """Return the different names between commas."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def normalize_name(name: str) -> str:
    """Return `maxResults`, `max-results` and `Max Results` as `max_results`."""
    return _SEPARATORS.sub("_", _CAMEL.sub("_", name.strip())).lower()


def _unwrap(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments, also if they are inside of another object or in JSON text."""
    if len(given) != 1 or not _WRAPPERS.issuperset(given):
        return given
    (value,) = given.values()
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return given
    return value if isinstance(value, Mapping) else given


def _is_ignored(name: str, value: object) -> bool:
    """Return True for an option of other tools without which the call means the same."""
    return name in _IGNORED or (isinstance(value, bool) and not (value and name in _TRIALS))


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names[:5])


def _parse_text(one: Argument, value: Any, notes: list[str]) -> str:
    if isinstance(value, bool | Mapping):
        raise InputError(f"{one.name} is {_shorten(value)}; give text")
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [_parse_text(one, part, notes) for part in value if part is not None]
        if len(parts) > 1 and not one.joins:
            raise InputError(f"{one.name} is a list of {len(parts)}; give one at a time")
        text = one.joins.join(parts)
    else:
        text = str(value)
    if len(text) > MAX_TEXT:
        raise InputError(f"{one.name} has {len(text)} characters; give at most {MAX_TEXT}")
    return text.encode("utf-8", "replace").decode()  # JSON may contain half a character


def _parse_number(one: Argument, value: Any, notes: list[str]) -> int:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, str) and not value.strip():
        return int(one.default)
    bounds = f" from {one.low} to {one.high}" if one.high else ""
    try:
        number = _convert_number(value)
    except (TypeError, ValueError, OverflowError):
        message = f"{one.name} is {_shorten(value)}; give a whole number{bounds}"
        raise InputError(message) from None
    used = min(max(number, one.low), one.high or MAX_NUMBER)
    if used != number:
        notes.append(
            f"{one.name} {_shorten(number)} is outside of the range{bounds}, {used} was used"
        )
    return used


def _convert_number(value: Any) -> int:
    """Return a number, also from text, without its fraction."""
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, int):
        return value
    return int(float(value.replace(",", "") if isinstance(value, str) else value))


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
