"""A vector index outside the catalog's database: it follows, lags, is killed, frozen and wiped, and
is filled again. Nothing is lost, and no deleted chunk is ever returned.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import disks
import disturbances
import unspool
import vector_server
from hashing import Asked
from support import (
    ENGINES,
    Place,
    Places,
    address_of,
    beside,
    doc,
    open_corpus,
    settings_for,
    write,
)
from unspool import Corpus
from unspool.diagnosis import diagnose
from unspool.domain.reports import Check
from unspool.errors import AddressError, ServiceTimeoutError, UnreachableError
from unspool.index import follower
from unspool.index.ports import NO_IDS, Points, VectorIndex
from vector_server import VectorServer

EMBEDDER = "hashing:a"
TAIL, LONG_TAIL, PAGE, COMMIT = 8, 60, 5, 10
WORDS = "walrus cache eviction parse config token island seal".split()


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def running() -> Iterator[VectorServer]:
    with VectorServer() as server:
        yield server


@pytest.fixture
def server(
    running: VectorServer, hashing: Asked, monkeypatch: pytest.MonkeyPatch
) -> Iterator[VectorServer]:
    """A server that runs, empty or with points of other tests; tails and pages are short."""
    vector_server.register()
    monkeypatch.setattr(vector_server, "TIMEOUT_S", 1.0)
    for limit, value in {
        "TAIL_LIMIT": TAIL,
        "LONG_TAIL_LIMIT": LONG_TAIL,
        "PAGE": PAGE,
        "COMMIT_EVERY": COMMIT,
    }.items():
        monkeypatch.setattr(follower, limit, value)
    running.start()
    yield running
    running.start()
    running.strike("nobody", 0)
    vector_server.unregister()


@contextmanager
def opened(place: Place, server: VectorServer, **arguments: object) -> Iterator[Corpus]:
    with open_corpus(place, vectors=server.address, **{"embedder": EMBEDDER, **arguments}) as made:
        yield made


def documents(numbers: Sequence[int], project: str = "notes") -> list[unspool.Document]:
    """Documents of one chunk each."""
    return [
        doc(f"{number}.md", f"number {number} {WORDS[number % 8]} {WORDS[number % 5]}", project)
        for number in numbers
    ]


def found(corpus: Corpus, project: str = "notes", alpha: float = 1.0) -> set[int]:
    """The numbers of all documents that a walk finds, and no more than once each."""
    page = corpus.search("walrus", projects=project, alpha=alpha, limit=15, max_tokens=0)
    hits = list(page.hits)
    while page.continuation is not None:
        page = corpus.more(page.continuation)
        hits += page.hits
    assert len({hit.chunk.id for hit in hits}) == len(hits)
    return {int(Path(hit.chunk.path).stem) for hit in hits}


def nearest(corpus: Corpus, k: int = 1000) -> set[int]:
    return {int(Path(hit.chunk.path).stem) for hit in corpus.nearest(corpus.embed("walrus"), k=k)}


def index_of(corpus: Corpus) -> VectorIndex:
    outside = corpus._resources.session.indexes.outside
    assert outside is not None
    return outside.vectors


def points(corpus: Corpus, project: int = 1) -> set[int]:
    """The ids in the index."""
    return set(index_of(corpus).ids(project, after=-1, limit=100_000).tolist())


def chunks(place: Place, project: int = 1) -> set[int]:
    """The ids in the catalog."""
    with beside(place) as catalog:
        return {
            id_ for (id_,) in catalog.rows(f"SELECT id FROM chunks WHERE project_id = {project}")
        }


def positions(place: Place) -> list[tuple[Any, ...]]:
    with beside(place) as catalog:
        return catalog.rows(
            "SELECT project_id, seq, filled_to FROM index_positions WHERE epoch <> '' ORDER BY 1"
        )


def forget(corpus: Corpus, numbers: Sequence[int]) -> None:
    for number in numbers:
        corpus.forget(project="notes", path=f"{number}.md")


# What another process does: opens the corpus and runs the steps of a task.
CHILD = """
import json, sys
task = json.loads(sys.argv[1])
sys.path.insert(0, task["tests"])
import hashing, unspool, vector_server
from unspool.index import follower
from test_outside_index import TAIL, LONG_TAIL, PAGE, COMMIT, documents, found
follower.TAIL_LIMIT, follower.LONG_TAIL_LIMIT, follower.PAGE, follower.COMMIT_EVERY = TAIL, LONG_TAIL, PAGE, COMMIT
hashing.register()
vector_server.register()
settings = unspool.Settings.load(arguments=task["settings"], environment={})
result = []
with unspool.open(settings=settings) as corpus:
    for step, numbers in task["steps"]:
        if step == "put":
            corpus.put(*documents(numbers))
        elif step == "put each":
            for number in numbers:
                corpus.put(*documents([number]))
                result.append(len(found(corpus)))
        else:
            result.append(sorted(found(corpus)))
print(json.dumps(result))
"""


def start(
    place: Place, server: VectorServer, *steps: tuple[str, Sequence[int]], prefix: Any = None
) -> subprocess.Popen[str]:
    """Another process that runs steps and prints what it found."""
    settings = {"database": address_of(place), "vectors": server.address, "embedder": EMBEDDER}
    tests = Path(vector_server.__file__).parent
    task = {"tests": str(tests), "settings": settings, "steps": steps}
    command = [sys.executable, "-c", CHILD, json.dumps(task)]
    paths = os.pathsep.join([str(tests), str(tests / "faults")])
    return subprocess.Popen(
        command if prefix is None else prefix(*command),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def result_of(process: subprocess.Popen[str]) -> Any:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(output)


# Following


def test_the_index_contains_what_the_catalog_contains(
    database: Place, server: VectorServer, tmp_path: Path
) -> None:
    with opened(database, server) as corpus:
        assert corpus.put(*documents(range(30))).warnings == ()
        assert points(corpus) == chunks(database)
        assert found(corpus) == nearest(corpus) == set(range(30))
        forget(corpus, range(10))
        corpus.put(*documents(range(30, 50)))
        assert points(corpus) == chunks(database)
        assert found(corpus) == nearest(corpus) == set(range(10, 50))
        tree = write(tmp_path / "tree", {f"{n}.md": f"walrus {n}" for n in range(12)})
        assert corpus.index(tree, project="tree").warnings == ()
        assert points(corpus, 2) == chunks(database, 2) and len(points(corpus, 2)) == 12


def test_a_put_is_found_at_once_by_every_process_although_the_index_lags(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus, opened(database, server) as other:
        corpus.put(*documents(range(30)))
        assert found(other) == set(range(30))
        before = points(corpus)
        for number in range(30, 34):
            corpus.put(*documents([number]))
            assert found(corpus) == found(other) == nearest(other) == set(range(number + 1))
        assert points(corpus) == before
        corpus.put(*documents([3]))  # unchanged
        corpus.put(doc("3.md", "number 3 replaced"))
        assert found(corpus) == found(other) == set(range(34))


def test_a_deleted_chunk_is_never_returned_while_the_index_lags_or_is_away(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus, opened(database, server) as other:
        corpus.put(*documents(range(40)))
        assert found(other) == set(range(40))
        forget(corpus, range(4))
        rest = set(range(4, 40))
        assert len(points(corpus)) == 40
        assert found(corpus) == found(other) == nearest(corpus) == nearest(other) == rest
        server.freeze()
        forget(corpus, [4])
        rest -= {4}
        assert found(corpus) == nearest(other) == rest
        server.kill()
        forget(corpus, [5])
        rest -= {5}
        assert found(corpus) == found(other) == nearest(corpus) == nearest(other) == rest
        server.start()
        assert found(corpus) == found(other) == nearest(corpus) == nearest(other) == rest
        assert points(corpus) == chunks(database)


# An index that cannot be reached


def test_a_large_project_says_what_to_do_and_its_words_are_searched(
    database: Place, server: VectorServer, tmp_path: Path
) -> None:
    numbers = range(LONG_TAIL + 10)
    tree = write(tmp_path / "tree", {f"{n}.md": f"walrus {n}" for n in range(12)})
    with opened(database, server) as corpus:
        corpus.put(*documents(numbers))
        assert found(corpus) == set(numbers)
        for away, error in ((server.freeze, ServiceTimeoutError), (server.kill, UnreachableError)):
            away()
            with pytest.raises(UnreachableError, match=r"UNSPOOL_VECTORS.*alpha 0") as raised:
                found(corpus)
            assert raised.value.retryable and type(raised.value.__cause__) is error
            with pytest.raises(UnreachableError, match="UNSPOOL_VECTORS"):
                nearest(corpus)
            walruses = {number for number in numbers if "walrus" in documents([number])[0].text}
            assert found(corpus, alpha=0.0) == walruses
        with opened(database, server) as fresh:
            with pytest.raises(UnreachableError, match=r"UNSPOOL_VECTORS.*alpha 0"):
                found(fresh)
            assert found(fresh, alpha=0.0) == walruses
            assert [one.waiting for one in fresh.status()] == [len(numbers)]
        report = corpus.put(*documents(range(100, 130)))
        assert "everything is stored" in report.warnings[0]
        report = corpus.index(tree, project="tree")
        assert "everything is stored" in report.warnings[0] and report.added == 12
        assert corpus.put(*documents([130])).added == 1
        server.start()
        assert found(corpus) == {*numbers, *range(100, 131)}
        assert found(corpus, "tree") == set(range(12))
        for project in (1, 2):
            corpus._resources.session.indexes.repair(project)  # follows, and mends nothing
            assert points(corpus, project) == chunks(database, project)


def test_words_alone_are_searched_by_a_setting_with_a_warning(
    database: Place, server: VectorServer
) -> None:
    numbers = range(LONG_TAIL + 10)
    with opened(database, server, fallback="words") as corpus:
        corpus.put(*documents(numbers))
        page = corpus.search("walrus", limit=3)
        assert page.warnings == () and page.alpha > 0
        expected = found(corpus, alpha=0.0)
        server.kill()
        page = corpus.search("walrus", limit=3)
        assert page.alpha == 0
        assert page.warnings[0].startswith("only words were searched: ")
        assert page.continuation is not None
        rest = corpus.more(page.continuation, limit=1000)  # needs no vectors either
        assert len(page.hits) + len(rest.hits) == len(expected)
        with pytest.raises(UnreachableError):
            corpus.search("!?", limit=3)  # contains no word
        server.start()
        page = corpus.search("walrus", limit=3)
        assert page.warnings == () and page.alpha > 0


def test_a_small_project_is_searched_without_the_index(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(40)))
        server.kill()
        corpus.put(*documents([40]))
        assert found(corpus) == nearest(corpus) == set(range(41))
        with opened(database, server) as fresh:
            fresh.put(*documents([41]))
            assert found(fresh) == found(corpus) == set(range(42))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nosuch://127.0.0.1:1", "UNSPOOL_VECTORS begins with 'nosuch'"),
        ("served://127.0.0.1", "give served://HOST:PORT"),
        ("memory://a?b=c", "give memory://NAME alone"),
    ],
)
def test_a_wrong_address_is_refused(
    database: Place, server: VectorServer, address: str, message: str
) -> None:
    with (
        pytest.raises(AddressError, match=message),
        open_corpus(database, vectors=address, embedder=EMBEDDER) as corpus,
    ):
        corpus.put(*documents(range(3)))


def test_an_address_where_nobody_listens_is_named(database: Place, server: VectorServer) -> None:
    address = "served://127.0.0.1:9"
    with open_corpus(database, vectors=address, embedder=EMBEDDER) as corpus:
        report = corpus.put(*documents(range(LONG_TAIL + 1)))
        assert "127.0.0.1:9 cannot be reached" in report.warnings[0]
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9 cannot be reached"):
            found(corpus)


# An index that has lost points


@pytest.mark.parametrize("how", ["killed", "wiped"])
def test_a_lost_index_is_filled_again_by_the_next_search(
    database: Place, server: VectorServer, how: str
) -> None:
    with opened(database, server) as corpus, opened(database, server) as other:
        for one in (corpus, other):
            one.put(*documents(range(90)))
            assert found(one) == set(range(90))
        before = corpus.search("walrus", alpha=1.0, limit=10)
        if how == "wiped":
            server.wipe()
        else:
            server.kill()
            server.start()
        assert nearest(other) == set(range(90))
        after = corpus.search("walrus", alpha=1.0, limit=10)
        assert [hit.chunk.id for hit in after.hits] == [hit.chunk.id for hit in before.hits]
        server.wipe()
        assert before.continuation is not None
        walked = [hit.chunk.id for hit in before.hits]
        page = corpus.more(before.continuation)
        while page.hits:
            walked += [hit.chunk.id for hit in page.hits]
            server.wipe()
            if page.continuation is None:
                break
            page = corpus.more(page.continuation)
        assert sorted(walked) == sorted(chunks(database))
        assert found(corpus) == found(other) == set(range(90))
        assert points(corpus) == chunks(database)


def test_a_lost_index_is_filled_again_by_the_next_run(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(30)))
        server.wipe()
        corpus.put(*documents(range(30, 60)))
        assert points(corpus) == chunks(database)


def test_two_projects_of_a_lost_index_are_both_filled_again(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        for project in ("a", "b"):
            corpus.put(*documents(range(90), project))
            assert found(corpus, project) == set(range(90))
        server.wipe()
        # both searches use what this process knew about the index before
        assert found(corpus, "a") == found(corpus, "b") == set(range(90))
        server.wipe()
        page = corpus.search("walrus", projects="*", alpha=1.0, limit=180, max_tokens=0)
        assert len(page.hits) == 180 or page.continuation is not None
        assert points(corpus, 1) == chunks(database, 1)
        assert points(corpus, 2) == chunks(database, 2)


# Processes that are killed


def test_an_index_that_is_killed_while_it_is_filled_is_filled_afterwards(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        server.strike("server", 3)
        report = corpus.put(*documents(range(90)))
        assert "everything is stored" in report.warnings[0]
        with pytest.raises(UnreachableError):
            found(corpus)
        server.start()
        assert found(corpus) == set(range(90))
        assert points(corpus) == chunks(database)


def test_a_fill_whose_process_is_killed_is_resumed(database: Place, server: VectorServer) -> None:
    server.strike("client", 4)
    killed = start(database, server, ("put", list(range(90))))
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    ((_, _, filled_to),) = positions(database)
    assert filled_to is not None
    server.strike("nobody", 0)
    with opened(database, server) as corpus:
        assert 0 < len(points(corpus)) < 90
        assert found(corpus) == set(range(90))
        assert points(corpus) == chunks(database)
        assert server.count_writes() <= 7, "it began from the start"


@pytest.mark.parametrize("writes", [1, 2])
def test_changes_that_were_applied_before_the_process_was_killed_are_repeated(
    database: Place, server: VectorServer, writes: int
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(30)))
        forget(corpus, range(5))
        before = positions(database)
        server.strike("client", writes)
        killed = start(database, server, ("put", list(range(3, 60))))
        killed.communicate(timeout=60)
        assert killed.returncode == -9
        assert writes > 1 or positions(database) == before
        assert found(corpus) == set(range(3, 60))
        assert points(corpus) == chunks(database)
        forget(corpus, range(3, 40))
        assert found(corpus) == set(range(40, 60))
        assert points(corpus) == chunks(database)


def test_processes_that_follow_at_once_disturb_one_another_not_at_all(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(30)))
        server.wipe()
        others = [
            start(database, server, ("search", []), ("put each", list(range(low, low + 25))))
            for low in (100, 200)
        ]
        results = [result_of(other) for other in others]
        for first, *counts in results:
            assert set(first) >= set(range(30)) and min(counts) >= 30
        assert found(corpus) == {*range(30), *range(100, 125), *range(200, 225)}
        corpus._resources.session.indexes.repair(1)  # follows, and mends nothing
        assert points(corpus) == chunks(database)


# Projects, embedders and catalogs that are replaced


@pytest.mark.parametrize("how", ["run", "repair"])
def test_a_project_deleted_while_the_index_is_away_is_dropped_later(
    database: Place, server: VectorServer, how: str
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(30)))
        corpus.put(*documents(range(30), "other"))
        server.freeze()
        assert corpus.forget(project="notes") == 30
        server.thaw()
        assert len(points(corpus)) == 30 and len(positions(database)) == 2
        corpus.put(*documents([30], "other")) if how == "run" else corpus.refresh()
        assert points(corpus) == points(corpus, -1) == set()
        assert [project for project, _, _ in positions(database)] == [2]
        assert points(corpus, 2) <= chunks(database, 2)
        assert corpus.forget(project="other") == (31 if how == "run" else 30)
        assert points(corpus, 2) == points(corpus, -2) == set() and positions(database) == []


def test_another_embedder_fills_a_collection_of_its_own(
    database: Place, server: VectorServer
) -> None:
    settings = settings_for(database, vectors=server.address, embedder="hashing:b")
    with opened(database, server) as corpus:
        corpus.put(*documents(range(90)))
        assert found(corpus) == set(range(90))
        old = index_of(corpus)
        assert unspool.reembed(settings=settings) is not None
        assert found(corpus) == set(range(90))
        assert index_of(corpus) is not old
        assert points(corpus) == chunks(database)
        corpus.put(*documents(range(90, 120)))
        assert points(corpus) == chunks(database) and old.count(1) == 90
        server.wipe()
        assert found(corpus) == set(range(120))
        assert len(unspool.drop_old(settings=settings)) == 1
        assert old.count(1) == old.count(-1) == 0
        assert found(corpus) == set(range(120))
        server.kill()
        with pytest.raises(UnreachableError):
            unspool.reembed(
                settings=settings_for(database, vectors=server.address, embedder="hashing:c")
            )
        server.start()
        assert found(corpus) == set(range(120))


def test_a_catalog_restored_from_an_older_backup_fills_the_index_again(
    places: Places, database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(90)))
    backup = places.copy(database)
    with opened(database, server) as corpus:
        forget(corpus, range(20))
        corpus.put(*documents(range(90, 110)))
        assert found(corpus) == set(range(20, 110))
        assert points(corpus) == chunks(database)
    with opened(backup, server) as corpus:
        assert found(corpus) == nearest(corpus) == set(range(90))
        assert points(corpus) == chunks(backup)


# Doctor and repair


def checks(place: Place, server: VectorServer) -> dict[str, Check]:
    settings = settings_for(place, vectors=server.address, embedder=EMBEDDER)
    return {check.name: check for check in diagnose(settings)}


def test_doctor_reports_and_repair_mends_what_happened_behind_its_back(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(90)))
        assert checks(database, server)["vectors of notes"].ok
        index, ids = index_of(corpus), sorted(chunks(database))
        foreign = np.array([1, 2, 2**61, 2**62], dtype=np.int64)
        vectors = np.zeros((4, 16), dtype=np.float32)
        vectors[:] = corpus.embed("walrus")
        lost = np.array(ids[3:6] + ids[50:51], dtype=np.int64)
        index.apply(1, Points(foreign, foreign, [""] * 4, [""] * 4, vectors), lost)
        check = checks(database, server)["vectors of notes"]
        assert not check.ok and "repair" in check.cure
        assert check.detail == "the vector index lacks 4 points and has 4 of no chunk"
        assert found(corpus) < set(range(90)), "points without a chunk are not returned"
        corpus.refresh()
        assert points(corpus) == chunks(database)
        assert checks(database, server)["vectors of notes"].ok
        assert found(corpus) == set(range(90))
        server.kill()
        check = checks(database, server)["vectors of notes"]
        assert not check.ok and "cannot be reached" in check.detail
        assert "UNSPOOL_VECTORS" in check.cure
        with pytest.raises(UnreachableError):
            corpus.refresh()


def test_repair_replaces_vectors_that_a_store_has_lost(
    database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(90)))
        expected = sorted(nearest(corpus))
        ids = np.array(sorted(chunks(database)), dtype=np.int64)
        vectors = np.zeros((len(ids), 16), dtype=np.float32)
        vectors[:, 0] = 1.0
        names = [""] * len(ids)
        index_of(corpus).apply(1, Points(ids, ids, names, names, vectors), NO_IDS)
        check = checks(database, server)["vectors of notes"]
        assert not check.ok
        assert "wrong vectors among" in check.detail
        corpus.refresh()
        assert checks(database, server)["vectors of notes"].ok
        assert sorted(nearest(corpus)) == expected


# A catalog that cannot be written


@contextmanager
def unwritable(places: Places, place: Place) -> Iterator[Any]:
    """A prefix of commands for which the catalog is read-only; None if it is for everybody."""
    if isinstance(place, Path):
        yield lambda *command: disks.read_only(place.parent, *command)
        return
    assert places.server is not None
    name = place.rpartition("/")[2]
    with beside(place) as catalog:
        catalog.run(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    yield None


def test_a_read_only_catalog_is_searched_and_never_changes_the_index(
    places: Places, database: Place, server: VectorServer
) -> None:
    with opened(database, server) as corpus:
        corpus.put(*documents(range(30)))
        index = index_of(corpus)
        for number in range(30, 30 + TAIL + 4):
            corpus.put(*documents([number]))
        forget(corpus, range(4))
    before = index.ids(1, after=-1, limit=1000).tolist()
    assert len(before) == 30
    with unwritable(places, database) as prefix:
        (numbers,) = result_of(start(database, server, ("search", []), prefix=prefix))
        assert set(numbers) == set(range(4, 30 + TAIL + 4))
        assert index.ids(1, after=-1, limit=1000).tolist() == before
        server.wipe()
        (numbers,) = result_of(start(database, server, ("search", []), prefix=prefix))
        assert set(numbers) == set(range(4, 30 + TAIL + 4))
        assert index.count(1) == 0


# All of it at once


@pytest.mark.parametrize("seed", [1])
def test_disturbances_at_random_instants_lose_nothing_and_return_nothing_wrong(
    database: Place, seed: int, hashing: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TAIL_LIMIT", "LONG_TAIL_LIMIT", "PAGE", "COMMIT_EVERY"):
        monkeypatch.setattr(follower, name, getattr(follower, name))  # restored afterwards
    monkeypatch.setattr(vector_server, "TIMEOUT_S", vector_server.TIMEOUT_S)
    outcome = disturbances.disturb(address_of(database), times=6, seed=seed)
    vector_server.unregister()
    assert outcome.disturbances.total() == 6 and outcome.writes and outcome.pages
    assert {name: count for name, count in outcome.failures.items() if count} == {}, outcome
