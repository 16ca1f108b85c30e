"""Detection of the format of an export by its content."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ijson

from unspool.errors import InputError
from unspool.sources.conversations import slack, transcripts
from unspool.sources.conversations.opening import Export, StreamError
from unspool.sources.conversations.streams import (
    MAX_LINE_BYTES,
    is_truncated,
    parse_line,
    repair_surrogates,
)

_SAMPLE_BYTES = 2**20
_SAMPLE_LINES = 50
_KEY_DEPTH = 3  # of a conversation's keys: in a list, or in the list of an object
_RECORD_KEYS = frozenset({"mapping", "chat_messages", "messages", "text", "content", "tool_calls"})
_EXPORTED = re.compile(r"(?!__MACOSX/)(?:[^/]+/)*conversations(?:[-_]\d+)?\.json")
_KNOWN = (
    "exports of ChatGPT, Claude and Slack, JSON and JSON lines as docs/conversations.md "
    "describes them, and transcripts of Claude Code and Codex"
)


class Format(StrEnum):
    """Layout of an export."""

    SLACK = "slack"
    JSON = "json"  # one document with conversations of ChatGPT, Claude or the documented schema
    JSONL = "jsonl"
    TRANSCRIPT = "transcript"


class Detection(NamedTuple):
    """Format of an export, and its files with conversations."""

    format: Format
    names: tuple[str, ...]


def detect(path: Path, export: Export) -> Detection:
    """Return the format of an export. Raise `InputError` if it contains no conversations."""
    if "" in export.sizes:
        return Detection(_detect_file(str(path), export, ""), ("",))
    names = tuple(sorted(filter(_EXPORTED.fullmatch, export.sizes)))
    if slack.list_days(export) or (not names and slack.has_lists(export)):
        names = tuple(name for name in export.sizes if name.endswith(".json"))
        return Detection(Format.SLACK, names)
    problem = InputError(
        f"{path} holds no conversations: neither conversations.json nor the folders of a Slack "
        f"export; unspool reads {_KNOWN}"
    )
    for name in names:
        try:
            return Detection(_detect_file(f"{path} ({name})", export, name), names)
        except InputError as error:
            problem = error
    raise problem


def _detect_file(label: str, export: Export, name: str) -> Format:
    try:
        with export.open_stream(name) as stream:
            sample = _read_sample(stream)
    except StreamError as error:
        raise InputError(f"{label} cannot be read: {error}; download or copy it again") from error
    if not sample:
        raise InputError(f"{label} is empty; give an export of conversations")
    if any(b"\x00" in line for line in sample) or not _is_text(sample[0]):
        raise InputError(f"{label} is binary; unspool reads {_KNOWN}")
    found = _detect_sample(sample)
    if found is None:
        raise InputError(f"{label} holds no conversations that are known; unspool reads {_KNOWN}")
    return found


def _read_sample(stream: BinaryIO) -> list[bytes]:
    """Read the first lines that are not blank, two at least if there are two.

    A first line that is an object is read completely.
    """
    sample: list[bytes] = []
    size = 0
    while size < _SAMPLE_BYTES and len(sample) < _SAMPLE_LINES:
        line = stream.readline(_SAMPLE_BYTES)
        if not line:
            break
        if not sample and line.lstrip()[:1] == b"{" and not line.endswith(b"\n"):
            line += stream.readline(MAX_LINE_BYTES)
        size += len(line)
        if line.strip():
            sample.append(line)
    if len(sample) == 1 and sample[0].endswith(b"\n"):
        more = (stream.readline(_SAMPLE_BYTES) for _ in range(_SAMPLE_LINES))
        sample += islice(filter(bytes.strip, more), 1)
    return sample


def _is_text(line: bytes) -> bool:
    head = line[:4096]
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # An invalid byte far inside is a line to report.
        return error.start > len(head) // 2 or head.lstrip()[:1] in (b"{", b"[")
    return True


def _detect_sample(sample: list[bytes]) -> Format | None:
    start = sample[0].lstrip()[:1]
    values = [parse_line(0, line).value for line in sample]
    records = [value for value in values if isinstance(value, dict)]
    if start not in (b"{", b"[") or (start == b"{" and isinstance(values[0], dict)):
        return _detect_records(records)
    text = b"".join(sample)
    error, keys = _list_keys(text)
    # If the first line is truncated, the next may look like a part of it. The lines of a document
    # are indented, so a line that is a whole object belongs to JSON lines.
    has_whole_line = any(
        line[:1] == b"{" and isinstance(value, dict)
        for line, value in zip(sample[1:], values[1:], strict=True)
    )
    if start == b"{" and error and (has_whole_line or (records and not is_truncated(error))):
        return _detect_records(records)
    is_empty = b"".join(text.split()) in (b"[]", b'{"conversations":[]}')
    return Format.JSON if is_empty or not _RECORD_KEYS.isdisjoint(keys) else None


def _detect_records(records: list[dict[str, Any]]) -> Format | None:
    if any(map(transcripts.is_event, records)):
        return Format.TRANSCRIPT
    for record in records:
        if "mapping" in record or "chat_messages" in record:
            return Format.JSONL
        if isinstance(record.get("conversations"), list):
            return Format.JSON
        if not _RECORD_KEYS.isdisjoint(record):
            return Format.JSONL
    return None


def _list_keys(sample: bytes) -> tuple[Exception | None, list[str]]:
    """Return the error that ends a sample, if any, and the keys near the top of the document."""
    keys: list[str] = []
    depth = 0
    try:
        for event, value in ijson.basic_parse(repair_surrogates(sample)):
            depth += (event in ("start_map", "start_array")) - (event in ("end_map", "end_array"))
            if event == "map_key" and depth <= _KEY_DEPTH:
                keys.append(value)
    except (ijson.JSONError, UnicodeDecodeError) as error:
        return error, keys
    return None, keys
