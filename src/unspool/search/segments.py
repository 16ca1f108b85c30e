"""Segments: the next candidates of a window, scored by both retrievers, fused and ranked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.catalog import chunks as chunk_rows
from unspool.catalog.chunks import Candidate
from unspool.catalog.statements import IdsByProject, group_by_project
from unspool.domain.documents import Kind
from unspool.domain.filters import INSIDE, list_fields
from unspool.domain.queries import Served
from unspool.index.ports import Candidates, Ids, Vectors
from unspool.search import fusion, ranking
from unspool.search.plan import QueryPlan, drop_idle_terms
from unspool.search.ranking import Ranked
from unspool.search.request import SearchRequest
from unspool.search.retrieve import (
    Retrieved,
    Retrievers,
    Weights,
    exclude,
    retrieve,
    retrieve_more,
    weigh_projects,
)
from unspool.search.windows import (
    ENTRY,
    NO_ENTRIES,
    SCORE_DIGITS,
    Entries,
    ResultWindow,
    Unranked,
    WindowSegment,
)

STEP = 100  # candidates that extend a window at a time

# Messages from each retriever whose neighbours become candidates. With all 100 nDCG@10 on meetings
# is the same, and it takes three times as long.
SEEDS = 30


class _Selection(NamedTuple):
    """Candidates of one project to rank, and the messages that share their scores."""

    retrieved: Retrieved
    ids: Ids
    messages: Mapping[int, Candidate]

    @property
    def scored_ids(self) -> Ids:
        """Candidates and messages, sorted."""
        return np.union1d(self.ids, np.fromiter(self.messages, np.int64, len(self.messages)))


class _Scores(NamedTuple):
    """Scores of candidates from each retriever; None from one that was not asked."""

    ids: Ids
    meaning: Vectors | None
    words: Vectors | None


def rank_first(
    retrievers: Retrievers, request: SearchRequest, vector: Vectors | None
) -> WindowSegment:
    """Rank the best candidates of both retrievers. The others stay in the tail."""
    pool = request.plan.pool
    with _open_snapshot(retrievers, request):
        weights = weigh_projects(retrievers.words, request)
        depth = max(request.depth, pool)
        tail, retrieved = retrieve(retrievers, request, vector, weights, depth)
        segment = WindowSegment(
            number=0, start=0, served=Served.WINDOW, entries=NO_ENTRIES, tail=tail
        )
        segment, selections = _select(retrievers, request, segment, retrieved, None, share=pool)
        return _rank(retrievers, request, vector, segment, selections, weights, NO_ENTRIES)


def rank_more(
    retrievers: Retrievers, request: SearchRequest, vector: Vectors | None, window: ResultWindow
) -> WindowSegment | None:
    """Rank the next candidates behind a window; None if there are no more."""
    last, seen = window.last, window.seen_ids()
    with _open_snapshot(retrievers, request):
        weights = weigh_projects(retrievers.words, request)
        tail = retrieve_more(retrievers, request, vector, weights, last.tail, seen)
        if tail is None:
            return None
        segment = WindowSegment(
            number=last.number + 1,
            start=last.stop,
            served=Served.HINT if tail.is_hinted else Served.WIDER,
            entries=NO_ENTRIES,
            tail=tail,
            best=last.best,
            low=last.low,
        )
        sides = int(request.plan.uses_vectors) + int(request.plan.uses_words)
        projects = sum(1 for one in tail.unranked if one.total)
        share = max(1, STEP // sides // max(1, projects))
        segment, selections = _select(retrievers, request, segment, {}, seen, share=share)
        entries = window.seen_entries()
        return _rank(retrievers, request, vector, segment, selections, weights, entries)


def _open_snapshot(retrievers: Retrievers, request: SearchRequest) -> AbstractContextManager[None]:
    """Open one snapshot for all reads. Several projects are read in threads, each with its own."""
    return retrievers.catalog.snapshot() if len(request.projects) == 1 else nullcontext()


def _select(
    retrievers: Retrievers,
    request: SearchRequest,
    segment: WindowSegment,
    retrieved: Mapping[int, Retrieved],
    seen: Ids | None,
    *,
    share: int,
) -> tuple[WindowSegment, list[_Selection]]:
    """Select candidates from the tail: up to `share` of each retriever in each project."""
    selections: list[_Selection] = []
    unranked: list[Unranked] = []
    for one in segment.tail.unranked:
        ids = np.union1d(one.by_vector[:share], one.by_words[:share])
        seeds = min(share, SEEDS)
        leading = np.union1d(one.by_vector[:seeds], one.by_words[:seeds])
        ids, messages = _add_neighbours(retrievers, request, one.project, ids, leading, seen)
        unranked.append(
            Unranked(
                one.project,
                exclude(one.by_vector[share:], ids),
                exclude(one.by_words[share:], ids),
            )
        )
        found = retrieved.get(one.project) or _without_scores(one.project, request.plan)
        selections.append(_Selection(found, ids, messages))
    waiting = sum(len(np.union1d(one.by_vector, one.by_words)) for one in unranked if one.total)
    tail = replace(segment.tail, unranked=tuple(unranked), waiting=waiting)
    return replace(segment, tail=tail), selections


def _without_scores(project: int, plan: QueryPlan) -> Retrieved:
    return Retrieved(
        project,
        Candidates.empty() if plan.uses_vectors else None,
        Candidates.empty() if plan.uses_words else None,
    )


def _add_neighbours(
    retrievers: Retrievers,
    request: SearchRequest,
    project: int,
    ids: Ids,
    leading: Ids,
    seen: Ids | None,
) -> tuple[Ids, Mapping[int, Candidate]]:
    """Add the messages beside the leading ones to the candidates.

    Returns the candidates, and all messages that share their scores. If a filter selects messages,
    or an earlier page has shown a neighbour, it only shares its score.
    """
    found = retrievers.cache.get(retrievers.catalog, request.projects, {project: ids.tolist()})
    messages = {one.id: one for one in found.values() if one.kind == Kind.CHAT}
    if not messages:
        return ids, {}
    with retrievers.catalog.read() as connection:
        near = chunk_rows.load_neighbours(
            connection, {project: [id_ for id_ in leading.tolist() if id_ in messages]}
        )
    retrievers.cache.add(request.projects, near)
    messages |= near
    if request.filter is not None and list_fields(request.filter) & INSIDE:
        return ids, messages
    added = np.fromiter(messages, dtype=np.int64, count=len(messages))
    return np.union1d(ids, added if seen is None else exclude(added, seen)), messages


def _rank(
    retrievers: Retrievers,
    request: SearchRequest,
    vector: Vectors | None,
    segment: WindowSegment,
    selections: Sequence[_Selection],
    weights: Mapping[int, Weights],
    seen: Entries,
) -> WindowSegment:
    """Return the segment with its entries, ranked on the scale of the first segment.

    `seen` contains the entries of the earlier ones.
    """
    plan, tail, is_first = request.plan, segment.tail, not segment.number
    wanted = {one.retrieved.project: one.ids.tolist() for one in selections}
    known = _load_candidates(retrievers, request, wanted)
    candidates = _drop_replacements(retrievers, list(known.values()), seen)
    majority = _find_majority(plan, candidates) if is_first else tail.majority
    scores = _score(retrievers, request, vector, selections, weights, majority)
    fused, scale = _fuse(plan, scores, tail.scale, selections)
    order = ranking.rank_candidates(
        candidates, fused, terms=tuple(plan.weights), identifiers=plan.identifiers
    )
    grouped, repeats = ranking.group_copies(order, frozenset(seen["text_key"].tolist()))
    entries = _make_entries(grouped, segment.low)
    shown = entries["score"][~entries["is_copy"]]
    if request.min_score is not None:
        reached = _reach_score(entries, request.min_score)
        entries = entries[reached]
        grouped = [one for one, is_reached in zip(grouped, reached, strict=True) if is_reached]
    kept = set(entries["id"].tolist())
    return replace(
        segment,
        entries=entries,
        best=float(shown[0]) if is_first and len(shown) else segment.best,
        low=float(shown[-1]) if len(shown) else segment.low,
        dropped=np.array([id_ for id_ in known if id_ not in kept], dtype=np.int64),
        repeats=len(repeats),
        lost=sum(map(len, wanted.values())) - len(known),
        reasons=tuple(_explain(grouped, scores)) if request.explain else (),
        tail=replace(tail, scale=scale.flat, majority=majority),
    )


def _load_candidates(
    retrievers: Retrievers, request: SearchRequest, ids: IdsByProject
) -> dict[int, Candidate]:
    """Return the facts about candidates. Two chunks at one position mean an outdated cache."""
    known = retrievers.cache.get(retrievers.catalog, request.projects, ids)
    if len({(one.document_id, one.position) for one in known.values()}) < len(known):
        retrievers.cache.clear()
        known = retrievers.cache.get(retrievers.catalog, request.projects, ids)
    return known


def _drop_replacements(
    retrievers: Retrievers, candidates: Sequence[Candidate], seen: Entries
) -> list[Candidate]:
    """Drop candidates that replaced a chunk of an earlier page.

    That chunk was shown, or its replacement in its place. This is read after the candidates, so
    that a replacement cannot be taken for a new chunk while another process writes.
    """
    places = dict(
        zip(
            zip(seen["document"].tolist(), seen["position"].tolist(), strict=True),
            seen["id"].tolist(),
            strict=True,
        )
    )
    earlier = [places.get((one.document_id, one.position)) for one in candidates]
    ids = group_by_project(
        (one.project_id, id_)
        for one, id_ in zip(candidates, earlier, strict=True)
        if id_ is not None
    )
    if not ids:
        return list(candidates)
    with retrievers.catalog.read() as connection:
        present = chunk_rows.find_existing(connection, ids)
    return [
        one for one, id_ in zip(candidates, earlier, strict=True) if id_ is None or id_ in present
    ]


def _find_majority(plan: QueryPlan, candidates: Iterable[Candidate]) -> str:
    """Return the kind of most candidates, a language or chat, if the plan has idle terms."""
    if not plan.idle:
        return ""
    kinds = Counter(
        candidate.kind if candidate.kind == Kind.CHAT else candidate.language
        for candidate in candidates
    )
    kind, count = kinds.most_common(1)[0] if kinds else ("", 0)
    return kind if count * 2 > kinds.total() else ""


def _score(
    retrievers: Retrievers,
    request: SearchRequest,
    vector: Vectors | None,
    selections: Sequence[_Selection],
    weights: Mapping[int, Weights],
    majority: str,
) -> _Scores:
    """Score every candidate on both sides. A retriever is asked only for missing scores."""
    plan = request.plan
    meaning: list[Vectors] = []
    words: list[Vectors] = []
    for one in selections:
        project, by_vector, by_words = one.retrieved
        if by_vector is not None and vector is not None:
            score = partial(retrievers.vectors.score, project, vector)
            meaning.append(_complete_scores(by_vector, one.scored_ids, score))
        if by_words is not None:
            own = drop_idle_terms(plan, majority, weights[project])
            known = by_words if len(own) == len(plan.weights) else Candidates.empty()
            score = partial(retrievers.words.score, project, own)
            words.append(_complete_scores(known, one.scored_ids, score))
    return _Scores(
        ids=np.concatenate([one.scored_ids for one in selections]),
        meaning=np.concatenate(meaning) if plan.uses_vectors else None,
        words=np.concatenate(words) if plan.uses_words else None,
    )


def _complete_scores(known: Candidates, ids: Ids, score: Callable[[Ids], Vectors]) -> Vectors:
    """Return the score of each id, from the known ones where possible."""
    scores = np.empty(len(ids), dtype=np.float32)
    unknown = np.ones(len(ids), dtype=np.bool_)
    if len(ids) and len(known.ids):
        at = np.minimum(np.searchsorted(ids, known.ids), len(ids) - 1)
        among = ids[at] == known.ids
        scores[at[among]] = known.scores[among]
        unknown[at[among]] = False
    if unknown.any():
        scores[unknown] = score(ids[unknown])
    return scores


def _fuse(
    plan: QueryPlan,
    scores: _Scores,
    first_scale: tuple[float, ...],
    selections: Sequence[_Selection],
) -> tuple[dict[int, float], fusion.Scale]:
    """Fuse both scores of each candidate. Messages get a part of their neighbours' scores."""
    scale = (
        fusion.Scale.from_values(first_scale)
        if first_scale
        else fusion.measure_scale(scores.meaning, scores.words, plan.alpha)
    )
    values = (
        fusion.fuse_scores(scores.meaning, scores.words, plan.alpha, scale).tolist()
        if len(scores.ids)
        else []
    )
    fused = dict(zip(scores.ids.tolist(), values, strict=True))
    messages = [message for one in selections for message in one.messages.values()]
    if messages:
        shared = ranking.share_scores(messages, fused)
        if not first_scale:  # divide by what makes the best message as good as before
            best = max(fused[id_] for id_ in shared)
            scale = scale._replace(context=max(shared.values()) / best if best > 0 else 1.0)
        fused.update((id_, score / scale.context) for id_, score in shared.items())
    return fused, scale


def _make_entries(grouped: Sequence[tuple[Ranked, bool]], cap: float | None) -> Entries:
    """Return ranked chunks as rows. Scores only fall along a window, so they are capped."""
    rows = [
        (
            one.candidate.project_id,
            one.candidate.id,
            one.candidate.text_key,
            one.candidate.document_id,
            one.candidate.position,
            one.score,
            is_copy,
        )
        for one, is_copy in grouped
    ]
    entries: Entries = np.array(rows, dtype=ENTRY)
    if cap is not None:
        np.minimum(entries["score"], cap, out=entries["score"])
    return entries


def _reach_score(entries: Entries, minimum: float) -> npt.NDArray[np.bool_]:
    """Return which entries reach a score. A copy has the score of the text shown for it."""
    lead = np.maximum.accumulate(np.where(entries["is_copy"], 0, np.arange(len(entries))))
    scores = np.round(entries["score"].astype(np.float64), SCORE_DIGITS)[lead]
    return np.asarray(scores >= minimum)


def _explain(grouped: Sequence[tuple[Ranked, bool]], scores: _Scores) -> Iterable[str]:
    """Yield the reasons for each rank in one line: words, meaning, boosts."""
    rows = {id_: row for row, id_ in enumerate(scores.ids.tolist())}
    for one, _ in grouped:
        row = rows[one.candidate.id]
        parts = [] if scores.words is None else [f"words {scores.words[row]:.1f}"]
        if scores.meaning is not None:
            parts.append(f"meaning {scores.meaning[row]:.2f}")
        yield "; ".join([*parts, f"fused {one.fused:.2f}", *one.reasons])
