"""Conversations of a Claude export. Pure."""

from __future__ import annotations

from typing import Any

from unspool.sources.conversations.records import (
    get_dict,
    get_text,
    join_line,
    list_dicts,
    parse_id,
)

_PAGE = "https://claude.ai/chat/"


def convert_conversation(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a conversation to the documented schema."""
    id_ = parse_id(record.get("uuid"))
    given = record.get("chat_messages")
    return {
        "id": id_,
        "title": record.get("name"),
        "url": _PAGE + id_ if id_ else "",
        "created_at": record.get("created_at"),
        "metadata": {"source": "claude"},
        "messages": list(map(_convert_message, given)) if isinstance(given, list) else given,
    }


def _convert_message(one: Any) -> Any:
    if not isinstance(one, dict):
        return one
    content = one.get("content") or []
    if isinstance(content, list) and all(map(_is_blank, content)):
        content = get_text(one.get("text"))  # early exports had no blocks
    files = [
        file for key in ("attachments", "files", "files_v2") for file in list_dicts(one.get(key))
    ]
    return {
        "id": one.get("uuid"),
        "role": one.get("sender"),
        "at": one.get("created_at"),
        "content": [content, *map(_convert_file, files)],
    }


def _is_blank(block: Any) -> bool:
    return get_dict(block).get("type") == "text" and not block.get("text")


def _convert_file(file: dict[str, Any]) -> dict[str, str]:
    """Return the text of an attachment under the name of its file. Else only the name."""
    name, text = join_line(file.get("file_name")), get_text(file.get("extracted_content"))
    if not text.strip():
        return {"type": "file", "file_name": name}
    return {"type": "text", "text": f"[file {name}]\n{text}" if name else text}
