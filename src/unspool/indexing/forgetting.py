"""Documents and projects on their way out, with everything that was made of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, documents, projects, spaces
from unspool.index.stores import IndexStore


def forget_documents(
    catalog: Catalog, store: IndexStore, project_id: int, ids: Sequence[int]
) -> int:
    """Remove documents; returns how many there still were."""

    def forget(connection: Connection) -> int:
        projects.take(connection, project_id)
        spaces.check_active(connection, store.space_id)
        removed = documents.remove(connection, project_id, ids, feeds=store.catches_up)
        store.apply_changes(connection, project_id, removed.changes)
        return removed.documents

    return catalog.transact(forget)


def forget_project(catalog: Catalog, store: IndexStore, project_id: int) -> int:
    """Remove a project; returns how many documents it had."""

    def forget(connection: Connection) -> int:
        projects.take(connection, project_id)
        spaces.check_active(connection, store.space_id)
        store.delete_project(connection, project_id)
        return projects.drop(connection, project_id)

    def prune(connection: Connection) -> None:
        # a run may be about to rely on an embedding that it has seen
        if not projects.any_live_run(connection):
            projects.prune_embeddings(connection)

    count = catalog.transact(forget)
    catalog.transact(prune)  # by itself: others wait for it where they embed
    store.drop(project_id)
    return count
