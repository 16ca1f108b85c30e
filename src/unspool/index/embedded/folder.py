"""Folder of an index beside an SQLite catalog, with a part for each project.

Several processes may share a catalog. A single process at a time has a part's lock file and writes
it. The others read what was committed last. A search never waits for that lock.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from filelock import FileLock, Timeout
from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, feed
from unspool.catalog.feed import ChunkPoint, ChunkText, Position
from unspool.errors import ServiceError
from unspool.index.embedded import checksums
from unspool.index.ports import DamagedError

CACHE_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Derived by unspool; it can be deleted at any "
    "time.\n"
)
_OPEN_ATTEMPTS = 10  # while a writer in another process replaces the files


class View(Protocol):
    """Committed files of a part."""

    @property
    def state(self) -> Any:
        """Committed state, with its `source` and `position`."""


_View = TypeVar("_View", bound=View)
_Row = TypeVar("_Row", bound=ChunkText | ChunkPoint)


class Part(Generic[_View]):
    """Folder of one project, as this process sees it. `empty` is the view of an empty folder."""

    def __init__(self, folder: Path, module: Any, empty: _View) -> None:
        self.folder = folder
        self.view = self._empty = empty
        self.is_usable = False  # the files exist, and no damage is known
        self._module = module
        # locked for moments only: a search must not wait for a writer in another thread
        self._guard = threading.RLock()
        self._signature: object = None  # of the state file that was last read
        self.is_damaged = False
        self._mutex = threading.Lock()  # a single thread of this process writes
        # a single process writes
        self._lock = FileLock(folder.with_name(f"{folder.name}.lock"), thread_local=False)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Acquire the right to write the folder; yield False if another writer has it."""
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
        mark_as_cache(self.folder.parent.parent)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            return False
        return True

    def reload(self) -> DamagedError | None:
        """Read the last commit of any process; return the damage that makes it unusable."""
        with self._guard:
            signature = _read_signature(self.folder)
            if signature == self._signature and (self.is_usable or self.is_damaged):
                return None
            found = self._open()
            self._signature, self.is_damaged = signature, False
            if isinstance(found, DamagedError) or found is None:
                self.view, self.is_usable, self.is_damaged = self._empty, False, found is not None
                return found
            self.view, self.is_usable = found, True
            return None

    def _open(self) -> _View | DamagedError | None:
        """Return the committed view; None if it is missing or of another source.

        Another process may replace the files while they are opened. Then they are opened again.
        """
        error = DamagedError("it was replaced all the time")
        for _ in range(_OPEN_ATTEMPTS):
            before = _read_signature(self.folder)
            try:
                state = self._module.read_state(self.folder)
                if state is None or state.source != self._empty.state.source:
                    return None
                if self.view.state == state:
                    return self.view
                view: _View = self._module.open_view(self.folder, state, self.view)
                return view
            except DamagedError as found:
                error = found
                if _read_signature(self.folder) == before:
                    break
        return error

    def commit(self, state: object) -> None:
        """Show what was just written."""
        with self._guard:
            self.view = self._module.open_view(self.folder, state, self.view)
            self._signature = _read_signature(self.folder)
            self.is_usable, self.is_damaged = True, False

    def mark_damaged(self) -> None:
        """Stop using the files until they are written again."""
        with self._guard:
            self.view, self.is_usable, self.is_damaged = self._empty, False, True
            self._signature = _read_signature(self.folder)

    def clear(self) -> None:
        """Delete the files."""
        with self._guard:
            self.view, self.is_usable, self.is_damaged = self._empty, False, False
        remove(self.folder)

    def remove_lock(self) -> None:
        """Delete the lock file, and the project's folder if nothing else is in it."""
        with suppress(OSError):
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self.folder.parent.rmdir()

    def find_damage(self) -> list[str]:
        """Describe how the files on disk differ from what was committed."""
        return checksums.find_damage(self.folder, self._module.read_state)


class FolderIndex(Generic[_View, _Row]):
    """Parts of all projects. A subclass writes and reads its own kind of files."""

    failures: tuple[type[ServiceError], ...] = ()  # an unwritable folder can still be searched

    def __init__(
        self, catalog: Catalog, name: str, module: Any, create_empty: Callable[[str], _View]
    ) -> None:
        self.name = name
        self.folder = catalog.get_folder("derived")
        self._catalog = catalog
        self._module = module
        self._create_empty = create_empty
        self._parts: dict[int, Part[_View]] = {}
        self._guard = threading.Lock()
        self._warnings: list[str] = []
        self._recorded: dict[int, Position] = {}

    def get_part(self, project: int) -> Part[_View]:
        """Return the folder of a project."""
        with self._guard:
            if project not in self._parts:
                folder = self.folder / f"p{project}" / self.name
                empty = self._create_empty(f"{self._catalog.identity} p{project}")
                self._parts[project] = Part(folder, self._module, empty)
            return self._parts[project]

    @contextmanager
    def lock(self, project: int, *, wait: bool) -> Iterator[bool]:
        """Acquire the right to write a project's folder."""
        part = self.get_part(project)
        try:
            with part.lock(wait=wait) as is_locked:
                yield is_locked
        except (DamagedError, OSError) as error:
            raise ServiceError(
                f"the index folder {part.folder} cannot be written ({error}); free disk space or "
                f"correct the permissions. Nothing is lost: the folder is rebuilt from the catalog"
            ) from error

    def get_position(self, project: int) -> Position | None:
        """Return the position of the last commit of any process; None if nothing is usable."""
        part = self.get_part(project)
        if damage := part.reload():
            self._warn(part, damage)
        position: Position = part.view.state.position
        return position if part.is_usable else None

    def is_damaged(self, project: int) -> bool:
        """Return whether damage was found in the files since they were written."""
        return self.get_part(project).is_damaged

    def get_generation(self, project: int) -> str | None:
        """Return nothing: files are verified while they are read."""
        return None

    def is_unchanged(self, project: int, generation: str | None) -> bool:
        """Return true: files are verified while they are read."""
        return True

    def write(
        self, project: int, rows: Sequence[_Row], removed: Sequence[int], position: Position
    ) -> None:
        """Delete and store chunks, and move the position, in one commit."""
        part = self.get_part(project)
        try:
            part.commit(self.append(part, rows, removed, position))
        except DamagedError as error:
            self.report_damage(project, error)
            raise

    def append(
        self, part: Part[_View], rows: Sequence[_Row], removed: Sequence[int], position: Position
    ) -> object:
        """Write a commit and return its state."""
        raise NotImplementedError

    def clear(self, project: int) -> None:
        """Delete everything that is stored for a project."""
        self.get_part(project).clear()

    def drop(self, project: int) -> None:
        """Delete everything of a deleted project, and its position."""
        with self.lock(project, wait=True):
            self.clear(project)
        with self._guard:
            part = self._parts.pop(project)
        part.remove_lock()
        self._recorded.pop(project, None)
        self._catalog.transact(
            partial(feed.delete_positions, index=self.name, project_ids=[project])
        )

    def find_damage(self, project: int) -> list[str]:
        """Describe how the files on disk differ from what was committed."""
        found = [f"{self.name}/{one}" for one in self.get_part(project).find_damage()]
        if self.folder.is_dir() and not is_marked(self.folder):
            found.append("CACHEDIR.TAG is not as it was written")
        return found

    def mend(self, project: int) -> None:
        """Read every file. If one differs from what was committed, the folder is not used again."""
        if damage := self.get_part(project).find_damage():
            self.report_damage(project, damage[0])

    def report_damage(self, project: int, error: object) -> None:
        """Warn about damage. The folder is filled again when it is next written."""
        part = self.get_part(project)
        self._warn(part, error)
        part.mark_damaged()

    @contextmanager
    def open_view(self, project: int) -> Iterator[_View]:
        """Provide the committed view for reading."""
        try:
            yield self.get_part(project).view
        except DamagedError as error:
            self.report_damage(project, error)
            raise

    def _warn(self, part: Part[_View], error: object) -> None:
        self._warnings.append(
            f"the index folder {part.folder.parent.name}/{part.folder.name} was damaged ({error}); "
            f"it is rebuilt from the catalog, nothing is lost"
        )

    def record_position(self, project: int) -> None:
        """Store the position in the catalog, and delete the changes that every index contains."""
        position = self.get_position(project) or Position(0, 0)
        if self._recorded.get(project) == position:
            return

        def record(connection: Connection) -> None:
            feed.save_position(connection, self.name, project, position, "")
            feed.prune_feed(connection, project)

        self._catalog.transact(record)
        self._recorded[project] = position

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call, each once."""
        with self._guard:
            taken = self._warnings[:]
            del self._warnings[: len(taken)]
        return list(dict.fromkeys(taken))

    def close(self) -> None:
        """Close every file."""
        with self._guard:
            self._parts.clear()


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
