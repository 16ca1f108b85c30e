"""The index over the vectors of a large project: when it is built, that it misses nothing, and
how it is mended.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from support import Places, assert_no_orphans, doc, name, open_corpus, paths, write
from unspool import Corpus
from unspool.index.postgres import queries as pgvectors
from unspool.index.vectors import pgvector as store
from unspool.interfaces.cli import main

psycopg = pytest.importorskip(
    "psycopg", reason="psycopg is not installed; pip install 'unspool[postgres]'"
)

DOCUMENTS = 60
INDEXES = (
    "SELECT a.amname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN "
    "pg_am a ON a.oid = c.relam "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'unspool' AND a.amname IN "
    "('hnsw', 'ivfflat')"
)


@pytest.fixture(scope="module")
def engine() -> str:
    return "postgresql"


@pytest.fixture(scope="module")
def filled(module_places: Places, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A catalog with a folder of sixty files and no index over its vectors; tests work on
    copies.
    """
    folder = write(tmp_path_factory.mktemp("zoo"), files())
    place = str(module_places.new())
    with open_corpus(place, vector_index="exact") as corpus:
        corpus.index(folder, project="zoo")
    assert sql(place, INDEXES) == []
    return place


@pytest.fixture
def zoo(filled: str, places: Places) -> str:
    return str(places.copy(filled))


def files() -> dict[str, str]:
    animals = ["walrus", "penguin", "otter", "heron", "lynx"]
    return {
        f"{animals[number % 5]}/{name(number)}.md": (
            f"# {name(number)}\n\nThe {animals[number % 5]} called {name(number)} eats {number} "
            f"fish a day.\n"
        )
        for number in range(DOCUMENTS)
    }


def sql(address: str, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            found = connection.execute(statement)
        return list(found.fetchall()) if found.description else []


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.02)


def vectors(address: str) -> dict[int, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """What is kept of each chunk, read past unspool."""
    rows = sql(address, "SELECT chunk_id, vector::text FROM unspool.vectors_1")
    return {
        int(str(id_)): np.array(str(text).strip("[]").split(","), dtype=np.float64)
        for id_, text in rows
    }


def ids(corpus: Corpus, query: str, k: int, **more: object) -> list[int]:
    return [hit.chunk.id for hit in corpus.nearest(corpus.embed(query), k=k, **more)]  # type: ignore[arg-type]


# When it is built


@pytest.mark.parametrize("kind", ["hnsw", "ivfflat"])
def test_a_run_that_makes_a_project_large_builds_the_index_and_nothing_is_missed(
    places: Places, filled: str, tmp_path: Path, kind: str
) -> None:
    place, zoo = str(places.new()), places.copy(filled)
    folder = write(tmp_path / "zoo", files())
    with (
        open_corpus(place, vector_index=kind, exact_below=10) as corpus,
        open_corpus(zoo, vector_index="exact") as exact,
    ):
        corpus.index(folder, project="zoo")
        assert sql(place, INDEXES) == [(kind, True)]
        for number in range(0, DOCUMENTS, 7):
            assert paths(corpus.search(name(number), limit=3)) == paths(
                exact.search(name(number), limit=3)
            )
            assert Path(paths(corpus.search(name(number)))[0]).stem == name(number)
        for query in ("walrus", "who eats fish", "heron lynx"):
            assert ids(corpus, query, 12) == ids(exact, query, 12)
            assert sorted(ids(corpus, query, DOCUMENTS)) == sorted(ids(exact, query, DOCUMENTS))
    used = (
        "SELECT idx_scan > 0 FROM pg_stat_user_indexes JOIN pg_class c ON c.oid = indexrelid "
        "JOIN pg_am a ON a.oid = relam WHERE amname = '{}'"
    )
    until(lambda: sql(place, used.format(kind)) == [(True,)], "the index was used")
    assert_no_orphans(place)


@pytest.mark.parametrize("kind", ["hnsw", "ivfflat"])
def test_refresh_builds_the_index_of_a_project_that_has_none(zoo: str, kind: str) -> None:
    with open_corpus(zoo, vector_index=kind, exact_below=10) as corpus:
        corpus.search("walrus")
        assert sql(zoo, INDEXES) == []
        corpus.refresh()
        assert sql(zoo, INDEXES) == [(kind, True)]
        corpus.refresh()
        assert sql(zoo, INDEXES) == [(kind, True)]


@pytest.mark.parametrize(
    "arguments", [{"vector_index": "exact", "exact_below": 10}, {"exact_below": DOCUMENTS}, {}]
)
def test_no_index_is_built_where_none_is_wanted_or_needed(
    zoo: str, arguments: dict[str, object]
) -> None:
    with open_corpus(zoo, **arguments) as corpus:
        corpus.refresh()
        corpus.put(doc("a.md", "one more walrus", project="zoo"))
        assert sql(zoo, INDEXES) == []
        assert paths(corpus.search("one more walrus"))[0] == "a.md"


def test_only_the_large_projects_of_a_catalog_have_an_index(zoo: str) -> None:
    with open_corpus(zoo, exact_below=10) as corpus:
        corpus.put(
            *[doc(f"{number}.md", f"small {name(number)}", project="small") for number in range(5)]
        )
        corpus.refresh()
        assert sql(zoo, INDEXES) == [("hnsw", True)]
        assert paths(corpus.search(name(3), projects=["small"]))[0] == "3.md"
        corpus.put(
            *[doc(f"{number}.md", f"grown {name(number)}", project="small") for number in range(20)]
        )
        corpus.refresh()
        assert sql(zoo, INDEXES) == [("hnsw", True)] * 2
        assert {
            hit.chunk.project
            for hit in corpus.nearest(corpus.embed("walrus"), k=10, projects=["small"])
        } == {"small"}
        corpus.forget(project="small")
        assert sql(zoo, INDEXES) == [("hnsw", True)]


def test_puts_one_by_one_build_the_index_in_the_background(places: Places) -> None:
    place = str(places.new())
    with open_corpus(place, exact_below=5) as corpus:
        for number in range(10):
            corpus.put(doc(f"{number}.md", f"the walrus {name(number)}"))
        assert sql(place, INDEXES) == []
        for number in range(10, 14):
            corpus.put(doc(f"{number}.md", f"the walrus {name(number)}"))
        until(
            lambda: sql(place, INDEXES) == [("hnsw", True)], "the index was built in the background"
        )
        assert paths(corpus.search(name(12)))[0] == "12.md"
        corpus.put(doc("late.md", "the late walrus"))
        assert paths(corpus.search("late walrus"))[0] == "late.md"
        assert len(corpus.nearest(corpus.embed("walrus"), k=100)) == 15
    assert_no_orphans(place)


def test_closing_breaks_off_a_build_and_leaves_nothing_hanging(places: Places) -> None:
    place = str(places.new())
    building = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE "
        "'CREATE INDEX%' AND state <> 'idle'"
    )
    with psycopg.connect(place) as other:
        with open_corpus(place, exact_below=3) as corpus:
            corpus.put(doc("first.md", "the first walrus"))
            # a build waits for whoever may be writing
            other.execute("LOCK TABLE unspool.vectors_1 IN ROW EXCLUSIVE MODE")
            for number in range(10):
                corpus.put(doc(f"{number}.md", f"the walrus {name(number)}"))
            until(lambda: sql(place, building) == [(1,)], "the build began")
            assert len(corpus.search("walrus", limit=20).hits) == 11
        assert [
            thread.name for thread in threading.enumerate() if thread.name == "unspool-index"
        ] == []
        until(lambda: sql(place, building) == [(0,)], "the build was broken off")
    assert sql(place, INDEXES) in ([], [("hnsw", False)])
    with open_corpus(place, exact_below=3) as corpus:
        assert len(corpus.search("walrus", limit=20).hits) == 11
        corpus.refresh()
        assert sql(place, INDEXES) == [("hnsw", True)]
        assert len(corpus.search("walrus", limit=20).hits) == 11


def test_a_build_that_another_process_is_at_is_left_to_it(zoo: str) -> None:
    with open_corpus(zoo, exact_below=10) as one, open_corpus(zoo, exact_below=10) as other:
        failed: list[BaseException] = []

        def refresh(corpus: Corpus) -> None:
            try:
                corpus.refresh()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test names it
                failed.append(error)

        threads = [threading.Thread(target=refresh, args=(corpus,)) for corpus in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert sql(zoo, INDEXES) == [("hnsw", True)]


# What it finds


@pytest.mark.parametrize(
    "arguments",
    [
        {"vector_index": "hnsw"},
        {"vector_index": "ivfflat"},
        {"vector_index": "ivfflat", "ivfflat_lists": 40},
    ],
)
@pytest.mark.parametrize("eyesight", [None, 2])
def test_a_filter_never_gives_fewer_than_there_are(
    zoo: str, arguments: dict[str, object], eyesight: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # how far an HNSW index looks at first; in sixty vectors the usual number is all of them
    if eyesight is not None:
        monkeypatch.setattr(pgvectors, "MIN_EF", eyesight)
        monkeypatch.setattr(pgvectors, "EF_PER_HIT", 0)
    with open_corpus(zoo, exact_below=1, **arguments) as corpus:
        corpus.refresh()
        assert len(sql(zoo, INDEXES)) == 1
        everything = {
            hit.chunk.path: hit.chunk.id
            for hit in corpus.nearest(corpus.embed("fish"), k=DOCUMENTS)
        }
        assert len(everything) == DOCUMENTS
        for wanted in ([7], [7, 41], [3, 4, 55]):
            chosen = [
                path
                for path in everything
                if Path(path).stem in {name(number) for number in wanted}
            ]
            where = {"any": [{"document": path} for path in chosen]}
            for query in ("walrus", "a day", name(7)):
                assert sorted(ids(corpus, query, 10, where=where)) == sorted(
                    everything[path] for path in chosen
                )
                page = corpus.search(query, where=where)
                assert sorted(paths(page)) == sorted(chosen) and not page.warnings
                first = ids(corpus, query, 1, where=where)
                assert len(first) == 1 and first[0] in {everything[path] for path in chosen}


def test_a_search_that_the_index_cuts_short_says_so_or_is_answered_without_it(
    zoo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pgvectors, "MIN_EF", 2)
    monkeypatch.setattr(pgvectors, "EF_PER_HIT", 0)
    with open_corpus(
        zoo, exact_below=1, max_scan_tuples=1, hnsw_m=2, hnsw_ef_construction=4
    ) as corpus:
        corpus.refresh()
        where = {"path": "heron/**"}
        page = corpus.search("walrus", where=where, limit=50, alpha=1.0)
        assert len(page.hits) == DOCUMENTS // 5 and not page.warnings
        monkeypatch.setattr(store, "EXACT_IF_TRUNCATED", 0)
        # How far a search gets by so few steps is a matter of the graph, which is made by chance;
        # not one of many gets everywhere.
        pages = [
            corpus.search(f"walrus {word}", where=where, limit=50, alpha=1.0)
            for word in "otter lynx penguin fish heron island day called eats".split()
        ]
        assert any(len(page.hits) < DOCUMENTS // 5 for page in pages)
        assert all(bool(page.warnings) == (len(page.hits) < DOCUMENTS // 5) for page in pages)
        assert not corpus.search("walrus otter lynx", limit=1, alpha=0.0, where=where).warnings


# How vectors are compared and kept


def unequal(address: str) -> None:
    """Make the vectors of unequal length, so that the three ways to compare them give three
    orders.
    """
    rows = sql(address, "SELECT chunk_id FROM unspool.vectors_1 ORDER BY chunk_id")
    for number, (id_,) in enumerate(rows):
        factor = f"array_fill({0.2 + (number * 7 % 10) / 4}::real, ARRAY[256])::vector"
        sql(
            address,
            f"UPDATE unspool.vectors_1 SET vector = vector * {factor} WHERE chunk_id = {id_}",
        )


@pytest.mark.parametrize("index", ["exact", "hnsw", "ivfflat"])
@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_each_metric_ranks_and_scores_as_numpy_does(zoo: str, metric: str, index: str) -> None:
    unequal(zoo)
    kept = vectors(zoo)
    with open_corpus(zoo, vector_metric=metric, vector_index=index, exact_below=10) as corpus:
        corpus.refresh()
        assert len(sql(zoo, INDEXES)) == (index != "exact")
        for query in ("a hungry walrus", "heron", name(33)):
            asked = np.array(corpus.embed(query))
            asked /= np.linalg.norm(asked)
            scores = {
                id_: {
                    "cosine": float(vector @ asked / np.linalg.norm(vector)),
                    "l2": float(1 / (1 + np.linalg.norm(vector - asked))),
                    "ip": float(vector @ asked),
                }[metric]
                for id_, vector in kept.items()
            }
            hits = corpus.nearest(corpus.embed(query), k=15)
            assert [hit.score for hit in hits] == pytest.approx(
                sorted(scores.values(), reverse=True)[:15], abs=1e-4
            )
            assert [hit.score for hit in hits] == pytest.approx(
                [scores[hit.chunk.id] for hit in hits], abs=1e-4
            )
        assert Path(paths(corpus.search(name(33)))[0]).stem == name(33)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [("auto", "vector(256)"), ("vector", "vector(256)"), ("halfvec", "halfvec(256)")],
)
def test_vectors_are_kept_as_asked_when_the_space_is_made(
    places: Places, wanted: str, kept: str
) -> None:
    place = str(places.new())
    with open_corpus(place, vector_type=wanted, exact_below=3) as corpus:
        corpus.put(*[doc(f"{number}.md", f"the walrus {name(number)}") for number in range(8)])
        corpus.refresh()
        column = (
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = "
            "'unspool.vectors_1'::regclass AND attname = 'vector'"
        )
        assert sql(place, column) == [(kept,)]
        assert sql(place, INDEXES) == [("hnsw", True)]
        hits = corpus.nearest(corpus.embed(f"the walrus {name(5)}"), k=8)
        assert len(hits) == 8 and hits[0].chunk.path == "5.md"
        asked = np.array(corpus.embed(f"the walrus {name(5)}"))
        assert [hit.score for hit in hits] == pytest.approx(
            sorted((float(v @ asked) for v in vectors(place).values()), reverse=True), abs=2e-3
        )
    # one that is there stays as it is
    with open_corpus(place, vector_type="vector", exact_below=3) as corpus:
        corpus.put(doc("late.md", "a late walrus"))
        assert corpus.nearest(corpus.embed("a late walrus"), k=1)[0].chunk.path == "late.md"
        assert sql(place, column) == [(kept,)]
    assert_no_orphans(place)


# Mending


@pytest.fixture
def commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, zoo: str
) -> Callable[..., tuple[int, str]]:
    for variable in [variable for variable in os.environ if variable.startswith("UNSPOOL_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSPOOL_DATABASE", zoo)
    monkeypatch.setenv("UNSPOOL_EXACT_BELOW", "10")

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, list(arguments), prog_name="unspool")
        return result.exit_code, result.output

    return run


def test_a_missing_and_a_broken_index_are_findings_that_repair_cures(
    zoo: str, commands: Callable[..., tuple[int, str]]
) -> None:
    code, told = commands("doctor")
    assert code == 2 and "no hnsw index yet" in told
    assert commands("repair")[0] == 0
    assert commands("doctor")[0] == 0 and sql(zoo, INDEXES) == [("hnsw", True)]
    sql(
        zoo,
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid IN (SELECT oid FROM pg_class "
        "WHERE relname ~ 'hnsw')",
    )
    code, told = commands("doctor")
    assert code == 2 and "was interrupted" in told
    assert sql(zoo, INDEXES) == [("hnsw", False)]
    with open_corpus(zoo, exact_below=10) as corpus:
        assert len(corpus.nearest(corpus.embed("walrus"), k=DOCUMENTS)) == DOCUMENTS
    assert commands("repair")[0] == 0
    assert commands("doctor")[0] == 0 and sql(zoo, INDEXES) == [("hnsw", True)]


def test_what_something_else_removed_from_the_tables_is_a_finding_that_repair_cures(
    zoo: str, commands: Callable[..., tuple[int, str]]
) -> None:
    before = assert_no_orphans(zoo)
    commands("repair")
    sql(
        zoo,
        "DELETE FROM unspool.vectors_1 WHERE chunk_id IN (SELECT id FROM unspool.chunks ORDER BY "
        "id LIMIT 3)",
        "DELETE FROM unspool.words WHERE chunk_id IN (SELECT id FROM unspool.chunks ORDER BY id "
        "DESC LIMIT 2)",
    )
    code, told = commands("doctor")
    assert code == 2 and "3 without a vector or words" in told
    assert commands("repair")[0] == 0
    assert commands("doctor")[0] == 0
    assert assert_no_orphans(zoo) == before
