"""Conversations: what was said, by whom and when."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from unspool.domain.documents import Metadata, check_path, check_project, checked_metadata, storable
from unspool.errors import InputError

DEFAULT_PROJECT = "conversations"
MAX_AUTHOR_LENGTH = 200
MAX_MESSAGE_ID_LENGTH = 250
# what 64 bits of nanoseconds reach
EARLIEST, LATEST = (
    datetime(1678, 1, 1, tzinfo=UTC),
    datetime(2262, 1, 1, tzinfo=UTC) - timedelta(microseconds=1),
)


class AuthorKind(StrEnum):
    """Who speaks: a person, a model, whoever set the two up, or something that was called."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation. `id` is the name that it has where it comes from, if any."""

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
        object.__setattr__(self, "at", _aware(self.at, "the time of a message"))

    @property
    def speaker(self) -> str:
        """Who is shown to have said it: the author's name, or the kind where there is none."""
        return self.author or self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages in their order. The project and the id together are its name."""

    id: str
    messages: Sequence[Message] = ()
    project: str = DEFAULT_PROJECT
    title: str = ""
    scenario_title: str = ""
    url: str = ""
    created_at: datetime | None = None  # unset, the time of the first message that has one
    metadata: Metadata = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_project(self.project)
        check_path(self.id, "conversation id")
        for name in ("title", "scenario_title", "url"):
            value = getattr(self, name)
            if not isinstance(value, str) or not storable(value):
                raise InputError(
                    f"{name} of conversation {self.id!r} holds a NUL or a lone surrogate, or is "
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
                    f"conversation {self.id!r} holds a {type(message).__name__} among its "
                    f"messages; give unspool.Message objects"
                )
            if message.id and message.id in seen:
                raise InputError(
                    f"two messages of conversation {self.id!r} have the id {message.id[:80]!r}; "
                    f"give each its own, or none"
                )
            seen.add(message.id)
        object.__setattr__(
            self, "created_at", _aware(self.created_at, f"created_at of conversation {self.id!r}")
        )
        object.__setattr__(self, "metadata", checked_metadata(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRecord:
    """A conversation in a list: everything but what was said."""

    project: str
    id: str
    title: str
    scenario_title: str
    url: str
    created_at: datetime
    updated_at: datetime
    messages: int
    metadata: Metadata


def check_saved(conversations: Sequence[Conversation]) -> None:
    """Raise `InputError` unless these can be saved together."""
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


def check_files(files: Sequence[str | Path] | str | Path) -> list[Path]:
    """Return the paths of exports to import. Raise `InputError` if there are none."""
    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    if not paths:
        raise InputError("no file was given; name at least one export")
    return paths


def fingerprint(message: Message) -> bytes:
    """The same for the same message: who said what, when, under which name."""
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


def chained(sha256: str, fingerprints: Iterable[bytes]) -> str:
    """The fingerprint of a conversation with more messages: it follows from the one it had, so
    that appending need not read the others.
    """
    digest = bytes.fromhex(sha256)
    for one in fingerprints:
        digest = hashlib.sha256(digest + one).digest()
    return digest.hex()


def _aware(moment: datetime | None, what: str) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InputError(
            f"{what} has no time zone; give an aware datetime such as datetime.now(UTC)"
        )
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:  # at the first or the last hour that there is
        moment = moment.replace(tzinfo=UTC)
    if not EARLIEST <= moment <= LATEST:
        raise InputError(
            f"{what} is in the year {moment.year}; give one from {EARLIEST.year} to "
            f"{LATEST.year}, or none"
        )
    return moment
