"""Sessions of coding agents, one event a line: those of Claude Code, and rollouts of Codex."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.sources.conversations import content
from unspool.sources.conversations.drafts import Draft, Shelf
from unspool.sources.conversations.plain import Complaint, when
from unspool.sources.conversations.values import (
    author_name,
    clean,
    identity,
    kind_of,
    metadata_of,
    named,
    one_line,
    word,
)

_TITLE_LENGTH = 80
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_ROLLOUT = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CALLS = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}
)
_ANSWERS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_EVENTS = {"user_message": AuthorKind.USER, "agent_message": AuthorKind.ASSISTANT}
# the program's, not the user's
_TOLD = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "# AGENTS.md instructions",
)


def is_event(record: dict[str, Any]) -> bool:
    """Whether a record is a line of a transcript."""
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


class Transcripts:
    """Puts the events of a file together to conversations."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._summaries: dict[str, str] = {}  # titles, by the message that each was made for
        self._rollout = ""
        self._forked = False
        # whether the messages themselves are in the rollout, not only the events that announce them
        self._heard = False
        self._announced: str | None = None

    def add(self, record: Any, complain: Complaint) -> Iterator[Conversation]:
        """One line; gives out what has become full."""
        if not isinstance(record, dict):
            complain("", f"it is {named(record)}; an object was expected")
            return
        kind = word(record.get("type"))
        payload = record.get("payload")
        if kind in _ROLLOUT:
            if not isinstance(payload, dict):
                complain("", "its payload is missing; an object was expected")
                return
            yield from self._rolled(kind, payload, record.get("timestamp"), complain)
        elif kind == "message" or kind in _CALLS or kind in _ANSWERS:
            # an early rollout has no envelopes
            yield from self._item(record, record.get("timestamp"), complain)
        elif not kind and "timestamp" in record and identity(record.get("id")):
            self._begin(record, complain)
        else:
            yield from self._event(record, complain)

    def _event(self, record: dict[str, Any], complain: Complaint) -> Iterator[Conversation]:
        """A line of Claude Code. Those that are neither said by anyone nor a title are left out."""
        kind = word(record.get("type"))
        session = identity(record.get("sessionId")) or identity(record.get("session_id"))
        if kind == "summary":
            title, last = one_line(record.get("summary")), identity(record.get("leafUuid"))
            if owner := self._shelf.holding(last):
                owner.title = title or owner.title
            else:
                self._summaries[last] = title
            return
        if kind in _TITLES:
            if title := one_line(record.get(_TITLES[kind])):
                self._shelf.draft(session).title = title
            return
        if kind not in ("user", "assistant") or record.get("isMeta"):
            # which early rollouts have between the messages
            if not kind and record.get("record_type") != "state":
                complain("", "it has no type; a line of a transcript was expected")
            return
        said = record.get("message")
        if not isinstance(said, dict):
            complain("", f"its message is {named(said)}; an object was expected")
            return
        # what a second agent did, often in a file of its own under the same session
        if record.get("isSidechain"):
            session = f"{session}/{identity(record.get('agentId')) or 'sidechain'}"
        draft = self._shelf.draft(session)
        draft.id = session
        if not draft.metadata:
            draft.metadata = {
                "source": "claude-code",
                **metadata_of(
                    {"cwd": record.get("cwd"), "branch": record.get("gitBranch") or None}
                ),
            }
        who = (
            AuthorKind.SYSTEM
            if record.get("isCompactSummary")
            else kind_of(said.get("role")) or kind_of(kind) or AuthorKind.USER
        )
        author = author_name(said.get("model")) if who is AuthorKind.ASSISTANT else ""
        made = _made(
            draft,
            said.get("content"),
            who,
            author,
            when(record.get("timestamp"), complain),
            identity(record.get("uuid")),
            complain,
        )
        self._entitle(draft, made, identity(record.get("uuid")))
        yield from self._shelf.put(session, made)

    def _entitle(self, draft: Draft, made: list[Message], name: str) -> None:
        """The summary made for this message, or else the first line of what was asked first."""
        if name in self._summaries:
            draft.title = self._summaries.pop(name) or draft.title
        for message in made:
            if (
                not draft.title
                and message.kind is AuthorKind.USER
                and not message.text.lstrip().startswith("<")
            ):
                draft.title = one_line(message.text.strip().partition("\n")[0], _TITLE_LENGTH)

    def _rolled(
        self, kind: str, payload: dict[str, Any], at: Any, complain: Complaint
    ) -> Iterator[Conversation]:
        if kind == "session_meta":
            self._begin(payload, complain)
        elif kind == "response_item":
            yield from self._item(payload, at, complain)
        elif kind == "event_msg" and not self._heard and word(payload.get("type")) in _EVENTS:
            draft = self._shelf.draft(self._rollout)
            made = _made(
                draft,
                payload.get("message"),
                _EVENTS[payload["type"]],
                "",
                when(at, complain),
                "",
                complain,
            )
            self._announced = made[0].text if made else None
            self._entitle(draft, made, "")
            yield from self._shelf.put(self._rollout, made)

    def _begin(self, about: dict[str, Any], complain: Complaint) -> None:
        """The head of a rollout. A forked session repeats its parent's head behind its own."""
        name = identity(about.get("id"))
        if self._forked or not name or name == self._rollout:
            return
        self._rollout, self._heard = name, False
        self._forked = bool(about.get("forked_from_id"))
        draft = self._shelf.draft(name)
        draft.id = name
        draft.created_at = draft.created_at or when(about.get("timestamp"), complain)
        git = about.get("git")
        branch = git.get("branch") if isinstance(git, dict) else None
        draft.metadata = {
            "source": "codex",
            **metadata_of({"cwd": about.get("cwd"), "branch": branch}),
        }

    def _item(self, item: dict[str, Any], at: Any, complain: Complaint) -> Iterator[Conversation]:
        draft = self._shelf.draft(self._rollout)
        kind = word(item.get("type"))
        moment = when(at, complain)
        made: list[Message] = []
        if kind == "message":
            who = kind_of(item.get("role")) or AuthorKind.USER
            made = _made(
                draft, item.get("content"), who, "", moment, identity(item.get("id")), complain
            )
            made = [
                one
                for one in made
                if not one.text.lstrip().startswith(_TOLD) and one.text != self._announced
            ]
            self._heard, self._announced = True, None
        elif kind in _CALLS:
            name = author_name(item.get("name")) or kind.removesuffix("_call").replace("_", " ")
            draft.called(str(item.get("call_id") or item.get("id")), name)
            given = next(
                (item[key] for key in ("arguments", "input", "action") if item.get(key)), None
            )
            made = [
                Message(
                    text=clean(content.call(name, given)),
                    author=name,
                    kind=AuthorKind.TOOL,
                    at=moment,
                )
            ]
        elif kind in _ANSWERS:
            text = clean(content.answer(item.get("output")))
            if text:
                made = [
                    Message(
                        text=text,
                        author=draft.tools.get(str(item.get("call_id")), ""),
                        kind=AuthorKind.TOOL,
                        at=moment,
                    )
                ]
        self._entitle(draft, made, "")
        yield from self._shelf.put(self._rollout, made)


def _made(
    draft: Draft,
    said: Any,
    kind: AuthorKind,
    author: str,
    at: datetime | None,
    id: str,
    complain: Complaint,
) -> list[Message]:
    try:
        return content.messages(draft, said, kind=kind, author=author, at=at, id=id)
    except content.ContentError as error:
        complain("", str(error))
        return []
