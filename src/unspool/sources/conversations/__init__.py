"""Exports of conversations, read piece by piece: whatever their size, a bounded part of them is
in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from unspool.domain.conversations import Conversation
from unspool.domain.documents import check_project
from unspool.domain.reports import BadRecord
from unspool.sources.conversations import chatgpt, claude, plain, slack
from unspool.sources.conversations.detection import KNOWN, Format, Found, find
from unspool.sources.conversations.drafts import MAX_CHARS, Binder, Shelf, Tally
from unspool.sources.conversations.opening import Meter, StreamError, container, file_stream
from unspool.sources.conversations.streams import elements, lines
from unspool.sources.conversations.transcripts import Transcripts
from unspool.sources.conversations.values import named

__all__ = ["KNOWN", "BadRecord", "Format", "Tally", "detect", "read", "size"]

_SHAPES = (chatgpt, claude, plain)


def detect(path: Path) -> Format:
    """The format, by what is in the file, folder or archive.

    Raises `NotFoundError` or `InputError` where it is none.
    """
    return find(path).format


def size(path: Path) -> int:
    """How many bytes `read` will read: of an archive what comes out of it.

    Raises as `detect` does.
    """
    found = find(path)
    with container(path) as export:
        if export is None:
            return path.stat().st_size
        names = export.names()
        if found.format is Format.SLACK:
            return sum(bytes_ for name, bytes_ in names.items() if name.endswith(".json"))
        return sum(names[name] for name in found.names)


def read(
    path: Path,
    *,
    project: str,
    on_bytes: Callable[[int], None] | None = None,
    tally: Tally | None = None,
) -> Iterator[Conversation | BadRecord]:
    """The conversations of an export as they are read, and between them what could not be.

    `on_bytes` is called with how many bytes have been read so far; `tally` counts what was left out
    because it was there already. Raises `NotFoundError` or `InputError`, before anything is read,
    for what cannot be opened or is no export.
    """
    check_project(project)
    found = find(path)
    return _Reader(
        path,
        found,
        project=project,
        meter=Meter(on_bytes),
        tally=tally if tally is not None else Tally(),
    ).read()


class _Reader:
    """One pass over an export."""

    def __init__(
        self, path: Path, found: Found, *, project: str, meter: Meter, tally: Tally
    ) -> None:
        self._path = path
        self._found = found
        self._meter = meter
        self._binder = Binder(project=project, tally=tally)
        self._bad: list[BadRecord] = []

    def read(self) -> Iterator[Conversation | BadRecord]:
        for conversation in self._conversations():
            yield from self._complaints()
            if conversation is None:
                continue
            longest = max(len(message.text) for message in conversation.messages)
            if longest <= MAX_CHARS:
                yield conversation
            else:  # the message is alone: conversations are split before they become too long
                self._complain(
                    f"conversation {conversation.id}",
                    f"a message has {longest} characters; the limit is {MAX_CHARS}",
                )
        yield from self._complaints()

    def _complaints(self) -> Iterator[BadRecord]:
        bad, self._bad = self._bad, []
        yield from bad

    def _complain(self, position: str, reason: str) -> None:
        self._bad.append(BadRecord(source=str(self._path), position=position, reason=reason))

    def _conversations(self) -> Iterator[Conversation | None]:
        with container(self._path) as export:
            if export is None:
                with file_stream(self._path, self._meter) as stream:
                    yield from self._stream(stream, "")
            elif self._found.format is Format.SLACK:
                yield from slack.read(export, self._binder, self._meter, self._complain)
            else:
                for name in self._found.names:
                    try:
                        with export.stream(name, self._meter) as stream:
                            yield from self._stream(stream, f"{name} ")
                    except StreamError as error:
                        self._complain(name, str(error))

    def _stream(self, stream: BinaryIO, prefix: str) -> Iterator[Conversation | None]:
        """A document or lines; None after each of them, so that complaints are not kept until a
        conversation is whole.
        """
        shelf = Shelf(self._binder)
        transcripts = Transcripts(shelf) if self._found.format is Format.TRANSCRIPT else None
        unit = "line" if self._found.by_line else "conversation"
        for item in lines(stream) if self._found.by_line else elements(stream):
            position = f"{prefix}{unit} {item.number}"

            def complain(where: str, reason: str, position: str = position) -> None:
                self._complain(f"{position} {where}".rstrip(), reason)

            if item.reason:
                complain("", item.reason)
            elif transcripts is not None:
                yield from transcripts.add(item.value, complain)
            else:
                yield from self._record(item.value, shelf, complain)
            yield None
        yield from shelf.close()

    def _record(
        self, record: Any, shelf: Shelf, complain: plain.Complaint
    ) -> Iterator[Conversation]:
        if not isinstance(record, dict):
            complain("", f"it is {named(record)}; an object was expected")
            return
        for shape in _SHAPES:
            if shape.is_conversation(record):
                draft = shape.conversation(record, complain)
                if draft is not None:
                    yield from self._binder.bind(draft)
                return
        if not plain.is_message(record):
            complain("", "it has neither messages nor a text")
            return
        key = plain.session_of(record)
        draft = shelf.draft(key)
        draft.id = key
        plain.describe(
            draft,
            {
                name: value
                for name, value in record.items()
                if name not in ("created_at", "metadata")
            },
            complain,
        )
        yield from shelf.put(key, plain.message(draft, record, complain))
