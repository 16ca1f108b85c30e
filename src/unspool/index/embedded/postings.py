"""Inverted index in arrays: for each term its rows, each with the term's BM25 weight. Pure.

A segment is immutable. Rows are ordered by chunk id and terms by key. Statistics count live rows
only, and a term's weight in a row depends on that row alone. So the same chunks have the same
scores, regardless of how they are distributed over segments and of earlier deletions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.index.analysis import PADDING
from unspool.index.bm25 import compute_idf, weigh_terms
from unspool.index.embedded.checksums import Column
from unspool.index.ports import Candidates, Ids, Vectors, rank_candidates

_MAX_CACHED = 400_000  # terms; about 50 MB at worst
_MERGED_POSTINGS = 2_000_000  # at a time, about 100 MB

Keys = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


class ChunkTerms(NamedTuple):
    """Terms of a chunk, with repetitions."""

    id: int
    document_id: int
    terms: list[str]


class TermKeys(dict[str, int]):
    """Key of each term: a 64-bit hash, computed once."""

    def __missing__(self, term: str) -> int:
        if len(self) >= _MAX_CACHED:
            self.clear()
        digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        key = self[term] = int.from_bytes(digest, "little")
        return key


_KEYS = TermKeys()


@dataclass(frozen=True, slots=True, kw_only=True)
class WordSegment:
    """Columns of an inverted index.

    The postings of term `i` start at `starts[i]` and end before `starts[i + 1]`.
    """

    ids: Column
    documents: Column
    keys: Column
    starts: Column
    rows: Column
    weights: Column


class LiveSegment(NamedTuple):
    """Segment with a mask of its live rows; no mask if all are live."""

    segment: WordSegment
    live: Mask | None

    @property
    def live_mask(self) -> Mask:
        """Mask of the live rows."""
        if self.live is None:
            return np.ones(len(self.segment.ids.all()), dtype=np.bool_)
        return self.live

    @property
    def live_count(self) -> int:
        """Number of live rows."""
        return (
            len(self.segment.ids.all()) if self.live is None else int(np.count_nonzero(self.live))
        )

    def find_rows(self, ids: Ids) -> npt.NDArray[np.intp]:
        """Return the live row of each id, or -1."""
        own = self.segment.ids.all()
        if not len(own):
            return np.full(len(ids), -1, dtype=np.intp)
        rows = np.searchsorted(own, ids)
        found = own[np.minimum(rows, len(own) - 1)] == ids
        if self.live is not None:
            found &= self.live[np.where(found, rows, 0)]
        return np.where(found, rows, -1)

    def hide(self, ids: Ids) -> LiveSegment:
        """Return the segment without these chunks."""
        rows = self.find_rows(ids)
        rows = rows[rows >= 0]
        if not len(rows):
            return self
        live = self.live_mask.copy()
        live[rows] = False
        return LiveSegment(self.segment, live)


class TermPostings(NamedTuple):
    """Terms in the order of their keys, the number of postings of each, and those postings."""

    keys: Keys
    counts: Ids
    rows: npt.NDArray[np.uint32]
    weights: Vectors


def build_segment(entries: Sequence[ChunkTerms]) -> WordSegment:
    """Return a segment of chunks."""
    entries = sorted(entries)
    lengths = np.array([len(entry.terms) for entry in entries], dtype=np.int64)
    terms = chain.from_iterable(entry.terms for entry in entries)
    keys = np.fromiter(map(_KEYS.__getitem__, terms), dtype=np.uint64, count=int(lengths.sum()))
    rows = np.repeat(np.arange(len(entries), dtype=np.uint32), lengths)
    order = np.argsort(keys, kind="stable")  # so that the rows of a term stay in order
    keys, rows = keys[order], rows[order]
    first = np.flatnonzero(_starts_run(keys) | _starts_run(rows))
    frequencies = np.diff(np.append(first, len(keys)))
    keys, rows = keys[first], rows[first]
    # padding only makes a text longer; nobody searches for it
    sought = keys != np.uint64(_KEYS[PADDING])
    weights = weigh_terms(frequencies, lengths[rows])
    own_keys, starts = _group(keys[sought])
    return WordSegment(
        ids=Column(np.array([entry.id for entry in entries], dtype=np.int64)),
        documents=Column(np.array([entry.document_id for entry in entries], dtype=np.int64)),
        keys=Column(own_keys),
        starts=Column(starts),
        rows=Column(rows[sought]),
        weights=Column(weights[sought]),
    )


def _starts_run(values: npt.NDArray[np.generic]) -> Mask:
    starts = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def _group(keys: Keys) -> tuple[Keys, Ids]:
    first = np.flatnonzero(_starts_run(keys))
    return keys[first], np.append(first, len(keys)).astype(np.int64)


def list_terms(segment: WordSegment) -> TermPostings:
    """Return all terms of a segment."""
    return TermPostings(
        segment.keys.all(), np.diff(segment.starts.all()), segment.rows.all(), segment.weights.all()
    )


class MergedRows(NamedTuple):
    """Rows of several segments in one order, and the new row of each old one."""

    ids: Ids
    documents: Ids
    new_rows: list[npt.NDArray[np.uint32]]


def merge_rows(parts: Sequence[LiveSegment]) -> MergedRows:
    """Order the live rows of several segments by id."""
    lives = [part.live_mask for part in parts]
    ids = np.concatenate(
        [part.segment.ids.all()[live] for part, live in zip(parts, lives, strict=True)]
    )
    documents = np.concatenate(
        [part.segment.documents.all()[live] for part, live in zip(parts, lives, strict=True)]
    )
    order = np.argsort(ids, kind="stable")
    ranks = np.empty(len(ids), dtype=np.uint32)
    ranks[order] = np.arange(len(ids), dtype=np.uint32)
    new_rows, at = [], 0
    for live in lives:
        count = int(np.count_nonzero(live))
        new = np.zeros(len(live), dtype=np.uint32)
        new[live] = ranks[at : at + count]
        new_rows.append(new)
        at += count
    return MergedRows(ids[order], documents[order], new_rows)


def merge_terms(parts: Sequence[LiveSegment], merged: MergedRows) -> Iterator[TermPostings]:
    """Yield the terms of several segments in the order of their keys, in pieces of bounded size."""
    for low, high in pairwise(_choose_boundaries(parts)):
        keys, rows, weights = [], [], []
        for part, new_rows in zip(parts, merged.new_rows, strict=True):
            own = part.segment.keys.all()
            first = 0 if low is None else int(np.searchsorted(own, low))
            last = len(own) if high is None else int(np.searchsorted(own, high))
            starts = part.segment.starts.all()[first : last + 1]
            old = part.segment.rows.slice(int(starts[0]), int(starts[-1]))
            live = slice(None) if part.live is None else part.live[old]
            keys.append(np.repeat(own[first:last], np.diff(starts))[live])
            rows.append(new_rows[old[live]])
            weights.append(part.segment.weights.slice(int(starts[0]), int(starts[-1]))[live])
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys, kind="stable")
        own_keys, starts = _group(all_keys[order])
        yield TermPostings(
            own_keys, np.diff(starts), np.concatenate(rows)[order], np.concatenate(weights)[order]
        )


def _choose_boundaries(parts: Sequence[LiveSegment]) -> list[np.uint64 | None]:
    """Return keys that divide the postings into pieces to merge at a time; None at both ends."""
    largest = max(
        (part.segment for part in parts), key=lambda segment: int(segment.starts.all()[-1])
    )
    total = sum(int(part.segment.starts.all()[-1]) for part in parts)
    cuts = np.linspace(
        0, int(largest.starts.all()[-1]), num=total // _MERGED_POSTINGS + 1, endpoint=False
    )[1:]
    at = np.unique(np.searchsorted(largest.starts.all(), cuts))
    return [None, *largest.keys.all()[at[at < len(largest.keys.all())]], None]


class SegmentPostings(NamedTuple):
    """Live postings of a term in one segment."""

    segment: int
    rows: npt.NDArray[np.uint32]
    weights: Vectors


def _find_postings(
    parts: Sequence[LiveSegment], terms: Sequence[str]
) -> list[list[SegmentPostings]]:
    """Return the postings of each term, segment by segment."""
    wanted = np.fromiter(map(_KEYS.__getitem__, terms), dtype=np.uint64, count=len(terms))
    found: list[list[SegmentPostings]] = [[] for _ in terms]
    for number, (segment, live) in enumerate(parts):
        keys, starts = segment.keys.all(), segment.starts.all()
        if not len(keys):
            continue
        places = np.searchsorted(keys, wanted)
        here = np.flatnonzero(keys[np.minimum(places, len(keys) - 1)] == wanted)
        places = places[here]
        for term, start, stop in zip(
            here.tolist(), starts[places].tolist(), starts[places + 1].tolist(), strict=True
        ):
            rows, weights = segment.rows.slice(start, stop), segment.weights.slice(start, stop)
            if live is not None:
                alive = live[rows]
                rows, weights = rows[alive], weights[alive]
            found[term].append(SegmentPostings(number, rows, weights))
    return found


def count_chunks(parts: Iterable[LiveSegment]) -> int:
    """Return the number of live chunks."""
    return sum(part.live_count for part in parts)


def count_frequencies(parts: Sequence[LiveSegment], terms: Sequence[str]) -> dict[str, int]:
    """Return the number of live chunks that contain each term."""
    found = _find_postings(parts, terms)
    return {
        term: sum(len(one.rows) for one in postings)
        for term, postings in zip(terms, found, strict=True)
    }


def score_rows(parts: Sequence[LiveSegment], weights: Mapping[str, float]) -> list[Vectors]:
    """Return the score of every row, segment by segment; 0 for a dead row or one without terms."""
    chunks = count_chunks(parts)
    scores = [np.zeros(len(part.segment.ids.all()), dtype=np.float32) for part in parts]
    for postings, weight in zip(
        _find_postings(parts, list(weights)), weights.values(), strict=True
    ):
        factor = np.float32(weight * compute_idf(sum(len(one.rows) for one in postings), chunks))
        for one in postings:
            scores[one.segment][one.rows] += factor * one.weights
    return scores


def search(
    parts: Sequence[LiveSegment],
    weights: Mapping[str, float],
    k: int,
    chosen: Sequence[Mask] | None,
) -> Candidates:
    """Return the k best chunks that contain at least one of the terms; ties by id.

    `chosen` restricts the rows of each segment.
    """
    ids, scores = [], []
    for number, (part, found) in enumerate(zip(parts, score_rows(parts, weights), strict=True)):
        matching = found > 0
        rows = np.flatnonzero(matching if chosen is None else matching & chosen[number])
        ids.append(part.segment.ids.all()[rows])
        scores.append(found[rows])
    if not ids:
        return Candidates.empty()
    return rank_candidates(np.concatenate(ids), np.concatenate(scores), k)


def score(parts: Sequence[LiveSegment], weights: Mapping[str, float], ids: Ids) -> Vectors:
    """Return the score of each id; 0 for a chunk that is absent or contains none of the terms."""
    out = np.zeros(len(ids), dtype=np.float32)
    for part, scores in zip(parts, score_rows(parts, weights), strict=True):
        rows = part.find_rows(ids)
        out[rows >= 0] = scores[rows[rows >= 0]]
    return out
