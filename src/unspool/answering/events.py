"""Server-sent events out of bytes, however they are cut. Pure."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator

MAX_EVENT_BYTES = 1_000_000
_LINE_END = re.compile(rb"\r\n|\r(?!\Z)|\n")  # a \r at the very end may be half of \r\n


class TooLongError(ValueError):
    """A line goes on and on."""


def events(pieces: Iterable[bytes]) -> Iterator[str]:
    """The data of each event. What is not UTF-8 is replaced; comments, names and ids are left out."""
    data: list[bytes] = []
    size = 0
    for line in _lines(pieces):
        if not line:
            if data:
                yield b"\n".join(data).decode("utf-8", "replace")
            data, size = [], 0
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
            size += len(line)
            if size > MAX_EVENT_BYTES:
                raise TooLongError
    if data:  # the last one need not be followed by an empty line
        yield b"\n".join(data).decode("utf-8", "replace")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that end as events have it: not at the other characters at which Python splits, which text may hold. A mark before the first goes."""
    rest = b""
    is_first = True
    for piece in pieces:
        rest += piece
        if is_first:
            if len(rest) < len(BOM_UTF8) and BOM_UTF8.startswith(rest):
                continue  # it may become a mark
            rest, is_first = rest.removeprefix(BOM_UTF8), False
        *whole, rest = _LINE_END.split(rest)
        yield from whole
        if len(rest) > MAX_EVENT_BYTES:
            raise TooLongError
    yield from _LINE_END.split(rest.removesuffix(b"\r"))
