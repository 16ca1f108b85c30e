"""Answers as a service writes them: read from its events, ended by closing them."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Self

import httpx2

from unspool.answering.events import Event, EventReader, TooLongError
from unspool.calling import Stream
from unspool.client import parsing
from unspool.client.call import Call
from unspool.client.sending import Sender
from unspool.client.service import Service
from unspool.domain.answers import Answer
from unspool.errors import InputError, UnreachableError
from unspool.threads import get_cancellation

MAX_EVENT_BYTES = 64_000_000  # an answer comes with the chunks that it cites


class _Reading:
    """State of an answer that is being read."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._events = EventReader(most=MAX_EVENT_BYTES)
        self.answer: Answer | None = None

    def feed(self, data: bytes) -> list[str]:
        """Return the pieces of text in some bytes."""
        try:
            return [piece for event in self._events.feed(data) for piece in self._read_event(event)]
        except TooLongError as error:
            raise self._service.strange("with an event that does not end") from error

    def finish(self) -> None:
        """Raise `UnreachableError` if the answer is incomplete."""
        if self.answer is None:
            raise UnreachableError(
                f"{self._service} broke off in the middle of its answer; ask again"
            )

    def _read_event(self, event: Event) -> Iterator[str]:
        try:
            data = json.loads(event.data)
            if event.name == "text":
                yield str(data["text"])
            elif event.name == "answer":
                self.answer = parsing.answer(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._service.strange("with an event that cannot be read") from error
        if event.name == "error":
            raise self._service.error_of(httpx2.Response(500, content=event.data.encode()))


class RemoteAnswerStream:
    """An answer as it is written: iterate over its text, then look at `answer`.

    `close` ends the request at once and may be called from another thread; so does leaving a `with`
    block, and dropping the object. A thread that waits for a piece then gets an `InputError`.
    """

    def __init__(self, sender: Sender, call: Call[Any]) -> None:
        self._is_over = True  # until it has begun
        self._reading = _Reading(sender.service)
        self._stream = sender.stream(call)
        get_cancellation().register(self._stream.close)
        # which does not know this object: once it is dropped, it is gone
        self._pieces = _pieces(self._stream, self._reading)
        next(self._pieces)  # nothing but that the service has found what it will answer from
        self._is_over = False

    @property
    def answer(self) -> Answer:
        """The whole answer. Before the end, an `InputError`."""
        if self._reading.answer is None:
            state = (
                "was closed before its end; ask again"
                if self._is_over
                else "is not at its end; iterate over its text first"
            )
            raise InputError(f"the answer {state}")
        return self._reading.answer

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._is_over:
            raise StopIteration
        try:
            return next(self._pieces)
        except CancelledError:
            self._is_over = True
            raise InputError("the answer was closed while it was written; ask again") from None
        except BaseException:
            self._is_over = True
            raise

    def close(self) -> None:
        """End it. What has been written is lost, unless it was the whole."""
        self._is_over = True
        self._stream.close()
        try:
            self._pieces.close()
        except ValueError:  # another thread is in it, and is being woken
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_over:  # somebody left a loop over it
            self.close()


def _pieces(stream: Stream, reading: _Reading) -> Generator[str, None, None]:
    """Nothing, as soon as the service has accepted; then the text as it comes."""
    coming = iter(stream)
    yield next(coming, b"").decode()
    for data in coming:
        yield from reading.feed(data)
    reading.finish()
