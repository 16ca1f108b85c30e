"""Searching on a replica: everything that reads works there, also while the primary is away;
everything that writes goes to the primary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import unspool
from servers import PostgresServer
from support import NOWHERE, assert_no_orphans, doc, name, open_corpus, paths, required
from unspool.access.scope import Scope
from unspool.errors import AddressError, ConfigError, NotFoundError, ServiceError, UnreachableError
from unspool.interfaces.cli import main

psycopg = pytest.importorskip(
    "psycopg", reason="psycopg is not installed; pip install 'unspool[postgres]'"
)


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with required(PostgresServer.start) as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with primary.standby() as server:
        yield server


@pytest.fixture
def database(primary: PostgresServer, standby: PostgresServer) -> Iterator[str]:
    """A database with a small catalog that the standby has too."""
    for server in (primary, standby):  # a test that failed may have left it so
        if not server.running:
            server.start_again()
    address = primary.create_database()
    with open_corpus(address) as corpus:
        corpus.put(
            *[
                doc(f"{number}.md", f"the walrus called {name(number)} eats fish")
                for number in range(12)
            ]
        )
    caught_up(primary, standby)
    yield address
    if not primary.running:
        primary.start_again()
    primary.drop_database(address)


def caught_up(primary: PostgresServer, standby: PostgresServer) -> None:
    """Wait until the standby has everything that was committed."""
    with psycopg.connect(primary.address("postgres"), autocommit=True) as connection:
        (wanted,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or ("",)
        connection.execute("SELECT pg_switch_wal()")  # so that also what was not waited for is sent
    deadline = time.monotonic() + 60
    with psycopg.connect(standby.address("postgres"), autocommit=True) as connection:
        while not (
            connection.execute(
                "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (wanted,)
            ).fetchone()
            or (False,)
        )[0]:
            assert time.monotonic() < deadline, "the standby did not catch up within a minute"
            time.sleep(0.02)


def on_standby(standby: PostgresServer, address: str) -> str:
    return standby.address(address.rpartition("/")[2])


def both(address: str, standby: PostgresServer, **more: object) -> unspool.Corpus:
    return open_corpus(address, database_read=on_standby(standby, address), **more)


def test_everything_that_reads_works_on_the_replica_while_the_primary_is_away(
    primary: PostgresServer, standby: PostgresServer, database: str
) -> None:
    with open_corpus(database) as corpus:
        expected = paths(corpus.search(f"walrus {name(7)}", limit=12))
    with both(database, standby) as corpus:
        primary.stop()
        first = corpus.search(f"walrus {name(7)}", limit=5)
        assert first.continuation is not None and not first.warnings
        second = corpus.more(first.continuation)
        third = corpus.more(str(second.continuation))
        assert paths(first) + paths(second) + paths(third) == expected
        assert third.continuation is None
        assert len(corpus.related("7.md").hits) == 10
        assert (
            corpus.nearest(corpus.embed(f"the walrus called {name(7)} eats fish"), k=1)[
                0
            ].chunk.path
            == "7.md"
        )
        assert paths(corpus.search("fish", where={"document": "3.md"})) == ["3.md"]
        assert corpus.warm(["a query"]) == 1
        with pytest.raises(UnreachableError) as caught:
            corpus.put(doc("new.md", "a new walrus"))
        assert caught.value.retryable
        with both(database, standby) as fresh:  # also one that is opened meanwhile
            assert paths(fresh.search(name(3)))[0] == "3.md"
        primary.start_again()
        corpus.put(doc("new.md", "a new walrus"))
    with open_corpus(database) as corpus:
        assert [one.path for one in corpus.documents(path="new.md")] == ["new.md"]


def test_a_continuation_of_the_replica_works_in_any_other_process_and_on_the_primary(
    standby: PostgresServer, database: str
) -> None:
    with both(database, standby) as corpus:
        first = corpus.search("walrus", limit=4)
        expected = paths(corpus.more(str(first.continuation)))
        assert len(expected) == 4 and not set(expected) & set(paths(first))
    with both(database, standby) as other:
        assert paths(other.more(str(first.continuation))) == expected
    with open_corpus("", database_read=on_standby(standby, database)) as alone:
        assert paths(alone.more(str(first.continuation))) == expected
    with open_corpus(database) as writer:
        assert paths(writer.more(str(first.continuation))) == expected


def test_what_is_put_goes_to_the_primary_and_is_found_when_the_replica_has_it(
    primary: PostgresServer, standby: PostgresServer, database: str, tmp_path: Path
) -> None:
    (tmp_path / "guide.md").write_text("# Guide\n\nHow to feed a penguin.\n")
    with both(database, standby) as corpus:
        assert paths(corpus.search("walrus", limit=20, projects=["notes"]))
        corpus.put(doc("heron.md", "a heron stands still"))
        corpus.index(tmp_path, project="guide")
        corpus.forget(project="notes", path="0.md")
        assert {one.path for one in corpus.documents()} >= {"heron.md", "guide.md"}
        caught_up(primary, standby)
        assert paths(corpus.search("heron", projects=["notes"]))[0] == "heron.md"
        assert paths(corpus.search("feed a penguin", projects=["guide"])) == ["guide.md"]
        assert "0.md" not in paths(corpus.search("walrus", limit=50, projects=["notes"]))
    assert_no_orphans(database)


def test_what_is_known_of_a_document_and_its_lines_come_from_one_server(
    primary: PostgresServer, standby: PostgresServer, database: str
) -> None:
    with (
        both(database, standby) as corpus,
        psycopg.connect(standby.address("postgres"), autocommit=True) as connection,
    ):
        view = corpus.scoped(Scope.everything())
        connection.execute("SELECT pg_wal_replay_pause()")
        try:
            for path, text in (
                ("heron.md", "a heron stands still"),
                ("3.md", "the walrus has gone\nfor good"),
            ):
                corpus.put(doc(path, text))
                record, passage = view.passage(path, project="notes")
                assert (record.size_bytes, passage.text) == (len(text), text)
        finally:
            connection.execute("SELECT pg_wal_replay_resume()")
        caught_up(primary, standby)
        assert corpus.read("heron.md", project="notes").text == "a heron stands still"


def test_an_index_that_was_built_on_the_primary_is_used_on_the_replica(
    primary: PostgresServer, standby: PostgresServer, database: str
) -> None:
    with both(database, standby, exact_below=3) as corpus:
        corpus.refresh()
        caught_up(primary, standby)
        assert (
            corpus.nearest(corpus.embed(f"the walrus called {name(7)} eats fish"), k=1)[
                0
            ].chunk.path
            == "7.md"
        )
        assert len(corpus.nearest(corpus.embed("walrus"), k=50)) == 12
        where = {"any": [{"document": "3.md"}, {"document": "9.md"}]}
        assert sorted(paths(corpus.search("walrus", where=where))) == ["3.md", "9.md"]


def test_a_replica_of_another_catalog_is_refused_at_every_write(
    primary: PostgresServer, standby: PostgresServer, database: str
) -> None:
    other = primary.create_database()
    with open_corpus(other) as corpus:
        corpus.put(doc("theirs.md", "the penguin"))
    with open_corpus(other, database_read=on_standby(standby, database)) as corpus:
        assert paths(corpus.search("walrus", limit=1))
        for _ in range(2):
            with pytest.raises(ConfigError, match="UNSPOOL_DATABASE_READ"):
                corpus.put(doc("mine.md", "the walrus"))
            with pytest.raises(ConfigError, match="UNSPOOL_DATABASE_READ"):
                corpus.forget(project="notes")
    with open_corpus(other) as corpus:
        assert [one.path for one in corpus.documents()] == ["theirs.md"]
    primary.drop_database(other)


def test_a_file_is_no_replica(database: str, tmp_path: Path) -> None:
    with pytest.raises(AddressError, match="UNSPOOL_DATABASE_READ"):
        open_corpus(database, database_read=f"sqlite:///{tmp_path}/catalog.db")
    assert list(tmp_path.iterdir()) == []


def test_a_standby_that_is_given_as_the_catalog_itself_is_searched_and_refuses_to_be_written(
    standby: PostgresServer, database: str
) -> None:
    with open_corpus(on_standby(standby, database)) as corpus:
        first = corpus.search("walrus", limit=4)
        assert len(first.hits) == 4 and first.continuation is not None
        assert len(corpus.more(first.continuation).hits) == 4
        for write in (
            lambda: corpus.put(doc("new.md", "a new walrus")),
            lambda: corpus.forget(project="notes"),
            lambda: corpus.forget(project="notes", path="0.md"),
            corpus.refresh,
        ):
            with pytest.raises(ServiceError, match="read-only") as caught:
                write()
            assert not caught.value.retryable
        assert len(corpus.documents()) == 12


def test_a_replica_alone_is_searched_and_says_where_to_write(
    standby: PostgresServer, database: str
) -> None:
    settings = unspool.Settings.load(
        arguments={"database_read": on_standby(standby, database)}, environment={}, folder=NOWHERE
    )
    with unspool.open(settings=settings) as corpus:
        assert paths(corpus.search(name(7)))[0] == "7.md"
        with pytest.raises(ServiceError, match="UNSPOOL_DATABASE"):
            corpus.put(doc("new.md", "a new walrus"))


def test_a_standby_without_a_catalog_is_not_found_and_none_is_made(
    primary: PostgresServer, standby: PostgresServer, database: str
) -> None:
    empty = primary.create_database()
    caught_up(primary, standby)
    for open_it in (lambda: open_corpus(on_standby(standby, empty)), lambda: both(empty, standby)):
        with pytest.raises(NotFoundError):
            open_it()
    with psycopg.connect(empty) as connection:
        assert (
            connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'unspool'").fetchall()
            == []
        )
    primary.drop_database(empty)


def test_commands_use_the_replica_and_doctor_looks_at_it(
    primary: PostgresServer,
    standby: PostgresServer,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("UNSPOOL_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSPOOL_DATABASE", database)
    monkeypatch.setenv("UNSPOOL_DATABASE_READ", on_standby(standby, database))
    seen: list[Result] = []

    def run(*arguments: str) -> int:
        seen.append(CliRunner().invoke(main, list(arguments), prog_name="unspool"))
        return seen[-1].exit_code

    assert run("doctor") == 0 and "replica" in seen[-1].output
    assert run("search", "walrus") == 0
    assert run("status") == 0
    assert run("settings") == 0
    primary.stop()
    assert run("search", "walrus", "--project", "notes") == 0
    assert run("doctor") == 2
    assert run("status") == 3
    primary.start_again()
    standby.stop()
    assert run("search", "walrus", "--project", "notes") == 3
    assert run("doctor") == 2 and "replica" in seen[-1].output
    standby.start_again()
    assert run("doctor") == 0
    for result in seen:
        assert primary.password not in result.output


def test_a_revoked_key_opens_nothing_although_the_replica_has_not_heard_of_it(
    primary: PostgresServer, standby: PostgresServer, database: str
) -> None:
    with open_corpus(database) as corpus:
        key, text = corpus.keys.create(projects="*")
        caught_up(primary, standby)
        with (
            psycopg.connect(standby.address("postgres"), autocommit=True) as connection,
            both(database, standby) as behind,
        ):
            connection.execute("SELECT pg_wal_replay_pause()")
            try:
                assert behind.keys.find(text) == key
                corpus.keys.revoke(key.id)
                assert behind.keys.find(text) is None
                assert behind.keys.are_used()
            finally:
                connection.execute("SELECT pg_wal_replay_resume()")
    caught_up(primary, standby)
    # there is nothing else to read them from
    with open_corpus("", database_read=on_standby(standby, database)) as alone:
        assert alone.keys.find(text) is None
        assert alone.keys.are_used()
