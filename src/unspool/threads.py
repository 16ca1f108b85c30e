"""Threads that run the synchronous API for async programs.

`aio.py` and `client/asynchronous.py` start them. The client asks its `Cancellation` where it waits.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import ParamSpec, Protocol, Self, TypeVar

import anyio
from anyio import from_thread, to_thread

from unspool.domain.answers import Answer

# threads that wait for models: their own, so that slow answers cannot keep searches waiting
ANSWERS_AT_ONCE = 40
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


async def run(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Run a function in a thread. A call that is cancelled waits for the function to return."""
    return await to_thread.run_sync(partial(function, *args, **kwargs))


class Cancellation:
    """Signal from a cancelled task to the thread that works for it.

    A thread that needs time to clean up sets `cleanup_s`, and the task waits for it as long.
    """

    def __init__(self) -> None:
        self.cleanup_s = 0.0
        self._event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Wake the thread, and call what it has registered."""
        self._event.set()
        for callback in self._callbacks:
            callback()

    def register(self, callback: Callable[[], None]) -> None:
        """Call a function when the task is cancelled, or now if it already is."""
        self._callbacks.append(callback)
        if self._event.is_set():
            callback()

    def wait(self, seconds: float = 0.0) -> None:
        """Wait some seconds. Raise `CancelledError` when the task is cancelled, but only once:
        the thread may clean up after it.
        """
        if self._event.wait(seconds):
            self._event.clear()
            raise CancelledError


_cancellation: ContextVar[Cancellation] = ContextVar("cancellation")


def get_cancellation() -> Cancellation:
    """Return the cancellation of this thread; outside of `run_cancellable`, one that never is."""
    return _cancellation.get(None) or Cancellation()


async def run_cancellable(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Run a function in a thread. A call that is cancelled returns, and signals the thread."""
    cancellation, ended = Cancellation(), threading.Event()

    def work() -> Result:
        _cancellation.set(cancellation)  # in a copy of the context, which ends with the thread
        try:
            return function(*args, **kwargs)
        finally:
            ended.set()

    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        cancellation.cancel()
        if cancellation.cleanup_s:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(ended.wait, cancellation.cleanup_s)
        raise


def call_in_loop(callback: Callable[[Result], None] | None) -> Callable[[Result], None] | None:
    """Return a callback that a thread of `run_cancellable` can call. It runs in the event loop."""
    if callback is None:
        return None
    return lambda value: from_thread.run_sync(callback, value)


class Closable(Protocol):
    """Object with a `close` method that is awaited."""

    async def close(self) -> None:
        """Close every file and connection."""


Closing = TypeVar("Closing", bound=Closable)


@asynccontextmanager
async def manage(
    open_corpus: Callable[[], Result], wrap: Callable[[Result], Closing]
) -> AsyncIterator[Closing]:
    """Open a corpus in a thread, and close it at the end of the block."""
    opened = wrap(await run(open_corpus))
    try:
        yield opened
    finally:
        with anyio.CancelScope(shield=True):  # a cancelled task closes its files, too
            await opened.close()


class TextStream(Protocol):
    """Answer as it is written, read by a thread that waits for it."""

    @property
    def answer(self) -> Answer:
        """The complete answer. Before the end, an `InputError`."""

    def __next__(self) -> str:
        """Wait for the next piece of text."""

    def close(self) -> None:
        """End the request. May be called from any thread."""


class AsyncAnswerStream:
    """Answer as it is written, awaited piece by piece.

    A task that is cancelled while it waits ends the request at once.
    """

    def __init__(self, stream: TextStream, limiter: anyio.CapacityLimiter) -> None:
        self._stream = stream
        self._limiter = limiter

    @property
    def answer(self) -> Answer:
        """The complete answer. Before the end, an `InputError`."""
        return self._stream.answer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            piece = await to_thread.run_sync(
                self._read_piece, abandon_on_cancel=True, limiter=self._limiter
            )
        except anyio.get_cancelled_exc_class():
            self._stream.close()  # which wakes the thread
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    def _read_piece(self) -> str | None:
        # a `StopIteration` cannot leave a thread
        try:
            return next(self._stream)
        except StopIteration:
            return None

    async def close(self) -> None:
        """End the request. The text so far is lost, unless the answer is complete."""
        self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()
