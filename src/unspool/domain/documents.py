"""Documents and their chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
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
    """Status of a document."""

    PENDING = "pending"  # found, but not searchable yet
    INDEXING = "indexing"  # a live run has claimed it
    INDEXED = "indexed"
    FAILED = "failed"  # the next run retries it
    STALE = "stale"  # changed since it was indexed; its old chunks are searchable


class Kind(StrEnum):
    """Kind of text, which determines how a document is chunked and ranked."""

    CODE = "code"
    DOCS = "docs"
    DATA = "data"
    CHAT = "chat"  # a conversation, whose chunks are messages


class DocumentOrigin(StrEnum):
    """DocumentOrigin of a document. Indexing a folder removes only documents from files."""

    FILE = "file"
    TEXT = "text"


class Lines(NamedTuple):
    """Range of lines, counted from 1, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.last != self.first else str(self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Document given as text. Its project and path identify it."""

    path: str
    text: str
    project: str = DEFAULT_PROJECT
    title: str = ""
    language: str = ""
    modified: datetime | None = None
    metadata: Metadata = field(default_factory=dict)
    # version that this replaces, 0 for a new document: another is a conflict. None replaces any
    version: int | None = None

    def __post_init__(self) -> None:
        check_project(self.project)
        check_path(self.path)
        if not storable(self.title):
            raise InputError(
                f"the title of {self.path!r} contains a NUL or a lone surrogate; no database "
                f"accepts that, leave it out"
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
        object.__setattr__(self, "metadata", freeze_metadata(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRecord:
    """Document in the catalog, without its text."""

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
    """Piece `text[start:end]` of a text, before it has an id.

    A named tuple, because a run creates a million of them and passes them between processes. A
    frozen dataclass takes six times as long.
    """

    start: int
    end: int
    lines: Lines
    token_count: int
    headings: tuple[str, ...] = ()
    level: int = 0  # of the innermost heading; 0 without a heading
    symbol: str = ""  # qualified name of the code it belongs to: "Corpus.search"
    # names that are defined in it: ("search", "more"); in prose the headings in it
    defines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Chunk of an indexed document.

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
        """Innermost heading, or an empty string."""
        return self.headings[-1] if self.headings else ""

    @property
    def location(self) -> str:
        """Location as `path:first-last`, as editors and compilers write it."""
        return f"{self.path}:{self.lines}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Lines of an indexed document. A line of a conversation is a message."""

    project: str
    path: str
    title: str
    language: str
    kind: Kind
    lines: Lines  # 0-0 for an empty document
    last_line: int  # of the whole document
    text: str

    @property
    def is_whole(self) -> bool:
        """True for the whole document."""
        return self.lines.first <= 1 and self.lines.last == self.last_line


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(moment: datetime) -> int:
    """Return the nanoseconds since 1970, as file systems count; `timestamp()` is not exact."""
    passed = moment - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 10**9 + passed.microseconds * 1000


def moment(nanoseconds: int | None) -> datetime | None:
    """Return the time of a file system as an aware datetime, cut to microseconds."""
    return None if nanoseconds is None else _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def to_utc(moment: datetime) -> datetime:
    """Return a time in UTC. A time without a zone is in UTC already."""
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:  # in the first or the last hours of the calendar
        return moment.replace(tzinfo=UTC)


def storable(text: str) -> bool:
    """Return True if every database accepts the text: no NUL and no lone surrogate."""
    return "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text if c > "\x7f")


def check_project(name: str) -> None:
    """Reject a project name that is empty, too long, or unfit for a terminal or an address."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= MAX_NAME_LENGTH
        or name != name.strip()
        or not storable(name)
        or any(ord(c) < 32 or c in "*,\x7f" for c in name)
    ):
        raise InputError(
            f"project name {_show(name)} cannot be used; give 1 to {MAX_NAME_LENGTH} characters "
            f"without '*', ',', control characters or outer spaces"
        )


def clean_name(name: str, most: int = 150) -> str:
    """Return the part of a folder's name that is valid in a project name."""
    return "".join(c for c in name if ord(c) >= 32 and c not in "*,\x7f")[:most].strip()


def check_path(path: str, what: str = "document path") -> None:
    """Reject a document path or id that is empty, too long or contains a NUL."""
    if not isinstance(path, str) or not 0 < len(path) <= MAX_PATH_LENGTH or not storable(path):
        raise InputError(
            f"{what} {_show(path)} cannot be used; give 1 to {MAX_PATH_LENGTH} characters "
            f"without NUL or lone surrogates"
        )


def check_listing(project: str | None, after: str | None, limit: int | None) -> None:
    """Reject an invalid page of a list of documents."""
    if project is None and after is not None:
        raise InputError("after is a path in one project; name the project, too")
    if limit is not None and not (isinstance(limit, int) and limit >= 1):
        raise InputError(f"limit is {limit!r}; give a whole number from 1 on")


def check_put(documents: Sequence[Document]) -> None:
    """Reject documents that cannot be stored together."""
    if not documents:
        raise InputError("no document was given; put takes at least one")
    if (count := len({document.project for document in documents})) > 1:
        raise InputError(f"the documents belong to {count} projects; put one project at a time")
    if len({document.path for document in documents}) < len(documents):
        raise InputError("two of the documents have the same path; give each path once")


def check_lines(first: int, last: int | None) -> None:
    """Reject an invalid range of lines."""
    if not (isinstance(first, int) and first >= 1 and (last is None or isinstance(last, int))):
        raise InputError(
            f"lines {first!r} to {last!r} cannot be read; lines are whole numbers counted from 1"
        )
    if last is not None and last < first:
        raise InputError(
            f"line {last} is before line {first}; give the first line and then the last"
        )


def parse_status(status: Status | str | None) -> Status | None:
    """Return a status that may be given by its name."""
    if status is None:
        return None
    if status not in list(Status):
        raise InputError(f"status {status!r} does not exist; it is one of {', '.join(Status)}")
    return Status(status)


def _show(value: object) -> str:
    return repr(value[:80] if isinstance(value, str) else value)[:200]


def freeze_metadata(metadata: Metadata) -> Metadata:
    """Return a read-only copy. Only strings, numbers and booleans are valid."""
    if not isinstance(metadata, Mapping):
        raise InputError(
            f"metadata is a {type(metadata).__name__}; give a mapping of names to strings, "
            f"numbers or booleans"
        )
    for key, value in metadata.items():
        if not isinstance(key, str) or not key or len(key) > MAX_NAME_LENGTH or not storable(key):
            raise InputError(
                f"metadata key {_show(key)} cannot be used; give a string of 1 to "
                f"{MAX_NAME_LENGTH} characters"
            )
        if not isinstance(value, str | int | float | bool):
            raise InputError(
                f"metadata {key!r} is a {type(value).__name__}; give a string, number or boolean"
            )
        if isinstance(value, str) and not storable(value):
            raise InputError(
                f"metadata {key!r} contains a NUL or a lone surrogate; no database accepts that, "
                f"leave it out"
            )
        if not isinstance(value, str) and not abs(value) < MAX_NUMBER:
            raise InputError(
                f"metadata {key!r} is not a number that every database can store; keep it within "
                f"2**63, finite, or give a string"
            )
    return MappingProxyType(dict(metadata))


def sha256(data: bytes) -> str:
    """Return the fingerprint of content, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def chunk_id(project: str, path: str, content_sha: bytes, occurrence: int) -> int:
    """Return the id of a chunk: a positive 63-bit number that depends on its document and content,
    not on its position.

    A chunk that only moves inside its document keeps its id and its derived data. Equal texts in
    one document differ by `occurrence`. Chunks are keyed by project
    and id: in a project of ten million the chance of any collision is 5 in a million.
    """
    digest = _hash_name(project, path).copy()
    digest.update(content_sha + occurrence.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big") >> 1


def copy_key(text: str) -> int:
    """Return a positive 63-bit number that equal texts share, in any document and with any white
    space.
    """
    folded = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(folded, digest_size=8).digest(), "big") >> 1


@lru_cache(maxsize=64)  # chunks of a document are consecutive
def _hash_name(project: str, path: str) -> hashlib.blake2b:
    digest = hashlib.blake2b(digest_size=8)
    for part in (project.encode("utf-8", "surrogatepass"), path.encode("utf-8", "surrogatepass")):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest
