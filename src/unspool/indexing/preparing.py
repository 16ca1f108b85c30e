"""Preparation of documents: read, mask secrets, chunk and fingerprint. Only vectors are missing.

Worker processes run this module, several files at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from unspool import chunking
from unspool.domain.documents import Document, DocumentOrigin, Kind, Piece, nanoseconds, sha256
from unspool.domain.prepared import (
    PreparedChunk,
    PreparedDocument,
    SkippedFile,
    compose_passage,
    hash_text,
)
from unspool.domain.reports import Skip
from unspool.errors import UnspoolError
from unspool.indexing.changes import PendingFile
from unspool.sources.reading import (
    Reading,
    mask_metadata,
    mask_text,
    mask_value,
    read,
    read_small_text,
)

# Raise it when chunking changes. Documents of another version are stale.
CHUNKER = "2"
CONTEXT_TOKENS = 64  # reserved below the embedder's limit for title, headings and symbol
# Limit of a chunk for every embedder, because readers of a hit want the place, not the file.
# A catalog that switches to a model with a larger limit therefore keeps its chunks.
MOST_TOKENS = 512

_SPARE_BYTES = 30_000_000


class TokenCounter(Protocol):
    """Limit and token count of an embedder."""

    @property
    def max_tokens(self) -> int: ...

    def count_tokens(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunker:
    """Chunk sizes for one embedder. `chunk_tokens` is the preferred size."""

    counter: TokenCounter
    chunk_tokens: int

    @property
    def limit(self) -> int:
        """Most tokens of a chunk. A model with a small limit reserves less for the context."""
        most = min(MOST_TOKENS, self.counter.max_tokens)
        return most - min(CONTEXT_TOKENS, most // 4)

    @property
    def recipe(self) -> str:
        """Key of the chunk sizes. Documents with another recipe are stale."""
        most = min(MOST_TOKENS, self.counter.max_tokens)
        return f"{CHUNKER}/{min(self.chunk_tokens, self.limit)}/{most}"

    def chunk(self, text: str, *, language: str, kind: Kind) -> list[Piece]:
        """Split a text into pieces."""
        return chunking.chunk(
            text,
            language=language,
            kind=kind,
            limit=self.limit,
            count=self.counter.count_tokens,
            target=min(self.chunk_tokens, self.limit),
            ruler=getattr(self.counter, "ruler", None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedFile:
    """A file whose content is already stored."""

    path: str
    modified_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFile:
    """A file that could not be prepared."""

    path: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchunkedFile:
    """A file that was read by a process that cannot count the embedder's tokens."""

    path: str
    reading: Reading


Outcome = PreparedDocument | UnchangedFile | FailedFile | SkippedFile | UnchunkedFile


def prepare_files(
    files: Sequence[PendingFile],
    *,
    chunker: Chunker | None,
    max_bytes: int,
    on_file: Callable[[int], None],
) -> list[Outcome]:
    """Prepare files, or only read them if there is no chunker.

    A file that fails does not stop the others. `on_file` receives the number of each file before
    it is opened.
    """
    outcomes: list[Outcome] = []
    for number, file in enumerate(files):
        on_file(number)
        with _record_failure(file.found.path, outcomes):
            outcomes.append(_prepare(file, read(file.found, max_bytes=max_bytes), chunker))
    return outcomes


def prepare_small_files(
    files: Sequence[PendingFile], *, chunker: Chunker, max_bytes: int
) -> tuple[list[Outcome], list[PendingFile]]:
    """Prepare short plain text, and return the files that only a worker process may read."""
    outcomes: list[Outcome] = []
    deferred: list[PendingFile] = []
    for file in files:
        with _record_failure(file.found.path, outcomes):
            reading = read_small_text(file.found, max_bytes=max_bytes)
            if reading is None:
                deferred.append(file)
            else:
                outcomes.append(_prepare(file, reading, chunker))
    return outcomes, deferred


def chunk_readings(outcomes: Iterable[Outcome], chunker: Chunker) -> list[Outcome]:
    """Chunk the files that a worker has only read."""
    chunked: list[Outcome] = []
    for outcome in outcomes:
        with _record_failure(outcome.path, chunked):
            if isinstance(outcome, UnchunkedFile):
                outcome = _build_document(outcome.path, outcome.reading, chunker)
            chunked.append(outcome)
    return chunked


@contextmanager
def _record_failure(path: str, outcomes: list[Outcome]) -> Iterator[None]:
    """Record a file that cannot be prepared.

    A lack of memory ends the process, and the parent process records the file.
    """
    try:
        yield
    except MemoryError:
        raise
    except UnspoolError as error:
        outcomes.append(FailedFile(path=path, error=str(error)))
    except Exception as error:  # noqa: BLE001 - any parser error must spare the other files
        # raises MemoryError if a parser has turned that into another error
        bytearray(_SPARE_BYTES)
        name = type(error).__name__
        message = f"this is a bug in unspool: {name} while it was prepared; please report it"
        outcomes.append(FailedFile(path=path, error=message))


def _prepare(file: PendingFile, reading: Reading | Skip, chunker: Chunker | None) -> Outcome:
    found = file.found
    if isinstance(reading, Skip):
        return SkippedFile(skip=reading, size_bytes=found.size_bytes, modified_ns=found.modified_ns)
    if file.known_sha and reading.sha256 == file.known_sha:
        return UnchangedFile(
            path=found.path, modified_ns=reading.modified_ns, size_bytes=reading.size_bytes
        )
    if chunker is None:
        return UnchunkedFile(path=found.path, reading=reading)
    return _build_document(found.path, reading, chunker)


def prepare_document(document: Document, chunker: Chunker) -> PreparedDocument:
    """Prepare a document given as text. Its secrets are masked as in a file."""
    data = document.text.encode("utf-8", "surrogatepass")
    text, masked = mask_text(document.text, document.path)
    reading = Reading(
        text=text,
        sha256=sha256(data),
        size_bytes=len(data),
        modified_ns=0,
        encoding="",
        masked=masked,
        title=mask_value(document.title, document.path),
        language=document.language.lower(),
    )
    return replace(
        _build_document(document.path, reading, chunker),
        metadata=mask_metadata(document.metadata),
        modified_ns=None if document.modified is None else nanoseconds(document.modified),
        origin=DocumentOrigin.TEXT,
    )


def _build_document(path: str, reading: Reading, chunker: Chunker) -> PreparedDocument:
    language = reading.language or chunking.language_of(path, reading.text[:2000])
    kind = chunking.kind_of(language)
    title = (reading.title or chunking.title_of(reading.text, language))[:300]
    pieces = chunker.chunk(reading.text, language=language, kind=kind)
    return PreparedDocument(
        path=path,
        sha256=reading.sha256,
        title=title,
        size_bytes=reading.size_bytes,
        modified_ns=reading.modified_ns,
        language=language,
        kind=kind,
        recipe=chunker.recipe,
        origin=DocumentOrigin.FILE,
        chunks=tuple(build_chunk(piece, reading.text, kind, title) for piece in pieces),
        masked=reading.masked,
    )


def build_chunk(piece: Piece, text: str, kind: Kind, title: str = "") -> PreparedChunk:
    """Cut a piece out of a text, and fingerprint the passage that is embedded for it."""
    own = text[piece.start : piece.end]
    passage = build_passage(kind, title, piece.headings, piece.symbol, own)
    return PreparedChunk(piece=piece, text=own, text_sha=hash_text(passage))


def build_passage(kind: str, title: str, headings: Sequence[str], symbol: str, text: str) -> str:
    """Return the text that is embedded for a chunk.

    For a message it is only the message. A speaker in front changes nothing in results for
    meetings, and a conversation can get another title without being embedded again.
    """
    if kind == Kind.CHAT:
        return text
    return compose_passage(
        title=title[:100],
        headings=tuple(heading[:60] for heading in headings[-3:]),
        symbol=symbol[:60],
        text=text,
    )


def collect_passages(outcomes: Iterable[Outcome]) -> dict[bytes, str]:
    """Return the passages of documents by fingerprint, each distinct passage once."""
    passages: dict[bytes, str] = {}
    for outcome in outcomes:
        if isinstance(outcome, PreparedDocument):
            for chunk in outcome.chunks:
                if chunk.text_sha not in passages:
                    piece = chunk.piece
                    passages[chunk.text_sha] = build_passage(
                        outcome.kind, outcome.title, piece.headings, piece.symbol, chunk.text
                    )
    return passages
