"""Conversations and their messages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from unspool.domain.documents import (
    Metadata,
    check_path,
    check_project,
    freeze_metadata,
    storable,
    to_utc,
)
from unspool.errors import InputError

DEFAULT_PROJECT = "conversations"
MAX_AUTHOR_LENGTH = 200
MAX_MESSAGE_ID_LENGTH = 250
# range of 64 bits of nanoseconds
EARLIEST, LATEST = (
    datetime(1678, 1, 1, tzinfo=UTC),
    datetime(2262, 1, 1, tzinfo=UTC) - timedelta(microseconds=1),
)


class AuthorKind(StrEnum):
    """Kind of author: a person, a model, its operator, or a tool."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Message of a conversation. `id` is its name in the source, if any."""

    text: str
    author: str = ""
    kind: AuthorKind = AuthorKind.USER
    at: datetime | None = None
    id: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"the text of a message is a {type(self.text).__name__}; give text")
        for name, value, most in (
            ("author", self.author, MAX_AUTHOR_LENGTH),
            ("id", self.id, MAX_MESSAGE_ID_LENGTH),
        ):
            if (
                not isinstance(value, str)
                or len(value) > most
                or not storable(value)
                or "\n" in value
            ):
                raise InputError(
                    f"the {name} of a message cannot be used; give one line of at most {most} "
                    f"characters, without NUL or lone surrogates"
                )
        if self.kind not in list(AuthorKind):
            raise InputError(
                f"kind {self.kind!r} of a message does not exist; it is one of "
                f"{', '.join(AuthorKind)}"
            )
        object.__setattr__(self, "kind", AuthorKind(self.kind))
        object.__setattr__(self, "at", _normalize_time(self.at, "the time of a message"))

    @property
    def speaker(self) -> str:
        """Name of the author, or the kind if there is none."""
        return self.author or self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Conversation with its messages in order. Its project and id identify it."""

    id: str
    messages: Sequence[Message] = ()
    project: str = DEFAULT_PROJECT
    title: str = ""
    scenario_title: str = ""
    url: str = ""
    created_at: datetime | None = None  # by default the time of the first message that has one
    metadata: Metadata = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_project(self.project)
        check_path(self.id, "conversation id")
        for name in ("title", "scenario_title", "url"):
            value = getattr(self, name)
            if not isinstance(value, str) or not storable(value):
                raise InputError(
                    f"{name} of conversation {self.id!r} contains a NUL or a lone surrogate, or is "
                    f"no text; leave it out"
                )
        if isinstance(self.messages, str | bytes) or not isinstance(self.messages, Iterable):
            raise InputError(
                f"the messages of conversation {self.id!r} are a {type(self.messages).__name__}; "
                f"give a list of unspool.Message objects"
            )
        object.__setattr__(self, "messages", tuple(self.messages))
        seen: set[str] = set()
        for message in self.messages:
            if not isinstance(message, Message):
                raise InputError(
                    f"conversation {self.id!r} contains a {type(message).__name__} among its "
                    f"messages; give unspool.Message objects"
                )
            if message.id and message.id in seen:
                raise InputError(
                    f"two messages of conversation {self.id!r} have the id {message.id[:80]!r}; "
                    f"give each its own, or none"
                )
            seen.add(message.id)
        object.__setattr__(
            self,
            "created_at",
            _normalize_time(self.created_at, f"created_at of conversation {self.id!r}"),
        )
        object.__setattr__(self, "metadata", freeze_metadata(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRecord:
    """Conversation in a list, without its messages."""

    project: str
    id: str
    title: str
    scenario_title: str
    url: str
    created_at: datetime
    updated_at: datetime
    messages: int
    metadata: Metadata


def check_conversations(conversations: Sequence[Conversation]) -> None:
    """Reject conversations that cannot be saved together."""
    if not conversations:
        raise InputError("no conversation was given; save takes at least one")
    for one in conversations:
        if not isinstance(one, Conversation):
            raise InputError(
                f"a {type(one).__name__} was given to save; give unspool.Conversation objects, "
                f"several as several arguments"
            )
    if len({one.project for one in conversations}) > 1:
        raise InputError("the conversations belong to several projects; save one project at a time")
    if len({one.id for one in conversations}) < len(conversations):
        raise InputError("two of the conversations have the same id; give each id once")


def check_turns(turns: Sequence[Message]) -> None:
    """Raise `InputError` unless these are the messages before a question."""
    for turn in turns:
        if not isinstance(turn, Message):
            raise InputError(
                f"the conversation holds a {type(turn).__name__}; give unspool.Message objects, "
                f"oldest first"
            )


def check_files(files: Sequence[str | Path] | str | Path) -> list[Path]:
    """Return the paths of exports to import. Raise `InputError` if there are none."""
    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    if not paths:
        raise InputError("no file was given; name at least one export")
    return paths


def fingerprint(message: Message) -> bytes:
    """Return the fingerprint of a message with its author, time and id."""
    digest = hashlib.sha256()
    for part in (
        message.id,
        message.author,
        message.kind.value,
        "" if message.at is None else message.at.isoformat(),
        message.text,
    ):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def chain_fingerprints(sha256: str, fingerprints: Iterable[bytes]) -> str:
    """Return the fingerprint of a conversation with further messages.

    It follows from the previous one, so that appending does not read the other messages.
    """
    digest = bytes.fromhex(sha256)
    for one in fingerprints:
        digest = hashlib.sha256(digest + one).digest()
    return digest.hex()


def _normalize_time(moment: datetime | None, what: str) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InputError(
            f"{what} has no time zone; give an aware datetime such as datetime.now(UTC)"
        )
    moment = to_utc(moment)
    if not EARLIEST <= moment <= LATEST:
        raise InputError(
            f"{what} is in the year {moment.year}; give one from {EARLIEST.year} to "
            f"{LATEST.year}, or none"
        )
    return moment
