"""The server that docker-compose.yml starts: reachable from its own machine alone, healthy only
with the extension, and no password in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import yaml
from documentation import ROOT

from servers import PostgresServer
from unspool.catalog.postgres_server import GOOD_PGVECTOR, MIN_SERVER

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICE: dict[str, Any] = COMPOSE["services"]["postgres"]
INIT = (ROOT / "docker" / "postgres" / "init.sql").read_text(encoding="utf-8")


def health_query() -> str:
    """What the health check asks, as psql gets it."""
    (command,) = [part for part in SERVICE["healthcheck"]["test"] if part.startswith("--command=")]
    return str(command.removeprefix("--command="))


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """A database without the extension."""
    address = postgres_server.create_database()
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection
    postgres_server.drop_database(address)


def test_the_health_check_names_the_extension_and_the_version_that_is_wanted() -> None:
    assert "'vector'" in health_query()
    assert f"ARRAY{list(GOOD_PGVECTOR)}" in health_query()
    assert "--set=ON_ERROR_STOP=1" in SERVICE["healthcheck"]["test"]


def test_the_health_check_fails_without_the_extension_and_passes_once_init_has_run(
    empty: psycopg.Connection[Any],
) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        empty.execute(health_query())
    empty.execute(INIT)
    assert empty.execute(health_query()).fetchall() == [(1,)]
    empty.execute(INIT)  # a second time is no error


@pytest.mark.parametrize(
    ("version", "healthy"),
    [
        ("0.7.4", False),
        ("0.8.0", False),
        ("0.8.3", False),
        ("0.8.4", True),
        ("0.8.10", True),
        ("1.0.0", True),
    ],
)
def test_the_health_check_knows_old_versions(
    empty: psycopg.Connection[Any], version: str, healthy: bool
) -> None:
    table = f"(VALUES ('vector', '{version}')) AS installed (extname, extversion)"
    query = health_query().replace("FROM pg_extension", f"FROM {table}")
    if healthy:
        assert empty.execute(query).fetchall() == [(1,)]
    else:
        with pytest.raises(psycopg.errors.DivisionByZero):
            empty.execute(query)


def test_the_server_is_new_enough_and_only_this_machine_reaches_it() -> None:
    found = re.fullmatch(r"pgvector/pgvector:pg(\d+)", SERVICE["image"])
    assert found is not None
    assert int(found[1]) * 10_000 >= MIN_SERVER
    assert all(port.startswith("127.0.0.1:") for port in SERVICE["ports"])


def test_the_data_outlive_the_container() -> None:
    (mounted,) = [
        volume for volume in SERVICE["volumes"] if volume.partition(":")[0] in COMPOSE["volumes"]
    ]
    assert mounted.partition(":")[2] == "/var/lib/postgresql"
    assert any(
        volume.startswith("./docker/postgres/init.sql:/docker-entrypoint-initdb.d/")
        for volume in SERVICE["volumes"]
    )


def test_the_password_is_asked_for_and_not_in_the_file() -> None:
    assert re.fullmatch(r"\$\{\w+:\?[^}]*\}", SERVICE["environment"]["POSTGRES_PASSWORD"])
