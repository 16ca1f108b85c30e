"""Pages: the next entries of a window that still exist, loaded and fitted to the token budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from unspool.catalog import Catalog, conversations
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.chunks import StoredChunk
from unspool.catalog.statements import group_by_project
from unspool.domain.continuations import Cursor
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
from unspool.search import budget, exchanges, freshness
from unspool.search.exchanges import Exchange
from unspool.search.plan import QueryPlan
from unspool.search.request import PageRequest
from unspool.search.snippets import make_cutter
from unspool.search.windows import SCORE_DIGITS, Entries, ResultWindow, WindowSegment, group_ids

# Below this share of the best score hardly anything is relevant. A reader who stops there before
# the hundredth hit loses 2 % of the relevant hits on code-repos and reads a quarter, loses 1 % on
# scifact and reads two thirds, and loses none on cosqa (bench/stopping.py).
DROP = 0.25


class Extender(Protocol):
    """Extension of a window past its last segment."""

    seconds: float | None  # spent so far; None if the window was not extended

    def extend(self, position: int) -> bool:
        """Rank entries from a position on; return False if there are no more."""


class BuiltPage(NamedTuple):
    """A page, the number of ranked hits behind it, and the time that its parts took."""

    page: Page
    ahead: int
    load_s: float
    extend_s: float | None  # None if the window was not extended


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedEntry:
    """An entry with its chunk, and the other places of the same text."""

    stored: StoredChunk
    score: float
    stop: int  # position behind it
    served: Served
    reason: str = ""
    changed: bool = False
    copies: tuple[str, ...] = ()


@dataclass(slots=True)
class _Loaded:
    """Entries that were loaded for a page."""

    position: int
    entries: list[_LoadedEntry] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)  # positions behind deleted entries
    is_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """Outcome of fitting hits to the budgets of the page and of all pages together."""

    fitted: list[budget.Fitted]
    unshown: int
    remaining: int | None  # tokens for later pages
    is_used_up: bool
    is_exceeded: bool  # the only hit does not fit into the page's budget

    @property
    def tokens(self) -> int:
        """Tokens of the page."""
        return sum(fit.tokens for fit in self.fitted)


def build_page(
    catalog: Catalog,
    window: ResultWindow,
    cursor: Cursor,
    size: PageRequest,
    extender: Extender,
    *,
    stability: Stability,
    count_tokens: Callable[[str], int],
) -> BuiltPage:
    """Build the page at a cursor, with the continuation to the next one."""
    begun = time.perf_counter()
    loaded = _load_entries(catalog, window, cursor, size, extender)
    request = window.request
    stored = [entry.stored for entry in loaded.entries]
    chunks = [one.chunk for one in stored]
    cut = make_cutter(frozenset(request.plan.terms))
    around = load_exchanges(catalog, stored)
    left = max(request.max_total_tokens - cursor.spent, 0) if request.max_total_tokens else None
    fit = _fit_to_budget(chunks, cut, around, size.max_tokens, left, count_tokens)
    shown = len(fit.fitted)
    hits = _make_hits(window, cursor, loaded.entries[:shown], fit, around, cut)
    if shown == len(chunks):
        position = loaded.position
    else:
        position = loaded.entries[shown - 1].stop if shown else cursor.position
    is_end = fit.is_used_up or (loaded.is_end and shown == len(chunks))
    ahead = window.count_hits(position)
    served = _name_source(window, cursor, loaded.entries[:shown])
    is_low, drops_here = _find_drop(window, cursor, hits)
    deleted = sum(stop <= position for stop in loaded.deleted)
    repeats = window.count_repeats(cursor.position, position + is_end)
    page = Page(
        query=request.plan.query,
        projects=tuple(project.name for project in request.projects),
        hits=tuple(hits),
        sources=list_sources(hits),
        insights=summarize(hits),
        notes=(
            *_note_changes(hits, deleted=deleted, repeats=repeats),
            *_note_budget(hits, fit, size),
            *_note_relevance(request.plan, drops=drops_here and not is_end),
        ),
        warnings=tuple(_warn(window.last, fit, size)),
        tokens=fit.tokens,
        tokens_remaining=fit.remaining,
        alpha=request.plan.alpha,
        number=cursor.number,
        served=served,
        stability=Stability.SNAPSHOT if served is Served.WINDOW else stability,
        remaining=ahead + window.last.tail.waiting
        if request.depth and (fit.is_used_up or not is_end)
        else 0,
        relevance_dropped=is_low,
    )
    load_s = time.perf_counter() - begun - (extender.seconds or 0.0)
    if not is_end and request.depth:
        spent = cursor.spent + fit.tokens if request.max_total_tokens else 0
        following = Cursor(
            position=position, number=cursor.number + 1, shown=cursor.shown + shown, spent=spent
        )
        page = _add_continuation(page, window, following)
    return BuiltPage(page, ahead, load_s, extender.seconds)


def _add_continuation(page: Page, window: ResultWindow, cursor: Cursor) -> Page:
    continuation = window.make_continuation(cursor)
    if continuation is not None:
        return replace(page, continuation=continuation)
    warning = "there is more, but no continuation can carry that much; narrow the query"
    return replace(page, remaining=0, warnings=(*page.warnings, warning))


def _load_entries(
    catalog: Catalog, window: ResultWindow, cursor: Cursor, size: PageRequest, extender: Extender
) -> _Loaded:
    """Load entries up to the page's limit. Deleted ones are skipped, the window is extended."""
    loaded = _Loaded(position=cursor.position)
    while len(loaded.entries) < size.limit:
        segment = window.find_segment(loaded.position)
        if segment is not None:
            _load_segment(catalog, window, segment, loaded, size.limit)
        elif not extender.extend(loaded.position):
            loaded.is_end = True
            return loaded
    is_behind = window.find_segment(loaded.position) is None
    loaded.is_end = is_behind and window.last.is_end(window.request.min_score)
    return loaded


def _load_segment(
    catalog: Catalog, window: ResultWindow, segment: WindowSegment, loaded: _Loaded, limit: int
) -> None:
    """Load the entries of one segment that are still wanted and still exist."""
    rows = segment.entries[loaded.position - segment.start :]
    if rows["is_copy"][0]:
        raise MalformedContinuationError(
            "this continuation points into the middle of a hit; copy it whole from the page "
            "before, or search again"
        )
    wanted = limit - len(loaded.entries)
    leads = np.flatnonzero(~rows["is_copy"])
    stop = int(leads[wanted]) if len(leads) > wanted else len(rows)
    rows, leads = rows[:stop], leads[leads < stop]
    with catalog.read() as connection:
        chunks = chunk_rows.load_chunks(connection, group_ids(rows[leads]))
        copies = chunk_rows.load_locations(connection, group_ids(rows[rows["is_copy"]]))
    ids = dict(zip(leads.tolist(), rows["id"][leads].tolist(), strict=True))
    found = {at: chunks[id_] for at, id_ in ids.items() if id_ in chunks}
    deleted = [at for at in ids if at not in found]
    if deleted:
        start = loaded.position
        found |= _find_substitutes(catalog, window, rows, deleted, copies, start=start)
    for begin, end in pairwise([*leads.tolist(), stop]):
        loaded.position += end - begin
        if begin not in found:
            loaded.deleted.append(loaded.position)
            continue
        chunk = found[begin].chunk
        others = [id_ for id_ in rows["id"][begin + 1 : end].tolist() if id_ != chunk.id]
        at = loaded.position - (end - begin) - segment.start
        loaded.entries.append(
            _LoadedEntry(
                stored=found[begin],
                score=float(rows["score"][begin]),
                stop=loaded.position,
                served=segment.served,
                reason=segment.reasons[at] if segment.reasons else "",
                changed=begin in deleted and chunk.id not in copies,
                copies=tuple(_format_place(copies[id_]) for id_ in others if id_ in copies),
            )
        )


def _format_place(place: chunk_rows.ChunkLocation) -> str:
    return f"{place.path}:{Lines(place.first_line, place.last_line)}"


def _find_substitutes(
    catalog: Catalog,
    window: ResultWindow,
    rows: Entries,
    deleted: Sequence[int],
    copies: Mapping[int, chunk_rows.ChunkLocation],
    *,
    start: int,
) -> dict[int, StoredChunk]:
    """Return the chunks to show in place of deleted ones, by row.

    A substitute is a copy, else the chunk that is now at the same position of the document. It
    stays with its entry, and is never shown in place of another one.
    """
    window.reload()
    before = window.substitutes()
    taken = set(before.values())
    seen = set(window.seen_ids().tolist())
    chosen: dict[int, int] = {}
    # One snapshot for all reads: a substitute must still exist when it is loaded.
    with catalog.read() as connection:
        now = chunk_rows.load_positions(
            connection, sorted({int(rows["document"][at]) for at in deleted})
        )
        owners = {at: int(rows["project"][at]) for at in deleted}
        shown = [(owners[at], before[start + at]) for at in deleted if start + at in before]
        still = chunk_rows.find_existing(connection, group_by_project(shown))
        for at in deleted:
            copy = next((other for other in _list_copies(rows, at) if other in copies), None)
            successor = now.get((int(rows["document"][at]), int(rows["position"][at])))
            if before.get(start + at) in still:
                chosen[at] = before[start + at]
            elif copy is not None:
                chosen[at] = copy
            elif successor is not None and successor not in seen | taken | set(chosen.values()):
                chosen[at] = successor
        wanted = ((owners[at], id_) for at, id_ in chosen.items())
        chunks = chunk_rows.load_chunks(connection, group_by_project(wanted))
    new = {
        start + at: id_
        for at, id_ in chosen.items()
        if id_ not in copies and before.get(start + at) != id_
    }
    if new:
        window.add_substitutes(new)
    return {at: chunks[id_] for at, id_ in chosen.items() if id_ in chunks}


def _list_copies(rows: Entries, lead: int) -> Iterator[int]:
    for at in range(lead + 1, len(rows)):
        if not rows["is_copy"][at]:
            return
        yield int(rows["id"][at])


def load_exchanges(catalog: Catalog, stored: Sequence[StoredChunk]) -> list[Exchange]:
    """Load the messages around those chunks that are messages."""
    chunks = [one.chunk for one in stored]
    ids = group_by_project(
        (one.project_id, one.chunk.id) for one in stored if one.chunk.kind is Kind.CHAT
    )
    if not ids:
        return [exchanges.NONE] * len(chunks)
    with catalog.read() as connection:
        return exchanges.build_exchanges(
            chunks, conversations.load_adjacent_messages(connection, ids)
        )


def _fit_to_budget(
    chunks: Sequence[Chunk],
    cut: Callable[[Chunk], Snippet],
    around: Sequence[Exchange],
    max_tokens: int,
    left: int | None,
    count_tokens: Callable[[str], int],
) -> _Budget:
    """Fit hits to the page's budget, and to the tokens that are left for all pages."""
    allowed = max_tokens if left is None else min(max_tokens or left, left)
    fitted: list[budget.Fitted] = []
    if allowed or left is None:
        contexts = [one.context for one in around]
        fitted = budget.fit_hits(
            chunks, cut, max_tokens=allowed, count=count_tokens, contexts=contexts
        )
    is_exceeded = False
    if chunks and not fitted:  # a page is empty only at the end
        shortest = budget.shorten_hit(chunks[0], count_tokens)
        is_exceeded = left is None or shortest.tokens <= left
        fitted = [shortest] if is_exceeded else []
    remaining = None if left is None else left - sum(fit.tokens for fit in fitted)
    is_short = left is not None and allowed == left and len(fitted) < len(chunks)
    return _Budget(
        fitted=fitted,
        unshown=len(chunks) - len(fitted),
        remaining=remaining,
        is_used_up=remaining == 0 or is_short,
        is_exceeded=is_exceeded,
    )


def _make_hits(
    window: ResultWindow,
    cursor: Cursor,
    entries: Sequence[_LoadedEntry],
    fit: _Budget,
    around: Sequence[Exchange],
    cut: Callable[[Chunk], Snippet],
) -> list[Hit]:
    plan = window.request.plan
    stale = freshness.find_stale([entry.stored.file for entry in entries])
    rows = zip(entries, fit.fitted, around, stale, strict=False)
    return [
        Hit(
            chunk=entry.stored.chunk,
            score=round(entry.score, SCORE_DIGITS),
            rank=rank,
            origin=_name_origin(plan),
            form=form.form,
            cut=cut,
            tokens=form.tokens,
            reason=_explain(entry, plan) if window.request.explain else "",
            changed=entry.changed,
            stale=is_stale,
            message=exchange.message,
            before=exchange.before if form.with_context else (),
            after=exchange.after if form.with_context else (),
            copies=entry.copies,
        )
        for rank, (entry, form, exchange, is_stale) in enumerate(rows, cursor.shown + 1)
    ]


def _name_origin(plan: QueryPlan) -> Origin:
    if plan.uses_vectors and plan.uses_words:
        return Origin.FUSED
    return Origin.VECTOR if plan.uses_vectors else Origin.KEYWORD


def _explain(entry: _LoadedEntry, plan: QueryPlan) -> str:
    """Return the reason for a hit in one line, with the words that it contains."""
    if not plan.uses_words:
        return entry.reason
    head, _, rest = entry.reason.partition("; ")
    counts = Counter(analysis.extract_terms(entry.stored.chunk.text))
    words = [
        f"{term} x{counts[term]}" if counts[term] > 1 else term
        for term in dict.fromkeys(plan.terms)
        if counts[term]
    ]
    found = ", ".join(words) or (
        "none" if head.endswith(" 0.0") else "only in its path or headings"
    )
    return f"{head} ({found}); {rest}"


def _name_source(window: ResultWindow, cursor: Cursor, entries: Sequence[_LoadedEntry]) -> Served:
    if entries:
        return entries[-1].served
    return (window.find_segment(cursor.position) or window.last).served


def _find_drop(window: ResultWindow, cursor: Cursor, hits: Sequence[Hit]) -> tuple[bool, bool]:
    """Return whether the last hit is below the relevance drop, and whether that is new."""
    least = DROP * window.last.best
    is_low = bool(hits) and hits[-1].score < least
    before = window.score_before(cursor.position)
    return is_low, is_low and (before is None or round(before, SCORE_DIGITS) >= least)


def list_sources(hits: Sequence[Hit]) -> tuple[Source, ...]:
    """Return the documents of the hits, in their order."""
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


def summarize(hits: Sequence[Hit]) -> Insights:
    """Return counts by language and file, and the range of modification times."""
    languages = Counter(hit.chunk.language for hit in hits if hit.chunk.language)
    times = sorted(hit.chunk.modified for hit in hits if hit.chunk.modified is not None)
    return Insights(
        languages=dict(languages.most_common()),
        files=len({(hit.chunk.project, hit.chunk.path) for hit in hits}),
        earliest=times[0] if times else None,
        latest=times[-1] if times else None,
    )


def _note_changes(hits: Sequence[Hit], *, deleted: int, repeats: int) -> Iterator[str]:
    stale = sum(hit.stale or hit.chunk.status is not Status.INDEXED for hit in hits)
    if stale:
        yield (
            f"{stale} of the hits come from documents that have changed since they were indexed; "
            f"index again to refresh them"
        )
    if deleted:
        yield f"left out, because deleted since the first page: {_count_hits(deleted)}"
    changed = sum(hit.changed for hit in hits)
    if changed:
        yield f"marked as changed, because rewritten since the first page: {_count_hits(changed)}"
    if repeats:
        yield f"left out, because earlier pages show the same text: {_count_hits(repeats)}"


def _note_budget(hits: Sequence[Hit], fit: _Budget, size: PageRequest) -> Iterator[str]:
    if fit.is_used_up:
        yield "the token budget of all pages together is used up; further hits are not shown"
    elif fit.unshown:
        yield (
            f"{_count_hits(fit.unshown)} more did not fit into {size.max_tokens} tokens and will "
            f"lead the next page"
        )
    shortened = sum(hit.form is not Form.WHOLE for hit in hits)
    if shortened:
        yield f"shortened to fit into the budget: {_count_hits(shortened)}"


def _note_relevance(plan: QueryPlan, *, drops: bool) -> Iterator[str]:
    if drops:
        yield (
            f"relevance has dropped below {DROP:.0%} of the best hit's; continue only if you need "
            f"every match"
        )
    if plan.alpha < 1 and not plan.terms:
        yield "the query contains no word to search for, " + (
            "only meaning was searched" if plan.alpha else "so that nothing can be found by word"
        )


def _warn(last: WindowSegment, fit: _Budget, size: PageRequest) -> Iterator[str]:
    if fit.is_exceeded:
        yield (
            f"not even a location fits into {size.max_tokens} tokens; the first hit is shown all "
            f"the same"
        )
    if last.tail.is_truncated:
        yield (
            "the vector index stopped before it had found enough, so there may be more; filter "
            "for less, or raise UNSPOOL_MAX_SCAN_TUPLES on PostgreSQL"
        )


def _count_hits(count: int) -> str:
    return f"{count} hit" if count == 1 else f"{count} hits"
