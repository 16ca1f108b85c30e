"""Conversations in the documented JSON schema, and in those of chat APIs. Pure.

Conversations of other formats are converted to this schema before they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.sources.conversations import building
from unspool.sources.conversations.building import ConversationBuilder, ConversationMerger
from unspool.sources.conversations.records import (
    ErrorLog,
    RecordError,
    clean_author,
    clean_text,
    convert_metadata,
    dump_json,
    get_text,
    join_line,
    list_dicts,
    name_type,
    parse_id,
    parse_kind,
    shorten,
)

_MESSAGE_KEYS = frozenset({"text", "content", "tool_calls"})
# private thoughts of a model, and notes of the program
_HIDDEN = frozenset(
    {
        "thinking",
        "redacted_thinking",
        "reasoning",
        "thoughts",
        "reasoning_recap",
        "token_budget",
        "flag",
    }
)
_TEXTS = frozenset({"", "text", "input_text", "output_text", "markdown", "summary_text", "refusal"})
_MAX_DEPTH = 8  # answers of tools contain nested blocks


class ContentPart(NamedTuple):
    """Part of a message: text of its author, or of a tool."""

    text: str
    tool: str | None = None
    is_placeholder: bool = False  # in place of an image or file


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
            messages += read_messages(builder, one, message_log)
    return builder, messages


def read_message(
    record: dict[str, Any], merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation]:
    """Read a single message, which names its conversation unless the file is one."""
    if _MESSAGE_KEYS.isdisjoint(record):
        raise RecordError("it has neither messages nor a text")
    key = parse_id(record.get("conversation")) or parse_id(record.get("conversation_id"))
    builder = merger.open_conversation(key)
    builder.id = key
    # The time and the metadata of a message are not those of its conversation.
    _describe(builder, {**record, "created_at": None, "metadata": None}, log)
    yield from merger.add_messages(key, read_messages(builder, record, log))


def _describe(builder: ConversationBuilder, record: dict[str, Any], log: ErrorLog) -> None:
    """Set the fields of a conversation that are not known yet."""
    builder.title = builder.title or join_line(record.get("title"))
    builder.scenario_title = builder.scenario_title or join_line(record.get("scenario_title"))
    builder.url = builder.url or join_line(record.get("url"), 2_000)
    builder.created_at = builder.created_at or log.parse_time(record.get("created_at"))
    builder.metadata = convert_metadata(record.get("metadata")) | builder.metadata


def read_messages(builder: ConversationBuilder, record: Any, log: ErrorLog) -> list[Message]:
    """Return the messages in a record: its text, and each call and answer of a tool.

    All have the author, kind and time of the record. The first has its id, the others a number
    after it. Raise `RecordError` if the record is invalid.
    """
    if not isinstance(record, dict):
        raise RecordError(f"it is {name_type(record)}; give an object with a text")
    kind, author = _read_author(record)
    content = record.get("text") if record.get("text") is not None else record.get("content")
    if kind is AuthorKind.TOOL:
        author = author or builder.tools.get(parse_id(record.get("tool_call_id")), "")
        content = format_answer(content)
    at = log.parse_time(record.get("at", record.get("timestamp", record.get("created_at"))))
    parts = list(_split_content(builder, content, 0))
    # a placeholder is shown only if there is nothing else
    parts = [part for part in parts if not part.is_placeholder] or parts[:1]
    id_ = parse_id(record.get("id"))
    messages: list[Message] = []
    for tool, text in _join_texts([*parts, *_read_calls(builder, record)]):
        if len(text) > building.MAX_CHARS:
            log.add(f"it has {len(text)} characters; the limit is {building.MAX_CHARS}")
            continue
        message = Message(
            text=clean_text(text),
            author=author if tool is None else clean_author(tool),
            kind=kind if tool is None else AuthorKind.TOOL,
            at=at,
            id=f"{id_}/{len(messages) + 1}" if messages and id_ else id_,
        )
        messages.append(message)
    return messages


def _join_texts(parts: list[ContentPart]) -> Iterator[tuple[str | None, str]]:
    """Yield adjacent texts as one, and each call or answer of a tool with the tool's name."""
    for tool, group in groupby(parts, key=lambda part: part.tool):
        texts = [part.text for part in group]
        for text in ["\n\n".join(texts)] if tool is None else texts:
            yield tool, text


def _read_author(record: dict[str, Any]) -> tuple[AuthorKind, str]:
    author = record.get("author")
    role = record.get("kind") or record.get("role")
    if isinstance(author, dict):
        role, author = role or author.get("role"), author.get("name")
    author = author or record.get("name")
    kind = parse_kind(role) if role else parse_kind(author)
    if kind is None:
        # A role of another program is kept as a name.
        return AuthorKind.USER, clean_author(author or role)
    # "assistant" as a name says no more than the kind.
    return kind, clean_author(author) if role else ""


def _read_calls(builder: ConversationBuilder, record: dict[str, Any]) -> Iterator[ContentPart]:
    """Read the calls of tools that chat APIs write beside the content."""
    for call in list_dicts(record.get("tool_calls")):
        function = call.get("function", call)
        if isinstance(function, dict):
            name, arguments = function.get("name"), function.get("arguments")
            yield _read_call(builder, call.get("id"), name, arguments)


def _read_call(
    builder: ConversationBuilder, call_id: object, name: object, arguments: Any
) -> ContentPart:
    """Return the call of a tool, and remember its name for the answer."""
    tool = clean_author(name) or "tool"
    builder.add_tool(parse_id(call_id), tool)
    if isinstance(arguments, dict) and len(arguments) == 1:
        (arguments,) = arguments.values()
    text = arguments if isinstance(arguments, str) else dump_json(arguments) if arguments else ""
    return ContentPart(f"{tool}: {shorten(text)}".removesuffix(": "), tool)


def format_answer(output: Any) -> str:
    """Format the beginning of a tool's answer. Empty if there is none."""
    if isinstance(output, dict):
        output = output.get("content", output.get("output", output.get("text", output)))
    if output is None or isinstance(output, str):
        return shorten(output or "")
    if not isinstance(output, list):
        return shorten(dump_json(output))
    texts = [one.get("text") if isinstance(one, dict) else one for one in output]
    answer = shorten("\n".join(text for text in texts if text and isinstance(text, str)))
    # A block without a text is an image.
    return answer or ("[image]" if None in texts else "")


def _split_content(builder: ConversationBuilder, content: Any, depth: int) -> Iterator[ContentPart]:
    if content is None:
        return
    if isinstance(content, str):
        if content.strip():
            yield ContentPart(content.strip("\n"))
    elif isinstance(content, list) and depth < _MAX_DEPTH:
        for block in content:
            yield from _split_content(builder, block, depth + 1)
    elif isinstance(content, dict) and depth < _MAX_DEPTH:
        yield from _split_block(builder, content, depth)
    else:
        raise RecordError(f"its content is {name_type(content)}; give text or a list of blocks")


def _split_block(
    builder: ConversationBuilder, block: dict[str, Any], depth: int
) -> Iterator[ContentPart]:
    kind = get_text(block.get("type")) or get_text(block.get("content_type"))
    text = block.get("text")
    if kind in _HIDDEN:
        return
    if kind.endswith(("tool_use", "tool_call")):
        arguments = block.get("input", block.get("arguments"))
        yield _read_call(builder, block.get("id"), block.get("name"), arguments)
    elif kind.endswith("tool_result"):
        if answer := format_answer(block.get("content")):
            name = clean_author(block.get("name"))
            yield ContentPart(answer, builder.tools.get(parse_id(block.get("tool_use_id")), name))
    elif isinstance(block.get("parts"), list):
        yield from _split_content(builder, block["parts"], depth + 1)
    elif isinstance(text, str):
        yield from _split_content(builder, text, depth + 1)
    elif kind not in _TEXTS:
        known = ("image", "audio", "video", "document", "file")
        label = next((one for one in known if one in kind), clean_author(kind))
        name = join_line(block.get("file_name"))
        yield ContentPart(f"[{label} {name}]" if name else f"[{label}]", is_placeholder=True)
    elif text is not None:
        raise RecordError(f"its text is {name_type(text)}; give text")
