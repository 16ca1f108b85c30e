"""Values as exports write them, as the domain takes them: names, times, kinds of authors, metadata.

Pure.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from unspool.domain.conversations import EARLIEST, LATEST, MAX_AUTHOR_LENGTH, AuthorKind
from unspool.domain.documents import MAX_NAME_LENGTH, MAX_NUMBER, Scalar

MAX_TITLE_LENGTH = 500
MAX_ID_LENGTH = 200
# of what a tool was given or gave back; the rest is seldom what anyone looks for later
TOOL_CHARS = 1_000

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")
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


def clean(text: str) -> str:
    """The text with what no database takes (NUL, lone surrogates) replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def one_line(value: object, most: int = MAX_TITLE_LENGTH) -> str:
    """A text as one line of at most so many characters; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    text = " ".join(_CONTROL.sub(" ", value).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def named(value: object) -> str:
    """What a value of JSON is, in a word for people."""
    for types, name in _NAMES:
        if isinstance(value, types):
            return name
    return "nothing"


def word(value: object) -> str:
    """A word such as a type or a role; empty for what is no text."""
    return value if isinstance(value, str) else ""


def author_name(value: object) -> str:
    """The name of an author, cut to what the domain takes."""
    return one_line(value, MAX_AUTHOR_LENGTH)


def identity(value: object) -> str:
    """An id as text, from text or a number; empty where there is none.

    One that is too long ends in its fingerprint, so that two stay two.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    text = (
        " ".join(_CONTROL.sub(" ", str(value)).split())
        if isinstance(value, str) or abs(value) < MAX_NUMBER
        else ""
    )
    if len(text) <= MAX_ID_LENGTH:  # room for what is put behind it
        return text
    return f"{text[:MAX_ID_LENGTH]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def shortened(text: str, most: int = TOOL_CHARS) -> str:
    """The beginning of a text that is longer than so many characters."""
    text = text.strip()
    return text if len(text) <= most else text[:most].rstrip() + " …"


def kind_of(value: object) -> AuthorKind | None:
    """The kind that a role stands for; None for one that is not known."""
    return _KINDS.get(value.strip().lower()) if isinstance(value, str) else None


def moment(value: object) -> datetime | None:
    """A time in UTC: seconds, milliseconds or finer since 1970, as a number or as text, or ISO 8601
    (UTC where no zone is given).

    None where there is none; `ValueError` for what is no time.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            return _since_1970(Decimal(text))
        try:
            parsed = datetime.fromisoformat(text.removesuffix(" UTC"))
            return _storable(
                (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
            )
        except (ValueError, OverflowError):
            raise ValueError(
                f"{one_line(text, 40)!r} is no time; give ISO 8601 or seconds since 1970"
            ) from None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (isinstance(value, int) or math.isfinite(value))
    ):
        raise ValueError(f"{named(value)} is no time; give ISO 8601 or seconds since 1970")
    if abs(value) > 10**19:
        raise ValueError("a number of that size is no time; give seconds since 1970")
    return _since_1970(Decimal(str(value)))


def _since_1970(number: Decimal) -> datetime:
    unit = next((unit for least, unit in _UNITS if abs(number) >= least), 1)
    try:
        return _storable(_EPOCH + timedelta(microseconds=round(number * 10**6 / unit)))
    except (ValueError, OverflowError):
        raise ValueError(f"{number} seconds since 1970 is no time that can be kept") from None


def _storable(time: datetime) -> datetime:
    """The time, if the domain takes it; many programs write the year 1 for none."""
    if not EARLIEST <= time <= LATEST:
        raise ValueError(f"{time:%Y} is out of range")
    return time


def metadata_of(value: object) -> dict[str, Scalar]:
    """What of an object can be metadata: scalars as they are, lists and objects as JSON; null is
    left out.
    """
    if not isinstance(value, Mapping):
        return {}
    kept: dict[str, Scalar] = {}
    for name, one in value.items():
        key = one_line(name, MAX_NAME_LENGTH)
        if key and one is not None:
            kept[key] = _scalar(one)
    return kept


def _scalar(value: Any) -> Scalar:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool | int | float) and abs(value) < MAX_NUMBER:
        return value
    return clean(as_json(value))


def as_json(value: object) -> str:
    """A value as JSON for people to read."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "…"
