"""Small exports, made up in the shapes that the real ones have, and the shortest way to read
one.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from unspool.domain.conversations import Conversation
from unspool.domain.reports import BadRecord
from unspool.sources import conversations
from unspool.sources.conversations.detection import Format, detect
from unspool.sources.conversations.opening import open_export


def written(path: Path, value: object) -> Path:
    """A file of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def lines(path: Path, *values: object) -> Path:
    """A file of JSON lines; text is written as it is."""
    path.write_text(
        "".join(
            (value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values
        ),
        encoding="utf-8",
    )
    return path


def zipped(path: Path, members: dict[str, object]) -> Path:
    """An archive; bytes are written as they are, everything else as JSON."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in members.items():
            archive.writestr(name, value if isinstance(value, bytes) else json.dumps(value))
    return path


def read(
    path: Path, counts: Counter[str] | None = None
) -> tuple[list[Conversation], list[BadRecord]]:
    """All conversations of an export, and all that was wrong with it."""
    found = list(conversations.read(path, project="chats", counts=counts))
    return [one for one in found if isinstance(one, Conversation)], [
        one for one in found if isinstance(one, BadRecord)
    ]


def detect_format(path: Path) -> Format:
    """Return the format of an export."""
    with open_export(path) as export:
        return detect(path, export).format


def texts(conversation: Conversation) -> list[tuple[str, str]]:
    """Who said what."""
    return [(message.speaker, message.text) for message in conversation.messages]


def node(key: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    """A node of a ChatGPT conversation."""
    body = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    author = {"role": role, "name": more.pop("name", None), "metadata": {}}
    said = {
        "id": key,
        "author": author,
        "create_time": 1_700_000_000.5,
        "content": body,
        "metadata": {},
        "recipient": "all",
        **more,
    }
    return {"id": key, "message": said, "parent": parent, "children": []}


def chatgpt(name: str = "6f1c", **more: Any) -> dict[str, Any]:
    """A ChatGPT conversation in which a question was asked again: only the second answer is on
    the branch.
    """
    mapping = {
        "root": {"id": "root", "message": None, "parent": None, "children": ["sys"]},
        "sys": node(
            "sys", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True}
        ),
        "q": node("q", "sys", "user", "Which knot holds best?"),
        "old": node("old", "q", "assistant", "A granny knot."),
        "new": node("new", "q", "assistant", "A bowline."),
    }
    return {
        "title": "Knots",
        "create_time": 1_700_000_000.0,
        "mapping": mapping,
        "current_node": "new",
        "conversation_id": name,
        "id": name,
        **more,
    }


def claude(name: str = "a1", **more: Any) -> dict[str, Any]:
    """A Claude conversation with a call of a tool."""
    said = [
        {
            "uuid": "m1",
            "text": "How deep is the lake?",
            "sender": "human",
            "created_at": "2026-01-05T10:00:00.123456Z",
            "content": [{"type": "text", "text": "How deep is the lake?"}],
            "attachments": [],
            "files": [],
        },
        {
            "uuid": "m2",
            "text": "Forty metres.",
            "sender": "assistant",
            "created_at": "2026-01-05T10:00:09Z",
            "content": [
                {"type": "thinking", "thinking": "I should look it up."},
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "web_search",
                    "input": {"query": "lake depth"},
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "40 m"}],
                },
                {"type": "text", "text": "Forty metres."},
            ],
        },
    ]
    return {
        "uuid": name,
        "name": "The lake",
        "created_at": "2026-01-05T10:00:00Z",
        "updated_at": "2026-01-05T11:00:00Z",
        "chat_messages": said,
        **more,
    }


def slack_files() -> dict[str, object]:
    """The files of a Slack export: a channel with a thread, and a direct talk."""
    return {
        "users.json": [
            {
                "id": "U1",
                "name": "ann",
                "profile": {"display_name": "Ann", "real_name": "Ann Archer"},
            },
            {"id": "U2", "name": "bob", "real_name": "Bob Baker", "profile": {"display_name": ""}},
        ],
        "channels.json": [{"id": "C1", "name": "general", "members": ["U1", "U2"]}],
        "dms.json": [{"id": "D9", "members": ["U1", "U2"]}],
        "general/2026-01-05.json": [
            {
                "type": "message",
                "user": "U1",
                "text": (
                    "Hi <@U2>, see <https://example.org/a|the plan> in <#C1|general> &amp; tell "
                    "<!here>"
                ),
                "ts": "1767600000.000100",
            },
            {
                "type": "message",
                "user": "U2",
                "text": "on it",
                "ts": "1767600060.000200",
                "thread_ts": "1767600000.000100",
            },
            {
                "type": "message",
                "subtype": "channel_join",
                "user": "U2",
                "text": "<@U2> has joined the channel",
                "ts": "1767600001.000000",
            },
            {
                "type": "message",
                "subtype": "bot_message",
                "bot_id": "B1",
                "username": "builds",
                "text": "",
                "attachments": [{"text": "Build 7 passed"}],
                "ts": "1767600030.0",
            },
        ],
        "general/2026-01-06.json": [
            {
                "type": "message",
                "user": "U9",
                "user_profile": {"display_name": "Cy"},
                "text": "<https://example.org>",
                "ts": "1767690000.0",
            }
        ],
        "D9/2026-01-05.json": [
            {
                "type": "message",
                "user": "U2",
                "text": "",
                "files": [{"title": "map.png"}],
                "ts": "1767600000.5",
            }
        ],
    }
