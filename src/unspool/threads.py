"""Threads that run the synchronous API for async programs; `aio.py` calls them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import ParamSpec, Protocol, Self, TypeVar

import anyio
from anyio import to_thread

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


class Closable(Protocol):
    """An object with a `close` method that is awaited."""

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
    """An answer as it is written, read by a thread that waits for it."""

    @property
    def answer(self) -> Answer:
        """The complete answer. Before the end, an `InputError`."""

    def __next__(self) -> str:
        """Wait for the next piece of text."""

    def close(self) -> None:
        """End the request. May be called from any thread."""


class AsyncAnswerStream:
    """An answer as it is written, awaited piece by piece.

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
