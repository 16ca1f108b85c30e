"""Follower: brings an index up to date with the change feed of the catalog.

It reads the feed behind the index's position, writes to the index, then moves the position. A crash
at any instant repeats a part, which changes nothing. An index without a valid position is filled
with all chunks by id, then follows the feed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, feed
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.feed import ChunkPoint, ChunkText, Feed, Position
from unspool.catalog.projects import ProjectRow, ProjectVersion
from unspool.domain.reports import OnProgress, Progress
from unspool.errors import ServiceError, SwitchedError, UnreachableError
from unspool.index.ports import DamagedError, FollowedIndex
from unspool.index.tail import Tail, Tails

# Reading and analysing a tail of this many chunks takes 15 ms, once per process. More is worth a
# commit to the index (60 to 150 ms in a folder).
TAIL_LIMIT = 256
# about a second: chunks that are scored directly if the index cannot be written
LONG_TAIL_LIMIT = 5_000
PAGE = 4_000  # chunks read from the catalog at a time
COMMIT_EVERY = 40_000  # chunks between commits to the index
_LAST_ID = 2**63 - 1  # after every id of a sequence number
_READ_ATTEMPTS = 3
_T = TypeVar("_T")
_Row = TypeVar("_Row", bound=ChunkText | ChunkPoint)


class Follower(Generic[_Row]):
    """Upkeep of an index that follows the feed, with the tails of its projects."""

    def __init__(
        self,
        catalog: Catalog,
        source: Feed[_Row],
        index: FollowedIndex[_Row],
        *,
        check: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self.index = index
        self._catalog = catalog
        self._source = source
        self._check = check  # raises `SwitchedError` if another vector space is active
        self._tails: Tails[_Row] = Tails()
        # positions that were found to be past positions of the catalog
        self._verified: dict[int, Position] = {}

    def catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None = None
    ) -> int:
        """Make everything searchable that was committed when the project's row was read.

        Returns the number of chunks that are not searchable yet. There are some while another
        process writes the index, or if it cannot be written.
        """
        try:
            return self._catch_up(project, on_progress)
        except ServiceError as error:  # the index cannot be reached or written
            return self._attach_long_tail(project.id, error)

    def _catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None
    ) -> int:
        position = self.index.get_position(project.id)
        is_current = position is not None and position.seq == project.seq
        if is_current and self._verified.get(project.id) == position:
            self._tails.drop(project.id, project.seq)
            return 0
        with self._catalog.read() as connection:
            self._check(connection)
            start = self._find_start(connection, project.id, position)
            pending = self._attach_tail(connection, project.id, start, TAIL_LIMIT)
        is_damaged = self.index.is_damaged(project.id)
        if not pending and not is_damaged:
            if start is not None:
                self._verified[project.id] = start
            return 0
        # If the index cannot be searched at all, this waits for another writer.
        is_usable = start is not None and not is_damaged
        is_done = self.follow(project.id, wait=not is_usable, on_progress=on_progress)
        return 0 if is_done else pending

    def _attach_long_tail(self, project: int, error: ServiceError) -> int:
        """Keep more chunks in memory, because the index cannot be reached or written.

        Returns the number of chunks that are still not searchable.
        """
        position = None
        with suppress(ServiceError):
            position = self.index.get_position(project)
        with self._catalog.read() as connection:
            start = self._find_start(connection, project, position)
            if start is None and isinstance(error, self.index.failures):
                self._check_size(connection, project, error)
            return self._attach_tail(connection, project, start, LONG_TAIL_LIMIT)

    def _read_all(self, project: int, error: ServiceError) -> Tail[_Row]:
        """Return all chunks of a project whose index cannot be searched."""
        with self._catalog.read() as connection:
            self._check_size(connection, project, error)
            head = feed.read_state(connection, project).head
            rows = self._source.list_all(connection, project, after=-1, limit=LONG_TAIL_LIMIT)
        return Tail(None, head, rows)

    def _check_size(self, connection: Connection, project: int, error: ServiceError) -> None:
        """Refuse to search a large project without its index."""
        if chunk_rows.count_chunks(connection, project) > LONG_TAIL_LIMIT:
            raise UnreachableError(
                f"{error}. Everything is stored in the catalog, and words alone are searched with "
                f"alpha 0"
            ) from error

    def _attach_tail(
        self, connection: Connection, project: int, start: Position | None, limit: int
    ) -> int:
        """Keep the chunks behind the index's position in memory, if they are few.

        Returns the number of chunks that are still not searchable.
        """
        head = feed.read_state(connection, project).head
        if start is not None and start.seq == head.seq:
            self._tails.drop(project, head.seq)
            return 0
        known = self._tails.get(project)
        if known is not None and (known.start, known.head) == (start, head):
            return known.missing
        pending, removed = self._measure(connection, project, start, head)
        if limit == TAIL_LIMIT and pending + len(removed) > limit:
            return max(pending, 1)
        if start is None:
            rows = self._source.list_all(connection, project, after=-1, limit=limit)
        else:
            after = (start.seq, _LAST_ID)
            changed = self._source.list_changes(
                connection, project, after=after, upto=head.seq, limit=limit
            )
            rows = [row for _, row in changed]
        missing = max(pending - limit, 0)
        tail = Tail(start, head, rows, removed, missing=missing)
        self._tails.keep(project, tail, lambda: self._read_head(project))
        return missing

    def _read_head(self, project: int) -> int:
        """Return the latest sequence number of a project, outside the snapshot of this thread."""
        with self._catalog.leave_snapshot(), self._catalog.read() as connection:
            return feed.read_state(connection, project).head.seq

    def _measure(
        self, connection: Connection, project: int, start: Position | None, head: Position
    ) -> tuple[int, list[int]]:
        """Return the number of chunks behind a position, and the ids deleted behind it."""
        if start is None:
            return chunk_rows.count_chunks(connection, project), []
        removed = feed.list_removals(connection, project, after=start.seq, upto=head.seq)
        return feed.count_changes(connection, project, after=start.seq), removed

    def _find_start(
        self, connection: Connection, project: int, position: Position | None
    ) -> Position | None:
        """Return the index's position if the index only has to read the rest of the feed."""
        if position is None or position.filled_to is not None:
            return None
        state = feed.read_state(connection, project)
        is_past = feed.contains_position(connection, project, position, state)
        return position if is_past else None

    def read(self, project: int, action: Callable[[Tail[_Row] | None], _T]) -> _T:
        """Run a search with the tail.

        If the index proves to have lost data, it is filled again. If it cannot be reached, the
        catalog is searched in its place.
        """
        for _ in range(_READ_ATTEMPTS):
            generation, tail = self.index.get_generation(project), self._tails.get(project)
            try:
                with suppress(DamagedError):
                    result = action(tail)
                    if tail is not None and tail.start is None:
                        return result  # without the index
                    if self.index.is_unchanged(project, generation):
                        return result
                self.follow(project)
            except self.index.failures as error:
                return action(self._read_all(project, error))
        raise ServiceError(
            f"the index has lost data {_READ_ATTEMPTS} times during this search; see whether it is "
            f"restarted again and again, and run `unspool doctor`"
        )

    def follow(
        self,
        project: int,
        *,
        wait: bool = True,
        is_active: bool = True,
        on_progress: OnProgress | None = None,
    ) -> bool:
        """Write everything that is committed, of the active vector space or of another.

        Returns False if another process is writing and `wait` is false, or if some chunks have no
        vector yet.
        """
        with self._catalog.leave_snapshot(), self.index.lock(project, wait=wait) as is_locked:
            if not is_locked:
                return False
            if is_active:
                with self._catalog.read() as connection:
                    # New chunks have no vector in a space that is no longer active.
                    self._check(connection)
            try:
                reached = self._write_all(project, on_progress)
            except DamagedError:  # of what was there; now the index is filled again
                reached = self._write_all(project, on_progress)
        if reached is not None:
            self._tails.drop(project, reached)
        return reached is not None

    def _write_all(self, project: int, on_progress: OnProgress | None) -> int | None:
        """Return the sequence number that was reached; None if some chunks have no vector yet."""
        with self._catalog.read() as connection:
            position = self._begin(connection, project)
        if not self._fill(project, position, on_progress):
            return None
        return self._write_changes(project, on_progress)

    def _begin(self, connection: Connection, project: int) -> Position:
        """Return the position to continue from. An index without a valid one is cleared."""
        position = self.index.get_position(project)
        state = feed.read_state(connection, project)
        if (
            position is None
            or self.index.is_damaged(project)
            or not feed.contains_position(connection, project, position, state)
        ):
            self.index.clear(project)
            return state.head._replace(filled_to=-1)
        return position

    def _fill(self, project: int, position: Position, on_progress: OnProgress | None) -> bool:
        """Write all chunks by id behind `filled_to`, if the index is not filled yet."""
        if position.filled_to is None:
            return True
        after, done, total = position.filled_to, 0, 0
        with self._catalog.read() as connection:
            total = chunk_rows.count_chunks(connection, project)
        batch: list[_Row] = []
        while True:
            with self._catalog.read() as connection:
                page = self._source.list_all(connection, project, after=after, limit=PAGE)
            ready = _select_ready(page)
            batch += ready
            is_last = len(page) < PAGE or len(ready) < len(page)
            after = ready[-1].id if ready else after
            if is_last or len(batch) >= COMMIT_EVERY:
                is_filled = is_last and len(ready) == len(page)
                filled_to = None if is_filled else after
                self.index.write(project, batch, (), position._replace(filled_to=filled_to))
                done += len(batch)
                batch = []
                _report(on_progress, "rebuilding", done, total)
            if is_last:
                return len(ready) == len(page)

    def _write_changes(self, project: int, on_progress: OnProgress | None) -> int | None:
        """Write the changes behind the index's position, up to the head of the feed.

        Returns the sequence number of the head; None if some chunks have no vector yet.
        """
        position = self.index.get_position(project)
        with self._catalog.read() as connection:
            start = self._find_start(connection, project, position)
            if start is None:
                raise DamagedError("it has lost data while it was written")
            head = feed.read_state(connection, project).head
            if head.seq == start.seq:
                return head.seq
            removed = feed.list_removals(connection, project, after=start.seq, upto=head.seq)
            total = feed.count_changes(connection, project, after=start.seq) if on_progress else 0
        after, done = (start.seq, _LAST_ID), 0
        batch: list[_Row] = []
        while True:
            with self._catalog.read() as connection:
                if feed.read_state(connection, project).floor > start.seq:
                    raise DamagedError("the changes that it lacks were pruned")
                page = self._source.list_changes(
                    connection, project, after=after, upto=head.seq, limit=PAGE
                )
                ready = _select_ready([row for _, row in page])
                is_complete = len(ready) == len(page)
                is_last = len(page) < PAGE or not is_complete
                batch += ready
                reached = head
                if page and not (is_last and is_complete):
                    # the changes of this number are perhaps not complete
                    last = page[min(len(ready), len(page) - 1)][0]
                    reached = feed.find_position(connection, project, max(last - 1, start.seq))
            if is_last or (len(batch) >= COMMIT_EVERY and reached.seq > start.seq):
                self.index.write(project, batch, removed, reached)
                start, removed, done = reached, [], done + len(batch)
                batch = []
                _report(on_progress, "catching up", done, total)
            if is_last:
                return head.seq if is_complete else None
            after = page[-1][0], page[-1][1].id

    def flush(self, project: int) -> None:
        """Write what a run has stored so far, unless another process is writing."""
        with suppress(SwitchedError, ServiceError):  # the end of the run reports it
            self.follow(project, wait=False)

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> None:
        """Write what a run has stored, unless the tail can contain it.

        For few chunks a commit would take longer than the run.
        """
        if put > TAIL_LIMIT if put is not None else not self._fits_tail(project):
            # everything is stored; a search in the other space writes it
            with suppress(SwitchedError):
                self.follow(project, on_progress=on_progress)
        self.index.record_position(project)

    def _fits_tail(self, project: int) -> bool:
        """Return whether the unwritten changes are few enough for the tail."""
        position = self.index.get_position(project)
        with self._catalog.read() as connection:
            start = self._find_start(connection, project, position)
            if start is None or not start.seq:
                return False
            head = feed.read_state(connection, project).head
            pending, removed = self._measure(connection, project, start, head)
            return pending + len(removed) <= TAIL_LIMIT // 2

    def fill(self, project: int, on_progress: OnProgress | None = None) -> bool:
        """Index a project while another vector space is searched.

        Returns False if the catalog does not contain all vectors yet.
        """
        return self.follow(project, is_active=False, on_progress=on_progress)

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> None:
        """Write everything that is missing. With `verify` damaged data are replaced."""
        if verify:
            with self.index.lock(project, wait=True):
                self.index.mend(project)
        self.follow(project, on_progress=on_progress)
        self.index.record_position(project)

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks that are not indexed yet."""
        position = None
        with suppress(ServiceError):  # an index that cannot be reached contains nothing
            position = self.index.get_position(project)
        head = feed.read_state(connection, project).head
        start = self._find_start(connection, project, position)
        return self._measure(connection, project, start, head)[0]

    def find_damage(self, project: int) -> list[str]:
        """Describe how what is stored differs from what was committed."""
        return self.index.find_damage(project)

    def is_filled(self, project: int) -> bool:
        """Return whether the index contains the project, except for its latest changes."""
        position = self.index.get_position(project)
        return position is not None and position.filled_to is None

    def drop(self, project: int) -> None:
        """Delete what is stored for a deleted project."""
        with suppress(ServiceError):  # the next run drops it
            self.index.drop(project)
        self._tails.drop(project)
        self._verified.pop(project, None)

    def take_warnings(self) -> list[str]:
        """Return the warnings about repairs since the last call."""
        return self.index.take_warnings()

    def close(self) -> None:
        """Release files and connections."""
        self.index.close()


def _select_ready(rows: Sequence[_Row]) -> Sequence[_Row]:
    """Return the rows before the first one without a vector."""
    for at, row in enumerate(rows):
        if isinstance(row, ChunkPoint) and row.vector is None:
            return rows[:at]
    return rows


def _report(on_progress: OnProgress | None, task: str, done: int, total: int) -> None:
    if on_progress is not None:
        on_progress(Progress(task=task, done=done, total=max(done, total)))
