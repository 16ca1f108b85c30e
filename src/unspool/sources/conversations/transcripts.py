"""Sessions of coding agents, one event per line: Claude Code, and rollouts of Codex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.sources.conversations import schema
from unspool.sources.conversations.building import ConversationBuilder, ConversationMerger
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
)

_TITLE_LENGTH = 80
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_ROLLOUT = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CALLS = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}
)
_ANSWERS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_EVENTS = {"user_message": AuthorKind.USER, "agent_message": AuthorKind.ASSISTANT}
# messages written by the program, not by the user
_INSTRUCTIONS = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "# AGENTS.md instructions",
)


def is_event(record: dict[str, Any]) -> bool:
    """Return whether a record is a line of a transcript."""
    kind = record.get("type")
    if not isinstance(kind, str):
        # the head of an early rollout
        return "instructions" in record and "timestamp" in record and "id" in record
    if kind in _ROLLOUT:
        return isinstance(record.get("payload"), dict)
    if kind in ("user", "assistant"):
        return isinstance(record.get("message"), dict)
    return (
        "sessionId" in record
        or "leafUuid" in record
        or kind == "file-history-snapshot"
        or (kind == "message" and isinstance(record.get("content"), list))
    )


class TranscriptReader:
    """Reader of the events of one file."""

    def __init__(self, merger: ConversationMerger) -> None:
        self._merger = merger
        self._summaries: dict[str, str] = {}  # titles, by the id of the message they belong to
        self._rollout = ""
        self._is_fork = False
        # whether the rollout contains the messages themselves, not only events about them
        self._has_messages = False
        self._announced: str | None = None

    def read_event(self, record: dict[str, Any], log: ErrorLog) -> Iterator[Conversation]:
        """Read one line. Yield conversations that are full."""
        kind = get_text(record.get("type"))
        payload = record.get("payload")
        if kind == "message" or kind in _CALLS or kind in _ANSWERS:
            # Early rollouts have no envelopes.
            yield from self._read_item(record, record, log)
        elif not kind and "timestamp" in record and parse_id(record.get("id")):
            self._begin_rollout(record, log)
        elif kind not in _ROLLOUT:
            yield from self._read_claude_code(kind, record, log)
        elif not isinstance(payload, dict):
            raise RecordError("its payload is missing; an object was expected")
        elif kind == "session_meta":
            self._begin_rollout(payload, log)
        elif kind in ("response_item", "event_msg"):
            yield from self._read_item(payload, record, log)

    def _read_claude_code(
        self, kind: str, record: dict[str, Any], log: ErrorLog
    ) -> Iterator[Conversation]:
        """Read a line of Claude Code. Lines without a message or a title are ignored."""
        session = parse_id(record.get("sessionId")) or parse_id(record.get("session_id"))
        if kind == "summary":
            self._read_summary(record)
        elif kind in _TITLES:
            if title := join_line(record.get(_TITLES[kind])):
                self._merger.open_conversation(session).title = title
        # Early rollouts have states between the messages.
        elif not kind and record.get("record_type") != "state":
            raise RecordError("it has no type; a line of a transcript was expected")
        elif kind in ("user", "assistant") and not record.get("isMeta"):
            # The work of a second agent, often in a file of its own under the same session.
            if record.get("isSidechain"):
                session = f"{session}/{parse_id(record.get('agentId')) or 'sidechain'}"
            yield from self._read_message(kind, session, record, log)

    def _read_summary(self, record: dict[str, Any]) -> None:
        title, last = join_line(record.get("summary")), parse_id(record.get("leafUuid"))
        if builder := self._merger.find_message(last):
            builder.title = title or builder.title
        else:
            self._summaries[last] = title

    def _read_message(
        self, kind: str, session: str, record: dict[str, Any], log: ErrorLog
    ) -> Iterator[Conversation]:
        message = record.get("message")
        if not isinstance(message, dict):
            raise RecordError(f"its message is {name_type(message)}; an object was expected")
        builder = self._merger.open_conversation(session)
        builder.id = session
        if not builder.metadata:
            about = {"cwd": record.get("cwd"), "branch": record.get("gitBranch") or None}
            builder.metadata = {"source": "claude-code", **convert_metadata(about)}
        role = message.get("role") if parse_kind(message.get("role")) else kind
        message = {
            "id": record.get("uuid"),
            "role": AuthorKind.SYSTEM if record.get("isCompactSummary") else role,
            "author": message.get("model"),
            "at": record.get("timestamp"),
            "content": message.get("content"),
        }
        messages = schema.read_messages(builder, message, log)
        builder.title = self._summaries.pop(parse_id(message["id"]), "") or builder.title
        yield from self._add(session, builder, messages)

    def _add(
        self, session: str, builder: ConversationBuilder, messages: list[Message]
    ) -> Iterator[Conversation]:
        """Add messages. The first line of the first question is the title if there is none."""
        for one in messages:
            is_question = one.kind is AuthorKind.USER and not one.text.lstrip().startswith("<")
            if is_question and not builder.title:
                builder.title = join_line(one.text.strip().partition("\n")[0], _TITLE_LENGTH)
        yield from self._merger.add_messages(session, messages)

    def _begin_rollout(self, head: dict[str, Any], log: ErrorLog) -> None:
        """Begin a conversation. A forked session repeats its parent's head after its own."""
        id_ = parse_id(head.get("id"))
        if self._is_fork or not id_ or id_ == self._rollout:
            return
        self._rollout, self._has_messages = id_, False
        self._is_fork = bool(head.get("forked_from_id"))
        builder = self._merger.open_conversation(id_)
        builder.id = id_
        builder.created_at = builder.created_at or log.parse_time(head.get("timestamp"))
        about = {"cwd": head.get("cwd"), "branch": get_dict(head.get("git")).get("branch")}
        builder.metadata = {"source": "codex", **convert_metadata(about)}

    def _read_item(
        self, item: dict[str, Any], record: dict[str, Any], log: ErrorLog
    ) -> Iterator[Conversation]:
        """Read a message, an event about a message, or a call or answer of a tool.

        Events are ignored if the rollout contains the messages themselves.
        """
        kind = get_text(item.get("type"))
        message = _convert_item(kind, item)
        if not message or (kind in _EVENTS and self._has_messages):
            return
        builder = self._merger.open_conversation(self._rollout)
        message["at"] = record.get("timestamp")
        messages = schema.read_messages(builder, message, log)
        if kind in _EVENTS:
            self._announced = messages[0].text if messages else None
        if kind == "message":
            announced, self._announced, self._has_messages = self._announced, None, True
            messages = [
                one
                for one in messages
                if not one.text.lstrip().startswith(_INSTRUCTIONS) and one.text != announced
            ]
        yield from self._add(self._rollout, builder, messages)


def _convert_item(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """Convert an item of a rollout to a message of a chat API. Empty for other items."""
    call_id = item.get("call_id") or item.get("id")
    if kind == "message":
        return {"id": item.get("id"), "role": item.get("role"), "content": item.get("content")}
    if kind in _EVENTS:
        return {"role": _EVENTS[kind], "content": item.get("message")}
    if kind in _CALLS:
        name = clean_author(item.get("name")) or kind.removesuffix("_call").replace("_", " ")
        keys = ("arguments", "input", "action")
        arguments = next((item[key] for key in keys if item.get(key)), None)
        return {"tool_calls": [{"id": call_id, "function": {"name": name, "arguments": arguments}}]}
    if kind in _ANSWERS:
        return {"role": "tool", "tool_call_id": call_id, "content": item.get("output")}
    return {}
