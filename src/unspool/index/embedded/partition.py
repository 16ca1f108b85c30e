"""Folder of one project, as one process sees it: its lock, its files, and a snapshot to search."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, feed
from unspool.catalog.feed import Position
from unspool.index.embedded import checksums, flat, segments
from unspool.index.embedded.checksums import DamagedError
from unspool.index.embedded.flat import VectorState, VectorView
from unspool.index.embedded.postings import LiveSegment
from unspool.index.embedded.segments import WordState, WordView
from unspool.index.embedded.tail import Tail

CACHE_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Derived by unspool; it can be deleted at any "
    "time.\n"
)
_OPEN_ATTEMPTS = 10  # while a writer in another process replaces the files


class Half(StrEnum):
    """Part of a project's folder."""

    WORDS = "words"
    VECTORS = "vectors"


_MODULES: dict[Half, Any] = {Half.WORDS: segments, Half.VECTORS: flat}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a search reads: both halves as committed, and the tail on top of them."""

    words: WordView
    vectors: VectorView
    # of both halves; empty if one of them is missing
    positions: tuple[Position, ...] = ()
    tail: Tail | None = None
    # the committed ones without the chunks that the tail hides, and the tail's own
    word_segments: tuple[LiveSegment, ...] = ()

    @classmethod
    def from_views(cls, words: WordView, vectors: VectorView) -> Snapshot:
        """Return a snapshot of committed halves without a tail."""
        positions = words.state.position, vectors.state.position
        return cls(words=words, vectors=vectors, positions=positions, word_segments=words.segments)

    def with_tail(self, tail: Tail | None) -> Snapshot:
        """Return this snapshot with another tail, or without one."""
        parts = self.words.segments
        if tail is not None:
            parts = (*(one.hide(tail.hidden) for one in parts), LiveSegment(tail.segment, None))
        return replace(self, tail=tail, word_segments=parts)

    @property
    def position(self) -> int:
        """Sequence number of the last change that both halves contain; -1 if one is missing."""
        return min(self.positions).seq if self.positions else -1


class Partition:
    """Folder of one project, as this process sees it."""

    def __init__(
        self,
        catalog: Catalog,
        project: int,
        *,
        space_id: int,
        space: str,
        dimension: int,
        warn: Callable[[str], None],
    ) -> None:
        self.project = project
        self.folder = catalog.get_folder("derived") / f"p{project}"
        # each space has its own vectors, so that one is built while another is searched
        self.folders = {
            Half.WORDS: self.folder / "words",
            Half.VECTORS: self.folder / f"vectors-{space_id}",
        }
        source = f"{catalog.identity} p{project}"
        self.empty = Snapshot(
            words=WordView(WordState(source=source)),
            vectors=flat.open_view(
                self.folders[Half.VECTORS],
                VectorState(source=f"{source} {dimension} {space}", dimension=dimension),
            ),
        )
        # locked for moments only: a search must not wait for a writer in another thread
        self.guard = threading.RLock()
        self.now = self.empty
        self.is_damaged = False
        # the catalog's sequence number and the positions that were last found to match
        self.verified: tuple[object, ...] = ()
        self._warn = warn
        self._signatures: object = ()  # of the state files that were last read
        self._mutex = threading.Lock()  # a single thread of this process writes
        self._lock = FileLock(self.folder / "lock", thread_local=False)  # a single process writes

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Acquire the right to write the folder.

        Yields False if another thread or process has it and `wait` is false.
        """
        if not self._mutex.acquire(blocking=wait):
            yield False
            return
        try:
            if not self._acquire_file(wait=wait):
                yield False
                return
            try:
                yield True
            finally:
                self._lock.release()
        finally:
            self._mutex.release()

    def _acquire_file(self, *, wait: bool) -> bool:
        mark_as_cache(self.folder.parent)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            return False
        return True

    def reload(self) -> Snapshot:
        """Read the last commit of any process. If a half cannot be read, both count as missing."""
        signatures = [_read_signature(folder) for folder in self.folders.values()]
        if not self.now.positions or self._signatures != signatures:
            self._signatures = signatures
            words, vectors = map(self._open_half, Half)
            is_complete = words is not None and vectors is not None
            committed = Snapshot.from_views(words, vectors) if is_complete else self.empty
            self.now = committed.with_tail(self.now.tail)
        return self.now

    def clear(self) -> None:
        """Delete the files of both halves."""
        with self.guard:
            self.now = self.empty
        for folder in self.folders.values():
            remove(folder)

    def open_for_writing(
        self, connection: Connection, seq: int, floor: int, rebuild: Collection[Half]
    ) -> Snapshot:
        """Return both halves as committed.

        A half starts empty if it is in `rebuild`, missing, damaged, or not derived from an earlier
        state of this catalog.
        """
        views = []
        for half in Half:
            view = self._open_half(half)
            if (
                half in rebuild
                or view is None
                or not self._is_past(connection, view.state.position, seq, floor)
            ):
                remove(self.folders[half])
                view = getattr(self.empty, half)
            views.append(view)
        self.now = Snapshot.from_views(*views)
        self.is_damaged = False
        return self.now

    def _open_half(self, half: Half) -> Any:
        """Return a half as committed; None if it is missing, damaged, or of another source.

        Another process may replace the files while they are opened. Then they are opened again.
        """
        module, folder = _MODULES[half], self.folders[half]
        known, expected = getattr(self.now, half), getattr(self.empty, half).state
        for _ in range(_OPEN_ATTEMPTS):
            before = _read_signature(folder)
            try:
                state = module.read_state(folder)
                if state is None or state.source != expected.source:
                    return None
                return known if known.state == state else module.open_view(folder, state, known)
            except DamagedError as error:
                if _read_signature(folder) == before:
                    self.report_damage(error)
                    break
        return None

    def is_derived(self, connection: Connection, seq: int, floor: int) -> bool:
        """Return whether the folder was derived from an earlier state of this catalog.

        Then it only has to catch up.
        """
        positions = self.now.positions
        found = (seq, *positions)
        if not positions or not all(floor <= position.seq <= seq for position in positions):
            return False
        if self.verified != found:
            if not all(self._is_past(connection, one, seq, floor) for one in positions):
                return False
            self.verified = found
        return True

    def _is_past(self, connection: Connection, position: Position, seq: int, floor: int) -> bool:
        return (
            floor <= position.seq <= seq
            and position.stamp >= 0
            and position == feed.read_position(connection, self.project, position.seq)
        )

    def find_damage(self) -> dict[Half, list[str]]:
        """Describe how the files on disk differ from what was committed."""
        return {
            half: checksums.find_damage(folder, _MODULES[half].read_state)
            for half, folder in self.folders.items()
        }

    def report_damage(self, error: object) -> None:
        """Warn about damage. The folder is rebuilt when it is next written."""
        self.is_damaged = True
        self._warn(
            f"the index folder {self.folder.name} was damaged ({error}); it is rebuilt from the "
            f"catalog, nothing is lost"
        )


def _read_signature(folder: Path) -> tuple[int, ...]:
    """Return numbers that change when a folder's state file is replaced."""
    try:
        found = (folder / "state.json").stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def mark_as_cache(folder: Path) -> None:
    """Create a folder that backup tools skip and that is never indexed itself."""
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
    """Delete a folder or a file, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
