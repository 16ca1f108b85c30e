"""Conversations of a Claude export. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unspool.domain.conversations import AuthorKind, Message
from unspool.sources.conversations import content
from unspool.sources.conversations.building import ConversationBuilder
from unspool.sources.conversations.records import (
    ErrorLog,
    RecordError,
    clean_author,
    clean_text,
    get_dict,
    join_line,
    list_dicts,
    name_type,
    parse_id,
    parse_kind,
)

_PAGE = "https://claude.ai/chat/"


def read_conversation(
    record: dict[str, Any], log: ErrorLog
) -> tuple[ConversationBuilder, list[Message]]:
    """Read a conversation and its messages."""
    given = record.get("chat_messages")
    if not isinstance(given, list):
        raise RecordError(f"its chat_messages are {name_type(given)}; a list was expected")
    id_ = parse_id(record.get("uuid"))
    builder = ConversationBuilder(
        id=id_,
        title=join_line(record.get("name")),
        url=_PAGE + id_ if id_ else "",
        created_at=log.parse_time(record.get("created_at")),
        metadata={"source": "claude"},
    )
    messages: list[Message] = []
    for number, one in enumerate(given, start=1):
        with log.at(f"message {number}") as message_log:
            messages += _read_messages(builder, one, message_log)
    return builder, messages


def _read_messages(builder: ConversationBuilder, one: Any, log: ErrorLog) -> list[Message]:
    if not isinstance(one, dict):
        raise RecordError(f"it is {name_type(one)}; an object was expected")
    kind = parse_kind(one.get("sender"))
    author = "" if kind else clean_author(one.get("sender"))
    at = log.parse_time(one.get("created_at"))
    header = content.MessageHeader(author, kind or AuthorKind.USER, at, parse_id(one.get("uuid")))
    messages = content.read_messages(builder, one.get("content") or None, header)
    if not messages and isinstance(one.get("text"), str):
        # Early exports had no blocks.
        messages = content.read_messages(builder, one["text"], header)
    pasted = _join_attachments(one)
    if messages and pasted:
        return [replace(messages[0], text=f"{messages[0].text}\n\n{pasted}"), *messages[1:]]
    text = "" if messages else pasted or _name_file(one)
    return [header.make_message(text)] if text else messages


def _join_attachments(one: dict[str, Any]) -> str:
    """Join the texts attached to a message, each under the name of its file."""
    parts = []
    for file in list_dicts(one.get("attachments")):
        text = file.get("extracted_content")
        if isinstance(text, str) and text.strip():
            name = join_line(file.get("file_name"))
            parts.append(f"[file {name}]\n{text}" if name else text)
    return clean_text("\n\n".join(parts))


def _name_file(one: dict[str, Any]) -> str:
    """Return a placeholder for a message that contains only files."""
    for key in ("attachments", "files", "files_v2"):
        files = one.get(key)
        if isinstance(files, list) and files:
            name = join_line(get_dict(files[0]).get("file_name"))
            return clean_text(f"[file {name}]" if name else "[file]")
    return ""
