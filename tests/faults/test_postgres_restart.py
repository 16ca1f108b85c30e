"""A server that is restarted or killed, and a client that is killed, in the middle of it all:
nothing is lost, nothing is there twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from servers import PostgresServer
from support import assert_no_orphans, doc, name, open_corpus, paths, required, write
from unspool import Corpus, Progress
from unspool.catalog import Catalog
from unspool.errors import UnspoolError
from unspool.indexing import pipeline

psycopg = pytest.importorskip(
    "psycopg", reason="psycopg is not installed; pip install 'unspool[postgres]'"
)


@pytest.fixture(scope="module")
def durable_server() -> Iterator[PostgresServer]:
    """A server of this module's own, which keeps its last commits when it is killed."""
    with required(lambda: PostgresServer.start(durable=True)) as server:
        yield server


@pytest.fixture
def database(durable_server: PostgresServer) -> Iterator[str]:
    if not durable_server.running:  # a test that failed may have left it so
        durable_server.start_again()
    address = durable_server.create_database()
    yield address
    if not durable_server.running:
        durable_server.start_again()
    durable_server.drop_database(address)


def rows(address: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, options="-c search_path=unspool,public") as connection:
        return list(connection.execute(statement).fetchall())


def undisturbed(
    server: PostgresServer, database: str, folder: Path
) -> dict[str, list[tuple[object, ...]]]:
    """What a database holds that a folder was indexed into without anything happening. The project
    gets the number that it has in the other one, where a run that was killed may have taken an
    earlier: the places of words depend on it."""
    fresh = server.create_database()
    ((number,),) = rows(database, "SELECT id FROM projects")
    with open_corpus(fresh, jobs=1) as corpus:
        rows(fresh, f"SELECT setval(pg_get_serial_sequence('projects', 'id'), {number}, false)")
        corpus.index(folder, project="tree")
    found = holdings(fresh)
    server.drop_database(fresh)
    return found


def holdings(address: str) -> dict[str, list[tuple[object, ...]]]:
    """What is stored of each chunk."""
    assert rows(address, "SELECT count(*) FROM projects") == [(1,)]
    return {
        "documents": rows(
            address, "SELECT path, sha256, status, chunk_count FROM documents ORDER BY path"
        ),
        "chunks": rows(
            address,
            "SELECT c.id, path, position, text, text_sha FROM chunks c JOIN documents d ON d.id "
            "= document_id ORDER BY 1",
        ),
        "vectors": rows(address, "SELECT chunk_id, vector::text FROM vectors_1 ORDER BY 1"),
        "words": rows(address, "SELECT chunk_id, keys, body::text FROM words ORDER BY 1"),
        "counts": rows(
            address,
            "SELECT key, sum(chunks) FROM word_counts GROUP BY 1 HAVING sum(chunks) > 0 ORDER BY 1",
        ),
        "totals": rows(address, "SELECT chunk_count FROM projects"),
        "embeddings": rows(address, "SELECT text_sha, vector FROM embeddings ORDER BY 1"),
    }


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.01)


# The server goes away


class Worker(threading.Thread):
    """Does something again and again until it is told to stop; keeps what it did and what went
    wrong.
    """

    def __init__(self, task: Callable[[int], None]) -> None:
        super().__init__(daemon=True)
        self._task = task
        self._stopping = threading.Event()
        self.done: list[int] = []
        self.errors: list[BaseException] = []

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            try:
                self._task(number)
                self.done.append(number)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test looks at it
                self.errors.append(error)

    def end(self) -> None:
        self._stopping.set()
        self.join(timeout=60)
        assert not self.is_alive()


@pytest.mark.parametrize(("how", "away_s"), [("restart", 1.5), ("kill", 1.5), ("restart", 4.0)])
def test_a_restarted_server_costs_errors_that_can_be_retried_and_nothing_else(
    durable_server: PostgresServer, database: str, how: str, away_s: float
) -> None:
    with open_corpus(database) as corpus:
        corpus.put(
            *[
                doc(f"old/{number}.md", f"the old walrus {name(number)} eats fish")
                for number in range(20)
            ]
        )

        def putting(which: int) -> Callable[[int], None]:
            def put(number: int) -> None:
                corpus.put(
                    doc(
                        f"{which}/{number}.md",
                        f"the walrus {name(number)} of writer {name(which)} swims",
                    )
                )

            return put

        def reading(which: int) -> Callable[[int], None]:
            def read(number: int) -> None:
                page = corpus.search(f"old walrus {name(number % 20)}", limit=3)
                assert page.hits
                if page.continuation is not None and number % 3 == 0:
                    assert corpus.more(page.continuation).hits
                assert corpus.nearest(corpus.embed("fish"), k=1)

            return read

        writers, readers = (
            [Worker(putting(which)) for which in range(4)],
            [Worker(reading(which)) for which in range(4)],
        )
        workers = [*writers, *readers]
        for worker in workers:
            worker.start()
        until(lambda: all(worker.done for worker in workers), "everybody did something before")
        durable_server.stop() if how == "restart" else durable_server.kill()
        time.sleep(away_s)
        durable_server.start_again()
        marks = {worker: len(worker.done) for worker in workers}
        until(
            lambda: all(len(worker.done) > marks[worker] + 1 for worker in workers),
            "everybody does something again, with the same corpus",
        )
        for worker in workers:
            worker.end()

        assert away_s < 4 or all(reader.errors for reader in readers), (
            "a server that is away for so long is not waited for"
        )
        for worker in workers:
            for error in worker.errors:
                assert isinstance(error, UnspoolError) and error.retryable, repr(error)
        found = assert_no_orphans(database)
        there = Counter(path for _, path in found.documents)
        for which, writer in enumerate(writers):
            assert {
                path: there[path] for path in (f"{which}/{number}.md" for number in writer.done)
            } == {f"{which}/{number}.md": 1 for number in writer.done}
            assert found.documents[("notes", f"{which}/{writer.done[-1]}.md")][0] == "indexed"
        assert (
            paths(corpus.search(f"walrus {name(writers[2].done[-1])} of writer {name(2)}"))[0]
            == f"2/{writers[2].done[-1]}.md"
        )


def tree(folder: Path, files: int = 150) -> Path:
    return write(
        folder,
        {
            f"d{number % 7}/m{number}.py": (
                f'"""Module {number} about {name(number)}."""\n\n\ndef load_{number}(path):\n    '
                f'return "{name(number)}"\n'
            )
            for number in range(files)
        },
    )


@pytest.mark.parametrize("away_s", [0.5, 4.0])
def test_a_server_that_is_killed_while_a_tree_is_indexed_loses_nothing(
    durable_server: PostgresServer,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    away_s: float,
) -> None:
    for limit, value in {
        "COMMIT_CHUNKS": 25,
        "COMMIT_DOCUMENTS": 15,
        "BATCH_FILES": 5,
        "CLAIM_FILES": 30,
    }.items():
        monkeypatch.setattr(pipeline, limit, value)
    folder = tree(tmp_path / "tree")
    committed = threading.Event()

    def look(progress: Progress) -> None:
        if progress.task == "indexing":
            committed.set()

    def kill() -> None:
        committed.wait(60)
        durable_server.kill()
        time.sleep(away_s)
        durable_server.start_again()

    killer = threading.Thread(target=kill)
    with open_corpus(database, jobs=1) as corpus:
        killer.start()
        try:
            corpus.index(folder, project="tree", on_progress=look)
        except UnspoolError as error:
            assert error.retryable and error.exit_code == 3
        killer.join(60)
        assert committed.is_set() and durable_server.running
        between = assert_no_orphans(database)
        assert between.chunks
        report = corpus.index(folder, project="tree")
        assert not report.failed and not report.busy
        again = corpus.index(folder, project="tree")
        assert (again.added, again.updated, again.removed, again.unchanged) == (0, 0, 0, 150)
        assert Path(paths(corpus.search(name(77)))[0]).name == "m77.py"
    assert_no_orphans(database)
    assert holdings(database) == undisturbed(durable_server, database, folder)


# The client goes away

CLIENT = """
import json, os, random, signal, sys, time
from pathlib import Path
task = json.loads(sys.argv[1])
import unspool
from unspool.embedders import open_embedder
from unspool.indexing import pipeline
open_embedder("static").embed_query("warm")
pipeline.COMMIT_CHUNKS, pipeline.COMMIT_DOCUMENTS, pipeline.BATCH_FILES, pipeline.CLAIM_FILES = 25, 15, 5, 30
pipeline.INLINE_FILES = 0 if task["workers"] else 10_000
chance = random.Random(task["seed"])

def run(database):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        code = 1
        try:
            settings = unspool.Settings.load(arguments={"database": database, "jobs": 2}, environment={}, folder=Path(task["tree"]))
            with unspool.open(settings=settings) as corpus:
                report = corpus.index(task["tree"], project="tree")
                code = 0 if not report.failed and not report.busy else 2
        finally:
            os._exit(code)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

begun = time.monotonic()
assert ended(run(task["scratch"])) == 0
longest = time.monotonic() - begun
codes = []
for _ in range(task["kills"]):
    pid = run(task["database"])
    time.sleep(chance.uniform(0.1, 0.5) * longest)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    codes.append(ended(pid))
    deadline = time.monotonic() + 20
    while True:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline, "a worker outlived the run that started it"
        time.sleep(0.01)
    for file in chance.sample(sorted(Path(task["tree"]).rglob("*.py")), 20):
        file.write_text(file.read_text() + f"\\n\\nEXTRA_{chance.randrange(10**6)} = 1\\n")
print(json.dumps({"codes": codes, "last": ended(run(task["database"]))}))
"""


@pytest.mark.parametrize(
    ("seed", "kills", "files", "workers"),
    [(1, 4, 120, False), (2, 2, 40, True)],
    ids=["in one process", "with workers"],
)
def test_a_run_whose_process_is_killed_is_finished_by_the_next(
    durable_server: PostgresServer,
    database: str,
    tmp_path: Path,
    seed: int,
    kills: int,
    files: int,
    workers: bool,
) -> None:
    folder = tree(tmp_path / "tree", files)
    scratch = durable_server.create_database()
    task = {
        "seed": seed,
        "kills": kills,
        "workers": workers,
        "tree": str(folder),
        "database": database,
        "scratch": scratch,
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT, json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["last"] == 0, done.stderr
    assert set(result["codes"]) <= {0, -9}, done.stderr
    assert -9 in result["codes"], "no run was killed before its end"
    assert_no_orphans(database)
    assert without_leftovers(holdings(database)) == without_leftovers(
        undisturbed(durable_server, database, folder)
    )
    with open_corpus(database) as corpus:
        again = corpus.index(folder, project="tree")
        assert (again.added, again.updated, again.removed, again.unchanged) == (0, 0, 0, files)
        assert Path(paths(corpus.search(name(33)))[0]).name == "m33.py"
    durable_server.drop_database(scratch)


def without_leftovers(
    found: dict[str, list[tuple[object, ...]]],
) -> dict[str, list[tuple[object, ...]]]:
    """Vectors of texts that were there once may be kept for when they come back."""
    texts = {row[4] for row in found["chunks"]}
    return {**found, "embeddings": [row for row in found["embeddings"] if row[0] in texts]}


# Transactions that meet


def test_a_transaction_that_loses_a_deadlock_is_tried_again(database: str) -> None:
    catalog = Catalog.open(database)
    with catalog.write() as connection:
        connection.exec_driver_sql("INSERT INTO meta (key, value) VALUES ('a', '0'), ('b', '0')")
    meeting, calls, errors = threading.Barrier(2, timeout=30), Counter[str](), []

    def add(first: str, second: str) -> None:
        def work(connection: sa.Connection) -> None:
            calls[first] += 1
            connection.exec_driver_sql(
                f"UPDATE meta SET value = value::int + 1 WHERE key = '{first}'"
            )
            if calls[first] == 1:
                meeting.wait()  # both hold what the other one wants next
            connection.exec_driver_sql(
                f"UPDATE meta SET value = value::int + 1 WHERE key = '{second}'"
            )

        try:
            catalog.transact(work)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test names it
            errors.append(error)

    threads = [threading.Thread(target=add, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    catalog.close()
    assert errors == []
    assert sorted(calls.values()) == [1, 2]
    assert rows(database, "SELECT key, value FROM meta WHERE key IN ('a', 'b') ORDER BY 1") == [
        ("a", "2"),
        ("b", "2"),
    ]


def test_a_transaction_is_tried_again_while_the_server_restarts_and_happens_once(
    durable_server: PostgresServer, database: str
) -> None:
    catalog = Catalog.open(database)
    with catalog.write() as connection:
        connection.exec_driver_sql("INSERT INTO meta (key, value) VALUES ('a', '0')")
    calls = 0

    def work(connection: sa.Connection) -> None:
        nonlocal calls
        calls += 1
        connection.exec_driver_sql("UPDATE meta SET value = value::int + 1 WHERE key = 'a'")
        if calls == 1:
            durable_server.restart()
        connection.exec_driver_sql("SELECT 1")

    catalog.transact(work)
    catalog.close()
    assert calls == 2
    assert rows(database, "SELECT value FROM meta WHERE key = 'a'") == [("1",)]


def test_what_a_function_itself_says_is_never_tried_again(database: str) -> None:
    catalog = Catalog.open(database)
    calls = 0

    def work(connection: sa.Connection) -> None:
        nonlocal calls
        calls += 1
        connection.exec_driver_sql("INSERT INTO meta (key, value) VALUES ('a', '0')")
        raise LookupError("no")

    with pytest.raises(LookupError):
        catalog.transact(work)
    catalog.close()
    assert calls == 1
    assert rows(database, "SELECT value FROM meta WHERE key = 'a'") == []


def test_two_writers_of_the_same_words_in_many_projects_never_lose_a_put(database: str) -> None:
    with open_corpus(database) as one, open_corpus(database) as other:
        errors: list[BaseException] = []

        def put(corpus: Corpus, which: int) -> None:
            try:
                for number in range(15):
                    corpus.put(
                        doc(
                            f"{which}-{number}.md",
                            "the same words every time",
                            project=f"p{(number * (1 + 2 * which)) % 5}",
                        )
                    )
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test names it
                errors.append(error)

        threads = [
            threading.Thread(target=put, args=(corpus, which))
            for which, corpus in enumerate((one, other, one, other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(one.documents()) == 60
    assert_no_orphans(database)
