"""Worker processes that read and chunk files, each file under a limit of time and memory."""

from __future__ import annotations

import gc
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from unspool.indexing.changes import Work
from unspool.indexing.preparing import Failed, Outcome
from unspool.processes import (
    Channel,
    Child,
    ChildEndedError,
    ChildMemoryError,
    ChildOverdueError,
    Limits,
    limit_memory,
)

LIMITS = Limits()
# Batches per worker that are under way or wait to be stored: enough to keep it busy while the
# parent commits to the index for two seconds.
UNDER_WAY = 8
# There is a worker per core, and numpy's own threads would compete with them.
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

# trees of parsers contain cycles, and the memory of a slow file must not count for the next one
_COLLECTED_AFTER_S = 0.5
# beyond the limit of a file: libraries that find no memory there hang instead of raising an error
_EMBEDDING_BYTES = 50_000_000

Prepare = Callable[[Sequence[Work], Callable[["Phase"], None]], list[Outcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of a worker, as plain values that another process can read."""

    database: str
    connecting: dict[str, object]
    space_id: int
    embedder: str  # opened by the worker, which then embeds; empty where the parent embeds
    # the worker can count the embedder's tokens; otherwise it only reads, and the parent chunks
    counts: bool
    max_tokens: int
    tokenizer_file: str
    chunk_tokens: int
    max_bytes: int
    seconds: float  # for one file, or for one portion of texts that are embedded
    memory_bytes: int


class Phase(NamedTuple):
    """Announcement of a worker: the number of the file that it begins, None for the embedding of
    texts of all of them.
    """

    file: int | None


class Pool:
    """Worker processes, started when first used."""

    def __init__(self, recipe: Recipe, jobs: int) -> None:
        self._recipe = recipe
        self._jobs = jobs
        self._idle: queue.LifoQueue[Child] = queue.LifoQueue()
        self._workers: list[Child] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="unspool-worker")

    def map(self, batches: Iterator[Sequence[Work]]) -> Iterator[list[Outcome]]:
        """Prepare batches, and yield the results as they are ready.

        The number of batches under way is bounded.
        """
        under_way: set[Future[list[Outcome]]] = set()
        for batch in batches:
            under_way.add(self._threads.submit(self._run, batch))
            if len(under_way) >= UNDER_WAY * self._jobs:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)

    def close(self) -> None:
        """End all workers, busy ones included."""
        self._closed = True
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def _run(self, batch: Sequence[Work]) -> list[Outcome]:
        """Have a worker prepare a batch.

        If it ends at a file, report that file and prepare the others again.
        """
        if self._closed or not batch:
            return []
        worker = self._take()
        # until the first announcement the worker imports modules and opens the catalog
        phase: Phase | None = None
        try:
            worker.send(batch)
            while isinstance(
                message := worker.receive(self._recipe.seconds if phase else None), Phase
            ):
                phase = message
        except ChildEndedError as error:
            self._discard(worker)
            return self._recover(batch, phase.file if phase else None, error)
        self._idle.put(worker)
        return cast(list[Outcome], message)

    def _recover(
        self, batch: Sequence[Work], current: int | None, error: ChildEndedError
    ) -> list[Outcome]:
        if self._closed:
            return []
        if current is None:  # it ended while it embedded all of them, so the file is not known
            if len(batch) > 1:
                return [outcome for work in batch for outcome in self._run([work])]
            current = 0
        failed = Failed(path=batch[current].found.path, error=self._describe(error))
        return [*self._run(batch[:current]), failed, *self._run(batch[current + 1 :])]

    def _describe(self, error: ChildEndedError) -> str:
        advice = "exclude it in .unspoolignore, or split it"
        if isinstance(error, ChildOverdueError):
            return (
                f"reading it took more than the limit of {self._recipe.seconds:g} seconds; {advice}"
            )
        if isinstance(error, ChildMemoryError):
            return (
                f"reading it needs more than the memory limit of "
                f"{self._recipe.memory_bytes // 10**6} MB; {advice}"
            )
        return (
            f"the process that read it died, perhaps at the memory limit of "
            f"{self._recipe.memory_bytes // 10**6} MB; {advice}"
        )

    def _take(self) -> Child:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            worker = Child(
                "unspool.indexing.workers:serve",
                memory_bytes=self._recipe.memory_bytes + _EMBEDDING_BYTES,
                variables=_ONE_THREAD,
            )
            self._workers.append(worker)
            worker.send(self._recipe)
            return worker

    def _discard(self, worker: Child) -> None:
        self._workers.remove(worker)
        worker.close()


def serve(channel: Channel) -> None:
    """Prepare batch after batch until the parent closes the pipe."""
    # a worker creates hardly any cycles, and a collection takes a tenth of its time
    gc.set_threshold(200_000, 50, 1000)
    recipe = cast(Recipe, channel.receive())
    prepare = open_preparer(recipe)
    while True:
        batch = cast(Sequence[Work], channel.receive())
        channel.send(prepare(batch, _Announcer(channel, recipe)))


class _Announcer:
    """Announcements of one batch to the parent, and the memory limit of the phase that begins."""

    def __init__(self, channel: Channel, recipe: Recipe) -> None:
        self._channel = channel
        self._recipe = recipe
        self._began_at = time.process_time()

    def __call__(self, phase: Phase) -> None:
        if time.process_time() - self._began_at > _COLLECTED_AFTER_S:
            gc.collect()
        limit_memory(self._recipe.memory_bytes + (_EMBEDDING_BYTES if phase.file is None else 0))
        self._began_at = time.process_time()
        self._channel.send(phase)


def open_preparer(recipe: Recipe) -> Prepare:
    """Return the function that prepares a batch.

    If it embeds, it has an embedder and a connection of its own.
    """
    from unspool.embedders.tokens import TokenCounting
    from unspool.indexing.preparing import prepare_files

    if recipe.embedder:
        return _open_embedding_preparer(recipe)
    counter = TokenCounting(recipe.max_tokens, recipe.tokenizer_file) if recipe.counts else None
    if counter is not None:
        counter.count_tokens("load the tokenizer before a file uses the time and memory")

    def prepare(batch: Sequence[Work], announce: Callable[[Phase], None]) -> list[Outcome]:
        return prepare_files(
            batch,
            counter=counter,
            chunk_tokens=recipe.chunk_tokens,
            max_bytes=recipe.max_bytes,
            on_file=lambda number: announce(Phase(number)),
        )

    return prepare


def _open_embedding_preparer(recipe: Recipe) -> Prepare:
    from unspool.catalog import Catalog
    from unspool.catalog.database import ConnectionOptions
    from unspool.catalog.spaces import find_known_texts
    from unspool.embedders import open_embedder
    from unspool.indexing.embedding import Maker
    from unspool.indexing.preparing import prepare_files

    embedder = open_embedder(recipe.embedder)
    catalog = Catalog.open(
        recipe.database,
        create=False,
        options=ConnectionOptions(**recipe.connecting),  # type: ignore[arg-type]
    )

    def look_up_embeddings(shas: Iterable[bytes]) -> set[bytes]:
        with catalog.read() as connection:
            return find_known_texts(connection, recipe.space_id, shas)

    embedder.embed_passages(["load the weights before a file uses the time and memory"])
    maker = Maker(embedder=embedder, known=look_up_embeddings)

    def prepare(batch: Sequence[Work], announce: Callable[[Phase], None]) -> list[Outcome]:
        outcomes = prepare_files(
            batch,
            counter=embedder,
            chunk_tokens=recipe.chunk_tokens,
            max_bytes=recipe.max_bytes,
            on_file=lambda number: announce(Phase(number)),
        )
        maker.on_portion = partial(announce, Phase(None))
        announce(Phase(None))
        return maker.complete(outcomes)

    return prepare
