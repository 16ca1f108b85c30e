"""Conversations of a ChatGPT export.

Messages form a tree, of which the branch that was read last is kept. Pure.
"""

from __future__ import annotations

from typing import Any

from unspool.domain.conversations import AuthorKind
from unspool.sources.conversations.records import (
    RecordError,
    get_dict,
    get_text,
    name_type,
    parse_id,
    parse_kind,
)
from unspool.sources.conversations.schema import format_answer

_PAGE = "https://chatgpt.com/c/"
# thoughts of the model, and the instructions it gets in every conversation
_HIDDEN = frozenset(
    {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}
)


def convert_conversation(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a conversation to the documented schema."""
    mapping = record.get("mapping")
    if not isinstance(mapping, dict):
        raise RecordError(
            f"its mapping is {name_type(mapping)}; an object of messages was expected"
        )
    id_ = parse_id(record.get("conversation_id")) or parse_id(record.get("id"))
    return {
        "id": id_,
        "title": record.get("title"),
        "url": _PAGE + id_ if id_ else "",
        "created_at": record.get("create_time"),
        "metadata": {
            "source": "chatgpt",
            "model": record.get("default_model_slug"),
            "gizmo": record.get("gizmo_id"),
        },
        "messages": [
            _convert_node(mapping[name])
            for name in _list_branch(mapping, record.get("current_node"))
        ],
    }


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
    leaves = [name for name in reversed(nodes) if name not in parents]
    return max(leaves, key=lambda name: _get_time(nodes[name]), default=None)


def _get_time(node: dict[str, Any]) -> float:
    time = get_dict(node.get("message")).get("create_time")
    return float(time) if isinstance(time, int | float) and abs(time) < 1e15 else 0.0


def _convert_node(node: Any) -> Any:
    """Convert the message of a node. It is empty if the node has none to show."""
    message = (node.get("message") or {}) if isinstance(node, dict) else node
    if not isinstance(message, dict):
        return message
    body = get_dict(message.get("content"))
    is_hidden = get_dict(message.get("metadata")).get("is_visually_hidden_from_conversation")
    if is_hidden or get_text(body.get("content_type")) in _HIDDEN:
        return {}
    fields = {
        "id": message.get("id"),
        "author": message.get("author"),
        "at": message.get("create_time"),
    }
    content = _unwrap(body) if body else message.get("content")
    kind = parse_kind(get_dict(message.get("author")).get("role"))
    tool = get_text(message.get("recipient"))
    if kind is not AuthorKind.ASSISTANT or tool in ("", "all"):
        return {**fields, "content": content}
    text = format_answer(content)
    calls = [{"function": {"name": tool, "arguments": text}}] if text else []
    return {**fields, "tool_calls": calls}


def _unwrap(body: dict[str, Any]) -> Any:
    """Return the parts or the text of a content."""
    if isinstance(body.get("parts"), list):
        return body["parts"]
    texts = (body.get(key) for key in ("text", "result", "summary", "content"))
    return next((text for text in texts if isinstance(text, str)), [body])
