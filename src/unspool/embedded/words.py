"""The word half of the embedded store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from unspool.catalog.filters import Selection
from unspool.domain.filters import Filter
from unspool.embedded import lexical, tail
from unspool.embedded.partition import Snapshot
from unspool.embedded.tail import Tail
from unspool.vectors.base import Ids, Matches, Vectors, in_order
from unspool.words.base import Statistics

if TYPE_CHECKING:
    from unspool.embedded.store import EmbeddedStore


class EmbeddedWords:
    """The word half of the store, as the `WordIndex` port."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def search(self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None) -> Matches:
        """The k best chunks that hold at least one of the terms."""
        selection = self._store.select(project, where)
        if not weights or (selection is not None and selection.is_empty):
            return Matches.none()
        try:
            return self._search(project, weights, k, selection)
        except lexical.DamagedError:  # what was opened whole may still turn out to be damaged inside
            self._store.absorb(project, anew=True)
            return self._search(project, weights, k, selection)

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """The score of each id; 0 for what holds none of the terms."""
        try:
            return self._score(project, weights, ids)
        except lexical.DamagedError:
            self._store.absorb(project, anew=True)
            return self._score(project, weights, ids)

    def statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """Counted in the index and the tail together; a replaced chunk may be counted twice until the index merges it away."""
        now = self._store.partition(project).now
        rest = () if now.tail is None else now.tail.counts
        searcher = now.searcher
        held = {term: (0 if searcher is None else searcher.doc_freq("body", term)) + sum(term in counts for counts in rest) for term in terms}
        return Statistics(chunks=(0 if searcher is None else searcher.num_docs) + len(rest), frequencies=held)

    def _search(self, project: int, weights: Mapping[str, float], k: int, selection: Selection | None) -> Matches:
        part = self._store.partition(project)
        now = part.now
        rest = now.tail
        among = None if selection is None else _among(selection)
        more = 0 if rest is None else len(rest.hidden)
        found = Matches.none() if now.searcher is None else part.words.search(now.searcher, weights, k + more, among)
        if rest is None:
            return found
        scores = _tail_scores(now, rest, weights)
        return tail.merge(found, rest, scores, tail.chosen(rest, selection) & (scores > 0), k)

    def _score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        part = self._store.partition(project)
        now = part.now
        known = {} if now.searcher is None or not weights else part.words.score(now.searcher, weights, ids)
        scores = in_order(known, ids, absent=0.0)
        if now.tail is not None:
            tail.overlay(scores, ids, now.tail, _tail_scores(now, now.tail, weights), 0.0)
        return scores


def _tail_scores(now: Snapshot, rest: Tail, weights: Mapping[str, float]) -> Vectors:
    if now.searcher is None or now.words is None:
        return rest.word_scores(weights, {}, 0, 0.0)
    frequencies = {term: now.searcher.doc_freq("body", term) for term in weights}
    return rest.word_scores(weights, frequencies, now.searcher.num_docs, now.words.added_terms / max(now.words.added_chunks, 1))


def _among(selection: Selection) -> tuple[str, Ids]:
    if selection.chunks is not None:
        return "id", selection.chunks
    assert selection.documents is not None
    return "document", selection.documents
