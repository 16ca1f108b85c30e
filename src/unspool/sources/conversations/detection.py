"""Detection of the format of an export by its content."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from unspool.errors import InputError
from unspool.sources.conversations import slack, transcripts
from unspool.sources.conversations.opening import Export, StreamError
from unspool.sources.conversations.records import get_dict
from unspool.sources.conversations.streams import (
    INVALID_BYTE,
    MAX_RECORD_CHARS,
    parse_line,
    read_elements,
)

_SAMPLE_CHARS = 2**20
_SAMPLE_RECORDS = 50
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
        with export.open_text(name) as text:
            sample = _read_sample(text)
        if not sample:
            raise InputError(f"{label} is empty; give an export of conversations")
        if any("\0" in line for line in sample) or not _is_text(sample[0]):
            raise InputError(f"{label} is binary; unspool reads {_KNOWN}")
        with export.open_text(name) as text:
            found = _detect_format(sample, text)
    except StreamError as error:
        raise InputError(f"{label} cannot be read: {error}; download or copy it again") from error
    if found is None:
        raise InputError(f"{label} holds no conversations that are known; unspool reads {_KNOWN}")
    return found


def _read_sample(text: TextIO) -> list[str]:
    """Read the first lines that are not blank, two at least if there are two.

    A line that is an object is read completely.
    """
    sample: list[str] = []
    size = 0
    while (size < _SAMPLE_CHARS or len(sample) < 2) and len(sample) < _SAMPLE_RECORDS:
        line = text.readline(_SAMPLE_CHARS)
        if not line:
            break
        if line.lstrip()[:1] == "{" and not line.endswith("\n"):
            line += text.readline(MAX_RECORD_CHARS)
        size += len(line)
        if line.strip():
            sample.append(line)
    return sample


def _is_text(line: str) -> bool:
    head = line[:4096].lstrip()
    invalid = INVALID_BYTE.search(head)
    # An invalid byte far inside is a line to report.
    is_readable = not invalid or invalid.start() > len(head) // 2
    return head[:1] in ("{", "[") or (head[:1].isprintable() and is_readable)


def _detect_format(sample: list[str], text: TextIO) -> Format | None:
    """Return the format of a file by its first lines. Parse a document as far as necessary."""
    start = sample[0].lstrip()[:1]
    values = [parse_line(0, line).value for line in sample]
    records = [value for value in values if isinstance(value, dict)]
    if start not in ("{", "[") or (start == "{" and isinstance(values[0], dict)):
        return _detect_records(records)
    items = read_elements(text)
    first = next(items, None)
    if first is None:
        return Format.JSON  # an export without conversations
    if not first.reason:
        heads = chain([first], islice(items, _SAMPLE_RECORDS))
        has_record = any(not _RECORD_KEYS.isdisjoint(get_dict(item.value)) for item in heads)
    # The lines of a document are indented, so a whole object is a line behind a damaged one.
    elif start == "{" and any(line[0] == "{" for line in sample[1:]) and records:
        return _detect_records(records)
    else:
        has_record = any(f'"{key}"' in line for line in sample for key in _RECORD_KEYS)
    return Format.JSON if has_record else None


def _detect_records(records: list[dict[str, Any]]) -> Format | None:
    if any(map(transcripts.is_event, records)):
        return Format.TRANSCRIPT
    for record in records:
        if isinstance(record.get("conversations"), list):
            return Format.JSON
        if not _RECORD_KEYS.isdisjoint(record):
            return Format.JSONL
    return None
