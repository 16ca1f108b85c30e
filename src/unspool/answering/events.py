"""Server-sent events, parsed from bytes in pieces of any length. Pure."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

MAX_EVENT_BYTES = 1_000_000
_LINE_END = re.compile(rb"\r\n|\r(?!\Z)|\n")  # a \r at the very end may be half of \r\n


class TooLongError(ValueError):
    """Line or event that is too long."""


class Event(NamedTuple):
    """Event. Its `name` may be empty."""

    name: str
    data: str


def parse_events(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield the data of each event, without comments, names and ids.

    Bytes that are not UTF-8 are replaced.
    """
    reader = EventReader()
    for found in chain(map(reader.feed, pieces), (reader.finish(),)):
        yield from (event.data for event in found)


class EventReader:
    """Parser of events from bytes as they arrive."""

    def __init__(self, *, most: int = MAX_EVENT_BYTES) -> None:
        self._most = most
        self._rest = b""
        self._is_first = True
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that end in a piece."""
        self._rest += piece
        if self._is_first:
            if len(self._rest) < len(BOM_UTF8) and BOM_UTF8.startswith(self._rest):
                return  # it may become a byte order mark
            self._rest, self._is_first = self._rest.removeprefix(BOM_UTF8), False
        # not `splitlines`, which also splits at characters that a text may contain
        *lines, self._rest = _LINE_END.split(self._rest)
        yield from self._parse(lines)
        if len(self._rest) > self._most:
            raise TooLongError

    def finish(self) -> Iterator[Event]:
        """Yield the last event, which may lack the empty line after it."""
        yield from self._parse([*_LINE_END.split(self._rest.removesuffix(b"\r")), b""])

    def _parse(self, lines: Iterable[bytes]) -> Iterator[Event]:
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
