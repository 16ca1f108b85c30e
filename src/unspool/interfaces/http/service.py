"""What all requests of a process share: the corpus, its jobs, who watches, and the threads in
which calls that block are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope

from unspool.corpus import Corpus
from unspool.errors import UnspoolError
from unspool.interfaces.http.errors import BUG, CALLER, BugError, body, stopping
from unspool.interfaces.http.responses import EventStream, JsonResponse, encoded, event
from unspool.interfaces.http.rooms import Room
from unspool.jobs import JobQueue, JobsView
from unspool.observability import Observer
from unspool.settings import Settings
from unspool.views import View

# 64 clients get as many answers from 4, 16 or 32 threads: Python does one thing at a time, a
# database 8 (`pool_size`)
SEARCHES_AT_ONCE = 8
# they wait for each other and for embedders: in threads of their own, so that searches do not wait
# with them
WRITES_AT_ONCE = 8
ANSWERS_AT_ONCE = 40  # they wait for models: the same
LOOKS_AT_ONCE = 2  # at keys, which every request begins with: they must not wait for searches
PARSED_AT_ONCE = 2  # large bodies: they are work for the processor alone
_T = TypeVar("_T")


class Threads:
    """So many threads and no more.

    A call whose request was given up keeps its thread until it ends: what nobody waits for is
    bounded, too.
    """

    def __init__(self, name: str, at_once: int) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)

    async def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """What a function gives. It sees the context of the request."""
        call = partial(copy_context().run, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Service:
    """An open service.

    `over` is set when it is told to stop: streams end then, and what else is under way may finish.
    """

    def __init__(self, corpus: Corpus, jobs: JobQueue, observer: Observer) -> None:
        self.corpus = corpus
        self.jobs = jobs
        self.observer = observer
        self.threads = Threads("unspool-request", SEARCHES_AT_ONCE)
        self.writes = Threads("unspool-write", WRITES_AT_ONCE)
        self.answers = Threads("unspool-answer", ANSWERS_AT_ONCE)
        self.brief = Threads("unspool-brief", LOOKS_AT_ONCE)
        self.parsing = Threads("unspool-parse", PARSED_AT_ONCE)
        most = self.settings.serve.queue
        self.requests = Room(most, "requests")
        self.streams = Room(most, "streams")
        self.questions = Room(most, "questions", each=ANSWERS_AT_ONCE // 2)
        self.over = asyncio.Event()

    @property
    def settings(self) -> Settings:
        """Those of the corpus."""
        return self.corpus.settings

    def close(self) -> None:
        """Let go of everything."""
        self.jobs.close(self.settings.serve.drain_s)
        for threads in (self.threads, self.writes, self.answers, self.brief, self.parsing):
            threads.close()
        self.observer.close()
        self.corpus.close()


class Caller:
    """Who asks, for one request: a view of the corpus, and the threads to look at it in."""

    def __init__(self, service: Service, view: View, held: ExitStack) -> None:
        self.service = service
        self.view = view
        self._held = held  # its place among the requests under way

    def move(self, room: Room) -> None:
        """Take a place among what takes long instead of that among the requests, which others
        wait for.
        """
        with ExitStack() as taken:
            taken.enter_context(room.place(self.view.scope.caller))
            self._held.close()
            self._held.enter_context(taken.pop_all())

    async def json(self, work: Callable[[View], Mapping[str, Any]]) -> JsonResponse:
        """What some work on the view gives, as JSON."""
        return await self._json(self.service.threads, work)

    async def written(self, work: Callable[[View], Mapping[str, Any]]) -> JsonResponse:
        """The same for work that stores or removes something."""
        return await self._json(self.service.writes, work)

    async def _json(
        self, threads: Threads, work: Callable[[View], Mapping[str, Any]]
    ) -> JsonResponse:
        return JsonResponse(await threads.run(lambda: encoded(work(self.view))))

    @property
    def jobs(self) -> JobsView:
        """The jobs that exist for the caller."""
        return JobsView(self.service.jobs, self.view)

    def stream(self, events: AsyncIterator[bytes]) -> EventStream:
        """Events as they come; the last one says so where the service stops before they end."""
        return EventStream(events, over=self.service.over, last=event("error", body(stopping())))

    def failed(self, error: Exception) -> dict[str, Any]:
        """An error within a stream that has begun, as the caller may know it; what is none of
        ours is told to the log alone.
        """
        own = error if isinstance(error, UnspoolError) else BugError(BUG)
        self.service.observer.error(own.code, None if own is error else error)
        return body(own, self.view.scope.role)


def caller_of(request: Request) -> Caller:
    """Who asks; `Admission` has found out."""
    return in_scope(request.scope)


def in_scope(scope: Scope) -> Caller:
    """The same for a bare ASGI application."""
    found = scope[CALLER]
    assert isinstance(found, Caller)
    return found


Asking = Annotated[Caller, Depends(caller_of)]
