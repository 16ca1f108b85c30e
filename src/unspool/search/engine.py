"""The search engine: a request becomes a window and its first page, a continuation the next page.

The steps are in the order of execution: request.py, plan.py, queries.py (embed), retrieve.py,
segments.py (score, fuse, rank), windows.py (freeze), pages.py (load, fit to the budget).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace

from unspool.catalog import Catalog, projects
from unspool.catalog.projects import ProjectVersion
from unspool.catalog.windows import WindowStore
from unspool.domain import continuations
from unspool.domain.continuations import Cursor
from unspool.domain.events import Event, PageServed
from unspool.domain.queries import Page
from unspool.domain.reports import OnProgress
from unspool.embedders.base import Embedder, is_cut
from unspool.errors import ServiceError, SweptContinuationError
from unspool.index.indexes import Indexes
from unspool.index.ports import Vectors
from unspool.search.options import SearchOptions
from unspool.search.pages import BuiltPage, build_page
from unspool.search.plan import make_plan
from unspool.search.queries import EmbeddedQuery, QueryCache
from unspool.search.request import PageRequest, SearchRequest, list_versions
from unspool.search.retrieve import CandidateCache, Retrievers
from unspool.search.segments import rank_first, rank_more
from unspool.search.signed import SignedWindow
from unspool.search.windows import ResultWindow, Signer, StoredWindow, WindowSegment

MAX_RETRIES = 10  # of a search whose candidates were deleted before they were ranked
PARALLEL_PROJECTS = 8
# Searches that run at once, and besides them later pages, which are short. The others wait. Many
# threads that alternate between computing and reading hold one another up: 64 clients on two cores
# got twice as many pages a second with this limit as without it.
CONCURRENCY = max(2, os.cpu_count() or 2)

_CUT_WARNING = (
    "the query is longer than the {0} tokens that {1} reads; only the first {0} tokens were used "
    "for semantic search"
)
_SIGNED_WARNING = (
    "the continuation carries the ranking itself, because nothing can be written beside the "
    "catalog; `unspool doctor` tells more"
)
_FALLBACK_WARNING = "only words were searched: {}"
_WAITING_WARNING = (
    "{} chunks are stored but not in the index yet, so they were not searched; ask again soon, "
    "or see `unspool doctor`"
)


@dataclass(slots=True)
class _Timings:
    """Timings of one page."""

    begun: float
    embed_s: float = 0.0
    search_s: float = 0.0
    is_searched: bool = False
    embedding: str = "unneeded"


class SearchEngine:
    """Search over one catalog and its indexes. Safe to use from several threads."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        indexes: Indexes,
        embedder: Embedder,
        windows: WindowStore | None,
        queries: QueryCache,
        options: SearchOptions,
        key: bytes,
        emit: Callable[[Event], None],
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._catalog = catalog
        self._indexes = indexes
        self._embedder = embedder
        self._windows = windows
        self._queries = queries
        self._options = options
        self._key = key  # signs continuations
        self._emit = emit
        self._executor = ThreadPoolExecutor(PARALLEL_PROJECTS, thread_name_prefix="unspool-search")
        self._prefetcher = ThreadPoolExecutor(1, thread_name_prefix="unspool-prefetch")
        self._prefetching: dict[bytes, Future[bool]] = {}
        self._search_slots = threading.BoundedSemaphore(concurrency)
        self._page_slots = threading.BoundedSemaphore(concurrency)
        self._retrievers = Retrievers(
            catalog=catalog,
            vectors=indexes.vectors,
            words=indexes.words,
            cache=CandidateCache(),
            executor=self._executor,
        )

    def close(self) -> None:
        """End the threads."""
        self._prefetcher.shutdown(wait=True, cancel_futures=True)
        self._executor.shutdown(wait=True, cancel_futures=True)

    def search(
        self, request: SearchRequest, *, caller: str, on_progress: OnProgress | None = None
    ) -> Page:
        """Rank a window, freeze it, and return its first page.

        If meaning cannot be searched, words are, if the options say so.
        """
        try:
            return self._search(request, caller, on_progress)
        except ServiceError as error:
            plan = request.plan
            if self._options.fallback == "fail" or not (plan.uses_vectors and plan.terms):
                raise
            words = make_plan(plan.query, alpha=0.0, limit=request.limit, depth=request.depth)
            page = self._search(replace(request, plan=words), caller, on_progress)
            warning = _FALLBACK_WARNING.format(error)
            return replace(page, warnings=(warning, *page.warnings))

    def _search(self, request: SearchRequest, caller: str, on_progress: OnProgress | None) -> Page:
        timings = _Timings(begun=time.perf_counter())
        query = self._embed(request, timings)
        vector = None if query is None else query.vector
        words_only = not request.plan.uses_vectors
        waiting = sum(
            self._indexes.catch_up(project, on_progress, words_only=words_only)
            for project in request.projects
        )
        request = replace(request, space_id=self._indexes.space_id)
        with self._search_slots:
            begun = time.perf_counter()
            request, first = self._rank_stable(request, vector)
            timings.search_s, timings.is_searched = time.perf_counter() - begun, True
            built = self._freeze(request, first, query, caller, timings)
        warnings = [*built.page.warnings, *self._indexes.take_warnings()]
        if waiting:
            warnings.append(_WAITING_WARNING.format(waiting))
        if query is not None and is_cut(self._embedder, request.plan.query):
            warnings.append(_CUT_WARNING.format(self._embedder.max_tokens, self._embedder.name))
        return self._emit_page(replace(built.page, warnings=tuple(warnings)), built, timings)

    def resume(
        self, continuation: str, *, limit: int | None, max_tokens: int | None, caller: str
    ) -> Page:
        """Return the page for a continuation. `limit` and `max_tokens` change this page alone."""
        timings = _Timings(begun=time.perf_counter())
        self._await_prefetch(continuation)
        with self._page_slots:
            window, cursor = self._load_window(continuation, caller)
            size = PageRequest.create(window.request, limit=limit, max_tokens=max_tokens)
            built = self._build_page(window, cursor, size, _Extender(self, window, timings))
        return self._emit_page(built.page, built, timings)

    def warm(self, queries: Sequence[str], *, on_done: Callable[[int], None]) -> int:
        """Embed queries ahead of time; return how many were not known yet."""
        return self._queries.warm(queries, lifetime_s=self._options.continuation_s, on_done=on_done)

    def _embed(self, request: SearchRequest, timings: _Timings) -> EmbeddedQuery | None:
        if not request.plan.uses_vectors:
            return None
        begun = time.perf_counter()
        query = self._queries.get(request.plan.query)
        timings.embed_s += time.perf_counter() - begun
        timings.embedding = "computed" if query.computed else "cached"
        return query

    def _rank_stable(
        self, request: SearchRequest, vector: Vectors | None
    ) -> tuple[SearchRequest, WindowSegment]:
        """Rank the first segment. Repeat it if candidates were deleted before they were ranked."""
        first = rank_first(self._retrievers, request, vector)
        for _ in range(MAX_RETRIES):
            if not first.lost:
                break
            current = self._list_current(request)
            if current in ((), request.projects):  # nobody writes: it would find the same
                break
            request = replace(request, projects=current)
            first = rank_first(self._retrievers, request, vector)
        return request, first

    def _list_current(self, request: SearchRequest) -> tuple[ProjectVersion, ...]:
        """Return the projects of a request as they are now, with everything in them findable."""
        with self._catalog.read() as connection:
            rows = projects.list_projects(connection, list(request.versions))
        for row in rows:
            self._indexes.catch_up(row, words_only=not request.plan.uses_vectors)
        return list_versions(rows)

    def _freeze(
        self,
        request: SearchRequest,
        first: WindowSegment,
        query: EmbeddedQuery | None,
        caller: str,
        timings: _Timings,
    ) -> BuiltPage:
        """Build the first page, from a stored window if one can be stored."""
        signer, size = self._make_signer(caller), PageRequest.create(request)
        vector = None if query is None else query.vector

        def build(window: ResultWindow) -> BuiltPage:
            extender = _Extender(self, window, timings, (request, vector))
            return self._build_page(window, Cursor(), size, extender)

        signed = SignedWindow(signer, request, first)
        if self._windows is None or self._options.continuations == "signed" or not request.depth:
            return build(signed)
        kept = None if query is None else query.kept
        try:
            return build(StoredWindow(self._windows, signer, request, [first], query_vector=kept))
        except ServiceError:  # its message names a path of this machine
            built = build(signed)
            warnings = (*built.page.warnings, _SIGNED_WARNING)
            return built._replace(page=replace(built.page, warnings=warnings))

    def _build_page(
        self, window: ResultWindow, cursor: Cursor, size: PageRequest, extender: _Extender
    ) -> BuiltPage:
        built = build_page(
            self._catalog,
            window,
            cursor,
            size,
            extender,
            stability=self._indexes.vectors.capabilities.stability,
            count_tokens=self._embedder.count_tokens,
        )
        is_short = built.page.continuation is not None and built.ahead < size.limit
        if self._options.prefetch and is_short and isinstance(window, StoredWindow):
            self._prefetch(window, extender)
        return built

    def _load_window(self, continuation: str, caller: str) -> tuple[ResultWindow, Cursor]:
        signer, space_id = self._make_signer(caller), self._indexes.space_id
        if continuations.kind_of(continuation) == continuations.SIGNED:
            return SignedWindow.resume(signer, continuation, space_id=space_id)
        if self._windows is None:
            raise SweptContinuationError(
                "the continuation is stored where a replica cannot see it; follow it on the "
                "primary, or search again"
            )
        return StoredWindow.resume(self._windows, signer, continuation, space_id=space_id)

    def _make_signer(self, caller: str) -> Signer:
        return Signer(
            key=self._key,
            catalog=self._catalog.identity,
            caller=caller,
            lifetime_s=self._options.continuation_s,
            now=int(time.time()),
        )

    def _emit_page(self, page: Page, built: BuiltPage, timings: _Timings) -> Page:
        """Emit `PageServed` and return the page. No lock is held: a hook may search itself."""
        # Extending a window may embed the query again, which is counted once.
        embed_s = 0.0 if timings.is_searched else timings.embed_s
        extend_s = 0.0 if built.extend_s is None else max(built.extend_s - embed_s, 0.0)
        self._emit(
            PageServed(
                store=self._indexes.name,
                projects=len(page.projects),
                number=page.number,
                served=page.served,
                stability=page.stability,
                searched=timings.is_searched or built.extend_s is not None,
                embedding=timings.embedding,
                hits=len(page.hits),
                tokens=page.tokens,
                is_last=page.continuation is None,
                embed_s=timings.embed_s,
                search_s=timings.search_s + extend_s,
                hydrate_s=built.load_s,
                total_s=time.perf_counter() - timings.begun,
            )
        )
        return page

    def _prefetch(self, window: StoredWindow, extender: _Extender) -> None:
        """Extend a window while its caller reads."""
        name = window.name
        ahead = _Extender(self, window, _Timings(begun=0.0), extender.query)

        def forget(done: Future[bool]) -> None:
            if self._prefetching.get(name) is done:
                self._prefetching.pop(name, None)

        with suppress(RuntimeError):  # the engine is being closed
            future = self._prefetcher.submit(ahead.extend, window.last.stop)
            self._prefetching[name] = future
            future.add_done_callback(forget)

    def _await_prefetch(self, continuation: str) -> None:
        """Wait for the extension of this window. If it has not begun, cancel it."""
        if self._prefetching and continuations.kind_of(continuation) == continuations.STORED:
            name, _ = continuations.read(
                continuation, catalog=self._catalog.identity, key=self._key
            )
            future = self._prefetching.get(name)
            if future is not None and not future.cancel():
                wait([future])


class _Extender:
    """Extension of one window, with one request for the whole page, so that it ends."""

    def __init__(
        self,
        engine: SearchEngine,
        window: ResultWindow,
        timings: _Timings,
        query: tuple[SearchRequest, Vectors | None] | None = None,
    ) -> None:
        self._engine = engine
        self._window = window
        self._timings = timings
        self.query = query  # None: the request is repeated for the projects as they are now
        self.seconds: float | None = None

    def extend(self, position: int) -> bool:
        """Rank entries from a position on; return False if there are no more."""
        engine, window = self._engine, self._window
        if window.last.is_end(window.request.min_score):
            return False
        begun = time.perf_counter()
        if self.query is None:
            current = engine._list_current(window.request)
            embedded = engine._embed(window.request, self._timings)
            request = replace(window.request, projects=current)
            self.query = request, None if embedded is None else embedded.vector
        window.reload()
        # Another caller or a prefetch may have extended it already.
        is_longer = window.find_segment(position) is not None
        if not is_longer:
            segment = rank_more(engine._retrievers, *self.query, window)
            is_longer = segment is not None
            if segment is not None:
                window.append(segment)
        self.seconds = (self.seconds or 0.0) + time.perf_counter() - begun
        return is_longer
