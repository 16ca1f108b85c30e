"""Reply of a hosted model as it arrives: retried before its first piece, closed from any
thread.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from unspool.answering.events import MAX_EVENT_BYTES, TooLongError, parse_events
from unspool.answering.models import ReplyFacts
from unspool.answering.options import AnswerOptions
from unspool.calling import ModelServer, Names
from unspool.errors import ServiceError, UnreachableError
from unspool.pacing import Backoff, retry
from unspool.streaming import ResponseStream

# a user waits for the answer: a call is not retried if a server asks for a longer pause
PATIENCE_S = 30.0
_RETRYABLE = (
    "overloaded_error",
    "api_error",
    "server_error",
    "rate_limit_error",
    "timeout_error",
)
CUT = {
    "length": (
        "the model stopped at the longest answer it may write; raise UNSPOOL_ANSWER_MAX_TOKENS "
        "for more"
    ),
    "refused": "the model's provider stopped the answer; ask in other words",
}
NAMES = Names(
    prefix="UNSPOOL_ANSWER",
    model="UNSPOOL_ANSWER_MODEL",
    slower="ask again later",
    refused=(
        "lower UNSPOOL_ANSWER_CONTEXT_TOKENS or UNSPOOL_ANSWER_MAX_TOKENS if this model takes "
        "less, or check UNSPOOL_ANSWER_MODEL"
    ),
)


class Reply:
    """Reply of a hosted model as pieces of text.

    `facts` are complete at its end. `close` ends the request at once.
    """

    def __init__(
        self,
        begin: Callable[[], ResponseStream],
        read: Callable[[ResponseStream, Reply], Iterator[str]],
        *,
        backoff: Backoff,
        options: AnswerOptions,
    ) -> None:
        self.facts = ReplyFacts()
        self.is_done = False  # set by `read` when the model reports the end
        self._begin = begin
        self._read = read
        self._backoff = backoff
        self._retries = options.retries
        self._closed = threading.Event()
        self._stream: ResponseStream | None = None
        self._pieces: Generator[str, None, None] = self._run()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def note(self, **facts: Any) -> None:
        """Add facts about the reply. Those that are None are unknown."""
        self.facts = replace(
            self.facts, **{name: value for name, value in facts.items() if value is not None}
        )

    def start(self, stream: ResponseStream) -> ResponseStream:
        """Read from a stream from now on."""
        self._stream = stream
        if self._closed.is_set():
            raise CancelledError
        return stream

    def close(self) -> None:
        """End the request at once. A thread that reads gets a `CancelledError`."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()
        with suppress(ValueError):  # another thread runs the generator, and wakes up
            self._pieces.close()

    def _run(self) -> Generator[str, None, None]:
        pieces, first = retry(
            self._read_first,
            backoff=self._backoff,
            retries=self._retries,
            patience_s=PATIENCE_S,
            abandoned=self._closed,
        )
        yield first
        yield from pieces

    def _read_first(self) -> tuple[Iterator[str], str]:
        """Call the model up to the first piece.

        Until then the call can be retried without repeating text.
        """
        self.facts = ReplyFacts()
        pieces = self._read(self.start(self._begin()), self)
        return pieces, next(pieces, "")


def read_events(
    server: ModelServer, stream: ResponseStream, reply: Reply
) -> Iterator[dict[str, Any]]:
    """Yield each event of a reply as an object. Raise an error if the reply is incomplete."""
    event = None
    reply.is_done = False
    for event in _read_objects(server, stream):
        yield event
    if not reply.is_done:
        raise server.wrong(
            "sent no answer; is that the address of its API?"
            if event is None
            else "stopped in the middle of its answer"
        )


def _read_objects(server: ModelServer, stream: ResponseStream) -> Iterator[dict[str, Any]]:
    """Yield each event as an object, up to `[DONE]`.

    A response that is no stream is yielded as a single object.
    """
    with closing(iter(stream)) as pieces:
        first = next(pieces, b"")
        if stream.content_type == "application/json":
            yield _parse_object(server, _join(server, chain([first], pieces)))
            return
        try:
            for data in parse_events(chain([first], pieces)):
                if data.strip() == "[DONE]":
                    return
                yield _parse_object(server, data)
        except TooLongError as error:
            raise server.wrong("sent an event that does not end") from error


def _join(server: ModelServer, pieces: Iterable[bytes]) -> str:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > MAX_EVENT_BYTES:
            raise server.wrong("sent an answer that does not end")
    return data.decode("utf-8", "replace")


def parse_error(server: ModelServer, error: object) -> ServiceError:
    """Return the error for an error event.

    Only its kind is shown: the message may repeat what was sent.
    """
    kind = error.get("type") or error.get("code") if isinstance(error, Mapping) else None
    if kind in _RETRYABLE:
        return UnreachableError(f"{server} broke off ({kind}); try again later")
    return server.wrong("reported an error instead of going on")


def parse_count(value: object) -> int | None:
    """Return a number of tokens; None for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _parse_object(server: ModelServer, data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise server.wrong("sent something that is no JSON") from error
    if not isinstance(found, dict):
        raise server.wrong("sent something that is no event")
    return found
