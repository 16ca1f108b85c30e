"""Conversations in the making: they get their names, lose what they hold twice, and are split
where they are too long.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from unspool.domain.conversations import AuthorKind, Conversation, Message, fingerprint
from unspool.domain.documents import Scalar

MAX_MESSAGES = 20_000  # of one conversation; what follows is another one, "id#2"
# a conversation is chunked and embedded as a whole, in the process that imports it
MAX_CHARS = 8 * 2**20
# What open sessions may hold together; then the one that has been silent longest is closed.
OPEN_MESSAGES = 200_000
OPEN_CHARS = 64 * 2**20
_KNOWN_TOOLS = 10_000


@dataclass(slots=True)
class Tally:
    """What was left out without being wrong, counted while a file is read."""

    duplicates: int = 0  # messages and conversations that were there already
    empty: int = 0  # conversations in which nothing was said


@dataclass(slots=True)
class Draft:
    """A conversation as far as it has been read."""

    id: str = ""
    title: str = ""
    scenario_title: str = ""
    url: str = ""
    created_at: datetime | None = None
    metadata: dict[str, Scalar] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    # the name of a call, by its id, for the answer that follows
    tools: dict[str, str] = field(default_factory=dict)

    def called(self, call: str, name: str) -> None:
        """Remember which tool a call went to."""
        if len(self.tools) >= _KNOWN_TOOLS:
            self.tools.clear()
        self.tools[call] = name


class Binder:
    """Makes conversations of drafts.

    The first conversation with an id stands; a later one with the same id is a duplicate.
    """

    def __init__(self, *, project: str, tally: Tally) -> None:
        self._project = project
        self.tally = tally
        self._given: set[bytes] = set()
        self._derived: dict[str, set[bytes]] = {}

    def bind(self, draft: Draft) -> Iterator[Conversation]:
        """The whole conversation; several where it is too long for one."""
        messages = self.unique(draft.messages, set())
        if not messages:
            self.tally.empty += 1
            return
        draft.messages = messages
        name = self._name(draft)
        if not name:
            self.tally.duplicates += 1
            return
        for number, group in enumerate(_groups(messages), start=1):
            yield self.part(draft, name, number, group)

    def part(self, draft: Draft, name: str, number: int, messages: list[Message]) -> Conversation:
        """One part of a conversation: the first has its name, the others a number behind it."""
        return Conversation(
            id=name if number == 1 else f"{name}#{number}",
            messages=messages,
            project=self._project,
            title=draft.title,
            scenario_title=draft.scenario_title,
            url=draft.url,
            created_at=draft.created_at if number == 1 else None,
            metadata=draft.metadata,
        )

    def unique(self, messages: list[Message], seen: set[str]) -> list[Message]:
        """The messages whose id is not among those seen; the ids of those that are kept are
        added to them.
        """
        kept = []
        for message in messages:
            if message.id and message.id in seen:
                self.tally.duplicates += 1
                continue
            seen.add(message.id)
            kept.append(message)
        return kept

    def claim(self, name: str) -> bool:
        """Take an id for a conversation; False where another one has it."""
        key = hashlib.blake2b(name.encode(), digest_size=16).digest()
        if key in self._given:
            return False
        self._given.add(key)
        return True

    def _name(self, draft: Draft) -> str:
        """The id; empty for a conversation that was there already."""
        if draft.id:
            return draft.id if self.claim(draft.id) else ""
        name = derived_id(draft)
        whole = hashlib.blake2b(
            b"".join(fingerprint(message) for message in draft.messages), digest_size=16
        ).digest()
        others = self._derived.setdefault(name, set())
        if whole in others:
            return ""
        others.add(whole)
        # Two that begin alike and go on differently are two: the order in the file tells them
        # apart.
        return name if len(others) == 1 else f"{name}-{len(others)}"


def derived_id(draft: Draft) -> str:
    """An id for a conversation that has none: from its title, its time, and its messages up to the
    first that is not the system's.

    It stays the same when messages are added at the end.
    """
    head = []
    for message in draft.messages:
        head.append(fingerprint(message).hex())
        if message.kind is not AuthorKind.SYSTEM:
            break
    created = draft.created_at.isoformat() if draft.created_at else ""
    return (
        "c-"
        + hashlib.sha256(
            json.dumps([draft.title, created, *head]).encode("utf-8", "replace")
        ).hexdigest()[:24]
    )


def _groups(messages: list[Message]) -> Iterator[list[Message]]:
    group: list[Message] = []
    chars = 0
    for message in messages:
        if group and (len(group) >= MAX_MESSAGES or chars + len(message.text) > MAX_CHARS):
            yield group
            group, chars = [], 0
        group.append(message)
        chars += len(message.text)
    if group:
        yield group


@dataclass(slots=True)
class _Session:
    draft: Draft
    name: str = ""  # once a part of it has been given out
    number: int = 1
    chars: int = 0
    seen: set[str] = field(default_factory=set)
    # the ids of the part before: what is repeated is repeated soon
    before: set[str] = field(default_factory=set)


class Shelf:
    """Sessions whose messages come line by line, also of several sessions in turn. Holds a bounded
    number of messages.

    A session that goes on after it was closed, because others needed the room, goes on as its next
    part.
    """

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._closed: dict[str, tuple[Draft, str, int]] = {}
        self._messages = 0
        self._chars = 0

    def draft(self, key: str) -> Draft:
        """What is known of a session, to be completed; its messages are added by `put`."""
        session = self._open.get(key)
        if session is None:
            if key in self._closed:
                draft, name, number = self._closed.pop(key)
                session = _Session(draft, name, number)
            else:
                session = _Session(Draft())
            self._open[key] = session
        self._open.move_to_end(key)
        return session.draft

    def holding(self, message: str) -> Draft | None:
        """What is known of the open session that a message with this id is in."""
        return next(
            (
                session.draft
                for session in self._open.values()
                if message and (message in session.seen or message in session.before)
            ),
            None,
        )

    def put(self, key: str, messages: list[Message]) -> Iterator[Conversation]:
        """Add messages to a session; gives out what has become full."""
        self.draft(key)
        session = self._open[key]
        for message in messages:
            if message.id and (message.id in session.seen or message.id in session.before):
                self._binder.tally.duplicates += 1
                continue
            if session.draft.messages and (
                len(session.draft.messages) >= MAX_MESSAGES
                or session.chars + len(message.text) > MAX_CHARS
            ):
                yield from self._give(session)
            session.seen.add(message.id)
            session.draft.messages.append(message)
            session.chars += len(message.text)
            self._messages += 1
            self._chars += len(message.text)
        while len(self._open) > 1 and (
            self._messages > OPEN_MESSAGES
            or self._chars > OPEN_CHARS
            or len(self._open) > OPEN_MESSAGES
        ):
            oldest = next(iter(self._open))
            yield from self._close(oldest)

    def close(self) -> Iterator[Conversation]:
        """Everything that is still open, in the order of the last message."""
        while self._open:
            yield from self._close(next(iter(self._open)))

    def _close(self, key: str) -> Iterator[Conversation]:
        session = self._open.pop(key)
        if session.draft.messages:
            yield from self._give(session)
        elif not session.name:
            self._binder.tally.empty += 1
            return
        session.draft.tools.clear()
        self._closed[key] = (session.draft, session.name, session.number)

    def _give(self, session: _Session) -> Iterator[Conversation]:
        if not session.name:
            session.name = session.draft.id or derived_id(session.draft)
            while not self._binder.claim(
                session.name if session.number == 1 else f"{session.name}#{session.number}"
            ):
                session.number += 1
        messages = session.draft.messages
        yield self._binder.part(session.draft, session.name, session.number, messages)
        self._messages -= len(messages)
        self._chars -= session.chars
        session.before, session.seen = session.seen, set()
        session.draft.messages, session.chars = [], 0
        session.number += 1
