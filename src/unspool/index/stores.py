"""Port of a store: both retrievers over a catalog, and the methods that keep them up to date."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any, Protocol

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog
from unspool.catalog.content import Changes
from unspool.catalog.projects import ProjectRow, ProjectVersion
from unspool.domain.reports import OnProgress
from unspool.index.options import VectorOptions
from unspool.index.ports import VectorIndex, WordIndex

# by the catalog's engine
_STORES = {"sqlite": "unspool.index.embedded.store", "postgresql": "unspool.index.postgres.store"}


class IndexStore(VectorIndex, Protocol):
    """Vectors and words of one vector space. A catalog alone is enough to rebuild them."""

    @property
    def name(self) -> str:
        """Name of the store."""

    @property
    def space_id(self) -> int:
        """Id of the vector space."""

    @property
    def catches_up(self) -> bool:
        """True if changes are indexed later, by sequence number.

        Otherwise the store takes part in the transactions that change chunks.
        """

    @property
    def words(self) -> WordIndex:
        """Word index over the same chunks."""

    def apply_changes(self, connection: Connection, project: int, changes: Changes) -> None:
        """Index changes in the transaction that stores them; do nothing if changes are indexed
        later.
        """

    def delete_project(self, connection: Connection, project: int) -> None:
        """Delete a project's rows in the transaction that deletes the project."""

    def catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None = None
    ) -> int:
        """Make everything searchable that was committed when the project's row was read.

        Returns the number of chunks that are not searchable yet.
        """

    def flush(self, project: int) -> None:
        """Index what a long run has stored so far, unless another process is writing."""

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> str:
        """Index what a run has stored, or what `put` chunks of small writes have added.

        Returns a warning if something failed although everything is stored and searchable.
        """

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> bool:
        """Rebuild everything that is missing or damaged.

        With `verify` every file is read to find damage.
        """

    def build_space(self, project: int, *, on_progress: OnProgress | None = None) -> bool:
        """Build this space's vectors while another space is searched.

        Returns False if the catalog does not contain all of them yet.
        """

    def complete_space(self, connection: Connection, project: int) -> None:
        """Index the changes since `build_space`, in the transaction that activates this space."""

    def drop_space(self, connection: Connection) -> None:
        """Delete this space's vectors, in the transaction that deletes the space."""

    def sweep_spaces(self, spaces_kept: Collection[int]) -> None:
        """Delete the remaining files of deleted spaces, after the transaction."""

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks that are not indexed yet."""

    def take_warnings(self) -> list[str]:
        """Return the warnings about repairs since the last call."""

    def get_position(self, project: int) -> int:
        """Return the sequence number of the last indexed change, if changes are indexed later."""


def open_store(
    catalog: Catalog, *, space_id: int, space: str, dimension: int, options: VectorOptions
) -> IndexStore:
    """Return the store of a catalog's engine, for one vector space."""
    module: Any = importlib.import_module(_STORES[catalog.engine_name])
    store: IndexStore = module.open_store(
        catalog, space_id=space_id, space=space, dimension=dimension, options=options
    )
    return store
