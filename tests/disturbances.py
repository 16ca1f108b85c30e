"""Two writers and two readers on a catalog whose vector index is killed, frozen and wiped meanwhile.

Writers put, replace and delete documents of one chunk each, and note when each call began and
ended. A hit is right if its version of a document existed at a moment between the beginning and the
end of the call that returned the hit. All processes have the same clock.
"""

from __future__ import annotations

import json
import random
import re
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import hashing
import store_servers
import unspool
import vector_server
from store_servers import StoreServer
from unspool.domain.queries import Hit
from unspool.errors import UnspoolError
from unspool.index import follower
from vector_server import VectorServer

PROJECTS = ("a", "b")
THREADS = 3  # of each reader
STABLE = 60  # documents of each project that are never changed
EMBEDDER = "hashing:a"
DISTURBANCES = ("kill", "freeze", "wipe")
GAP_S = (0.05, 0.6)  # between disturbances
AWAY_S = (0.05, 1.5)
TIMEOUT_S = 1.0  # of a call to the index
_HERE = str(Path(__file__).resolve().parent)
_CALL = (
    "import json, sys; sys.path.insert(0, sys.argv[1]); import disturbances; "
    "getattr(disturbances, sys.argv[2])(*json.loads(sys.argv[3]))"
)
_VERSION = re.compile(r"(\w+/\d+\.md) version (\d+)")
_WORDS = "walrus cache eviction parse config token island seal".split()

Version = tuple[str, str, int]  # project, path and number


@dataclass(slots=True)
class Outcome:
    """Counts of a run. All but those of the first line must be 0."""

    writes: int = 0
    pages: int = 0
    disturbances: Counter[str] = field(default_factory=Counter)
    search_errors: Counter[str] = field(default_factory=Counter)  # allowed if retryable
    other_errors: list[str] = field(default_factory=list)
    write_errors: list[str] = field(default_factory=list)
    dead_hits: int = 0  # versions that did not exist during the call
    duplicates: int = 0  # in one walk
    missed: int = 0  # stable documents and own writes that a search did not find
    lost: int = 0  # versions that were stored and are not in the catalog, or the other way round
    unfound: int = 0  # chunks that the last search did not find, or found without a chunk
    stray: int = 0  # points without a chunk, and chunks without a point

    @property
    def failures(self) -> dict[str, int]:
        """Counts that must be 0."""
        return {
            "errors of writers": len(self.write_errors),
            "errors that cannot be retried": len(self.other_errors),
            "deleted chunks returned": self.dead_hits,
            "duplicates in a walk": self.duplicates,
            "present chunks missed by a search": self.missed,
            "writes lost": self.lost,
            "chunks not found at the end": self.unfound,
            "points that differ from the chunks at the end": self.stray,
        }


def start_server(store: str) -> VectorServer | StoreServer:
    """Start a server: of this folder, or of a vector store by the name of its adapter."""
    return VectorServer() if store == vector_server.SCHEME else store_servers.start(store)


def disturb(address: str, *, times: int, seed: int, store: str = vector_server.SCHEME) -> Outcome:
    """Run the processes while the index is disturbed so many times, then compare everything."""
    prepare()
    chance, outcome = random.Random(seed), Outcome()
    with start_server(store) as server, ExitStack() as stack:
        vectors = (server.address, server.key)
        with open_corpus(address, vectors) as corpus:
            for project in PROJECTS:
                corpus.put(*(_make(project, f"stable/{number}.md", 0) for number in range(STABLE)))
        started = [
            stack.enter_context(_start(role, address, vectors, seed + number, number))
            for number, role in enumerate(("write", "write", "read", "read"))
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for number in range(times):
            time.sleep(chance.uniform(*GAP_S))
            how = DISTURBANCES[number % len(DISTURBANCES)]
            outcome.disturbances[how] += 1
            _disturb_once(server, how, chance.uniform(*AWAY_S))
        time.sleep(1.0)
        told = [_stop(process) for process in started]
        reports = [report for process in told for report in process]
        histories = _collect_histories(reports[:2], outcome)
        _check_pages(reports, histories, outcome)
        _check_end(address, vectors, histories, outcome)
    return outcome


def prepare() -> None:
    """Register the index and the embedder, and make tails and pages short."""
    hashing.register()
    vector_server.register()
    vector_server.TIMEOUT_S = TIMEOUT_S
    follower.TAIL_LIMIT, follower.PAGE, follower.COMMIT_EVERY = 12, 25, 50


def open_corpus(address: str, vectors: Sequence[str]) -> unspool.Corpus:
    """Open a corpus whose vectors are in the server with this address and key."""
    given = {
        "database": address,
        "vectors": vectors[0],
        "vectors_key": vectors[1],
        "vectors_timeout_s": max(1, int(TIMEOUT_S)),
        "vectors_retries": 1,
        "embedder": EMBEDDER,
        "jobs": 1,
    }
    settings = unspool.Settings.load(arguments=given, environment={}, folder=Path("/nowhere"))
    return unspool.open(settings=settings)


def _list_stable() -> set[Version]:
    return {(project, f"stable/{n}.md", 0) for project in PROJECTS for n in range(STABLE)}


def _make(project: str, path: str, number: int) -> unspool.Document:
    chance = random.Random(f"{project} {path} {number}")
    words = " ".join(chance.choices(_WORDS, k=8))
    return unspool.Document(project=project, path=path, text=f"{path} version {number} {words}")


def _disturb_once(server: VectorServer | StoreServer, how: str, away_s: float) -> None:
    if how == "wipe":
        server.wipe()
        return
    server.kill() if how == "kill" else server.freeze()
    time.sleep(away_s)
    server.start()


@contextmanager
def _start(role: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _CALL, _HERE, role, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        if not process.stdout.closed:  # type: ignore[union-attr]
            process.communicate()


def _stop(process: subprocess.Popen[str]) -> Any:
    output, _ = process.communicate("stop\n", timeout=120)
    assert process.returncode == 0, "a process ended with an error; its message stands above"
    return json.loads(output)


def _until_stopped() -> Iterator[None]:
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        yield


# The processes


def write(address: str, vectors: Sequence[str], seed: int, number: int) -> None:
    """Put, replace and delete documents until told to stop; print what was done."""
    prepare()
    chance = random.Random(seed)
    versions: dict[tuple[str, str], int] = {}
    calls: list[tuple[str, str, int, float, float]] = []
    errors: list[str] = []
    seen = _Seen()
    with open_corpus(address, vectors) as corpus:
        for _ in _until_stopped():
            project, path = chance.choice(PROJECTS), f"w{number}/{chance.randrange(80)}.md"
            current = versions.get((project, path), 0)
            is_delete = current > 0 and chance.random() < 0.4
            begun = time.monotonic()
            try:
                if is_delete:
                    corpus.forget(project=project, path=path)
                else:
                    corpus.put(_make(project, path, len(calls) + 1))
            except UnspoolError as error:
                errors.append(repr(error))
                continue
            versions[project, path] = 0 if is_delete else len(calls) + 1
            calls.append((project, path, versions[project, path], begun, time.monotonic()))
            if chance.random() < 0.3:
                wanted = set() if is_delete else {(project, path, versions[project, path])}
                seen.expect(corpus, "walrus", project, path, wanted)
            time.sleep(chance.uniform(0, 0.03))
    print(json.dumps([{"calls": calls, "errors": errors, **seen.report()}]))


def read(address: str, vectors: Sequence[str], seed: int, number: int) -> None:
    """Search in several threads until told to stop; print every page with the time of its call."""
    prepare()
    # one reader reads the catalog while the index is away, the other one fails
    follower.LONG_TAIL_LIMIT = 5_000 if number % 2 else 20
    stopping = threading.Event()
    with open_corpus(address, vectors) as corpus, ThreadPoolExecutor(THREADS) as threads:
        running = [
            threads.submit(_search, corpus, random.Random(f"{seed} {one}"), stopping)
            for one in range(THREADS)
        ]
        for _ in _until_stopped():
            time.sleep(0.05)
            if any(one.done() for one in running):
                break  # it failed
        stopping.set()
        found = [one.result() for one in running]
    print(json.dumps(found))


def _search(corpus: unspool.Corpus, chance: random.Random, stopping: threading.Event) -> Any:
    seen = _Seen()
    while not stopping.is_set():
        project = chance.choice((*PROJECTS, "*"))
        kind = chance.choice(("walk", "walk", "stable", "nearest", "words"))
        query = " ".join(chance.choices(_WORDS, k=2))
        if kind == "walk":
            seen.walk(corpus, query, project, chance.choice((1.0, 0.5)))
        elif kind == "stable":
            wanted = {one for one in _list_stable() if project in ("*", one[0])}
            seen.expect(corpus, query, project, "stable/*.md", wanted)
        elif kind == "nearest":
            nearest = partial(corpus.nearest, corpus.embed(query), k=25, projects=project)
            seen.take([nearest])
        else:
            seen.take([partial(_search_words, corpus, query, project)])
    return seen.report()


def _search_words(corpus: unspool.Corpus, query: str, project: str) -> Sequence[Hit]:
    return corpus.search(query, projects=project, alpha=0.0, limit=25).hits


class _Seen:
    """Pages that one process got, as times and versions, and its errors."""

    def __init__(self) -> None:
        self._pages: list[tuple[float, float, list[Version]]] = []
        self._errors: Counter[str] = Counter()
        self._fatal: list[str] = []
        self._duplicates = 0
        self._missed = 0

    def report(self) -> dict[str, Any]:
        return {
            "pages": self._pages,
            "search_errors": self._errors,
            "fatal": self._fatal,
            "duplicates": self._duplicates,
            "missed": self._missed,
        }

    def take(self, calls: Iterable[Callable[[], Sequence[Hit]]]) -> list[Version] | None:
        """Return the versions on all pages; None after an error."""
        found: list[Version] = []
        ids: list[tuple[str, int]] = []
        try:
            for call in calls:
                begun = time.monotonic()
                hits = call()
                page = [_read_version(hit) for hit in hits]
                self._pages.append((begun, time.monotonic(), page))
                found += page
                ids += [(hit.chunk.project, hit.chunk.id) for hit in hits]
        except UnspoolError as error:
            self._errors[type(error).__name__] += 1
            if not error.retryable:
                self._fatal.append(repr(error))
            return None
        self._duplicates += len(ids) - len(set(ids))
        return found

    def walk(
        self, corpus: unspool.Corpus, query: str, project: str, alpha: float, *, pages: int = 6
    ) -> list[Version] | None:
        """Follow the continuations of a search; return the versions, None after an error."""
        page: unspool.Page | None = None

        def get() -> Sequence[Hit]:
            nonlocal page
            if page is None:
                page = corpus.search(query, projects=project, alpha=alpha, limit=15, max_tokens=0)
            else:
                assert page.continuation is not None
                page = corpus.more(page.continuation)
            return page.hits

        def turn() -> Iterator[Callable[[], Sequence[Hit]]]:
            for _ in range(pages):
                yield get
                if page is None or page.continuation is None:
                    return

        return self.take(turn())

    def expect(
        self, corpus: unspool.Corpus, query: str, project: str, path: str, wanted: set[Version]
    ) -> None:
        """Search for all documents of a path. A page may say that it is not complete."""
        pages: list[unspool.Page] = []

        def get() -> Sequence[Hit]:
            pages.append(
                corpus.search(
                    query,
                    projects=project,
                    alpha=1.0,
                    limit=2 * STABLE,
                    max_tokens=0,
                    where={"path": path},
                )
            )
            return pages[0].hits

        found = self.take([get])
        if found is not None and set(found) != wanted:
            if pages[0].warnings:
                self._errors["incomplete, with a warning"] += 1
            else:
                self._missed += 1


def _read_version(hit: Hit) -> Version:
    match = _VERSION.search(hit.chunk.text)
    assert match is not None and match[1] == hit.chunk.path, hit.chunk.text
    return hit.chunk.project, match[1], int(match[2])


# The comparison


def _collect_histories(told: Sequence[Any], outcome: Outcome) -> dict[Version, tuple[float, float]]:
    """Return when each version may have existed: from the call that stored it to the next."""
    lives: dict[Version, tuple[float, float]] = {}
    for one in told:
        outcome.writes += len(one["calls"])
        outcome.write_errors += one["errors"]
        current: dict[tuple[str, str], Version] = {}
        for project, path, number, begun, ended in one["calls"]:
            before = current.pop((project, path), None)
            if before is not None:
                lives[before] = (lives[before][0], ended)
            if number:
                current[project, path] = version = (project, path, number)
                lives[version] = (begun, float("inf"))
    return lives


def _check_pages(
    told: Sequence[Any], lives: dict[Version, tuple[float, float]], outcome: Outcome
) -> None:
    for one in told:
        outcome.pages += len(one["pages"])
        outcome.search_errors.update(one["search_errors"])
        outcome.other_errors += one["fatal"]
        outcome.duplicates += one["duplicates"]
        outcome.missed += one["missed"]
        for begun, ended, page in one["pages"]:
            for project, path, number in page:
                born, died = lives.get((project, path, number), (float("inf"), 0.0))
                is_alive = path.startswith("stable/") or (born <= ended and begun <= died)
                outcome.dead_hits += not is_alive


def _check_end(
    address: str,
    vectors: Sequence[str],
    lives: dict[Version, tuple[float, float]],
    outcome: Outcome,
) -> None:
    """Compare the catalog, the index and a search with what was written."""
    written = {version for version, (_, died) in lives.items() if died == float("inf")}
    written |= _list_stable()
    with open_corpus(address, vectors) as corpus:
        for project in PROJECTS:
            own = {version for version in written if version[0] == project}
            stored = _list_stored(corpus, project)
            outcome.lost += len(own ^ set(stored))
            seen = _Seen()
            found = seen.walk(corpus, "walrus", project, 1.0, pages=1_000) or []
            outcome.unfound += len(own.symmetric_difference(found))
            outcome.other_errors += seen.report()["search_errors"]
            outcome.duplicates += seen.report()["duplicates"]
        indexes = corpus._resources.session.indexes
        assert indexes.outside is not None
        for project in PROJECTS:
            id_ = corpus._find(project).id
            indexes.repair(id_)  # follows the feed; only `verify` would mend points
            points = indexes.outside.vectors.ids(id_, after=-1, limit=100_000)
            chunks = set(_list_stored(corpus, project).values())
            outcome.stray += len(chunks.symmetric_difference(points.tolist()))


def _list_stored(corpus: unspool.Corpus, project: str) -> dict[Version, int]:
    """Return the chunk of every version in the catalog."""
    query = sa.text("SELECT id, text FROM chunks WHERE project_id = :project")
    with corpus._resources.catalog.read() as connection:
        rows = connection.execute(query, {"project": corpus._find(project).id}).all()
    found: dict[Version, int] = {}
    for id_, text in rows:
        match = _VERSION.search(text)
        assert match is not None
        found[project, match[1], int(match[2])] = id_
    return found
