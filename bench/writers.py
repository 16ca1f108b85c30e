"""Writers that share a project on PostgreSQL: the time that one excludes the others, and the gain
of a second process.

Each process indexes the same folder with one worker, once with the static embedder and once with an
embedder that waits as for a model elsewhere. The first needs four idle cores to show a gain; the
second shows it on a busy machine too. A sampler counts what the server's processes wait for.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

import pgdata
import trees
from common import Figure, answer_of, empty, parser, show, start_fresh, tell, workspace
from unspool.corpus import Corpus
from unspool.settings import Settings

FILES = 600
START_S = 8.0  # time for the processes to import everything and to connect
SAMPLE_S = 0.01
PROJECT = "tree"
EMBEDDERS = ("static", "waiting")
LOCK_SHARE, GAIN = 10, 1.3  # targets
_LOCK = "UPDATE projects SET seq="
_WAITS = (
    "SELECT coalesce(wait_event_type || ' ' || wait_event, 'running') || CASE wait_event_type WHEN "
    "'Lock' THEN ': ' || left(query, 60) ELSE '' END FROM pg_stat_activity WHERE "
    "datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'"
)
TEXT_S = 0.002  # for one text of the embedder that waits
Run = dict[str, Any]


class WaitingEmbedder:
    """An embedder that takes time but no CPU, as a model elsewhere does."""

    name, dimension, max_tokens = "waiting", 256, 512

    def embed_passages(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        time.sleep(TEXT_S * len(texts))
        rows = [np.random.default_rng(zlib.crc32(text.encode())).random(256) for text in texts]
        return np.stack(rows).astype(np.float32)

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        return self.embed_passages([text])[0]


def main() -> None:
    options = parser(__doc__)
    pgdata.add_options(options)
    options.add_argument("--files", type=int, default=FILES, help="Python files to index")
    options.add_argument("--rounds", type=int, default=1, help="repetitions; the best one counts")
    options.add_argument(
        "--embedders", nargs="+", choices=EMBEDDERS, default=list(EMBEDDERS), help="to measure with"
    )
    given = options.parse_args()
    with pgdata.place(given.server) as place, workspace(given.keep) as folder:
        tree = empty(folder / "tree")
        trees.copy_python(tree, files=given.files)
        figures = [
            figure
            for embedder in given.embedders
            for figure in compare(place, tree, embedder, given.rounds)
        ]
    show("writers", figures, as_json=given.json)


def compare(place: pgdata.Place, tree: Path, embedder: str, rounds: int) -> Iterator[Figure]:
    """Index a folder by one process, then by two. Of several rounds the fastest counts."""
    runs = [
        [_index(place, tree, embedder, processes) for _ in range(rounds)] for processes in (1, 2)
    ]
    alone, together = (min(some, key=lambda run: float(run["seconds"])) for some in runs)
    yield from _list_figures(alone, f"{embedder}, one process")
    yield from _list_figures(together, f"{embedder}, two processes")
    gain = alone["seconds"] / together["seconds"]
    name = f"{embedder}, gain of the second process"
    yield Figure(name=name, value=gain, unit="x", bound=GAIN, at_least=True)


def _index(place: pgdata.Place, tree: Path, embedder: str, processes: int) -> Run:
    tell(f"{embedder}: {processes} writing")
    with place.fresh() as database:
        own = WaitingEmbedder() if embedder == "waiting" else None
        Corpus(Settings.of(database=database), embedder=own).close()  # creates the tables
        at = time.time() + START_S
        started = [
            start_fresh("writers:measure", str(tree), database, embedder, at)
            for _ in range(processes)
        ]
        with _sample_waits(database) as waits:
            runs = [answer_of(process, process.communicate()[0]) for process in started]
    return {
        "seconds": max(run["ended"] for run in runs) - at,
        "locked": sum(run["locked"] for run in runs),
        "chunks": sum(run["chunks"] for run in runs),
        "shares": [run["chunks"] for run in runs],
        "cpu": sum(run["cpu"] for run in runs),
        "waits": waits,
    }


def measure(tree: str, database: str, embedder: str, at: float) -> Run:
    """Index a folder from a given time on, and add up the time under the project's lock."""
    locked = 0.0
    begun: dict[object, float] = {}

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def begin(connection: Any, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith(_LOCK):
            begun[connection.connection.dbapi_connection] = time.perf_counter()

    @sa.event.listens_for(sa.pool.Pool, "checkin")  # behind the commit
    def end(connection: Any, record: object) -> None:
        nonlocal locked
        if connection in begun:
            locked += time.perf_counter() - begun.pop(connection)

    own = WaitingEmbedder() if embedder == "waiting" else None
    with Corpus(Settings.of(database=database, jobs=1), embedder=own) as corpus:
        corpus.count()  # connects
        time.sleep(max(0.0, at - time.time()))
        cpu = time.process_time()
        report = corpus.index(tree, project=PROJECT)
        return {
            "ended": time.time(),
            "locked": locked,
            "chunks": report.chunks,
            "cpu": time.process_time() - cpu,
        }


@contextmanager
def _sample_waits(database: str) -> Iterator[Counter[str]]:
    """Count the wait events of the server's processes until the context ends."""
    waits: Counter[str] = Counter()
    ended = threading.Event()

    def sample() -> None:
        with pgdata.by_hand(database, autocommit=True) as connection:
            while not ended.wait(SAMPLE_S):
                waits.update(str(row[0]) for row in connection.execute(_WAITS))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()


def _list_figures(run: Run, name: str) -> Iterator[Figure]:
    yield Figure(
        name=name,
        value=run["chunks"] / run["seconds"],
        unit="chunks/s",
        note=f"{run['shares']} chunks in {run['seconds']:.1f} s, {run['cpu']:.1f} s of CPU",
    )
    bound = LOCK_SHARE if len(run["shares"]) == 1 else None
    share = 100 * run["locked"] / run["seconds"]
    yield Figure(name=f"{name}, under the project's lock", value=share, unit="%", bound=bound)
    waits = run["waits"]
    waiting = sum(count for event, count in waits.items() if event.startswith("Lock"))
    yield Figure(
        name=f"{name}, waiting for each other",
        value=100 * waiting / max(waits.total(), 1),
        unit="%",
        note=", ".join(f"{event} {count}" for event, count in waits.most_common(4)),
    )


if __name__ == "__main__":
    main()
