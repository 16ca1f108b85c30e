"""Documents and projects on their way out, with everything that was made of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, content, projects, spaces
from unspool.index.stores import Store


def forget_documents(catalog: Catalog, store: Store, project_id: int, ids: Sequence[int]) -> int:
    """Remove documents; returns how many there still were."""

    def forget(connection: Connection) -> int:
        projects.lock_project(connection, project_id)
        spaces.check_active(connection, store.space_id)
        removed = content.delete_documents(
            connection, project_id, ids, log_changes=store.catches_up
        )
        store.follow(connection, project_id, removed.changes)
        return removed.documents

    return catalog.transact(forget)


def forget_project(catalog: Catalog, store: Store, project_id: int) -> int:
    """Remove a project; returns how many documents it had."""

    def forget(connection: Connection) -> int:
        projects.lock_project(connection, project_id)
        spaces.check_active(connection, store.space_id)
        store.forget(connection, project_id)
        return projects.drop_project(connection, project_id)

    def prune(connection: Connection) -> None:
        # a run may be about to rely on an embedding that it has seen
        if not projects.list_live_runs(connection):
            projects.prune_embeddings(connection)

    count = catalog.transact(forget)
    catalog.transact(prune)  # by itself: others wait for it where they embed
    store.drop(project_id)
    return count
