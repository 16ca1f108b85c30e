"""Switching a catalog to another embedder.

The new vectors are computed beside the old ones, then activated in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from unspool.domain.reports import OnProgress, ReembedPlan, ReembedReport
from unspool.errors import ConfigError
from unspool.session import check_settings, make_index_opener, open_cache, open_embedder
from unspool.settings import Settings

if TYPE_CHECKING:
    from unspool.catalog import Catalog


def reembed(
    address: str | None = None,
    *,
    embedder: object = None,
    settings: Settings | None = None,
    confirm: Callable[[ReembedPlan], bool] | None = None,
    drop_old: bool = False,
    on_progress: OnProgress | None = None,
) -> ReembedReport | None:
    """Switch to the given embedder, or to the one that the settings name.

    Open corpora keep working and follow. `confirm` gets the cost. If it returns False, nothing
    happens and None is returned. `drop_old` deletes the vectors of all other embedders, which are
    otherwise kept for switching back.
    """
    from unspool.indexing import reembedding

    given = {"database": address, "embedder": embedder if isinstance(embedder, str) else None}
    settings = (
        Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    )
    with _open_catalog(settings) as catalog:
        own, setting = open_embedder(settings, None if isinstance(embedder, str) else embedder)
        work = reembedding.Reembedder(
            catalog=catalog,
            embedder=own,
            setting=setting,
            cache=open_cache(settings, own),
            open_indexes=make_index_opener(catalog, settings),
        )
        try:
            if confirm is not None and not confirm(reembedding.plan_reembedding(work)):
                return None
            report = reembedding.reembed(work, on_progress)
            if drop_old:
                report = replace(
                    report,
                    kept=(),
                    dropped=tuple(reembedding.drop_inactive_spaces(catalog, work.open_indexes)),
                )
            return report
        finally:
            if work.cache is not None:
                work.cache.close()


def drop_old(address: str | None = None, *, settings: Settings | None = None) -> list[str]:
    """Delete the vectors of every embedder but the active one; return the names of the others."""
    from unspool.indexing import reembedding

    given = {"database": address}
    settings = (
        Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    )
    with _open_catalog(settings) as catalog:
        return reembedding.drop_inactive_spaces(catalog, make_index_opener(catalog, settings))


@contextmanager
def _open_catalog(settings: Settings) -> Iterator[Catalog]:
    """Open a catalog without an embedder."""
    from unspool.catalog import Catalog

    check_settings(settings)
    if settings.database.read_address and not settings.database.address:
        raise ConfigError(
            "only a replica is named, which cannot be written; set UNSPOOL_DATABASE to the primary"
        )
    catalog = Catalog.open(settings.database_address, create=False, options=settings.database)
    try:
        yield catalog
    finally:
        catalog.close()
