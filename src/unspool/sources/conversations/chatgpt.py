"""Conversations of a ChatGPT export.

Messages form a tree, of which the branch that was read last is kept. Pure.
"""

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
    convert_metadata,
    get_dict,
    get_text,
    join_line,
    name_type,
    parse_id,
    parse_kind,
    shorten,
)

_PAGE = "https://chatgpt.com/c/"
# thoughts of the model, and the instructions it gets in every conversation
_HIDDEN = frozenset(
    {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}
)


def read_conversation(
    record: dict[str, Any], log: ErrorLog
) -> tuple[ConversationBuilder, list[Message]]:
    """Read a conversation and its messages."""
    mapping = record.get("mapping")
    if not isinstance(mapping, dict):
        raise RecordError(
            f"its mapping is {name_type(mapping)}; an object of messages was expected"
        )
    id_ = parse_id(record.get("conversation_id")) or parse_id(record.get("id"))
    about = {"model": record.get("default_model_slug"), "gizmo": record.get("gizmo_id")}
    builder = ConversationBuilder(
        id=id_,
        title=join_line(record.get("title")),
        url=_PAGE + id_ if id_ else "",
        created_at=log.parse_time(record.get("create_time")),
        metadata={"source": "chatgpt", **convert_metadata(about)},
    )
    messages: list[Message] = []
    for name in _list_branch(mapping, record.get("current_node")):
        with log.at(f"message {join_line(name, 40)}") as message_log:
            messages += _read_node(builder, mapping[name], message_log)
    return builder, messages


def _list_branch(mapping: dict[str, Any], current: Any) -> list[str]:
    """List the names of the nodes from the root to the current one."""
    if not isinstance(current, str) or current not in mapping:
        current = _find_latest_leaf(mapping)
    path: dict[str, None] = {}
    while isinstance(current, str) and current in mapping and current not in path:
        path[current] = None
        current = get_dict(mapping[current]).get("parent")
    return list(path)[::-1]


def _find_latest_leaf(mapping: dict[str, Any]) -> str | None:
    nodes = {name: get_dict(node) for name, node in mapping.items()}
    parents = {parent for node in nodes.values() if isinstance(parent := node.get("parent"), str)}
    latest, best = None, float("-inf")
    for name, node in nodes.items():
        time = get_dict(node.get("message")).get("create_time")
        age = float(time) if isinstance(time, int | float) and abs(time) < 1e15 else 0.0
        if name not in parents and age >= best:
            latest, best = name, age
    return latest


def _read_node(builder: ConversationBuilder, node: Any, log: ErrorLog) -> list[Message]:
    if not isinstance(node, dict) or not isinstance(node.get("message"), dict | None):
        raise RecordError(f"it is {name_type(node)} without a message; an object was expected")
    message = get_dict(node.get("message"))
    body = message.get("content")
    content_type = get_dict(body).get("content_type")
    is_hidden = get_dict(message.get("metadata")).get("is_visually_hidden_from_conversation")
    if not message or is_hidden or get_text(content_type) in _HIDDEN:
        return []
    author = get_dict(message.get("author"))
    kind, name = parse_kind(author.get("role")), clean_author(author.get("name"))
    if kind is None:
        kind, name = AuthorKind.USER, name or clean_author(author.get("role"))
    at = log.parse_time(message.get("create_time"))
    header = content.MessageHeader(name, kind, at, parse_id(message.get("id")))
    messages = content.read_messages(builder, _unwrap(body), header)
    tool = clean_author(message.get("recipient"))
    if kind is AuthorKind.ASSISTANT and tool not in ("", "all"):
        return [
            replace(
                one, text=content.format_call(tool, one.text), author=tool, kind=AuthorKind.TOOL
            )
            for one in messages
        ]
    if kind is AuthorKind.TOOL:
        return [replace(one, text=shorten(one.text), kind=kind) for one in messages]
    return messages


def _unwrap(body: Any) -> Any:
    """Return the content in a form shared by all formats."""
    fields = get_dict(body)
    if isinstance(fields.get("parts"), list) or isinstance(fields.get("text"), str):
        return body
    texts = (fields.get(key) for key in ("result", "summary", "content"))
    return next((text for text in texts if isinstance(text, str)), body)
