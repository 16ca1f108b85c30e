"""Sixteen writers and sixteen readers on one PostgreSQL catalog, and the server restarted in the
middle: is anything lost or doubled?

Two processes of eight and eight threads each, since one process that has to compute for 32 threads
would slow them, not the server. Writers put documents of unique words, one in four a new text for
an old path, and try again after an error that says so. Readers search for words of documents whose
put has returned. Nobody opens the corpus again.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pgdata
from common import Figure, answer_of, parser, percentile, show, start_fresh, tell
from unspool.corpus import Corpus
from unspool.domain.documents import Document
from unspool.errors import UnspoolError
from unspool.settings import Settings

SECONDS = 120.0
PROCESSES, WRITERS, READERS = 2, 8, 8
PROJECTS = ("load-0", "load-1", "load-2", "load-3")
DOWN_S = 3.0
# after the server answers again; what was sent before may come back as an error until then
GRACE_S = 3.0
AGAIN_S = 0.25
REWRITES = 0.25
SAMPLE = 2_000  # documents that are searched for at the end; the texts of all are compared
GIVE_UP_S = 60.0


class Version(NamedTuple):
    """What a path was last given: its own word, and how often it has been written."""

    project: str
    word: str
    number: int


@dataclass(slots=True)
class Seen:
    """What the threads of one process saw."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    stored: dict[str, Version] = field(default_factory=dict)  # by path; acknowledged
    under_way: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)  # the last put did not return well
    # when it ended, and its milliseconds
    puts: list[tuple[float, float]] = field(default_factory=list)
    searches: list[tuple[float, float]] = field(default_factory=list)
    # when, class, retryable, message
    errors: list[tuple[float, str, bool, str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  # was stored, and a search did not find it


def main() -> None:
    options = parser(__doc__)
    pgdata.add_options(options)
    options.add_argument("--seconds", type=float, default=SECONDS)
    given = options.parse_args()
    with pgdata.place(given.server) as place:
        figures = measure(place, seconds=given.seconds, seed=given.seed)
    show("pgload", figures, as_json=given.json)


def measure(place: pgdata.Place, *, seconds: float, seed: int) -> list[Figure]:
    """Run it, restart the server in the middle where it is our own, and look at what is there in
    the end.
    """
    with place.fresh() as address:
        Corpus(Settings.of(database=address)).close()
        tell(
            f"{PROCESSES} processes of {WRITERS} writers and {READERS} readers for {seconds:.0f} s"
        )
        fillers = pgdata.texts(20, seed, length=600)
        processes = [
            start_fresh("pgload:work", address, number, fillers, seed)
            for number in range(PROCESSES)
        ]
        try:
            until = _go(processes, seconds)
            outage = (until, until)
            if place.server is not None:
                time.sleep(seconds / 2)
                tell("restarting the server")
                down = time.time()
                place.server.stop()
                time.sleep(DOWN_S)
                place.server.start_again()
                outage = (down, time.time())
            outputs = [process.communicate(timeout=seconds + 300)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        seen = [
            answer_of(process, output) for process, output in zip(processes, outputs, strict=True)
        ]
        tell("comparing")
        wrong = compare(address, seen, seed)
    return list(_figures(seen, wrong, outage, seconds, is_own=place.server is not None))


def _go(processes: Sequence[subprocess.Popen[str]], seconds: float) -> float:
    """Let them begin together once all are ready; returns when they are to end."""
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    until = time.time() + seconds
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{until}\n")
        process.stdin.flush()
    return until


def work(database: str, number: int, fillers: list[str], seed: int) -> dict[str, Any]:
    """All that one process does, from when it is told on stdin until when, to then."""
    seen = Seen()
    with Corpus(Settings.of(database=database)) as corpus:
        corpus.embed("so that the embedder is there")
        print("ready", flush=True)
        until = float(sys.stdin.readline())
        threads = [
            threading.Thread(
                target=_write, args=(corpus, seen, f"{number}-{at}", until, fillers, seed)
            )
            for at in range(WRITERS)
        ]
        threads += [
            threading.Thread(target=_read, args=(corpus, seen, f"{seed}/{number}/{at}", until))
            for at in range(READERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {
        "stored": seen.stored,
        "unsure": sorted(seen.unsure),
        "puts": seen.puts,
        "searches": seen.searches,
        "errors": seen.errors,
        "others": seen.others,
        "missed": seen.missed,
    }


def _write(
    corpus: Corpus, seen: Seen, name: str, until: float, fillers: list[str], seed: int
) -> None:
    rng = random.Random(f"{seed}/write/{name}")
    mine: list[str] = []
    count = 0
    while time.time() < until:
        if mine and rng.random() < REWRITES:
            path = rng.choice(mine)
            before = seen.stored[path]
            version = Version(
                before.project,
                f"{before.word.split('v')[0]}v{before.number + 1}",
                before.number + 1,
            )
        else:
            count += 1
            path = f"{name}/{count}.txt"
            version = Version(rng.choice(PROJECTS), f"zq{name.replace('-', 'p')}n{count}v1", 1)
        text = f"{version.word} {version.word}\n{rng.choice(fillers)}"
        with seen.guard:
            seen.under_way.add(path)
        if _put(
            corpus, seen, Document(project=version.project, path=path, text=text, language="text")
        ):
            if version.number == 1:
                mine.append(path)
            seen.stored[path] = version
        else:
            seen.unsure.add(path)
            if path in mine:
                mine.remove(path)
        with seen.guard:
            seen.under_way.discard(path)


def _put(corpus: Corpus, seen: Seen, document: Document) -> bool:
    """Whether it was acknowledged, in the end.

    Once begun it is finished, also after the time is over.
    """
    give_up = time.time() + GIVE_UP_S
    while True:
        begun = time.perf_counter()
        try:
            corpus.put(document)
        except UnspoolError as error:
            seen.errors.append((time.time(), type(error).__name__, error.retryable, str(error)))
            if not error.retryable or time.time() > give_up:
                return False
            time.sleep(AGAIN_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
            seen.others.append(f"{type(error).__name__}: {error}")
            return False
        else:
            seen.puts.append((time.time(), 1000 * (time.perf_counter() - begun)))
            return True


def _read(corpus: Corpus, seen: Seen, name: str, until: float) -> None:
    rng = random.Random(name)
    while time.time() < until:
        with seen.guard:
            paths = list(seen.stored)[-500:]
        if not paths:
            time.sleep(0.05)
            continue
        path = rng.choice(paths)
        version = seen.stored[path]
        begun = time.perf_counter()
        try:
            page = corpus.search(version.word, projects=version.project, limit=10)
        except UnspoolError as error:
            seen.errors.append((time.time(), type(error).__name__, error.retryable, str(error)))
            time.sleep(AGAIN_S)
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
            seen.others.append(f"{type(error).__name__}: {error}")
            continue
        seen.searches.append((time.time(), 1000 * (time.perf_counter() - begun)))
        if path not in [hit.chunk.path for hit in page.hits]:
            with seen.guard:
                is_as_it_was = (
                    seen.stored[path] == version
                    and path not in seen.under_way
                    and path not in seen.unsure
                )
            if is_as_it_was:
                seen.missed.append(f"{version.project}/{path} by {version.word}")


class Wrong(NamedTuple):
    """What does not agree in the end."""

    documents: int
    searched: int
    lost: list[str]
    doubled: list[str]
    unsure: int


def compare(database: str, seen: Sequence[dict[str, Any]], seed: int) -> Wrong:
    """Everything that was acknowledged against everything that is there."""
    stored = {path: Version(*version) for one in seen for path, version in one["stored"].items()}
    unsure = {path for one in seen for path in one["unsure"]}
    sure = {path: version for path, version in stored.items() if path not in unsure}
    lost, doubled = [], []
    texts: dict[str, list[str]] = defaultdict(list)
    query = (
        "SELECT d.path, c.text FROM documents d JOIN chunks c ON c.document_id = d.id WHERE "
        "d.status = 'indexed' ORDER BY c.position"
    )
    with pgdata.by_hand(database) as connection:
        for path, text in connection.execute(query).fetchall():
            texts[str(path)].append(str(text))
        table = connection.execute("SELECT 'vectors_' || id FROM spaces WHERE active").fetchone()
        assert table is not None
        for name, statement in _AGREE.items():
            count = connection.execute(statement.format(vectors=table[0]).encode()).fetchone()
            assert count is not None
            if count[0]:
                doubled.append(f"{name}: {count[0]}")
    for path, version in sure.items():
        if sum(text.split(maxsplit=1)[:1] == [version.word] for text in texts[path]) != 1:
            lost.append(f"{path} lacks {version.word}")
    chosen = random.Random(seed).sample(sorted(sure), min(SAMPLE, len(sure)))
    with Corpus(Settings.of(database=database)) as corpus:
        for path in chosen:
            version = sure[path]
            found = Counter(
                hit.chunk.path
                for hit in corpus.search(
                    version.word, projects=version.project, alpha=0.0, limit=10
                ).hits
            )
            if not found[path]:
                lost.append(f"a search for {version.word} does not find {path}")
            elif found[path] > 1:
                doubled.append(f"a search for {version.word} finds {path} {found[path]} times")
    return Wrong(
        documents=len(sure), searched=len(chosen), lost=lost, doubled=doubled, unsure=len(unsure)
    )


_AGREE = {
    "paths that are there twice": (
        "SELECT count(*) FROM (SELECT 1 FROM documents GROUP BY project_id, path HAVING count(*) "
        "> 1) x"
    ),
    "places that hold two chunks": (
        "SELECT count(*) FROM (SELECT 1 FROM chunks GROUP BY document_id, position HAVING "
        "count(*) > 1) x"
    ),
    "chunks without words, or words without a chunk": (
        "SELECT count(*) FROM chunks c FULL JOIN words w ON w.project_id = c.project_id AND "
        "w.chunk_id = c.id "
        "WHERE c.id IS NULL OR w.chunk_id IS NULL"
    ),
    "chunks without a vector, or vectors without a chunk": (
        "SELECT count(*) FROM chunks c FULL JOIN {vectors} v ON v.project_id = c.project_id AND "
        "v.chunk_id = c.id "
        "WHERE c.id IS NULL OR v.chunk_id IS NULL"
    ),
    "chunks with words or vectors twice": (
        "SELECT count(*) FROM (SELECT 1 FROM words GROUP BY project_id, chunk_id HAVING count(*) "
        "> 1 "
        "UNION ALL SELECT 1 FROM {vectors} GROUP BY project_id, chunk_id HAVING count(*) > 1) x"
    ),
    "word counts that are wrong": (
        "SELECT count(*) FROM (SELECT project_id, key, count(*) AS n FROM words, unnest(keys) AS "
        "key GROUP BY 1, 2) x "
        "FULL JOIN (SELECT project_id, key, sum(chunks) AS chunks FROM word_counts GROUP BY 1, 2 HAVING "
        "sum(chunks) <> 0) y USING "
        "(project_id, key) WHERE x.n IS DISTINCT FROM y.chunks"
    ),
    "chunk counts of projects that are wrong": (
        "SELECT count(*) FROM (SELECT project_id, count(*) AS n FROM words GROUP BY 1) x "
        "FULL JOIN (SELECT id AS project_id, chunk_count FROM projects) y USING (project_id) "
        "WHERE coalesce(x.n, 0) <> coalesce(y.chunk_count, 0)"
    ),
    "chunk counts of documents that are wrong": (
        "SELECT count(*) FROM documents d WHERE chunk_count <> (SELECT count(*) FROM chunks c "
        "WHERE c.document_id = d.id)"
    ),
}


def _figures(
    seen: Sequence[dict[str, Any]],
    wrong: Wrong,
    outage: tuple[float, float],
    seconds: float,
    *,
    is_own: bool,
) -> Iterator[Figure]:
    down, up = outage
    away = up - down if is_own else 0.0
    for name, key in (("puts", "puts"), ("searches", "searches")):
        all_ = [(when, spent) for one in seen for when, spent in one[key]]
        quiet = [spent for when, spent in all_ if not down <= when <= up + GRACE_S]
        yield Figure(
            name=name,
            value=len(all_) / max(seconds - away, 1.0),
            unit="/s",
            note=f"{len(all_)} in {seconds - away:.0f} s with a server",
        )
        yield Figure(
            name=f"{name}: p50",
            value=percentile(quiet, 0.5),
            unit="ms",
            note="outside of the outage",
        )
        yield Figure(
            name=f"{name}: p95",
            value=percentile(quiet, 0.95),
            unit="ms",
            note=f"worst {max(quiet, default=0):.0f}",
        )
        if is_own:
            first = min((when for when, _ in all_ if when > up), default=float("nan"))
            yield Figure(
                name=f"{name}: first after the server is back",
                value=first - up,
                unit="s",
                note=f"it was away for {away:.1f} s",
            )
    errors = [error for one in seen for error in one["errors"]]
    during = [error for error in errors if is_own and down <= error[0] <= up + GRACE_S]
    yield Figure(
        name="errors during the outage",
        value=len(during),
        note="" if is_own else "the server is not ours to restart",
    )
    yield Figure(name="errors outside of it", value=len(errors) - len(during), bound=0)
    examples: dict[str, tuple[int, str]] = {}
    for _, kind, retryable, message in errors:
        name = f"{kind}, {'retryable' if retryable else 'final'}"
        examples[name] = (examples.get(name, (0, ""))[0] + 1, message)
    for name, (count, message) in sorted(examples.items()):
        yield Figure(name=f"errors: {name}", value=count, note=message)
    others = [text for one in seen for text in one["others"]]
    missed = [text for one in seen for text in one["missed"]]
    yield Figure(
        name="other exceptions", value=len(others), bound=0, note=others[0][:200] if others else ""
    )
    yield Figure(
        name="stored, but not found by a reader",
        value=len(missed),
        bound=0,
        note=missed[0] if missed else "",
    )
    note = (
        f"of {wrong.documents} documents, {wrong.searched} of them searched for; {wrong.unsure} "
        f"were not acknowledged"
    )
    yield Figure(
        name="lost", value=len(wrong.lost), bound=0, note=wrong.lost[0] if wrong.lost else note
    )
    yield Figure(
        name="doubled, or tables that disagree",
        value=len(wrong.doubled),
        bound=0,
        note="; ".join(wrong.doubled)[:300],
    )


if __name__ == "__main__":
    main()
