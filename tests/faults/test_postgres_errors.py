"""Whatever is wrong with a server, an address or a catalog on it: one of our errors says so,
without a password, and nothing is changed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from servers import DISK, PostgresServer, bundled_programs
from support import Place, Places, doc, open_corpus, paths
from unspool.catalog import Catalog
from unspool.catalog.options import DatabaseOptions
from unspool.errors import (
    AddressError,
    ConfigError,
    ConflictError,
    DimensionError,
    InputError,
    MissingDependencyError,
    NotFoundError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)
from unspool.interfaces.cli import main

psycopg = pytest.importorskip(
    "psycopg", reason="psycopg is not installed; pip install 'unspool[postgres]'"
)

Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def engine() -> str:
    return "postgresql"


@pytest.fixture
def database(places: Places) -> Place:
    """A database of which unspool knows nothing yet."""
    return places.bare()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in this process on a catalog at an address."""
    for name in [name for name in os.environ if name.startswith("UNSPOOL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(address: str, *arguments: str) -> Result:
        monkeypatch.setenv("UNSPOOL_DATABASE", address)
        return CliRunner().invoke(main, list(arguments), prog_name="unspool")

    return run


@pytest.fixture(scope="module")
def crippled_server() -> Iterator[PostgresServer]:
    """A server without pgvector that takes few connections."""
    made = Path(tempfile.mkdtemp(prefix="unspool-without-pgvector-", dir=DISK))
    made.chmod(0o755)
    bundled = bundled_programs().parents[1]
    folder = made / bundled.name / "pginstall"
    try:
        shutil.copytree(
            bundled / "pginstall",
            folder,
            symlinks=True,
            ignore=shutil.ignore_patterns("vector.control", "vector--*.sql"),
        )
        # where the programs look for their libraries
        (made / f"{bundled.name}.libs").symlink_to(bundled.with_name(f"{bundled.name}.libs"))
        settings = {
            "max_connections": "6",
            "superuser_reserved_connections": "0",
            "max_wal_senders": "0",
        }
        with PostgresServer.start(settings=settings, programs=folder / "bin") as server:
            yield server
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sql(address: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements past unspool; returns the rows of the last one."""
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            found = connection.execute(statement)
        return list(found.fetchall()) if found.description else []


def everything(address: str) -> list[tuple[object, ...]]:
    """What a database holds: every relation and extension that PostgreSQL does not bring along,
    and how many rows were ever inserted.
    """
    return sql(
        address,
        "SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace n ON n.oid = "
        "relnamespace WHERE nspname !~ '^(pg_|information_schema)' "
        "UNION ALL SELECT 'extension ' || extname FROM pg_extension UNION ALL SELECT 'schema ' "
        "|| nspname FROM pg_namespace ORDER BY 1",
    )


def role(server: PostgresServer, options: str = "") -> tuple[str, str]:
    """A new user without any rights, and his password. He goes with the server."""
    name, password = f"r_{secrets.token_hex(5)}", secrets.token_hex(8)
    sql(server.address("postgres"), f"CREATE ROLE {name} LOGIN PASSWORD '{password}' {options}")
    return name, password


def database_of(address: str) -> str:
    return address.rpartition("/")[2]


def fill(address: str) -> None:
    with open_corpus(address) as corpus:
        corpus.put(doc("a.md", "the walrus sleeps on the ice"))


# Who may come in


def test_a_wrong_password_is_refused_and_told_to_nobody(
    database: str, postgres_server: PostgresServer, cli: Cli
) -> None:
    address = postgres_server.address(database_of(database), password="hunter2hunter2")
    with pytest.raises(RejectedError, match="password") as caught:
        open_corpus(address)
    assert not caught.value.retryable
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error) + repr(error)
        error = error.__cause__ or error.__context__
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    for arguments in (
        ["status"],
        ["status", "--json"],
        ["--debug", "status"],
        ["doctor"],
        ["settings"],
        ["search", "walrus"],
    ):
        result = cli(address, *arguments)
        assert result.exit_code == (
            0
            if arguments == ["settings"]
            else 2
            if arguments == ["doctor"]
            else RejectedError.exit_code
        )
        assert "hunter2" not in result.output
    assert everything(database) == everything(postgres_server.create_database())


def test_a_password_in_the_options_of_an_address_is_told_to_nobody_either(
    database: str, postgres_server: PostgresServer, cli: Cli
) -> None:
    address = f"postgresql://unspool@127.0.0.1:{postgres_server.port}/{database_of(database)}?password=hunter2hunter2"
    for arguments in (["status"], ["--debug", "status"], ["doctor"], ["settings"]):
        assert "hunter2" not in cli(address, *arguments).output


def test_a_user_that_does_not_exist_is_refused(
    database: str, postgres_server: PostgresServer
) -> None:
    with pytest.raises(RejectedError):
        open_corpus(postgres_server.address(database_of(database), user="nobody_at_all"))


def test_a_user_that_may_not_connect_to_the_database_is_refused(
    database: str, postgres_server: PostgresServer
) -> None:
    user, password = role(postgres_server)
    sql(database, f"REVOKE CONNECT ON DATABASE {database_of(database)} FROM PUBLIC")
    with pytest.raises(RejectedError):
        open_corpus(postgres_server.address(database_of(database), user=user, password=password))


def test_a_database_that_does_not_exist_is_not_found(
    postgres_server: PostgresServer, cli: Cli
) -> None:
    address = postgres_server.address("no_such_database")
    with pytest.raises(NotFoundError, match="no_such_database"):
        open_corpus(address)
    result = cli(address, "status")
    assert (
        result.exit_code == NotFoundError.exit_code
        and postgres_server.password not in result.output
    )


def test_a_server_that_is_not_there_is_unreachable(cli: Cli) -> None:
    with socket.socket() as taken:  # nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"postgresql://unspool:hunter2hunter2@127.0.0.1:{taken.getsockname()[1]}/app"
        with pytest.raises(UnreachableError, match="does not answer") as caught:
            open_corpus(address)
        assert caught.value.retryable and "hunter2" not in "".join(
            traceback.format_exception(caught.value)
        )
        result = cli(address, "status")
        assert result.exit_code == 3 and "hunter2" not in result.output
        result = cli(address, "doctor")
        assert result.exit_code == 2 and "does not answer" in result.output


@pytest.mark.parametrize("limit", ["role", "database"])
def test_a_user_or_database_without_a_connection_left_is_unreachable_for_now(
    database: str, postgres_server: PostgresServer, limit: str
) -> None:
    user, password = role(postgres_server, "CONNECTION LIMIT 1" if limit == "role" else "")
    if limit == "database":
        sql(database, f"ALTER DATABASE {database_of(database)} CONNECTION LIMIT 1")
    address = postgres_server.address(database_of(database), user=user, password=password)
    with (
        psycopg.connect(address),
        pytest.raises(UnreachableError, match="no connection left") as caught,
    ):
        open_corpus(address)
    assert caught.value.retryable


def test_a_server_without_a_connection_left_is_unreachable_for_now(
    crippled_server: PostgresServer,
) -> None:
    address = crippled_server.address("postgres")
    with ExitStack() as taken:
        for _ in range(6):
            taken.enter_context(psycopg.connect(address))
        with pytest.raises(UnreachableError, match="no connection left"):
            Catalog.open(address)


# What an address says


@pytest.mark.parametrize(
    "option",
    [
        "nonsense=1",
        "sslmode=perhaps",
        "schema=Bad-Name",
        "schema=1st",
        "schema=a&schema=b",
        'schema=a"b',
        "schema=a%20b",
    ],
)
def test_an_option_that_does_not_exist_is_an_error_of_the_address(
    postgres_server: PostgresServer, option: str, cli: Cli
) -> None:
    address = f"{postgres_server.address('postgres')}?{option}"
    with pytest.raises(AddressError) as caught:
        open_corpus(address)
    assert postgres_server.password not in "".join(traceback.format_exception(caught.value))
    result = cli(address, "--debug", "status")
    assert (
        result.exit_code == AddressError.exit_code and postgres_server.password not in result.output
    )


@pytest.mark.parametrize(
    "address",
    ["postgresql://unspool:hunter2@host:port/app", "postgresql://unspool:hunter2@[::1/app"],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(
    address: str, cli: Cli
) -> None:
    with pytest.raises(AddressError) as caught:
        open_corpus(address)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    result = cli(address, "--debug", "status")
    assert result.exit_code == AddressError.exit_code and "hunter2" not in result.output


def test_a_port_among_the_options_that_is_no_number_is_an_error_of_the_address(
    postgres_server: PostgresServer,
) -> None:
    with pytest.raises(AddressError):
        open_corpus(f"{postgres_server.address('postgres')}?port=abc")


# What takes too long


def test_a_statement_that_takes_too_long_is_broken_off(database: str) -> None:
    with open_corpus(database, statement_timeout_s=1) as corpus:
        with (
            pytest.raises(ServiceTimeoutError, match="UNSPOOL_STATEMENT_TIMEOUT_S") as caught,
            corpus._resources.catalog.read() as connection,
        ):
            connection.exec_driver_sql("SELECT pg_sleep(60)")
        assert caught.value.retryable
        corpus.put(doc("a.md", "the walrus sleeps"))
        assert paths(corpus.search("walrus")) == ["a.md"]


def test_a_lock_that_another_holds_for_too_long_is_given_up_on(database: str) -> None:
    fill(database)
    with open_corpus(database, statement_timeout_s=1) as corpus:
        with psycopg.connect(database) as other:
            other.execute("SELECT 1 FROM unspool.projects FOR UPDATE")
            with pytest.raises(ServiceTimeoutError) as caught:
                corpus.put(doc("b.md", "the penguin swims"))
            assert caught.value.retryable
        assert corpus.documents(path="b.md") == []
        corpus.put(doc("b.md", "the penguin swims"))
        assert paths(corpus.search("penguin"))[0] == "b.md"


def test_waiting_for_a_connection_of_the_pool_ends_with_the_setting_to_raise(database: str) -> None:
    catalog = Catalog.open(
        database, options=DatabaseOptions(pool_size=1, pool_overflow=0, pool_timeout_s=1)
    )
    try:
        with (
            catalog.read(),
            pytest.raises(ServiceTimeoutError, match="UNSPOOL_POOL_SIZE") as caught,
            catalog.read(),
        ):
            pass
        assert caught.value.retryable
        with catalog.read() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    finally:
        catalog.close()


def test_a_pool_of_one_connection_is_enough_for_everything(database: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("the walrus sleeps on the ice")
    (tmp_path / "b.md").write_text("the penguin swims in the sea")
    with open_corpus(
        database, pool_size=1, pool_overflow=0, pool_timeout_s=2, exact_below=1
    ) as corpus:
        corpus.index(tmp_path, project="zoo")
        page = corpus.search("walrus penguin", limit=1)
        assert page.continuation is not None and not page.warnings
        assert {*paths(page), *paths(corpus.more(page.continuation))} == {"a.md", "b.md"}
        assert paths(corpus.related("a.md")) == ["b.md"]
        assert corpus.nearest(corpus.embed("penguin"), k=1)[0].chunk.path == "b.md"
        assert corpus.count() == corpus.count(project="zoo") == 2
        assert (
            corpus.status()[0].chunks == 2
            and corpus.size_bytes() > 0
            and len(corpus.documents(project="zoo")) == 2
        )
        corpus.refresh()
        assert corpus.forget(project="zoo", path="a.md") == corpus.forget(project="zoo") == 1


def test_a_pool_of_one_connection_is_enough_for_several_projects_at_once(database: str) -> None:
    with open_corpus(database, pool_size=1, pool_overflow=0, pool_timeout_s=2) as corpus:
        for project in ("first", "second", "third"):
            corpus.put(doc("a.md", f"the walrus of the {project}", project=project))
        assert {hit.chunk.project for hit in corpus.search("walrus", projects="*").hits} == {
            "first",
            "second",
            "third",
        }
        assert len(corpus.nearest(corpus.embed("walrus"), projects="*")) == 3


# The extension


@pytest.mark.parametrize("may_create", [False, True])
def test_a_user_who_may_not_make_the_extension_is_told_who_can(
    database: str, postgres_server: PostgresServer, may_create: bool
) -> None:
    user, password = role(postgres_server)
    if may_create:  # schemas, that is; the bundled pgvector is not a trusted extension
        sql(database, f"GRANT CREATE ON DATABASE {database_of(database)} TO {user}")
    before = everything(database)
    with pytest.raises(RejectedError, match="CREATE EXTENSION vector"):
        open_corpus(postgres_server.address(database_of(database), user=user, password=password))
    assert everything(database) == before


def test_a_plain_user_needs_an_administrator_for_the_extension_alone(
    database: str, postgres_server: PostgresServer, cli: Cli
) -> None:
    user, password = role(postgres_server)
    sql(
        database,
        f"GRANT CREATE ON DATABASE {database_of(database)} TO {user}",
        "CREATE EXTENSION vector",
    )
    address = postgres_server.address(database_of(database), user=user, password=password)
    with open_corpus(address, exact_below=1) as corpus:
        corpus.put(doc("a.md", "the walrus sleeps"), doc("b.md", "the penguin swims"))
        corpus.refresh()
        assert paths(corpus.search("walrus"))[0] == "a.md"
    assert cli(address, "doctor").exit_code == 0
    assert cli(address, "migrate", "--partitions", "2").exit_code == 0
    assert cli(address, "search", "walrus").exit_code == 0
    assert cli(address, "migrate", "base", "--yes").exit_code == 0


def test_a_server_without_pgvector_is_told_where_to_get_it(
    crippled_server: PostgresServer, cli: Cli
) -> None:
    address = crippled_server.create_database()
    before = everything(address)
    with pytest.raises(ConfigError, match="pgvector"):
        open_corpus(address)
    result = cli(address, "doctor")
    assert result.exit_code == 2 and "not installed on the server" in result.output
    assert everything(address) == before


def test_a_pgvector_that_is_too_old_is_refused_for_a_new_catalog_and_found_by_doctor_in_an_old_one(
    database: str, cli: Cli
) -> None:
    sql(
        database,
        "CREATE EXTENSION vector",
        "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'",
    )
    before = everything(database)
    with pytest.raises(ConfigError, match=r"0\.7\.4.*0\.8\.0.*ALTER EXTENSION vector UPDATE"):
        open_corpus(database)
    assert everything(database) == before
    sql(database, "UPDATE pg_extension SET extversion = '0.8.6' WHERE extname = 'vector'")
    fill(database)
    assert cli(database, "doctor").exit_code == 0
    sql(database, "UPDATE pg_extension SET extversion = '0.8.2' WHERE extname = 'vector'")
    result = cli(database, "doctor")
    assert (
        result.exit_code == 2
        and "0.8.2" in result.output
        and "ALTER EXTENSION vector UPDATE" in result.output
    )


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_is_not_in_utf8_is_refused(
    postgres_server: PostgresServer, encoding: str, cli: Cli
) -> None:
    name = f"t_{secrets.token_hex(6)}"
    sql(
        postgres_server.address("postgres"),
        f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0",
    )
    address = postgres_server.address(name)
    before = everything(address)
    try:
        with pytest.raises(ConfigError, match="UTF8"):
            open_corpus(address)
        result = cli(address, "doctor")
        assert result.exit_code == 2 and "UTF8" in result.output
        assert everything(address) == before
    finally:
        postgres_server.drop_database(name)


# What is stored there


@pytest.mark.parametrize("table", ["mine", "documents", "alembic_version"])
def test_the_tables_of_another_program_are_left_alone(database: str, table: str, cli: Cli) -> None:
    sql(
        database,
        "CREATE SCHEMA unspool",
        f"CREATE TABLE unspool.{table} (version_num text)",
        f"INSERT INTO unspool.{table} VALUES ('theirs')",
    )
    before = everything(database)
    with pytest.raises(ConflictError):
        open_corpus(database)
    for arguments in (["status"], ["migrate"], ["migrate", "base", "--yes"], ["doctor"]):
        assert cli(database, *arguments).exit_code == ConflictError.exit_code
    assert everything(database) == before
    assert sql(database, f"SELECT * FROM unspool.{table}") == [("theirs",)]


@pytest.mark.parametrize(
    "table", ["documents", "segments", "words", "word_counts", "word_formats", "vectors_1"]
)
def test_a_catalog_that_lacks_a_table_is_a_conflict_and_doctor_says_which(
    database: str, table: str, cli: Cli
) -> None:
    fill(database)
    sql(database, f"DROP TABLE unspool.{table} CASCADE")
    if table == "vectors_1":  # made of what the catalog has
        assert cli(database, "repair").exit_code == 0
        assert cli(database, "doctor").exit_code == 0
        assert cli(database, "search", "walrus").exit_code == 0
        return
    with pytest.raises(ConflictError, match=table):
        open_corpus(database)
    result = cli(database, "doctor")
    assert result.exit_code == 2 and table in result.output


def test_a_catalog_of_a_newer_version_is_refused_and_not_changed(database: str, cli: Cli) -> None:
    fill(database)
    sql(database, "UPDATE unspool.alembic_version SET version_num = '9999'")
    before = everything(database)
    with pytest.raises(ConflictError, match=r"newer unspool.*pip install -U unspool"):
        open_corpus(database)
    result = cli(database, "doctor")
    assert result.exit_code == 2 and "newer unspool" in result.output
    assert everything(database) == before
    assert sql(database, "SELECT version_num FROM unspool.alembic_version") == [("9999",)]


def test_the_catalog_of_another_embedder_is_a_conflict_never_nonsense(
    database: str, cli: Cli
) -> None:
    fill(database)
    sql(database, "UPDATE unspool.spaces SET embedder = 'other:model', dimension = 384")
    with pytest.raises(ConflictError, match="other:model"):
        open_corpus(database)
    result = cli(database, "doctor")
    assert result.exit_code == 2 and "other:model" in result.output


@pytest.mark.parametrize("length", [1, 255, 257])
def test_a_vector_of_another_length_is_refused(database: str, length: int) -> None:
    fill(database)
    with open_corpus(database) as corpus:
        assert len(corpus.embed("walrus")) == 256
        with pytest.raises(DimensionError, match="256"):
            corpus.nearest([1.0] * length)
        assert corpus.nearest(corpus.embed("walrus"))


def test_another_user_without_rights_on_the_schema_is_refused_and_a_reader_can_only_read(
    database: str, postgres_server: PostgresServer
) -> None:
    fill(database)
    user, password = role(postgres_server)
    address = postgres_server.address(database_of(database), user=user, password=password)
    with pytest.raises(RejectedError, match="may not"):
        open_corpus(address)
    sql(database, f"GRANT USAGE ON SCHEMA unspool TO {user}")
    with pytest.raises(RejectedError, match="may not"):
        open_corpus(address)
    sql(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA unspool TO {user}")
    with open_corpus(address) as corpus:
        assert paths(corpus.search("walrus")) == ["a.md"]
        with pytest.raises(RejectedError, match="may not"):
            corpus.put(doc("b.md", "the penguin swims"))
    with open_corpus(database) as corpus:
        assert [one.path for one in corpus.documents()] == ["a.md"]


def test_a_database_that_is_set_to_read_only_gets_no_catalog(database: str, cli: Cli) -> None:
    sql(database, f"ALTER DATABASE {database_of(database)} SET default_transaction_read_only = on")
    before = everything(database)
    with pytest.raises(ServiceError, match="read-only") as caught:
        open_corpus(database)
    assert not caught.value.retryable
    assert cli(database, "status").exit_code == ServiceError.exit_code
    assert everything(database) == before


def test_a_database_that_is_set_to_read_only_is_searched_but_not_written(database: str) -> None:
    fill(database)
    sql(database, f"ALTER DATABASE {database_of(database)} SET default_transaction_read_only = on")
    with open_corpus(database) as corpus:
        assert paths(corpus.search("walrus")) == ["a.md"]
        with pytest.raises(ServiceError, match="read-only"):
            corpus.put(doc("b.md", "the penguin swims"))
        assert [one.path for one in corpus.documents()] == ["a.md"]


def test_what_no_database_takes_is_an_error_of_the_input_or_kept_out(database: str) -> None:
    with open_corpus(database) as corpus:
        try:
            corpus.put(doc("a.md", "the walrus\x00 sleeps \ud800 here"))
        except UnspoolError as error:
            assert not error.retryable
        corpus.put(doc("b.md", "the walrus sleeps"))
        assert "b.md" in paths(corpus.search("walrus"))
        assert corpus.search("wal\x00rus \ud800").projects == ("notes",)


@pytest.mark.parametrize("value", ["a\x00", "\ud800"])
def test_a_filter_by_what_no_database_takes_finds_nothing_or_is_refused(
    database: str, value: str
) -> None:
    fill(database)
    with open_corpus(database) as corpus:
        try:
            assert corpus.search("walrus", where={"document": value}).hits == ()
        except InputError as error:
            assert not error.retryable


def test_a_filter_by_a_time_that_no_file_has_finds_nothing(database: str) -> None:
    fill(database)
    with open_corpus(database) as corpus:
        assert corpus.search("walrus", where={"modified": {"gt": "9999-01-01"}}).hits == ()


def test_a_thread_that_meets_an_error_gives_its_connection_back(database: str) -> None:
    with open_corpus(
        database, pool_size=2, pool_overflow=0, pool_timeout_s=5, statement_timeout_s=1
    ) as corpus:
        failures: list[str] = []

        def fail() -> None:
            for _ in range(5):
                try:
                    with corpus._resources.catalog.write() as connection:
                        connection.exec_driver_sql("SELECT * FROM no_such_table")
                except ConflictError:
                    failures.append("conflict")

        threads = [threading.Thread(target=fail) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == ["conflict"] * 10
        corpus.put(doc("a.md", "the walrus sleeps"))


# Without the driver

BLOCKED = """
import sys
from importlib.abc import MetaPathFinder
blocked = sys.argv[1]

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from unspool.interfaces.cli import main
sys.argv = ["unspool", "status", "--database", "postgresql://unspool:hunter2@127.0.0.1:1/app"]
main()
"""


@pytest.mark.parametrize("module", ["psycopg", "pgvector"])
def test_without_the_driver_the_error_holds_the_command_that_installs_it(
    tmp_path: Path, module: str
) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("UNSPOOL_")
    }
    command = [sys.executable, "-c", BLOCKED, module]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert "pip install 'unspool[postgres]'" in done.stderr
    assert (
        done.returncode == MissingDependencyError.exit_code
        and "hunter2" not in done.stdout + done.stderr
        and "Traceback" not in done.stderr
    )
