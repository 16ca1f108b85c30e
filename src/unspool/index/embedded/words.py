"""The word half of the embedded store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from unspool.domain.filters import Filter
from unspool.index.embedded import postings
from unspool.index.embedded.partition import Half
from unspool.index.ports import Ids, Matches, Statistics, Vectors

if TYPE_CHECKING:
    from unspool.index.embedded.store import EmbeddedStore


class EmbeddedWords:
    """The word half of the store, as the `WordIndex` port."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Matches:
        """Return the k best chunks that contain at least one of the terms."""
        selection = self._store.select(project, where)
        if not weights or (selection is not None and selection.is_empty):
            return Matches.none()

        def search() -> Matches:
            parts = self._store.partition(project).now.word_segments
            chosen = None
            if selection is not None:
                chosen = [
                    selection.accepts(part.segment.ids.all(), part.segment.documents.all())
                    for part in parts
                ]
            return postings.search(parts, weights, k, chosen)

        return self._store.answer(project, Half.WORDS, search)

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """Return the score of each id; 0 for a chunk that contains none of the terms."""
        return self._store.answer(
            project,
            Half.WORDS,
            lambda: postings.score(self._store.partition(project).now.word_segments, weights, ids),
        )

    def statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """Count live chunks, in the index and the tail together."""
        wanted = list(terms)

        def count() -> Statistics:
            parts = self._store.partition(project).now.word_segments
            return Statistics(
                chunks=postings.count_chunks(parts),
                frequencies=postings.count_frequencies(parts, wanted),
            )

        return self._store.answer(project, Half.WORDS, count)
