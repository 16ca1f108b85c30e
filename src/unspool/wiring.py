"""Components of a corpus, opened with their options. None of them sees the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.errors import ConfigError
from unspool.settings import Settings

# the real imports are where they are used: `import unspool` stays under a tenth of a second
if TYPE_CHECKING:
    from unspool.answering.models import AnswerModel
    from unspool.catalog import Catalog
    from unspool.embedders.base import Embedder
    from unspool.embedders.cache import RedisCache
    from unspool.index.stores import Store
    from unspool.indexing.reembedding import OpenStore, Reembedder


def check(settings: Settings) -> None:
    """Refuse settings that no part could work with."""
    if settings.vectors.address:
        raise ConfigError(
            f"vectors is {settings.vectors.address.split(':')[0]!r}; leave UNSPOOL_VECTORS empty, "
            f"vectors are kept beside the catalog"
        )


def open_embedder(settings: Settings, given: object = None) -> tuple[Embedder, str]:
    """The embedder that was given, or the one that the settings name; and how another process
    opens it, '' where none can.
    """
    from unspool import embedders

    check(settings)
    if given is not None and not isinstance(given, str):
        return embedders.as_embedder(given, settings.embedder), ""
    name = settings.embedder.name if given is None else given
    return embedders.open_embedder(name, settings.embedder), embedders.setting_of(name)


def open_model(settings: Settings, given: object = None) -> AnswerModel | None:
    """The model for answers that was given, or the one that the settings name; None where they
    name none.
    """
    from unspool import answering

    check(settings)
    if given is not None and not isinstance(given, str):
        return answering.as_model(given)
    name = settings.answer.model if given is None else given
    return answering.open_model(name, settings.answer) if name else None


def open_cache(settings: Settings, embedder: Embedder) -> RedisCache | None:
    """The cache that the settings name, for one embedder's vectors."""
    if not settings.cache.address or not embedder.facts.is_shared:
        return None
    from unspool.embedders.cache import RedisCache

    return RedisCache(settings.cache, embedder)


def open_store(
    catalog: Catalog, settings: Settings, *, space_id: int, name: str, revision: str, dimension: int
) -> Store:
    """The store of a catalog, for one vector space."""
    from unspool.index import stores

    return stores.open_store(
        catalog,
        space_id=space_id,
        space=f"{name}@{revision}",
        dimension=dimension,
        options=settings.vectors,
    )


def store_opener(catalog: Catalog, settings: Settings) -> OpenStore:
    """What opens the store of a vector space."""
    return lambda space: open_store(
        catalog,
        settings,
        space_id=space.id,
        name=space.embedder,
        revision=space.revision,
        dimension=space.dimension,
    )


def reembedder(catalog: Catalog, settings: Settings, given: object = None) -> Reembedder:
    """What going over to another embedder works with."""
    from unspool.indexing.reembedding import Reembedder

    embedder, setting = open_embedder(settings, given)
    return Reembedder(
        catalog=catalog,
        embedder=embedder,
        setting=setting,
        cache=open_cache(settings, embedder),
        open_store=store_opener(catalog, settings),
    )
