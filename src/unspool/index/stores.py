"""The store port: both retrievers over what a catalog holds, and how they keep up with it.

`open_store` picks the one that an engine has.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any, Protocol

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog
from unspool.catalog.content import Changes
from unspool.catalog.projects import ProjectRow
from unspool.domain.reports import Progress
from unspool.index.options import VectorOptions
from unspool.index.ports import VectorIndex, WordIndex

OnProgress = Callable[[Progress], None]
# by the catalog's engine
_STORES = {"sqlite": "unspool.index.embedded.store", "postgresql": "unspool.index.postgres.store"}


class Store(VectorIndex, Protocol):
    """Derived from a catalog alone, so it can always be made again."""

    @property
    def name(self) -> str: ...

    @property
    def space_id(self) -> int: ...

    @property
    def catches_up(self) -> bool:
        """Whether it takes in changes later, by sequence number; otherwise it takes part in the
        transactions that make them.
        """

    @property
    def words(self) -> WordIndex: ...

    def follow(self, connection: Connection, project: int, changes: Changes) -> None:
        """Take part in the transaction that changes a project's chunks.

        A store that catches up later does nothing here.
        """

    def forget(self, connection: Connection, project: int) -> None:
        """Take part in the transaction that removes a project."""

    def fresh(self, project: ProjectRow, on_progress: OnProgress | None = None) -> int:
        """Make everything findable that was committed when the project's row was read; returns
        how many chunks are not yet.
        """

    def keep_up(self, project: int) -> None:
        """Called now and then during a long run; waits for nobody."""

    def settle(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> str:
        """Called after a run, or after so many chunks were put: what is worth doing once much has
        changed.

        Returns what could not be done though all is stored and found; an error is for what is not
        found yet.
        """

    def absorb(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> bool:
        """Rebuild everything that is missing or damaged.

        With `verify` every file is read to find damage.
        """

    def build(self, project: int, *, on_progress: OnProgress | None = None) -> bool:
        """Make this space's vectors while another space is in use, and hold nobody up; False
        where the catalog does not have them all yet.
        """

    def complete(self, connection: Connection, project: int) -> None:
        """Take part in the transaction that puts this space in use: what has changed since
        `build`.
        """

    def drop_space(self, connection: Connection) -> None:
        """Take part in the transaction that forgets this space."""

    def sweep(self, spaces_kept: Collection[int]) -> None:
        """Called after that: remove what is left of spaces that are gone."""

    def unseen(self, connection: Connection, project: int) -> int:
        """How many chunks have not been taken in."""

    def take_warnings(self) -> list[str]:
        """Return what users should know about repairs since the last call."""

    def position(self, project: int) -> int:
        """The sequence number up to which changes have been taken in, for one that catches up."""


def open_store(
    catalog: Catalog, *, space_id: int, space: str, dimension: int, options: VectorOptions
) -> Store:
    """The store of a catalog, for one vector space."""
    module: Any = importlib.import_module(_STORES[catalog.engine_name])
    store: Store = module.open_store(
        catalog, space_id=space_id, space=space, dimension=dimension, options=options
    )
    return store
