"""Conversations of a ChatGPT export: a tree of messages, of which the branch that was read last
is kept. Pure.
"""

from __future__ import annotations

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
    metadata_of,
    named,
    one_line,
    shortened,
    word,
)

_PAGE = "https://chatgpt.com/c/"
# What the model thought to itself, and what is told to it in every conversation.
_SILENT = frozenset(
    {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}
)


def is_conversation(record: dict[str, Any]) -> bool:
    """Whether a record is a conversation of a ChatGPT export."""
    return "mapping" in record


def conversation(record: dict[str, Any], complain: Complaint) -> Draft | None:
    """A conversation; None, with a complaint, where it has no tree of messages."""
    mapping = record.get("mapping")
    if not isinstance(mapping, dict):
        complain("", f"its mapping is {named(mapping)}; an object of messages was expected")
        return None
    given = identity(record.get("conversation_id")) or identity(record.get("id"))
    draft = Draft(id=given, title=one_line(record.get("title")), url=_PAGE + given if given else "")
    draft.created_at = when(record.get("create_time"), complain)
    draft.metadata = {
        "source": "chatgpt",
        **metadata_of({"model": record.get("default_model_slug"), "gizmo": record.get("gizmo_id")}),
    }
    for name in _branch(mapping, record.get("current_node")):
        node = mapping[name]
        if not isinstance(node, dict) or not isinstance(node.get("message"), dict | None):
            complain(
                f"message {one_line(name, 40)}",
                f"it is {named(node)} without a message; an object was expected",
            )
        elif node.get("message"):
            draft.messages += _messages(
                draft,
                node["message"],
                lambda _, reason, name=name: complain(f"message {one_line(name, 40)}", reason),  # type: ignore[misc]
            )
    return draft


def _branch(mapping: dict[str, Any], current: Any) -> list[str]:
    """The names of the nodes from the root to the current one."""
    if not isinstance(current, str) or current not in mapping:
        current = _latest(mapping)
    path: dict[str, None] = {}
    while isinstance(current, str) and current in mapping and current not in path:
        path[current] = None
        node = mapping[current]
        current = node.get("parent") if isinstance(node, dict) else None
    return list(path)[::-1]


def _latest(mapping: dict[str, Any]) -> str | None:
    """The youngest of the nodes that nothing follows; of equals the last."""
    parents = {
        node.get("parent")
        for node in mapping.values()
        if isinstance(node, dict) and isinstance(node.get("parent"), str)
    }
    latest, best = None, float("-inf")
    for name, node in mapping.items():
        said = node.get("message") if isinstance(node, dict) else None
        time = said.get("create_time") if isinstance(said, dict) else None
        age = float(time) if isinstance(time, int | float) and abs(time) < 1e15 else 0.0
        if name not in parents and age >= best:
            latest, best = name, age
    return latest


def _messages(draft: Draft, said: dict[str, Any], complain: Complaint) -> list[Message]:
    about = said["metadata"] if isinstance(said.get("metadata"), dict) else {}
    body = said.get("content")
    form = word(body.get("content_type")) if isinstance(body, dict) else ""
    if about.get("is_visually_hidden_from_conversation") or form in _SILENT:
        return []
    author = said["author"] if isinstance(said.get("author"), dict) else {}
    role = author.get("role")
    kind = kind_of(role)
    name = author_name(author.get("name"))
    if kind is None:
        kind, name = AuthorKind.USER, name or author_name(role)
    at = when(said.get("create_time"), complain)
    id = identity(said.get("id"))
    try:
        made = content.messages(draft, _body(body), kind=kind, author=name, at=at, id=id)
    except content.ContentError as error:
        complain("", str(error))
        return []
    recipient = said.get("recipient")
    if kind is AuthorKind.ASSISTANT and isinstance(recipient, str) and recipient not in ("", "all"):
        tool = author_name(recipient)
        return [_short(one, tool, content.call(tool, one.text)) for one in made]
    return [
        _short(one, one.author, clean(shortened(one.text))) if kind is AuthorKind.TOOL else one
        for one in made
    ]


def _short(message: Message, author: str, text: str) -> Message:
    return Message(text=text, author=author, kind=AuthorKind.TOOL, at=message.at, id=message.id)


def _body(body: Any) -> Any:
    """The content in a shape that all formats share."""
    if (
        not isinstance(body, dict)
        or isinstance(body.get("parts"), list)
        or isinstance(body.get("text"), str)
    ):
        return body
    return next(
        (body[key] for key in ("result", "summary", "content") if isinstance(body.get(key), str)),
        body,
    )
