"""Word index in the folder of an SQLite catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from unspool.catalog import Catalog
from unspool.catalog.feed import TEXTS, ChunkText, Position
from unspool.catalog.filters import Selection, SelectionCache
from unspool.domain.filters import Filter
from unspool.index import analysis
from unspool.index.embedded import postings, segments
from unspool.index.embedded.folder import FolderIndex, Part
from unspool.index.embedded.postings import ChunkTerms, LiveSegment
from unspool.index.embedded.segments import WordState, WordView
from unspool.index.follower import Follower
from unspool.index.ports import Candidates, Ids, Statistics, Vectors
from unspool.index.tail import Tail


class WordFolder(FolderIndex[WordView, ChunkText]):
    """Files of the words."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(
            catalog, "words", segments, lambda source: WordView(WordState(source=source))
        )

    def append(
        self,
        part: Part[WordView],
        rows: Sequence[ChunkText],
        removed: Sequence[int],
        position: Position,
    ) -> WordState:
        """Write a commit and return its state."""
        entries = map(analyse_chunk, rows)
        return segments.append(part.folder, part.view, entries, removed=removed, position=position)


class EmbeddedWords:
    """Words of chunks, as the `WordIndex` port, with those that are not written yet."""

    def __init__(self, catalog: Catalog) -> None:
        self.files = WordFolder(catalog)
        self.follower = Follower(catalog, TEXTS, self.files)
        self._catalog = catalog
        self._selections = SelectionCache()
        # segments of a project's view and tail together
        self._merged: dict[int, tuple[WordView, Tail[ChunkText], tuple[LiveSegment, ...]]] = {}

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Candidates:
        """Return the k best chunks that contain at least one of the terms."""
        selection = self._select(project, where)
        if not weights or (selection is not None and selection.is_empty):
            return Candidates.empty()

        def search(tail: Tail[ChunkText] | None) -> Candidates:
            parts, chosen = self._list_segments(project, tail), None
            with self.files.open_view(project):
                if selection is not None:
                    chosen = [
                        selection.accepts(part.segment.ids.all(), part.segment.documents.all())
                        for part in parts
                    ]
                return postings.search(parts, weights, k, chosen)

        return self.follower.read(project, search)

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """Return the score of each id; 0 for a chunk that contains none of the terms."""

        def score(tail: Tail[ChunkText] | None) -> Vectors:
            with self.files.open_view(project):
                return postings.score(self._list_segments(project, tail), weights, ids)

        return self.follower.read(project, score)

    def get_statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """Count live chunks, in the folder and the tail together."""
        wanted = list(terms)

        def count(tail: Tail[ChunkText] | None) -> Statistics:
            with self.files.open_view(project):
                parts = self._list_segments(project, tail)
                return Statistics(
                    chunks=postings.count_chunks(parts),
                    frequencies=postings.count_frequencies(parts, wanted),
                )

        return self.follower.read(project, count)

    def _list_segments(self, project: int, tail: Tail[ChunkText] | None) -> tuple[LiveSegment, ...]:
        """Return the committed segments without what the tail hides, and the tail's own."""
        view = self.files.get_part(project).view
        if tail is None:
            return view.segments
        known = self._merged.get(project)
        if known is not None and known[0] is view and known[1] is tail:
            return known[2]
        kept = () if tail.start is None else view.segments
        own = postings.build_segment([analyse_chunk(row) for row in tail.rows])
        merged = (*(part.hide(tail.hidden) for part in kept), LiveSegment(own, None))
        self._merged[project] = view, tail, merged
        return merged

    def _select(self, project: int, where: Filter | None) -> Selection | None:
        if where is None:
            return None
        with self._catalog.read() as connection:
            return self._selections.get(connection, project, where)


def analyse_chunk(chunk: ChunkText) -> ChunkTerms:
    """Return the terms of a chunk."""
    terms = analysis.extract_chunk_terms(
        kind=chunk.kind,
        path=chunk.path,
        title=chunk.title,
        headings=chunk.headings,
        symbol=chunk.symbol,
        text=chunk.text,
    )
    return ChunkTerms(chunk.id, chunk.document_id, terms)
