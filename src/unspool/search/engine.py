"""The search itself: candidates from both retrievers, one ranking, as a segment of a frozen
window.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.catalog import Catalog
from unspool.catalog import chunks as chunk_rows
from unspool.domain.documents import Kind
from unspool.domain.filters import INSIDE, Filter, fields_of
from unspool.domain.queries import Served
from unspool.embedders.base import Embedder
from unspool.index.bm25 import inverse_document_frequency
from unspool.index.ports import Ids, Matches, VectorIndex, Vectors, WordIndex
from unspool.search import fusion, plan, ranking
from unspool.search.plan import Plan, without_idle
from unspool.windows import (
    ENTRY,
    NO_ENTRIES,
    NO_IDS,
    AskedProject,
    Entries,
    Frontier,
    Reserve,
    Segment,
)

# candidates from each retriever; 64 to 100 differ by less than .005 nDCG@10 on code-repos, cosqa
# and scifact (bench/quality.py)
POOL = 100

# Of each retriever's messages whose neighbours are looked at, too: with all 100 nDCG@10 on meetings
# is the same, and it takes three times as long.
SEEDS = 30
MAX_KEPT = 50_000  # candidates in memory; about 20 MB
SCORE_DIGITS = 6  # what is shown, and what a minimum is compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked query over named projects."""

    plan: Plan
    projects: tuple[AskedProject, ...]
    vector: Vectors | None
    where: Filter | None = None
    min_score: float | None = None
    explain: bool = False


class CandidateCache:
    """What ranking knows of chunks, kept while the projects stay as they are: the same chunks
    come up again and again.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._state: tuple[tuple[int, int], ...] = ()
        self._known: dict[int, chunk_rows.Candidate] = {}

    def get(
        self, catalog: Catalog, projects: Sequence[AskedProject], ids: Sequence[int]
    ) -> dict[int, chunk_rows.Candidate]:
        """The chunks that exist, by id."""
        state = _state(projects)
        with self._guard:
            if state != self._state or len(self._known) > MAX_KEPT:
                self._state, self._known = state, {}
            known = self._known
        missing = [id_ for id_ in ids if id_ not in known]
        if missing:
            with catalog.read() as connection:
                known.update(chunk_rows.load_candidates(connection, missing))
        return {id_: known[id_] for id_ in ids if id_ in known}

    def clear(self) -> None:
        """Forget everything."""
        with self._guard:
            self._state, self._known = (), {}

    def learn(
        self, projects: Sequence[AskedProject], candidates: Mapping[int, chunk_rows.Candidate]
    ) -> None:
        """Keep what was read in another way."""
        with self._guard:
            if self._state == _state(projects):
                self._known.update(candidates)


def _state(projects: Sequence[AskedProject]) -> tuple[tuple[int, int], ...]:
    return tuple((project.id, project.seq) for project in projects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """What a search reads from."""

    catalog: Catalog
    vectors: VectorIndex
    words: WordIndex
    kept: CandidateCache
    executor: Executor  # for several projects at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a walk has had already: nothing of it may come again."""

    ids: Ids
    text_keys: frozenset[int]
    # (document, position) -> id, as it was when it was ranked
    places: Mapping[tuple[int, int], int]


class _Found(NamedTuple):
    """What both retrievers said of one project."""

    project: int
    near: Matches | None
    named: Matches | None

    @property
    def lists(self) -> tuple[Ids, Ids]:
        return (NO_IDS if self.near is None else self.near.ids), (
            NO_IDS if self.named is None else self.named.ids
        )

    @property
    def hint(self) -> str | None:
        return None if self.near is None else self.near.hint


class _Taken(NamedTuple):
    """What is to be ranked of one project, and the messages that lend their scores to those
    beside them.
    """

    found: _Found
    ids: Ids
    beside: Mapping[int, chunk_rows.Candidate]


class _Scores(NamedTuple):
    """Candidates with their scores on each side."""

    ids: Ids
    meaning: Vectors | None
    words: Vectors | None


def plan_for(
    query: str, embedder: Embedder, *, alpha: float | None, limit: int, window: int
) -> Plan:
    """Check a query and decide how to answer it.

    A window is filled by both retrievers, half by each.
    """
    return plan.make(
        query, alpha=alpha, best_alpha=embedder.alpha, limit=limit, pool=max(POOL, window // 2)
    )


def first(stores: Stores, request: Request, *, depth: int) -> Segment:
    """The window: the best of both retrievers, ranked. What else they found is kept in reserve."""
    pool = request.plan.pool
    with _one_state(stores, request):
        weights = _fair(stores.words, request)
        found = _found(stores, request, weights, max(depth, pool), given=NO_IDS)
        empty = Segment(
            number=0, start=0, served=Served.WINDOW, entries=NO_ENTRIES, frontier=found.now
        )
        return _next(stores, request, empty, found.said, weights, None, share=pool)


def _one_state(stores: Stores, request: Request) -> AbstractContextManager[None]:
    """One state for all that is read; several projects are asked in threads of their own, and
    each sees its own.
    """
    return stores.catalog.snapshot() if len(request.projects) == 1 else nullcontext()


def further(
    stores: Stores, request: Request, last: Segment, given: Given, *, step: int
) -> Segment | None:
    """The segment behind the last one, past the window; None at the end of everything.

    What is in reserve comes first, unless something was written since it was found. Then the vector
    index goes on by itself if it can, and is asked for more if it can't; what was given is left
    out. A retriever that has no more is at its end.
    """
    with _one_state(stores, request):
        return _further(stores, request, last, given, step=step)


def _further(
    stores: Stores, request: Request, last: Segment, given: Given, *, step: int
) -> Segment | None:
    frontier = last.frontier
    weights = _fair(stores.words, request)
    if dict(frontier.seqs) != {project.id: project.seq for project in request.projects}:
        frontier = _found(
            stores, request, weights, frontier.depth, given=given.ids, was=frontier
        ).now
    while not any(map(len, frontier.reserve)):
        if frontier.exhausted:
            return None
        depth = min(frontier.depth * 2, stores.vectors.capabilities.max_k)
        deeper = _found(
            stores, request, weights, depth, given=given.ids, was=frontier, go_on=True
        ).now
        frontier = replace(deeper, exhausted=deeper.exhausted or depth == frontier.depth)
    served = Served.HINT if frontier.hinted else Served.WIDER
    start = Segment(
        number=last.number + 1,
        start=last.stop,
        served=served,
        entries=NO_ENTRIES,
        frontier=frontier,
        best=last.best,
        low=last.low,
    )
    sides = int(request.plan.uses_vectors) + int(request.plan.uses_words)
    share = max(1, step // sides // max(1, sum(1 for one in frontier.reserve if len(one))))
    return _next(stores, request, start, {}, weights, given, share=share)


class _Frontiers(NamedTuple):
    """Where retrieval stands now, and what was said of each project on the way."""

    now: Frontier
    said: Mapping[int, _Found]


def _found(
    stores: Stores,
    request: Request,
    weights: Mapping[int, Mapping[str, float]],
    depth: int,
    *,
    given: Ids,
    was: Frontier | None = None,
    go_on: bool = False,
) -> _Frontiers:
    """Ask both retrievers about every project.

    With `go_on`, a vector index that declares native continuation goes on from its own hints.
    """
    hints = (
        was.hints
        if was is not None and go_on and stores.vectors.capabilities.native_continuation
        else {}
    )

    def ask(project: int) -> _Found:
        more = depth - was.depth if was is not None and project in hints else depth
        return _retrieve(
            stores, request, project, weights[project], depth, k=more, hint=hints.get(project)
        )

    found = _each(stores, [project.id for project in request.projects], ask)
    reserve = tuple(
        Reserve(project=one.project, near=_without(near, given), named=_without(named, given))
        for one in found
        for near, named in [one.lists]
    )
    now = Frontier(
        depth=depth,
        exhausted=_is_exhausted(found, depth, hints),
        scale=() if was is None else was.scale,
        majority="" if was is None else was.majority,
        reserve=reserve,
        hints={one.project: one.hint for one in found if one.hint is not None},
        hinted=bool(hints),
        seqs={project.id: project.seq for project in request.projects},
        short=any(one.near is not None and one.near.is_short for one in found),
    )
    return _Frontiers(now, {one.project: one for one in found})


def _next(
    stores: Stores,
    request: Request,
    segment: Segment,
    said: Mapping[int, _Found],
    weights: Mapping[int, Mapping[str, float]],
    given: Given | None,
    *,
    share: int,
) -> Segment:
    """The segment with the best of the reserve, so many from each side of each project, ranked."""
    taken: list[_Taken] = []
    reserve: list[Reserve] = []
    for one in segment.frontier.reserve:
        ids = np.unique(np.concatenate([one.near[:share], one.named[:share]]))
        leading = np.unique(
            np.concatenate([one.near[: min(share, SEEDS)], one.named[: min(share, SEEDS)]])
        )
        ids, beside = _with_neighbours(stores, request, ids, leading, given)
        reserve.append(
            replace(
                one, near=_without(one.near[share:], ids), named=_without(one.named[share:], ids)
            )
        )
        taken.append(
            _Taken(said.get(one.project) or _unscored(one.project, request.plan), ids, beside)
        )
    waiting = sum(len(np.union1d(one.near, one.named)) for one in reserve if len(one))
    segment = replace(
        segment, frontier=replace(segment.frontier, reserve=tuple(reserve), waiting=waiting)
    )
    return _ranked(stores, request, segment, taken, weights, given)


def _with_neighbours(
    stores: Stores, request: Request, ids: Ids, leading: Ids, given: Given | None
) -> tuple[Ids, Mapping[int, chunk_rows.Candidate]]:
    """Candidates together with the messages that stand beside the leading ones, and all messages
    that lend each other their scores.

    Those beside them are found as well, unless a filter looks at messages, or the walk has had
    them; then they only lend their scores.
    """
    said = {
        one.id: one
        for one in stores.kept.get(stores.catalog, request.projects, ids.tolist()).values()
        if one.kind == Kind.CHAT
    }
    if not said:
        return ids, {}
    with stores.catalog.read() as connection:
        near = chunk_rows.load_neighbours(
            connection, [id_ for id_ in leading.tolist() if id_ in said]
        )
    stores.kept.learn(request.projects, near)
    beside = said | near
    if request.where is not None and fields_of(request.where) & INSIDE:
        return ids, beside
    new = np.fromiter(beside, dtype=np.int64, count=len(beside))
    return np.union1d(ids, new if given is None else _without(new, given.ids)), beside


def _retrieve(
    stores: Stores,
    request: Request,
    project: int,
    weights: Mapping[str, float],
    depth: int,
    *,
    k: int,
    hint: str | None,
) -> _Found:
    """The best of each side. With a hint the vector index gives only the k that come after."""
    near = named = None
    if request.plan.uses_vectors and request.vector is not None:
        near = stores.vectors.search(project, request.vector, k=k, where=request.where, hint=hint)
    if request.plan.uses_words:
        named = stores.words.search(project, weights, k=depth, where=request.where)
    return _Found(project, near, named)


def _is_exhausted(found: Sequence[_Found], depth: int, hints: Mapping[int, str]) -> bool:
    """Whether no retriever has more to give.

    One that goes on by hints has more as long as it gives a hint.
    """
    for one in found:
        near, named = one.lists
        if (
            one.hint is not None
            or len(named) >= depth
            or (len(near) >= depth and one.project not in hints)
        ):
            return False
    return True


def _unscored(project: int, asked: Plan) -> _Found:
    return _Found(
        project,
        Matches.none() if asked.uses_vectors else None,
        Matches.none() if asked.uses_words else None,
    )


def _each(stores: Stores, projects: Sequence[int], ask: Callable[[int], _Found]) -> list[_Found]:
    """Ask about every project; several at once."""
    return (
        [ask(project) for project in projects]
        if len(projects) < 2
        else list(stores.executor.map(ask, projects))
    )


def _fair(words: WordIndex, request: Request) -> dict[int, Mapping[str, float]]:
    """The weights of the terms in each project.

    How much a word tells depends on how rare it is, and that is counted in each project by itself:
    in a project that is all about sessions the word 'session' tells nothing, so its best chunks
    would rank below a passing mention in another. Weighing each term by its rarity over all the
    projects together makes them comparable, whatever their sizes.
    """
    weights = request.plan.weights
    if len(request.projects) < 2 or not request.plan.uses_words:
        return {project.id: weights for project in request.projects}
    own = {project.id: words.statistics(project.id, weights) for project in request.projects}
    total = sum(one.chunks for one in own.values())
    overall = {
        term: inverse_document_frequency(sum(one.frequencies[term] for one in own.values()), total)
        for term in weights
    }
    return {
        id_: {
            term: weight
            * overall[term]
            / inverse_document_frequency(one.frequencies[term], one.chunks)
            for term, weight in weights.items()
        }
        for id_, one in own.items()
    }


def _ranked(
    stores: Stores,
    request: Request,
    segment: Segment,
    taken: Sequence[_Taken],
    weights: Mapping[int, Mapping[str, float]],
    given: Given | None,
) -> Segment:
    """The segment with its entries, ranked among themselves on the scale of the first segment."""
    asked = request.plan
    asked_for = [id_ for one in taken for id_ in one.ids.tolist()]
    known = stores.kept.get(stores.catalog, request.projects, asked_for)
    # one stands in another's place: what is kept is out of date
    if len({(one.document_id, one.position) for one in known.values()}) < len(known):
        stores.kept.clear()
        known = stores.kept.get(stores.catalog, request.projects, asked_for)
    candidates = list(known.values())
    if given is not None:
        candidates = _news(stores.catalog, candidates, given)
    majority = segment.frontier.majority if given is not None else _majority(asked, candidates)
    scores = _joined(
        [
            _scored(
                stores, request, one, _without_majority(asked, weights[one.found.project], majority)
            )
            for one in taken
        ],
        asked,
    )
    scale = (
        fusion.Scale.of(segment.frontier.scale)
        if segment.frontier.scale
        else fusion.scale(scores.meaning, scores.words, asked.alpha)
    )
    fused = (
        fusion.fuse(scores.meaning, scores.words, asked.alpha, scale)
        if len(scores.ids)
        else np.zeros(0, dtype=np.float32)
    )
    by_id = dict(zip(scores.ids.tolist(), fused.tolist(), strict=True))
    scale = _lend(by_id, taken, scale, anew=given is None)
    order = ranking.rank(
        candidates, by_id, terms=tuple(asked.weights), identifiers=asked.identifiers
    )
    grouped, repeats = ranking.with_copies(order, frozenset() if given is None else given.text_keys)
    entries = _entries(grouped, segment.low)
    shown = entries["score"][~entries["is_copy"]]
    if request.min_score is not None:
        wanted = _reach(entries, request.min_score)
        entries, grouped = (
            entries[wanted],
            [one for one, is_wanted in zip(grouped, wanted, strict=True) if is_wanted],
        )
    kept = set(entries["id"].tolist())
    return replace(
        segment,
        entries=entries,
        best=float(shown[0]) if given is None and len(shown) else segment.best,
        low=float(shown[-1]) if len(shown) else segment.low,
        dropped=np.array([id_ for id_ in known if id_ not in kept], dtype=np.int64),
        repeats=len(repeats),
        lost=len(asked_for) - len(known),
        reasons=tuple(_reasons(grouped, scores)) if request.explain else (),
        frontier=replace(segment.frontier, scale=scale.flat, majority=majority),
    )


def _news(
    catalog: Catalog, candidates: Sequence[chunk_rows.Candidate], given: Given
) -> list[chunk_rows.Candidate]:
    """Candidates without those that replaced a chunk which the walk has had: that one was shown, or
    its successor in its place.

    Asked after the candidates were read, so that one which replaced another cannot be taken for new
    while somebody writes.
    """
    places = [given.places.get((one.document_id, one.position)) for one in candidates]
    before = [id_ for id_ in places if id_ is not None]
    if not before:
        return list(candidates)
    with catalog.read() as connection:
        present = chunk_rows.find_existing(connection, before)
    return [
        one for one, id_ in zip(candidates, places, strict=True) if id_ is None or id_ in present
    ]


def _lend(
    by_id: dict[int, float], taken: Sequence[_Taken], scale: fusion.Scale, *, anew: bool
) -> fusion.Scale:
    """Give messages a part of their neighbours' scores; the scale says by what all are divided,
    so that the best is as good as before.
    """
    messages = [one for project in taken for one in project.beside.values()]
    if not messages:
        return scale
    lent = ranking.in_context(messages, by_id)
    if anew:
        best = max(by_id[id_] for id_ in lent)
        scale = scale._replace(context=max(lent.values()) / best if best > 0 else 1.0)
    by_id.update((id_, score / scale.context) for id_, score in lent.items())
    return scale


def _scored(
    stores: Stores, request: Request, taken: _Taken, weights: Mapping[str, float]
) -> _Scores:
    """Every candidate of a project, scored on both sides; a side is only asked for what it has
    not said already.
    """
    meaning = words = None
    found, ids = (
        taken.found,
        np.union1d(taken.ids, np.fromiter(taken.beside, dtype=np.int64, count=len(taken.beside))),
    )
    vector = request.vector
    if found.near is not None and vector is not None:
        meaning = _completed(
            found.near, ids, lambda rest: stores.vectors.score(found.project, vector, rest)
        )
    if found.named is not None:
        said = found.named if len(weights) == len(request.plan.weights) else Matches.none()
        words = _completed(said, ids, lambda rest: stores.words.score(found.project, weights, rest))
    return _Scores(ids, meaning, words)


def _completed(said: Matches, ids: Ids, score: Callable[[Ids], Vectors]) -> Vectors:
    scores = np.empty(len(ids), dtype=np.float32)
    unknown = np.ones(len(ids), dtype=np.bool_)
    if len(ids) and len(said.ids):
        at = np.minimum(np.searchsorted(ids, said.ids), len(ids) - 1)
        among = ids[at] == said.ids
        scores[at[among]] = said.scores[among]
        unknown[at[among]] = False
    if unknown.any():
        scores[unknown] = score(ids[unknown])
    return scores


def _joined(parts: Sequence[_Scores], asked: Plan) -> _Scores:
    return _Scores(
        ids=np.concatenate([part.ids for part in parts]),
        meaning=np.concatenate([part.meaning for part in parts if part.meaning is not None])
        if asked.uses_vectors
        else None,
        words=np.concatenate([part.words for part in parts if part.words is not None])
        if asked.uses_words
        else None,
    )


def _majority(asked: Plan, candidates: Iterable[chunk_rows.Candidate]) -> str:
    """What most candidates are, a language or talk, where the query has a term that says nothing
    there.
    """
    if not asked.idle:
        return ""
    sorts = Counter(
        candidate.kind if candidate.kind == Kind.CHAT else candidate.language
        for candidate in candidates
    )
    sort, count = sorts.most_common(1)[0] if sorts else ("", 0)
    return sort if count * 2 > sorts.total() else ""


def _without_majority(
    asked: Plan, weights: Mapping[str, float], majority: str
) -> Mapping[str, float]:
    return without_idle(asked, majority, weights) if majority else weights


def _entries(grouped: Sequence[tuple[ranking.Ranked, bool]], floor: float | None) -> Entries:
    """Ranked chunks as rows.

    Scores only fall along a walk: what a later segment ranks higher than an earlier one ended is
    cut to that.
    """
    rows = [
        (
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
    if floor is not None:
        np.minimum(entries["score"], floor, out=entries["score"])
    return entries


def _reach(entries: Entries, least: float) -> npt.NDArray[np.bool_]:
    """Which entries have at least a score; a copy has that of the text that is shown for it."""
    lead = np.maximum.accumulate(np.where(entries["is_copy"], 0, np.arange(len(entries))))
    reached: npt.NDArray[np.bool_] = (
        np.round(entries["score"].astype(np.float64), SCORE_DIGITS)[lead] >= least
    )
    return reached


def _reasons(grouped: Sequence[tuple[ranking.Ranked, bool]], scores: _Scores) -> Iterable[str]:
    """Why each is where it is, in one line: words, closeness, boosts."""
    rows = {id_: row for row, id_ in enumerate(scores.ids.tolist())}
    for one, _ in grouped:
        row = rows[one.candidate.id]
        parts = [] if scores.words is None else [f"words {scores.words[row]:.1f}"]
        if scores.meaning is not None:
            parts.append(f"meaning {scores.meaning[row]:.2f}")
        yield "; ".join([*parts, f"fused {one.fused:.2f}", *one.reasons])


def _without(ids: Ids, others: Ids) -> Ids:
    """Ids in their order, those of the others left out."""
    return ids[~np.isin(ids, others)] if len(ids) and len(others) else ids
