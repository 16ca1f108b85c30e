"""From a file or a text to a document that only lacks its vectors: read, cut, fingerprinted.

This is what runs in the worker processes, several files at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from unspool import chunking
from unspool.domain.documents import Document, Kind, Origin, Piece, nanoseconds, sha256
from unspool.domain.prepared import PreparedChunk, PreparedDocument, embedded_text, text_fingerprint
from unspool.domain.reports import Skip
from unspool.errors import UnspoolError
from unspool.indexing.changes import Work
from unspool.sources.reading import (
    Reading,
    mask_metadata,
    mask_text,
    mask_value,
    read,
    read_small_text,
)

CHUNKER = "2"  # raised when the cutting changes; documents cut by another one are stale
PLACE_TOKENS = 64  # kept free under the embedder's limit for title, headings and symbol
# No chunk is longer than this, whatever the embedder reads: who reads a hit wants the place, not
# the file. So a catalog that goes over to a model that reads more keeps its chunks.
MOST_TOKENS = 512

_SPARE_BYTES = 30_000_000


class TokenCounter(Protocol):
    """Limit and token count of an embedder, as chunking needs them."""

    @property
    def max_tokens(self) -> int: ...

    def count_tokens(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """The content is what the catalog holds already."""

    work: Work
    modified_ns: int
    size_bytes: int

    @property
    def path(self) -> str:
        return self.work.found.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The document could not be prepared."""

    path: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """The content said no."""

    work: Work
    skip: Skip

    @property
    def path(self) -> str:
        return self.work.found.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchunked:
    """A file that was read by a process that cannot count the embedder's tokens."""

    path: str
    reading: Reading


Outcome = PreparedDocument | Same | Failed | Skipped | Unchunked


def recipe(counter: TokenCounter, chunk_tokens: int) -> str:
    """How documents are cut; a change makes them stale."""
    most = min(MOST_TOKENS, counter.max_tokens)
    return f"{CHUNKER}/{min(chunk_tokens, limit_of(counter))}/{most}"


def limit_of(counter: TokenCounter) -> int:
    """How long a chunk may be. A model that reads little keeps less free for the place."""
    most = min(MOST_TOKENS, counter.max_tokens)
    return most - min(PLACE_TOKENS, most // 4)


def prepare_files(
    work: Sequence[Work],
    *,
    counter: TokenCounter | None,
    chunk_tokens: int,
    max_bytes: int,
    on_file: Callable[[int], None] = lambda number: None,
) -> list[Outcome]:
    """Prepare files. One that fails does not stop the others. Without a counter the files are only
    read.

    `on_file` is called with the number of each file before it is opened.
    """
    outcomes: list[Outcome] = []
    for number, one in enumerate(work):
        on_file(number)
        with _note_failure(one.found.path, outcomes):
            outcomes.append(
                _prepare(one, read(one.found, max_bytes=max_bytes), counter, chunk_tokens)
            )
    return outcomes


def prepare_small_files(
    work: Sequence[Work], *, counter: TokenCounter, chunk_tokens: int, max_bytes: int
) -> tuple[list[Outcome], list[Work]]:
    """Prepare files of a little plain text, and return those that only a worker process may
    read.
    """
    outcomes: list[Outcome] = []
    deferred: list[Work] = []
    for one in work:
        with _note_failure(one.found.path, outcomes):
            reading = read_small_text(one.found, max_bytes=max_bytes)
            if reading is None:
                deferred.append(one)
            else:
                outcomes.append(_prepare(one, reading, counter, chunk_tokens))
    return outcomes, deferred


def chunk_readings(
    outcomes: Iterable[Outcome], *, counter: TokenCounter, chunk_tokens: int
) -> list[Outcome]:
    """Chunk the files that a worker has only read."""
    done: list[Outcome] = []
    for one in outcomes:
        with _note_failure(one.path, done):
            done.append(
                _from_reading(one.path, one.reading, counter, chunk_tokens)
                if isinstance(one, Unchunked)
                else one
            )
    return done


@contextmanager
def _note_failure(path: str, outcomes: list[Outcome]) -> Iterator[None]:
    """Note a file that cannot be prepared.

    A lack of memory ends the process instead, and its parent notes the file.
    """
    try:
        yield
    except MemoryError:
        raise
    except UnspoolError as error:
        outcomes.append(Failed(path=path, error=str(error)))
    except Exception as error:  # noqa: BLE001 - whatever one file does to a parser, the others go on
        # raises MemoryError where a parser has turned that into another error
        bytearray(_SPARE_BYTES)
        outcomes.append(
            Failed(
                path=path,
                error=(
                    f"this is a bug in unspool: {type(error).__name__} while it was prepared; "
                    f"please report it"
                ),
            )
        )


def _prepare(
    work: Work, reading: Reading | Skip, counter: TokenCounter | None, chunk_tokens: int
) -> Outcome:
    if isinstance(reading, Skip):
        return Skipped(work=work, skip=reading)
    if work.known_sha and reading.sha256 == work.known_sha:
        return Same(work=work, modified_ns=reading.modified_ns, size_bytes=reading.size_bytes)
    if counter is None:
        return Unchunked(path=work.found.path, reading=reading)
    return _from_reading(work.found.path, reading, counter, chunk_tokens)


def prepare_document(
    document: Document, *, counter: TokenCounter, chunk_tokens: int
) -> PreparedDocument:
    """Prepare a document given as text, without vectors. Its secrets are masked as a file's are."""
    data = document.text.encode("utf-8", "surrogatepass")
    text, masked = mask_text(document.text, document.path)
    reading = Reading(
        text=text,
        sha256=sha256(data),
        size_bytes=len(data),
        modified_ns=0,
        encoding="",
        masked=masked,
    )
    title = mask_value(document.title, document.path)
    prepared = _from_reading(
        document.path, reading, counter, chunk_tokens, language=document.language, title=title
    )
    modified = None if document.modified is None else nanoseconds(document.modified)
    return replace(
        prepared,
        metadata=mask_metadata(document.metadata),
        modified_ns=modified,
        origin=Origin.TEXT,
    )


def _from_reading(
    path: str,
    reading: Reading,
    counter: TokenCounter,
    chunk_tokens: int,
    *,
    language: str = "",
    title: str = "",
) -> PreparedDocument:
    language = (
        language.lower() or reading.language or chunking.language_of(path, reading.text[:2000])
    )
    kind = chunking.kind_of(language)
    title = (title or reading.title or chunking.title_of(reading.text, language))[:300]
    limit = limit_of(counter)
    pieces = chunking.chunk(
        reading.text,
        language=language,
        kind=kind,
        limit=limit,
        count=counter.count_tokens,
        target=min(chunk_tokens, limit),
        ruler=getattr(counter, "ruler", None),
    )
    return PreparedDocument(
        path=path,
        sha256=reading.sha256,
        title=title,
        size_bytes=reading.size_bytes,
        modified_ns=reading.modified_ns,
        language=language,
        kind=kind,
        recipe=recipe(counter, chunk_tokens),
        origin=Origin.FILE,
        chunks=tuple(_chunk(piece, reading.text, kind, title) for piece in pieces),
        masked=reading.masked,
    )


def _chunk(piece: Piece, text: str, kind: Kind, title: str) -> PreparedChunk:
    own = text[piece.start : piece.end]
    return PreparedChunk(
        piece=piece,
        text=own,
        text_sha=text_fingerprint(passage(kind, title, piece.headings, piece.symbol, own)),
    )


def passage(kind: str, title: str, headings: Sequence[str], symbol: str, text: str) -> str:
    """What is embedded for a chunk. Of a message nothing but what it says: the speaker in front
    changes nothing on meetings, and so a conversation can get another title without being embedded
    again."""
    if kind == Kind.CHAT:
        return text
    return embedded_text(
        title=title[:100],
        headings=tuple(heading[:60] for heading in headings[-3:]),
        symbol=symbol[:60],
        text=text,
    )


def passages(outcomes: Iterable[Outcome]) -> dict[bytes, str]:
    """What is embedded for documents: each different text once, by its fingerprint."""
    found: dict[bytes, str] = {}
    for one in outcomes:
        if isinstance(one, PreparedDocument):
            for chunk in one.chunks:
                if chunk.text_sha not in found:
                    found[chunk.text_sha] = passage(
                        one.kind, one.title, chunk.piece.headings, chunk.piece.symbol, chunk.text
                    )
    return found
