"""One project's folder as one process sees it: who may write it, and what a search looks at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tantivy
from filelock import FileLock, Timeout

from unspool.catalog.reading import Position
from unspool.embedded import flat, lexical
from unspool.embedded.tail import Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a search looks at: both halves as committed, and the tail on top of them. Replaced as a whole, never changed."""

    view: flat.View | None = None
    words: lexical.State | None = None
    searcher: tantivy.Searcher | None = None
    tail: Tail | None = None

    @property
    def position(self) -> int:
        """The sequence number up to which both halves have absorbed; -1 where one is missing."""
        return min(self.positions)[0] if self.positions else -1

    @property
    def positions(self) -> tuple[Position, ...]:
        """How far each half has come; none where one is missing."""
        if self.view is None or self.words is None:
            return ()
        return Position(self.view.state.position, self.view.state.stamp), Position(self.words.position, self.words.stamp)


class Partition:
    """One project's folder as this process sees it."""

    def __init__(self, folder: Path, space_id: int) -> None:
        self.folder = folder
        self.vectors = folder / f"vectors-{space_id}"  # each space has its own, so that one is made while another is searched
        self.guard = threading.RLock()  # held for moments only: a search must not wait for a writer in another thread either
        self.words = lexical.WordFolder(folder / "words")
        self.now = Snapshot()
        self.seen: tuple[object, ...] = ()  # the state files as they were last read
        self.verified: tuple[object, ...] = ()  # the positions, and the catalog's, that were last found to belong together
        self._mutex = threading.Lock()  # one thread of ours writes at a time
        self._lock = FileLock(folder / "lock", thread_local=False)  # and one process

    @contextmanager
    def writing(self, *, wait: bool) -> Iterator[bool]:
        """The right to write the folder; False where someone else has it and we would not wait."""
        if not self._mutex.acquire(blocking=wait):
            yield False
            return
        try:
            if not self._acquire(wait=wait):
                yield False
                return
            try:
                yield True
            finally:
                try:
                    self.words.release()
                finally:
                    self._lock.release()
        finally:
            self._mutex.release()

    def close(self) -> None:
        """Let go of every file."""
        with self._mutex:
            self.words.close()

    def _acquire(self, *, wait: bool) -> bool:
        mark_as_cache(self.folder.parent)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            return False
        return True


def mark_as_cache(folder: Path) -> None:
    """Make a folder that back-ups, and we ourselves when a catalog lies inside what it indexes, know to leave out."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    tag = folder / "CACHEDIR.TAG"
    if not tag.exists():
        tag.write_text("Signature: 8a477f597d28d172789f06886806bc55\n# Derived by unspool; it can be deleted at any time.\n", encoding="ascii")
