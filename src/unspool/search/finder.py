"""Finding: a question becomes a frozen window and its first page, a continuation the next one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace

from unspool.catalog import Catalog, projects
from unspool.catalog.projects import ProjectRow
from unspool.catalog.windows import Windows
from unspool.domain import continuations, filters
from unspool.domain.continuations import Bookmark
from unspool.domain.events import Event, PageServed
from unspool.domain.queries import Page
from unspool.domain.reports import Progress
from unspool.embedders.base import Embedder, is_cut
from unspool.errors import ServiceError, SweptContinuationError
from unspool.index.stores import Store
from unspool.search import engine, paging
from unspool.search.engine import CandidateCache, Request, Stores
from unspool.search.paging import Turn, Turned
from unspool.search.plan import Plan
from unspool.search.queries import EmbeddedQuery, QueryCache
from unspool.search.walks import Seal, SignedWalk, StoredWalk, Walk
from unspool.windows import AskedProject, Question, Segment

OnProgress = Callable[[Progress], None]
# times that a search is repeated where somebody replaced what it found before it was ranked
AGAIN = 10
PARALLEL = 8  # projects that are asked at once
# Searches that run at once, and beside them later pages, which are short; the others wait their
# turn. Many threads that compute and read by turns hold one another up: 64 walkers on two cores got
# twice as many pages a second with this limit as without it.
AT_ONCE = max(2, os.cpu_count() or 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How walks are kept."""

    window: int  # how deep the first page looks; 0 means that there is no second
    lifetime_s: int
    # the next entries are ranked before they are asked for, when a page leaves too few for the next
    prefetch: bool
    signed: bool  # continuations carry their walk
    key: bytes  # what signs them
    at_once: int = AT_ONCE  # searches that run at the same time


@dataclass(slots=True)
class _Clock:
    """What the parts of one page took."""

    begun: float
    embed_s: float = 0.0
    search_s: float = 0.0
    searched: bool = False
    embedding: str = "unneeded"


class Finder:
    """Everything a search needs, put together once. Safe to use from several threads."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        store: Store,
        embedder: Embedder,
        windows: Windows | None,
        queries: QueryCache,
        habits: Habits,
        emit: Callable[[Event], None],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._embedder = embedder
        self._windows = windows
        self._queries = queries
        self._habits = habits
        self._emit = emit
        self._executor = ThreadPoolExecutor(PARALLEL, thread_name_prefix="unspool-search")
        self._searching, self._turning = (
            threading.BoundedSemaphore(habits.at_once),
            threading.BoundedSemaphore(habits.at_once),
        )
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="unspool-ahead")
        self._coming: dict[bytes, Future[None]] = {}
        self._stores = Stores(
            catalog=catalog,
            vectors=store,
            words=store.words,
            kept=CandidateCache(),
            executor=self._executor,
        )

    def close(self) -> None:
        """End the threads."""
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._executor.shutdown(wait=True, cancel_futures=True)

    def ask(
        self,
        question: Question,
        planned: Plan,
        rows: Sequence[ProjectRow],
        *,
        caller: str,
        on_progress: OnProgress | None,
    ) -> Page:
        """The first page."""
        clock = _Clock(begun=time.perf_counter())
        query = self._embedded(planned, clock)
        waiting = sum(self._store.fresh(row, on_progress) for row in rows)
        request = _request(question, planned, question.projects, query)
        question = replace(question, space_id=self._store.space_id)
        turn = self._turn(question, planned, lambda: request)
        with self._searching:
            begun = time.perf_counter()
            first = engine.first(self._stores, request, depth=self._habits.window)
            for _ in range(AGAIN):
                # where nobody writes, it would find the same
                if not first.lost or (now := self._current(question)) in ((), request.projects):
                    break
                request, question = replace(request, projects=now), replace(question, projects=now)
                first = engine.first(self._stores, request, depth=self._habits.window)
            clock.search_s, clock.searched = time.perf_counter() - begun, True
            turned = self._first_page(
                question, first, turn, None if query is None else query.kept, caller
            )
        for warning in self._store.take_warnings():
            turned = turned.warning(warning)
        if waiting:
            turned = turned.warning(_WAITING.format(waiting))
        if query is not None and is_cut(self._embedder, planned.query):
            turned = turned.warning(
                _TOO_LONG.format(self._embedder.max_tokens, self._embedder.name)
            )
        return self._told(turned, clock)

    def go_on(self, text: str, *, limit: int | None, max_tokens: int | None, caller: str) -> Page:
        """The page that a continuation leads to."""
        clock = _Clock(begun=time.perf_counter())
        self._await(text)
        with self._turning:
            walk, at = self._resumed(text, caller)
            question = walk.question
            planned = engine.plan_for(
                question.query,
                self._embedder,
                alpha=question.alpha,
                limit=question.limit,
                window=self._habits.window,
            )
            turn = self._turn(
                question, planned, lambda: self._asked_again(question, planned, clock)
            )
            if limit is not None:
                turn = replace(turn, limit=limit)
            if max_tokens is not None:
                turn = replace(turn, max_tokens=max_tokens)
            turned = self._turned(walk, at, turn)
        return self._told(turned, clock)

    def _resumed(self, text: str, caller: str) -> tuple[Walk, Bookmark]:
        if continuations.kind_of(text) == continuations.SIGNED:
            return SignedWalk.resumed(self._seal(caller), text, space_id=self._store.space_id)
        if self._windows is None:
            raise SweptContinuationError(
                "the continuation is kept where a replica cannot see it; follow it on the "
                "primary, or search again"
            )
        return StoredWalk.resumed(
            self._windows, self._seal(caller), text, space_id=self._store.space_id
        )

    def warm(self, queries: Sequence[str], *, on_done: Callable[[int], None]) -> int:
        """Embed queries ahead of time; returns how many were not known yet."""
        return self._queries.warm(queries, lifetime_s=self._habits.lifetime_s, on_done=on_done)

    def _first_page(
        self,
        question: Question,
        first: Segment,
        turn: Turn,
        query: tuple[bytes, bytes] | None,
        caller: str,
    ) -> Turned:
        seal = self._seal(caller)
        signed = SignedWalk.new(seal, question, first)
        if self._windows is None or self._habits.signed or not self._habits.window:
            return self._turned(signed, Bookmark(), turn)
        try:
            return self._turned(
                StoredWalk.new(self._windows, seal, question, first, query), Bookmark(), turn
            )
        # the caller can resume whatever the reason is, which names a path of this machine
        except ServiceError:
            return self._turned(signed, Bookmark(), turn).warning(_SIGNED)

    def _turned(self, walk: Walk, at: Bookmark, turn: Turn) -> Turned:
        turned = paging.turn(self._stores, walk, at, turn)
        if (
            self._habits.prefetch
            and turned.page.continuation is not None
            and turned.ahead < turn.limit
            and isinstance(walk, StoredWalk)
        ):
            self._look_ahead(walk, turn)
        return turned

    def _told(self, turned: Turned, clock: _Clock) -> Page:
        """The page, once whoever watches has been told.

        Nobody waits for that: a hook may take its time, or search itself.
        """
        page = turned.page
        # Going on past the window may have to embed the query again; that is counted once.
        further_s = (
            0.0
            if turned.searched_s is None
            else max(turned.searched_s - (0.0 if clock.searched else clock.embed_s), 0.0)
        )
        self._emit(
            PageServed(
                store=self._store.name,
                projects=len(page.projects),
                number=page.number,
                served=page.served,
                stability=page.stability,
                searched=clock.searched or turned.searched_s is not None,
                embedding=clock.embedding,
                hits=len(page.hits),
                tokens=page.tokens,
                is_last=page.continuation is None,
                embed_s=clock.embed_s,
                search_s=clock.search_s + further_s,
                hydrate_s=turned.hydrated_s,
                total_s=time.perf_counter() - clock.begun,
            )
        )
        return page

    def _look_ahead(self, walk: StoredWalk, turn: Turn) -> None:
        """Make a walk longer while its caller reads."""
        name = walk.name
        with suppress(RuntimeError):  # the corpus is being closed
            future = self._ahead.submit(paging.extend, self._stores, walk, turn)
            self._coming[name] = future
            future.add_done_callback(
                lambda done: (
                    self._coming.pop(name, None) if self._coming.get(name) is done else None
                )
            )

    def _await(self, text: str) -> None:
        """Where the walk is just being made longer, doing the same beside it would only take
        longer; if it waits for others, it is done here.
        """
        if self._coming and continuations.kind_of(text) == continuations.STORED:
            name, _ = continuations.read(text, catalog=self._catalog.identity, key=self._habits.key)
            future = self._coming.get(name)
            if future is not None and not future.cancel():
                wait([future])

    def _turn(self, question: Question, planned: Plan, request: Callable[[], Request]) -> Turn:
        return Turn(
            plan=planned,
            request=request,
            limit=question.limit,
            max_tokens=question.max_tokens,
            explain=question.explain,
            min_score=question.min_score,
            goes_on=self._habits.window > 0,
            count_tokens=self._embedder.count_tokens,
        )

    def _asked_again(self, question: Question, planned: Plan, clock: _Clock) -> Request:
        """The question asked again, of the projects as they are now."""
        return _request(question, planned, self._current(question), self._embedded(planned, clock))

    def _current(self, question: Question) -> tuple[AskedProject, ...]:
        """The projects of a question as they are now, with everything in them findable."""
        with self._catalog.read() as connection:
            rows = projects.list_projects(connection, [project.id for project in question.projects])
        for row in rows:
            self._store.fresh(row)
        return tuple(AskedProject(row.id, row.name, row.seq) for row in rows)

    def _embedded(self, planned: Plan, clock: _Clock) -> EmbeddedQuery | None:
        if not planned.uses_vectors:
            return None
        begun = time.perf_counter()
        query = self._queries.get(planned.query)
        clock.embed_s += time.perf_counter() - begun
        clock.embedding = "computed" if query.computed else "cached"
        return query

    def _seal(self, caller: str) -> Seal:
        habits = self._habits
        return Seal(
            key=habits.key,
            catalog=self._catalog.identity,
            caller=caller,
            lifetime_s=habits.lifetime_s,
            now=int(time.time()),
        )


def _request(
    question: Question,
    planned: Plan,
    projects: tuple[AskedProject, ...],
    query: EmbeddedQuery | None,
) -> Request:
    return Request(
        plan=planned,
        projects=projects,
        vector=None if query is None else query.vector,
        where=filters.parse(question.where),
        min_score=question.min_score,
        explain=question.explain,
    )


_TOO_LONG = (
    "of the query's meaning only the beginning was looked for: the first {} tokens are what {} "
    "reads"
)
_SIGNED = (
    "the continuation carries the ranking itself, because nothing can be written beside the "
    "catalog; `unspool doctor` tells more"
)
_WAITING = (
    "{} chunks are stored but not in the index yet, so they were not searched; ask again soon, "
    "or see `unspool doctor`"
)
