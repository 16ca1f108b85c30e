"""Options of the doors: the service, the MCP server, the log and the client."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.domain.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Address, callers and limits of the service."""

    host: str = option(
        "127.0.0.1", "address that `serve` listens on; any but the loopback needs keys"
    )
    port: int = option(8765, "its port; 0 means any free one", low=0, high=65_535)
    workers: int = option(1, "processes that answer requests", low=1, high=64)
    hosts: str = option(
        "", "names that the service is called by, besides its own address; separated by commas"
    )
    origins: str = option("", "web pages that may call it, as https://host; separated by commas")
    max_body_bytes: int = option(10_000_000, "what a request may send", low=1_000, high=2**31)
    timeout_s: int = option(
        30, "how long a request may take, in seconds; streams may take longer", low=1, high=3_600
    )
    drain_s: int = option(
        10,
        "how long requests may take to end when the service is told to stop, in seconds",
        low=0,
        high=3_600,
    )
    queue: int = option(
        256,
        "requests that a process works on or keeps waiting; more are refused",
        low=1,
        high=100_000,
    )
    rate_limit: int = option(
        600,
        "requests a minute that a key may make; 0 means no bound",
        low=0,
        high=10_000_000,
        variable="UNSPOOL_RATE_LIMIT",
    )
    roots: str = option(
        "",
        "folders of which the doors may index something, separated as in PATH; empty means none",
        variable="UNSPOOL_ROOTS",
    )
    git_hosts: str = option(
        "",
        "hosts that the service may fetch repositories from, separated by commas; empty means "
        "none, * means any",
        variable="UNSPOOL_GIT_HOSTS",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """Size of what a tool answers."""

    max_tokens: int = option(
        4_000,
        "token budget of what a tool answers to an agent",
        low=200,
        high=10_000,
        from_folder=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Level and format of the log, and the destination of traces."""

    level: str = option(
        "info", "what the service writes to its log", choices=("debug", "info", "warning", "error")
    )
    format: str = option("text", "json: one object per line", choices=("text", "json"))
    slow_query_ms: int = option(
        1_000,
        "a search that takes longer is logged as a warning, in milliseconds",
        low=0,
        high=3_600_000,
        variable="UNSPOOL_SLOW_QUERY_MS",
    )
    traces: str = option(
        "",
        "where OpenTelemetry traces go, such as http://localhost:4318; empty means nowhere",
        variable="UNSPOOL_TRACES",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Key of a client."""

    key: str = option("", "the key that a client shows to a service", secret=True)
