"""Going over to another embedder while searches go on: its vectors are made beside those in use,
and put in use in one step.

Whatever has been embedded stays in the catalog, so an attempt that was killed goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count

import numpy as np
from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, projects, spaces
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.spaces import EmbeddingInput, Space
from unspool.domain.reports import Progress, ReembedPlan, ReembedReport
from unspool.embedders.base import Embedder, OverLimit
from unspool.embedders.cache import RedisCache
from unspool.embedders.model import SAME
from unspool.errors import ConflictError, InputError, ServiceError
from unspool.index.stores import Store
from unspool.indexing.embedding import Maker
from unspool.indexing.preparing import passage

TASK = "reembed"
# Others go on writing meanwhile. After so many rounds what they wrote last is embedded while they
# wait.
ROUNDS = 8
CHEAP_PAGE = 2_000
SAMPLE = 16  # texts that are embedded once more, to see that each vector is where it belongs

OnProgress = Callable[[Progress], None]
OpenStore = Callable[[Space], Store]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reembedder:
    """What going over works with. `setting` is how another process opens the same embedder."""

    catalog: Catalog
    embedder: Embedder
    setting: str
    cache: RedisCache | None
    open_store: OpenStore


def plan(work: Reembedder) -> ReembedPlan:
    """What it will cost."""
    with work.catalog.read() as connection:
        active = spaces.find_active_space(connection)
        known = next(
            (space for space in spaces.list_spaces(connection) if space.belongs_to(work.embedder)),
            None,
        )
        missing = spaces.count_missing(connection, None if known is None else known.id)
        facts = work.embedder.facts
        too_long = (
            0
            if facts.over_limit is OverLimit.WHOLE
            else spaces.count_longer_chunks(connection, work.embedder.max_tokens)
        )
    price = None if facts.price is None else missing.tokens * facts.price / 1_000_000
    after = (
        str(known)
        if known
        else f"{facts.name} (revision {facts.revision}, {work.embedder.dimension} dimensions)"
    )
    return ReembedPlan(
        before="" if active is None else str(active),
        after=after,
        texts=missing.texts,
        tokens=missing.tokens,
        price=price,
        too_long=too_long,
    )


def reembed(work: Reembedder, on_progress: OnProgress | None = None) -> ReembedReport:
    """Make the embedder's vectors of everything, see that they are right, and put them in use."""
    started = time.monotonic()
    tell = on_progress or (lambda progress: None)
    with work.catalog.try_lock(TASK) as alone:
        if not alone:
            raise ConflictError(
                "another process is changing this catalog's embedder; wait until it is done"
            )
        with work.catalog.read() as connection:
            before = spaces.find_active_space(connection)
        # which may have to be asked for: not while others wait to write
        _ = work.embedder.dimension
        space = work.catalog.transact(
            lambda connection: spaces.prepare_space(connection, work.embedder, work.setting)
        )
        run = _Run(work, space, tell)
        if not space.active:
            run.go_over()
    with work.catalog.read() as connection:
        kept = [str(one) for one in spaces.list_spaces(connection) if not one.active]
        chunks = sum(
            chunk_rows.count_chunks(connection, row.id)
            for row in projects.list_projects(connection)
        )
    warning = run.maker.warning()
    return ReembedReport(
        before="" if before is None else str(before),
        after=str(space),
        embedded=run.maker.made,
        chunks=chunks,
        seconds=round(time.monotonic() - started, 3),
        kept=tuple(kept),
        warnings=(f"{warning} until the documents are indexed again, which cuts them anew",)
        if warning
        else (),
    )


def drop_old(catalog: Catalog, open_store: OpenStore) -> list[str]:
    """Forget every space that is not in use; returns whose they were."""
    with catalog.try_lock(TASK) as alone:
        if not alone:
            raise ConflictError(
                "another process is changing this catalog's embedder; wait until it is done"
            )
        with catalog.read() as connection:
            known = spaces.list_spaces(connection)
        old = [space for space in known if not space.active]
        for space in old:
            with closing(open_store(space)) as store:
                catalog.transact(
                    lambda connection, space=space, store=store: _drop(connection, space, store)  # type: ignore[misc]
                )
        for space in known:
            # also where there are no old ones: one who was killed here may have left something
            if space.active:
                with closing(open_store(space)) as store:
                    store.sweep({space.id})
    return [str(space) for space in old]


def _drop(connection: Connection, space: Space, store: Store) -> None:
    store.drop_space(connection)
    spaces.drop_space(connection, space.id)


class _Run:
    def __init__(self, work: Reembedder, space: Space, tell: OnProgress) -> None:
        self.work = work
        self.space = space
        self.tell = tell
        self.refused: list[tuple[EmbeddingInput, InputError]] = []
        self.maker = Maker(
            embedder=work.embedder,
            known=lambda shas: set(),
            cache=None if work.embedder.is_cheap else work.cache,
        )
        # texts in a transaction
        self._page = CHEAP_PAGE if work.embedder.is_cheap else self.maker.portion

    def go_over(self) -> None:
        """Embed, build, look, switch; again as long as others write faster."""
        store = self.work.open_store(self.space)
        is_verified = False
        try:
            for number in count(1):
                self._embed_all()
                if not self._build(store) and number < ROUNDS:
                    continue
                if not is_verified:
                    self._verify()
                    is_verified = True
                if self.work.catalog.transact(
                    lambda connection, last=number >= ROUNDS: self._switch(  # type: ignore[misc]
                        connection, store, last=last
                    )
                ):
                    return
        finally:
            store.close()

    def _embed_all(self) -> None:
        with self.work.catalog.read() as connection:
            total = spaces.count_missing(connection, self.space.id).texts
        after = -1
        done = 0
        while True:
            with self.work.catalog.read() as connection:
                page = spaces.list_missing(connection, self.space.id, after=after, limit=self._page)
            if not page:
                break
            done += self._keep(page)
            after = page[-1].id
            self.tell(Progress(task="embedding", done=min(done, total), total=total))
        if self.refused:
            one, error = self.refused[0]
            others = f" and {len(self.refused) - 1} more" if len(self.refused) > 1 else ""
            raise InputError(
                f"{self.space.embedder} refuses what stands in {one.path} from line "
                f"{one.line}{others} ({error}); nothing was switched, all other "
                "vectors are kept: forget or shorten what it refuses, and begin again"
            )

    def _keep(self, page: Sequence[EmbeddingInput]) -> int:
        """Embed texts and keep their vectors; returns how many.

        Where the embedder refuses one, it is looked for by halves.
        """
        try:
            vectors = self._vectors(page)
        except InputError as error:
            if len(page) == 1:
                self.refused.append((page[0], error))
                return 0
            middle = len(page) // 2
            return self._keep(page[:middle]) + self._keep(page[middle:])
        self.work.catalog.transact(
            lambda connection: spaces.insert_embeddings(connection, self.space.id, vectors)
        )
        return len(vectors)

    def _vectors(self, page: Sequence[EmbeddingInput]) -> dict[bytes, bytes]:
        return self.maker.vectors({one.text_sha: text_of(one) for one in page})

    def _build(self, store: Store) -> bool:
        with self.work.catalog.read() as connection:
            ids = [row.id for row in projects.list_projects(connection)]
        return all(store.build(id_, on_progress=self.tell) for id_ in ids)

    def _verify(self) -> None:
        """Whether every vector has its length, and some that are embedded once more come out the
        same.
        """
        with self.work.catalog.read() as connection:
            odd = spaces.count_wrong_dimensions(connection, self.space.id, self.space.dimension)
            found = list(spaces.sample_embeddings(connection, self.space.id, SAMPLE))
        if odd:
            raise ServiceError(
                f"{odd} vectors of {self.space} have the wrong length; drop them with `unspool "
                f"reembed --drop-old` and begin again"
            )
        if not found:
            return
        rows = self.work.embedder.embed_passages([text_of(one) for one, _ in found])
        cosines = [
            float(np.frombuffer(vector, dtype="<f4") @ row)
            for (_, vector), row in zip(found, rows, strict=True)
        ]
        wrong = sum(cosine < SAME for cosine in cosines)
        if wrong:
            raise ServiceError(
                f"{wrong} of {len(found)} texts have another vector now than the one that was "
                f"stored, so {self.space.embedder} cannot be relied on; "
                "nothing was switched. See to that embedder, drop what it made with `unspool "
                "reembed --drop-old`, and begin again"
            )

    def _switch(self, connection: Connection, store: Store, *, last: bool) -> bool:
        """The one step; False where others have written something that has no vector yet."""
        spaces.lock_all_projects(connection)
        while page := spaces.list_missing(
            connection, self.space.id, after=-1, limit=self.maker.portion
        ):
            if not last:
                return False
            spaces.insert_embeddings(connection, self.space.id, self._vectors(page))
        for row in projects.list_projects(connection):
            store.complete(connection, row.id)
        spaces.activate_space(connection, self.space.id)
        return True


def text_of(one: EmbeddingInput) -> str:
    """What was embedded for a chunk."""
    return passage(
        one.kind, one.title, one.headings.split("\n") if one.headings else (), one.symbol, one.text
    )
