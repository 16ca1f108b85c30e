"""From one embedder to the next: the vectors of the new one are made beside the old ones, then
all goes over at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from unspool import wiring
from unspool.domain.reports import Progress, ReembedPlan, ReembedReport
from unspool.errors import ConfigError
from unspool.settings import Settings

if TYPE_CHECKING:
    from unspool.catalog import Catalog

OnProgress = Callable[[Progress], None]


def reembed(
    address: str | None = None,
    *,
    embedder: object = None,
    settings: Settings | None = None,
    confirm: Callable[[ReembedPlan], bool] | None = None,
    drop_old: bool = False,
    on_progress: OnProgress | None = None,
) -> ReembedReport | None:
    """Go over to another embedder: the one given, or the one that the settings name. Corpora that
    are open go on and follow.

    `confirm` is shown what it will cost; where it returns False nothing happens, and None is
    returned. `drop_old` forgets the vectors of every embedder but the new one, which are otherwise
    kept to go back to.
    """
    from unspool.indexing import reembedding

    given = {"database": address, "embedder": embedder if isinstance(embedder, str) else None}
    settings = (
        Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    )
    with _catalog_of(settings) as catalog:
        work = wiring.reembedder(catalog, settings, None if isinstance(embedder, str) else embedder)
        try:
            if confirm is not None and not confirm(reembedding.plan(work)):
                return None
            report = reembedding.reembed(work, on_progress)
            if drop_old:
                report = replace(
                    report, kept=(), dropped=tuple(reembedding.drop_old(catalog, work.open_store))
                )
            return report
        finally:
            if work.cache is not None:
                work.cache.close()


def drop_old(address: str | None = None, *, settings: Settings | None = None) -> list[str]:
    """Forget the vectors of every embedder but the one in use; returns whose they were."""
    from unspool.indexing import reembedding

    given = {"database": address}
    settings = (
        Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    )
    with _catalog_of(settings) as catalog:
        return reembedding.drop_old(catalog, wiring.store_opener(catalog, settings))


@contextmanager
def _catalog_of(settings: Settings) -> Iterator[Catalog]:
    """A catalog by itself, whichever embedder it belongs to."""
    from unspool.catalog import Catalog

    wiring.check(settings)
    if settings.database_read and not settings.database:
        raise ConfigError(
            "only a replica is named, which cannot be written; set UNSPOOL_DATABASE to the primary"
        )
    catalog = Catalog.open(
        settings.database_address, create=False, options=wiring.connecting(settings)
    )
    try:
        yield catalog
    finally:
        catalog.close()
