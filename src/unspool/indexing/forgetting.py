"""Removal of documents and projects with everything derived from them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, content, documents, projects, spaces
from unspool.catalog.feed import Changes
from unspool.index.indexes import Indexes


def forget_documents(
    catalog: Catalog, indexes: Indexes, project_id: int, ids: Sequence[int]
) -> int:
    """Remove documents, and return how many of them still existed."""

    def forget(connection: Connection) -> int:
        projects.share_project(connection, project_id)
        spaces.check_active(connection, indexes.space_id)
        documents.lock_documents(connection, ids)
        changes = Changes(project_id)
        count = content.delete_documents(connection, ids, changes)
        indexes.publish(connection, changes)
        return count

    return catalog.transact(forget)


def forget_project(catalog: Catalog, indexes: Indexes, project_id: int) -> int:
    """Remove a project, and return how many documents it had."""

    def forget(connection: Connection) -> int:
        projects.lock_project(connection, project_id)
        spaces.check_active(connection, indexes.space_id)
        indexes.delete_project(connection, project_id)
        return projects.drop_project(connection, project_id)

    def prune(connection: Connection) -> None:
        # a live run may rely on an embedding that it has seen
        if not projects.list_live_runs(connection):
            projects.prune_embeddings(connection)

    count = catalog.transact(forget)
    # in its own transaction, because it blocks every writer that embeds
    catalog.transact(prune)
    indexes.drop(project_id)
    return count
