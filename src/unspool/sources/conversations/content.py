"""Content of a message: text, calls of tools and their answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from unspool.domain.conversations import AuthorKind, Message
from unspool.sources.conversations.building import ConversationBuilder
from unspool.sources.conversations.records import (
    RecordError,
    clean_author,
    clean_text,
    dump_json,
    get_text,
    name_type,
    shorten,
)

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


class MessageHeader(NamedTuple):
    """Fields of a message apart from its text."""

    author: str = ""
    kind: AuthorKind = AuthorKind.USER
    at: datetime | None = None
    id: str = ""

    def make_message(self, text: str) -> Message:
        """Return the message with a text."""
        return Message(text=text, author=self.author, kind=self.kind, at=self.at, id=self.id)


def read_messages(
    builder: ConversationBuilder,
    content: Any,
    header: MessageHeader,
    calls: Iterable[ContentPart] = (),
) -> list[Message]:
    """Return the messages in a content: its text, and each call and answer of a tool.

    They have the author, kind and time of the header. The first has its id, the others a number
    after it. Raise `RecordError` if the content is invalid.
    """
    parts = list(_split_content(builder, content, 0))
    # a placeholder is shown only if there is nothing else
    parts = [part for part in parts if not part.is_placeholder] or parts[:1]
    messages: list[Message] = []
    for tool, group in groupby([*parts, *calls], key=lambda part: part.tool):
        texts = [part.text for part in group]
        if tool is None:
            texts, own = ["\n\n".join(texts)], header
        else:
            own = header._replace(author=clean_author(tool), kind=AuthorKind.TOOL)
        for text in texts:
            if messages and header.id:
                own = own._replace(id=f"{header.id}/{len(messages) + 1}")
            messages.append(own.make_message(clean_text(text)))
    return messages


def read_call(
    builder: ConversationBuilder, call_id: object, name: object, arguments: Any
) -> ContentPart:
    """Return the call of a tool, and remember its name for the answer."""
    tool = clean_author(name) or "tool"
    if isinstance(call_id, str):
        builder.add_tool(call_id, tool)
    return ContentPart(format_call(tool, arguments), tool)


def format_call(tool: str, arguments: Any) -> str:
    """Format the call of a tool: its name and the beginning of its arguments."""
    if isinstance(arguments, dict) and len(arguments) == 1:
        (arguments,) = arguments.values()
    text = arguments if isinstance(arguments, str) else dump_json(arguments) if arguments else ""
    return f"{tool or 'tool'}: {shorten(text)}".removesuffix(": ")


def format_answer(output: Any) -> str:
    """Format the beginning of a tool's answer. Empty if there is none."""
    if isinstance(output, dict):
        output = output.get("content", output.get("output", output.get("text", output)))
    if output is None or isinstance(output, str):
        return shorten(output or "")
    if not isinstance(output, list):
        return shorten(dump_json(output))
    texts = [get_text(one.get("text") if isinstance(one, dict) else one) for one in output]
    return shorten("\n".join(filter(None, texts))) or ("[image]" if output else "")


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
        yield read_call(builder, block.get("id"), block.get("name"), arguments)
    elif kind.endswith("tool_result"):
        if answer := format_answer(block.get("content")):
            name = clean_author(block.get("name"))
            yield ContentPart(answer, builder.tools.get(str(block.get("tool_use_id")), name))
    elif isinstance(block.get("parts"), list):
        yield from _split_content(builder, block["parts"], depth + 1)
    elif isinstance(text, str):
        yield from _split_content(builder, text, depth + 1)
    elif kind not in _TEXTS:
        known = ("image", "audio", "video", "document", "file")
        label = next((one for one in known if one in kind), clean_author(kind))
        yield ContentPart(f"[{label}]", is_placeholder=True)
    elif text is not None:
        raise RecordError(f"its text is {name_type(text)}; give text")
