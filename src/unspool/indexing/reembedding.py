"""Switch of a catalog to another embedder while searches continue.

The new vectors are built beside the active ones, and activated in one step. An interrupted attempt
keeps its vectors, so the next one resumes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, projects, spaces
from unspool.catalog import chunks as chunk_rows
from unspool.domain.reports import OnProgress, Progress, ReembedPlan, ReembedReport
from unspool.embedders.base import Embedder
from unspool.embedders.cache import RedisCache
from unspool.embedders.model import SAME
from unspool.embedders.options import OverLimit
from unspool.errors import ConflictError, InputError, ServiceError
from unspool.index.indexes import Indexes
from unspool.indexing.embedding import PassageEmbedder
from unspool.indexing.preparing import build_passage

TASK = "reembed"
# Other processes keep writing. After so many rounds the rest is embedded while they wait.
ROUNDS = 8
CHEAP_PAGE = 2_000
SAMPLE = 16  # texts that are embedded again to verify their vectors

OpenIndexes = Callable[[spaces.Space], Indexes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reembedder:
    """Resources of a re-embedding. `setting` opens the same embedder in another process."""

    catalog: Catalog
    embedder: Embedder
    setting: str
    cache: RedisCache | None
    open_indexes: OpenIndexes


def plan_reembedding(resources: Reembedder) -> ReembedPlan:
    """Estimate the cost of a switch."""
    embedder, facts = resources.embedder, resources.embedder.facts
    with resources.catalog.read() as connection:
        active = spaces.find_active_space(connection)
        known = spaces.list_spaces(connection)
        target = next((space for space in known if space.belongs_to(embedder)), None)
        missing = spaces.count_missing(connection, None if target is None else target.id)
        too_long = (
            0
            if facts.over_limit is OverLimit.WHOLE
            else spaces.count_longer_chunks(connection, embedder.max_tokens)
        )
    new = f"{facts.name} (revision {facts.revision}, {embedder.dimension} dimensions)"
    return ReembedPlan(
        before="" if active is None else str(active),
        after=new if target is None else str(target),
        texts=missing.texts,
        tokens=missing.tokens,
        price=None if facts.price is None else missing.tokens * facts.price / 1_000_000,
        too_long=too_long,
    )


def reembed(resources: Reembedder, on_progress: OnProgress | None = None) -> ReembedReport:
    """Embed everything, verify the vectors and activate them."""
    started = time.monotonic()
    catalog, embedder = resources.catalog, resources.embedder
    with _occupy(catalog):
        with catalog.read() as connection:
            before = spaces.find_active_space(connection)
        # A call to the model may be necessary. It must not block writers.
        _ = embedder.dimension
        space = catalog.transact(
            lambda connection: spaces.prepare_space(connection, embedder, resources.setting)
        )
        passages = PassageEmbedder(
            embedder=embedder, cache=None if embedder.is_cheap else resources.cache
        )
        emit = on_progress or (lambda progress: None)
        if not space.active:
            ReembedRun(catalog, space, passages, emit).switch(resources.open_indexes)
    with catalog.read() as connection:
        kept = [str(one) for one in spaces.list_spaces(connection) if not one.active]
        rows = projects.list_projects(connection)
        chunks = sum(chunk_rows.count_chunks(connection, row.id) for row in rows)
    return ReembedReport(
        before="" if before is None else str(before),
        after=str(space),
        embedded=passages.embedded_count,
        chunks=chunks,
        seconds=round(time.monotonic() - started, 3),
        kept=tuple(kept),
        warnings=tuple(
            f"{warning} until the documents are indexed again with smaller chunks"
            for warning in passages.warnings
        ),
    )


def drop_inactive_spaces(catalog: Catalog, open_indexes: OpenIndexes) -> list[str]:
    """Delete the vectors of every embedder but the active one, and return the embedders."""
    with _occupy(catalog):
        with catalog.read() as connection:
            known = spaces.list_spaces(connection)
        for space in known:
            if not space.active:
                with closing(open_indexes(space)) as indexes:
                    indexes.clear()
                    catalog.transact(partial(_drop, space, indexes))
    return [str(space) for space in known if not space.active]


def _drop(space: spaces.Space, indexes: Indexes, connection: Connection) -> None:
    indexes.destroy(connection)
    spaces.drop_space(connection, space.id)


@contextmanager
def _occupy(catalog: Catalog) -> Iterator[None]:
    """Exclude other processes that change the embedder."""
    with catalog.try_lock(TASK) as is_alone:
        if not is_alone:
            raise ConflictError(
                "another process is changing this catalog's embedder; wait until it is done"
            )
        yield


@dataclass(slots=True)
class ReembedRun:
    """State of one switch to a vector space."""

    catalog: Catalog
    space: spaces.Space
    passages: PassageEmbedder
    emit: OnProgress
    rejected: list[tuple[spaces.EmbeddingInput, InputError]] = field(default_factory=list)

    def switch(self, open_indexes: OpenIndexes) -> None:
        """Embed, build, verify and activate. Repeat while others write faster."""
        is_verified = False
        with closing(open_indexes(self.space)) as indexes:
            for number in count(1):
                is_last = number >= ROUNDS
                self._embed_all()
                if not self._build(indexes) and not is_last:
                    continue
                if not is_verified:
                    self._verify()
                    is_verified = True
                if self.catalog.transact(partial(self._activate, indexes, is_last)):
                    return

    def _embed_all(self) -> None:
        with self.catalog.read() as connection:
            total = spaces.count_missing(connection, self.space.id).texts
        done = 0
        for page in self._read_pages():
            done += self._embed_page(page)
            self.emit(Progress(task="embedding", done=min(done, total), total=total))
        if self.rejected:
            passage, error = self.rejected[0]
            others = f" and {len(self.rejected) - 1} more" if len(self.rejected) > 1 else ""
            raise InputError(
                f"{self.space.embedder} rejects the text in {passage.path} from line "
                f"{passage.line}{others} ({error}); nothing was switched, all other vectors are "
                "kept: forget or shorten what it rejects, and begin again"
            )

    def _read_pages(self) -> Iterator[list[spaces.EmbeddingInput]]:
        after = None
        # texts in a transaction
        limit = CHEAP_PAGE if self.passages.embedder.is_cheap else self.passages.batch_size
        while True:
            with self.catalog.read() as connection:
                page = spaces.list_missing(connection, self.space.id, after=after, limit=limit)
            if not page:
                return
            yield page
            after = page[-1]

    def _embed_page(self, page: Sequence[spaces.EmbeddingInput]) -> int:
        """Embed passages, save their vectors and return how many.

        If the embedder rejects a passage, it is found by bisection.
        """
        try:
            vectors = self._embed(page)
        except InputError as error:
            if len(page) == 1:
                self.rejected.append((page[0], error))
                return 0
            middle = len(page) // 2
            return self._embed_page(page[:middle]) + self._embed_page(page[middle:])
        self.catalog.transact(
            lambda connection: spaces.insert_embeddings(connection, self.space.id, vectors)
        )
        return len(vectors)

    def _embed(self, page: Sequence[spaces.EmbeddingInput]) -> dict[bytes, bytes]:
        return self.passages.embed_missing({one.text_sha: rebuild_passage(one) for one in page})

    def _build(self, indexes: Indexes) -> bool:
        with self.catalog.read() as connection:
            rows = projects.list_projects(connection)
        return all(indexes.fill(row.id, self.emit) for row in rows)

    def _verify(self) -> None:
        """Check the length of every vector, and embed a sample again to compare."""
        with self.catalog.read() as connection:
            odd = spaces.count_wrong_dimensions(connection, self.space.id, self.space.dimension)
            sample = list(spaces.sample_embeddings(connection, self.space.id, SAMPLE))
        if odd:
            raise ServiceError(
                f"{odd} vectors of {self.space} have the wrong length; drop them with `unspool "
                f"reembed --drop-old` and begin again"
            )
        if not sample:
            return
        rows = self.passages.embedder.embed_passages(
            [rebuild_passage(passage) for passage, _ in sample]
        )
        different = sum(
            float(np.frombuffer(vector, dtype="<f4") @ row) < SAME
            for (_, vector), row in zip(sample, rows, strict=True)
        )
        if different:
            raise ServiceError(
                f"{different} of {len(sample)} texts have another vector now than the stored one, "
                f"so {self.space.embedder} is not reliable; nothing was switched. Repair that "
                "embedder, drop its vectors with `unspool reembed --drop-old`, and begin again"
            )

    def _activate(self, indexes: Indexes, is_last: bool, connection: Connection) -> bool:
        """Activate the space in one transaction.

        Return False if others have written passages without a vector, except in the last round.
        """
        spaces.lock_all_projects(connection)
        limit = self.passages.batch_size
        while page := spaces.list_missing(connection, self.space.id, limit=limit):
            if not is_last:
                return False
            spaces.insert_embeddings(connection, self.space.id, self._embed(page))
        for row in projects.list_projects(connection):
            indexes.complete(connection, row.id)
        spaces.activate_space(connection, self.space.id)
        return True


def rebuild_passage(stored: spaces.EmbeddingInput) -> str:
    """Return the text that was embedded for a stored chunk."""
    headings = stored.headings.split("\n") if stored.headings else ()
    return build_passage(stored.kind, stored.title, headings, stored.symbol, stored.text)
