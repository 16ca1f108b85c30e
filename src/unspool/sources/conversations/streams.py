"""Records of a JSON document or of JSON lines, parsed one at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

from unspool.sources.conversations.opening import StreamError
from unspool.sources.conversations.records import RecordError, name_type

MAX_RECORD_CHARS = 64 * 2**20
# A record at the end of this piece is parsed again with the next one. Pieces of 64 KiB cost 25 %.
_READ_CHARS = 2**18
# The parser reports the start of a token. The longest ones are a pair of escapes and -Infinity.
_TOKEN_CHARS = 12
_WRAPPER = "conversations"  # a document may be an object with the list under this key
_REST_SKIPPED = "nothing behind this place was read"
_TRUNCATED = "the file ends in the middle of it"
INVALID_BYTE = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, after decoding
_NOT_UTF8 = "it is not UTF-8"
_SPACE = re.compile(r"[ \t\n\r]*")
_ERRORS = (
    (UnicodeError, _NOT_UTF8),
    (RecursionError, "it is nested too deeply"),
    # only in a process with a limit
    (MemoryError, "it needs more memory than the limit of the process that reads it"),
    (ValueError, "it contains a number that is too long"),
)
_DECODER = json.JSONDecoder()


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


def read_elements(text: TextIO) -> Iterator[JsonItem]:
    """Yield the elements of a list, of the list in `conversations`, or the document itself.

    If the document is truncated or invalid, the last item has the reason.
    """
    number = 0
    try:
        for item in _parse_document(_JsonText(text)):
            number += 1
            yield item._replace(number=number)
    except (ValueError, RecursionError, StreamError) as error:
        yield JsonItem(number + 1, None, f"{_describe_error(error)}; {_REST_SKIPPED}")


def read_lines(text: TextIO) -> Iterator[JsonItem]:
    """Yield the values of the lines that are not blank."""
    number = 0
    try:
        while line := text.readline(MAX_RECORD_CHARS + 1):
            number += 1
            if len(line) > MAX_RECORD_CHARS:
                while line and not line.endswith("\n"):
                    line = text.readline(_READ_CHARS)
                yield JsonItem(number, None, f"it is longer than {MAX_RECORD_CHARS} characters")
            elif line.strip():
                yield parse_line(number, line)
    except StreamError as error:
        yield JsonItem(number + 1, None, f"{error}; {_REST_SKIPPED}")


def parse_line(number: int, line: str) -> JsonItem:
    """Parse one line."""
    try:
        line.encode()  # bytes that are not UTF-8 have been decoded to surrogates
        return JsonItem(number, json.loads(line))
    except (ValueError, RecursionError, MemoryError) as error:
        return JsonItem(number, None, _describe_error(error))


def _describe_error(error: Exception) -> str:
    """Describe an error of a parser or stream, without a word of the document."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON ({error.msg} at column {error.colno})"
    return next((reason for kind, reason in _ERRORS if isinstance(error, kind)), str(error))


class _JsonText:
    """Text of a JSON document. Only the value that is being parsed is in memory."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._position = 0
        self.char_count = 0  # read so far

    def peek(self) -> str:
        """Return the next character that is no space. Empty at the end."""
        while True:
            match = _SPACE.match(self._text, self._position)
            self._position = match.end() if match else 0
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_more():
                return ""

    def skip(self, characters: str) -> str:
        """Return the next character and move behind it. Raise unless it is one of these."""
        found = self.peek()
        if not found:
            raise StreamError(_TRUNCATED)
        if found not in characters:
            raise StreamError(f"it is no JSON (expected {' or '.join(characters)})")
        self._position += 1
        return found

    def walk(self, start: str, end: str) -> Iterator[None]:
        """Move to each member of a list or object, and then behind its closing bracket."""
        self.skip(start)
        if self.peek() == end:
            self.skip(end)
            return
        yield
        while self.skip(f",{end}") == ",":
            yield

    def parse_value(self) -> JsonItem:
        """Parse the next value. An error at the end of the text may vanish with more text."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                is_cut = error.pos + _TOKEN_CHARS > len(self._text)
                if not is_cut and not error.msg.startswith("Unterminated string"):
                    raise StreamError(f"it is no JSON ({error.msg})") from error
                if not self._read_more():
                    raise StreamError(_TRUNCATED) from error
            else:
                # A number may continue.
                if end < len(self._text) or not self._read_more():
                    break
        start, self._position = self._position, end
        if not self._text.isascii() and INVALID_BYTE.search(self._text, start, end):
            return JsonItem(0, None, _NOT_UTF8)
        return JsonItem(0, value)

    def _read_more(self) -> bool:
        """Read a multiple of the text in memory, so that values are parsed again only a few times.

        Return False at the end of the file.
        """
        length = len(self._text) - self._position
        _check_length(length + 1)
        more = self._file.read(min(max(_READ_CHARS, 3 * length), MAX_RECORD_CHARS - length))
        self.char_count += len(more)
        if more:
            self._text, self._position = self._text[self._position :] + more, 0
        return bool(more)


def _check_length(length: int) -> None:
    if length > MAX_RECORD_CHARS:
        raise StreamError(
            f"it is longer than {MAX_RECORD_CHARS} characters; give its messages as JSON lines"
        )


def _parse_document(text: _JsonText) -> Iterator[JsonItem]:
    first = text.peek()
    if first == "[":
        yield from _parse_list(text)
    elif first == "{":
        yield from _parse_object(text)
    else:
        yield text.parse_value()
    if text.peek():
        raise StreamError("it is no JSON (the document has ended before)")


def _parse_list(text: _JsonText) -> Iterator[JsonItem]:
    for _ in text.walk("[", "]"):
        yield text.parse_value()


def _parse_object(text: _JsonText) -> Iterator[JsonItem]:
    """Yield the elements of the list in an object, or the object itself."""
    document: dict[str, Any] = {}
    reason, is_wrapper = "", False
    for _ in text.walk("{", "}"):
        key = text.parse_value().value
        if not isinstance(key, str):
            raise StreamError("it is no JSON (a key is no text)")
        text.skip(":")
        if key == _WRAPPER and text.peek() == "[":
            is_wrapper = True
            yield from _parse_list(text)
        else:
            _, document[key], failure = text.parse_value()
            reason = reason or failure
        if is_wrapper:
            document.clear()
        else:
            _check_length(text.char_count)
    if not is_wrapper:
        yield JsonItem(0, document, reason)
