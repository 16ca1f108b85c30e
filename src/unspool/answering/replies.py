"""A hosted model's reply as it comes: begun again while nothing of it has arrived, closed from
any thread.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

from unspool.answering.events import MAX_EVENT_BYTES, TooLongError, events
from unspool.answering.models import ReplyFacts
from unspool.answering.options import AnswerOptions
from unspool.calling import Names, Server, Stream
from unspool.errors import ServiceError, UnreachableError
from unspool.pacing import Pace, repeated

# somebody waits for the answer: a server that asks for more than this is not waited for
PATIENCE_S = 30.0
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
    """Pieces of text. `facts` are known when it has ended; `close` ends the request at once."""

    def __init__(
        self,
        begin: Callable[[], Stream],
        read: Callable[[Stream, Reply], Iterator[str]],
        *,
        pace: Pace,
        options: AnswerOptions,
    ) -> None:
        self.facts = ReplyFacts()
        self._begin = begin
        self._read = read
        self._pace = pace
        self._retries = options.retries
        self._closed = threading.Event()
        self._stream: Stream | None = None
        self._pieces: Generator[str, None, None] = self._run()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def note(self, **facts: Any) -> None:
        """Take down something about the reply; what is None is not known."""
        self.facts = replace(
            self.facts, **{name: value for name, value in facts.items() if value is not None}
        )

    def started(self, stream: Stream) -> Stream:
        """The stream that is read from now on, and that closing ends."""
        self._stream = stream
        if self._closed.is_set():
            raise CancelledError
        return stream

    def close(self) -> None:
        """End it at once. Whoever is reading gets a `CancelledError`."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()
        try:
            self._pieces.close()
        except ValueError:  # another thread is in it, and is being woken
            return

    def _run(self) -> Generator[str, None, None]:
        pieces, first = repeated(
            self._first,
            pace=self._pace,
            retries=self._retries,
            patience_s=PATIENCE_S,
            abandoned=self._closed,
        )
        yield first
        yield from pieces

    def _first(self) -> tuple[Iterator[str], str]:
        """A call, up to the first piece: until then it can be made again, and nobody sees a
        thing twice.
        """
        self.facts = ReplyFacts()
        pieces = self._read(self.started(self._begin()), self)
        return pieces, next(pieces, "")


def objects(server: Server, stream: Stream) -> Iterator[dict[str, Any]]:
    """Each event as an object; `[DONE]` ends them.

    An answer that is one object and no stream is given as that.
    """
    with closing(iter(stream)) as pieces:
        first = next(pieces, b"")
        if stream.content_type == "application/json":
            yield _object(server, _whole(server, first, pieces).decode("utf-8", "replace"))
            return
        try:
            for data in events(chain([first], pieces)):
                if data.strip() == "[DONE]":
                    return
                yield _object(server, data)
        except TooLongError as error:
            raise server.wrong("sent an event that does not end") from error


def _whole(server: Server, first: bytes, pieces: Iterator[bytes]) -> bytes:
    data = bytearray(first)
    for piece in pieces:
        data += piece
        if len(data) > MAX_EVENT_BYTES:
            raise server.wrong("sent an answer that does not end")
    return bytes(data)


def failure(server: Server, error: object) -> ServiceError:
    """An error that comes in the middle of a stream.

    Only its kind is told: the message may repeat what was sent.
    """
    kind = error.get("type") or error.get("code") if isinstance(error, Mapping) else None
    if kind in (
        "overloaded_error",
        "api_error",
        "server_error",
        "rate_limit_error",
        "timeout_error",
    ):
        return UnreachableError(f"{server} broke off ({kind}); try again later")
    return server.wrong("reported an error instead of going on")


def count(value: object) -> int | None:
    """A number of tokens, if it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _object(server: Server, data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:  # the second where it is nested without end
        raise server.wrong("sent something that is no JSON") from error
    if not isinstance(found, dict):
        raise server.wrong("sent something that is no event")
    return found
