"""The search itself: candidates from both retrievers, one ranking, hydrated to a budget."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from unspool.catalog import Catalog, reading
from unspool.catalog.projects import ProjectRow
from unspool.domain.documents import Chunk, Status
from unspool.domain.filters import Filter
from unspool.domain.queries import Form, Hit, Insights, Origin, Page, Source
from unspool.errors import NotFoundError
from unspool.search import budget, fusion, ranking
from unspool.search.plan import Plan, without_languages
from unspool.search.snippets import snippet
from unspool.vectors.base import Ids, Matches, VectorIndex, Vectors
from unspool.words import analysis
from unspool.words.base import WordIndex

POOL = 80  # candidates from each retriever; 64 to 100 differ by less than .005 nDCG@10 on code-repos, cosqa and scifact (bench/quality.py)

MAX_KEPT = 50_000  # candidates in memory; about 20 MB
SCORE_DIGITS = 6  # what is shown, and what a minimum is compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked query over named projects."""

    plan: Plan
    projects: tuple[ProjectRow, ...]
    vector: Vectors | None
    where: Filter | None = None
    limit: int = 10
    max_tokens: int = 0
    min_score: float | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """The candidates of a request with their scores on each side."""

    ids: Ids
    meaning: Vectors | None
    words: Vectors | None


class CandidateCache:
    """What ranking knows of chunks, kept while the projects stay as they are: the same chunks come up again and again."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._state: tuple[tuple[int, int], ...] = ()
        self._known: dict[int, reading.Candidate] = {}

    def get(self, catalog: Catalog, projects: Sequence[ProjectRow], ids: Sequence[int]) -> dict[int, reading.Candidate]:
        """The chunks that exist, by id."""
        state = tuple((project.id, project.seq) for project in projects)
        with self._guard:
            if state != self._state or len(self._known) > MAX_KEPT:
                self._state, self._known = state, {}
            known = self._known
        missing = [id_ for id_ in ids if id_ not in known]
        if missing:
            with catalog.read() as connection:
                known.update(reading.candidates(connection, missing))
        return {id_: known[id_] for id_ in ids if id_ in known}


class _Pool(NamedTuple):
    """The candidates of one project, sorted by id, and what each side said of its own."""

    project: int
    ids: Ids
    near: Matches | None
    named: Matches | None


def search(
    catalog: Catalog, vectors: VectorIndex, words: WordIndex, request: Request, *, count_tokens: Callable[[str], int], kept: CandidateCache
) -> Page:
    """One page, best first."""
    window, retrieved = ranked(catalog, vectors, words, request, kept)
    return page(catalog, request, window, retrieved, count_tokens=count_tokens)


def ranked(
    catalog: Catalog, vectors: VectorIndex, words: WordIndex, request: Request, kept: CandidateCache
) -> tuple[list[ranking.Ranked], Retrieved]:
    """Every candidate, ranked."""
    plan = request.plan
    pools = [_pool(vectors, words, request, project.id) for project in request.projects]
    candidates = kept.get(catalog, request.projects, [id_ for pool in pools for id_ in pool.ids.tolist()])
    weights = _scored_weights(plan, candidates.values())
    retrieved = _joined([_scored(vectors, words, request, pool, weights) for pool in pools], plan)
    fused = fusion.fuse(retrieved.meaning, retrieved.words, plan.alpha) if len(retrieved.ids) else np.zeros(0, dtype=np.float32)
    scores = dict(zip(retrieved.ids.tolist(), fused.tolist(), strict=True))
    order = ranking.rank(list(candidates.values()), scores, terms=tuple(plan.weights), identifiers=plan.identifiers)
    if request.min_score is not None:
        order = [one for one in order if round(one.score, SCORE_DIGITS) >= request.min_score]
    return order, retrieved


def _pool(vectors: VectorIndex, words: WordIndex, request: Request, project: int) -> _Pool:
    """The best of each side."""
    plan = request.plan
    near = named = None
    if plan.uses_vectors and request.vector is not None:
        near = vectors.search(project, request.vector, k=plan.pool, where=request.where)
    if plan.uses_words:
        named = words.search(project, plan.weights, k=plan.pool, where=request.where)
    found = [matches.ids for matches in (near, named) if matches is not None]
    return _Pool(project, np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64), near, named)


def _scored(vectors: VectorIndex, words: WordIndex, request: Request, pool: _Pool, weights: Mapping[str, float]) -> Retrieved:
    """Every candidate of a project, scored on both sides; a side is only asked for what it has not said already."""
    meaning = by_words = None
    vector, asked = request.vector, request.plan.weights
    if pool.near is not None and vector is not None:
        meaning = _completed(pool.near, pool.ids, lambda rest: vectors.score(pool.project, vector, rest))
    if pool.named is not None:
        said = pool.named if weights is asked else Matches.none()
        by_words = _completed(said, pool.ids, lambda rest: words.score(pool.project, weights, rest))
    return Retrieved(ids=pool.ids, meaning=meaning, words=by_words)


def _completed(said: Matches, ids: Ids, score: Callable[[Ids], Vectors]) -> Vectors:
    scores = np.empty(len(ids), dtype=np.float32)
    unknown = np.ones(len(ids), dtype=np.bool_)
    at = np.searchsorted(ids, said.ids)
    scores[at] = said.scores
    unknown[at] = False
    if unknown.any():
        scores[unknown] = score(ids[unknown])
    return scores


def _joined(parts: Sequence[Retrieved], plan: Plan) -> Retrieved:
    return Retrieved(
        ids=np.concatenate([part.ids for part in parts]),
        meaning=np.concatenate([part.meaning for part in parts if part.meaning is not None]) if plan.uses_vectors else None,
        words=np.concatenate([part.words for part in parts if part.words is not None]) if plan.uses_words else None,
    )


def _scored_weights(plan: Plan, candidates: Iterable[reading.Candidate]) -> Mapping[str, float]:
    if not plan.languages:
        return plan.weights
    languages = Counter(candidate.language for candidate in candidates)
    majority, count = languages.most_common(1)[0] if languages else ("", 0)
    return without_languages(plan, majority) if count * 2 > languages.total() else plan.weights


def page(catalog: Catalog, request: Request, window: Sequence[ranking.Ranked], retrieved: Retrieved, *, count_tokens: Callable[[str], int]) -> Page:
    """The first hits of a window, hydrated and fitted to the budget."""
    shown = window[: request.limit]
    with catalog.read() as connection:
        chunks = reading.hydrate(connection, [one.candidate.id for one in shown])
    present = [one for one in shown if one.candidate.id in chunks]
    wanted = frozenset(request.plan.terms)
    items = []
    for one in present:
        chunk = chunks[one.candidate.id]
        items.append((chunk, snippet(chunk.text, chunk.lines.first, wanted)))
    fitted = budget.fit(items, max_tokens=request.max_tokens, count=count_tokens)
    hits = [
        Hit(
            chunk=chunk,
            score=round(one.score, SCORE_DIGITS),
            rank=index + 1,
            origin=_origin(request.plan),
            form=fit.form,
            snippet=excerpt,
            tokens=fit.tokens,
            reason=_reason(one, chunk, request.plan, retrieved) if request.explain else "",
        )
        for index, (one, (chunk, excerpt), fit) in enumerate(zip(present, items, fitted, strict=False))
    ]
    return Page(
        query=request.plan.query,
        projects=tuple(project.name for project in request.projects),
        hits=tuple(hits),
        sources=_sources(hits),
        insights=_insights(hits),
        notes=tuple(_notes(hits, present, request)),
        tokens=sum(hit.tokens for hit in hits),
        alpha=request.plan.alpha,
    )


def _origin(plan: Plan) -> Origin:
    if plan.uses_vectors and plan.uses_words:
        return Origin.FUSED
    return Origin.VECTOR if plan.uses_vectors else Origin.KEYWORD


def _reason(one: ranking.Ranked, chunk: Chunk, plan: Plan, retrieved: Retrieved) -> str:
    """Why this hit, in one line: words, closeness, boosts."""
    at = int(np.flatnonzero(retrieved.ids == chunk.id)[0])
    parts: list[str] = []
    if retrieved.words is not None:
        held = Counter(analysis.terms(chunk.text))
        words = [f"{term} x{held[term]}" if held[term] > 1 else term for term in dict.fromkeys(plan.terms) if held[term]]
        found = ", ".join(words) or ("only in its path or headings" if retrieved.words[at] > 0 else "none")
        parts.append(f"words {retrieved.words[at]:.1f} ({found})")
    if retrieved.meaning is not None:
        parts.append(f"meaning {retrieved.meaning[at]:.2f}")
    parts.append(f"fused {one.fused:.2f}")
    return "; ".join([*parts, *one.reasons])


def _sources(hits: Sequence[Hit]) -> tuple[Source, ...]:
    grouped: dict[tuple[str, str], list[Hit]] = {}
    for hit in hits:
        grouped.setdefault((hit.chunk.project, hit.chunk.path), []).append(hit)
    return tuple(
        Source(
            project=project,
            path=path,
            title=some[0].chunk.title,
            language=some[0].chunk.language,
            hits=len(some),
            best_score=max(hit.score for hit in some),
        )
        for (project, path), some in grouped.items()
    )


def _insights(hits: Sequence[Hit]) -> Insights:
    languages = Counter(hit.chunk.language for hit in hits if hit.chunk.language)
    times = sorted(hit.chunk.modified for hit in hits if hit.chunk.modified is not None)
    return Insights(
        languages=dict(languages.most_common()),
        files=len({(hit.chunk.project, hit.chunk.path) for hit in hits}),
        earliest=times[0] if times else None,
        latest=times[-1] if times else None,
    )


def _notes(hits: Sequence[Hit], present: Sequence[ranking.Ranked], request: Request) -> list[str]:
    notes: list[str] = []
    stale = sum(hit.chunk.status is not Status.INDEXED for hit in hits)
    if stale:
        notes.append(f"{stale} of the hits come from documents that have changed since they were indexed; index again to refresh them")
    if len(hits) < len(present):
        notes.append(f"{len(present) - len(hits)} more hits did not fit into {request.max_tokens} tokens")
    shortened = sum(hit.form.value != "whole" for hit in hits)
    if shortened:
        notes.append(f"{shortened} hits are shortened to fit into {request.max_tokens} tokens")
    if request.plan.alpha < 1 and not request.plan.terms:
        notes.append("the query holds no word to look for, only meaning was searched")
    return notes


def with_waiting(page: Page, waiting: int) -> Page:
    """The page, saying that another process is still absorbing chunks that therefore could not be found."""
    if not waiting:
        return page
    return replace(
        page, warnings=(*page.warnings, f"{waiting} chunks are stored but not in the index yet, so they were not searched; ask again soon")
    )


def nearest(
    catalog: Catalog,
    vectors: VectorIndex,
    projects: Sequence[ProjectRow],
    vector: Vectors,
    *,
    k: int,
    where: Filter | None,
    count_tokens: Callable[[str], int],
) -> list[Hit]:
    """The k nearest over all the projects, by cosine alone."""
    found = [vectors.search(project.id, vector, k=k, where=where) for project in projects]
    pairs = sorted(
        ((float(score), int(id_)) for matches in found for id_, score in zip(matches.ids, matches.scores, strict=True)),
        key=lambda pair: (-pair[0], pair[1]),
    )[:k]
    with catalog.read() as connection:
        chunks = reading.hydrate(connection, [id_ for _, id_ in pairs])
    present = [(score, chunks[id_]) for score, id_ in pairs if id_ in chunks]
    return [
        Hit(
            chunk=chunk,
            score=score,
            rank=rank,
            origin=Origin.VECTOR,
            form=Form.WHOLE,
            snippet=snippet(chunk.text, chunk.lines.first, frozenset()),
            tokens=chunk.token_count + count_tokens(budget.header(chunk)),
        )
        for rank, (score, chunk) in enumerate(present, 1)
    ]


def related(
    catalog: Catalog, vectors: VectorIndex, project: ProjectRow, chunk: Chunk, *, space_id: int, limit: int, count_tokens: Callable[[str], int]
) -> Page:
    """The chunks nearest to one, itself left out."""
    with catalog.read() as connection:
        stored = reading.vector_of(connection, chunk.id, space_id)
    if stored is None:
        raise NotFoundError(f"{chunk.location} has no vector; index again")
    vector = np.frombuffer(stored, dtype="<f4").astype(np.float32)
    hits = [
        hit for hit in nearest(catalog, vectors, [project], vector, k=limit + 1, where=None, count_tokens=count_tokens) if hit.chunk.id != chunk.id
    ][:limit]
    hits = [replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]
    return Page(
        query=chunk.location,
        projects=(project.name,),
        hits=tuple(hits),
        sources=_sources(hits),
        insights=_insights(hits),
        tokens=sum(hit.tokens for hit in hits),
        alpha=1.0,
    )
