"""Server-sent events out of bytes, however they are cut. Pure."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_EVENT_BYTES = 1_000_000
_LINE_END = re.compile(rb"\r\n|\r(?!\Z)|\n")  # a \r at the very end may be half of \r\n


class TooLongError(ValueError):
    """A line goes on and on."""


class Event(NamedTuple):
    """One event; `name` is empty where it has none."""

    name: str
    data: str


def events(pieces: Iterable[bytes]) -> Iterator[str]:
    """The data of each event.

    What is not UTF-8 is replaced; comments, names and ids are left out.
    """
    reader = EventReader()
    for piece in pieces:
        yield from (event.data for event in reader.feed(piece))
    yield from (event.data for event in reader.finish())


class EventReader:
    """Takes bytes as they come, and gives the events that are whole by then."""

    def __init__(self, *, most: int = MAX_EVENT_BYTES) -> None:
        self._most = most
        self._rest = b""
        self._is_first = True
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end in a piece."""
        self._rest += piece
        if self._is_first:
            if len(self._rest) < len(BOM_UTF8) and BOM_UTF8.startswith(self._rest):
                return  # it may become a mark
            self._rest, self._is_first = self._rest.removeprefix(BOM_UTF8), False
        # Lines end as events have it: not at the other characters at which Python splits, which
        # text may hold.
        *whole, self._rest = _LINE_END.split(self._rest)
        yield from self._events(whole)
        if len(self._rest) > self._most:
            raise TooLongError

    def finish(self) -> Iterator[Event]:
        """The last one, which need not be followed by an empty line."""
        yield from self._events([*_LINE_END.split(self._rest.removesuffix(b"\r")), b""])

    def _events(self, lines: Iterable[bytes]) -> Iterator[Event]:
        for line in lines:
            if not line:
                if self._data:
                    yield Event(self._name, b"\n".join(self._data).decode("utf-8", "replace"))
                self._name, self._data, self._size = "", [], 0
            elif line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
                if self._size > self._most:
                    raise TooLongError
