"""Documents and chunks: what is indexed, and where each piece of it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from unspool.errors import InputError

Scalar = str | int | float | bool
Metadata = Mapping[str, Scalar]

DEFAULT_PROJECT = "default"
MAX_NAME_LENGTH = 200
MAX_PATH_LENGTH = 4096
MAX_NUMBER = 2**63


class Status(StrEnum):
    """Where a document stands between being seen and being searchable."""

    PENDING = "pending"  # seen, nothing of it is searchable yet
    INDEXING = "indexing"  # a live run has claimed it
    INDEXED = "indexed"
    FAILED = "failed"  # see its error; tried again by the next run
    STALE = "stale"  # changed since it was indexed; the old chunks still answer


class Kind(StrEnum):
    """What sort of text a document is; decides how it is cut and ranked."""

    CODE = "code"
    DOCS = "docs"
    DATA = "data"
    CHAT = "chat"  # a conversation: its chunks are messages


class Origin(StrEnum):
    """Where a document came from. A run over a folder removes only what came from files."""

    FILE = "file"
    TEXT = "text"


class Lines(NamedTuple):
    """A range of lines, counted from 1, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.last != self.first else str(self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document given as text. The project and the path together are its name."""

    path: str
    text: str
    project: str = DEFAULT_PROJECT
    title: str = ""
    language: str = ""
    modified: datetime | None = None
    metadata: Metadata = field(default_factory=dict)
    # the one that this replaces, 0 if it must be new: another is a conflict. None replaces whatever
    # is there
    version: int | None = None

    def __post_init__(self) -> None:
        check_project(self.project)
        check_path(self.path)
        if not storable(self.title):
            raise InputError(
                f"the title of {self.path!r} holds a NUL or a lone surrogate; no database takes "
                f"that, leave it out"
            )
        if self.modified is not None and self.modified.tzinfo is None:
            raise InputError(
                f"modified of {self.path!r} has no time zone; give an aware datetime such as "
                f"datetime.now(UTC)"
            )
        if self.version is not None and (
            isinstance(self.version, bool) or not isinstance(self.version, int) or self.version < 0
        ):
            raise InputError(
                f"version of {self.path!r} is {self.version!r}; give the one that "
                f"corpus.documents() shows, or 0 for a new document"
            )
        object.__setattr__(self, "metadata", checked_metadata(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRecord:
    """What the catalog knows of one document."""

    id: int
    project: str
    path: str
    sha256: str
    title: str
    size_bytes: int
    modified: datetime | None
    indexed_at: datetime | None
    chunk_count: int
    status: Status
    error: str
    language: str
    kind: Kind
    metadata: Metadata
    version: int


class Piece(NamedTuple):
    """A cut of a text, before it has a name: `text[start:end]` and what is known of the place.

    A named tuple, because a run makes a million of them and hands them from process to process: a
    frozen dataclass takes six times as long.
    """

    start: int
    end: int
    lines: Lines
    token_count: int
    headings: tuple[str, ...] = ()
    level: int = 0  # of the innermost heading; 0 where there is none
    symbol: str = ""  # the qualified name of what it is, or is part of: "Corpus.search"
    # bare names that are defined in it: ("search", "more"); in prose the headings that begin in it
    defines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of an indexed document.

    `start` and `end` are character offsets into the document's text.
    """

    id: int
    project: str
    path: str
    index: int
    text: str
    start: int
    end: int
    lines: Lines
    token_count: int
    title: str = ""
    headings: tuple[str, ...] = ()
    level: int = 0
    symbol: str = ""
    defines: tuple[str, ...] = ()
    language: str = ""
    kind: Kind = Kind.DOCS
    modified: datetime | None = None
    status: Status = Status.INDEXED  # of its document
    metadata: Metadata = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The innermost heading, or an empty string."""
        return self.headings[-1] if self.headings else ""

    @property
    def location(self) -> str:
        """`path:first-last`, as editors and compilers write it."""
        return f"{self.path}:{self.lines}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Some lines of a document, as it was indexed. Of a conversation a line is a message."""

    project: str
    path: str
    title: str
    language: str
    kind: Kind
    lines: Lines  # 0-0 for a document without any text
    last_line: int  # of the whole document
    text: str

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the document is left out."""
        return self.lines.first <= 1 and self.lines.last == self.last_line


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(moment: datetime) -> int:
    """Nanoseconds since 1970, as file systems count; exact, which `timestamp()` is not."""
    passed = moment - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 10**9 + passed.microseconds * 1000


def moment(nanoseconds: int | None) -> datetime | None:
    """A file system's time as an aware datetime, cut to microseconds."""
    return None if nanoseconds is None else _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def storable(text: str) -> bool:
    """Whether every database takes the text: no NUL and no lone surrogate."""
    return "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text if c > "\x7f")


def check_project(name: str) -> None:
    """Refuse a project name that is empty, too long, or that a terminal or an address could not
    carry.
    """
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= MAX_NAME_LENGTH
        or name != name.strip()
        or not storable(name)
        or any(ord(c) < 32 or c in "*,\x7f" for c in name)
    ):
        raise InputError(
            f"project name {_shown(name)} cannot be used; give 1 to {MAX_NAME_LENGTH} characters "
            f"without '*', ',', control characters or outer spaces"
        )


def usable_name(name: str, most: int = 150) -> str:
    """What of a folder's name can stand in a project's, or be one: see `check_project`."""
    return "".join(c for c in name if ord(c) >= 32 and c not in "*,\x7f")[:most].strip()


def check_path(path: str, what: str = "document path") -> None:
    """Refuse a document path, or whatever else names one, that is empty, too long or holds a
    NUL.
    """
    if not isinstance(path, str) or not 0 < len(path) <= MAX_PATH_LENGTH or not storable(path):
        raise InputError(
            f"{what} {_shown(path)} cannot be used; give 1 to {MAX_PATH_LENGTH} characters "
            f"without NUL or lone surrogates"
        )


def check_listed(project: str | None, after: str | None, limit: int | None) -> None:
    """Raise `InputError` unless documents can be listed in these parts."""
    if project is None and after is not None:
        raise InputError("after is a path in one project; name the project, too")
    if limit is not None and not (isinstance(limit, int) and limit >= 1):
        raise InputError(f"limit is {limit!r}; give a whole number from 1 on")


def checked_status(status: Status | str | None) -> Status | None:
    """A status that may have been given by its name."""
    if status is None:
        return None
    if status not in list(Status):
        raise InputError(f"status {status!r} does not exist; it is one of {', '.join(Status)}")
    return Status(status)


def _shown(value: object) -> str:
    return repr(value[:80] if isinstance(value, str) else value)[:200]


def checked_metadata(metadata: Metadata) -> Metadata:
    """A read-only copy; only strings, numbers and booleans may stand in it."""
    if not isinstance(metadata, Mapping):
        raise InputError(
            f"metadata is a {type(metadata).__name__}; give a mapping of names to strings, "
            f"numbers or booleans"
        )
    for key, value in metadata.items():
        if not isinstance(key, str) or not key or len(key) > MAX_NAME_LENGTH or not storable(key):
            raise InputError(
                f"metadata key {key!r} cannot be used; give a string of 1 to {MAX_NAME_LENGTH} "
                f"characters"
            )
        if not isinstance(value, str | int | float | bool):
            raise InputError(
                f"metadata {key!r} is a {type(value).__name__}; give a string, number or boolean"
            )
        if isinstance(value, str) and not storable(value):
            raise InputError(
                f"metadata {key!r} holds a NUL or a lone surrogate; no database takes that, "
                f"leave it out"
            )
        if not isinstance(value, str) and not abs(value) < MAX_NUMBER:
            raise InputError(
                f"metadata {key!r} is not a number that every database holds; keep it within "
                f"2**63, finite, or give a string"
            )
    return MappingProxyType(dict(metadata))


def sha256(data: bytes) -> str:
    """The fingerprint by which content is recognised, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def chunk_id(project: str, path: str, content_sha: bytes, occurrence: int) -> int:
    """The id of a chunk: a positive 63-bit number that depends on its name and content, not on its
    position.

    A chunk that only moves inside its document keeps its id, so nothing that is derived from it has
    to change. Equal text twice in one document differs by `occurrence`. At ten million chunks the
    chance of any collision is 5 in a million.
    """
    digest = _named(project, path).copy()
    digest.update(content_sha + occurrence.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big") >> 1


def copy_key(text: str) -> int:
    """A positive 63-bit number that is the same for the same text, whatever document it stands
    in and however it is spaced and indented.
    """
    folded = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(folded, digest_size=8).digest(), "big") >> 1


@lru_cache(maxsize=64)  # the chunks of a document come one after the other
def _named(project: str, path: str) -> hashlib.blake2b:
    digest = hashlib.blake2b(digest_size=8)
    for part in (project.encode("utf-8", "surrogatepass"), path.encode("utf-8", "surrogatepass")):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest
