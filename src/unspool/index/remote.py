"""Vector index outside the catalog's database, as its follower writes it.

The catalog contains its position in the feed of each project, with the epoch in which the index was
filled. If the index reports another epoch, it has lost points and is filled again.

Each position is marked in the index, too. If the mark is missing, one of the two was restored from
a backup, and the index is filled again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, feed
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.feed import ChunkPoint, Feed, Position
from unspool.errors import ServiceError, UnreachableError
from unspool.index.ports import DamagedError, Ids, Points, VectorIndex, Within

_LOCK_POLL_S = 0.05
_PAGE = 4_000  # ids compared at a time
_SAMPLES = 20  # vectors of a project that are compared
_LEAST_SCORE = 0.95  # of a vector with itself; quantisation changes it
_NOT_FILLED = Position(0, 0, filled_to=-1)


class RemoteIndex:
    """A `VectorIndex` with its positions in the catalog, as the `FollowedIndex` port.

    The negative number of a project contains its mark: a point whose id is the position's stamp.
    """

    failures: tuple[type[ServiceError], ...] = (ServiceError,)

    def __init__(
        self,
        catalog: Catalog,
        index: VectorIndex,
        source: Feed[ChunkPoint],
        *,
        name: str,
        dimension: int,
    ) -> None:
        self.name = name
        self.vectors = index
        self._catalog = catalog
        self._source = source
        self._dimension = dimension
        self._mutexes: dict[int, threading.Lock] = {}  # by project
        self._epoch: str | None = None  # that the index has reported last
        # positions that were found usable, with their epochs
        self._usable: dict[int, tuple[Position, str]] = {}
        self._marked: dict[int, tuple[Position, str]] = {}  # positions whose marks were found

    @contextmanager
    def lock(self, project: int, *, wait: bool) -> Iterator[bool]:
        """Acquire the right to write a project's points."""
        # Only one thread of this process asks the catalog for it again and again.
        mutex = self._mutexes.setdefault(project, threading.Lock())
        if not mutex.acquire(blocking=wait):
            yield False
            return
        try:
            with self._lock_catalog(project, wait=wait) as is_locked:
                if is_locked:
                    self._begin_writing(project)
                yield is_locked
        except DamagedError as error:
            raise UnreachableError(
                f"the vector index loses points while it is written ({error}); see whether it is "
                f"restarted again and again"
            ) from error
        finally:
            mutex.release()

    @contextmanager
    def _lock_catalog(self, project: int, *, wait: bool) -> Iterator[bool]:
        while True:
            with self._catalog.try_lock(f"{self.name} p{project}") as is_locked:
                if is_locked or not wait:
                    yield is_locked
                    return
            time.sleep(_LOCK_POLL_S)

    def _begin_writing(self, project: int) -> None:
        """Read the epoch, and prove that the catalog can be written.

        The feed of a replica may be behind the index, so it must not be applied.
        """
        self._epoch = self.vectors.read_epoch()
        with self._catalog.read() as connection:
            row = feed.load_position(connection, self.name, project)
        position = _NOT_FILLED if row is None else row[0]
        self._catalog.transact(
            lambda connection: feed.move_position(connection, self.name, project, position)
        )

    def _load(self, project: int) -> tuple[Position, str] | None:
        with self._catalog.read() as connection:
            return feed.load_position(connection, self.name, project)

    def get_position(self, project: int) -> Position | None:
        """Return the stored position; None if the index has lost points since."""
        row = self._load(project)
        if row is not None and row[1] != self._epoch:
            self._epoch = self.vectors.read_epoch()
        is_usable = row is not None and row[1] == self._epoch
        if row is not None and is_usable and row[0].filled_to is None:
            self._usable[project] = row
        else:
            self._usable.pop(project, None)
        return row[0] if row is not None and is_usable else None

    def is_damaged(self, project: int) -> bool:
        """Return whether the index has lost points, or does not contain the position's mark."""
        try:
            return self._lacks_mark(project)
        except DamagedError:  # its storage is gone
            return True

    def _lacks_mark(self, project: int) -> bool:
        row = self._load(project)
        while row is not None and (row != self._marked.get(project) or row[1] != self._epoch):
            position, epoch = row
            marks = self.vectors.ids(-project, after=position.stamp - 1, limit=1)
            self._epoch = self.vectors.read_epoch()
            if position.stamp in marks.tolist() and epoch == self._epoch:
                self._marked[project] = row
                return False
            before, row = row, self._load(project)
            if row == before:  # no other process has moved it
                return True
        return False

    def get_generation(self, project: int) -> str | None:
        """Return the epoch of the last position that was found usable; None without one.

        It is not read from the catalog, because a search may see an older snapshot of that.
        """
        usable = self._usable.get(project)
        return None if usable is None else usable[1]

    def is_unchanged(self, project: int, generation: str | None) -> bool:
        """Return whether the index reports this epoch.

        Each search compares with the epoch that it began with. Another thread may have noticed a
        new one meanwhile, and may even have filled the index again.
        """
        self._epoch = self.vectors.read_epoch()
        return generation == self._epoch

    def write(
        self, project: int, rows: Sequence[ChunkPoint], removed: Sequence[int], position: Position
    ) -> None:
        """Apply changes and mark the position, then move it and prune the feed."""
        deletes = np.array(removed, dtype=np.int64)
        self.vectors.apply(project, Points.from_rows(rows, self._dimension), deletes)
        # The mark of the old position stays: after a crash before the move it is still valid.
        row = self._load(project)
        valid = [position.stamp] if row is None else [position.stamp, row[0].stamp]
        marks = self.vectors.ids(-project, after=-1, limit=_PAGE)
        old = marks[~np.isin(marks, valid)]
        self.vectors.apply(-project, self._make_mark(position), old)

        def move(connection: Connection) -> bool:
            is_moved = feed.move_position(connection, self.name, project, position)
            feed.prune_feed(connection, project)
            return is_moved

        if not self._catalog.transact(move):
            raise DamagedError("its position was deleted")

    def _make_mark(self, position: Position) -> Points:
        vector = np.eye(1, self._dimension, dtype=np.float32)
        stamp = np.array([position.stamp], dtype=np.int64)
        return Points(ids=stamp, documents=stamp, kinds=[""], languages=[""], vectors=vector)

    def clear(self, project: int) -> None:
        """Delete the points of a project. Its position says so first, in case of a crash."""
        epoch = self._epoch = self.vectors.read_epoch()
        self._catalog.transact(
            lambda connection: feed.save_position(
                connection, self.name, project, _NOT_FILLED, epoch
            )
        )
        self._usable.pop(project, None)
        self.vectors.drop(project)
        self.vectors.drop(-project)

    def drop(self, project: int) -> None:
        """Delete the points of a deleted project, then its position."""
        self._drop(project, wait=True)

    def _drop(self, project: int, *, wait: bool) -> None:
        with self.lock(project, wait=wait) as is_locked:
            if is_locked:
                self.clear(project)
                self._catalog.transact(
                    partial(feed.delete_positions, index=self.name, project_ids=[project])
                )

    def find_damage(self, project: int) -> list[str]:
        """Describe an index that cannot be reached, or has other points than the catalog."""
        try:
            position = self.get_position(project)
            missing = extra = 0
            for lacking, superfluous in self._compare(project):
                missing, extra = missing + len(lacking), extra + len(superfluous)
            is_same = position is not None and position == self.get_position(project)
        except (ServiceError, DamagedError) as error:
            return [str(error)]
        with self._catalog.read() as connection:
            head = feed.read_state(connection, project).head
        if not is_same or position is None or position.seq != head.seq:
            return []  # what it lacks is counted as waiting
        if missing or extra:
            return [f"the vector index lacks {missing} points and has {extra} of no chunk"]
        wrong = self._count_wrong_vectors(project)
        return [f"the vector index has {wrong} wrong vectors among {_SAMPLES}"] if wrong else []

    def mend(self, project: int) -> None:
        """Compare the points with the chunks of the catalog, and apply the difference."""
        if self.get_position(project) is None or self.is_damaged(project):
            return  # it is filled from the beginning
        if self._count_wrong_vectors(project):
            self.clear(project)
            return
        for missing, extra in self._compare(project):
            after = missing[0] - 1 if missing else -1
            with self._catalog.read() as connection:
                page = self._source.list_all(connection, project, after=after, limit=_PAGE)
            wanted = set(missing)
            rows = [row for row in page if row.id in wanted and row.vector is not None]
            deletes = np.array(extra, dtype=np.int64)
            self.vectors.apply(project, Points.from_rows(rows, self._dimension), deletes)

    def _count_wrong_vectors(self, project: int) -> int:
        """Search some random points by their own vectors, and count those that are not found.

        A store may lose vectors and still list their points.
        """
        if not self.vectors.capabilities.max_ids:
            return 0
        chance = random.Random(project)  # noqa: S311 - nothing secret
        wrong = 0
        for _ in range(_SAMPLES):
            after = chance.randrange(-1, 2**63 - 1)  # ids are hashes
            with self._catalog.read() as connection:
                page = self._source.list_all(connection, project, after=after, limit=1)
            if page and page[0].vector is not None:
                points = Points.from_rows(page, self._dimension)
                within = Within(chunks=points.ids, total=1)
                found = self.vectors.search(project, points.vectors[0], k=1, within=within)
                # vectors have the length 1, so that the score is 1 by every metric
                wrong += not len(found.ids) or bool(found.scores[0] < _LEAST_SCORE)
        return wrong

    def _compare(self, project: int) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the ids that the index lacks, and those that no chunk has, a page at a time."""
        after, is_last = -1, False
        while not is_last:
            with self._catalog.read() as connection:
                ids = chunk_rows.list_ids(connection, project, after=after, limit=_PAGE)
            is_last = len(ids) < _PAGE
            stored = self._list_ids(project, after, None if is_last else ids[-1])
            missing, extra = sorted(set(ids) - stored), sorted(stored - set(ids))
            if missing or extra:
                yield missing, extra
            after = ids[-1] if ids else after

    def _list_ids(self, project: int, after: int, upto: int | None) -> set[int]:
        """Return the stored ids behind one, up to another or to the end."""
        found: set[int] = set()
        page: Ids = self.vectors.ids(project, after=after, limit=_PAGE)
        while len(page):
            wanted = page if upto is None else page[page <= upto]
            found.update(wanted.tolist())
            if len(wanted) < len(page):
                break
            page = self.vectors.ids(project, after=int(page[-1]), limit=_PAGE)
        return found

    def record_position(self, project: int) -> None:
        """Drop projects that were deleted while the index could not be reached."""
        with self._catalog.read() as connection:
            deleted = feed.list_deleted_projects(connection, self.name)
        for one in deleted:
            self._drop(one, wait=False)

    def take_warnings(self) -> list[str]:
        """Return nothing: a server keeps its data intact."""
        return []

    def close(self) -> None:
        """Release connections."""
        self.vectors.close()
