"""Catalogs: whose they are, which version made them, and what migrations leave behind."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import unspool.catalog
from servers import PostgresServer
from support import (
    Place,
    Places,
    address_of,
    assert_no_orphans,
    beside,
    contents,
    doc,
    open_corpus,
    paths,
)
from unspool.catalog import Catalog, schema, sqlite, sqlite_file
from unspool.errors import AddressError, ConflictError, InputError, NotFoundError, ServiceError


def address(path: Path) -> str:
    return f"sqlite:///{path}"


@contextmanager
def tables_of(place: Place) -> Iterator[sa.Connection]:
    """A connection that sees the catalog's tables and no others."""
    if isinstance(place, Path):
        engine = sqlite_file.create_engine(place)
    else:
        engine = sa.create_engine(
            place.replace("postgresql:", "postgresql+psycopg:"),
            connect_args={"options": "-c search_path=unspool,public"},
        )
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def names_in(place: Place) -> set[str]:
    with tables_of(place) as connection:
        return set(sa.inspect(connection).get_table_names())


WORDS = {"words", "word_counts", "word_formats"}


def by_hand(name: str) -> bool:
    """Whether a table of a server is one that no metadata describes: of words or vectors."""
    return name in WORDS or name.startswith("vectors_")


def differences(place: Place) -> list[object]:
    """Between the tables that are there and those that the code names."""
    with tables_of(place) as connection:
        options = {
            "compare_type": True,
            "compare_server_default": True,
            "include_name": lambda name, kind, _: kind != "table" or not by_hand(name),
        }
        context = MigrationContext.configure(connection, opts=options)
        return list(
            compare_metadata(
                context,
                [schema.metadata]
                if isinstance(place, Path)
                else [schema.metadata, schema.short_lived],
            )
        )


# Migrations


def test_migrating_up_makes_exactly_the_tables_that_the_code_uses(database: Place) -> None:
    Catalog.migrate(address_of(database), "head")
    assert differences(database) == []
    assert isinstance(database, Path) or names_in(database) > WORDS


def test_migrating_down_leaves_nothing_and_up_again_leaves_a_working_catalog(
    database: Place,
) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus"))
    assert Catalog.migrate(address_of(database), "base") == schema.HEAD
    assert names_in(database) <= {"alembic_version"}
    assert Catalog.migrate(address_of(database), "head") == "base"
    assert differences(database) == []
    with open_corpus(database) as corpus:
        assert corpus.projects() == []
        corpus.put(doc("b.md", "penguin"))
        assert paths(corpus.search("penguin")) == ["b.md"]
        corpus.refresh()
    assert_no_orphans(database)


def test_the_code_knows_every_migration_script_in_order() -> None:
    config = Config()
    config.set_main_option(
        "script_location", str(Path(unspool.catalog.__file__).parent / "migrations")
    )
    scripts = ScriptDirectory.from_config(config)
    assert (
        tuple(reversed([script.revision for script in scripts.walk_revisions()]))
        == schema.KNOWN_REVISIONS
    )
    assert scripts.get_current_head() == schema.HEAD == schema.KNOWN_REVISIONS[-1]


def test_an_unknown_version_to_migrate_to_is_refused_and_changes_nothing(database: Place) -> None:
    Catalog.migrate(address_of(database), "head")
    with pytest.raises(InputError, match="head, base"):
        Catalog.migrate(address_of(database), "9999")
    assert differences(database) == []


def test_migrating_keeps_the_identity_of_a_catalog_and_each_has_its_own(places: Places) -> None:
    place, another = places.bare(), places.bare()
    first = Catalog.open(address_of(place))
    other = Catalog.open(address_of(another))
    Catalog.migrate(address_of(place), "head")
    again = Catalog.open(address_of(place))
    assert first.identity == again.identity != other.identity
    assert first.signing_key == again.signing_key != other.signing_key
    for catalog in (first, other, again):
        catalog.close()


def test_there_is_nothing_to_remove_where_no_catalog_is(database: Place) -> None:
    with pytest.raises(NotFoundError):
        Catalog.migrate(address_of(database), "base")


# Whose it is

THEIRS = (
    "CREATE TABLE unspool.mine (x int)",
    "CREATE TABLE unspool.documents (x int)",
    "CREATE TABLE unspool.meta (key text)",
)


@pytest.mark.parametrize("statement", THEIRS)
def test_a_schema_of_another_program_is_refused_and_not_changed(
    postgres_server: PostgresServer, tmp_path: Path, statement: str
) -> None:
    with Places(tmp_path, postgres_server) as places:
        place = places.bare()
        with beside(place) as server:
            server.run("CREATE SCHEMA unspool", statement)
        before = names_in(place)
        with pytest.raises(ConflictError, match="another program"):
            Catalog.open(address_of(place))
        assert names_in(place) == before
        Catalog.open(f"{place}?schema=elsewhere").close()
        assert names_in(place) == before


def test_two_schemas_of_one_database_are_two_catalogs(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with Places(tmp_path, postgres_server) as places:
        place = str(places.new())
        with open_corpus(place) as one, open_corpus(f"{place}?schema=another") as other:
            one.put(doc("a.md", "walrus"))
            other.put(doc("b.md", "walrus"))
            assert (paths(one.search("walrus")), paths(other.search("walrus"))) == (
                ["a.md"],
                ["b.md"],
            )
        Catalog.migrate(f"{place}?schema=another", "base")
        with open_corpus(place) as one:
            assert paths(one.search("walrus")) == ["a.md"]


# Whose file it is


def make(path: Path, *statements: str) -> bytes:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE mine (x)", "INSERT INTO mine VALUES (1)"),
        ("PRAGMA application_id=1234", "CREATE TABLE documents (x)"),
        ("CREATE TABLE alembic_version (version_num)",),
    ],
)
def test_the_database_of_another_program_is_refused_and_not_changed(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    path = tmp_path / "other.db"
    before = make(path, *statements)
    with pytest.raises(ConflictError, match="another program"):
        Catalog.open(address(path))
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.db"]


@pytest.mark.parametrize(
    "data",
    [
        b"not a database at all, but a text file. " * 50,
        b"\x00" * 5000,
        b"SQLite format 3\x00" + b"\xff" * 5000,
    ],
)
def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "text.db"
    path.write_bytes(data)
    with pytest.raises((ConflictError, ServiceError), match=r"text\.db"):
        Catalog.open(address(path))
    assert path.read_bytes() == data


def test_a_folder_in_place_of_the_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(ServiceError, match="cannot be"):
        Catalog.open(address(tmp_path / "folder.db"))


def test_an_empty_file_becomes_a_catalog(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    Catalog.open(address(tmp_path / "new.db")).close()
    with open_corpus(tmp_path / "new.db") as corpus:
        assert corpus.count() == 0


def test_a_catalog_of_a_newer_version_is_refused_with_the_way_to_upgrade_and_not_changed(
    database: Place,
) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus"))
    with beside(database) as catalog:
        catalog.run("UPDATE alembic_version SET version_num='9999'")
    before = contents(database)
    for call in (
        lambda: Catalog.open(address_of(database)),
        lambda: Catalog.migrate(address_of(database), "head"),
    ):
        with pytest.raises(ConflictError, match=r"newer unspool.*pip install -U unspool"):
            call()
    assert contents(database) == before
    with beside(database) as catalog:
        assert catalog.rows("SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_catalog_made_with_another_embedder_is_a_conflict_never_nonsense(database: Place) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus"))
    with beside(database) as catalog:
        catalog.run("UPDATE spaces SET embedder='other:model', dimension=384")
    with pytest.raises(ConflictError, match="other:model"):
        open_corpus(database)


def test_a_catalog_that_lost_a_table_says_which(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with Places(tmp_path, postgres_server) as places:
        place = places.new()
        Catalog.open(address_of(place)).close()
        with beside(place) as server:
            server.run("DROP TABLE skipped")
        with pytest.raises(ConflictError, match="skipped"):
            Catalog.open(address_of(place))


def test_what_should_exist_and_does_not_is_not_found(database: Place, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no catalog at"):
        Catalog.open(address_of(database), create=False)
    if isinstance(database, Path):
        assert list(tmp_path.iterdir()) == []
    else:
        assert names_in(database) == set()


def test_folders_above_a_new_catalog_are_made(tmp_path: Path) -> None:
    Catalog.open(address(tmp_path / "a" / "b c" / "catalog.db")).close()
    assert (tmp_path / "a" / "b c" / "catalog.db").exists()


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "notes.db",
        "sqlite://",
        "sqlite:///",
        "postgresql://me:hunter2@db/app",
        "sqlite:///x.db?mode=ro",
        "sqlite:notes.db",
        "mysql://x",
    ],
)
def test_an_address_that_is_none_is_refused_with_the_form_to_use_and_without_passwords(
    bad: str,
) -> None:
    with pytest.raises(AddressError, match="sqlite") as caught:
        sqlite.parse_address(bad)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "file"),
    [
        ("sqlite:////tmp/a.db", "/tmp/a.db"),
        ("sqlite:////tmp/a%20b.db", "/tmp/a b.db"),
        ("sqlite:////tmp/a#b.db", "/tmp/a#b.db"),
    ],
)
def test_an_address_names_a_file(written: str, file: str) -> None:
    assert sqlite.parse_address(written) == Path(file)


# Sharing and permissions

OPEN = (
    "import sys; from unspool.catalog import Catalog; c = Catalog.open(sys.argv[1]); "
    "print(c.identity); c.close()"
)


def test_processes_that_make_the_same_new_catalog_at_once_all_get_the_same_one(
    database: Place,
) -> None:
    command = [sys.executable, "-c", OPEN, address_of(database)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], results
    assert len({out for out, _ in results}) == 1
    assert differences(database) == []


def test_threads_that_open_and_fill_the_same_new_catalog_at_once_lose_nothing(
    database: Place,
) -> None:
    ready = threading.Barrier(4)

    def work(number: int) -> str:
        ready.wait()
        with open_corpus(database) as corpus:
            corpus.put(doc(f"{number}.md", f"walrus {number}"))
            return corpus._resources.catalog.identity

    with ThreadPoolExecutor(4) as pool:
        identities = set(pool.map(work, range(4)))
    assert len(identities) == 1
    with open_corpus(database) as corpus:
        assert sorted(paths(corpus.search("walrus"))) == ["0.md", "1.md", "2.md", "3.md"]
    assert len(assert_no_orphans(database).chunks) == 4


AS_NOBODY = """
import os, sys
from unspool.catalog import Catalog, projects
from unspool.errors import UnspoolError
Catalog.open(sys.argv[1]).close()  # what is imported on the way may lie where only root can read
for left in ("-wal", "-shm"):
    if os.path.exists(sys.argv[1].removeprefix("sqlite:///") + left):
        os.chmod(sys.argv[1].removeprefix("sqlite:///") + left, 0o666)
os.setgid(65534); os.setuid(65534)
try:
    catalog = Catalog.open(sys.argv[1])
    with catalog.write() as connection:
        projects.ensure_project(connection, "new")
except UnspoolError as error:
    sys.exit(f"{type(error).__name__} {error.exit_code} {error}")
"""


@pytest.mark.skipif(
    os.getuid() != 0, reason="only root can become another user; run the tests as root"
)
@pytest.mark.parametrize("protected", ["file", "folder"])
def test_a_catalog_that_may_not_be_written_says_so_and_keeps_what_it_has(
    shared_folder: Path, protected: str
) -> None:
    path = shared_folder / "catalog.db"
    with open_corpus(path) as corpus:
        corpus.put(doc("a.md", "walrus"))
    for file in shared_folder.glob("catalog.db*"):
        if file.is_file():
            file.chmod(0o644 if protected == "file" else 0o666)
    shared_folder.chmod(0o777 if protected == "file" else 0o755)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, address(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ServiceError 3")
    assert "Traceback" not in done.stderr
    with open_corpus(path) as corpus:
        assert corpus.projects() == ["notes"]


def test_a_reader_never_waits_for_a_writer_and_sees_one_state(database: Place) -> None:
    catalog = Catalog.open(address_of(database))
    count = sa.select(sa.func.count()).where(schema.meta.c.key.in_(["a", "b"]))
    with catalog.write() as writing:
        writing.execute(sa.insert(schema.meta).values(key="a", value="1"))
        with catalog.read() as reading:
            assert reading.execute(count).scalar_one() == 0
    with catalog.read() as reading:
        assert reading.execute(count).scalar_one() == 1
        with catalog.write() as writing:
            writing.execute(sa.insert(schema.meta).values(key="b", value="1"))
        assert reading.execute(count).scalar_one() == 1
    catalog.close()


def test_a_transaction_that_fails_leaves_no_trace(database: Place) -> None:
    catalog = Catalog.open(address_of(database))
    with pytest.raises(ZeroDivisionError), catalog.write() as writing:
        assert writing.execute(sa.insert(schema.meta).values(key="a", value="1")).rowcount / 0
    with catalog.write() as writing:
        writing.execute(sa.insert(schema.meta).values(key="a", value="1"))
    with pytest.raises(ConflictError), catalog.write() as writing:
        writing.execute(sa.insert(schema.meta).values(key="a", value="2"))
    catalog.close()
