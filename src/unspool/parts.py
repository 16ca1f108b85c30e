"""What an open corpus works with: the catalogs, the embedder, the store, and what searches. It goes
along when the catalog goes over to another embedder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from unspool import wiring
from unspool.domain.events import IndexFinished
from unspool.domain.reports import IndexReport, RememberReport
from unspool.errors import (
    AddressError,
    ConfigError,
    ConflictError,
    InputError,
    SwitchedError,
    UnspoolError,
)
from unspool.settings import Settings

# the real imports are where they are used: `import unspool` stays under a tenth of a second
if TYPE_CHECKING:
    from unspool.answering.answer import Answers
    from unspool.catalog import Catalog
    from unspool.catalog.spaces import Space
    from unspool.domain.events import Event
    from unspool.embedders.cache import RedisCache
    from unspool.embedders.proof import Proof
    from unspool.index.ports import Vectors
    from unspool.index.stores import Store
    from unspool.indexing.pipeline import Indexer
    from unspool.search.finder import Finder

# a page of a walk that has begun may come from vectors that were put out of use this long ago
GLANCE_S = 1.0
_T = TypeVar("_T")
_Report = TypeVar("_Report", IndexReport, RememberReport)


class Parts:
    """Opened when they are first needed. Safe to use from several threads."""

    def __init__(
        self, settings: Settings, embedder: object, *, emit: Callable[[Event], None]
    ) -> None:
        from unspool.catalog import spaces
        from unspool.catalog.windows import Windows

        self.settings = settings
        self.embedder, self._opened_as = wiring.open_embedder(settings, embedder)
        self._cache = wiring.open_cache(settings, self.embedder)
        self._emit = emit
        self._guard = threading.RLock()
        self._is_closed = False
        self._primary: Catalog | None = None
        self.store: Store | None = None
        self._searched_store: Store | None = None
        self._finder: Finder | None = None
        self._answers: Answers | None = None
        # of embedders that are not in use any more; somebody may be searching with them
        self._left: list[Store | Finder | RedisCache] = []
        self._looked_at = 0.0
        self._proof: Proof | None = None
        self.searched: Catalog = self._opened()
        self.windows = None if settings.database_read else Windows(self.searched.open_windows())
        try:
            with self.searched.read() as connection:
                space = spaces.find_active_space(connection)
            if space is not None:
                self._meet(space)
                self.searching()
        except BaseException:
            self.close()  # nobody else can
            raise

    def close(self) -> None:
        """Let go of every file and connection."""
        with self._guard:
            self._is_closed = True
            answers = self._answers
        # first: they are the only ones that may be waiting for somebody else
        if answers is not None:
            answers.close()
        with self._guard:
            if self._finder is not None:
                self._finder.close()
                self._finder = None
            for part in {
                id(one): one
                for one in (self.store, self._searched_store, self._cache, *self._left)
                if one is not None
            }.values():
                part.close()
            self.store = self._searched_store = None
        if self.windows is not None:
            self.windows.close()
        self.searched.close()
        if self._primary is not None:
            self._primary.close()

    def _opened(self) -> Catalog:
        """The catalog that is searched: a replica if there is one.

        The primary is then opened when something is to be written.
        """
        from unspool.catalog import Catalog
        from unspool.catalog.database import get_engine_name

        settings = self.settings
        if not settings.database_read:
            self._primary = Catalog.open(
                settings.database_address, options=wiring.connecting(settings)
            )
            return self._primary
        if get_engine_name(settings.database_read) == "sqlite":
            raise AddressError(
                "UNSPOOL_DATABASE_READ names a file; a replica is one of a database server, "
                "leave it empty otherwise"
            )
        replica = Catalog.open(
            settings.database_read, create=False, options=wiring.connecting(settings)
        )
        if not settings.database:
            self._primary = replica  # which refuses to be written, and says where to
        return replica

    @property
    def catalog(self) -> Catalog:
        """The catalog that is written."""
        from unspool.catalog import Catalog

        with self._guard:
            if self._primary is None:
                self._check_open()
                opened = Catalog.open(
                    self.settings.database_address, options=wiring.connecting(self.settings)
                )
                if opened.identity != self.searched.identity:
                    opened.close()
                    raise ConfigError(
                        "UNSPOOL_DATABASE_READ is no replica of UNSPOOL_DATABASE: it holds "
                        "another catalog; correct one of them"
                    )
                self._primary = opened
            return self._primary

    def ready(self) -> Store:
        """The index of what is written, with the vector space that belongs to the embedder."""
        with self._guard:
            self._check_open()
            if self.store is None:
                catalog = self.catalog
                self.store = self._open_store(catalog)
                if catalog is self.searched:
                    self._searched_store = self.store
            return self.store

    def searching(self) -> Store:
        """The index of what is searched."""
        with self._guard:
            if self.searched is self._primary:
                return self.ready()
            self._check_open()
            if self._searched_store is None:
                self._searched_store = self._open_store(self.searched)
            return self._searched_store

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError("the corpus is closed; open it again")

    def _open_store(self, catalog: Catalog) -> Store:
        own = self.embedder
        space_id = self._space(catalog)
        return wiring.open_store(
            catalog,
            self.settings,
            space_id=space_id,
            name=own.name,
            revision=own.revision,
            dimension=own.dimension,
        )

    def finding(self) -> Finder:
        """What searches, put together when it is first needed."""
        from unspool.search.finder import AT_ONCE, Finder, Habits
        from unspool.search.queries import QueryCache

        settings = self.settings
        with self._guard:  # around all of it: another thread may be going over to another embedder
            store = self.searching()
            if self._finder is None:
                queries = QueryCache(
                    self.embedder,
                    self.windows,
                    cache=self._cache,
                    prove=self._proof_of(store.space_id),
                    size=settings.query_cache_size,
                    lifetime_s=settings.query_cache_s,
                )
                key = settings.continuation_key.encode() or self.searched.signing_key
                self._finder = Finder(
                    catalog=self.searched,
                    store=store,
                    embedder=self.embedder,
                    windows=self.windows,
                    queries=queries,
                    habits=Habits(
                        window=settings.window,
                        prefetch=settings.prefetch == "on",
                        lifetime_s=settings.continuation_s,
                        signed=settings.continuations == "signed",
                        key=key,
                        at_once=AT_ONCE
                        if self.searched.engine_name == "sqlite"
                        else settings.pool_size,
                    ),
                    emit=self._emit,
                )
            return self._finder

    def answers(self) -> Answers:
        """What answers questions, put together when it is first needed."""
        from unspool.answering.answer import Answers

        with self._guard:
            self._check_open()
            if self._answers is None:
                self._answers = Answers(
                    count_tokens=lambda text: self.embedder.count_tokens(text),
                    context_tokens=self.settings.answer_context_tokens,
                    max_tokens=self.settings.answer_max_tokens,
                    emit=self._emit,
                )
            return self._answers

    def _space(self, catalog: Catalog) -> int:
        from unspool.catalog import spaces

        with catalog.read() as connection:
            if spaces.find_active_id(connection) is not None:
                return spaces.ensure_space(connection, self.embedder, self._opened_as)
        # which may have to be asked for: not while others wait to write
        _ = self.embedder.dimension
        with catalog.write() as connection:
            return spaces.ensure_space(connection, self.embedder, self._opened_as)

    def _meet(self, space: Space) -> None:
        """Tell the embedder what its own space says of it: the dimension, which it then need not
        find out.
        """
        from unspool.embedders.model import ModelEmbedder

        own = self.embedder
        if isinstance(own, ModelEmbedder) and (space.embedder, space.revision) == (
            own.name,
            own.revision,
        ):
            own.assume_dimension(space.dimension)

    def glance(self) -> None:
        """The same as `look` for what may be a moment behind."""
        if time.monotonic() - self._looked_at >= GLANCE_S:
            self.look(searched=True)

    def look(self, *, searched: bool = False) -> None:
        """See whether the catalog that is written, or the one that is searched, has gone over to
        another embedder, and follow.
        """
        from unspool.catalog import spaces

        with (self.searched if searched else self.catalog).read() as connection:
            active = spaces.find_active_id(connection)
        self.follow(active)

    def follow(self, active: int | None) -> None:
        """Go over to the embedder whose vectors are in use now, if that is another one than when
        this corpus was opened.
        """
        from unspool.catalog import spaces

        self._looked_at = time.monotonic()
        store = self.store or self._searched_store
        if active is None or store is None or store.space_id == active:
            return
        with self._guard:
            store = self.store or self._searched_store
            if store is None or store.space_id == active:
                return
            with self.searched.read() as connection:
                space = spaces.find_active_space(connection)
            if space is None or space.id == store.space_id:
                return  # a replica that has not heard of it yet
            self._go_over(space)

    def _go_over(self, space: Space) -> None:
        from unspool.catalog import spaces

        if not space.setting:
            raise ConflictError(
                f"this catalog has gone over to embedder {space}, which no setting names; open "
                f"it again with that one"
            )
        try:
            embedder, opened_as = wiring.open_embedder(self.settings, space.setting)
            is_same = space.belongs_to(embedder)
        except UnspoolError as error:
            raise ConflictError(
                f"this catalog has gone over to embedder {space}, which cannot be opened here: "
                f"{error}"
            ) from error
        if not is_same:
            raise ConflictError(
                f"this catalog has gone over to embedder {space}; {spaces.advise(space, embedder)}"
            )
        self._left += [
            one
            for one in (self._finder, self.store, self._searched_store, self._cache)
            if one is not None
        ]
        self._finder = self.store = self._searched_store = None
        self.embedder, self._opened_as = embedder, opened_as
        self._cache = wiring.open_cache(self.settings, embedder)
        self._proof = None

    def indexer(self) -> Indexer:
        """What a writer works with: the store and the embedder that belong together at this
        moment.
        """
        from unspool.indexing.pipeline import Indexer

        with self._guard:
            store = self.ready()
            return Indexer(
                catalog=self.catalog,
                store=store,
                embedder=self.embedder,
                opened_as=self._opened_as,
                cache=self._cache,
                prove=self._proof_of(store.space_id),
                chunk_tokens=self.settings.chunk_tokens,
                max_file_bytes=self.settings.max_file_bytes,
                jobs=self.settings.jobs,
            )

    def written(self, write: Callable[[Indexer], _T]) -> _T:
        """What a writer does; once more where the catalog went over to another embedder while it
        did.
        """
        self.look()
        try:
            return write(self.indexer())
        except SwitchedError:
            self.look()
            return write(self.indexer())

    def told(self, task: str, report: _Report, *, failed: int = 0, removed: int = 0) -> _Report:
        """A report of what was taken in, once whoever watches has been told."""
        self._emit(
            IndexFinished(
                task=task,
                store=self.ready().name,
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

    def _proof_of(self, space_id: int) -> Proof | None:
        """What an embedder whose name proves little has to show before its vectors are used;
        None for one that cannot be another.
        """
        from unspool.embedders.model import ModelEmbedder
        from unspool.embedders.proof import Proof

        with self._guard:
            own = self.embedder
            if self._proof is None and isinstance(own, ModelEmbedder) and not own.facts.is_certain:
                self._proof = Proof(own, lambda: self._sample(space_id))
            return self._proof

    def _sample(self, space_id: int) -> tuple[str, Vectors] | None:
        """A passage that the catalog has a vector of."""
        import numpy as np

        from unspool.catalog import spaces
        from unspool.indexing.reembedding import text_of

        with self.searched.read() as connection:
            known = next(spaces.sample_embeddings(connection, space_id, 1), None)
        return None if known is None else (text_of(known[0]), np.frombuffer(known[1], dtype="<f4"))
