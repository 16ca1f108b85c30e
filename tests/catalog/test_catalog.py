"""The catalog as a file: whose it is, which version made it, and what migrations leave behind."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import unspool.catalog
from support import assert_no_orphans, doc, open_corpus, paths
from unspool.catalog import Catalog, schema, sqlite
from unspool.errors import AddressError, ConflictError, InputError, NotFoundError, ServiceError


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sqlite.engine_for(tmp_path / "catalog.db")
    yield made
    made.dispose()


def address(path: Path) -> str:
    return f"sqlite:///{path}"


def differences(engine: sa.Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, schema.metadata))


# Migrations


def test_migrating_up_makes_exactly_the_tables_that_the_code_uses(tmp_path: Path, engine: sa.Engine) -> None:
    Catalog.migrate(address(tmp_path / "catalog.db"), "head")
    assert differences(engine) == []


def test_migrating_down_leaves_nothing_and_up_again_leaves_a_working_catalog(tmp_path: Path, engine: sa.Engine) -> None:
    path = tmp_path / "catalog.db"
    with open_corpus(path) as corpus:
        corpus.put(doc("a.md", "walrus"))
    Catalog.migrate(address(path), "base")
    with engine.connect() as connection:
        assert set(sa.inspect(connection).get_table_names()) <= {"alembic_version"}
    Catalog.migrate(address(path), "head")
    assert differences(engine) == []
    with open_corpus(path) as corpus:
        assert corpus.projects() == []
        corpus.put(doc("b.md", "penguin"))
        assert paths(corpus.search("penguin")) == ["b.md"]
        corpus.refresh()
    assert_no_orphans(path)


def test_each_migration_goes_down_and_up_again(tmp_path: Path, engine: sa.Engine) -> None:
    path = tmp_path / "catalog.db"
    Catalog.migrate(address(path), "head")
    for revision in (*reversed(schema.KNOWN_REVISIONS[:-1]), "base"):
        Catalog.migrate(address(path), revision)
        Catalog.migrate(address(path), "head")
        assert differences(engine) == []
        Catalog.migrate(address(path), revision)


def test_the_code_knows_every_migration_script_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(unspool.catalog.__file__).parent / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(reversed([script.revision for script in scripts.walk_revisions()])) == schema.KNOWN_REVISIONS
    assert scripts.get_current_head() == schema.HEAD == schema.KNOWN_REVISIONS[-1]


def test_an_unknown_version_to_migrate_to_is_refused_and_changes_nothing(tmp_path: Path, engine: sa.Engine) -> None:
    Catalog.migrate(address(tmp_path / "catalog.db"), "head")
    with pytest.raises(InputError, match="head, base"):
        Catalog.migrate(address(tmp_path / "catalog.db"), "9999")
    assert differences(engine) == []


def test_migrating_keeps_the_identity_of_a_catalog_and_each_has_its_own(tmp_path: Path, engine: sa.Engine) -> None:
    first = Catalog.open(address(tmp_path / "catalog.db"))
    other = Catalog.open(address(tmp_path / "other.db"))
    Catalog.migrate(address(tmp_path / "catalog.db"), "head")
    again = Catalog.open(address(tmp_path / "catalog.db"))
    assert first.identity == again.identity != other.identity
    for catalog in (first, other, again):
        catalog.close()


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
def test_the_database_of_another_program_is_refused_and_not_changed(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = tmp_path / "other.db"
    before = make(path, *statements)
    with pytest.raises(ConflictError, match="another program"):
        Catalog.open(address(path))
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.db"]


@pytest.mark.parametrize("data", [b"not a database at all, but a text file. " * 50, b"\x00" * 5000, b"SQLite format 3\x00" + b"\xff" * 5000])
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


def test_a_catalog_of_a_newer_version_is_refused_with_the_way_to_upgrade_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with open_corpus(path) as corpus:
        corpus.put(doc("a.md", "walrus"))
    make(path, "UPDATE alembic_version SET version_num='9999'")
    make(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with pytest.raises(ConflictError, match=r"newer unspool.*pip install -U unspool"):
        Catalog.open(address(path))
    assert path.read_bytes() == before


def test_a_catalog_made_with_another_embedder_is_a_conflict_never_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with open_corpus(path) as corpus:
        corpus.put(doc("a.md", "walrus"))
    make(path, "UPDATE spaces SET embedder='other:model', dimension=384")
    with pytest.raises(ConflictError, match="other:model"):
        open_corpus(path)


def test_what_should_exist_and_does_not_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no catalog at"):
        Catalog.open(address(tmp_path / "nowhere.db"), create=False)
    assert list(tmp_path.iterdir()) == []


def test_folders_above_a_new_catalog_are_made(tmp_path: Path) -> None:
    Catalog.open(address(tmp_path / "a" / "b c" / "catalog.db")).close()
    assert (tmp_path / "a" / "b c" / "catalog.db").exists()


@pytest.mark.parametrize(
    "bad", ["", "notes.db", "sqlite://", "sqlite:///", "postgresql://me:hunter2@db/app", "sqlite:///x.db?mode=ro", "sqlite:notes.db", "mysql://x"]
)
def test_an_address_that_is_none_is_refused_with_the_form_to_use_and_without_passwords(bad: str) -> None:
    with pytest.raises(AddressError, match="sqlite") as caught:
        sqlite.path_of(bad)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "file"), [("sqlite:////tmp/a.db", "/tmp/a.db"), ("sqlite:////tmp/a%20b.db", "/tmp/a b.db"), ("sqlite:////tmp/a#b.db", "/tmp/a#b.db")]
)
def test_an_address_names_a_file(written: str, file: str) -> None:
    assert sqlite.path_of(written) == Path(file)


# Sharing and permissions

OPEN = "import sys; from unspool.catalog import Catalog; c = Catalog.open(sys.argv[1]); print(c.identity); c.close()"


def test_processes_that_make_the_same_new_catalog_at_once_all_get_the_same_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN, address(tmp_path / "new.db")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    results = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], results
    assert len({out for out, _ in results}) == 1


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
        projects.ensure(connection, "new")
except UnspoolError as error:
    sys.exit(f"{type(error).__name__} {error.exit_code} {error}")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user; run the tests as root")
@pytest.mark.parametrize("protected", ["file", "folder"])
def test_a_catalog_that_may_not_be_written_says_so_and_keeps_what_it_has(shared_folder: Path, protected: str) -> None:
    path = shared_folder / "catalog.db"
    with open_corpus(path) as corpus:
        corpus.put(doc("a.md", "walrus"))
    for file in shared_folder.glob("catalog.db*"):
        if file.is_file():
            file.chmod(0o644 if protected == "file" else 0o666)
    shared_folder.chmod(0o777 if protected == "file" else 0o755)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, address(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("ServiceError 3")
    assert "Traceback" not in done.stderr
    with open_corpus(path) as corpus:
        assert corpus.projects() == ["notes"]


def test_a_reader_never_waits_for_a_writer_and_sees_one_state(tmp_path: Path) -> None:
    catalog = Catalog.open(address(tmp_path / "catalog.db"))
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


def test_a_transaction_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    catalog = Catalog.open(address(tmp_path / "catalog.db"))
    with pytest.raises(ZeroDivisionError), catalog.write() as writing:
        assert writing.execute(sa.insert(schema.meta).values(key="a", value="1")).rowcount / 0
    with catalog.write() as writing:
        writing.execute(sa.insert(schema.meta).values(key="a", value="1"))
    with pytest.raises(ConflictError), catalog.write() as writing:
        writing.execute(sa.insert(schema.meta).values(key="a", value="2"))
    catalog.close()
