"""Going over to another embedder, killed at random instants and begun again: every answer comes
from one whole space, and no work is done twice.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import unspool
from support import (
    ENGINES,
    Place,
    Places,
    address_of,
    assert_no_orphans,
    beside,
    doc,
    name,
    open_corpus,
)

KILLS, TEXTS = 8, 160
# as below: texts that are embedded and kept together, texts that are verified
PORTION, SAMPLE = 4, 2
A, B = "hashing:a", "hashing:b"
QUERIES = ("the walrus near the island", "cache eviction")

# Imports once, then forks a child for each attempt, so that a kill costs the attempt and not the
# start of Python. Portions are small and the embedder takes its time, so that kills fall
# everywhere.
SERVER = """
import json, os, signal, sys, time
task = json.loads(sys.argv[1])
sys.path.insert(0, task["tests"])
import hashing, unspool
from unspool.index import follower as writing
from unspool.embedders import open_embedder
from unspool.indexing import embedding, reembedding
from unspool.index.postgres import repairing
hashing.register()
embedding.LOCAL_BATCHES, reembedding.SAMPLE, writing.PAGE, writing.COMMIT_EVERY, repairing.PAGE = 1, task["sample"], 10, 20, 10
log = os.open(task["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def slowly(texts):
    time.sleep(0.002)
    os.write(log, b"." * len(texts))

hashing.ASKED.before["a"] = hashing.ASKED.before["b"] = slowly
open_embedder("hashing:a").count_tokens("warm")
for line in sys.stdin:
    order = json.loads(line)
    os.truncate(log, 0) if order["afresh"] else None
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            given = {"database": order["database"], "embedder": order["embedder"]}
            unspool.reembed(settings=unspool.Settings.load(arguments=given, environment={}), drop_old=True)
            code = 0
        except unspool.errors.ConflictError as error:
            code = 5 if "wait until it is done" in str(error) else 4
        finally:
            os._exit(code)
    if order["delay"] is not None:
        time.sleep(order["delay"])
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps({"code": code, "seconds": time.monotonic() - begun, "embedded": os.fstat(log).st_size}), flush=True)
"""
BUSY = 5  # a server has not noticed yet that the one before was killed


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def documents() -> list[unspool.Document]:
    words = "walrus cache eviction parse config token island".split()
    chance = random.Random(0)
    return [
        doc(
            f"{number}.md",
            f"{name(number)} {' '.join(chance.choices(words, k=12))}",
            f"p{number % 3}",
        )
        for number in range(TEXTS)
    ]


def fill(place: Place, embedder: str) -> list[Any]:
    with open_corpus(place, embedder=embedder) as corpus:
        for project in ("p0", "p1", "p2"):
            corpus.put(*(one for one in documents() if one.project == project))
        corpus.refresh()
        return answers(corpus)


def answers(corpus: unspool.Corpus) -> list[Any]:
    pages = [
        corpus.search(query, projects="*", alpha=alpha, limit=2 * TEXTS)
        for query, alpha in zip(QUERIES, (1.0, 0.5), strict=True)
    ]
    return [[(hit.chunk.id, round(hit.score, 5)) for hit in page.hits] for page in pages]


class Attempts:
    """Runs of `reembed` in processes of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._threads = ThreadPoolExecutor(1)

    def run(
        self,
        place: Place,
        embedder: str,
        *,
        delay: float | None = None,
        afresh: bool = False,
        corpus: unspool.Corpus | None = None,
    ) -> Any:
        """How one ended, what it took, the texts embedded since one began afresh, and what the
        corpus answered meanwhile.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {
            "database": address_of(place),
            "embedder": embedder,
            "delay": delay,
            "afresh": afresh,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._threads.submit(self._process.stdout.readline)
        seen = []
        while corpus is not None and not line.done():
            seen.append(answers(corpus))
        return {**json.loads(line.result()), "seen": seen}

    def close(self) -> None:
        self._threads.shutdown()


@contextmanager
def attempts(folder: Path) -> Iterator[Attempts]:
    task = {
        "tests": str(Path(__file__).parent.parent),
        "log": str(folder / "log"),
        "sample": SAMPLE,
    }
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-W", "ignore", "-c", SERVER, json.dumps(task)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        made = Attempts(process)
        try:
            yield made
        finally:
            assert process.stdin is not None
            process.stdin.close()
            made.close()


@pytest.mark.usefixtures("hashing")
def test_whenever_it_is_killed_answers_are_whole_and_the_next_attempt_goes_on(
    places: Places, tmp_path: Path
) -> None:
    place, undisturbed = places.new(), places.new()
    whole = {B: fill(undisturbed, B), A: fill(place, A)}
    chance = random.Random(7)
    used, target, kills, done, begun = A, B, 0, 0, 0
    with attempts(tmp_path) as runs, open_corpus(place, embedder=A) as corpus:
        scratch = places.new()
        fill(scratch, A)
        longest = runs.run(scratch, B)["seconds"]
        while kills < KILLS or begun or used == A:
            begun += 1  # attempts at this target
            delay = None if kills >= KILLS else chance.uniform(0, longest * 0.8)
            result = runs.run(place, target, delay=delay, afresh=begun == 1, corpus=corpus)
            assert result["code"] in (0, -9, BUSY)
            kills += result["code"] == -9
            with open_corpus(place, embedder=used_in(place)) as other:
                now = used_in(place)
                assert answers(other) == whole[now], (
                    "a new corpus does not answer from the space in use"
                )
            order = [used, *([target] if now == target else [])]
            for seen in [*result["seen"], answers(corpus)]:
                for at, answer in enumerate(seen):
                    while order and answer != whole[order[0]][at]:
                        order.pop(0)
                    assert order, "an answer is of neither space, or of the old one after the new"
            assert result["embedded"] <= TEXTS + begun * (PORTION + SAMPLE), (
                "what was embedded before the kill was embedded again"
            )
            used = now
            if result["code"] == 0:
                assert now == target
                done += 1
                target, begun = A if target == B else B, 0
        assert answers(corpus) == whole[B]
    assert kills >= KILLS and done >= 1
    assert used_in(place) == B
    killed, fresh = assert_no_orphans(place, embedder=B), assert_no_orphans(undisturbed, embedder=B)
    assert killed.chunks == fresh.chunks and killed.documents.keys() == fresh.documents.keys()
    assert killed.embeddings == fresh.embeddings == TEXTS


def used_in(place: Place) -> str:
    with beside(place) as catalog:
        return str(catalog.rows("SELECT embedder FROM spaces WHERE active")[0][0])
