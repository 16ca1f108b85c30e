"""Resources that all requests of a process share, and the caller of one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial, wraps
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from starlette.requests import Request

from unspool import wire
from unspool.corpus import Corpus
from unspool.interfaces.http.errors import (
    CALLER,
    STOPPING,
    DownError,
    convert,
    create_body,
    report,
)
from unspool.interfaces.http.limits import ConcurrencyLimit
from unspool.interfaces.http.responses import (
    EventStream,
    JsonResponse,
    encode,
    encode_event,
)
from unspool.jobs import JobQueue, ScopedJobs
from unspool.observability import Observer

# 64 clients get as many answers from 4, 16 or 32 threads: Python does one thing at a time, a
# database 8 (`pool_size`)
SEARCHES_AT_ONCE = 8
# they wait for each other and for embedders, and searches must not wait with them
WRITES_AT_ONCE = 8
ANSWERS_AT_ONCE = 40  # they wait for models: the same
LOOKUPS_AT_ONCE = 2  # of keys, which start every request: they must not wait for searches
PARSED_AT_ONCE = 2  # large bodies, which need the processor alone
_T = TypeVar("_T")


class Threads(ThreadPoolExecutor):
    """Pool of threads for calls that block.

    A call whose request was given up keeps its thread until it ends, so that abandoned calls are
    limited, too.
    """

    async def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """Return the result of a function, which runs in the context of the request."""
        call = partial(copy_context().run, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self, call)


class ServiceState:
    """Resources of an open service.

    `stopping` is set when the service is told to stop: streams end, other requests may finish.
    """

    def __init__(self, corpus: Corpus, jobs: JobQueue, observer: Observer) -> None:
        self.corpus = corpus
        self.jobs = jobs
        self.observer = observer
        self.reads = Threads(SEARCHES_AT_ONCE, "unspool-request")
        self.writes = Threads(WRITES_AT_ONCE, "unspool-write")
        self.answers = Threads(ANSWERS_AT_ONCE, "unspool-answer")
        self.lookups = Threads(LOOKUPS_AT_ONCE, "unspool-lookup")
        self.parsing = Threads(PARSED_AT_ONCE, "unspool-parse")
        self._options = corpus.settings.serve
        limit = self._options.queue
        self.requests = ConcurrencyLimit(limit, "requests")
        self.streams = ConcurrencyLimit(limit, "streams")
        self.questions = ConcurrencyLimit(limit, "questions", per_key=ANSWERS_AT_ONCE // 2)
        self.stopping = asyncio.Event()

    def close(self) -> None:
        """Close the corpus and everything that uses it."""
        self.stopping.set()
        self.jobs.close(self._options.drain_s)
        for threads in (self.reads, self.writes, self.answers, self.lookups, self.parsing):
            threads.shutdown(wait=False, cancel_futures=True)
        self.observer.close()
        self.corpus.close()


class ApiCaller:
    """Caller of one request, with its scoped corpus."""

    def __init__(self, service: ServiceState, corpus: Corpus, slots: ExitStack) -> None:
        self.service = service
        self.corpus = corpus
        self._slots = slots  # of the concurrency limit that counts the request

    def move(self, limit: ConcurrencyLimit) -> None:
        """Count the request under another limit, because it takes long."""
        with ExitStack() as acquired:
            acquired.enter_context(limit.acquire(self.corpus.scope.caller))
            self._slots.close()
            self._slots.enter_context(acquired.pop_all())

    @property
    def jobs(self) -> ScopedJobs:
        """Jobs that the caller may see."""
        return ScopedJobs(self.service.jobs, self.corpus)

    def stream(self, events: AsyncGenerator[bytes]) -> EventStream:
        """Return events as a response. If the service stops, the last event says so."""
        last = encode_event("error", create_body(DownError(STOPPING)))
        return EventStream(events, stopping=self.service.stopping, last=last)

    def report(self, error: Exception) -> bytes:
        """Report an error within a stream, and return it as an event."""
        shape = report(convert(error, {}), self.service.observer, self.corpus.scope.role)
        return encode_event("error", shape)


def find_caller(request: Request) -> ApiCaller:
    """Return the caller of a request that passed `authentication.Authentication`."""
    caller = request.scope[CALLER]
    assert isinstance(caller, ApiCaller)
    return caller


CurrentCaller = Annotated[ApiCaller, Depends(find_caller)]
_Handler = Callable[..., wire.Json]
_AsyncHandler = Callable[..., Coroutine[Any, Any, JsonResponse]]


def read(function: _Handler) -> _AsyncHandler:
    """Run a handler in the threads for reads, and return its result as JSON."""
    return _run_in_threads(function, "reads")


def write(function: _Handler) -> _AsyncHandler:
    """Run a handler in the threads for writes, and return its result as JSON."""
    return _run_in_threads(function, "writes")


def _run_in_threads(function: _Handler, pool: str) -> _AsyncHandler:
    def call(caller: ApiCaller, values: dict[str, Any]) -> bytes:
        return encode(function(caller, **values))

    @wraps(function)
    async def handle(caller: ApiCaller, **values: Any) -> JsonResponse:
        threads: Threads = getattr(caller.service, pool)
        return JsonResponse(await threads.run(call, caller, values))

    return handle
