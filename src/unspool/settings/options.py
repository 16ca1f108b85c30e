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
    port: int = option(8765, "port of the service; 0 means any free one", low=0, high=65_535)
    workers: int = option(1, "processes that answer requests", low=1, high=64)
    hosts: str = option("", "further host names of the service, separated by commas")
    origins: str = option(
        "", "origins of web pages that may call the service, as https://host, separated by commas"
    )
    max_body_bytes: int = option(10_000_000, "most bytes of a request body", low=1_000, high=2**31)
    timeout_s: int = option(
        30, "time limit of a request, in seconds; streams may take longer", low=1, high=3_600
    )
    drain_s: int = option(
        10,
        "time for requests to finish when the service stops, in seconds",
        low=0,
        high=3_600,
    )
    queue: int = option(
        256,
        "requests that a process accepts at once, waiting ones included; more are refused",
        low=1,
        high=100_000,
    )
    rate_limit: int = option(
        600,
        "limit of requests per minute and key; 0 means no limit",
        low=0,
        high=10_000_000,
        variable="UNSPOOL_RATE_LIMIT",
    )
    roots: str = option(
        "",
        "folders that HTTP and MCP callers may index, separated as in PATH; empty means none",
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
        "token budget of a tool result for an agent",
        low=200,
        high=10_000,
        from_folder=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Level and format of the log, and the destination of traces."""

    level: str = option(
        "info", "lowest level of log messages", choices=("debug", "info", "warning", "error")
    )
    format: str = option(
        "text", "format of the log; json: one object per line", choices=("text", "json")
    )
    slow_query_ms: int = option(
        1_000,
        "searches that take longer are logged as warnings, in milliseconds",
        low=0,
        high=3_600_000,
        variable="UNSPOOL_SLOW_QUERY_MS",
    )
    traces: str = option(
        "",
        "address for OpenTelemetry traces, such as http://localhost:4318; empty means none",
        variable="UNSPOOL_TRACES",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Key of a client."""

    key: str = option("", "key of a client of a service", secret=True)
