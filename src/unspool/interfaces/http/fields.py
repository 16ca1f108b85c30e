"""What may stand in a request, value by value.

The published schema says exactly what is enforced.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, to_json

from unspool.domain.conversations import MAX_AUTHOR_LENGTH, MAX_MESSAGE_ID_LENGTH
from unspool.domain.documents import MAX_NAME_LENGTH, MAX_NUMBER, MAX_PATH_LENGTH
from unspool.domain.history import MAX_STREAM_LENGTH
from unspool.domain.queries import MAX_QUERY_CHARACTERS

# What Python's str.strip() takes away; the word for it, \s, means something else to every reader of
# patterns.
SPACE = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
SOME = rf"[^{SPACE}]"
WHOLE = r"^[^\x00]*$"
_NAME = r"*,\x00-\x1f\x7f"
PROJECT = rf"^[^{_NAME}{SPACE}]([^{_NAME}]*[^{_NAME}{SPACE}])?$"
PROJECT_OR_ALL = rf"^(\*|[^{_NAME}{SPACE}]([^{_NAME}]*[^{_NAME}{SPACE}])?)$"
_CONTROL = r"\x00-\x1f\x7f-\x9f"
STREAM = rf"^[^{_CONTROL}{SPACE}]([^{_CONTROL}]*[^{_CONTROL}{SPACE}])?$"
_LINE = r"^[^\x00\n]*$"
_DAY = (
    r"(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])"
)
_LEAP = r"((1[789]|2[01])(0[48]|[2468][048]|[13579][26])|2000)-02-29"
CLOCK = r"([01]\d|2[0-3]):[0-5]\d"
DATE = rf"((1[789]|2[01])\d\d-({_DAY})|{_LEAP})".replace(r"\d", "[0-9]")
MOMENT = rf"^{DATE}T{CLOCK}:[0-5]\d(\.\d{{1,6}})?(Z|[+-]{CLOCK})$".replace(r"\d", "[0-9]")
FAR = 2**31 - 1
MAX_TITLE = 1_000
MAX_URL = 4_096
MAX_METADATA_BYTES = 65_536
# in one object of a body; only metadata and filters have names that callers make up
MAX_NAMES = 1_000
_ENDS = (re.compile(MOMENT), re.compile(WHOLE))


def _moment(value: Any) -> datetime:
    if not isinstance(value, str) or not _ENDS[0].match(value):
        raise PydanticCustomError(
            "moment",
            "give a time with its offset, from the years 1700 to 2199, such as "
            "2026-01-31T12:00:00Z",
        )
    return datetime.fromisoformat(value)


def _decoded(value: Any) -> Any:
    """A name in a path, with the slashes and line breaks that belong to it: `middleware.Paths`
    left those and percent signs as they came.
    """
    return (
        value.replace("%2F", "/").replace("%0A", "\n").replace("%25", "%")
        if isinstance(value, str)
        else value
    )


def _digits(value: Any) -> Any:
    """A number in a query. Python would also take signs, underscores and blanks."""
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,19}", value):
            raise PydanticCustomError("digits", "give a whole number")
        return int(value)
    return value


def _whole(value: Any) -> Any:
    """A number in JSON, where 1.0 is a whole one, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _truth(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _flat(metadata: dict[str, Any]) -> dict[str, Any]:
    for key, value in metadata.items():
        if not 1 <= len(key) <= MAX_NAME_LENGTH or "\x00" in key:
            raise PydanticCustomError(
                "metadata_key", f"give each key 1 to {MAX_NAME_LENGTH} characters without NUL"
            )
        if not (
            value is True
            or value is False
            or _is_number(value)
            or (isinstance(value, str) and _ENDS[1].match(value))
        ):
            raise PydanticCustomError(
                "metadata_value",
                "give strings without NUL, booleans, or numbers between -2**63 and 2**63",
            )
    if len(to_json(metadata)) > MAX_METADATA_BYTES:
        raise PydanticCustomError(
            "metadata_size", f"give at most {MAX_METADATA_BYTES} bytes of JSON"
        )
    return metadata


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER
    )


_SCALAR = {
    "anyOf": [
        {"type": "string", "pattern": WHOLE},
        {"type": "number", "exclusiveMinimum": -MAX_NUMBER, "exclusiveMaximum": MAX_NUMBER},
        {"type": "boolean"},
    ]
}

ProjectName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, pattern=PROJECT)]
ProjectOrAll = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_LENGTH, pattern=PROJECT_OR_ALL)
]
Projects = Annotated[list[ProjectOrAll], Field(fail_fast=True, min_length=1, max_length=1_000)]
DocumentPath = Annotated[str, Field(min_length=1, max_length=MAX_PATH_LENGTH, pattern=WHOLE)]
StreamName = Annotated[str, Field(min_length=1, max_length=MAX_STREAM_LENGTH, pattern=STREAM)]
Text = Annotated[str, Field()]
Title = Annotated[str, Field(max_length=MAX_TITLE, pattern=WHOLE)]
Url = Annotated[str, Field(max_length=MAX_URL, pattern=WHOLE)]
Query = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, pattern=SOME)]
SomeText = Annotated[str, Field(min_length=1, pattern=SOME)]
Language = Annotated[str, Field(max_length=40, pattern=WHOLE)]
Author = Annotated[str, Field(max_length=MAX_AUTHOR_LENGTH, pattern=_LINE)]
MessageId = Annotated[str, Field(max_length=MAX_MESSAGE_ID_LENGTH, pattern=_LINE)]
Whole = BeforeValidator(_whole)
Number = Annotated[StrictInt, Field(ge=1, le=FAR), Whole]
Count = Annotated[StrictInt, Field(ge=0, le=FAR), Whole]
Limit = Annotated[StrictInt, Field(ge=1, le=1_000), Whole]
Coordinate = Annotated[StrictFloat, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Flag = StrictBool
Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": MOMENT}),
]
Metadata = Annotated[
    dict[str, Any],
    AfterValidator(_flat),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_NAMES,
            "propertyNames": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_NAME_LENGTH,
                "pattern": WHOLE,
            },
            "additionalProperties": _SCALAR,
        }
    ),
]

# The same in a query or in a path, where everything is text
Decoded = BeforeValidator(_decoded)
Digits = BeforeValidator(_digits)
Truth = BeforeValidator(_truth)
