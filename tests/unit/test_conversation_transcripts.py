"""Transcripts of coding agents: Claude Code's sessions and Codex's rollouts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import exports
from unspool.domain.conversations import AuthorKind
from unspool.sources.conversations.detection import Format


def event(kind: str, name: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message["model"] = "claude-x"
    common = {
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": "s1",
        "cwd": "/home/ann/boats",
        "gitBranch": "main",
        "version": "2.0",
    }
    return {
        **common,
        "type": kind,
        "message": message,
        "uuid": name,
        "timestamp": "2026-01-05T10:00:00.000Z",
        **more,
    }


def test_a_session_of_claude_code(tmp_path: Path) -> None:
    path = exports.lines(
        tmp_path / "s1.jsonl",
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        event(
            "user", "u0", "<local-command-caveat>do not answer</local-command-caveat>", isMeta=True
        ),
        event("user", "u1", "Fix the leak\nin the hull"),
        event(
            "assistant", "u2", [{"type": "thinking", "thinking": "secret plan", "signature": "x"}]
        ),
        event(
            "assistant",
            "u3",
            [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls hull"}},
            ],
        ),
        event(
            "user",
            "u4",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "plank.txt"}],
                }
            ],
            toolUseResult={"stdout": "plank.txt"},
        ),
        {"type": "system", "subtype": "info", "content": "noise", "sessionId": "s1", "uuid": "u5"},
        event("assistant", "u6", [{"type": "text", "text": "Fixed."}]),
    )
    ((talk,), bad) = exports.read(path)
    assert exports.detect_format(path) is Format.TRANSCRIPT
    assert exports.texts(talk) == [
        ("user", "Fix the leak\nin the hull"),
        ("claude-x", "Looking."),
        ("Bash", "Bash: ls hull"),
        ("Bash", "plank.txt"),
        ("claude-x", "Fixed."),
    ]
    assert [one.kind for one in talk.messages] == [
        AuthorKind.USER,
        AuthorKind.ASSISTANT,
        AuthorKind.TOOL,
        AuthorKind.TOOL,
        AuthorKind.ASSISTANT,
    ]
    assert [one.id for one in talk.messages] == ["u1", "u3", "u3/2", "u4", "u6"]
    assert (talk.id, talk.title) == ("s1", "Fix the leak")
    assert dict(talk.metadata) == {
        "source": "claude-code",
        "cwd": "/home/ann/boats",
        "branch": "main",
    }
    assert talk.messages[0].at == datetime(2026, 1, 5, 10, tzinfo=UTC)
    assert bad == []


def test_summaries_and_titles_name_their_session(tmp_path: Path) -> None:
    path = exports.lines(
        tmp_path / "s.jsonl",
        {"type": "summary", "summary": "Mending the hull", "leafUuid": "u1"},
        {"type": "summary", "summary": "Of another file", "leafUuid": "elsewhere"},
        event("user", "u1", "hello"),
        event("user", "v1", "hello", sessionId="s2"),
        event("user", "w1", "hello", sessionId="s3"),
        {"type": "summary", "summary": "Written later", "leafUuid": "v1"},
        {"type": "custom-title", "customTitle": "By hand", "sessionId": "s3"},
    )
    talks, bad = exports.read(path)
    assert {talk.id: talk.title for talk in talks} == {
        "s1": "Mending the hull",
        "s2": "Written later",
        "s3": "By hand",
    }
    assert bad == []


def test_what_a_second_agent_did_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    path = exports.lines(
        tmp_path / "s.jsonl",
        event("user", "u1", "a"),
        event("user", "u2", "b", isSidechain=True, agentId="7f"),
        event("user", "u3", "c"),
    )
    talks, _ = exports.read(path)
    assert {talk.id: [text for _, text in exports.texts(talk)] for talk in talks} == {
        "s1": ["a", "c"],
        "s1/7f": ["b"],
    }


def test_events_that_are_repeated_or_broken(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    path = exports.lines(
        tmp_path / "s.jsonl",
        event("user", "u1", "a"),
        event("user", "u1", "a"),
        '{"type": "user", "mess',
        event("user", "u2", 5),
        event("assistant", "u3", [7]),
        {"type": "assistant", "sessionId": "s1", "message": None},
        event("user", "u4", "b", timestamp="late"),
        ["no", "object"],
    )
    ((talk,), bad) = exports.read(path, counts)
    assert [text for _, text in exports.texts(talk)] == ["a", "b"]
    assert counts["duplicates"] == 1
    assert [one.position for one in bad] == [
        "line 3",
        "line 4",
        "line 5",
        "line 6",
        "line 7",
        "line 8",
    ]


def rolled(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": "2026-01-05T10:00:00.000Z", "type": kind, "payload": payload}


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return rolled(
        "response_item",
        {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
    )


META = rolled(
    "session_meta",
    {
        "id": "r1",
        "timestamp": "2026-01-05T09:59:00Z",
        "cwd": "/home/ann/boats",
        "git": {"branch": "main"},
    },
)


def test_a_rollout_of_codex(tmp_path: Path) -> None:
    path = exports.lines(
        tmp_path / "rollout.jsonl",
        META,
        said("user", "<environment_context>...</environment_context>"),
        said("user", "Paint the boat"),
        rolled("event_msg", {"type": "user_message", "message": "Paint the boat"}),
        rolled("turn_context", {"model": "m"}),
        rolled("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        rolled(
            "response_item",
            {
                "type": "function_call",
                "name": "shell",
                "arguments": '{"command":["ls"]}',
                "call_id": "c1",
            },
        ),
        rolled(
            "response_item",
            {"type": "function_call_output", "call_id": "c1", "output": "paint.txt"},
        ),
        rolled(
            "response_item",
            {
                "type": "local_shell_call",
                "call_id": "c2",
                "action": {"type": "exec", "command": ["true"]},
            },
        ),
        rolled(
            "response_item",
            {
                "type": "custom_tool_call_output",
                "call_id": "c3",
                "output": {"content": "done", "success": True},
            },
        ),
        rolled("event_msg", {"type": "agent_message", "message": "Painted."}),
        said("assistant", "Painted."),
        rolled("event_msg", {"type": "token_count", "info": {}}),
    )
    ((talk,), bad) = exports.read(path)
    assert exports.detect_format(path) is Format.TRANSCRIPT
    assert exports.texts(talk) == [
        ("user", "Paint the boat"),
        ("shell", 'shell: {"command":["ls"]}'),
        ("shell", "paint.txt"),
        ("local shell", 'local shell: {"type": "exec", "command": ["true"]}'),
        ("tool", "done"),
        ("assistant", "Painted."),
    ]
    assert (talk.id, talk.title, talk.created_at) == (
        "r1",
        "Paint the boat",
        datetime(2026, 1, 5, 9, 59, tzinfo=UTC),
    )
    assert dict(talk.metadata) == {"source": "codex", "cwd": "/home/ann/boats", "branch": "main"}
    assert bad == []


def test_a_rollout_that_has_only_events_and_an_early_one(tmp_path: Path) -> None:
    events = exports.lines(
        tmp_path / "events.jsonl",
        META,
        rolled("event_msg", {"type": "user_message", "message": "a"}),
        rolled("event_msg", {"type": "agent_message", "message": "b"}),
    )
    early = exports.lines(
        tmp_path / "early.jsonl",
        {"id": "r0", "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
    )
    for path, name in ((events, "r1"), (early, "r0")):
        ((talk,), bad) = exports.read(path)
        assert talk.id == name
        assert exports.texts(talk) == [("user", "a"), ("assistant", "b")]
        assert bad == []


def test_a_forked_rollout_stays_one_conversation(tmp_path: Path) -> None:
    fork = rolled(
        "session_meta", {"id": "r2", "forked_from_id": "r1", "timestamp": "2026-01-06T00:00:00Z"}
    )
    ((talk,), _) = exports.read(
        exports.lines(tmp_path / "r.jsonl", fork, META, said("user", "a"), said("assistant", "b"))
    )
    assert talk.id == "r2"
    two, _ = exports.read(
        exports.lines(
            tmp_path / "two.jsonl",
            META,
            said("user", "a"),
            rolled("session_meta", {"id": "r3"}),
            said("user", "b"),
        )
    )
    assert [one.id for one in two] == ["r1", "r3"]
