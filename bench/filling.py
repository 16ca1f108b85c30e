"""Catalogs of any size, filled with made-up documents through the catalog's own functions."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from common import address, tell
from unspool.catalog import Catalog, content, documents, feed, projects, schema, spaces
from unspool.corpus import Corpus
from unspool.domain.documents import DocumentOrigin, Kind, Lines, Piece
from unspool.domain.prepared import PreparedChunk, PreparedDocument, hash_text
from unspool.embedders import open_embedder
from unspool.settings import Settings
from words import Vocabulary

PROJECT = "bench"
CHUNKS_PER_DOCUMENT = 10
_BATCH = 400  # documents in one transaction
_WORDS_PER_LINE = 7
_TOPIC_WORDS, _TOPIC_SHARE = 40, 0.3  # a document keeps coming back to its own few words


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """How long filling took; 0 where a catalog that was kept is used again."""

    file: Path
    chunks: int
    seconds: float = 0.0


def fill(file: Path, *, chunks: int, seed: int, fast: bool) -> Filled:
    """A catalog of so many chunks with its index, made unless a finished one is there.

    `fast` takes random vectors instead of embedding.
    """
    finished = file.with_name(f"{file.name}.{chunks}.{_layout()}.done")
    if finished.exists():
        return Filled(file=file, chunks=chunks)
    for old in file.parent.glob(file.name + "*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    started = time.perf_counter()
    with ProcessPoolExecutor(1) as absorber:
        under_way = absorber.submit(_absorb, address(file))
        for done in _store(file, chunks, seed, fast):
            if under_way.done():
                under_way.result()
                under_way = absorber.submit(_absorb, address(file))
            if done % 100_000 < _BATCH * CHUNKS_PER_DOCUMENT:
                tell(f"  {done} chunks, {done / (time.perf_counter() - started):.0f}/s")
        absorber.submit(_absorb, address(file)).result()
    finished.touch()
    return Filled(file=file, chunks=chunks, seconds=time.perf_counter() - started)


def _layout() -> str:
    """The catalog's tables as a short fingerprint: one that was kept from before they changed is
    of no use.
    """
    columns = [
        f"{table.name}.{column.name}"
        for table in schema.metadata.sorted_tables
        for column in table.columns
    ]
    return hashlib.sha256(" ".join(columns).encode()).hexdigest()[:8]


@cache
def _corpus(database: str) -> Corpus:
    return Corpus(Settings.of(database=database))


def _absorb(database: str) -> None:
    """Take in what is stored so far; in a process of its own, so that it happens while more is
    stored.
    """
    _corpus(database).refresh()


def _store(file: Path, chunks: int, seed: int, fast: bool) -> Iterator[int]:
    """Store batch after batch; yields how many chunks there are."""
    catalog = Catalog.open(address(file))
    try:
        with catalog.write() as connection:
            space = spaces.ensure_space(connection, open_embedder("static"), "static")
            row = projects.ensure_project(connection, PROJECT)
        done = 0
        for batch in _batches(chunks, seed, fast):
            with catalog.write() as connection:
                ids, new = documents.ensure_documents(
                    connection, row.id, [document.path for document in batch]
                )
                changes = feed.Changes(row.id)
                done += content.store_documents(
                    connection, row, batch, changes, ids=ids, new=new, space_id=space
                ).chunks
                feed.publish_changes(connection, changes)
            yield done
    finally:
        catalog.close()


def _batches(chunks: int, seed: int, fast: bool) -> Iterator[list[PreparedDocument]]:
    """Documents in portions, made in another process while this one stores."""
    total = max(1, chunks // CHUNKS_PER_DOCUMENT)
    starts = iter(range(0, total, _BATCH))
    with ProcessPoolExecutor(1) as pool:

        def ask(start: int) -> Future[list[PreparedDocument]]:
            return pool.submit(_documents, start, min(_BATCH, total - start), seed, fast)

        under_way = [ask(start) for start in islice(starts, 3)]
        while under_way:
            yield under_way.pop(0).result()
            under_way += [ask(start) for start in islice(starts, 1)]


@cache
def _vocabulary() -> tuple[list[str], np.ndarray]:
    loaded = Vocabulary.load()
    return list(loaded.words), np.asarray(loaded.weights) / loaded.weights[-1]


def _documents(first: int, count: int, seed: int, fast: bool) -> list[PreparedDocument]:
    """Documents number `first` and the following; the same ones in every process."""
    words, cumulative = _vocabulary()
    rng = np.random.default_rng([seed, first])
    line_counts = rng.integers(6, 22, size=(count, CHUNKS_PER_DOCUMENT))
    size = int(line_counts.sum()) * _WORDS_PER_LINE
    picked = np.searchsorted(cumulative, rng.random(size))
    topics = rng.integers(0, len(words), size=(count, _TOPIC_WORDS))
    owner = np.repeat(np.arange(count), line_counts.sum(axis=1) * _WORDS_PER_LINE)
    special = rng.random(size) < _TOPIC_SHARE
    picked[special] = topics[owner[special], rng.integers(0, _TOPIC_WORDS, size=int(special.sum()))]
    lines = [
        " ".join(words[index] for index in row)
        for row in picked.reshape(-1, _WORDS_PER_LINE).tolist()
    ]
    made, at = [], 0
    for number in range(count):
        names = [words[index] for index in topics[number][:3]]
        path = f"{names[0].lower()}/{names[1].lower()}/{names[2].lower()}_{first + number}.py"
        pieces, at = _pieces(lines, at, line_counts[number].tolist())
        made.append(_document(path, pieces))
    return _with_vectors(made, rng, fast)


def _pieces(lines: list[str], at: int, counts: list[int]) -> tuple[tuple[PreparedChunk, ...], int]:
    pieces, offset, line = [], 0, 1
    for count in counts:
        some = lines[at : at + count]
        defined = some[0].split()[0]
        text = "\n".join([f"def {defined}():", *some])
        piece = Piece(
            start=offset,
            end=offset + len(text),
            lines=Lines(line, line + count),
            token_count=count * _WORDS_PER_LINE * 2,
            symbol=defined,
            defines=(defined,),
        )
        pieces.append(PreparedChunk(piece=piece, text=text, text_sha=hash_text(text)))
        at, offset, line = at + count, offset + len(text) + 1, line + count + 1
    return tuple(pieces), at


def _document(path: str, chunks: tuple[PreparedChunk, ...]) -> PreparedDocument:
    return PreparedDocument(
        path=path,
        sha256=hash_text(path).hex(),
        title="",
        size_bytes=chunks[-1].piece.end,
        modified_ns=1_700_000_000_000_000_000,
        language="python",
        kind=Kind.CODE,
        recipe="bench",
        origin=DocumentOrigin.FILE,
        chunks=chunks,
    )


def _with_vectors(
    made: list[PreparedDocument], rng: np.random.Generator, fast: bool
) -> list[PreparedDocument]:
    embedder = open_embedder("static")
    out = []
    for document in made:
        if fast:
            rows = rng.standard_normal((len(document.chunks), embedder.dimension), dtype=np.float32)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        else:
            rows = embedder.embed_passages([chunk.text for chunk in document.chunks])
        data = np.ascontiguousarray(rows, dtype="<f4")
        out.append(
            replace(
                document,
                vectors={
                    chunk.text_sha: row.tobytes()
                    for chunk, row in zip(document.chunks, data, strict=True)
                },
            )
        )
    return out
