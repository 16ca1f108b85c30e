"""Several processes and one catalog."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from servers import PostgresServer
from support import (
    ENGINES,
    Place,
    Places,
    address_of,
    assert_no_orphans,
    beside,
    doc,
    open_corpus,
    paths,
    write,
)
from unspool.catalog import sqlite_file as catalog_sqlite
from unspool.errors import ServiceTimeoutError

WORK = """
import json, sys, time
from pathlib import Path
task = json.loads(sys.argv[1])
import unspool
from unspool.embedders import open_embedder
from unspool.indexing import pipeline
pipeline.COMMIT_CHUNKS, pipeline.COMMIT_DOCUMENTS, pipeline.CLAIM_FILES, pipeline.BATCH_FILES = 20, 10, 16, 4
open_embedder("static").embed_query("warm")
Path(task["ready"]).touch()
while not Path(task["go"]).exists():
    time.sleep(0.005)
settings = unspool.Settings.load(arguments={"database": task["database"], "jobs": 1}, environment={}, folder=Path(task["go"]).parent)
with unspool.open(settings=settings) as corpus:
    if task["does"] == "index":
        report = corpus.index(task["tree"], project=task["project"])
        print(json.dumps({"failed": report.failed, "added": report.added, "busy": report.busy}))
    else:
        seen = 0
        for _ in range(20):
            page = corpus.search("walrus", projects="*", limit=50)
            ids = [hit.chunk.id for hit in page.hits]
            assert len(ids) == len(set(ids))
            seen = max(seen, len(ids))
            time.sleep(0.02)
        print(json.dumps({"seen": seen}))
"""


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_processes_that_index_and_search_one_catalog_at_once_all_succeed(
    places: Places, tmp_path: Path
) -> None:
    files = {
        f"d{n % 5}/f{n}.py": f'"""The walrus {n}."""\n\n\ndef walrus_{n}():\n    return {n}\n'
        for n in range(70)
    }
    one, two = (
        write(tmp_path / "one", files),
        write(tmp_path / "two", dict(list(files.items())[:40])),
    )
    shared, alone = places.new(), places.new()
    with open_corpus(shared) as corpus:
        corpus.put(doc("start.md", "The first walrus.", "start"))
    tasks = [
        ("index", one, "one"),
        ("index", one, "one"),
        ("index", two, "two"),
        ("search", one, ""),
        ("search", one, ""),
    ]
    started = []
    for number, (does, tree, project) in enumerate(tasks):
        task = {
            "does": does,
            "tree": str(tree),
            "project": project,
            "database": address_of(shared),
            "ready": str(tmp_path / f"ready{number}"),
            "go": str(tmp_path / "go"),
        }
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", WORK, json.dumps(task)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        deadline = threading.Event()
        for _ in range(1200):
            if all((tmp_path / f"ready{number}").exists() for number in range(len(tasks))):
                break
            deadline.wait(0.05)
        (tmp_path / "go").touch()
        results = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(tasks), [
        error for _, error in results
    ]
    reports = [json.loads(out) for out, _ in results]
    assert reports[0]["added"] + reports[1]["added"] == 70
    assert reports[2]["added"] == 40
    assert all(report["failed"] == 0 for report in reports[:3])
    assert all(report["seen"] >= 1 for report in reports[3:])
    with open_corpus(alone) as corpus:
        corpus.put(doc("start.md", "The first walrus.", "start"))
        corpus.index(one, project="one")
        corpus.index(two, project="two")
    together, single = assert_no_orphans(shared), assert_no_orphans(alone)
    assert together.chunks == single.chunks
    assert together.documents == single.documents


HOLD = """
import sqlite3, sys
if "://" in sys.argv[1]:
    import psycopg
    connection = psycopg.connect(sys.argv[1], autocommit=True, options="-c search_path=unspool")
    connection.execute("BEGIN")
    connection.execute("LOCK TABLE projects IN ROW EXCLUSIVE MODE")
    connection.execute("SELECT id FROM projects FOR UPDATE")
else:
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
connection.close()
"""


def test_a_catalog_that_another_process_locks_for_a_moment_is_waited_for(database: Place) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus"))
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(database)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert holder.stdout is not None
            assert holder.stdin is not None
            assert holder.stdout.readline() == b"held\n"
            assert paths(corpus.search("walrus")) == ["a.md"]  # a search never waits for a writer
            threading.Timer(0.5, holder.stdin.close).start()
            corpus.put(doc("b.md", "penguin"))
            assert paths(corpus.search("penguin", alpha=0)) == ["b.md"]
            holder.wait(timeout=30)
        finally:
            holder.kill()
            holder.stdout.close()


def test_a_catalog_that_stays_locked_is_a_timeout_that_can_be_tried_again(
    catalog_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_corpus(catalog_file).close()
    monkeypatch.setattr(catalog_sqlite, "BUSY_TIMEOUT_MS", 200)
    blocker = sqlite3.connect(catalog_file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with (
            open_corpus(catalog_file) as corpus,
            pytest.raises(ServiceTimeoutError, match="locked") as caught,
        ):
            corpus.put(doc("a.md", "walrus"))
        assert (caught.value.retryable, caught.value.exit_code) == (True, 3)
    finally:
        blocker.close()
    with open_corpus(catalog_file) as corpus:
        corpus.put(doc("a.md", "walrus"))
        assert paths(corpus.search("walrus")) == ["a.md"]


def test_a_project_that_stays_locked_is_a_timeout_that_can_be_tried_again(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with Places(tmp_path, postgres_server) as places:
        place = places.new()
        with open_corpus(place, statement_timeout_s=1) as corpus:
            corpus.put(doc("a.md", "walrus"))
            with beside(place) as blocker:
                blocker.rows("SELECT id FROM projects FOR UPDATE")
                with pytest.raises(ServiceTimeoutError) as caught:
                    corpus.put(doc("b.md", "penguin"))
                assert (caught.value.retryable, caught.value.exit_code) == (True, 3)
                assert paths(corpus.search("walrus")) == ["a.md"]
            corpus.put(doc("b.md", "penguin"))
            assert paths(corpus.search("penguin", alpha=0)) == ["b.md"]
