"""Tail of the embedded index: chunks that are stored, but not yet written to the folder.

They are scored directly, so that they are searchable at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unspool.catalog.feed import ChangedChunk
from unspool.catalog.filters import Selection
from unspool.index import analysis
from unspool.index.embedded import postings
from unspool.index.embedded.flat import VectorRows, compute_cosines
from unspool.index.embedded.postings import ChunkTerms, WordSegment
from unspool.index.ports import Candidates, Ids, Vectors, rank_candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Chunks changed after `position` and up to `seq`.

    `hidden` contains the ids whose committed rows are outdated.
    """

    position: int
    seq: int
    rows: VectorRows
    segment: WordSegment
    hidden: Ids
    missing: int = 0  # changed chunks that it does not contain


def build_tail(
    position: int,
    seq: int,
    changed: Sequence[ChangedChunk],
    removed: Sequence[int],
    dimension: int,
    *,
    missing: int = 0,
) -> Tail:
    """Return the tail of a change feed."""
    rows = stack_rows(changed, dimension)
    return Tail(
        position=position,
        seq=seq,
        rows=rows,
        segment=postings.build_segment([analyse_chunk(chunk) for chunk in changed]),
        hidden=np.union1d(rows.ids, np.array(removed, dtype=np.int64)),
        missing=missing,
    )


def stack_rows(changed: Sequence[ChangedChunk], dimension: int) -> VectorRows:
    """Return the vectors of chunks, one row each."""
    vectors = np.frombuffer(b"".join(chunk.vector for chunk in changed), dtype="<f4")
    return VectorRows(
        ids=np.array([chunk.id for chunk in changed], dtype=np.int64),
        documents=np.array([chunk.document_id for chunk in changed], dtype=np.int64),
        vectors=vectors.reshape(len(changed), dimension),
    )


def analyse_chunk(chunk: ChangedChunk) -> ChunkTerms:
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


def merge_candidates(
    found: Candidates, tail: Tail, vector: Vectors, selection: Selection | None, k: int
) -> Candidates:
    """Return the k best of the committed candidates and of the tail's chunks."""
    rows, scores = tail.rows, compute_cosines(tail.rows.vectors, vector)
    chosen = np.ones(len(rows.ids), dtype=np.bool_)
    if selection is not None:
        chosen = selection.accepts(rows.ids, rows.documents)
    kept = ~np.isin(found.ids, tail.hidden)
    ids = np.concatenate([found.ids[kept], rows.ids[chosen]])
    return rank_candidates(
        ids, np.concatenate([found.scores[kept], scores[chosen].astype(np.float32)]), k
    )


def overlay_scores(scores: Vectors, ids: Ids, tail: Tail, vector: Vectors) -> None:
    """Replace the scores of ids that are in the tail; removed ids become NaN."""
    own = compute_cosines(tail.rows.vectors, vector).tolist()
    known = dict(zip(tail.rows.ids.tolist(), own, strict=True))
    for index in np.flatnonzero(np.isin(ids, tail.hidden)).tolist():
        scores[index] = known.get(int(ids[index]), np.nan)
