"""Catalogs on a server: where they are, what migrations and partitions leave behind, and every
command on an address of one.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from click.testing import CliRunner, Result

from servers import PostgresServer
from support import Places, assert_no_orphans, doc, name, open_corpus, paths, write
from unspool import Corpus
from unspool.catalog import Catalog, postgres, postgres_server, schema
from unspool.catalog.options import DatabaseOptions
from unspool.errors import InputError, NotFoundError
from unspool.index.postgres.partitioning import partition_catalog

psycopg = pytest.importorskip(
    "psycopg", reason="psycopg is not installed; pip install 'unspool[postgres]'"
)

Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def engine() -> str:
    return "postgresql"


@pytest.fixture
def cli(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in this process."""
    from unspool.interfaces.cli import main

    for variable in [variable for variable in os.environ if variable.startswith("UNSPOOL_")]:
        monkeypatch.delenv(variable)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("UNSPOOL_DATABASE", database)
    return lambda *arguments: CliRunner().invoke(main, list(arguments), prog_name="unspool")


def sql(address: str, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            found = connection.execute(statement)
        return list(found.fetchall()) if found.description else []


def tables(address: str, schema_name: str = "unspool") -> dict[str, str]:
    """The tables of a schema, each with its kind: r is whole, p in partitions."""
    query = (
        "SELECT relname, relkind::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE nspname = '{}' AND relkind IN ('r', 'p')"
    )
    return {str(table): str(kind) for table, kind in sql(address, query.format(schema_name))}


# Where it is


def test_catalogs_in_two_schemas_of_a_database_know_nothing_of_each_other(database: str) -> None:
    other = f"{database}?schema=other"
    with open_corpus(database, exact_below=3) as mine, open_corpus(other, exact_below=3) as theirs:
        mine.put(
            *[
                doc(f"{number}.md", f"the walrus {name(number)}", project="zoo")
                for number in range(8)
            ]
        )
        theirs.put(
            *[
                doc(f"{number}.md", f"the penguin {name(number)}", project="zoo")
                for number in range(8)
            ]
        )
        for corpus in (mine, theirs):
            corpus.refresh()
        assert mine._resources.catalog.identity != theirs._resources.catalog.identity
        assert {
            hit.chunk.text.split()[1] for hit in mine.search("walrus penguin", limit=20).hits
        } == {"walrus"}
        assert {
            hit.chunk.text.split()[1] for hit in theirs.search("walrus penguin", limit=20).hits
        } == {"penguin"}
        page = mine.search("walrus", limit=2)
        with pytest.raises(InputError):
            theirs.more(str(page.continuation))
        built = (
            "SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_am "
            "a ON a.oid = relam WHERE amname = 'hnsw' ORDER BY 1"
        )
        assert sql(database, built) == [("other",), ("unspool",)]
        assert mine.forget(project="zoo") == 8
        assert sql(database, built) == [("other",)]
        assert mine.projects() == [] and theirs.projects() == ["zoo"]
        assert len(theirs.search("penguin", limit=20).hits) == 8
    assert Catalog.migrate(database, "base") == schema.HEAD
    with open_corpus(other) as theirs:
        assert len(theirs.search("penguin", limit=20).hits) == 8
    assert set(tables(database)) <= {"alembic_version"}


def test_an_extension_in_a_schema_of_its_own_is_found(database: str) -> None:
    sql(database, "CREATE SCHEMA ext", "CREATE EXTENSION vector SCHEMA ext")
    with open_corpus(database, exact_below=3) as corpus:
        corpus.put(
            *[
                doc(f"{number}.md", f"the walrus {name(number)}", project="zoo")
                for number in range(8)
            ]
        )
        corpus.refresh()
        assert paths(corpus.search(name(5)))[0] == "5.md"
        assert corpus.nearest(corpus.embed(f"the walrus {name(5)}"), k=1)[0].chunk.path == "5.md"
        rearranged(database, 2)
        assert paths(corpus.search(name(5)))[0] == "5.md"
    with open_corpus(f"{database}?schema=second", vector_type="halfvec") as corpus:
        corpus.put(doc("a.md", "the walrus"))
        assert paths(corpus.search("walrus")) == ["a.md"]
    assert_no_orphans(database)


def test_the_public_schema_is_as_good_as_any(database: str) -> None:
    with open_corpus(f"{database}?schema=public") as corpus:
        corpus.put(doc("a.md", "the walrus"))
        assert paths(corpus.search("walrus")) == ["a.md"]
    assert tables(database) == {} and {"documents", "words"} <= tables(database, "public").keys()
    assert Catalog.migrate(f"{database}?schema=public", "base") == schema.HEAD
    assert set(tables(database, "public")) <= {"alembic_version"}
    with open_corpus(f"{database}?schema=public") as corpus:
        assert corpus.projects() == []


def test_the_place_of_a_catalog_names_everything_but_who_asks(
    database: str, postgres_server: PostgresServer
) -> None:
    catalog = Catalog.open(f"{database}?schema=other")
    catalog.close()
    assert (
        catalog.place
        == f"postgresql://127.0.0.1:{postgres_server.port}/{database.rpartition('/')[2]}?schema=other"
    )


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+psycopg"])
def test_every_way_to_write_the_scheme_opens_the_same_catalog(database: str, scheme: str) -> None:
    first, second = Catalog.open(database), Catalog.open(database.replace("postgresql", scheme, 1))
    assert first.identity == second.identity and first.signing_key == second.signing_key
    first.close()
    second.close()


def test_what_should_exist_and_does_not_is_not_found_and_not_made(database: str) -> None:
    with pytest.raises(NotFoundError, match="no catalog at"):
        Catalog.open(database, create=False)
    with pytest.raises(NotFoundError, match="nothing to remove"):
        Catalog.migrate(database, "base")
    assert sql(database, "SELECT 1 FROM pg_namespace WHERE nspname = 'unspool'") == []


def test_what_a_catalog_takes_grows_with_what_it_holds(database: str) -> None:
    with open_corpus(database) as corpus:
        empty = corpus.size_bytes()
        corpus.put(
            *[doc(f"{number}.md", f"the walrus {name(number)} " * 200) for number in range(40)]
        )
        assert corpus.size_bytes() > empty > 0
        whole = corpus.size_bytes()
        rearranged(database, 2)
        assert corpus.size_bytes() > whole / 2


# Migrations


def differences(address: str) -> list[object]:
    target = postgres_server.parse_address(address)
    engine = postgres_server.create_engine(target, DatabaseOptions())
    try:
        with engine.connect() as connection, warnings.catch_warnings():
            # those of pgvector, in tables that are not compared
            warnings.filterwarnings("ignore", "Did not recognize type", sa.exc.SAWarning)
            known = {*schema.metadata.tables, *schema.short_lived.tables}
            options = {
                "compare_type": True,
                "compare_server_default": True,
                "include_object": lambda o, n, kind, *_: kind != "table" or n in known,
            }
            context = MigrationContext.configure(connection, opts=options)
            return [
                found
                for found in compare_metadata(context, schema.metadata)
                if not _is_short_lived(found)
            ]
    finally:
        engine.dispose()


def _is_short_lived(found: object) -> bool:
    """Tables of the other metadata look as if they should go."""
    kind, what = found[:2] if isinstance(found, tuple) else ("", None)
    return (
        kind in ("remove_table", "remove_index")
        and getattr(what, "table", what).name in schema.short_lived.tables
    )


def test_migrating_up_makes_the_tables_that_the_code_uses(database: str) -> None:
    Catalog.migrate(database, "head")
    assert differences(database) == []


@pytest.mark.parametrize("partitions", [1, 3])
def test_migrating_down_leaves_nothing_and_up_again_leaves_a_working_catalog(
    database: str, partitions: int
) -> None:
    with open_corpus(database, exact_below=3) as corpus:
        corpus.put(*[doc(f"{number}.md", f"the walrus {name(number)}") for number in range(8)])
        corpus.refresh()
    if partitions > 1:
        rearranged(database, partitions)
    assert "vectors_1" in tables(database)
    Catalog.migrate(database, "base")
    assert set(tables(database)) <= {"alembic_version"}
    assert (
        sql(
            database,
            "SELECT 1 FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = "
            "'unspool' AND relkind = 'S'",
        )
        == []
    )
    Catalog.migrate(database, "head")
    assert set(tables(database).values()) == {"r"}
    with open_corpus(database) as corpus:
        assert corpus.projects() == []
        corpus.put(doc("b.md", "the penguin"))
        assert paths(corpus.search("penguin")) == ["b.md"]
    assert_no_orphans(database)


def test_migrating_keeps_the_identity_of_a_catalog(database: str) -> None:
    first = Catalog.open(database)
    assert Catalog.migrate(database, "head") == schema.HEAD
    again = Catalog.open(database)
    assert first.identity == again.identity and first.signing_key == again.signing_key
    first.close()
    again.close()


# Partitions


def rearranged(address: str, number: int) -> int:
    catalog = Catalog.open(address)
    assert isinstance(catalog, postgres.PostgresCatalog)
    try:
        return partition_catalog(catalog, number)
    finally:
        catalog.close()


def fill(corpus: Corpus) -> None:
    animals = ("walrus", "penguin", "otter")
    for project, animal in zip("abc", animals, strict=True):
        corpus.put(
            *[
                doc(
                    f"{number}.md", f"the {animal} called {name(number)} eats fish", project=project
                )
                for number in range(15)
            ]
        )


def answers(corpus: Corpus) -> list[object]:
    """What a catalog answers to many questions."""
    out: list[object] = []
    for projects in (["a"], ["c"], ["*"]):
        for query in ("otter walrus", f"who eats {name(7)}"):
            page = corpus.search(query, projects=projects, limit=7)
            out.append(
                [
                    (hit.chunk.id, hit.chunk.project, hit.chunk.path, round(hit.score, 5))
                    for hit in page.hits
                ]
            )
            assert page.continuation is not None
            out.append(
                [(hit.chunk.id, round(hit.score, 5)) for hit in corpus.more(page.continuation).hits]
            )
            where = {"any": [{"document": "3.md"}, {"document": "9.md"}]}
            out.append(
                sorted(
                    (hit.chunk.project, hit.chunk.path)
                    for hit in corpus.search(query, projects=projects, where=where).hits
                )
            )
            out.append(
                [
                    (hit.chunk.id, round(hit.score, 5))
                    for hit in corpus.nearest(corpus.embed(query), k=9, projects=projects)
                ]
            )
    return out


@pytest.mark.parametrize("exact_below", [0, 3])
def test_partitions_change_no_answer_and_can_be_undone(
    cli: Cli, database: str, exact_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_EXACT_BELOW", str(exact_below))
    indexes = (
        "SELECT count(*) FROM pg_class JOIN pg_am a ON a.oid = relam WHERE amname = 'hnsw' AND "
        "relkind = 'i'"
    )
    with open_corpus(database, exact_below=exact_below) as corpus:
        fill(corpus)
        corpus.refresh()
        before, stored = answers(corpus), assert_no_orphans(database)
        built = sql(database, indexes)
        whole = tables(database)
        assert set(whole.values()) == {"r"}

        assert cli("migrate", "--partitions", "4").exit_code == 0
        parted = {table: kind for table, kind in tables(database).items() if kind == "p"}
        assert parted.keys() == {"chunks", "words", "vectors_1"}
        for table in parted:
            assert {f"{table}_p{number}" for number in range(4)} <= tables(database).keys()
            # not all in one
            assert len(sql(database, f"SELECT DISTINCT tableoid FROM unspool.{table}")) > 1
            assert (
                sql(
                    database,
                    f"SELECT count(DISTINCT tableoid) FROM unspool.{table} GROUP BY project_id",
                )
                == [(1,)] * 3
            )
        assert sql(database, indexes) == built
        # also where it was open all the while
        assert answers(corpus) == before and assert_no_orphans(database) == stored
        with open_corpus(database, exact_below=exact_below) as fresh:
            assert answers(fresh) == before
            fresh.put(doc("new.md", "the new heron", project="d"))
            fresh.put(doc("new.md", "a new walrus", project="a"))
            assert paths(fresh.search("new heron", projects=["d"])) == ["new.md"]
            assert paths(fresh.search("a new walrus", projects=["a"]))[0] == "new.md"
            fresh.put(doc("0.md", "no animal any more", project="b"))
            assert fresh.forget(project="d") == 1 and fresh.forget(project="a", path="new.md") == 1
        assert cli("doctor").exit_code == 0
        assert_no_orphans(database)
        corpus.put(doc("0.md", f"the penguin called {name(0)} eats fish", project="b"))

        assert cli("migrate", "--partitions", "1").exit_code == 0
        assert tables(database) == whole and sql(database, indexes) == built
        assert answers(corpus) == before
        corpus.put(doc("newer.md", "the newer heron", project="e"))
        assert paths(corpus.search("newer heron", projects=["e"])) == ["newer.md"]
        assert cli("doctor").exit_code == 0
    assert_no_orphans(database)
    assert differences(database) == []


@pytest.mark.usefixtures("hashing")
def test_partitions_need_no_embedder(cli: Cli, database: str) -> None:
    """A catalog may belong to one that no setting names here."""
    with open_corpus(database, embedder="hashing:a") as corpus:
        corpus.put(doc("a.md", "The walrus lives on the island."))
        before = corpus.search("walrus").hits
    done = cli("migrate", "--partitions", "4", "--database", database)
    assert done.exit_code == 0, done.stderr
    with open_corpus(database, embedder="hashing:a") as corpus:
        assert corpus.search("walrus").hits == before


def test_another_number_of_partitions_moves_everything_again(database: str) -> None:
    with open_corpus(database) as corpus:
        fill(corpus)
        before, stored = answers(corpus), assert_no_orphans(database)
        assert [rearranged(database, number) for number in (2, 3, 3, 1, 1)] == [1, 2, 3, 3, 1]
        rearranged(database, 3)
        assert {f"words_p{number}" for number in range(3)} == {
            table for table in tables(database) if table.startswith("words_p")
        }
        assert answers(corpus) == before and assert_no_orphans(database) == stored


def test_an_empty_catalog_can_be_partitioned_before_its_first_vectors(
    cli: Cli, database: str
) -> None:
    assert cli("migrate", "--partitions", "3").exit_code == 0
    with open_corpus(database, exact_below=3) as corpus:
        fill(corpus)
        corpus.refresh()
        assert tables(database)["vectors_1"] == "p"
        assert paths(corpus.search(f"walrus {name(4)}", projects=["a"]))[0] == "4.md"
    assert_no_orphans(database)


@pytest.mark.parametrize("number", ["0", "-1", "1025", "some"])
def test_a_number_of_partitions_that_cannot_be_is_refused(
    cli: Cli, database: str, number: str
) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "the walrus"))
    before = tables(database)
    result = cli("migrate", "--partitions", number)
    assert result.exit_code == 2 and "partitions" in result.output
    assert tables(database) == before


def test_an_embedded_catalog_cannot_be_partitioned(cli: Cli, tmp_path: Path) -> None:
    result = cli("migrate", "--partitions", "4", "--database", f"sqlite:///{tmp_path}/catalog.db")
    assert result.exit_code == InputError.exit_code and "PostgreSQL" in result.output


# Commands


def test_every_command_works_on_the_address_of_a_server(
    cli: Cli, database: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "zoo",
        {
            f"{number}.md": f"# {name(number)}\n\nThe walrus {name(number)} eats fish.\n"
            for number in range(12)
        },
    )
    seen: list[Result] = []

    def run(*arguments: str) -> Result:
        seen.append(cli(*arguments))
        assert seen[-1].exit_code == 0, seen[-1].output
        return seen[-1]

    report = json.loads(run("index", str(folder), "--json").stdout)
    assert (report["project"], report["added"], report["failed"]) == ("zoo", 12, 0)
    assert json.loads(run("index", str(folder), "--json").stdout)["unchanged"] == 12
    page = json.loads(run("search", f"walrus {name(7)}", "--limit", "5", "--json").stdout)
    assert page["hits"][0]["path"] == "7.md" and len(page["hits"]) == 5
    more = json.loads(run("more", page["continuation"], "--json").stdout)
    assert len(more["hits"]) == 5 and not {hit["path"] for hit in page["hits"]} & {
        hit["path"] for hit in more["hits"]
    }
    assert (
        json.loads(run("search", "fish", "--path", "3.md", "--json").stdout)["hits"][0]["path"]
        == "3.md"
    )
    assert "7.md" not in {
        hit["path"]
        for hit in json.loads(run("related", "7.md", "--project", "zoo", "--json").stdout)["hits"]
    }
    status = json.loads(run("status", "--json").stdout)
    assert status["projects"][0]["chunks"] == 12 and status["size_bytes"] > 0
    assert len(run("documents", "--project", "zoo", "--json").stdout.splitlines()) == 12
    run("documents")
    run("status")
    run("settings")
    shown = {one["name"]: one for one in json.loads(run("settings", "--json").stdout)["settings"]}
    assert shown["database"]["origin"] == "environment"
    run("repair")
    checks = {
        one["name"]: one["ok"] for one in json.loads(run("doctor", "--json").stdout)["checks"]
    }
    assert (
        all(checks.values())
        and {"server", "pgvector", "connections", "migrations", "index of zoo", "documents of zoo"}
        <= checks.keys()
    )
    run("migrate")
    run("forget", "--project", "zoo", "3.md")
    assert len(run("documents", "--json").stdout.splitlines()) == 11
    run("forget", "--project", "zoo", "--all")
    assert json.loads(run("status", "--json").stdout)["projects"] == []
    run("migrate", "base", "--yes")
    assert cli("search", "walrus").exit_code == 1
    for result in seen:
        assert postgres_server.password not in result.output


def test_a_continuation_that_is_printed_repeats_the_address_only_without_a_password(
    cli: Cli, database: str, postgres_server: PostgresServer
) -> None:
    with open_corpus(database) as corpus:
        corpus.put(*[doc(f"{number}.md", f"the walrus {name(number)}") for number in range(5)])
    result = cli("search", "walrus", "--limit", "2", "--database", database)
    assert result.exit_code == 0 and postgres_server.password not in result.output
    continuation = re.search(r"unspool more (\S+)", result.output)
    assert continuation is not None and cli("more", continuation[1]).exit_code == 0


def test_places_can_be_copied_with_all_they_hold(places: Places) -> None:
    first = places.new()
    with open_corpus(first) as corpus:
        corpus.put(doc("a.md", "the walrus"))
    second = places.copy(first)
    with open_corpus(second) as corpus:
        corpus.put(doc("b.md", "the penguin"))
        assert paths(corpus.search("walrus"))[0] == "a.md"
    with open_corpus(first) as corpus:
        assert [one.path for one in corpus.documents()] == ["a.md"]


# Neighbours in the same database


@pytest.mark.parametrize("content", ["", "INSERT INTO public.alembic_version VALUES ('theirs')"])
def test_the_migrations_of_another_program_are_neither_read_nor_written(
    database: str, content: str
) -> None:
    sql(database, "CREATE TABLE public.alembic_version (version_num varchar(32) NOT NULL)")
    if content:
        sql(database, content)
    before = sql(database, "SELECT * FROM public.alembic_version")
    for _ in range(2):
        with open_corpus(database) as corpus:
            corpus.put(doc("a.md", "walrus"))
            assert paths(corpus.search("walrus")) == ["a.md"]
    assert sql(database, "SELECT * FROM public.alembic_version") == before


def test_a_catalog_beside_one_in_the_public_schema_shares_nothing_with_it(database: str) -> None:
    with open_corpus(f"{database}?schema=public") as public:
        public.put(doc("a.md", "walrus in public"))
        with open_corpus(database) as own:
            assert own.projects() == []
            own.put(doc("b.md", "walrus at home"))
            assert (paths(own.search("walrus")), paths(public.search("walrus"))) == (
                ["b.md"],
                ["a.md"],
            )
            own.forget(project="notes")
            assert paths(public.search("walrus")) == ["a.md"]
            assert len(public.nearest(public.embed("walrus"))) == 1


def test_a_project_of_empty_documents_is_searched_without_anything_to_find(database: str) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", ""))
        assert corpus.search("walrus").hits == ()
        corpus.put(doc("b.md", "walrus"))
        assert paths(corpus.search("walrus")) == ["b.md"]
