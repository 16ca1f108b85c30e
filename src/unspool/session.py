"""Sessions: the resources of an open corpus, replaced as a whole when the embedder is switched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from unspool.domain.events import Event, IndexFinished
from unspool.domain.reports import IndexReport, RememberReport
from unspool.errors import (
    AddressError,
    ConfigError,
    ConflictError,
    InputError,
    ServiceError,
    SwitchedError,
    UnspoolError,
)
from unspool.settings import Settings

# The real imports are where they are used: `import unspool` stays under a tenth of a second.
if TYPE_CHECKING:
    from unspool.answering.answer import Answers
    from unspool.catalog import Catalog
    from unspool.catalog.spaces import Space
    from unspool.catalog.windows import WindowStore
    from unspool.embedders.base import Embedder
    from unspool.embedders.cache import RedisCache
    from unspool.embedders.model import Proof
    from unspool.index.indexes import Indexes
    from unspool.index.ports import Vectors
    from unspool.indexing.indexer import Indexer
    from unspool.indexing.reembedding import OpenIndexes
    from unspool.search.engine import SearchEngine

CHECK_INTERVAL_S = 1.0  # a later page may use vectors that were replaced this long ago
Emit = Callable[[Event], None]
_T = TypeVar("_T")
_Report = TypeVar("_Report", IndexReport, RememberReport)


class Session:
    """Resources that belong to one embedder. Each is opened when it is first needed."""

    def __init__(
        self, resources: Resources, settings: Settings, embedder: Embedder, setting: str
    ) -> None:
        self.embedder = embedder
        self._resources = resources
        self._settings = settings
        self._setting = setting  # name under which another process opens it; '' if none can
        self._cache = open_cache(settings, embedder)
        self._guard = threading.RLock()
        self._indexes: dict[Catalog, Indexes] = {}
        self.space_id: int | None = None  # vector space of the indexes; None before one is open
        self._engine: SearchEngine | None = None
        self._proof: Proof | None = None

    @property
    def indexes(self) -> Indexes:
        """Indexes of the catalog that is written."""
        return self._open_indexes(self._resources.catalog)

    @property
    def search_indexes(self) -> Indexes:
        """Indexes of the catalog that is searched."""
        return self._open_indexes(self._resources.search_catalog)

    @property
    def engine(self) -> SearchEngine:
        """Search engine over the catalog that is searched."""
        from unspool.search.engine import CONCURRENCY, SearchEngine
        from unspool.search.queries import QueryCache

        settings, catalog = self._settings, self._resources.search_catalog
        with self._guard:
            indexes = self.search_indexes
            if self._engine is None:
                is_local = catalog.engine_name == "sqlite"
                self._engine = SearchEngine(
                    catalog=catalog,
                    indexes=indexes,
                    embedder=self.embedder,
                    windows=self._resources.windows,
                    queries=QueryCache(
                        self.embedder,
                        self._resources.windows,
                        cache=self._cache,
                        prove=self._make_proof(indexes.space_id),
                        size=settings.search.query_cache_size,
                        lifetime_s=settings.search.query_cache_s,
                    ),
                    options=settings.search,
                    key=settings.search.continuation_key.encode() or catalog.signing_key,
                    concurrency=CONCURRENCY if is_local else settings.database.pool_size,
                    emit=self._resources.emit,
                )
            return self._engine

    def make_indexer(self) -> Indexer:
        """Return the writer that uses this embedder."""
        from unspool.indexing.indexer import Indexer

        indexes = self.indexes
        return Indexer(
            catalog=self._resources.catalog,
            indexes=indexes,
            embedder=self.embedder,
            opened_as=self._setting,
            cache=self._cache,
            prove=self._make_proof(indexes.space_id),
            chunk_tokens=self._settings.indexing.chunk_tokens,
            max_file_bytes=self._settings.indexing.max_file_bytes,
            jobs=self._settings.indexing.jobs,
        )

    def close(self) -> None:
        """Close every index and the search engine."""
        with self._guard:
            for resource in (self._engine, *self._indexes.values(), self._cache):
                if resource is not None:
                    resource.close()
            self._engine, self._indexes = None, {}

    def _open_indexes(self, catalog: Catalog) -> Indexes:
        with self._guard:
            self._resources.check_open()
            if catalog not in self._indexes:
                own, self.space_id = self.embedder, self._ensure_space(catalog)
                self._indexes[catalog] = open_indexes(
                    catalog,
                    self._settings,
                    space_id=self.space_id,
                    name=own.name,
                    revision=own.revision,
                    dimension=own.dimension,
                )
            return self._indexes[catalog]

    def _ensure_space(self, catalog: Catalog) -> int:
        from unspool.catalog import spaces

        with catalog.read() as connection:
            if spaces.find_active_id(connection) is not None:
                return spaces.ensure_space(connection, self.embedder, self._setting)
        _ = self.embedder.dimension  # may call a server: not while the catalog is locked
        with catalog.write() as connection:
            return spaces.ensure_space(connection, self.embedder, self._setting)

    def _make_proof(self, space_id: int) -> Proof | None:
        """Return the check of an embedder whose name does not identify it; else None."""
        from unspool.embedders.model import ModelEmbedder, Proof

        with self._guard:
            own = self.embedder
            if self._proof is None and isinstance(own, ModelEmbedder) and not own.facts.is_certain:
                self._proof = Proof(own, lambda: self._read_sample(space_id))
            return self._proof

    def _read_sample(self, space_id: int) -> tuple[str, Vectors] | None:
        """Return a passage of the catalog with its vector."""
        import numpy as np

        from unspool.catalog import spaces
        from unspool.indexing.reembedding import rebuild_passage

        with self._resources.search_catalog.read() as connection:
            known = next(spaces.sample_embeddings(connection, space_id, 1), None)
        return (
            None
            if known is None
            else (rebuild_passage(known[0]), np.frombuffer(known[1], dtype="<f4"))
        )


class Resources:
    """Catalogs of an open corpus, and the session of the embedder that is active in them."""

    def __init__(self, settings: Settings, embedder: object, *, emit: Emit) -> None:
        from unspool.catalog.windows import WindowStore

        self.settings = settings
        self.emit = emit
        self._guard = threading.RLock()
        self._is_closed = False
        self._primary: Catalog | None = None
        self._answers: Answers | None = None
        self._replaced: list[Session] = []  # another thread may still search with them
        self._checked_at = 0.0
        self.windows: WindowStore | None = None
        check_settings(settings)
        self.session = Session(self, settings, *open_embedder(settings, embedder))
        self.search_catalog: Catalog = self._open_search_catalog()
        try:
            if not settings.database.read_address:
                self.windows = WindowStore(self.search_catalog.open_windows())
            self._open_active_space()
        except BaseException:
            self.close()  # the caller gets no object to close
            raise

    @property
    def catalog(self) -> Catalog:
        """Catalog that is written. Beside a replica it is opened when it is first needed."""
        from unspool.catalog import Catalog

        with self._guard:
            if self._primary is None:
                self.check_open()
                opened = Catalog.open(
                    self.settings.database_address, options=self.settings.database
                )
                if opened.identity != self.search_catalog.identity:
                    opened.close()
                    raise ConfigError(
                        "UNSPOOL_DATABASE_READ is no replica of UNSPOOL_DATABASE: it contains "
                        "another catalog; correct one of them"
                    )
                self._primary = opened
            return self._primary

    @property
    def answers(self) -> Answers:
        """Answering of questions."""
        from unspool.answering.answer import Answers

        with self._guard:
            self.check_open()
            if self._answers is None:
                self._answers = Answers(
                    count_tokens=lambda text: self.session.embedder.count_tokens(text),
                    options=self.settings.answer,
                    emit=self.emit,
                )
            return self._answers

    def run(
        self,
        action: Callable[[Session], _T],
        *,
        retry_on: tuple[type[UnspoolError], ...] = (ConflictError, ServiceError),
    ) -> _T:
        """Run an action, and once more if it failed because the session was replaced."""
        session = self.session
        try:
            return action(session)
        except retry_on:
            self.refresh()
            if self.session is session:
                raise
        return action(self.session)

    def write(self, action: Callable[[Indexer], _T]) -> _T:
        """Run an action that writes. `SwitchedError` is raised before anything is committed."""
        self.refresh(self.catalog)
        return self.run(lambda session: action(session.make_indexer()), retry_on=(SwitchedError,))

    def refresh(self, catalog: Catalog | None = None) -> None:
        """Replace the session if the catalog has been switched to another embedder."""
        from unspool.catalog import spaces

        with (catalog or self.search_catalog).read() as connection:
            active = spaces.find_active_id(connection)
        self.follow(active)

    def refresh_now_and_then(self) -> None:
        """Refresh, at most once in `CHECK_INTERVAL_S`."""
        if time.monotonic() - self._checked_at >= CHECK_INTERVAL_S:
            self.refresh()

    def follow(self, active: int | None) -> None:
        """Replace the session if another vector space is active than its own."""
        from unspool.catalog import spaces

        self._checked_at = time.monotonic()
        if active is None or self.session.space_id in (None, active):
            return
        with self._guard:
            with self.search_catalog.read() as connection:
                space = spaces.find_active_space(connection)
            # A replica may not have the new space yet.
            # A session without an index was made by another thread just now.
            if space is not None and self.session.space_id not in (None, space.id):
                replaced, self.session = self.session, self._switch(space)
                self._replaced.append(replaced)

    def emit_report(
        self, task: str, report: _Report, *, failed: int = 0, removed: int = 0
    ) -> _Report:
        """Emit `IndexFinished` and return the report."""
        self.emit(
            IndexFinished(
                task=task,
                store=self.session.indexes.name,
                added=report.added,
                updated=report.updated,
                unchanged=report.unchanged,
                removed=removed,
                failed=failed,
                chunks=report.chunks,
                embedded=report.embedded,
                total_s=report.seconds,
            )
        )
        return report

    def check_open(self) -> None:
        """Reject the use of a closed corpus."""
        if self._is_closed:
            raise InputError("the corpus is closed; open it again")

    def close(self) -> None:
        """Close every file and connection."""
        with self._guard:
            self._is_closed = True
            answers = self._answers
        if answers is not None:  # first: they may wait for a server
            answers.close()
        with self._guard:
            for session in (self.session, *self._replaced):
                session.close()
        if self.windows is not None:
            self.windows.close()
        self.search_catalog.close()
        if self._primary is not None:
            self._primary.close()

    def _open_search_catalog(self) -> Catalog:
        """Open the replica if the settings name one, else the primary."""
        from unspool.catalog import Catalog
        from unspool.catalog.database import get_engine_name

        options = self.settings.database
        if not options.read_address:
            self._primary = Catalog.open(self.settings.database_address, options=options)
            return self._primary
        if get_engine_name(options.read_address) == "sqlite":
            raise AddressError(
                "UNSPOOL_DATABASE_READ names a file; a replica is one of a database server, "
                "leave it empty otherwise"
            )
        replica = Catalog.open(options.read_address, create=False, options=options)
        if not options.address:
            self._primary = replica  # it rejects writes, and says where to write
        return replica

    def _open_active_space(self) -> None:
        """Open the index of the active vector space, if there is one."""
        from unspool.catalog import spaces
        from unspool.embedders.model import ModelEmbedder

        with self.search_catalog.read() as connection:
            space = spaces.find_active_space(connection)
        if space is None:
            return
        own = self.session.embedder
        if isinstance(own, ModelEmbedder) and (space.embedder, space.revision) == (
            own.name,
            own.revision,
        ):
            own.assume_dimension(space.dimension)  # saves a call to its server
        _ = self.session.search_indexes

    def _switch(self, space: Space) -> Session:
        """Return the session for a vector space that another process has activated."""
        from unspool.catalog import spaces

        switched = f"this catalog was switched to embedder {space}"
        if not space.setting:
            raise ConflictError(f"{switched}, which no setting names; open it again with that one")
        try:
            embedder, setting = open_embedder(self.settings, space.setting)
            is_same = space.belongs_to(embedder)
        except UnspoolError as error:
            raise ConflictError(f"{switched}, which cannot be opened here: {error}") from error
        if not is_same:
            raise ConflictError(f"{switched}; {spaces.advise(space, embedder)}")
        return Session(self, self.settings, embedder, setting)


def check_settings(settings: Settings) -> None:
    """Reject settings that no component supports."""
    if settings.vectors.address:
        from unspool.index.vectors import get_adapter

        get_adapter(settings.vectors.address)


def open_embedder(settings: Settings, given: object = None) -> tuple[Embedder, str]:
    """Open the given embedder, or the one that the settings name.

    Also returns the name under which another process opens it; '' if none can.
    """
    from unspool import embedders

    if given is not None and not isinstance(given, str):
        return embedders.as_embedder(given, settings.embedder), ""
    name = settings.embedder.name if given is None else given
    return embedders.open_embedder(name, settings.embedder), embedders.resolve_name(name)


def open_cache(settings: Settings, embedder: Embedder) -> RedisCache | None:
    """Open the cache that the settings name, for the vectors of one embedder."""
    if not settings.cache.address or not embedder.facts.is_shared:
        return None
    from unspool.embedders.cache import RedisCache

    return RedisCache(settings.cache, embedder)


def open_indexes(
    catalog: Catalog, settings: Settings, *, space_id: int, name: str, revision: str, dimension: int
) -> Indexes:
    """Open the indexes of a catalog for one vector space."""
    from unspool.index import indexes

    return indexes.open_indexes(
        catalog,
        space_id=space_id,
        space=f"{name}@{revision}",
        dimension=dimension,
        options=settings.vectors,
    )


def make_index_opener(catalog: Catalog, settings: Settings) -> OpenIndexes:
    """Return a function that opens the indexes of a vector space."""
    return lambda space: open_indexes(
        catalog,
        settings,
        space_id=space.id,
        name=space.embedder,
        revision=space.revision,
        dimension=space.dimension,
    )
