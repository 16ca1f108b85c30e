"""Exports of conversations, read in bounded memory whatever their size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from unspool.domain.conversations import Conversation
from unspool.domain.documents import check_project
from unspool.domain.reports import BadRecord
from unspool.sources.conversations import chatgpt, claude, schema, slack
from unspool.sources.conversations.building import ConversationMerger
from unspool.sources.conversations.detection import Detection, Format, detect
from unspool.sources.conversations.opening import open_export
from unspool.sources.conversations.records import ErrorLog
from unspool.sources.conversations.streams import read_elements, read_lines
from unspool.sources.conversations.transcripts import TranscriptReader

# converters of a conversation to the documented schema, by the key of its messages
_CONVERTERS = {
    "mapping": chatgpt.convert_conversation,
    "chat_messages": claude.convert_conversation,
}


def measure(path: Path) -> int:
    """Return how many bytes `read` will read, unpacked. Raise `InputError` or `NotFoundError` for no export."""
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

    `on_bytes` gets the number of bytes read so far. `counts` gets the number of "duplicates".
    Raise `InputError` or `NotFoundError` first if it is no export.
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
        if detection.format is Format.SLACK:
            yield from slack.read_export(export, merger, log)
            return
        for name in detection.names:
            with log.at(name) as file_log, export.open_text(name) as text:
                yield from _read_records(text, detection.format, merger, file_log)
            yield from log.drain()


def _read_records(
    text: TextIO, format_: Format, merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation | BadRecord]:
    is_document = format_ is Format.JSON
    unit = "conversation" if is_document else "line"
    transcript = TranscriptReader(merger)
    for item in read_elements(text) if is_document else read_lines(text):
        found: list[Conversation] = []
        with log.at(f"{unit} {item.number}") as record_log:
            record = item.get_record()
            if format_ is Format.TRANSCRIPT:
                found += transcript.read_event(record, record_log)
            else:
                found += _read_record(record, merger, record_log)
        yield from log.drain()
        yield from found
    yield from merger.close()


def _read_record(
    record: dict[str, Any], merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation]:
    for key, convert in _CONVERTERS.items():
        if key in record:
            record = convert(record)
    if "messages" in record:
        yield from merger.add_conversation(*schema.read_conversation(record, log))
    else:
        yield from schema.read_message(record, merger, log)
