"""The tail: chunks that the catalog contains and the folder has not absorbed yet, scored
directly so that they are findable at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unspool.catalog.feed import ChangedChunk
from unspool.catalog.filters import Selection
from unspool.index import analysis
from unspool.index.embedded import postings
from unspool.index.embedded.postings import Entry, Segment
from unspool.index.ports import Ids, Matches, Vectors, best_matches


@dataclass(frozen=True, slots=True)
class Tail:
    """Chunks changed after `position` and up to `seq`, and the ids whose absorbed rows are
    outdated.
    """

    position: int
    seq: int
    ids: Ids
    documents: Ids
    vectors: Vectors
    segment: Segment
    hidden: Ids
    missing: int = 0  # changed chunks that are not in it


def build(
    position: int,
    seq: int,
    changed: Sequence[ChangedChunk],
    removed: Sequence[int],
    dimension: int,
    *,
    missing: int = 0,
) -> Tail:
    """Return the tail of a change feed."""
    ids = np.array([chunk.id for chunk in changed], dtype=np.int64)
    return Tail(
        position=position,
        seq=seq,
        ids=ids,
        documents=np.array([chunk.document_id for chunk in changed], dtype=np.int64),
        vectors=stack_vectors(changed, dimension),
        segment=postings.build([make_entry(chunk) for chunk in changed]),
        hidden=np.union1d(ids, np.array(removed, dtype=np.int64)),
        missing=missing,
    )


def stack_vectors(changed: Sequence[ChangedChunk], dimension: int) -> Vectors:
    """Return the stored vectors, one row each."""
    return np.frombuffer(b"".join(chunk.vector for chunk in changed), dtype="<f4").reshape(
        len(changed), dimension
    )


def make_entry(chunk: ChangedChunk) -> Entry:
    """Return the chunk as the word index stores it."""
    terms = analysis.chunk_terms(
        kind=chunk.kind,
        path=chunk.path,
        title=chunk.title,
        headings=chunk.headings,
        symbol=chunk.symbol,
        text=chunk.text,
    )
    return Entry(chunk.id, chunk.document_id, terms)


def choose(rest: Tail, selection: Selection | None) -> npt.NDArray[np.bool_]:
    """Return which of the tail's chunks a filter accepts."""
    if selection is None:
        return np.ones(len(rest.ids), dtype=np.bool_)
    return selection.accepts(rest.ids, rest.documents)


def merge(
    found: Matches, rest: Tail, scores: Vectors, chosen: npt.NDArray[np.bool_], k: int
) -> Matches:
    """Return the k best of the absorbed matches that are not hidden and of the tail's own."""
    kept = ~np.isin(found.ids, rest.hidden)
    ids = np.concatenate([found.ids[kept], rest.ids[chosen]])
    return best_matches(
        ids, np.concatenate([found.scores[kept], scores[chosen].astype(np.float32)]), k
    )


def overlay(scores: Vectors, ids: Ids, rest: Tail, tail_scores: Vectors) -> None:
    """Replace the scores of ids in the tail; those that it hides become NaN."""
    known = dict(zip(rest.ids.tolist(), tail_scores.tolist(), strict=True))
    for index in np.flatnonzero(np.isin(ids, rest.hidden)).tolist():
        scores[index] = known.get(int(ids[index]), np.nan)
