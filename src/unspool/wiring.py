"""What the settings mean to the parts: each gets the values it uses, and none sees the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.domain.history import Retention
from unspool.errors import ConfigError
from unspool.settings import Settings

# the real imports are where they are used: `import unspool` stays under a tenth of a second
if TYPE_CHECKING:
    from unspool.answering.models import AnswerModel
    from unspool.catalog import Catalog
    from unspool.catalog.database import ConnectionOptions
    from unspool.embedders.base import Embedder
    from unspool.embedders.cache import RedisCache
    from unspool.embedders.options import EmbedderOptions
    from unspool.index.options import VectorOptions
    from unspool.index.stores import Store
    from unspool.indexing.reembedding import OpenStore, Reembedder


def check(settings: Settings) -> None:
    """Refuse settings that no part could work with."""
    if settings.vectors:
        raise ConfigError(
            f"vectors is {settings.vectors.split(':')[0]!r}; leave UNSPOOL_VECTORS empty, "
            f"vectors are kept beside the catalog"
        )


def connecting(settings: Settings) -> ConnectionOptions:
    """How a database server is connected to."""
    from unspool.catalog.database import ConnectionOptions

    return ConnectionOptions(
        pool_size=settings.pool_size,
        pool_overflow=settings.pool_overflow,
        pool_timeout_s=settings.pool_timeout_s,
        pool_recycle_s=settings.pool_recycle_s,
        pre_ping=settings.pool_pre_ping == "on",
        connect_timeout_s=settings.connect_timeout_s,
        statement_timeout_s=settings.statement_timeout_s,
    )


def retention(settings: Settings) -> Retention:
    """How much of a stream of responses is kept."""
    return Retention(max_records=settings.history_max_records, max_age_s=settings.history_max_age_s)


def vector_options(settings: Settings) -> VectorOptions:
    """How vectors are indexed."""
    from unspool.index.options import Metric, VectorOptions

    return VectorOptions(
        metric=Metric(settings.vector_metric),
        index=settings.vector_index,
        type=settings.vector_type,
        hnsw_m=settings.hnsw_m,
        hnsw_ef_construction=settings.hnsw_ef_construction,
        ivfflat_lists=settings.ivfflat_lists,
        exact_below=settings.exact_below,
        max_scan_tuples=settings.max_scan_tuples,
    )


def embedder_options(settings: Settings) -> EmbedderOptions:
    """How an embedder is used, whichever it is."""
    from unspool.embedders.base import OverLimit
    from unspool.embedders.options import EmbedderOptions

    return EmbedderOptions(
        url=settings.embedder_url,
        key=settings.embedder_key,
        revision=settings.embedder_revision,
        dimension=settings.embedder_dimension,
        max_tokens=settings.embedder_max_tokens,
        over_limit=OverLimit(settings.embedder_over_limit),
        query_prefix=settings.embedder_query_prefix,
        passage_prefix=settings.embedder_passage_prefix,
        batch=settings.embedder_batch,
        concurrency=settings.embedder_concurrency,
        timeout_s=settings.embedder_timeout_s,
        retries=settings.embedder_retries,
        requests_per_minute=settings.embedder_requests_per_minute,
        tokens_per_minute=settings.embedder_tokens_per_minute,
    )


def open_embedder(settings: Settings, given: object = None) -> tuple[Embedder, str]:
    """The embedder that was given, or the one that the settings name; and how another process
    opens it, '' where none can.
    """
    from unspool import embedders

    check(settings)
    options = embedder_options(settings)
    if given is not None and not isinstance(given, str):
        return embedders.as_embedder(given, options), ""
    name = settings.embedder if given is None else given
    return embedders.open_embedder(name, options), embedders.setting_of(name)


def open_model(settings: Settings, given: object = None) -> AnswerModel | None:
    """The model for answers that was given, or the one that the settings name; None where they
    name none.
    """
    from unspool import answering
    from unspool.answering.models import AnswerOptions

    check(settings)
    if given is not None and not isinstance(given, str):
        return answering.as_model(given)
    name = settings.answer_model if given is None else given
    options = AnswerOptions(
        url=settings.answer_url,
        key=settings.answer_key,
        timeout_s=settings.answer_timeout_s,
        retries=settings.answer_retries,
    )
    return answering.open_model(name, options) if name else None


def open_cache(settings: Settings, embedder: Embedder) -> RedisCache | None:
    """The cache that the settings name, for one embedder's vectors."""
    if not settings.cache or not embedder.facts.is_shared:
        return None
    from unspool.embedders.cache import RedisCache

    return RedisCache(settings.cache, embedder, lifetime_s=settings.cache_s)


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
        options=vector_options(settings),
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
