"""Which format a file, folder or archive is in, by what is in it."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ijson

from unspool.errors import InputError
from unspool.sources.conversations import chatgpt, claude, plain, slack, transcripts
from unspool.sources.conversations.opening import Export, Meter, StreamError, container, file_stream
from unspool.sources.conversations.streams import MAX_LINE_BYTES, is_premature, mended, parsed

_SAMPLE_BYTES = 2**20
_SAMPLE_LINES = 50
_KEY_DEPTH = 3  # of a conversation's keys: in a list, or in the list of an object
_EXPORTED = re.compile(r"(?:[^/]+/)*conversations(?:[-_]\d+)?\.json")
KNOWN = (
    "exports of ChatGPT, Claude and Slack, JSON and JSON lines as docs/conversations.md "
    "describes them, and transcripts of Claude Code and Codex"
)


class Format(StrEnum):
    """What conversations are written in."""

    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    SLACK = "slack"
    JSON = "json"
    JSONL = "jsonl"
    TRANSCRIPT = "transcript"


class Found(NamedTuple):
    """The format, whether it comes line by line, and for an export of several files which of
    them to read.
    """

    format: Format
    by_line: bool = False
    names: tuple[str, ...] = ()


def find(path: Path) -> Found:
    """What a path is.

    Raises `NotFoundError` where there is nothing, `InputError` for what is no conversations.
    """
    with container(path) as export:
        if export is not None:
            return _in_export(path, export)
        with file_stream(path, Meter()) as stream:
            return _in_stream(str(path), stream)


def _in_export(path: Path, export: Export) -> Found:
    names = export.names()
    if slack.days(names):
        return Found(Format.SLACK)
    exported = tuple(
        sorted(
            name for name in names if _EXPORTED.fullmatch(name) and not name.startswith("__MACOSX/")
        )
    )
    problem: InputError | None = None
    for name in exported:
        try:
            with export.stream(name, Meter()) as stream:
                found = _in_stream(f"{path} ({name})", stream)
            return Found(found.format, found.by_line, exported)
        except StreamError as error:
            problem = InputError(
                f"{path} ({name}) cannot be read: {error}; download or copy it again"
            )
        except InputError as error:
            problem = error
    if problem is not None:
        raise problem
    if slack.is_export(names):
        return Found(Format.SLACK)
    raise InputError(
        f"{path} holds no conversations: neither conversations.json nor the folders of a Slack "
        f"export; unspool reads {KNOWN}"
    )


def _in_stream(name: str, stream: BinaryIO) -> Found:
    try:
        sample = _lines(stream)
    except StreamError as error:
        raise InputError(f"{name} cannot be read: {error}; download or copy it again") from error
    if not sample:
        raise InputError(f"{name} is empty; give an export of conversations")
    if any(b"\x00" in line for line in sample) or not _is_text(sample[0]):
        raise InputError(f"{name} is binary; unspool reads {KNOWN}")
    first = sample[0].lstrip()[:1]
    records = [item.value for item in (parsed(0, line) for line in sample) if not item.reason]
    found = None
    if first == b"{" and isinstance(parsed(0, sample[0]).value, dict):
        found = _of_records(records, alone=len(sample) == 1)
    elif first in (b"{", b"["):
        fault, keys = _keys(b"".join(sample))
        # Where the first line is broken off, the next may look like a part of it; but a document
        # that is spread over lines is indented.
        whole = any(
            isinstance(parsed(0, line).value, dict) for line in sample[1:] if line[:1] == b"{"
        )
        by_line = (
            first == b"{"
            and fault is not None
            and (
                whole or (not is_premature(fault) and any(isinstance(one, dict) for one in records))
            )
        )
        found = _of_records(records) if by_line else _of_keys(keys, b"".join(sample))
    elif any(isinstance(record, dict) for record in records):
        found = _of_records(records)
    if found is None:
        raise InputError(f"{name} holds no conversations that are known; unspool reads {KNOWN}")
    return found


def _lines(stream: BinaryIO) -> list[bytes]:
    """The first lines that are not blank.

    If the first is an object it is there whole, so that it can be told whether more follow.
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
    if len(sample) == 1 and sample[0].endswith(b"\n") and (more := _next_line(stream)):
        sample.append(more)
    return sample


def _next_line(stream: BinaryIO) -> bytes:
    for _ in range(_SAMPLE_LINES):
        line = stream.readline(_SAMPLE_BYTES)
        if line.strip() or not line:
            return line
    return b""


def _is_text(line: bytes) -> bool:
    head = line[:4096]
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # a wrong byte far in is a line to report
        return error.start > len(head) // 2 or head.lstrip()[:1] in (b"{", b"[")
    return True


def _of_records(records: list[Any], *, alone: bool = False) -> Found | None:
    known = [record for record in records if isinstance(record, dict)]
    if any(transcripts.is_event(record) for record in known):
        return Found(Format.TRANSCRIPT, by_line=True)
    for record in known:
        if chatgpt.is_conversation(record):
            return Found(Format.CHATGPT, by_line=True)
        if claude.is_conversation(record):
            return Found(Format.CLAUDE, by_line=True)
        if isinstance(record.get("conversations"), list):
            inner = _of_records(record["conversations"])
            return Found(
                inner.format
                if inner and inner.format in (Format.CHATGPT, Format.CLAUDE)
                else Format.JSON
            )
        if plain.is_conversation(record) or plain.is_message(record):
            return Found(Format.JSON if alone else Format.JSONL, by_line=True)
    return None


def _of_keys(keys: list[str], sample: bytes) -> Found | None:
    for key in keys:
        if key in ("mapping", "chat_messages", "messages", "text", "content"):
            record = {key: None}
            return Found(
                Format.CHATGPT
                if chatgpt.is_conversation(record)
                else Format.CLAUDE
                if claude.is_conversation(record)
                else Format.JSON
            )
    return (
        Found(Format.JSON) if b"".join(sample.split()) in (b"[]", b'{"conversations":[]}') else None
    )


def _keys(sample: bytes) -> tuple[Exception | None, list[str]]:
    """The keys near the top of a document in their order, and what ended the sample, if anything
    did.
    """
    keys: list[str] = []
    depth = 0
    try:
        for event, value in ijson.basic_parse(mended(sample)):
            depth += (event in ("start_map", "start_array")) - (event in ("end_map", "end_array"))
            if event == "map_key" and depth <= _KEY_DEPTH:
                keys.append(value)
    except (ijson.JSONError, UnicodeDecodeError) as error:
        return error, keys
    return None, keys
