"""Word search of the embedded store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from unspool.domain.filters import Filter
from unspool.index.embedded import postings
from unspool.index.embedded.partition import Half, Snapshot
from unspool.index.ports import Candidates, Ids, Statistics, Vectors

if TYPE_CHECKING:
    from unspool.index.embedded.store import EmbeddedStore


class EmbeddedWords:
    """Words of the embedded store, as the `WordIndex` port."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Candidates:
        """Return the k best chunks that contain at least one of the terms."""
        selection = self._store.select(project, where)
        if not weights or (selection is not None and selection.is_empty):
            return Candidates.empty()

        def search(now: Snapshot) -> Candidates:
            parts = now.word_segments
            chosen = None
            if selection is not None:
                chosen = [
                    selection.accepts(part.segment.ids.all(), part.segment.documents.all())
                    for part in parts
                ]
            return postings.search(parts, weights, k, chosen)

        return self._store.read(project, Half.WORDS, search)

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """Return the score of each id; 0 for a chunk that contains none of the terms."""
        return self._store.read(
            project, Half.WORDS, lambda now: postings.score(now.word_segments, weights, ids)
        )

    def get_statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """Count live chunks, in the folder and the tail together."""
        wanted = list(terms)

        def count(now: Snapshot) -> Statistics:
            return Statistics(
                chunks=postings.count_chunks(now.word_segments),
                frequencies=postings.count_frequencies(now.word_segments, wanted),
            )

        return self._store.read(project, Half.WORDS, count)
