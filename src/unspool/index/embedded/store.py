"""Embedded store: words and vectors of each project in a folder beside an SQLite catalog.

Several processes may share a catalog. A single process at a time has a project's lock file and
writes its folder. The others read what was committed last. A search never waits for that lock.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, feed, spaces
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.content import Changes
from unspool.catalog.filters import Selection, SelectionCache
from unspool.catalog.projects import ProjectRow, ProjectVersion
from unspool.domain.filters import Filter
from unspool.domain.queries import Stability
from unspool.domain.reports import OnProgress
from unspool.errors import DimensionError, ServiceError, SwitchedError, UnsupportedError
from unspool.index.embedded import flat, writing
from unspool.index.embedded.checksums import DamagedError
from unspool.index.embedded.partition import Half, Partition, Snapshot, is_marked
from unspool.index.embedded.tail import build_tail, merge_candidates, overlay_scores
from unspool.index.embedded.words import EmbeddedWords
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Candidates, Capabilities, Ids, Vectors

# Reading and analysing a tail of this many chunks takes 15 ms, once per process. More is worth a
# commit to the folder (60 to 150 ms).
TAIL_LIMIT = 256
# about a second: chunks that are scored directly if the folder cannot be written
LONG_TAIL_LIMIT = 5_000
_T = TypeVar("_T")


class EmbeddedStore:
    """Both retrievers over a folder, as the `IndexStore` port; `words` is the `WordIndex` port."""

    name = "embedded"
    catches_up = True
    capabilities = Capabilities(max_k=100_000, stability=Stability.DETERMINISTIC)

    def __init__(self, catalog: Catalog, *, space_id: int, space: str, dimension: int) -> None:
        self.folder = catalog.get_folder("derived")
        self.space_id = space_id
        self.words = EmbeddedWords(self)
        self._catalog = catalog
        self._space = space
        self._dimension = dimension
        self._partitions: dict[int, Partition] = {}
        self._selections = SelectionCache()
        self._guard = threading.Lock()
        self._warnings: list[str] = []

    # Catching up with the catalog

    def apply_changes(self, connection: Connection, project: int, changes: Changes) -> None:
        """Do nothing: a commit to the folder takes 60 to 150 ms, so changes are written later."""

    def delete_project(self, connection: Connection, project: int) -> None:
        """Do nothing: `drop` deletes the folder after the transaction."""

    def flush(self, project: int) -> None:
        """Write what a run has stored so far, unless another process is writing."""
        with suppress(SwitchedError):  # the next writer reports it
            self._write(self.get_partition(project), wait=False)

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> str:
        """Write what a run has stored, unless the tail can contain it.

        For few chunks a commit would take longer than the run.
        """
        part = self.get_partition(project)
        if put > TAIL_LIMIT if put is not None else not self._fits_tail(part):
            # everything is stored; a search in the other space writes it
            with suppress(SwitchedError):
                self._write(part, on_progress=on_progress)
        return ""

    def catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None = None
    ) -> int:
        """Make everything searchable that was committed when the project's row was read.

        Returns the number of chunks that are not searchable yet. There are some while another
        process writes the folder, or if it cannot be written.
        """
        part = self.get_partition(project.id)
        with part.guard:
            now = part.reload()
            if now.position == project.seq and part.verified == (project.seq, *now.positions):
                part.now = now.with_tail(None)
                return 0
            with self._catalog.read() as connection:
                spaces.check_active(connection, self.space_id)
                pending, is_derived = self._attach_tail(connection, part, TAIL_LIMIT)
            if not pending and (part.now.tail is None or not part.is_damaged):
                return 0
        # If the folder cannot be searched at all, this waits for another writer.
        wait = bool(pending) and not is_derived
        try:
            return 0 if self._write(part, wait=wait, on_progress=on_progress) else pending
        except ServiceError:  # the folder cannot be written
            with part.guard, self._catalog.read() as connection:
                part.reload()
                return self._attach_tail(connection, part, LONG_TAIL_LIMIT)[0]

    def _attach_tail(self, connection: Connection, part: Partition, limit: int) -> tuple[int, bool]:
        """Add unwritten chunks to the snapshot, if they are few.

        Returns the number of chunks that are still not searchable, and whether the folder was
        derived from this catalog.
        """
        seq, floor = feed.read_counters(connection, part.project)
        now, is_derived = part.now, part.is_derived(connection, seq, floor)
        start = now.position if is_derived else -1
        if start == seq:
            part.now = now.with_tail(None)
            return 0, True
        if now.tail is not None and (now.tail.position, now.tail.seq) == (start, seq):
            return now.tail.missing, is_derived
        pending = feed.count_changes(connection, part.project, after=start)
        removed = feed.list_removals(connection, part.project, after=start) if is_derived else []
        if pending + len(removed) > limit == TAIL_LIMIT:
            return max(pending, 1), is_derived
        changed = feed.list_changes(
            connection,
            part.project,
            space_id=self.space_id,
            after=(start, writing.LAST_ID),
            limit=limit,
        )
        missing = max(pending - limit, 0)
        tail = build_tail(start, seq, changed, removed, self._dimension, missing=missing)
        part.now = (now if is_derived else part.empty).with_tail(tail)
        return missing, is_derived

    def _fits_tail(self, part: Partition) -> bool:
        """Return whether the unwritten changes are few enough for the tail."""
        with part.guard, self._catalog.read() as connection:
            start = part.reload().position
            if start <= 0 or not part.is_derived(
                connection, *feed.read_counters(connection, part.project)
            ):
                return False
            changed = feed.count_changes(connection, part.project, after=start)
            removed = feed.list_removals(connection, part.project, after=start)
            return changed + len(removed) <= TAIL_LIMIT // 2

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks that are not written to the folder."""
        return feed.count_changes(connection, project, after=self.get_position(project))

    def get_position(self, project: int) -> int:
        """Return the sequence number of the last change that the folder contains."""
        part = self.get_partition(project)
        with part.guard:
            return part.reload().position

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> bool:
        """Write everything that is committed; rebuild missing and damaged halves.

        With `verify` every file is read to find damage.
        """
        part = self.get_partition(project)
        damage = part.find_damage() if verify else {}
        for found in filter(None, damage.values()):
            part.report_damage(found[0])
        rebuild = [half for half, found in damage.items() if found]
        return self._write(part, rebuild=rebuild, on_progress=on_progress)

    def _write(
        self,
        part: Partition,
        *,
        wait: bool = True,
        rebuild: Collection[Half] = (),
        on_progress: OnProgress | None = None,
    ) -> bool:
        """Write everything that is committed; rebuild the halves in `rebuild`.

        Returns False if another process is writing and `wait` is false.
        """
        try:
            with part.lock(wait=wait) as is_locked:
                if is_locked:
                    self._write_or_rebuild(part, rebuild, on_progress)
                return is_locked
        except (DamagedError, OSError) as error:
            raise ServiceError(
                f"the index folder {part.folder} cannot be written ({error}); free disk space or "
                f"correct the permissions. Nothing is lost: the folder is rebuilt from the catalog"
            ) from error

    def _write_or_rebuild(
        self, part: Partition, rebuild: Collection[Half], on_progress: OnProgress | None
    ) -> None:
        with self._catalog.read() as connection:
            # If another space is active, new chunks have no vector in this one. Skipping them here
            # would lose their words for both.
            spaces.check_active(connection, self.space_id)
            try:
                writing.write_changes(connection, part, self.space_id, on_progress, rebuild=rebuild)
            except DamagedError as error:
                part.report_damage(error)
                writing.write_changes(
                    connection, part, self.space_id, on_progress, rebuild=tuple(Half)
                )

    def get_partition(self, project: int) -> Partition:
        """Return the project's folder."""
        with self._guard:
            if project not in self._partitions:
                self._partitions[project] = Partition(
                    self._catalog,
                    project,
                    space_id=self.space_id,
                    space=self._space,
                    dimension=self._dimension,
                    warn=self._warnings.append,
                )
            return self._partitions[project]

    def build_space(self, project: int, *, on_progress: OnProgress | None = None) -> bool:
        """Build this space's vectors while another space is searched.

        Returns False if the catalog does not contain all of them yet.
        """
        part = self.get_partition(project)
        with part.lock(wait=True), self._catalog.read() as connection:
            # While another space was active, this one may have skipped chunks without a vector.
            # Then the second attempt builds all.
            for rebuild in ((), (Half.VECTORS,)):
                if spaces.has_missing(connection, self.space_id, project):
                    return False
                writing.write_changes(connection, part, self.space_id, on_progress, rebuild=rebuild)
                state = part.now.vectors.state
                if state.rows - state.dead == chunk_rows.count_chunks(connection, project):
                    break
        return True

    def complete_space(self, connection: Connection, project: int) -> None:
        """Do nothing: changes since `build_space` are written by sequence number."""

    def drop_space(self, connection: Connection) -> None:
        """Do nothing: `sweep_spaces` deletes the folders after the transaction."""

    def sweep_spaces(self, spaces_kept: Collection[int]) -> None:
        """Delete the vectors of deleted spaces."""
        kept = {f"vectors-{id_}" for id_ in spaces_kept}
        for folder in self.folder.glob("p*/vectors*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    # Damage

    def read(self, project: int, half: Half, read: Callable[[Snapshot], _T]) -> _T:
        """Return the result of reading a snapshot; rebuild a half that proves to be damaged."""
        part = self.get_partition(project)
        try:
            return read(part.now)
        except DamagedError as error:
            part.report_damage(error)
            self._write(part, rebuild=(half,))
            return read(part.now)

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call, each once."""
        with self._guard:
            taken = self._warnings[:]
            del self._warnings[: len(taken)]
        return list(dict.fromkeys(taken))

    def find_damage(self, project: int) -> list[str]:
        """Describe how the project's files on disk differ from what was committed."""
        part = self.get_partition(project)
        found = [] if is_marked(self.folder) else ["CACHEDIR.TAG is not as it was written"]
        for half, damage in part.find_damage().items():
            found += (f"{part.folders[half].name}/{one}" for one in damage)
        return found

    # Search

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        where: Filter | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest by cosine; reject a hint, since there is no native continuation."""
        if hint is not None:
            raise UnsupportedError(
                "the embedded store has no native continuation; search again with a larger k"
            )
        self._check_dimension(vector)
        selection = self.select(project, where)
        if selection is not None and selection.is_empty:
            return Candidates.empty()

        def search(now: Snapshot) -> Candidates:
            view, tail = now.vectors, now.tail
            chosen = None
            if selection is not None:
                chosen = selection.accepts(view.chunk_ids, view.document_ids)
            if tail is None:
                return flat.search(view, vector, k, chosen)
            found = flat.search(view, vector, k + len(tail.hidden), chosen)
            return merge_candidates(found, tail, vector, selection, k)

        return self.read(project, Half.VECTORS, search)

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the cosine of each id; NaN for an absent one."""
        self._check_dimension(vector)

        def score(now: Snapshot) -> Vectors:
            scores = flat.score(now.vectors, vector, ids)
            if now.tail is not None:
                overlay_scores(scores, ids, now.tail, vector)
            return scores

        return self.read(project, Half.VECTORS, score)

    def drop(self, project: int) -> None:
        """Delete the project's folder. If the project still exists, a search rebuilds it."""
        part = self.get_partition(project)
        with part.lock(wait=True):
            part.clear()
        shutil.rmtree(part.folder, ignore_errors=True)
        with self._guard:
            self._partitions.pop(project, None)

    def close(self) -> None:
        """Close every file."""
        with self._guard:
            self._partitions.clear()

    def select(self, project: int, where: Filter | None) -> Selection | None:
        """Return the documents or chunks that a filter accepts; None without a filter.

        The result is cached until the catalog changes.
        """
        if where is None:
            return None
        with self._catalog.read() as connection:
            return self._selections.get(connection, project, where)

    def _check_dimension(self, vector: Vectors) -> None:
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
