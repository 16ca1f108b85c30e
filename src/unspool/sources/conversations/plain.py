"""Conversations in the documented JSON schema, and in those of chat APIs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.sources.conversations import content
from unspool.sources.conversations.building import ConversationBuilder, ConversationMerger
from unspool.sources.conversations.records import (
    ErrorLog,
    RecordError,
    clean_author,
    convert_metadata,
    join_line,
    name_type,
    parse_id,
    parse_kind,
)

_TEXT_KEYS = ("text", "content", "tool_calls")


def read_conversation(
    record: dict[str, Any], log: ErrorLog
) -> tuple[ConversationBuilder, list[Message]]:
    """Read a conversation and its messages."""
    given = record.get("messages")
    if not isinstance(given, list):
        raise RecordError(f"its messages are {name_type(given)}; give a list")
    builder = ConversationBuilder(id=parse_id(record.get("id")))
    _describe(builder, record, log)
    messages: list[Message] = []
    for number, one in enumerate(given, start=1):
        with log.at(f"message {number}") as message_log:
            messages += _read_messages(builder, one, message_log)
    return builder, messages


def read_message(
    record: dict[str, Any], merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation]:
    """Read a single message, which names its conversation unless the file is one."""
    if not any(key in record for key in _TEXT_KEYS):
        raise RecordError("it has neither messages nor a text")
    key = parse_id(record.get("conversation")) or parse_id(record.get("conversation_id"))
    builder = merger.open_conversation(key)
    builder.id = key
    # The time and the metadata of a message are not those of its conversation.
    _describe(builder, {**record, "created_at": None, "metadata": None}, log)
    yield from merger.add_messages(key, _read_messages(builder, record, log))


def _describe(builder: ConversationBuilder, record: dict[str, Any], log: ErrorLog) -> None:
    """Set the fields of a conversation that are not known yet."""
    builder.title = builder.title or join_line(record.get("title"))
    builder.scenario_title = builder.scenario_title or join_line(record.get("scenario_title"))
    builder.url = builder.url or join_line(record.get("url"), 2_000)
    builder.created_at = builder.created_at or log.parse_time(record.get("created_at"))
    builder.metadata = convert_metadata(record.get("metadata")) | builder.metadata


def _read_messages(builder: ConversationBuilder, one: Any, log: ErrorLog) -> list[Message]:
    """Read a message, and the calls of tools in it as messages of their own."""
    if not isinstance(one, dict):
        raise RecordError(f"it is {name_type(one)}; give an object with a text")
    kind, author = _read_author(one)
    text = one.get("text") if one.get("text") is not None else one.get("content")
    if kind is AuthorKind.TOOL:
        author = author or builder.tools.get(str(one.get("tool_call_id")), "")
        text = content.format_answer(text)
    at = log.parse_time(one.get("at", one.get("timestamp", one.get("created_at"))))
    header = content.MessageHeader(author, kind, at, parse_id(one.get("id")))
    return content.read_messages(builder, text, header, _read_calls(builder, one))


def _read_author(one: dict[str, Any]) -> tuple[AuthorKind, str]:
    author = one.get("author")
    role = one.get("kind") or one.get("role")
    if isinstance(author, dict):
        role, author = role or author.get("role"), author.get("name")
    author = author or one.get("name")
    kind = parse_kind(role) if role else parse_kind(author)
    if kind is None:
        # A role of another program is kept as a name.
        return AuthorKind.USER, clean_author(author or role)
    # "assistant" as a name says no more than the kind.
    return kind, clean_author(author) if role else ""


def _read_calls(builder: ConversationBuilder, one: dict[str, Any]) -> Iterator[content.ContentPart]:
    """Read the calls of tools that chat APIs write beside the content."""
    calls = one.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield content.read_call(
                builder, str(call.get("id")), function.get("name"), function.get("arguments")
            )
