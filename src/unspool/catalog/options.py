"""Options of the catalog."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.domain.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """Addresses of the catalog, and the pool and time limits of connections to a server.

    A SQLite file uses the address alone.
    """

    address: str = option(
        "",
        "address of the catalog; empty means sqlite in the user's data folder",
        variable="UNSPOOL_DATABASE",
    )
    read_address: str = option(
        "",
        "address of a read replica that searches go to; their continuations carry the ranking",
        variable="UNSPOOL_DATABASE_READ",
    )
    pool_size: int = option(
        8,
        "open connections to a database server, and concurrent searches there",
        low=1,
        high=1_000,
    )
    pool_overflow: int = option(
        24, "connections beyond the pool, closed after use", low=0, high=1_000
    )
    pool_timeout_s: int = option(
        30, "time limit for a free connection, in seconds", low=1, high=3_600
    )
    pool_recycle_s: int = option(
        1_800, "age at which a connection is replaced, in seconds", low=1, high=7 * 86_400
    )
    pool_pre_ping: bool = option(
        True,
        "on: test a connection before use, so that a restart of the server causes no error",
    )
    connect_timeout_s: int = option(
        10, "time limit for connecting to a database server, in seconds", low=1, high=600
    )
    statement_timeout_s: int = option(
        60,
        "time limit of a statement, in seconds; building an index may take longer",
        low=1,
        high=86_400,
    )
