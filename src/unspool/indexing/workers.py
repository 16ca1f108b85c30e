"""Worker processes that read and chunk files, each file under a limit of time and memory."""

from __future__ import annotations

import gc
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from unspool.catalog.options import DatabaseOptions
from unspool.indexing.changes import PendingFile
from unspool.indexing.preparing import Chunker, FailedFile, Outcome, TokenCounter, prepare_files
from unspool.processes import (
    Channel,
    Child,
    ChildEndedError,
    ChildMemoryError,
    ChildOverdueError,
    Limits,
    limit_memory,
)

# Imported where it is used: numpy takes memory that most workers do not need.
if TYPE_CHECKING:
    from unspool.indexing.embedding import PassageEmbedder

LIMITS = Limits()
# Unfinished and unwritten batches per worker: enough work while the parent commits to the index for
# two seconds.
BATCHES_AHEAD = 8
# There is a worker per core, and numpy's own threads would compete with the workers.
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

# Syntax trees contain cycles, and the memory of a slow file must not count for the next one.
_COLLECT_AFTER_S = 0.5
# Added to the limit of a file while embedding: libraries that find no memory hang there instead of
# raising an error.
_EMBEDDING_BYTES = 50_000_000

Prepare = Callable[[Sequence[PendingFile], Callable[["Phase"], None]], list[Outcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of a worker, as plain values that another process can read."""

    database: str
    options: DatabaseOptions
    space_id: int
    embedder: str  # setting of the embedder that the worker opens; empty if the parent embeds
    # True if the worker can count the embedder's tokens; otherwise the parent chunks
    counts: bool
    max_tokens: int
    tokenizer_file: str
    chunk_tokens: int
    max_bytes: int
    seconds: float  # for one file, or for one batch of passages
    memory_bytes: int


class Phase(NamedTuple):
    """Announcement of a worker before each file and before each batch of passages."""

    file: int | None  # number in the batch of files; None before it embeds


class WorkerPool:
    """Worker processes, started when first used."""

    def __init__(self, config: WorkerConfig, jobs: int) -> None:
        self._config = config
        self._jobs = jobs
        self._idle: queue.LifoQueue[Child] = queue.LifoQueue()
        self._workers: list[Child] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="unspool-worker")

    def map(self, batches: Iterator[Sequence[PendingFile]]) -> Iterator[list[Outcome]]:
        """Prepare batches, and yield the results as they are ready.

        The number of unfinished batches is bounded.
        """
        pending: set[Future[list[Outcome]]] = set()
        for batch in batches:
            pending.add(self._threads.submit(self._run, batch))
            if len(pending) >= BATCHES_AHEAD * self._jobs:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)

    def close(self) -> None:
        """Stop all workers, busy ones included."""
        self._closed = True
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def _run(self, batch: Sequence[PendingFile]) -> list[Outcome]:
        """Let a worker prepare a batch.

        If the worker dies at a file, that file fails and the others are prepared again.
        """
        if self._closed or not batch:
            return []
        worker = self._get_worker()
        # No time limit before the first announcement: the worker imports modules and opens the
        # catalog.
        phase: Phase | None = None
        try:
            worker.send(batch)
            while isinstance(
                message := worker.receive(self._config.seconds if phase else None), Phase
            ):
                phase = message
        except ChildEndedError as error:
            self._workers.remove(worker)
            worker.close()
            return self._recover(batch, phase.file if phase else None, error)
        self._idle.put(worker)
        return cast(list[Outcome], message)

    def _recover(
        self, batch: Sequence[PendingFile], current: int | None, error: ChildEndedError
    ) -> list[Outcome]:
        if self._closed:
            return []
        if current is None:  # it died while it embedded, so the file is unknown
            if len(batch) > 1:
                return [outcome for file in batch for outcome in self._run([file])]
            current = 0
        failed = FailedFile(path=batch[current].found.path, error=self._describe(error))
        return [*self._run(batch[:current]), failed, *self._run(batch[current + 1 :])]

    def _describe(self, error: ChildEndedError) -> str:
        advice = "exclude it in .unspoolignore, or split it"
        limit = f"the memory limit of {self._config.memory_bytes // 10**6} MB"
        if isinstance(error, ChildOverdueError):
            seconds = f"{self._config.seconds:g} seconds"
            return f"reading it took more than the limit of {seconds}; {advice}"
        if isinstance(error, ChildMemoryError):
            return f"reading it needs more than {limit}; {advice}"
        return f"the process that read it died, perhaps at {limit}; {advice}"

    def _get_worker(self) -> Child:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            worker = Child(
                "unspool.indexing.workers:serve",
                memory_bytes=self._config.memory_bytes + _EMBEDDING_BYTES,
                variables=_ONE_THREAD,
            )
            self._workers.append(worker)
            worker.send(self._config)
            return worker


def serve(channel: Channel) -> None:
    """Prepare batch after batch until the parent closes the pipe."""
    # a worker creates hardly any cycles, and a collection takes a tenth of its time
    gc.set_threshold(200_000, 50, 1000)
    config = cast(WorkerConfig, channel.receive())
    prepare = open_preparer(config)
    began = 0.0

    def announce(phase: Phase) -> None:
        """Announce a phase to the parent, and set its memory limit."""
        nonlocal began
        if time.process_time() - began > _COLLECT_AFTER_S:
            gc.collect()
        limit_memory(config.memory_bytes + (_EMBEDDING_BYTES if phase.file is None else 0))
        began = time.process_time()
        channel.send(phase)

    while True:
        batch = cast(Sequence[PendingFile], channel.receive())
        began = time.process_time()
        channel.send(prepare(batch, announce))


def open_preparer(config: WorkerConfig) -> Prepare:
    """Return the function that prepares a batch, and embeds it if the configuration says so.

    Everything is loaded now, before a file uses the time and memory.
    """
    from unspool.embedders.tokens import TokenCounting

    passages = _open_passage_embedder(config) if config.embedder else None
    counter: TokenCounter | None = None
    if passages is not None:
        counter = passages.embedder
    elif config.counts:
        counter = TokenCounting(config.max_tokens, config.tokenizer_file)
        counter.count_tokens("load the tokenizer")
    chunker = (
        None if counter is None else Chunker(counter=counter, chunk_tokens=config.chunk_tokens)
    )

    def prepare(batch: Sequence[PendingFile], announce: Callable[[Phase], None]) -> list[Outcome]:
        outcomes = prepare_files(
            batch,
            chunker=chunker,
            max_bytes=config.max_bytes,
            on_file=lambda number: announce(Phase(number)),
        )
        if passages is None:
            return outcomes
        passages.on_batch = partial(announce, Phase(None))
        passages.on_batch()
        return passages.embed_documents(outcomes)

    return prepare


def _open_passage_embedder(config: WorkerConfig) -> PassageEmbedder:
    """Open the embedder and a connection to the catalog in this process."""
    from unspool.catalog import Catalog, spaces
    from unspool.embedders import open_embedder
    from unspool.indexing.embedding import PassageEmbedder

    embedder = open_embedder(config.embedder)
    catalog = Catalog.open(config.database, create=False, options=config.options)

    def look_up(shas: Iterable[bytes]) -> set[bytes]:
        with catalog.read() as connection:
            return spaces.find_known_texts(connection, config.space_id, shas)

    embedder.embed_passages(["load the weights"])
    return PassageEmbedder(embedder=embedder, look_up=look_up)
