"""Moving vectors to another store, or a catalog with everything to another database.

The target is filled beside the source, which stays as it is. A setting makes the switch.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from unspool.domain.reports import MoveReport, OnProgress
from unspool.errors import AddressError, ServiceError
from unspool.session import check_settings, make_index_opener
from unspool.settings import Settings

if TYPE_CHECKING:
    from unspool.catalog import Catalog
    from unspool.index.indexes import Indexes

HOME = "catalog"  # moves vectors back into the catalog's database
MAX_PASSES = 5  # over a catalog that is written meanwhile


def move(
    address: str | None = None,
    *,
    to: str,
    settings: Settings | None = None,
    on_progress: OnProgress | None = None,
) -> MoveReport:
    """Fill another vector store, or another database, and compare it with the source.

    `to` is the address of a store or of a database, or `catalog` for the vectors of the catalog's
    own database. Nothing is embedded. Searches and writes continue. The same call resumes a move
    that was interrupted, and brings the target up to date again.
    """
    from unspool.index import vectors

    begun = time.monotonic()
    given = {"database": address}
    settings = (
        Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    )
    if to == HOME or vectors.get_adapter_name(to) in vectors.list_adapters():
        own = settings.with_arguments({"vectors": "" if to == HOME else to})
        check_settings(own)
        with closing(_open(settings.database_address, own, create=False)) as catalog:
            return _complete(catalog, own, begun, 0, "UNSPOOL_VECTORS", on_progress)
    if to.partition(":")[0] not in ("sqlite", "postgresql"):
        raise AddressError(
            f"{to[:40]!r} is neither a store nor a database; give an address of `unspool stores`, "
            f"sqlite:///FILE, postgresql://USER@HOST/DATABASE, or {HOME}"
        )
    return _move_catalog(settings, to, begun, on_progress)


def _open(address: str, settings: Settings, *, create: bool) -> Catalog:
    from unspool.catalog import Catalog

    return Catalog.open(address, create=create, options=settings.database)


def _move_catalog(
    settings: Settings, to: str, begun: float, on_progress: OnProgress | None
) -> MoveReport:
    """Copy all rows until nothing differs, then fill the indexes of the copy."""
    from unspool.catalog import copying

    own = settings.with_arguments({"database": to})
    with (
        closing(_open(settings.database_address, settings, create=False)) as source,
        closing(_open(to, own, create=True)) as target,
    ):
        copying.claim_target(source, target)
        _drop_deleted(source, target, own)
        copied = 0
        for _ in range(MAX_PASSES):
            changed = copying.copy_rows(source, target, on_progress)
            copied += changed
            if not changed:
                break
        return _complete(target, own, begun, copied, "UNSPOOL_DATABASE", on_progress)


def _drop_deleted(source: Catalog, target: Catalog, settings: Settings) -> None:
    """Delete the projects of the target that the source has deleted, with their indexes."""
    from unspool.catalog import projects, spaces
    from unspool.indexing.forgetting import forget_project

    with source.read() as connection:
        known = {row.id for row in projects.list_projects(connection)}
    with target.read() as connection:
        space = spaces.find_active_space(connection)
        deleted = [row.id for row in projects.list_projects(connection) if row.id not in known]
    if space is None or not deleted:
        return
    with closing(make_index_opener(target, settings)(space)) as indexes:
        for project in deleted:
            forget_project(target, indexes, project)


def _complete(
    catalog: Catalog,
    settings: Settings,
    begun: float,
    copied: int,
    setting: str,
    on_progress: OnProgress | None,
) -> MoveReport:
    """Fill the indexes of a catalog, and compare them with it."""
    from unspool.catalog import projects, spaces
    from unspool.index.sampling import measure_agreement

    with catalog.read() as connection:
        space = spaces.find_active_space(connection)
        rows = projects.list_projects(connection)
    agreement = 1.0
    if space is not None:
        with closing(make_index_opener(catalog, settings)(space)) as indexes:
            upkeep = indexes.upkeep if copied else indexes.upkeep[-1:]
            for row in rows:
                for one in upkeep:
                    one.repair(row.id, on_progress=on_progress)
                _check_points(indexes, row.id, row.name)
            ids = [row.id for row in rows]
            agreement = measure_agreement(catalog, indexes, ids, space.id, space.dimension)
            for row in rows:  # what was written meanwhile
                indexes.upkeep[-1].finish_run(row.id)
    return MoveReport(
        setting=setting,
        projects=len(rows),
        chunks=sum(row.chunk_count for row in rows),
        copied=copied,
        agreement=round(agreement, 4),
        seconds=round(time.monotonic() - begun, 3),
    )


def _check_points(indexes: Indexes, project: int, name: str) -> None:
    """Raise an error if the vector index has other points than the catalog has chunks."""
    damage = indexes.upkeep[-1].find_damage(project)
    if damage:
        raise ServiceError(
            f"the target differs from the catalog in project {name!r} ({'; '.join(damage)}); the "
            f"source is unchanged, run the same command again"
        )
