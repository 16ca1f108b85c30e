"""Pages out of a walk: the next entries that still exist, hydrated and fitted to the budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from unspool.catalog import Catalog, conversations
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.chunks import IndexedFile, StoredChunk
from unspool.domain.continuations import Bookmark
from unspool.domain.documents import Chunk, Kind, Lines, Status
from unspool.domain.queries import (
    Form,
    Hit,
    Insights,
    Origin,
    Page,
    Served,
    Snippet,
    Source,
    Stability,
)
from unspool.errors import MalformedContinuationError
from unspool.index import analysis
from unspool.search import budget, engine, exchanges, freshness
from unspool.search.engine import SCORE_DIGITS, Request, Stores
from unspool.search.exchanges import Exchange
from unspool.search.plan import Plan
from unspool.search.snippets import cutter
from unspool.search.walks import Walk
from unspool.windows import Entries, Segment

# Below this share of the best score hardly anything is relevant any more. A walk to the hundredth
# hit that ends there loses 2 % of what it would find on code-repos and reads a quarter, loses 1 %
# on scifact and reads two thirds, and loses none on cosqa (bench/stopping.py).
DROP = 0.25
STEP = 100  # candidates that are ranked when a walk needs more


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How the next page is to be cut."""

    plan: Plan
    request: Callable[[], Request]  # what to ask the stores, should it come to that
    limit: int
    max_tokens: int
    explain: bool
    min_score: float | None
    goes_on: bool  # there may be a next page
    count_tokens: Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """An entry as it is shown: a chunk, where in the walk it ends, and the other places that
    hold its text.
    """

    chunk: Chunk
    file: IndexedFile | None
    score: float
    stop: int
    served: Served
    reason: str = ""
    changed: bool = False
    copies: tuple[str, ...] = ()


@dataclass(slots=True)
class _Gathered:
    """What is collected for a page."""

    groups: list[Group] = field(default_factory=list)
    # where in the walk entries ended that exist no more
    gone: list[int] = field(default_factory=list)
    searched_s: float | None = None  # how long going on past the window took, if it had to
    # the same for the whole page, so that it ends though somebody writes
    request: Request | None = None
    position: int = 0
    is_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """A page, and what getting it took."""

    page: Page
    ahead: int  # how many hits are ranked already behind it
    searched_s: float | None
    hydrated_s: float

    def warning(self, text: str) -> Turned:
        """The same with one more warning on the page."""
        return replace(self, page=replace(self.page, warnings=(*self.page.warnings, text)))


def turn(stores: Stores, walk: Walk, at: Bookmark, how: Turn) -> Turned:
    """Build the page at a position of a walk, with the continuation to the next."""
    begun = time.perf_counter()
    gathered = _gather(stores, walk, at, how)
    items = [group.chunk for group in gathered.groups]
    cut = cutter(frozenset(how.plan.terms))
    around = exchanges_of(stores.catalog, items)
    spending = _fit(items, cut, how, around, total=walk.question.max_total_tokens, spent=at.spent)
    shown = len(spending.fitted)
    stale = freshness.find_stale([group.file for group in gathered.groups[:shown]])
    hits = [
        _hit(group, cut, fit, exchange, at.shown + rank, how, stale=is_stale)
        for rank, (group, fit, exchange, is_stale) in enumerate(
            zip(gathered.groups, spending.fitted, around, stale, strict=False), 1
        )
    ]
    position = (
        gathered.position
        if shown == len(items)
        else gathered.groups[shown - 1].stop
        if shown
        else at.position
    )
    is_end = spending.used_up or (gathered.is_end and shown == len(items))
    ahead = _ahead(walk, position)
    served = (
        gathered.groups[shown - 1].served
        if shown
        else here.served
        if (here := walk.segment(at.position))
        else walk.last().served
    )
    least = DROP * walk.last().best
    dropped = bool(hits) and hits[-1].score < least
    before = walk.score_before(at.position)
    # said once in a walk
    drops = dropped and (before is None or round(before, SCORE_DIGITS) >= least) and not is_end
    page = Page(
        query=walk.question.query,
        projects=tuple(project.name for project in walk.question.projects),
        hits=tuple(hits),
        sources=sources(hits),
        insights=insights(hits),
        notes=tuple(
            _notes(
                hits,
                how,
                spending,
                gone=sum(stop <= position for stop in gathered.gone),
                repeats=walk.repeats(at.position, position if not is_end else position + 1),
                dropped=drops,
            )
        ),
        warnings=tuple(_warnings(how, spending, walk.last())),
        tokens=spending.tokens,
        tokens_remaining=spending.remaining,
        alpha=how.plan.alpha,
        number=at.number,
        served=served,
        stability=Stability.SNAPSHOT
        if served is Served.WINDOW
        else stores.vectors.capabilities.stability,
        remaining=ahead + walk.last().frontier.waiting
        if how.goes_on and (spending.used_up or not is_end)
        else 0,
        relevance_dropped=dropped,
    )
    hydrated = time.perf_counter() - begun - (gathered.searched_s or 0.0)
    if not is_end and how.goes_on:
        spent = at.spent + spending.tokens if walk.question.max_total_tokens else 0
        page = replace(
            page,
            continuation=walk.continuation(
                Bookmark(
                    position=position, number=at.number + 1, shown=at.shown + shown, spent=spent
                )
            ),
        )
        if page.continuation is None:
            page = replace(
                page,
                remaining=0,
                warnings=(
                    *page.warnings,
                    "there is more, but no continuation can carry that much; narrow the query",
                ),
            )
    return Turned(page=page, ahead=ahead, searched_s=gathered.searched_s, hydrated_s=hydrated)


def _warnings(how: Turn, spending: _Spending, last: Segment) -> Iterator[str]:
    if spending.forced:
        yield (
            f"not even a location fits into {how.max_tokens} tokens; the first hit is shown all "
            f"the same"
        )
    if last.frontier.short:
        yield (
            "the vector index stopped before it had found enough, so there may be more; raise "
            "UNSPOOL_MAX_SCAN_TUPLES or filter for less"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spending:
    """What the budgets allow of a page."""

    fitted: list[budget.Fitted]
    unshown: int
    remaining: int | None  # tokens of the whole walk
    used_up: bool = False
    forced: bool = False

    @property
    def tokens(self) -> int:
        return sum(fit.tokens for fit in self.fitted)


def exchanges_of(catalog: Catalog, chunks: Sequence[Chunk]) -> list[Exchange]:
    """What was said around those of the chunks that are messages."""
    ids = [chunk.id for chunk in chunks if chunk.kind is Kind.CHAT]
    if not ids:
        return [exchanges.NONE] * len(chunks)
    with catalog.read() as connection:
        return exchanges.exchanges(chunks, conversations.load_adjacent_messages(connection, ids))


def _fit(
    items: Sequence[Chunk],
    cut: Callable[[Chunk], Snippet],
    how: Turn,
    around: Sequence[Exchange],
    *,
    total: int,
    spent: int,
) -> _Spending:
    """Fit hits to the page's budget and to what is left of the walk's."""
    left = max(total - spent, 0) if total else None
    allowed = how.max_tokens if left is None else min(how.max_tokens or left, left)
    fitted = (
        budget.fit(
            items,
            cut,
            max_tokens=allowed,
            count=how.count_tokens,
            contexts=[one.context for one in around],
        )
        if allowed or left is None
        else []
    )
    forced = False
    if items and not fitted:  # a page is empty only at the end
        least = budget.least(items[0], how.count_tokens)
        forced = left is None or least.tokens <= left
        fitted = [least] if forced else []
    remaining = None if left is None else left - sum(fit.tokens for fit in fitted)
    used_up = remaining == 0 or (left is not None and allowed == left and len(fitted) < len(items))
    return _Spending(
        fitted=fitted,
        unshown=len(items) - len(fitted),
        remaining=remaining,
        used_up=used_up,
        forced=forced,
    )


def _gather(stores: Stores, walk: Walk, at: Bookmark, how: Turn) -> _Gathered:
    """As many entries as the page may hold; what is gone is stepped over, and where the walk
    ends it is made longer.
    """
    found = _Gathered(position=at.position)
    while len(found.groups) < how.limit:
        segment = walk.segment(found.position)
        if segment is None:
            if not _extend(stores, walk, found, how):
                found.is_end = True
                break
            continue
        _take(stores, walk, segment, found, how)
    else:
        found.is_end = walk.segment(found.position) is None and _is_end(walk.last(), how)
    return found


def _take(stores: Stores, walk: Walk, segment: Segment, found: _Gathered, how: Turn) -> None:
    """Take from one segment what is still wanted and still exists."""
    rows = segment.entries[found.position - segment.start :]
    if rows["is_copy"][0]:
        raise MalformedContinuationError(
            "this continuation points into the middle of a hit; copy it whole from the page "
            "before, or search again"
        )
    wanted = how.limit - len(found.groups)
    leads = np.flatnonzero(~rows["is_copy"])
    stop = int(leads[wanted]) if len(leads) > wanted else len(rows)
    rows = rows[:stop]
    with stores.catalog.read() as connection:
        chunks = chunk_rows.load_chunks(connection, rows["id"][~rows["is_copy"]].tolist())
        also = (
            chunk_rows.load_locations(connection, rows["id"][rows["is_copy"]].tolist())
            if rows["is_copy"].any()
            else {}
        )
    lost = [at for at in leads[leads < stop].tolist() if int(rows["id"][at]) not in chunks]
    stand_ins = _stand_ins(stores, walk, rows, lost, also, start=found.position) if lost else {}
    bounds = [*leads[leads < stop].tolist(), stop]
    for begin, end in pairwise(bounds):
        found.position += end - begin
        lead = int(rows["id"][begin])
        stored = chunks.get(lead) or stand_ins.get(begin)
        if stored is None:
            found.gone.append(found.position)
            continue
        chunk = stored.chunk
        others = [
            also[id_]
            for id_ in rows["id"][begin + 1 : end].tolist()
            if id_ in also and id_ != chunk.id
        ]
        found.groups.append(
            Group(
                chunk=chunk,
                file=stored.file,
                score=float(rows["score"][begin]),
                stop=found.position,
                served=segment.served,
                reason=segment.reasons[found.position - (end - begin) - segment.start]
                if segment.reasons
                else "",
                changed=lead not in chunks and chunk.id not in also,
                copies=tuple(map(_place, others)),
            )
        )


def _place(place: chunk_rows.ChunkLocation) -> str:
    return f"{place.path}:{Lines(place.first_line, place.last_line)}"


def _stand_ins(
    stores: Stores,
    walk: Walk,
    rows: Entries,
    lost: Sequence[int],
    also: Mapping[int, chunk_rows.ChunkLocation],
    *,
    start: int,
) -> dict[int, StoredChunk]:
    """Return the chunks to show in place of deleted ones, by row: a copy, else the chunk that is
    now at the same position of the document.

    A substitute stays with its entry, and is never shown in place of another one.
    """
    before = walk.substitutes()
    taken = set(before.values())
    inside = set(walk.given().ids.tolist())
    chosen: dict[int, int] = {}
    # one state for all of it: what stands there now must still be there when it is read
    with stores.catalog.read() as connection:
        now = chunk_rows.load_positions(
            connection, sorted({int(rows["document"][at]) for at in lost})
        )
        still = chunk_rows.find_existing(connection, sorted(taken)) if taken else set()
        for at in lost:
            copy = next((other for other in _copies(rows, at) if other in also), None)
            successor = now.get((int(rows["document"][at]), int(rows["position"][at])))
            if before.get(start + at) in still:
                chosen[at] = before[start + at]
            elif copy is not None:
                chosen[at] = copy
            elif (
                successor is not None
                and successor not in inside
                and successor not in taken
                and successor not in chosen.values()
            ):
                # two entries may have stood in one place, one after the other
                chosen[at] = successor
        chunks = chunk_rows.load_chunks(connection, list(chosen.values())) if chosen else {}
    new = {
        start + at: id_
        for at, id_ in chosen.items()
        if id_ not in also and before.get(start + at) != id_
    }
    if new:
        walk.substitute(new)
    return {at: chunks[id_] for at, id_ in chosen.items() if id_ in chunks}


def _copies(rows: Entries, lead: int) -> Iterator[int]:
    for at in range(lead + 1, len(rows)):
        if not rows["is_copy"][at]:
            return
        yield int(rows["id"][at])


def extend(stores: Stores, walk: Walk, how: Turn) -> None:
    """Make a walk longer ahead of time."""
    _extend(stores, walk, _Gathered(position=walk.last().stop), how)


def _extend(stores: Stores, walk: Walk, found: _Gathered, how: Turn) -> bool:
    """Make a walk longer; False at the end of everything."""
    if _is_end(walk.last(), how):
        return False
    begun = time.perf_counter()
    request = found.request = found.request or how.request()
    given = walk.given()
    is_longer = walk.segment(found.position) is not None  # by another caller, or ahead of time
    if not is_longer:
        segment = engine.further(stores, request, walk.last(), given, step=STEP)
        is_longer = segment is not None
        if segment is not None:
            walk.append(segment)
    found.searched_s = (found.searched_s or 0.0) + time.perf_counter() - begun
    return is_longer


def _is_end(last: Segment, how: Turn) -> bool:
    """Whether nothing follows.

    Scores only fall, so with a least score that is so once one is below it.
    """
    return last.frontier.is_end or (
        how.min_score is not None
        and last.low is not None
        and round(last.low, SCORE_DIGITS) < how.min_score
    )


def _hit(
    group: Group,
    cut: Callable[[Chunk], Snippet],
    fit: budget.Fitted,
    exchange: Exchange,
    rank: int,
    how: Turn,
    *,
    stale: bool | None,
) -> Hit:
    return Hit(
        chunk=group.chunk,
        score=round(group.score, SCORE_DIGITS),
        rank=rank,
        origin=_origin(how.plan),
        form=fit.form,
        cut=cut,
        tokens=fit.tokens,
        reason=_reason(group, how.plan) if how.explain else "",
        changed=group.changed,
        stale=stale,
        message=exchange.message,
        before=exchange.before if fit.with_context else (),
        after=exchange.after if fit.with_context else (),
        copies=group.copies,
    )


def _origin(plan: Plan) -> Origin:
    if plan.uses_vectors and plan.uses_words:
        return Origin.FUSED
    return Origin.VECTOR if plan.uses_vectors else Origin.KEYWORD


def _reason(group: Group, plan: Plan) -> str:
    """Why this hit, in one line; the words that were found are named."""
    if not plan.uses_words:
        return group.reason
    head, _, rest = group.reason.partition("; ")
    held = Counter(analysis.terms(group.chunk.text))
    words = [
        f"{term} x{held[term]}" if held[term] > 1 else term
        for term in dict.fromkeys(plan.terms)
        if held[term]
    ]
    found = ", ".join(words) or (
        "none" if head.endswith(" 0.0") else "only in its path or headings"
    )
    return f"{head} ({found}); {rest}"


def sources(hits: Sequence[Hit]) -> tuple[Source, ...]:
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


def insights(hits: Sequence[Hit]) -> Insights:
    languages = Counter(hit.chunk.language for hit in hits if hit.chunk.language)
    times = sorted(hit.chunk.modified for hit in hits if hit.chunk.modified is not None)
    return Insights(
        languages=dict(languages.most_common()),
        files=len({(hit.chunk.project, hit.chunk.path) for hit in hits}),
        earliest=times[0] if times else None,
        latest=times[-1] if times else None,
    )


def _notes(
    hits: Sequence[Hit], how: Turn, spending: _Spending, *, gone: int, repeats: int, dropped: bool
) -> Iterator[str]:
    stale = sum(hit.stale or hit.chunk.status is not Status.INDEXED for hit in hits)
    if stale:
        yield (
            f"{stale} of the hits come from documents that have changed since they were indexed; "
            f"index again to refresh them"
        )
    if gone:
        yield f"left out, because deleted since the first page: {_hits(gone)}"
    changed = sum(hit.changed for hit in hits)
    if changed:
        yield f"marked as changed, because rewritten since the first page: {_hits(changed)}"
    if repeats:
        yield f"left out, because earlier pages show the same text: {_hits(repeats)}"
    if spending.used_up:
        yield "the tokens of the whole walk are used up; what follows is not shown"
    elif spending.unshown:
        yield (
            f"{_hits(spending.unshown)} more did not fit into {how.max_tokens} tokens and will "
            f"lead the next page"
        )
    shortened = sum(hit.form is not Form.WHOLE for hit in hits)
    if shortened:
        yield f"shortened to fit into the budget: {_hits(shortened)}"
    if dropped:
        yield (
            f"relevance has dropped below {DROP:.0%} of the best hit's; go on only if you need "
            f"everything there is"
        )
    if how.plan.alpha < 1 and not how.plan.terms:
        yield "the query holds no word to look for, " + (
            "only meaning was searched"
            if how.plan.alpha
            else "so that nothing can be found by word"
        )


def _hits(count: int) -> str:
    return f"{count} hit" if count == 1 else f"{count} hits"


def _ahead(walk: Walk, position: int) -> int:
    """How many hits are ranked from a position on."""
    found = 0
    while (segment := walk.segment(position)) is not None:
        found += int((~segment.entries["is_copy"][position - segment.start :]).sum())
        position = segment.stop
    return found
