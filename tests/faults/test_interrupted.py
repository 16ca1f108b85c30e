"""Indexing that is killed at random instants and run again ends where an undisturbed run ends:
nothing missing, nothing twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import assert_no_orphans, open_corpus

# Imports once, then forks a child for each run, so that a kill costs the run and not the start of
# Python. Commits are made small, so that every run has many of them.
SERVER = """
import json, os, random, signal, sys, time
from pathlib import Path
task = json.loads(sys.argv[1])
import unspool
from unspool.index import follower as writing
from unspool.embedders import open_embedder
from unspool.indexing import pipeline
open_embedder("static").embed_query("warm")
pipeline.COMMIT_CHUNKS, pipeline.COMMIT_DOCUMENTS, pipeline.BATCH_FILES, pipeline.CLAIM_FILES = 25, 15, 5, 30
pipeline.INLINE_FILES = 0 if task["workers"] else 10_000
writing.PAGE, writing.COMMIT_EVERY = 15, 30
chance = random.Random(task["seed"])
tree = Path(task["tree"])

def text(number, version):
    words = " ".join(random.Random(number * 1000 + version).choices(["walrus", "cache", "eviction", "parse", "config", "token", "island"], k=60))
    module = f'\"\"\"Module {number}, version {version}.\"\"\"\\n\\n\\ndef load_{number}(path):\\n    return "{words}"\\n'
    return module + f"\\n\\nclass Extra{number}:\\n    {words.split()[0]} = 1\\n" * (number % 4)

def mutate(round):
    if round == 0:
        for number in range(task["files"]):
            file = tree / f"d{number % 7}" / f"m{number}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text(number, 0))
        return
    for number in chance.sample(range(task["files"]), task["files"] // 3):
        file = tree / f"d{number % 7}" / f"m{number}.py"
        if chance.random() < 0.2:
            file.unlink(missing_ok=True)
        elif chance.random() < 0.2 and file.exists():
            file.rename(file.with_name(f"r{round}_{file.name}"))
        else:
            file.write_text(text(number, round))

def run(database):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        code = 1
        try:
            settings = unspool.Settings.load(arguments={"database": f"sqlite:///{database}", "jobs": 2}, environment={}, folder=tree)
            with unspool.open(settings=settings) as corpus:
                report = corpus.index(tree, project="tree")
                code = 0 if not report.failed and not report.busy else 2
        finally:
            os._exit(code)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

mutate(0)
begun = time.monotonic()
assert ended(run(task["scratch"])) == 0
longest = time.monotonic() - begun
codes = []
for round in range(task["kills"]):
    if round % 2:
        mutate(round)
    pid = run(task["database"])
    time.sleep(chance.uniform(0, longest / 2))
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
last = ended(run(task["database"]))
print(json.dumps({"codes": codes, "last": last}))
"""


@pytest.mark.parametrize(
    ("seed", "kills", "files", "workers"),
    [(1, 7, 100, False), (2, 2, 40, True)],
    ids=["in one process", "with workers"],
)
def test_a_killed_run_is_finished_by_the_next(
    tmp_path: Path, seed: int, kills: int, files: int, workers: bool
) -> None:
    tree, database, fresh = (
        tmp_path / "tree",
        tmp_path / "killed" / "catalog.db",
        tmp_path / "fresh" / "catalog.db",
    )
    for folder in (tree, database.parent, fresh.parent):
        folder.mkdir()
    task = {
        "seed": seed,
        "kills": kills,
        "files": files,
        "workers": workers,
        "tree": str(tree),
        "database": str(database),
        "scratch": str(tmp_path / "scratch.db"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER, json.dumps(task)],
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
    assert result["codes"].count(-9) >= kills // 3, "hardly any run was killed before its end"
    with open_corpus(fresh) as corpus:
        corpus.index(tree, project="tree")
    killed, undisturbed = assert_no_orphans(database), assert_no_orphans(fresh)
    assert killed.chunks == undisturbed.chunks
    assert killed.documents == undisturbed.documents
    assert {status for status, _, _ in killed.documents.values()} == {"indexed"}
    with open_corpus(database) as corpus:
        again = corpus.index(tree, project="tree")
        assert (again.added, again.updated, again.removed, again.unchanged) == (
            0,
            0,
            0,
            len(undisturbed.documents),
        )
        assert corpus.search("walrus eviction", limit=5).hits
