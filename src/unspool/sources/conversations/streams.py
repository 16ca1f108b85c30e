"""JSON piece by piece: the elements of a document, or the lines of a file, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO, NamedTuple

import ijson

from unspool.sources.conversations.opening import StreamError

MAX_LINE_BYTES = 64 * 2**20
MAX_ITEM_COST = 128 * 2**20  # characters of one conversation's JSON, and a few for each value
MAX_TEXT_BYTES = 64 * 2**20  # of one text in a document: the parser holds it whole
MAX_DEPTH = 200
_VALUE_COST = 8
_BUFFER_BYTES = 65_536
_WRAPPER = "conversations"  # a document may be an object that holds the list under this name

# Escapes for halves of characters that stand alone end the parser, or become other characters.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.|$)",
    re.DOTALL,
)
_LONGEST_ESCAPE = 12
_QUOTE = re.compile(rb'(?<!\\)"')

Events = Iterator[tuple[str, Any]]


class Item(NamedTuple):
    """An element or a line, counted from 1. With a reason it could not be read."""

    number: int
    value: Any
    reason: str = ""


class _Refused(NamedTuple):
    reason: str


def elements(stream: BinaryIO) -> Iterator[Item]:
    """The elements of a list, those of the list in an object's `conversations`, or the one value
    that the document is.

    Where the document breaks off or is no JSON any more, the last item says so.
    """
    number = 0
    try:
        for value in _values(ijson.basic_parse(_Mended(stream), buf_size=_BUFFER_BYTES)):
            number += 1
            yield (
                Item(number, None, value.reason)
                if isinstance(value, _Refused)
                else Item(number, value)
            )
    except (ijson.JSONError, UnicodeDecodeError) as error:
        yield Item(number + 1, None, f"{why(error)}; nothing behind this place was read")
    except StreamError as error:
        yield Item(number + 1, None, f"{error}; nothing behind this place was read")


class _Mended:
    """A stream of JSON in which the escape of half a character is that of U+FFFD; both have six
    bytes.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._held = b""  # an escape that the last piece broke off

    def read(self, size: int = -1) -> bytes:
        if not size:
            return b""
        while True:
            new = self._piece(size)
            data, self._held = self._held + new, b""
            if b"\\" not in data[-_LONGEST_ESCAPE:] and not _HALF.search(data):
                return data
            mended, self._held = _mended(data, len(data) - _LONGEST_ESCAPE if new else len(data))
            if mended or not new:
                return mended

    def _piece(self, size: int) -> bytes:
        """The next bytes, to the end of a long text: the parser begins a text anew with each
        piece of it, so that many pieces take long.
        """
        pieces = [self._stream.read(size)]
        read = len(pieces[0])
        while pieces[-1] and not _QUOTE.search(pieces[-1]):
            if read > MAX_TEXT_BYTES:
                raise StreamError(f"it holds a text of more than {MAX_TEXT_BYTES // 2**20} MiB")
            pieces.append(self._stream.read(size))
            read += len(pieces[-1])
        return b"".join(pieces)


def _mended(data: bytes, last: int) -> tuple[bytes, bytes]:
    """The data with halves of characters replaced, up to the first escape that begins behind
    `last`; and the rest.
    """
    cut = len(data)

    def mend(escape: re.Match[bytes]) -> bytes:
        nonlocal cut
        if escape.start() > last:
            cut = min(cut, escape.start())
        return rb"\ufffd" if escape["half"] else escape[0]

    mended = _ESCAPE.sub(mend, data)
    return mended[:cut], data[cut:]


def mended(data: bytes) -> bytes:
    """JSON in which no escape is that of half a character."""
    return _mended(data, len(data))[0] if _HALF.search(data) else data


def why(error: Exception) -> str:
    """What is wrong with a document, without a word of what it says."""
    if is_premature(error):
        return "the file ends in the middle of it"
    text = str(error.args[0] if error.args else error)
    text = (
        text.removeprefix("b'")
        .removeprefix('b"')
        .replace("\\n", "\n")
        .partition("\n")[0]
        .strip()
        .rstrip(".")
    )
    return (
        "it is not UTF-8"
        if "UTF8" in text or isinstance(error, UnicodeDecodeError)
        else f"it is no JSON ({text[:80]})"
    )


def is_premature(error: Exception) -> bool:
    """Whether a document is right as far as it goes."""
    text = str(error).lower()
    return "premature eof" in text or "incomplete json" in text


def lines(stream: BinaryIO) -> Iterator[Item]:
    """The values of the lines that are not blank; a line that is no JSON, or too long, has a
    reason.
    """
    number = 0
    try:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(_BUFFER_BYTES)
                yield Item(number, None, f"it is longer than {MAX_LINE_BYTES // 2**20} MiB")
            elif line.strip():
                yield parsed(number, line)
    except StreamError as error:
        yield Item(number + 1, None, f"{error}; nothing behind this place was read")


def parsed(number: int, line: bytes) -> Item:
    """One line as a value."""
    try:
        return Item(number, json.loads(line.decode()))
    except UnicodeDecodeError:
        return Item(number, None, "it is not UTF-8")
    except json.JSONDecodeError as error:
        return Item(number, None, f"it is no JSON ({error.msg} at column {error.colno})")
    except RecursionError:
        return Item(number, None, "it is nested too deeply")
    except MemoryError:  # only in a process with a limit
        return Item(
            number, None, "it needs more memory than the limit of the process that reads it"
        )
    except ValueError:
        return Item(number, None, "it holds a number that is too long")


def _values(events: Events) -> Iterator[Any]:
    event, value = next(events)
    if event == "start_array":
        yield from _list(events)
    elif event == "start_map":
        yield from _map(events)
    else:
        yield value
    for _ in events:
        pass  # raises where something follows the document


def _list(events: Events) -> Iterator[Any]:
    for event, value in events:
        if event == "end_array":
            return
        yield _built(event, value, events, MAX_ITEM_COST)[0]


def _map(events: Events) -> Iterator[Any]:
    whole: Any = {}
    left = MAX_ITEM_COST
    wraps = False
    for event, key in events:
        if event == "end_map":
            break
        event, value = next(events)
        if key == _WRAPPER and event == "start_array":
            wraps = True
            yield from _list(events)
            continue
        one, left = _built(event, value, events, left - len(key) - _VALUE_COST)
        if isinstance(one, _Refused):
            whole = one
        elif not isinstance(whole, _Refused):
            whole[key] = one
    if not wraps:
        yield whole


def _built(event: str, value: Any, events: Events, left: int) -> tuple[Any, int]:
    """The value that begins with an event, and what is left of its cost."""
    if event not in ("start_map", "start_array"):
        return _scalar(value), left - (len(value) if isinstance(value, str) else 0)
    top: Any = {} if event == "start_map" else []
    root, stack, key = top, [top], ""
    for event, value in events:
        left -= _VALUE_COST
        if event == "map_key":
            key = value
            left -= len(value)
            continue
        if event in ("end_map", "end_array"):
            stack.pop()
            if not stack:
                return root, left
            top = stack[-1]
            continue
        new: Any
        if event == "string":
            new = value
            left -= len(value)
        else:
            new = {} if event == "start_map" else [] if event == "start_array" else _scalar(value)
        if type(top) is dict:
            top[key] = new
        else:
            top.append(new)
        if event in ("start_map", "start_array"):
            stack.append(new)
            top = new
        if left < 0 or len(stack) > MAX_DEPTH:
            _skip(events, len(stack))
            return _Refused(
                f"it is larger than {MAX_ITEM_COST // 2**20} MiB; give it as JSON lines"
                if left < 0
                else "it is nested too deeply"
            ), max(left, 0)
    raise AssertionError("the parser ended inside a value without an error")


def _skip(events: Events, depth: int) -> None:
    for event, _ in events:
        depth += (event in ("start_map", "start_array")) - (event in ("end_map", "end_array"))
        if not depth:
            return


def _scalar(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
