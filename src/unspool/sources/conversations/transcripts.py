"""Sessions of coding agents, one event per line: Claude Code, and rollouts of Codex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.sources.conversations import content
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
        elif kind == "response_item":
            yield from self._read_item(payload, record, log)
        elif kind == "event_msg":
            yield from self._read_announcement(payload, record, log)

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
        author_kind = parse_kind(message.get("role")) or parse_kind(kind) or AuthorKind.USER
        if record.get("isCompactSummary"):
            author_kind = AuthorKind.SYSTEM
        is_model = author_kind is AuthorKind.ASSISTANT
        header = content.MessageHeader(
            author=clean_author(message.get("model")) if is_model else "",
            kind=author_kind,
            at=log.parse_time(record.get("timestamp")),
            id=parse_id(record.get("uuid")),
        )
        messages = content.read_messages(builder, message.get("content"), header)
        builder.title = self._summaries.pop(header.id, "") or builder.title
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

    def _read_announcement(
        self, payload: dict[str, Any], record: dict[str, Any], log: ErrorLog
    ) -> Iterator[Conversation]:
        """Read an event about a message, unless the rollout contains the messages themselves."""
        kind = _EVENTS.get(get_text(payload.get("type")))
        if kind is None or self._has_messages:
            return
        builder = self._merger.open_conversation(self._rollout)
        header = content.MessageHeader(kind=kind, at=log.parse_time(record.get("timestamp")))
        messages = content.read_messages(builder, payload.get("message"), header)
        self._announced = messages[0].text if messages else None
        yield from self._add(self._rollout, builder, messages)

    def _read_item(
        self, item: dict[str, Any], record: dict[str, Any], log: ErrorLog
    ) -> Iterator[Conversation]:
        builder = self._merger.open_conversation(self._rollout)
        kind = get_text(item.get("type"))
        header = content.MessageHeader(at=log.parse_time(record.get("timestamp")))
        parts: list[content.ContentPart] = []
        if kind == "message":
            yield from self._read_item_message(builder, item, header)
        elif kind in _CALLS:
            name = clean_author(item.get("name")) or kind.removesuffix("_call").replace("_", " ")
            keys = ("arguments", "input", "action")
            arguments = next((item[key] for key in keys if item.get(key)), None)
            call_id = str(item.get("call_id") or item.get("id"))
            parts = [content.read_call(builder, call_id, name, arguments)]
        elif kind in _ANSWERS and (text := content.format_answer(item.get("output"))):
            tool = builder.tools.get(str(item.get("call_id")), "")
            parts = [content.ContentPart(text, tool)]
        messages = content.read_messages(builder, None, header, parts)
        yield from self._merger.add_messages(self._rollout, messages)

    def _read_item_message(
        self, builder: ConversationBuilder, item: dict[str, Any], header: content.MessageHeader
    ) -> Iterator[Conversation]:
        announced, self._announced, self._has_messages = self._announced, None, True
        kind = parse_kind(item.get("role")) or AuthorKind.USER
        header = header._replace(kind=kind, id=parse_id(item.get("id")))
        messages = [
            one
            for one in content.read_messages(builder, item.get("content"), header)
            if not one.text.lstrip().startswith(_INSTRUCTIONS) and one.text != announced
        ]
        yield from self._add(self._rollout, builder, messages)
