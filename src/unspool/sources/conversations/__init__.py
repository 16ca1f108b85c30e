"""Exports of conversations, read in bounded memory whatever their size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from unspool.domain.conversations import Conversation
from unspool.domain.documents import check_project
from unspool.domain.reports import BadRecord
from unspool.sources.conversations import building, chatgpt, claude, plain, slack
from unspool.sources.conversations.building import ConversationMerger
from unspool.sources.conversations.detection import Detection, Format, detect
from unspool.sources.conversations.opening import Export, open_export
from unspool.sources.conversations.records import ErrorLog, RecordError
from unspool.sources.conversations.streams import read_elements, read_lines
from unspool.sources.conversations.transcripts import TranscriptReader

__all__ = ["Format", "detect_format", "measure", "read"]

# readers of a whole conversation, by the key of its messages
_READERS = {
    "mapping": chatgpt.read_conversation,
    "chat_messages": claude.read_conversation,
    "messages": plain.read_conversation,
}


def detect_format(path: Path) -> Format:
    """Return the format of an export.

    Raise `NotFoundError` or `InputError` if there is none.
    """
    with open_export(path) as export:
        return detect(path, export).format


def measure(path: Path) -> int:
    """Return how many bytes `read` will read, unpacked. Raise the errors of `detect_format`."""
    with open_export(path) as export:
        return sum(export.sizes[name] for name in detect(path, export).names)


def read(
    path: Path,
    *,
    project: str,
    on_bytes: Callable[[int], None] | None = None,
    counts: Counter[str] | None = None,
) -> Iterator[Conversation | BadRecord]:
    """Yield the conversations of an export, and its bad records between them.

    `on_bytes` gets the number of bytes read so far. `counts` gets the number of "duplicates" and
    of "empty" conversations. Raise the errors of `detect_format` before anything is read.
    """
    check_project(project)
    with open_export(path) as export:
        detection = detect(path, export)
    merger = ConversationMerger(project=project, counts=Counter() if counts is None else counts)
    return _read_export(path, detection, merger, on_bytes)


def _read_export(
    path: Path,
    detection: Detection,
    merger: ConversationMerger,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[Conversation | BadRecord]:
    log = ErrorLog(str(path))
    with open_export(path, on_bytes) as export:
        for conversation in _read_files(export, detection, merger, log):
            yield from log.drain()
            if conversation is None:
                continue
            longest = max(len(message.text) for message in conversation.messages)
            if longest <= building.MAX_CHARS:
                yield conversation
                continue
            # The message is alone: longer conversations are split.
            with log.at(f"conversation {conversation.id}"):
                raise RecordError(
                    f"a message has {longest} characters; the limit is {building.MAX_CHARS}"
                )
    yield from log.drain()


def _read_files(
    export: Export, detection: Detection, merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation | None]:
    """Yield conversations, and None after each record, so that errors are reported at once."""
    if detection.format is Format.SLACK:
        yield from slack.read_export(export, merger, log)
        return
    for name in detection.names:
        with log.at(name) as file_log, export.open_stream(name) as stream:
            yield from _read_records(stream, detection.format, merger, file_log)


def _read_records(
    stream: BinaryIO, format_: Format, merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation | None]:
    is_document = format_ is Format.JSON
    unit = "conversation" if is_document else "line"
    transcript = TranscriptReader(merger)
    for item in read_elements(stream) if is_document else read_lines(stream):
        with log.at(f"{unit} {item.number}") as record_log:
            record = item.get_record()
            if format_ is Format.TRANSCRIPT:
                yield from transcript.read_event(record, record_log)
            else:
                yield from _read_record(record, merger, record_log)
        yield None
    yield from merger.close()


def _read_record(
    record: dict[str, Any], merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation]:
    for key, read_conversation in _READERS.items():
        if key in record:
            builder, messages = read_conversation(record, log)
            yield from merger.add_conversation(builder, messages)
            return
    yield from plain.read_message(record, merger, log)
