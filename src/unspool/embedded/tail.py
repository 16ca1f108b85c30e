"""The tail: what the catalog holds and the folder has not absorbed yet, scored directly so that it is findable at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unspool.catalog.filters import Selection
from unspool.catalog.reading import ChangedChunk
from unspool.embedded import flat, lexical
from unspool.vectors.base import Ids, Matches, Vectors
from unspool.words import analysis


@dataclass(frozen=True, slots=True)
class Tail:
    """Chunks changed after `position` and up to `seq`, and the ids that what is absorbed must not show any more."""

    position: int
    seq: int
    ids: Ids
    documents: Ids
    vectors: Vectors
    counts: tuple[Counter[str], ...]
    hidden: frozenset[int]
    missing: int = 0  # changed chunks that are not in it

    def word_scores(self, weights: Mapping[str, float], absorbed: Mapping[str, int], chunks: int, average: float) -> Vectors:
        """BM25 of each chunk, with the statistics of the index and the tail together."""
        frequencies = {term: absorbed.get(term, 0) + sum(term in counts for counts in self.counts) for term in weights}
        lengths = [counts.total() for counts in self.counts]
        if not average and lengths:
            average = sum(lengths) / len(lengths)
        scores = [lexical.bm25(c, n, weights, frequencies, chunks + len(lengths), average) for c, n in zip(self.counts, lengths, strict=True)]
        return np.array(scores, dtype=np.float32)


def make(position: int, seq: int, changed: Sequence[ChangedChunk], removed: Sequence[int], dimension: int, *, missing: int = 0) -> Tail:
    """Return the tail of a change feed."""
    ids = np.array([chunk.id for chunk in changed], dtype=np.int64)
    return Tail(
        position=position,
        seq=seq,
        ids=ids,
        documents=np.array([chunk.document_id for chunk in changed], dtype=np.int64),
        vectors=vectors_of(changed, dimension),
        counts=tuple(Counter(terms_of(chunk)) for chunk in changed),
        hidden=frozenset(ids.tolist()) | frozenset(removed),
        missing=missing,
    )


def vectors_of(changed: Sequence[ChangedChunk], dimension: int) -> Vectors:
    """The stored vectors, one row each."""
    return np.frombuffer(b"".join(chunk.vector for chunk in changed), dtype="<f4").reshape(len(changed), dimension)


def terms_of(chunk: ChangedChunk) -> list[str]:
    """What the word index holds for a chunk."""
    return analysis.chunk_terms(kind=chunk.kind, path=chunk.path, title=chunk.title, headings=chunk.headings, symbol=chunk.symbol, text=chunk.text)


def chosen(rest: Tail, selection: Selection | None) -> npt.NDArray[np.bool_]:
    """Which of the tail's chunks a filter lets through."""
    if selection is None:
        return np.ones(len(rest.ids), dtype=np.bool_)
    if selection.chunks is not None:
        return np.isin(rest.ids, selection.chunks)
    assert selection.documents is not None
    return np.isin(rest.documents, selection.documents)


def merge(found: Matches, rest: Tail, scores: Vectors, kept_of_tail: npt.NDArray[np.bool_], k: int) -> Matches:
    """What was absorbed, without what the tail hides, together with the tail's own matches."""
    hidden = np.fromiter(rest.hidden, dtype=np.int64, count=len(rest.hidden))
    kept = ~np.isin(found.ids, hidden)
    ids = np.concatenate([found.ids[kept], rest.ids[kept_of_tail]])
    return flat.top(ids, np.concatenate([found.scores[kept], scores[kept_of_tail].astype(np.float32)]), k)


def overlay(scores: Vectors, ids: Ids, rest: Tail, tail_scores: Vectors, absent: float) -> None:
    """Replace the scores of ids that the tail holds, and blank those that it hides."""
    known = dict(zip(rest.ids.tolist(), tail_scores.tolist(), strict=True))
    for index, id_ in enumerate(ids.tolist()):
        if id_ in rest.hidden:
            scores[index] = known.get(id_, absent)
