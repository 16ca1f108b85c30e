"""Values of a JSON document or of JSON lines, read in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import ijson

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


def _build_elements(events: Events) -> Iterator[tuple[Any, str]]:
    event, value = next(events)
    if event == "start_array":
        yield from _build_list(events)
    elif event == "start_map":
        yield from _build_document(events)
    else:
        yield value, ""
    for _ in events:
        pass  # raises an error if anything follows the document


def _build_list(events: Events) -> Iterator[tuple[Any, str]]:
    for event, value in events:
        if event == "end_array":
            return
        yield _build_value((event, value), events, MAX_ITEM_COST)[:2]


def _build_document(events: Events) -> Iterator[tuple[Any, str]]:
    """Yield the elements of the list in an object, or the object itself."""
    document: dict[str, Any] = {}
    reason, left, is_wrapper = "", MAX_ITEM_COST, False
    for event, key in events:
        if event == "end_map":
            break
        event, value = next(events)
        if key == _WRAPPER and event == "start_array":
            is_wrapper = True
            yield from _build_list(events)
            continue
        one, failure, left = _build_value((event, value), events, left - len(key))
        reason = reason or failure
        if not reason:
            document[key] = one
    if not is_wrapper:
        yield (None if reason else document), reason


def _build_value(first: tuple[str, Any], events: Events, left: int) -> tuple[Any, str, int]:
    """Build one value from the parser's events. Returns it, a reason if not, and the cost left.

    One loop instead of ijson's `ObjectBuilder`: reading a large export takes a quarter less time.
    """
    top: Any = []
    stack, key = [top], ""
    for event, value in chain((first,), events):
        left -= _VALUE_COST
        if event == "map_key":
            key = value
            left -= len(value)
            continue
        if event == "end_map" or event == "end_array":
            stack.pop()
            top = stack[-1]
        else:
            new = value
            if event == "string":
                left -= len(value)
            elif event == "start_map":
                new = {}
            elif event == "start_array":
                new = []
            elif event == "number" and isinstance(value, Decimal):
                new = float(value)
            if type(top) is dict:
                top[key] = new
            else:
                top.append(new)
            if event == "start_map" or event == "start_array":
                stack.append(new)
                top = new
                if len(stack) > MAX_DEPTH + 1:
                    _skip(events, len(stack) - 1)
                    return None, "it is nested too deeply", max(left, 0)
        if top is stack[0]:
            return top[0], "", left
        if left < 0:
            _skip(events, len(stack) - 1)
            limit = MAX_ITEM_COST // 2**20
            return None, f"it is larger than {limit} MiB; give it as JSON lines", 0
    raise AssertionError("the parser ended inside a value without an error")


def _skip(events: Events, depth: int) -> None:
    """Skip the rest of a value."""
    for event, _ in events:
        depth += _DEPTHS.get(event, 0)
        if not depth:
            return
