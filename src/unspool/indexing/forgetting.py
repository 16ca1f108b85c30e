"""Removal of documents and projects with everything derived from them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, content, projects, spaces
from unspool.index.stores import IndexStore


def forget_documents(
    catalog: Catalog, store: IndexStore, project_id: int, ids: Sequence[int]
) -> int:
    """Remove documents, and return how many of them still existed."""

    def forget(connection: Connection) -> int:
        projects.lock_project(connection, project_id)
        spaces.check_active(connection, store.space_id)
        removed = content.delete_documents(
            connection, project_id, ids, log_changes=store.catches_up
        )
        store.apply_changes(connection, project_id, removed.changes)
        return removed.documents

    return catalog.transact(forget)


def forget_project(catalog: Catalog, store: IndexStore, project_id: int) -> int:
    """Remove a project, and return how many documents it had."""

    def forget(connection: Connection) -> int:
        projects.lock_project(connection, project_id)
        spaces.check_active(connection, store.space_id)
        store.delete_project(connection, project_id)
        return projects.drop_project(connection, project_id)

    def prune(connection: Connection) -> None:
        # a live run may rely on an embedding that it has seen
        if not projects.list_live_runs(connection):
            projects.prune_embeddings(connection)

    count = catalog.transact(forget)
    # in its own transaction, because it blocks every writer that embeds
    catalog.transact(prune)
    store.drop(project_id)
    return count
