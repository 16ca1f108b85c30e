"""Folder of one project, as one process sees it: the lock to write it, and the snapshot that a
search reads.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout

from unspool.catalog.feed import Position
from unspool.index.embedded import flat, segments
from unspool.index.embedded.postings import LiveSegment
from unspool.index.embedded.tail import Tail

CACHE_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Derived by unspool; it can be deleted at any "
    "time.\n"
)


class Half(StrEnum):
    """Part of a project's folder."""

    WORDS = "words"
    VECTORS = "vectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a search reads: both halves as committed, and the tail on top of them.

    Replaced as a whole, never changed.
    """

    view: flat.VectorView | None = None
    words: segments.WordView | None = None
    tail: Tail | None = None
    # the committed ones without the chunks that the tail hides, and the tail's own
    word_segments: tuple[LiveSegment, ...] = ()

    @classmethod
    def open(cls, view: flat.VectorView | None, words: segments.WordView | None) -> Snapshot:
        """Return a snapshot without a tail."""
        return cls(view=view, words=words, word_segments=() if words is None else words.segments)

    def with_tail(self, tail: Tail | None) -> Snapshot:
        """Return the same snapshot with this tail, or without one."""
        committed = () if self.words is None else self.words.segments
        if tail is None:
            return replace(self, tail=None, word_segments=committed)
        parts = (*(part.hide(tail.hidden) for part in committed), LiveSegment(tail.segment, None))
        return replace(self, tail=tail, word_segments=parts)

    @property
    def position(self) -> int:
        """The sequence number up to which both halves have absorbed; -1 if one is missing."""
        return min(self.positions)[0] if self.positions else -1

    @property
    def positions(self) -> tuple[Position, ...]:
        """The position of each half; none if one is missing."""
        if self.view is None or self.words is None:
            return ()
        return self.view.state.place, self.words.state.place


class Partition:
    """Folder of one project, as this process sees it."""

    def __init__(self, derived: Path, project: int, space_id: int) -> None:
        self.project = project
        self.folder = derived / f"p{project}"
        # each space has its own, so that one is made while another is searched
        self.vectors = self.folder / f"vectors-{space_id}"
        self.words = self.folder / "words"
        # held for moments only: a search must not wait for a writer in another thread either
        self.guard = threading.RLock()
        self.now = Snapshot()
        self.is_damaged = False
        self.seen: tuple[object, ...] = ()  # the state files as they were last read
        # the positions, and the catalog's, that were last found to belong together
        self.verified: tuple[object, ...] = ()
        self._mutex = threading.Lock()  # one thread of ours writes at a time
        self._lock = FileLock(self.folder / "lock", thread_local=False)  # and one process

    @contextmanager
    def writing(self, *, wait: bool) -> Iterator[bool]:
        """Hold the right to write the folder; False if another thread or process has it and
        `wait` is false.
        """
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
                self._lock.release()
        finally:
            self._mutex.release()

    def _acquire(self, *, wait: bool) -> bool:
        mark_as_cache(self.folder.parent)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            return False
        return True


def mark_as_cache(folder: Path) -> None:
    """Create a folder that back-ups skip, and that is not indexed if the catalog is inside an
    indexed folder.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_marked(folder):
        remove(folder / "CACHEDIR.TAG")
        (folder / "CACHEDIR.TAG").write_bytes(CACHE_TAG.encode())


def is_marked(folder: Path) -> bool:
    """Return whether the folder's tag is as it was written."""
    try:
        return (folder / "CACHEDIR.TAG").read_bytes() == CACHE_TAG.encode()
    except OSError:
        return False


def remove(path: Path) -> None:
    """Remove a folder, or whatever is in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
