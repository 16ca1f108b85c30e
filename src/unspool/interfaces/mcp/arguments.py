"""What a model meant by the arguments that it sent. Pure.

A schema says how a tool is called; models call it as they are used to from other tools. A name that
is common elsewhere is understood, a number may come as text, a list where one thing is wanted, null
for what is left out. What cannot be understood is refused with the names that can.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unspool.errors import InputError

MAX_TEXT = 1_000_000  # characters of one argument
# of one that has no bound of its own; databases take no whole number of any size
MAX_NUMBER = 999_999_999
_WRAPPERS = frozenset("arguments args params parameters input inputs kwargs tool_input".split())
_IDLE = frozenset(  # what models add to a call about the call itself
    (
        "explanation reason reasoning thought thoughts rationale justification purpose intent why "
        "one_sentence_explanation random_string"
    ).split()
)
# what other tools take and none of these knows what to do with
_LEFT_OUT = frozenset("tags metadata labels".split())
# whoever asks only to see what would be done does not want it done
_TRIALS = frozenset("dry_run preview simulate".split())
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a tool.

    `also` are other names for it, the likelier first. One that is not published is only understood.
    """

    name: str
    about: str = ""
    default: str | int = ""
    low: int = 0
    high: int = 0
    is_required: bool = False
    is_published: bool = True
    # what stands between the parts where a list was sent; without it a list of several is refused
    joins: str = ""
    also: str = ""

    @property
    def names(self) -> list[str]:
        """Every name that it goes by, the right one first."""
        return [self.name, *self.also.split()]

    @property
    def is_number(self) -> bool:
        """Whether it is a whole number; everything else is text."""
        return isinstance(self.default, int)

    def schema(self) -> dict[str, Any]:
        """It as JSON Schema, without any union: some models reject those."""
        kind = "integer" if self.is_number else "string"
        bounds = {"minimum": self.low, "maximum": self.high} if self.high else {}
        default = {} if self.is_required or self.default == "" else {"default": self.default}
        return {"type": kind, "description": self.about, **default, **bounds}


@dataclass(slots=True)
class Understood:
    """The value of each argument, and what the caller should know about how they were read."""

    values: dict[str, str | int]
    notes: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        """An argument that is text."""
        return str(self.values[name])

    def number(self, name: str) -> int:
        """An argument that is a number."""
        return int(self.values[name])


def schema(arguments: Sequence[Argument]) -> dict[str, Any]:
    """The input schema of a tool."""
    published = [one for one in arguments if one.is_published]
    return {
        "type": "object",
        "properties": {one.name: one.schema() for one in published},
        "required": [one.name for one in published if one.is_required],
    }


def understand(
    tool: str, arguments: Sequence[Argument], given: Mapping[str, Any] | None
) -> Understood:
    """The arguments of a call by their right names, defaults filled in."""
    out = Understood({})
    found = _assigned(tool, arguments, _unwrapped(given or {}), out.notes)
    for one in arguments:
        value = found.get(one.name)
        if value is None:
            if one.is_required:
                raise InputError(
                    f"{tool} needs {one.name!r} "
                    f"({one.about[0].lower()}{one.about[1:].rstrip('.')}); "
                    f"{_right(tool, arguments)}"
                )
            out.values[one.name] = one.default
        else:
            out.values[one.name] = (
                _number(one, value, out.notes) if one.is_number else _text(one, value)
            )
    for one in arguments:
        if one.is_required and not str(out.values[one.name]).strip():
            raise InputError(f"{one.name} is empty; {_right(tool, arguments)}")
    return out


def _unwrapped(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments themselves where they came one level too deep, perhaps as text."""
    if len(given) != 1:
        return given
    (name, value), *_ = given.items()
    if name in _WRAPPERS and isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return given
    return value if name in _WRAPPERS and isinstance(value, Mapping) else given


def _assigned(
    tool: str, arguments: Sequence[Argument], given: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    """Values by the right name.

    The right name goes first, then the likelier one. A switch of some other tool is left out with a
    note.
    """
    sent = {_plain(name): value for name, value in given.items() if value is not None}
    # a name as it is wins over one that only resembles it
    sent.update({name: value for name, value in given.items() if value is not None})
    found: dict[str, Any] = {}
    for one in arguments:
        for name in one.names:
            if name in sent:
                found.setdefault(one.name, sent[name])
    known = {name for one in arguments for name in one.names} | _IDLE
    unknown = sorted(
        {
            name
            for name, value in given.items()
            if _plain(name) not in known and name not in known and value is not None
        }
    )
    ignored = [
        name
        for name in unknown
        if _plain(name) in _LEFT_OUT
        or (isinstance(given[name], bool) and not _asks_to_wait(name, given[name]))
    ]
    unknown = [name for name in unknown if name not in ignored]
    if ignored:
        notes.append(
            f"{', '.join(repr(name[:40]) for name in ignored[:5])} "
            f"{'was' if len(ignored) == 1 else 'were'} ignored"
        )
    if unknown:
        names = ", ".join(repr(name[:40]) for name in unknown[:5])
        raise InputError(f"{tool} has no argument {names}; {_right(tool, arguments)}")
    return found


def _asks_to_wait(name: str, value: bool) -> bool:
    return value and _plain(name) in _TRIALS


def _plain(name: str) -> str:
    """`maxResults`, `max-results` and `Max Results` as `max_results`."""
    return _SEPARATORS.sub("_", _HUMP.sub("_", name.strip())).lower()


def _right(tool: str, arguments: Sequence[Argument]) -> str:
    published = [
        one.name if one.is_required else f"{one.name}?" for one in arguments if one.is_published
    ]
    return f"give {tool}({', '.join(published)})"


def _text(one: Argument, value: Any) -> str:
    if isinstance(value, bool | Mapping):
        raise InputError(f"{one.name} is {_shown(value)}; give text")
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [_text(one, part) for part in value if part is not None]
        if len(parts) > 1 and not one.joins:
            raise InputError(f"{one.name} is a list of {len(parts)}; give one at a time")
        text = one.joins.join(parts)
    else:
        text = str(value)
    if len(text) > MAX_TEXT:
        raise InputError(f"{one.name} has {len(text)} characters; give at most {MAX_TEXT}")
    return text.encode("utf-8", "replace").decode()  # JSON may hold half a character


def _number(one: Argument, value: Any, notes: list[str]) -> int:
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    number = _parsed(value)
    if number is None:
        if isinstance(value, str) and not value.strip():
            return int(one.default)
        raise InputError(
            f"{one.name} is {_shown(value)}; give a whole number"
            + (f" from {one.low} to {one.high}" if one.high else "")
        )
    within = min(max(number, one.low), one.high or MAX_NUMBER)
    if within != number:
        notes.append(
            f"{one.name} {_shown(number)} is out of range, {within} was used"
            + (f" ({one.low} to {one.high})" if one.high else "")
        )
    return within


def _parsed(value: Any) -> int | None:
    """A whole number that may come as text or as a fraction; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    try:
        number = (
            float(value.strip().replace("_", "").replace(",", ""))
            if isinstance(value, str)
            else value
        )
    except ValueError:
        return None
    return int(number) if math.isfinite(number) else None


def _shown(value: object) -> str:
    text = (
        repr(value)
        if not isinstance(value, int) or abs(value) < 10**18
        else f"a number of {len(hex(value))} digits"
    )
    return text if len(text) <= 60 else f"{text[:60]}..."


# Places: what a model writes to name a document, or some of its lines

MAX_PLACE = 5_000
_LINES = re.compile(
    r"(?P<path>.+?)(?::|#L?|, lines? |\s+lines? "
    r")(?P<first>\d{1,9})(?:(?:-|–|:|\.\.|,)L?(?P<last>\d{1,9}))?",
    re.DOTALL,
)
# as hits are named, whatever the path is
_EXACT = re.compile(r"(?P<path>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.DOTALL)
_RANGE = re.compile(r"\D*(?P<first>\d{1,9})(?:\D+(?P<last>\d{1,9}))?\D*")
# an editor's [5, -1] goes on to the end
_ENDLESS = re.compile(r"\D*(?P<first>\d{1,9})\s*(?:-|,|:|\.\.)\s*-\d+\D*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A document's path, and the lines that were named with it; 0 where none were."""

    path: str
    first: int = 0
    last: int = 0


def readings(text: str) -> list[Place]:
    """What a text may name, the likeliest first: `path:10-20` as hits are named, lines as
    editors write them, `path#L10-L20`, or a path alone.
    """
    bare = text.strip().strip("`\"'")
    found = (
        [pattern.fullmatch(bare) for pattern in (_EXACT, _LINES)] if len(text) <= MAX_PLACE else []
    )
    places = [_place(one) for one in found if one is not None]
    return list(dict.fromkeys((*places, Place(path=_path(bare)), Place(path=text.strip()))))


def _place(found: re.Match[str]) -> Place:
    first, last = int(found["first"]), int(found["last"] or 0)
    return Place(
        path=_path(found["path"]), first=first, last=max(last, first) if found["last"] else 0
    )


def lines(text: str) -> tuple[int, int]:
    """A range that was sent by itself: `10-20`, `10`, `L10-L20`, `[10, 20]`; 0 and 0 where it
    holds no number.
    """
    if endless := _ENDLESS.fullmatch(text.strip()):
        return int(endless["first"]), 0
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return 0, 0
    first, last = int(found["first"]), int(found["last"] or 0)
    return (first, last) if not last or last >= first else (last, first)


def _path(text: str) -> str:
    text = text.strip().removeprefix("file://")
    while text.startswith("./"):
        text = text[2:]
    return text


def names(text: str) -> list[str]:
    """Projects in one text, between commas."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
