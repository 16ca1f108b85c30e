"""Worker processes that prepare files.

They are plain child processes that speak pickles over their pipes, not `multiprocessing` ones: those import the caller's main module
again, so that a script without a guard around its last lines would index inside each of its own workers.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import BinaryIO, cast

from unspool.errors import ServiceError
from unspool.indexing.changes import Work
from unspool.indexing.preparing import Failed, Outcome

# Its setup comes over the pipe, not as an argument: an address may hold a password, and arguments are on show to everybody.
_START = (
    "import json, sys; setup = json.loads(sys.stdin.buffer.readline()); sys.path[:] = setup.pop('path'); "
    "from unspool.indexing.workers import serve; serve(setup)"
)


# Batches per worker that are under way or wait to be stored: enough to keep it busy while the parent commits to the index for two seconds.
UNDER_WAY = 8
# There is a worker per core; numpy's own threads would only get in each other's way.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything a worker needs to know; plain values, so that it can be handed to another process."""

    database: str
    connecting: dict[str, object]
    space_id: int
    embedder: str  # that the worker opens and embeds with; empty where the parent embeds and the worker only counts
    max_tokens: int
    tokenizer_file: str
    chunk_tokens: int
    max_bytes: int


class Pool:
    """So many workers, started when first used."""

    def __init__(self, recipe: Recipe, jobs: int) -> None:
        self._recipe = recipe
        self._jobs = jobs
        self._idle: queue.LifoQueue[subprocess.Popen[bytes]] = queue.LifoQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="unspool-worker")

    def map(self, batches: Iterator[Sequence[Work]]) -> Iterator[list[Outcome]]:
        """Prepare batches; results come as they are ready, and only so many batches are under way, whatever the tree's size."""
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
        """End the workers, also those that are at work."""
        self._closed = True
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # a killed worker's pipe may hold what was never read
                        pipe.close()
            process.wait()

    def _run(self, batch: Sequence[Work]) -> list[Outcome]:
        process = self._take()
        try:
            _send(cast(BinaryIO, process.stdin), batch)
            outcomes = _receive(cast(BinaryIO, process.stdout))
        except (OSError, EOFError, pickle.UnpicklingError):
            return self._one_by_one(batch)
        self._idle.put(process)
        if isinstance(outcomes, Exception):
            raise outcomes
        return cast(list[Outcome], outcomes)

    def _one_by_one(self, batch: Sequence[Work]) -> list[Outcome]:
        """A worker has died: find the file that it was, and let the others go on."""
        if self._closed:
            return []
        if len(batch) > 1:
            return [outcome for work in batch for outcome in self._run([work])]
        return [
            Failed(path=work.found.path, error="the process that read it died, perhaps for want of memory; exclude it in .unspoolignore")
            for work in batch
        ]

    def _take(self) -> subprocess.Popen[bytes]:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            setup = json.dumps({"path": sys.path, **asdict(self._recipe)})
            environment = {**os.environ, **_ONE_THREAD}  # noqa: TID251 - not read, only handed on
            process = subprocess.Popen([sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            self._processes.append(process)
            cast(BinaryIO, process.stdin).write(setup.encode() + b"\n")  # sent with the first batch
            return process


def serve(setup: dict[str, object]) -> None:
    """The worker's side: prepare batch after batch until the pipe closes."""
    import signal

    gc.set_threshold(200_000, 50, 1000)  # a worker makes no cycles to speak of, and walking its tables takes a tenth of its time
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    # Buffered, whatever PYTHONUNBUFFERED says: a plain write that a signal meets may end halfway, and the rest would be waited for for ever.
    answers = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stderr  # nothing that is printed by accident may reach the pipe
    prepare = preparer(Recipe(**setup))  # type: ignore[arg-type]
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            batch = cast(Sequence[Work], _receive(sys.stdin.buffer))
            try:
                result: object = prepare(batch)
            except Exception as error:  # noqa: BLE001 - it is raised again on the other side of the pipe
                result = _portable(error)
            _send(answers, result)


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception's own pickling does wrong
        return ServiceError(f"a worker process failed with {type(error).__name__}: {error}")
    return error


def preparer(recipe: Recipe):  # type: ignore[no-untyped-def]
    """The function that prepares a batch; with an embedder of its own and a reading connection of its own where it embeds, too."""
    from unspool.embedders.tokens import TokenCounting
    from unspool.indexing.preparing import prepare_files

    if recipe.embedder:
        return _embedding(recipe)
    counter = TokenCounting(recipe.max_tokens, recipe.tokenizer_file)

    def prepare(batch: Sequence[Work]) -> list[Outcome]:
        return prepare_files(batch, counter=counter, chunk_tokens=recipe.chunk_tokens, max_bytes=recipe.max_bytes)

    return prepare


def _embedding(recipe: Recipe):  # type: ignore[no-untyped-def]
    from unspool.catalog import Catalog, documents
    from unspool.catalog.database import Connecting
    from unspool.embedders import open_embedder
    from unspool.indexing.embedding import Maker
    from unspool.indexing.preparing import prepare_files

    embedder = open_embedder(recipe.embedder)
    catalog = Catalog.open(recipe.database, create=False, connecting=Connecting(**recipe.connecting))  # type: ignore[arg-type]

    def known(shas):  # type: ignore[no-untyped-def]
        with catalog.read() as connection:
            return documents.known_embeddings(connection, recipe.space_id, shas)

    maker = Maker(embedder=embedder, known=known)

    def prepare(batch: Sequence[Work]) -> list[Outcome]:
        return maker.complete(prepare_files(batch, counter=embedder, chunk_tokens=recipe.chunk_tokens, max_bytes=recipe.max_bytes))

    return prepare


def _send(pipe: BinaryIO, value: object) -> None:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(8, "big"))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> object:
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    data = pipe.read(int.from_bytes(size, "big"))
    return pickle.loads(data)
