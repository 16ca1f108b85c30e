"""Values of the records of an export, and the report of bad records with their position."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from unspool.domain.conversations import EARLIEST, LATEST, MAX_AUTHOR_LENGTH, AuthorKind
from unspool.domain.documents import MAX_NAME_LENGTH, MAX_NUMBER, Scalar
from unspool.domain.reports import BadRecord

MAX_TITLE_LENGTH = 500
MAX_ID_LENGTH = 200
# of the arguments and the answer of a tool; nobody searches for the rest
TOOL_CHARS = 1_000

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NUMBER = re.compile(r"-?\d{9,19}(\.\d{1,20})?")  # eight digits are a date
_NAMES = (
    (str, "text"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (list, "a list"),
    (dict, "an object"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# from this number on: nanoseconds, microseconds, milliseconds
_UNITS = ((10**17, 10**9), (10**14, 10**6), (10**11, 10**3))
_MAX_EPOCH = 10**19
_KINDS = {
    "user": AuthorKind.USER,
    "human": AuthorKind.USER,
    "assistant": AuthorKind.ASSISTANT,
    "ai": AuthorKind.ASSISTANT,
    "bot": AuthorKind.ASSISTANT,
    "model": AuthorKind.ASSISTANT,
    "system": AuthorKind.SYSTEM,
    "developer": AuthorKind.SYSTEM,
    "tool": AuthorKind.TOOL,
    "function": AuthorKind.TOOL,
}


class RecordError(Exception):
    """A record cannot be read. The message says why."""


@dataclass(frozen=True, slots=True)
class ErrorLog:
    """Bad records of an export, and the position that is being read."""

    source: str
    position: str = ""
    records: list[BadRecord] = field(default_factory=list)

    @contextmanager
    def at(self, position: str) -> Iterator[ErrorLog]:
        """Report a `RecordError` raised in this block, at a position inside the current one."""
        inner = ErrorLog(self.source, f"{self.position} {position}".strip(), self.records)
        try:
            yield inner
        except RecordError as error:
            inner.add(str(error))

    def add(self, reason: str) -> None:
        """Report a bad record at the current position."""
        self.records.append(
            BadRecord(source=self.source, position=self.position or "the whole file", reason=reason)
        )

    def drain(self) -> Iterator[BadRecord]:
        """Yield the records reported since the last call."""
        records = self.records.copy()
        self.records.clear()
        yield from records

    def parse_time(self, value: object) -> datetime | None:
        """Parse a time in UTC: ISO 8601, or seconds, milliseconds or smaller units since 1970.

        A time without a zone is in UTC. An invalid one is reported: the message is kept without.
        """
        if value is None or value == "":
            return None
        try:
            return _parse_time(value)
        except (ValueError, ArithmeticError):
            is_scalar = isinstance(value, str | int | float)
            label = repr(join_line(str(value), 40)) if is_scalar else name_type(value)
            self.add(
                f"{label} is no time; give ISO 8601 or seconds since 1970; kept without a time"
            )
            return None


def clean_text(text: str) -> str:
    """Replace characters that databases reject (NUL, lone surrogates) by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def join_line(value: object, most: int = MAX_TITLE_LENGTH) -> str:
    """Join a text to one line of at most `most` characters. Empty if it is no text."""
    if not isinstance(value, str):
        return ""
    text = clean_text(" ".join(_CONTROL.sub(" ", value).split()))
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def name_type(value: object) -> str:
    """Return the name of a JSON type for an error message."""
    return next((name for types, name in _NAMES if isinstance(value, types)), "nothing")


def get_text(value: object) -> str:
    """Return a text as it is, and "" for any other value."""
    return value if isinstance(value, str) else ""


def get_dict(value: Any) -> dict[str, Any]:
    """Return an object as it is, and {} for any other value."""
    return value if isinstance(value, dict) else {}


def list_dicts(value: Any) -> list[dict[str, Any]]:
    """List the objects in a list. Empty for any other value."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def clean_author(value: object) -> str:
    """Clean the name of an author, and cut it to the allowed length."""
    return join_line(value, MAX_AUTHOR_LENGTH)


def parse_id(value: object) -> str:
    """Return an id as text, from text or a number. Empty if there is none.

    An id that is too long ends in its hash, so that it stays unique.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    if isinstance(value, int) and abs(value) >= MAX_NUMBER:
        return ""
    text = join_line(str(value), most=10**9)
    if len(text) <= MAX_ID_LENGTH:  # suffixes follow
        return text
    return f"{text[:MAX_ID_LENGTH]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def shorten(text: str, most: int = TOOL_CHARS) -> str:
    """Cut a text to its first `most` characters."""
    text = text.strip()
    return text if len(text) <= most else text[:most].rstrip() + " …"


def parse_kind(value: object) -> AuthorKind | None:
    """Return the kind of author for a role. None for an unknown role."""
    return _KINDS.get(value.strip().lower()) if isinstance(value, str) else None


def _parse_time(value: object) -> datetime:
    """Parse a time. Raise `ValueError` or `ArithmeticError` if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        time = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    else:
        number = Decimal(str(value))
        unit = next((unit for least, unit in _UNITS if abs(number) >= least), 1)
        time = _EPOCH + timedelta(microseconds=round(number * 10**6 / unit))
        if abs(number) > _MAX_EPOCH:
            raise ValueError
    # Many programs write the year 1 for none.
    if not EARLIEST <= time <= LATEST:
        raise ValueError
    return time


def convert_metadata(value: object) -> dict[str, Scalar]:
    """Convert an object to metadata. Lists and objects become JSON, and null is left out."""
    return {
        key: _convert_scalar(one)
        for name, one in get_dict(value).items()
        if (key := join_line(name, MAX_NAME_LENGTH)) and one is not None
    }


def _convert_scalar(value: Any) -> Scalar:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool | int | float) and abs(value) < MAX_NUMBER:
        return value
    return clean_text(dump_json(value))


def dump_json(value: object) -> str:
    """Format a value as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "…"
