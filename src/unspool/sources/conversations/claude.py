"""Conversations of a Claude export. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unspool.domain.conversations import AuthorKind, Message
from unspool.sources.conversations import content
from unspool.sources.conversations.drafts import Draft
from unspool.sources.conversations.plain import Complaint, when
from unspool.sources.conversations.values import (
    author_name,
    clean,
    identity,
    kind_of,
    named,
    one_line,
)

_PAGE = "https://claude.ai/chat/"


def is_conversation(record: dict[str, Any]) -> bool:
    """Whether a record is a conversation of a Claude export."""
    return "chat_messages" in record


def conversation(record: dict[str, Any], complain: Complaint) -> Draft | None:
    """A conversation; None, with a complaint, where its messages are no list."""
    said = record.get("chat_messages")
    if not isinstance(said, list):
        complain("", f"its chat_messages are {named(said)}; a list was expected")
        return None
    given = identity(record.get("uuid"))
    draft = Draft(
        id=given,
        title=one_line(record.get("name")),
        url=_PAGE + given if given else "",
        metadata={"source": "claude"},
    )
    draft.created_at = when(record.get("created_at"), complain)
    for number, one in enumerate(said, start=1):
        draft.messages += _messages(
            draft,
            one,
            lambda _, reason, number=number: complain(f"message {number}", reason),  # type: ignore[misc]
        )
    return draft


def _messages(draft: Draft, one: Any, complain: Complaint) -> list[Message]:
    if not isinstance(one, dict):
        complain("", f"it is {named(one)}; an object was expected")
        return []
    sender = one.get("sender")
    kind = kind_of(sender)
    author = "" if kind else author_name(sender)
    kind = kind or AuthorKind.USER
    at = when(one.get("created_at"), complain)
    id = identity(one.get("uuid"))
    try:
        made = (
            content.messages(draft, one.get("content"), kind=kind, author=author, at=at, id=id)
            if one.get("content")
            else []
        )
        if not made and isinstance(one.get("text"), str):
            # as exports were before they had blocks
            made = content.messages(draft, one["text"], kind=kind, author=author, at=at, id=id)
    except content.ContentError as error:
        complain("", str(error))
        return []
    pasted = _pasted(one)
    if made and pasted:
        return [replace(made[0], text=f"{made[0].text}\n\n{pasted}"), *made[1:]]
    mark = "" if made else pasted or _attached(one)
    return [Message(text=mark, author=author, kind=kind, at=at, id=id)] if mark else made


def _pasted(one: dict[str, Any]) -> str:
    """Text that came with a message, as long ones that are pasted do; under the file's name, if
    it has one.
    """
    files = one.get("attachments")
    parts = []
    for file in files if isinstance(files, list) else ():
        text = file.get("extracted_content") if isinstance(file, dict) else None
        if isinstance(text, str) and text.strip():
            name = one_line(file.get("file_name"))
            parts.append(f"[file {name}]\n{text}" if name else text)
    return clean("\n\n".join(parts))


def _attached(one: dict[str, Any]) -> str:
    """What stands for a message that is only files."""
    for key in ("attachments", "files", "files_v2"):
        files = one.get(key)
        if isinstance(files, list) and files:
            name = one_line(files[0].get("file_name")) if isinstance(files[0], dict) else ""
            return clean(f"[file {name}]" if name else "[file]")
    return ""
