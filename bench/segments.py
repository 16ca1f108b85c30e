"""The word index: writing and searching it, beside tantivy with the same terms where that is
installed.

Chunks are pieces of the standard library's sources. Both indexes are asked the same questions in
turn, query by query.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from common import Figure, folder_mb, parser, percentile, show, tell, workspace
from unspool.catalog.feed import Position
from unspool.index import analysis
from unspool.index.embedded import postings, segments
from unspool.index.embedded.postings import ChunkTerms
from words import _modules, questions

LINES = 25  # of a chunk
COMMIT_CHUNKS = 8_000
HITS = 100


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--chunks", type=int, nargs="+", default=[10_000, 100_000])
    given = options.parse_args()
    figures: list[Figure] = []
    with workspace(given.keep) as folder:
        for count in given.chunks:
            tell(f"{count} chunks")
            figures += measure(
                folder / str(count), list(islice(_entries(), count)), _queries(given.seed)
            )
    show("segments", figures, as_json=given.json)


def measure(folder: Path, entries: list[ChunkTerms], queries: list[list[str]]) -> Iterator[Figure]:
    """Write both indexes, then ask both in turn."""
    count = len(entries)
    begun = time.perf_counter()
    view = segments.WordView(segments.WordState(source=""))
    for some in _batches(entries):
        view = segments.open_view(
            folder / "own",
            segments.append(folder / "own", view, some, removed=[], position=Position(1, 1)),
            view,
        )
    own_s = time.perf_counter() - begun
    yield Figure(
        name=f"{count} chunks: write",
        value=own_s,
        unit="s",
        note=f"{len(view.segments)} segments, {folder_mb(folder / 'own')} MB",
    )
    begun = time.perf_counter()
    segments.open_view(folder / "own", view.state)
    yield Figure(
        name=f"{count} chunks: open and verify",
        value=1e3 * (time.perf_counter() - begun),
        unit="ms",
    )
    other = _open_tantivy(folder / "tantivy", entries)
    own_ms, other_ms = [], []
    for terms in queries:
        begun = time.perf_counter()
        postings.search(view.segments, dict.fromkeys(terms, 1.0), HITS, None)
        own_ms.append(1e3 * (time.perf_counter() - begun))
        if other is not None:
            begun = time.perf_counter()
            other.search(terms)
            other_ms.append(1e3 * (time.perf_counter() - begun))
    yield Figure(name=f"{count} chunks: search, p50", value=percentile(own_ms, 0.5), unit="ms")
    yield Figure(name=f"{count} chunks: search, p95", value=percentile(own_ms, 0.95), unit="ms")
    if other is not None:
        size = folder_mb(folder / "tantivy")
        yield Figure(
            name=f"{count} chunks: tantivy, write",
            value=other.written_s,
            unit="s",
            note=f"{size} MB",
        )
        yield Figure(
            name=f"{count} chunks: tantivy, search, p50", value=percentile(other_ms, 0.5), unit="ms"
        )
        yield Figure(
            name=f"{count} chunks: tantivy, search, p95",
            value=percentile(other_ms, 0.95),
            unit="ms",
        )
        yield Figure(
            name=f"{count} chunks: own / tantivy, p50",
            value=percentile(own_ms, 0.5) / percentile(other_ms, 0.5),
        )


class _Tantivy:
    """The same terms in tantivy, committed as often."""

    def __init__(self, folder: Path, entries: list[ChunkTerms]) -> None:
        import tantivy

        self._library = tantivy
        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field("id", indexed=True, fast=True)
        builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
        self._schema = builder.build()
        folder.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        index = tantivy.Index(self._schema, path=str(folder))
        writer = index.writer(64_000_000, 1)
        for some in _batches(entries):
            for entry in some:
                document = tantivy.Document()
                document.add_unsigned("id", entry.id)
                document.add_text("body", " ".join(entry.terms))
                writer.add_document(document)
            writer.commit()
        writer.wait_merging_threads()
        self.written_s = time.perf_counter() - begun
        index.reload()
        self._searcher = index.searcher()

    def search(self, terms: list[str]) -> np.ndarray:
        """Return the ids of the best chunks."""
        query = self._library.Query
        parts = [
            (self._library.Occur.Should, query.term_query(self._schema, "body", term, "freq"))
            for term in terms
        ]
        hits = self._searcher.search(query.boolean_query(parts), limit=HITS, count=False).hits
        return np.array(
            self._searcher.fast_field_values("id", [address for _, address in hits]), dtype=np.int64
        )


def _open_tantivy(folder: Path, entries: list[ChunkTerms]) -> _Tantivy | None:
    try:
        return _Tantivy(folder, entries)
    except ModuleNotFoundError:
        tell("tantivy is not installed, so there is nothing to compare with; pip install tantivy")
        return None


def _entries() -> Iterator[ChunkTerms]:
    """Yield chunks of the standard library, again from the start with other names when they run
    out.
    """
    number = 0
    for file in cycle(_modules()):
        lines = file.read_text(encoding="utf-8", errors="ignore").split("\n")
        for start in range(0, len(lines), LINES):
            text = "\n".join(lines[start : start + LINES])
            terms = analysis.extract_chunk_terms(
                kind="code",
                path=f"{number % 7}/{file.name}",
                title="",
                headings="",
                symbol="",
                text=text,
            )
            yield ChunkTerms(number, number // 10, terms)
            number += 1


def _batches(entries: list[ChunkTerms]) -> Iterator[list[ChunkTerms]]:
    return (
        entries[start : start + COMMIT_CHUNKS] for start in range(0, len(entries), COMMIT_CHUNKS)
    )


def _queries(seed: int) -> list[list[str]]:
    return [
        list(dict.fromkeys([*analysis.extract_terms(one), *analysis.extract_compounds(one)]))
        for one in questions(300, seed)
    ]


if __name__ == "__main__":
    main()
