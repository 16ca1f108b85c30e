"""The embedded store: words and vectors of each project in a folder, kept up with the catalog.

Several processes may share a catalog. One of them at a time holds a project's lock file and writes
its folder; the others read what was committed last. A search never waits for that lock.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, feed, spaces
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.content import Changes
from unspool.catalog.filters import Selection, SelectionCache
from unspool.catalog.projects import ProjectRow
from unspool.domain.filters import Filter
from unspool.domain.queries import Stability
from unspool.domain.reports import Progress
from unspool.errors import DimensionError, ServiceError, SwitchedError, UnsupportedError
from unspool.index.embedded import flat, segments, tail
from unspool.index.embedded.checksums import DamagedError
from unspool.index.embedded.partition import Half, Partition, Snapshot, is_marked, remove
from unspool.index.embedded.words import EmbeddedWords
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Capabilities, Ids, Matches, Points, Vectors

# A tail of this many chunks costs 15 ms to read and analyse, once per process; more is worth a
# commit to the folder (60 to 150 ms).
TAIL_LIMIT = 256
# about a second: chunks that are scored directly if the folder cannot be written
LONG_TAIL_LIMIT = 5_000
PAGE = 4_000  # chunks read from the catalog at a time
COMMIT_EVERY = 40_000  # chunks between commits of a rebuild
_OPEN_ATTEMPTS = 10  # where a writer in another process replaces the files meanwhile
_LAST = 2**63 - 1  # after every id of a sequence number
_View = TypeVar("_View", flat.VectorView, segments.WordView)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _News:
    """Changes that one half absorbs at a time: new or replaced chunks, and removed ids."""

    chunks: Sequence[feed.ChangedChunk]
    gone: Sequence[int]

    def __bool__(self) -> bool:
        return bool(self.chunks or self.gone)

    @property
    def replaced(self) -> list[int]:
        return [*self.gone, *(chunk.id for chunk in self.chunks)]


class EmbeddedStore:
    """Both retrievers over one folder.

    Satisfies the `Store` port; `words` satisfies `WordIndex`.
    """

    name = "embedded"
    catches_up = True
    capabilities = Capabilities(
        knn=True,
        filters=True,
        metadata_filtering=True,
        exact=False,
        max_k=100_000,
        stability=Stability.DETERMINISTIC,
    )

    def __init__(self, catalog: Catalog, *, space_id: int, space: str, dimension: int) -> None:
        self.folder = catalog.get_folder("derived")
        self._catalog = catalog
        self.space_id = space_id
        self._space = space
        self._dimension = dimension
        self._partitions: dict[int, Partition] = {}
        self._selections = SelectionCache()
        self._guard = threading.Lock()
        self._warnings: list[str] = []
        self.words = EmbeddedWords(self)

    # Keeping up with the catalog

    def follow(self, connection: Connection, project: int, changes: Changes) -> None:
        """Do nothing: a commit to the folder costs 60 to 150 ms, so changes are absorbed many at
        a time, by sequence number.
        """

    def forget(self, connection: Connection, project: int) -> None:
        """Do nothing: `drop` removes the folder after the transaction."""

    def keep_up(self, project: int) -> None:
        """Absorb the chunks that a run has stored so far, unless another process does."""
        with suppress(SwitchedError):  # whoever writes next finds that out
            self.absorb(project, wait=False)

    def settle(
        self,
        project: int,
        *,
        put: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> str:
        """Absorb the stored chunks, unless they are few enough for the tail: a commit would take
        longer than the run.
        """
        few = (
            put <= TAIL_LIMIT
            if put is not None
            else self.absorbed(project) > 0 and self.waiting(project) <= TAIL_LIMIT // 2
        )
        if not few:
            # all is stored; whoever searches in the other space takes it in
            with suppress(SwitchedError):
                self.absorb(project, on_progress=on_progress)
        return ""

    def fresh(
        self, project: ProjectRow, on_progress: Callable[[Progress], None] | None = None
    ) -> int:
        """Make everything findable that was committed when the project's row was read; returns how
        many chunks are not yet.

        That is so while another process has the folder, or when it cannot be written.
        """
        part = self.partition(project.id)
        with part.guard:
            now = self._reload(part)
            if now.position == project.seq and part.verified == (project.seq, *now.positions):
                if now.tail is not None:
                    part.now = now.with_tail(None)
                return 0
            with self._catalog.read() as connection:
                spaces.check_active(connection, self.space_id)
                seq, floor = feed.read_counters(connection, project.id)
                belongs = _belongs(connection, project.id, part, seq, floor)
                if belongs and now.position == seq:
                    part.now = now.with_tail(None)
                    return 0
                pending = self._with_tail(
                    connection, project.id, part, seq, belongs=belongs, limit=TAIL_LIMIT
                )
                if not pending and not part.is_damaged:
                    return 0
        # Where nothing is absorbed there is nothing to answer from, so this waits; otherwise what
        # is there answers at once.
        try:
            return (
                0
                if self.absorb(
                    project.id, wait=bool(pending) and not belongs, on_progress=on_progress
                )
                else pending
            )
        except ServiceError:  # the folder cannot be written
            with part.guard, self._catalog.read() as connection:
                self._reload(part)
                seq, floor = feed.read_counters(connection, project.id)
                belongs = _belongs(connection, project.id, part, seq, floor)
                return self._with_tail(
                    connection, project.id, part, seq, belongs=belongs, limit=LONG_TAIL_LIMIT
                )

    def _with_tail(
        self,
        connection: Connection,
        project: int,
        part: Partition,
        seq: int,
        *,
        belongs: bool,
        limit: int,
    ) -> int:
        """Put unabsorbed chunks on top of the absorbed ones, if they are few; return how many
        are still not findable.
        """
        now = part.now
        start = now.position if belongs else -1
        if now.tail is not None and (now.tail.position, now.tail.seq) == (start, seq):
            return now.tail.missing
        pending = feed.count_changes(connection, project, after=start)
        removed = feed.list_removals(connection, project, after=start) if belongs else []
        if pending + len(removed) > limit == TAIL_LIMIT:
            return max(pending, 1)
        changed = feed.list_changes(
            connection, project, space_id=self.space_id, after=(start, _LAST), limit=limit
        )
        missing = max(pending - limit, 0)
        built = tail.build(start, seq, changed, removed, self._dimension, missing=missing)
        part.now = (now if belongs else Snapshot()).with_tail(built)
        return missing

    def waiting(self, project: int) -> int:
        """Return the number of changes that the folder has not absorbed; all of them if it has
        to be rebuilt.
        """
        part = self.partition(project)
        with part.guard, self._catalog.read() as connection:
            now = self._reload(part)
            seq, floor = feed.read_counters(connection, project)
            if not _belongs(connection, project, part, seq, floor):
                return feed.count_changes(connection, project, after=-1)
            return feed.count_changes(connection, project, after=now.position) + len(
                feed.list_removals(connection, project, after=now.position)
            )

    def unseen(self, connection: Connection, project: int) -> int:
        """Return the number of chunks that the folder has not absorbed."""
        return feed.count_changes(connection, project, after=self.absorbed(project))

    def absorb(
        self,
        project: int,
        *,
        wait: bool = True,
        anew: Collection[Half] = (),
        verify: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> bool:
        """Write everything that is committed into the folder; False where another process writes it
        and we did not wait.

        The halves in `anew` are rebuilt from nothing, for when a search finds them damaged. With
        `verify` every file is read first.
        """
        part = self.partition(project)
        if verify:
            anew = self._find_damaged_halves(part)
        try:
            with part.writing(wait=wait) as allowed:
                if not allowed:
                    return False
                try:
                    self._absorb(part, project, on_progress, anew=anew)
                except DamagedError as error:
                    self._note_damage(part, error)
                    self._absorb(part, project, on_progress, anew=tuple(Half))
        except (DamagedError, OSError) as error:
            raise ServiceError(
                f"the index folder {part.folder} cannot be written ({error}); free some space or "
                f"mend the permissions, "
                "nothing is lost: it is made again from the catalog"
            ) from error
        return True

    def position(self, project: int) -> int:
        """The sequence number up to which the project's folder has absorbed, as far as this
        process knows.
        """
        return self.partition(project).now.position

    def absorbed(self, project: int) -> int:
        """Return the same position, as the folder states it now."""
        part = self.partition(project)
        with part.guard:
            return self._reload(part).position

    def partition(self, project: int) -> Partition:
        """Return the project's folder."""
        with self._guard:
            if project not in self._partitions:
                self._partitions[project] = Partition(self.folder, project, self.space_id)
            return self._partitions[project]

    def build(self, project: int, *, on_progress: Callable[[Progress], None] | None = None) -> bool:
        """Build this space's vectors while another's are searched; return False if the catalog
        still lacks some.
        """
        part = self.partition(project)
        with part.writing(wait=True), self._catalog.read() as connection:
            for anew in (False, True):
                if spaces.has_missing(connection, self.space_id, project):
                    return False
                # while another space was in use, this one may have passed over chunks that had no
                # vector in it
                if anew:
                    shutil.rmtree(part.vectors, ignore_errors=True)
                    part.now = Snapshot()
                self._take_in(connection, part, project, on_progress)
                if self.count(project) == chunk_rows.count_chunks(connection, project):
                    break
        return True

    def complete(self, connection: Connection, project: int) -> None:
        """Do nothing: changes since `build` are absorbed by sequence number."""

    def drop_space(self, connection: Connection) -> None:
        """Do nothing: `sweep` removes the folders after the transaction."""

    def sweep(self, spaces_kept: Collection[int]) -> None:
        """Remove the vectors of deleted spaces."""
        kept = {f"vectors-{id_}" for id_ in spaces_kept}
        for folder in self.folder.glob("p*/vectors*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _absorb(
        self,
        part: Partition,
        project: int,
        on_progress: Callable[[Progress], None] | None,
        *,
        anew: Collection[Half] = (),
    ) -> None:
        with self._catalog.read() as connection:
            # Once another space is in use, chunks come that have no vector in this one; passing
            # over them would lose their words for both.
            spaces.check_active(connection, self.space_id)
            self._take_in(connection, part, project, on_progress, anew=anew)

    def _take_in(
        self,
        connection: Connection,
        part: Partition,
        project: int,
        on_progress: Callable[[Progress], None] | None,
        *,
        anew: Collection[Half] = (),
    ) -> None:
        with part.guard:
            self._reload(part)
            seq, floor = feed.read_counters(connection, project)
            now = self._open_or_reset(connection, project, part, seq, floor, anew=anew)
        start = now.position
        if start == seq:
            return
        assert now.words is not None
        assert now.view is not None
        total = feed.count_changes(connection, project, after=start) if on_progress else 0
        behind = now.words.state.position, now.view.state.position
        gone = [feed.list_removals(connection, project, after=position) for position in behind]
        for page, position, done in self._pages(connection, project, start, seq):
            for_words, for_vectors = [
                _News([one for one in page if one.seq > from_], ids)
                for from_, ids in zip(behind, gone, strict=True)
            ]
            now = self._apply(
                part,
                now,
                for_words,
                for_vectors,
                feed.read_position(connection, project, position),
            )
            gone = [[], []]
            if on_progress:
                on_progress(
                    Progress(
                        task="rebuilding" if start == 0 else "absorbing", done=done, total=total
                    )
                )

    def _open_or_reset(
        self,
        connection: Connection,
        project: int,
        part: Partition,
        seq: int,
        floor: int,
        *,
        anew: Collection[Half],
    ) -> Snapshot:
        """Return both halves.

        One that is missing, damaged or not derived from this catalog's own past is begun anew, and
        the other is kept.
        """
        words, view = self._open_words(part), self._open_vectors(part)
        if (
            Half.WORDS in anew
            or words is None
            or not _is_past(
                connection, project, words.state.place, seq, floor, empty=not words.segments
            )
        ):
            remove(part.words)
            words = segments.WordView(
                segments.WordState(catalog=self._catalog.identity, project=project)
            )
        if (
            Half.VECTORS in anew
            or view is None
            or not _is_past(
                connection, project, view.state.place, seq, floor, empty=not view.state.rows
            )
        ):
            remove(part.vectors)
            empty = flat.VectorState(
                catalog=self._catalog.identity,
                project=project,
                space=self._space,
                dimension=self._dimension,
            )
            view = flat.open_view(part.vectors, empty)
        part.now = Snapshot.open(view, words)
        part.is_damaged = False
        return part.now

    def _pages(
        self, connection: Connection, project: int, start: int, seq: int
    ) -> Iterator[tuple[list[feed.ChangedChunk], int, int]]:
        """Yield changed chunks in commits, each with the sequence number that is complete after
        it, and the number of chunks so far.
        """
        after, done = (start, _LAST), 0
        batch: list[feed.ChangedChunk] = []
        while True:
            page = feed.list_changes(
                connection, project, space_id=self.space_id, after=after, limit=PAGE
            )
            batch += page
            done += len(page)
            if len(page) < PAGE:
                yield batch, seq, done
                return
            after = (page[-1].seq, page[-1].id)
            if len(batch) >= COMMIT_EVERY:
                yield batch, page[-1].seq - 1, done
                batch = []

    def _apply(
        self,
        part: Partition,
        now: Snapshot,
        for_words: _News,
        for_vectors: _News,
        position: feed.Position,
    ) -> Snapshot:
        """Absorb into each half the changes that are new to it.

        One half may be ahead of the other.
        """
        assert now.view is not None
        assert now.words is not None
        words, view = now.words, now.view
        if for_words or position.seq > words.state.position:
            entries = map(tail.make_entry, for_words.chunks)
            reached = max(position, words.state.place)
            words = segments.open_view(
                part.words,
                segments.append(
                    part.words, words, entries, removed=for_words.gone, position=reached
                ),
                words,
            )
        if for_vectors or position.seq > view.state.position:
            points = Points(
                ids=np.array([chunk.id for chunk in for_vectors.chunks], dtype=np.int64),
                documents=np.array(
                    [chunk.document_id for chunk in for_vectors.chunks], dtype=np.int64
                ),
                vectors=tail.stack_vectors(for_vectors.chunks, self._dimension),
            )
            removed = np.array(for_vectors.gone, dtype=np.int64)
            state = flat.append(
                part.vectors,
                view,
                points,
                removed=removed,
                position=max(position, view.state.place),
            )
            view = flat.open_view(part.vectors, state, view)
        with part.guard:
            part.now = Snapshot.open(view, words)
            return part.now

    def _reload(self, part: Partition) -> Snapshot:
        """Read what was committed since, by us or by another process; a half that cannot be read
        counts as missing.
        """
        now = part.now
        files = _signature(part.words / "state.json"), _signature(part.vectors / "state.json")
        if now.view is not None and part.seen == files:
            return now
        part.seen = files
        words, view = self._open_words(part), self._open_vectors(part)
        if words is None or view is None:
            part.now = Snapshot().with_tail(now.tail)
        elif words is not now.words or view is not now.view:
            part.now = Snapshot.open(view, words).with_tail(now.tail)
        return part.now

    def _open_words(self, part: Partition) -> segments.WordView | None:
        """Return the words as committed; None if they are missing, damaged, or of another
        catalog, project or version.
        """
        known = part.now.words

        def open_latest() -> segments.WordView | None:
            state = segments.read_state(part.words)
            if state is None or (state.catalog, state.project) != (
                self._catalog.identity,
                part.project,
            ):
                return None
            return (
                known
                if known is not None and known.state == state
                else segments.open_view(part.words, state, known)
            )

        return self._open_half(part, part.words, open_latest)

    def _open_vectors(self, part: Partition) -> flat.VectorView | None:
        """Return the vectors as committed; None if they are missing, damaged, or of another
        catalog, project, space or version.
        """
        known = part.now.view

        def open_latest() -> flat.VectorView | None:
            state = flat.read_state(part.vectors)
            expected = self._catalog.identity, part.project, self._space, self._dimension
            if (
                state is None
                or (state.catalog, state.project, state.space, state.dimension) != expected
            ):
                return None
            return (
                known
                if known is not None and known.state == state
                else flat.open_view(part.vectors, state, known)
            )

        return self._open_half(part, part.vectors, open_latest)

    def _open_half(
        self, part: Partition, folder: Path, open_latest: Callable[[], _View | None]
    ) -> _View | None:
        """Open a half.

        A writer in another process may replace its files between the reading of the state and that
        of the files.
        """
        for _ in range(_OPEN_ATTEMPTS):
            before = _signature(folder / "state.json")
            try:
                return open_latest()
            except DamagedError as error:
                if _signature(folder / "state.json") == before:
                    self._note_damage(part, error)
                    break
        return None

    # Damage

    def answer(self, project: int, half: Half, read: Callable[[], _T]) -> _T:
        """Return the result of a read. If it finds damage, the half is rebuilt and read again."""
        try:
            return read()
        except DamagedError as error:
            self._note_damage(self.partition(project), error)
            self.absorb(project, anew=(half,))
            return read()

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call, each once."""
        with self._guard:
            warnings, self._warnings = list(dict.fromkeys(self._warnings)), []
        return warnings

    def find_damage(self, project: int) -> list[str]:
        """Return how the project's files on disk differ from what was committed, whatever this
        process has open.
        """
        part = self.partition(project)
        found = [] if is_marked(self.folder) else ["CACHEDIR.TAG is not as it was written"]
        found += (f"{part.words.name}/{one}" for one in segments.find_damage(part.words))
        return [*found, *(f"{part.vectors.name}/{one}" for one in flat.find_damage(part.vectors))]

    def _find_damaged_halves(self, part: Partition) -> list[Half]:
        found = {
            Half.WORDS: segments.find_damage(part.words),
            Half.VECTORS: flat.find_damage(part.vectors),
        }
        for damage in (one for half in found.values() for one in half[:1]):
            self._note_damage(part, DamagedError(damage))
        return [half for half, damage in found.items() if damage]

    def _note_damage(self, part: Partition, error: DamagedError) -> None:
        part.is_damaged = True
        with self._guard:
            self._warnings.append(
                f"the index folder {part.folder.name} was damaged ({error}); its content is read "
                f"from the catalog again, nothing is lost"
            )

    # Search

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        where: Filter | None = None,
        hint: str | None = None,
    ) -> Matches:
        """Return the k nearest by cosine.

        This store has no native continuation, so a hint is refused.
        """
        if hint is not None:
            raise UnsupportedError(
                "the embedded store has no native continuation; search again with a larger k"
            )
        self._check(vector)
        selection = self.select(project, where)
        if selection is not None and selection.is_empty:
            return Matches.none()

        def search() -> Matches:
            now = self.partition(project).now
            view, rest = now.view, now.tail
            more = 0 if rest is None else len(rest.hidden)
            chosen = (
                None
                if selection is None or view is None
                else selection.accepts(view.chunk_ids, view.document_ids)
            )
            found = Matches.none() if view is None else flat.search(view, vector, k + more, chosen)
            if rest is None:
                return found
            return tail.merge(
                found, rest, flat.cosines(rest.vectors, vector), tail.choose(rest, selection), k
            )

        return self.answer(project, Half.VECTORS, search)

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the cosine of each id; NaN for an absent one."""
        self._check(vector)

        def score() -> Vectors:
            now = self.partition(project).now
            view, rest = now.view, now.tail
            scores = (
                np.full(len(ids), np.nan, dtype=np.float32)
                if view is None
                else flat.score(view, vector, ids)
            )
            if rest is not None:
                tail.overlay(scores, ids, rest, flat.cosines(rest.vectors, vector))
            return scores

        return self.answer(project, Half.VECTORS, score)

    def count(self, project: int) -> int:
        """Return the number of findable points."""
        now = self.partition(project).now
        view, rest = now.view, now.tail
        absorbed = 0 if view is None else view.state.rows - view.state.dead
        if rest is None:
            return absorbed
        hidden = 0 if view is None else int((flat.rows_of(view, rest.hidden) >= 0).sum())
        return absorbed - hidden + len(rest.ids)

    def ids(self, project: int, *, after: int = -1, limit: int = 1000) -> Ids:
        """Return absorbed ids in ascending order."""
        view = self.partition(project).now.view
        if view is None:
            return np.zeros(0, dtype=np.int64)
        alive = view.chunk_ids if view.alive is None else view.chunk_ids[view.alive]
        return np.sort(alive[alive > after])[:limit]

    def upsert(self, project: int, points: Points) -> None:
        """Raise `UnsupportedError`: this store is derived from the catalog alone."""
        raise UnsupportedError(
            "the embedded store takes its points from the catalog; store documents there and absorb"
        )

    def delete(self, project: int, ids: Sequence[int]) -> None:
        """Raise `UnsupportedError`, as `upsert` does."""
        raise UnsupportedError(
            "the embedded store takes its points from the catalog; remove documents there and "
            "absorb"
        )

    def drop(self, project: int) -> None:
        """Remove the project's folder; a project that still exists is rebuilt when it is next
        searched.
        """
        part = self.partition(project)
        with part.writing(wait=True):
            with part.guard:
                part.now = Snapshot()
            for child in (part.words, part.vectors):
                shutil.rmtree(child, ignore_errors=True)
        shutil.rmtree(part.folder, ignore_errors=True)
        with self._guard:
            self._partitions.pop(project, None)

    def close(self) -> None:
        """Release every file."""
        with self._guard:
            self._partitions.clear()

    def select(self, project: int, where: Filter | None) -> Selection | None:
        """Return the documents or chunks that a filter accepts.

        The result is cached until the catalog changes.
        """
        if where is None:
            return None
        with self._catalog.read() as connection:
            return self._selections.get(connection, project, where)

    def _check(self, vector: Vectors) -> None:
        if vector.shape != (self._dimension,):
            raise DimensionError(
                f"the vector has {vector.size} numbers, the vector space {self._dimension}; "
                f"embed with {self._space}"
            )


def open_store(
    catalog: Catalog, *, space_id: int, space: str, dimension: int, options: VectorOptions
) -> EmbeddedStore:
    """Return the store beside an SQLite catalog."""
    if options.metric is not Metric.COSINE:
        raise UnsupportedError(
            f"the embedded store compares by cosine, not by {options.metric}; leave "
            f"UNSPOOL_VECTOR_METRIC at cosine"
        )
    return EmbeddedStore(catalog, space_id=space_id, space=space, dimension=dimension)


def _signature(file: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is replaced."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _belongs(connection: Connection, project: int, part: Partition, seq: int, floor: int) -> bool:
    """Return whether the folder was derived from an earlier state of this catalog, so that it
    only has to catch up.
    """
    positions = part.now.positions
    if not positions or not all(floor <= position.seq <= seq for position in positions):
        return False
    if part.verified != (seq, *positions):
        if not all(_is_past(connection, project, position, seq, floor) for position in positions):
            return False
        part.verified = (seq, *positions)
    return True


def _is_past(
    connection: Connection,
    project: int,
    position: feed.Position,
    seq: int,
    floor: int,
    *,
    empty: bool = False,
) -> bool:
    """Return whether a half at this position was derived from an earlier state of this catalog.

    An empty half always fits.
    """
    if empty and position.seq == 0:
        return True
    return (
        floor <= position.seq <= seq
        and position.stamp >= 0
        and position == feed.read_position(connection, project, position.seq)
    )
