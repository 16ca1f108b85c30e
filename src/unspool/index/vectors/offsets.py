"""Continuation by offset, for stores that number their ranked results.

Servers order equal scores differently for each offset and limit, and results move while others
write. Both would skip results at the boundary of two pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unspool.index.ports import Candidates, Vectors, rank_candidates

Fetch = Callable[[int, int], Candidates]  # takes offset and limit, and returns the best first


def search_by_offset(fetch: Fetch, k: int, hint: str | None, *, last: int) -> Candidates:
    """Return the k best results, or those behind a hint.

    A hint has the offset behind complete groups of equal scores, and the lowest of those scores.
    If the result before the offset does not reach that score, some were deleted, and the search
    begins earlier. A continuation reads groups whole, so it may repeat results and return more
    than k.
    `last` is the highest sum of offset and limit that the server accepts.
    """
    if hint is not None:
        return _continue(fetch, k, hint, last)
    limit = min(k + 1, last)
    while True:
        found = _round(fetch(0, limit))
        scores = found.scores
        is_complete = len(scores) < limit or scores[k - 1] > scores[-1]
        if is_complete or limit == last:
            break
        limit = min(2 * limit, last)
    ranked = rank_candidates(found.ids, scores, k)
    if not is_complete or len(scores) <= k:
        return ranked
    return _add_hint(ranked, scores, int(np.sum(scores[:k] > scores[k])))


def _continue(fetch: Fetch, k: int, hint: str, last: int) -> Candidates:
    """Return results as complete groups of equal scores, at least one below the hint's score."""
    text, _, bound_text = hint.partition(":")
    start, bound = max(int(text) - 1, 0), float(bound_text)
    limit, step = k + 2, 8
    while start < last:
        limit = min(limit, last - start)
        found = _round(fetch(start, limit))
        scores = found.scores
        if start and (not len(scores) or scores[0] < bound):
            start, limit, step = max(0, start - step), limit + step, 4 * step
            continue
        if len(scores) < limit or start + limit == last:
            return rank_candidates(found.ids, scores)
        complete = int(np.sum(scores > scores[-1]))
        if complete and scores[complete - 1] < bound:
            ranked = rank_candidates(found.ids[:complete], scores[:complete])
            return _add_hint(ranked, scores, complete, start)
        limit *= 2
    return Candidates.empty()


def _round(found: Candidates) -> Candidates:
    """Round scores, so that equal vectors tie."""
    return replace(found, scores=np.round(found.scores, 6))


def _add_hint(found: Candidates, scores: Vectors, complete: int, start: int = 0) -> Candidates:
    """Add the hint behind the first `complete` of the scores, which begin at offset `start`."""
    lowest = float(scores[complete - 1]) if complete else math.inf
    return replace(found, hint=f"{start + complete}:{lowest!r}")
