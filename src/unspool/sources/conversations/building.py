"""Building of conversations: ids, duplicate messages, and parts of long conversations."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from unspool.domain.conversations import AuthorKind, Conversation, Message, fingerprint
from unspool.domain.documents import Scalar

MAX_MESSAGES = 20_000  # of one conversation; the rest becomes another one, "id#2"
# A conversation is chunked and embedded as a whole, in the process that imports it.
MAX_CHARS = 8 * 2**20
# Limits of all open conversations together. Above them, the least recently used one is closed.
OPEN_MESSAGES = 200_000
OPEN_CHARS = 64 * 2**20
_MAX_TOOLS = 10_000


@dataclass(slots=True)
class ConversationBuilder:
    """Conversation whose messages are still being read."""

    id: str = ""
    title: str = ""
    scenario_title: str = ""
    url: str = ""
    created_at: datetime | None = None
    metadata: dict[str, Scalar] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)  # of the current part
    tools: dict[str, str] = field(default_factory=dict)  # names of tools by the id of the call
    name: str = ""  # id of the conversation, once a part has been built
    part: int = 1
    chars: int = 0
    seen: set[str] = field(default_factory=set)  # ids of the messages of the current part
    # ids of the previous part: messages are repeated soon or never
    seen_before: set[str] = field(default_factory=set)

    def add_tool(self, call_id: str, name: str) -> None:
        """Remember which tool was called, for the answer that follows."""
        if len(self.tools) >= _MAX_TOOLS:
            self.tools.clear()
        if call_id:
            self.tools[call_id] = name

    def has_message(self, id_: str) -> bool:
        """Return whether a message with this id was added recently."""
        return bool(id_) and (id_ in self.seen or id_ in self.seen_before)

    def is_full(self, message: Message) -> bool:
        """Return whether a message belongs to the next part."""
        return bool(self.messages) and (
            len(self.messages) >= MAX_MESSAGES or self.chars + len(message.text) > MAX_CHARS
        )

    def build_part(self, project: str) -> Conversation:
        """Build a conversation from the messages so far, and begin the next part."""
        part = Conversation(
            id=self.part_id,
            messages=self.messages,
            project=project,
            title=self.title,
            scenario_title=self.scenario_title,
            url=self.url,
            created_at=self.created_at if self.part == 1 else None,
            metadata=self.metadata,
        )
        self.part += 1
        self.messages, self.chars = [], 0
        self.seen_before, self.seen = self.seen, set()
        return part

    @property
    def part_id(self) -> str:
        """Id of the current part."""
        return self.name if self.part == 1 else f"{self.name}#{self.part}"


class ConversationMerger:
    """Merger of the messages of an export into conversations, in bounded memory.

    Messages may belong to several open conversations in turn. A conversation closed to save memory
    resumes as its next part.
    """

    def __init__(self, *, project: str, counts: Counter[str]) -> None:
        self._project = project
        self._counts = counts  # of "duplicates"
        self._ids: set[bytes] = set()
        self._derived: Counter[str] = Counter()  # conversations by their derived id
        self._open: OrderedDict[str, ConversationBuilder] = OrderedDict()
        self._closed: dict[str, ConversationBuilder] = {}
        self._messages = 0
        self._chars = 0

    def add_conversation(
        self, builder: ConversationBuilder, messages: Sequence[Message]
    ) -> Iterator[Conversation]:
        """Yield a complete conversation in its parts, unless it was read before."""
        if messages and self._name_conversation(builder, messages):
            yield from self._append(builder, messages)
            yield self._build_part(builder)
        elif messages:
            self._counts["duplicates"] += 1

    def open_conversation(self, key: str) -> ConversationBuilder:
        """Return the builder of the conversation with this key, to set its title and metadata."""
        if key not in self._open:
            self._open[key] = self._closed.pop(key, ConversationBuilder())
        self._open.move_to_end(key)
        return self._open[key]

    def find_message(self, id_: str) -> ConversationBuilder | None:
        """Return the open conversation that contains a message."""
        return next((one for one in self._open.values() if one.has_message(id_)), None)

    def add_messages(self, key: str, messages: Sequence[Message]) -> Iterator[Conversation]:
        """Add messages to an open conversation. Yield parts that are full."""
        yield from self._append(self.open_conversation(key), messages)
        while len(self._open) > 1 and (
            self._messages > OPEN_MESSAGES
            or self._chars > OPEN_CHARS
            or len(self._open) > OPEN_MESSAGES
        ):
            yield from self._close_oldest()

    def close(self) -> Iterator[Conversation]:
        """Yield all open conversations, in the order of their last messages."""
        while self._open:
            yield from self._close_oldest()
        self._closed.clear()

    def _append(
        self, builder: ConversationBuilder, messages: Sequence[Message]
    ) -> Iterator[Conversation]:
        for message in messages:
            if builder.has_message(message.id):
                self._counts["duplicates"] += 1
                continue
            if builder.is_full(message):
                yield self._build_part(builder)
            builder.seen.add(message.id)
            builder.messages.append(message)
            builder.chars += len(message.text)
            self._messages += 1
            self._chars += len(message.text)

    def _close_oldest(self) -> Iterator[Conversation]:
        key, builder = self._open.popitem(last=False)
        if builder.messages:
            yield self._build_part(builder)
        elif not builder.name:
            return
        builder.tools.clear()
        builder.seen_before.clear()
        self._closed[key] = builder

    def _build_part(self, builder: ConversationBuilder) -> Conversation:
        if not builder.name:
            builder.name = builder.id or derive_id(builder, builder.messages)
            while not self._claim(builder.part_id):
                builder.part += 1
        self._messages -= len(builder.messages)
        self._chars -= builder.chars
        return builder.build_part(self._project)

    def _claim(self, id_: str) -> bool:
        """Reserve an id. Return False if another conversation has it."""
        key = hashlib.blake2b(id_.encode(), digest_size=16).digest()
        if key in self._ids:
            return False
        self._ids.add(key)
        return True

    def _name_conversation(self, builder: ConversationBuilder, messages: Sequence[Message]) -> bool:
        """Set the id of a complete conversation. Return False if it was read before."""
        builder.name = builder.id
        if builder.id:
            return self._claim(builder.id)
        builder.name = derive_id(builder, messages)
        content = hashlib.blake2b(b"".join(map(fingerprint, messages)), digest_size=16).digest()
        if not self._claim(f"{builder.name} {content.hex()}"):
            return False
        # Conversations that begin alike and continue differently are numbered in file order.
        self._derived[builder.name] += 1
        if self._derived[builder.name] > 1:
            builder.name += f"-{self._derived[builder.name]}"
        return True


def derive_id(builder: ConversationBuilder, messages: Sequence[Message]) -> str:
    """Derive an id from the title, the time and the messages up to the first non-system one.

    Messages added at the end do not change it.
    """
    head = []
    for message in messages:
        head.append(fingerprint(message).hex())
        if message.kind is not AuthorKind.SYSTEM:
            break
    created = builder.created_at.isoformat() if builder.created_at else ""
    data = json.dumps([builder.title, created, *head]).encode("utf-8", "replace")
    return "c-" + hashlib.sha256(data).hexdigest()[:24]
