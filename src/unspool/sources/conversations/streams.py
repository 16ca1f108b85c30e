"""Values of a JSON document or of JSON lines, read in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO, NamedTuple

import ijson
from ijson.common import ObjectBuilder

from unspool.sources.conversations.opening import StreamError
from unspool.sources.conversations.records import RecordError, name_type

MAX_LINE_BYTES = 64 * 2**20
MAX_ITEM_COST = 128 * 2**20  # characters of one conversation's JSON, and a few for each value
MAX_TEXT_BYTES = 64 * 2**20  # of one text in a document, which the parser keeps in memory
MAX_DEPTH = 200
_VALUE_COST = 8
_BUFFER_BYTES = 65_536
_WRAPPER = "conversations"  # a document may be an object with the list under this key
_DEPTHS = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}
_REST_SKIPPED = "nothing behind this place was read"
_ERRORS = (
    (UnicodeDecodeError, "it is not UTF-8"),
    (RecursionError, "it is nested too deeply"),
    # only in a process with a limit
    (MemoryError, "it needs more memory than the limit of the process that reads it"),
    (ValueError, "it contains a number that is too long"),
)

# The parser fails at an escape of a lone surrogate, or decodes it to other characters.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.|$)",
    re.DOTALL,
)
# an escape, or a pair of them, that continues in the next piece
_CUT_ESCAPE = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?)\Z"
)
_MAX_ESCAPE_BYTES = 12
_QUOTE = re.compile(rb'(?<!\\)"')

Events = Iterator[tuple[str, Any]]


class JsonItem(NamedTuple):
    """Element of a document or line of a file, counted from 1; with a reason if unreadable."""

    number: int
    value: Any
    reason: str = ""

    def get_record(self) -> dict[str, Any]:
        """Return the value. Raise `RecordError` unless it is an object."""
        if self.reason or not isinstance(self.value, dict):
            raise RecordError(
                self.reason or f"it is {name_type(self.value)}; an object was expected"
            )
        return self.value


def read_elements(stream: BinaryIO) -> Iterator[JsonItem]:
    """Yield the elements of a list, of the list in `conversations`, or the document itself.

    If the document is truncated or invalid, the last item has the reason.
    """
    number = 0
    try:
        for value, reason in _build_elements(
            ijson.basic_parse(_RepairedStream(stream), buf_size=_BUFFER_BYTES)
        ):
            number += 1
            yield JsonItem(number, value, reason)
    except (ijson.JSONError, UnicodeDecodeError, StreamError) as error:
        yield JsonItem(number + 1, None, f"{describe_error(error)}; {_REST_SKIPPED}")


def read_lines(stream: BinaryIO) -> Iterator[JsonItem]:
    """Yield the values of the lines that are not blank."""
    number = 0
    try:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(_BUFFER_BYTES)
                yield JsonItem(number, None, f"it is longer than {MAX_LINE_BYTES // 2**20} MiB")
            elif line.strip():
                yield parse_line(number, line)
    except StreamError as error:
        yield JsonItem(number + 1, None, f"{error}; {_REST_SKIPPED}")


def parse_line(number: int, line: bytes) -> JsonItem:
    """Parse one line."""
    try:
        return JsonItem(number, json.loads(line.decode()))
    except (ValueError, RecursionError, MemoryError) as error:
        return JsonItem(number, None, describe_error(error))


def describe_error(error: Exception) -> str:
    """Describe an error of a parser or stream, without a word of the document."""
    text = str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON ({error.msg} at column {error.colno})"
    if not isinstance(error, ijson.JSONError):
        return next((reason for kind, reason in _ERRORS if isinstance(error, kind)), text)
    if is_truncated(error):
        return "the file ends in the middle of it"
    if "UTF8" in text:
        return "it is not UTF-8"
    first_line = re.split(r"\\n|\n", re.sub("""^b['"]""", "", text))[0].strip().rstrip(".")
    return f"it is no JSON ({first_line[:80]})"


def is_truncated(error: Exception) -> bool:
    """Return whether a document is valid up to its end, which is missing."""
    text = str(error).lower()
    return "premature eof" in text or "incomplete json" in text


class _RepairedStream:
    """Stream of JSON with U+FFFD in place of lone surrogates. Both escapes have six bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Read to the end of a long text.

        The parser starts a text again with each piece of it, so many pieces take long.
        """
        if not size:
            return b""
        piece = self._stream.read(size)
        pieces, length = [self._rest, piece], len(piece)
        while piece and not _QUOTE.search(piece):
            if length > MAX_TEXT_BYTES:
                raise StreamError(f"it contains a text of more than {MAX_TEXT_BYTES // 2**20} MiB")
            piece = self._stream.read(size)
            pieces.append(piece)
            length += len(piece)
        data = b"".join(pieces)
        may_cut = bool(piece) and b"\\" in data[-_MAX_ESCAPE_BYTES:]
        cut = _CUT_ESCAPE.search(data) if may_cut else None
        end = cut.start(1) if cut else len(data)
        self._rest = data[end:]
        return repair_surrogates(data[:end])


def repair_surrogates(data: bytes) -> bytes:
    """Replace escapes of lone surrogates by that of U+FFFD."""
    if not _SURROGATE.search(data):
        return data
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape["lone"] else escape[0], data)


class _BoundedBuilder:
    """Builder of one value from the parser's events, up to a size and a depth."""

    def __init__(self) -> None:
        self._builder = ObjectBuilder()
        self._cost = 0
        self.depth = 0
        self.reason = ""

    def add(self, event: str, value: Any) -> bool:
        """Add an event. Return whether the value is complete."""
        self.depth += _DEPTHS.get(event, 0)
        if self.reason:
            return not self.depth
        self._cost += _VALUE_COST
        if isinstance(value, str):
            self._cost += len(value)
        elif isinstance(value, Decimal):
            value = float(value)
        self._builder.event(event, value)
        if self._cost > MAX_ITEM_COST:
            limit = MAX_ITEM_COST // 2**20
            self.reason = f"it is larger than {limit} MiB; give it as JSON lines"
        elif self.depth > MAX_DEPTH:
            self.reason = "it is nested too deeply"
        return not self.depth

    @property
    def item(self) -> tuple[Any, str]:
        """Value, and the reason if it exceeds a limit."""
        return (None if self.reason else self._builder.value), self.reason


def _build_elements(events: Events) -> Iterator[tuple[Any, str]]:
    event, value = next(events)
    if event == "start_array":
        yield from _build_list(events)
    else:
        yield from _build_document(event, value, events)
    for _ in events:
        pass  # raises an error if anything follows the document


def _build_list(events: Events) -> Iterator[tuple[Any, str]]:
    builder = _BoundedBuilder()
    for event, value in events:
        if event == "end_array" and not builder.depth:
            return
        if builder.add(event, value):
            yield builder.item
            builder = _BoundedBuilder()


def _build_document(event: str, value: Any, events: Events) -> Iterator[tuple[Any, str]]:
    builder = _BoundedBuilder()
    is_complete = builder.add(event, value)
    is_wrapper = False
    while not is_complete:
        is_key = event == "map_key" and value == _WRAPPER and builder.depth == 1
        event, value = next(events)
        if is_key and event == "start_array":
            is_wrapper = True
            yield from _build_list(events)
            event, value = "null", None
        is_complete = builder.add(event, value)
    if not is_wrapper:
        yield builder.item
