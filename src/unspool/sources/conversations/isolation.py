"""Reading of exports in a child process with limits of time and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from unspool.domain.conversations import Conversation
from unspool.domain.reports import BadRecord
from unspool.errors import UnspoolError
from unspool.processes import (
    Channel,
    Child,
    ChildEndedError,
    ChildMemoryError,
    ChildOverdueError,
    Limits,
    portable,
)
from unspool.sources import conversations as exports

LIMITS = Limits()


class ReadingStoppedError(Exception):
    """The child process ended before it had read the file. The message says why."""


class ExportReader:
    """Reader of exports in a child process.

    The child is started on first use, and again after one has ended.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or LIMITS
        self._child: Child | None = None

    def measure(self, path: Path) -> int:
        """Return how many bytes of an export will be read.

        Raise `InputError` or `NotFoundError` if it is no export.
        """
        self._send(path, None)
        return cast(int, self._receive())

    def read(
        self, path: Path, *, project: str, on_bytes: Callable[[int], None], counts: Counter[str]
    ) -> Iterator[Conversation | BadRecord]:
        """Yield the conversations of an export, and its bad records between them."""
        self._send(path, project)
        while True:
            message = self._receive()
            if isinstance(message, Counter):
                counts.update(message)
                return
            if isinstance(message, int):
                on_bytes(message)
            else:
                yield cast(Conversation | BadRecord, message)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _send(self, path: Path, project: str | None) -> None:
        if self._child is None:
            self._child = Child(
                "unspool.sources.conversations.isolation:serve",
                memory_bytes=self._limits.memory_bytes,
            )
        self._child.send((path, project))

    def _receive(self) -> object:
        assert self._child is not None
        try:
            return self._child.receive(self._limits.seconds)
        except ChildEndedError as error:
            self.close()
            raise ReadingStoppedError(self._describe(error)) from error

    def _describe(self, error: ChildEndedError) -> str:
        memory = f"{self._limits.memory_bytes // 10**6} MB"
        problem = f"the process that read it died, perhaps at the memory limit of {memory}"
        if isinstance(error, ChildOverdueError):
            problem = f"reading it made no progress for {self._limits.seconds:g} seconds"
        elif isinstance(error, ChildMemoryError):
            problem = f"reading it needs more than the memory limit of {memory}"
        return f"{problem}; nothing behind this place was read"


def serve(channel: Channel) -> None:
    """Measure and read exports until the parent closes the pipe."""
    while True:
        path, project = cast(tuple[Path, str | None], channel.receive())
        try:
            _answer(channel, path, project)
        except UnspoolError as error:
            channel.send(portable(error))


def _answer(channel: Channel, path: Path, project: str | None) -> None:
    """Read an export into a project. Only measure it if there is none."""
    if project is None:
        channel.send(exports.measure(path))
        return
    counts: Counter[str] = Counter()
    # Each conversation is sent at once, so that it is not lost if this process is ended.
    for one in exports.read(path, project=project, on_bytes=channel.send, counts=counts):
        channel.send(one)
    channel.send(counts)
