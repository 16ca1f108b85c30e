"""What the PostgreSQL engine decides without a server: addresses, the errors that a driver's
errors stand for, types and lists.
"""

from __future__ import annotations

import pytest

from unspool.errors import (
    AddressError,
    ConfigError,
    ConflictError,
    InputError,
    NotFoundError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)
from unspool.index.options import Metric, VectorOptions

psycopg = pytest.importorskip(
    "psycopg", reason="psycopg is not installed; pip install 'unspool[postgres]'"
)
postgres = pytest.importorskip("unspool.catalog.postgres")
postgres_server = pytest.importorskip("unspool.catalog.postgres_server")
postgres_errors = pytest.importorskip("unspool.catalog.postgres_errors")
tables = pytest.importorskip("unspool.index.postgres.tables")

# Addresses


@pytest.mark.parametrize(
    ("address", "place", "schema"),
    [
        ("postgresql://db/app", "postgresql://db/app", "unspool"),
        ("postgres://me:hunter2@db:5433/app", "postgresql://db:5433/app", "unspool"),
        (
            "postgresql+psycopg://me:hunter2@db/app?schema=other",
            "postgresql://db/app?schema=other",
            "other",
        ),
        (
            "postgresql://me:hunter2@db/app?sslmode=require&schema=a_1",
            "postgresql://db/app?schema=a_1",
            "a_1",
        ),
        (
            "postgresql://me:p%40ss%2Fhunter2@db/app?password=hunter2",
            "postgresql://db/app",
            "unspool",
        ),
        (
            "postgresql:///app?host=/var/run/postgresql",
            "postgresql:///var/run/postgresql/app",
            "unspool",
        ),
        ("postgresql:///app", "postgresql://localhost/app", "unspool"),
    ],
)
def test_an_address_names_a_server_a_database_and_a_schema(
    address: str, place: str, schema: str
) -> None:
    target = postgres_server.parse_address(address)
    assert (target.place, target.schema) == (place, schema)
    assert postgres.describe_place(address) == place
    assert "schema" not in target.url.query
    # SQLAlchemy hides its own, not that of an option
    assert "hunter2" not in repr(target) or "password" in target.url.query


@pytest.mark.parametrize(
    "schema", ["Upper", "1st", "a-b", "a.b", 'a"b', "a b", "ä", "a" * 64, "a;drop"]
)
def test_a_schema_that_is_not_a_plain_name_is_refused(schema: str) -> None:
    with pytest.raises(AddressError, match="schema"):
        postgres_server.parse_address(
            f"postgresql://me:hunter2@db/app?schema={schema.replace(';', '%3B')}"
        )


def test_another_schema_of_the_same_database_keeps_everything_else() -> None:
    address = postgres_server.replace_schema(
        "postgresql://me:hunter2@db:5433/app?sslmode=require&schema=a", "b"
    )
    target = postgres_server.parse_address(address)
    assert (
        target.schema == "b"
        and target.url.password == "hunter2"
        and dict(target.url.query) == {"sslmode": "require"}
    )


# Errors


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("28P01", RejectedError),
        ("28000", RejectedError),
        ("3D000", NotFoundError),
        ("42501", RejectedError),
        ("53100", ServiceError),
        ("53200", ServiceError),
        ("53300", UnreachableError),
        ("57014", ServiceTimeoutError),
        ("57P01", UnreachableError),
        ("57P03", UnreachableError),
        ("08006", UnreachableError),
        ("55P03", ServiceTimeoutError),
        ("40P01", ConflictError),
        ("40001", ConflictError),
        ("23505", ConflictError),
        ("25006", ServiceError),
        ("0A000", ServiceError),
        ("42P01", ConflictError),
        ("42703", ConflictError),
        ("22021", InputError),
        ("XX000", ServiceError),
    ],
)
def test_each_state_of_the_server_stands_for_one_of_our_errors(
    state: str, kind: type[UnspoolError]
) -> None:
    error = psycopg.errors.lookup(state)("what was stored: hunter2")
    found = postgres_errors.translate_error(
        error, postgres_server.parse_address("postgresql://me:hunter2@db/app").place
    )
    assert type(found) is kind
    assert "hunter2" not in str(found) and "postgresql://db/app" in str(found)


@pytest.mark.parametrize(
    ("state", "word"), [("53100", "full"), ("53200", "memory"), ("25006", "read-only")]
)
def test_what_an_operator_has_to_mend_is_named(state: str, word: str) -> None:
    found = postgres_errors.translate_error(
        psycopg.errors.lookup(state)(""), postgres_server.parse_address("postgresql://db/app").place
    )
    assert word in str(found) and not found.retryable and found.exit_code == 3


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('FATAL:  password authentication failed for user "me"', RejectedError),
        ("fe_sendauth: no password supplied", RejectedError),
        (
            (
                'FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "me", database "app", no '
                "encryption"
            ),
            RejectedError,
        ),
        ('FATAL:  role "me" does not exist', RejectedError),
        ('FATAL:  database "app" does not exist', NotFoundError),
        (
            (
                'FATAL:  permission denied for database "app"\nDETAIL:  User does not have CONNECT '
                "privilege."
            ),
            RejectedError,
        ),
        ('FATAL:  too many connections for role "me"', UnreachableError),
        ('FATAL:  too many connections for database "app"', UnreachableError),
        ("FATAL:  sorry, too many clients already", UnreachableError),
        (
            (
                "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER "
                "attribute"
            ),
            UnreachableError,
        ),
        ("FATAL:  the database system is starting up", UnreachableError),
        ("FATAL:  the database system is shutting down", UnreachableError),
        ("connection refused", UnreachableError),
        ("server closed the connection unexpectedly", UnreachableError),
        ('invalid connection option "nonsense"', AddressError),
        ('invalid sslmode value: "perhaps"', AddressError),
    ],
)
def test_what_the_driver_says_while_it_connects_stands_for_one_of_our_errors(
    text: str, kind: type[UnspoolError]
) -> None:
    found = postgres_errors.translate_error(
        psycopg.OperationalError(text),
        postgres_server.parse_address("postgresql://me:hunter2@db/app").place,
    )
    assert type(found) is kind and "hunter2" not in str(found)


# Vectors


@pytest.mark.parametrize(
    ("dimension", "wanted", "kind"),
    [
        (256, "auto", "vector"),
        (2_000, "auto", "vector"),
        (2_001, "auto", "halfvec"),
        (256, "halfvec", "halfvec"),
        (3_000, "vector", "vector"),
    ],
)
def test_vectors_are_kept_as_asked_or_so_that_an_index_takes_them(
    dimension: int, wanted: str, kind: str
) -> None:
    assert tables.choose_type(dimension, VectorOptions(type=wanted)) == kind


@pytest.mark.parametrize("wanted", ["auto", "vector", "halfvec"])
def test_more_dimensions_than_a_column_takes_are_refused(wanted: str) -> None:
    with pytest.raises(ConfigError, match="16000"):
        tables.choose_type(16_001, VectorOptions(type=wanted))


@pytest.mark.parametrize(
    ("rows", "given", "lists"),
    [(0, 0, 10), (50_000, 0, 50), (1_000_000, 0, 1_000), (4_000_000, 0, 2_000), (50_000, 7, 7)],
)
def test_an_ivfflat_index_gets_as_many_lists_as_its_size_asks_for(
    rows: int, given: int, lists: int
) -> None:
    assert tables.choose_lists(VectorOptions(ivfflat_lists=given), rows) == lists


@pytest.mark.parametrize("metric", list(Metric))
def test_an_index_is_made_for_the_operator_that_a_search_uses(metric: Metric) -> None:
    table = tables.VectorTable(space_id=1, type="halfvec", dimension=256)
    made = table.build_index_sql(
        "vectors_1", 7, VectorOptions(metric=metric, hnsw_m=40, hnsw_ef_construction=50), 100
    )
    # pgvector wants at least twice m
    assert f"halfvec_{metric.value}_ops" in made and "m = 40, ef_construction = 80" in made
    assert {Metric.COSINE: "<=>", Metric.L2: "<->", Metric.INNER: "<#>"}[metric] == tables.OPERATOR[
        metric
    ]
