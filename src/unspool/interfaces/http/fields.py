"""Types of the values in requests. The published schema states exactly what is enforced."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictFloat,
    StrictInt,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, to_json

from unspool.domain.conversations import MAX_AUTHOR_LENGTH, MAX_MESSAGE_ID_LENGTH
from unspool.domain.documents import MAX_NAME_LENGTH, MAX_NUMBER, MAX_PATH_LENGTH, freeze_metadata
from unspool.domain.history import MAX_STREAM_LENGTH
from unspool.domain.queries import MAX_QUERY_CHARACTERS
from unspool.errors import InputError

# characters that Python's str.strip() removes; \s differs between dialects of patterns
SPACE = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
SOME = rf"[^{SPACE}]"
WHOLE = r"^[^\x00]*$"
_NAME = r"*,\x00-\x1f\x7f"
PROJECT = rf"^[^{_NAME}{SPACE}]([^{_NAME}]*[^{_NAME}{SPACE}])?$"
PROJECT_OR_ALL = rf"^(\*|[^{_NAME}{SPACE}]([^{_NAME}]*[^{_NAME}{SPACE}])?)$"
_CONTROL = r"\x00-\x1f\x7f-\x9f"
STREAM = rf"^[^{_CONTROL}{SPACE}]([^{_CONTROL}]*[^{_CONTROL}{SPACE}])?$"
_LINE = r"^[^\x00\n]*$"
# the format excludes dates that do not exist; the years keep every offset within range
_YEAR = "(1[789]|2[01])[0-9]{2}"
DAY = {"type": "string", "format": "date", "pattern": f"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$"}
MOMENT = (
    rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)
TIME = {"type": "string", "format": "date-time", "pattern": MOMENT}
FAR = 2**31 - 1
MAX_TITLE = 1_000
MAX_URL = 4_096
MAX_METADATA_BYTES = 65_536
# in one object of a body; only metadata and filters have names that callers choose
MAX_NAMES = 1_000


def _parse_time(value: Any) -> datetime:
    try:
        if isinstance(value, str) and re.match(MOMENT, value):
            return datetime.fromisoformat(value)
    except ValueError:
        pass  # a day or an hour that does not exist
    raise PydanticCustomError(
        "moment",
        "give a time with its offset, from the years 1700 to 2199, such as 2026-01-31T12:00:00Z",
    )


def _decode_name(value: Any) -> Any:
    """Decode the slashes, line breaks and percent signs that `middleware.decode_path` left."""
    return (
        value.replace("%2F", "/").replace("%0A", "\n").replace("%25", "%")
        if isinstance(value, str)
        else value
    )


def _parse_digits(value: Any) -> Any:
    """Parse a number in a query. Python would also accept underscores and spaces."""
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,19}", value):
            raise PydanticCustomError("digits", "give a whole number")
        return int(value)
    return value


def _convert_whole(value: Any) -> Any:
    """Convert a float such as 1.0, which JSON Schema counts as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_truth(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    freeze_metadata(metadata)
    if len(to_json(metadata)) > MAX_METADATA_BYTES:
        raise InputError(f"metadata is too large; give at most {MAX_METADATA_BYTES} bytes of JSON")
    return metadata


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
Title = Annotated[str, Field(max_length=MAX_TITLE, pattern=WHOLE)]
Url = Annotated[str, Field(max_length=MAX_URL, pattern=WHOLE)]
Query = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, pattern=SOME)]
SomeText = Annotated[str, Field(min_length=1, pattern=SOME)]
Language = Annotated[str, Field(max_length=40, pattern=WHOLE)]
Author = Annotated[str, Field(max_length=MAX_AUTHOR_LENGTH, pattern=_LINE)]
MessageId = Annotated[str, Field(max_length=MAX_MESSAGE_ID_LENGTH, pattern=_LINE)]
Whole = BeforeValidator(_convert_whole)
Number = Annotated[StrictInt, Field(ge=1, le=FAR), Whole]
Count = Annotated[StrictInt, Field(ge=0, le=FAR), Whole]
Limit = Annotated[StrictInt, Field(ge=1, le=1_000), Whole]
Coordinate = Annotated[StrictFloat, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Moment = Annotated[
    datetime,
    BeforeValidator(_parse_time),
    WithJsonSchema(TIME),
]
Metadata = Annotated[
    dict[str, Any],
    AfterValidator(_check_metadata),
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

# for queries and paths, where every value is text
Decoded = BeforeValidator(_decode_name)
Digits = BeforeValidator(_parse_digits)
Truth = BeforeValidator(_parse_truth)
