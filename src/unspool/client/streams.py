"""Answers as a service writes them, read from server-sent events."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Self

import httpx2

from unspool import Answer, wire
from unspool.answering.events import EventReader, TooLongError
from unspool.client.call import Call
from unspool.client.service import UNREADABLE, Service
from unspool.errors import InputError, UnreachableError, UnspoolError
from unspool.streaming import ResponseStream
from unspool.threads import get_cancellation

MAX_EVENT_BYTES = 64_000_000  # an answer comes with the chunks that it cites


class RemoteAnswerStream:
    """An answer as it is written: iterate over its text, then look at `answer`.

    `close` ends the request at once and may be called from another thread; so does leaving a `with`
    block, and dropping the object. A thread that waits for a piece then gets an `InputError`.
    """

    def __init__(self, service: Service, call: Call[Any]) -> None:
        self._is_over = True  # until the service has accepted
        self._answers: list[Answer] = []
        self._stream = service.stream(call)
        get_cancellation().register(self._stream.close)
        # The generator has no reference to this object, so that dropping the object ends both.
        self._pieces = _read_pieces(self._stream, service, self._answers)
        next(self._pieces)
        self._is_over = False

    @property
    def answer(self) -> Answer:
        """The whole answer. Before the end, an `InputError`."""
        if not self._answers:
            state = (
                "was closed before its end; ask again"
                if self._is_over
                else "is not at its end; iterate over its text first"
            )
            raise InputError(f"the answer {state}")
        return self._answers[-1]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._is_over:
            raise StopIteration
        try:
            return next(self._pieces)
        except BaseException as error:
            self._is_over = True
            if isinstance(error, CancelledError):
                raise InputError("the answer was closed while it was written; ask again") from None
            raise

    def close(self) -> None:
        """End the request. The text so far is lost, unless it was complete."""
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
        if not self._is_over:  # the caller left a loop over it
            self.close()


def _read_pieces(
    stream: ResponseStream, service: Service, answers: list[Answer]
) -> Generator[str, None, None]:
    """Yield an empty text when the service accepts, then the text, and append the answer."""
    chunks = iter(stream)
    yield next(chunks, b"").decode()
    reader = EventReader(most=MAX_EVENT_BYTES)
    for data in chunks:
        try:
            for event in reader.feed(data):
                if event.name == "text":
                    yield str(json.loads(event.data)["text"])
                elif event.name == "answer":
                    answers.append(wire.decode(Answer, json.loads(event.data)))
                elif event.name == "error":
                    raise service.error_of(httpx2.Response(500, content=event.data.encode()))
        except UNREADABLE as error:
            if isinstance(error, UnspoolError):
                raise
            state = "does not end" if isinstance(error, TooLongError) else "cannot be read"
            raise service.build_protocol_error(f"with an event that {state}") from error
    if not answers:
        raise UnreachableError(f"{service} broke off in the middle of its answer; ask again")
