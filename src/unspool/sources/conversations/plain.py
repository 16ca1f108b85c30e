"""Conversations in the documented JSON schema, and in those of chat APIs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from unspool.domain.conversations import AuthorKind, Message
from unspool.sources.conversations import content
from unspool.sources.conversations.drafts import Draft
from unspool.sources.conversations.values import (
    author_name,
    clean,
    identity,
    kind_of,
    metadata_of,
    moment,
    named,
    one_line,
)

Complaint = Callable[[str, str], None]  # where inside the record, and why

_TEXT_KEYS = ("text", "content", "tool_calls")
_CONVERSATION_KEYS = ("conversation", "conversation_id")


def is_conversation(record: dict[str, Any]) -> bool:
    """Whether a record is a conversation in the documented schema."""
    return "messages" in record


def is_message(record: dict[str, Any]) -> bool:
    """Whether a record is one message; its `conversation` says of which conversation."""
    return any(key in record for key in _TEXT_KEYS)


def conversation(record: dict[str, Any], complain: Complaint) -> Draft | None:
    """A conversation; None, with a complaint, where its messages are no list."""
    said = record.get("messages")
    if not isinstance(said, list):
        complain("", f"its messages are {named(said)}; give a list")
        return None
    draft = Draft(id=identity(record.get("id")))
    describe(draft, record, complain)
    for number, one in enumerate(said, start=1):
        draft.messages += message(
            draft,
            one,
            lambda where, reason, number=number: complain(  # type: ignore[misc]
                f"message {number} {where}".strip(), reason
            ),
        )
    return draft


def describe(draft: Draft, record: dict[str, Any], complain: Complaint) -> None:
    """Take over what a record says of its conversation, unless that is known."""
    draft.title = draft.title or one_line(record.get("title"))
    draft.scenario_title = draft.scenario_title or one_line(record.get("scenario_title"))
    draft.url = draft.url or one_line(record.get("url"), 2_000)
    draft.created_at = draft.created_at or when(record.get("created_at"), complain)
    for key, value in metadata_of(record.get("metadata")).items():
        draft.metadata.setdefault(key, value)


def session_of(record: dict[str, Any]) -> str:
    """The id of the conversation that a single message belongs to; empty for a file that is one
    conversation.
    """
    return next((name for key in _CONVERSATION_KEYS if (name := identity(record.get(key)))), "")


def message(draft: Draft, one: Any, complain: Complaint) -> list[Message]:
    """What a message comes to: itself, and the calls of tools in it."""
    if not isinstance(one, dict):
        complain("", f"it is {named(one)}; give an object with a text")
        return []
    author = one.get("author")
    role = one.get("kind") or one.get("role")
    if isinstance(author, dict):
        role, author = role or author.get("role"), author.get("name")
    author = author or one.get("name")
    kind = kind_of(role) if role else kind_of(author)
    if kind is None:
        kind, author = AuthorKind.USER, author or role  # a role of another program: kept as a name
    elif not role:
        author = ""  # "assistant" as a name says no more than the kind
    said = one.get("text") if one.get("text") is not None else one.get("content")
    at = when(one.get("at", one.get("timestamp", one.get("created_at"))), complain)
    id = identity(one.get("id"))
    if kind is AuthorKind.TOOL:
        author = author or draft.tools.get(str(one.get("tool_call_id")), "")
        said = content.answer(said)
    try:
        made = content.messages(draft, said, kind=kind, author=author_name(author), at=at, id=id)
        return made + _calls(draft, one.get("tool_calls"), at, id, len(made))
    except content.ContentError as error:
        complain("", str(error))
        return []


def _calls(draft: Draft, calls: Any, at: datetime | None, id: str, before: int) -> list[Message]:
    """The calls of tools that chat APIs write beside the content."""
    made: list[Message] = []
    for one in calls if isinstance(calls, list) else []:
        function = one.get("function", one) if isinstance(one, dict) else None
        if not isinstance(function, dict):
            continue
        name = author_name(function.get("name")) or "tool"
        draft.called(str(one.get("id")), name)
        number = before + len(made) + 1
        text = clean(content.call(name, function.get("arguments")))
        made.append(
            Message(
                text=text,
                author=name,
                kind=AuthorKind.TOOL,
                at=at,
                id=(id if number == 1 else f"{id}/{number}") if id else "",
            )
        )
    return made


def when(value: Any, complain: Complaint) -> datetime | None:
    """A time, or none with a complaint: what was said is kept without it."""
    try:
        return moment(value)
    except ValueError as error:
        complain("", f"{error}; kept without a time")
        return None
