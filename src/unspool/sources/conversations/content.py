"""What a message says: text, calls of tools and their answers, out of the shapes in which
exports write content. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from unspool.domain.conversations import AuthorKind, Message
from unspool.sources.conversations.drafts import Draft
from unspool.sources.conversations.values import as_json, author_name, clean, named, shortened, word

_SILENT = frozenset(
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
_DEEPEST = 8  # answers of tools hold blocks that hold blocks


class ContentError(Exception):
    """Content of a shape that no export has; the message says which."""


class Turn(NamedTuple):
    """A piece of a message: said by its author, or by the tool that is named."""

    text: str
    is_tool: bool = False
    tool: str = ""
    is_mark: bool = False  # stands for what is no text, such as an image


def messages(
    draft: Draft,
    content: Any,
    *,
    kind: AuthorKind,
    author: str = "",
    at: datetime | None = None,
    id: str = "",
) -> list[Message]:
    """The messages that content comes to: what is said as one, each call of a tool and each answer
    as its own.

    The first has the id; the others have a number behind it.
    """
    turns = list(_turns(draft, content, 0))
    # a mark stands only where nothing else does
    turns = [turn for turn in turns if not turn.is_mark] or turns[:1]
    made: list[Message] = []
    spoken: list[str] = []

    def add(text: str, kind: AuthorKind, author: str) -> None:
        name = (id if not made else f"{id}/{len(made) + 1}") if id else ""
        made.append(
            Message(text=clean(text), author=author_name(author), kind=kind, at=at, id=name)
        )

    for turn in turns:
        if not turn.is_tool:
            spoken.append(turn.text)
            continue
        if spoken:
            add("\n\n".join(spoken), kind, author)
            spoken = []
        add(turn.text, AuthorKind.TOOL, turn.tool)
    if spoken:
        add("\n\n".join(spoken), kind, author)
    return made


def call(name: object, arguments: Any) -> str:
    """A call of a tool in short: its name and what it was given."""
    if isinstance(arguments, dict) and len(arguments) == 1:
        (arguments,) = arguments.values()
    given = arguments if isinstance(arguments, str) else as_json(arguments) if arguments else ""
    return f"{author_name(name) or 'tool'}: {shortened(given)}".removesuffix(": ")


def answer(output: Any) -> str:
    """The answer of a tool in short; empty where it is none."""
    if isinstance(output, dict):
        output = output.get("content", output.get("output", output.get("text", output)))
    if isinstance(output, str):
        return shortened(output)
    if isinstance(output, list):
        parts = [
            one
            if isinstance(one, str)
            else one["text"]
            if isinstance(one, dict) and isinstance(one.get("text"), str)
            else ""
            for one in output
        ]
        text = "\n".join(part for part in parts if part)
        return shortened(text) if text else "[image]" if output else ""
    return shortened(as_json(output)) if output is not None else ""


def _turns(draft: Draft, content: Any, depth: int) -> Iterator[Turn]:
    if content is None:
        return
    if isinstance(content, str):
        if content.strip():
            yield Turn(content.strip("\n"))
    elif isinstance(content, list) and depth < _DEEPEST:
        for block in content:
            yield from _turns(draft, block, depth + 1)
    elif isinstance(content, dict) and depth < _DEEPEST:
        yield from _block(draft, content, depth)
    else:
        raise ContentError(f"its content is {named(content)}; give text or a list of blocks")


def _block(draft: Draft, block: dict[str, Any], depth: int) -> Iterator[Turn]:
    kind = word(block.get("type")) or word(block.get("content_type"))
    if kind in _SILENT:
        return
    if kind.endswith(("tool_use", "tool_call")):
        name = author_name(block.get("name")) or "tool"
        if isinstance(block.get("id"), str):
            draft.called(block["id"], name)
        yield Turn(call(name, block.get("input", block.get("arguments"))), is_tool=True, tool=name)
    elif kind.endswith("tool_result"):
        text = answer(block.get("content"))
        if text:
            yield Turn(
                text,
                is_tool=True,
                tool=draft.tools.get(str(block.get("tool_use_id")), author_name(block.get("name"))),
            )
    elif isinstance(block.get("parts"), list):
        yield from _turns(draft, block["parts"], depth + 1)
    elif isinstance(block.get("text"), str):
        yield from _turns(draft, block["text"], depth + 1)
    elif kind not in _TEXTS:
        yield Turn(f"[{_mark(kind)}]", is_mark=True)
    elif block.get("text") is not None:
        raise ContentError(f"its text is {named(block['text'])}; give text")


def _mark(kind: str) -> str:
    for known in ("image", "audio", "video", "document"):
        if known in kind:
            return known
    return "file" if "file" in kind else author_name(kind)
