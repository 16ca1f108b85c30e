"""Clients that leave early: in the middle of a body, or before the answer.

Neither is a bug of the service.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitoring import eventually
from services import WAIT_S, serving
from support import beside, doc, open_corpus, settings_for

JSON = b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
GONE = "499"  # the status that proxies use for this


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.db"
    with open_corpus(path) as corpus:
        corpus.put(doc("a.md", "walrus"))
    return path


@pytest.fixture
def address(place: Path) -> Iterator[str]:
    with serving(settings_for(place), log_level="debug") as found:
        yield found


def leave(address: str, *pieces: bytes, is_reset: bool) -> None:
    """Send pieces of a request and close the connection, politely or not."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as line:
        for piece in pieces:
            line.sendall(piece)
        if is_reset:
            eventually(lambda: has_read(line))  # a reset discards what the service has not read
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def has_read(line: socket.socket) -> bool:
    """Return whether the other side has read everything, by the kernel's table of connections
    where there is one.
    """
    table = Path("/proc/net/tcp")
    if not table.exists():
        return True
    ends = [f":{port:04X}" for port in (line.getpeername()[1], line.getsockname()[1])]
    rows = [row.split() for row in table.read_text().splitlines()[1:]]
    waiting = [row[4].partition(":")[2] for row in rows if [row[1][-5:], row[2][-5:]] == ends]
    return all(int(count, 16) == 0 for count in waiting)


def requests(address: str) -> dict[tuple[str, str], int]:
    """The number of requests that have ended, by route and status."""
    text = httpx2.get(f"{address}/metrics").text
    found: dict[tuple[str, str], int] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "unspool_http_requests_total":
                found[sample.labels["route"], sample.labels["status"]] = int(sample.value)
    return found


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "route", "headers"),
    [
        ("POST", "/v1/search", "/v1/search", b""),
        (
            "PUT",
            "/v1/projects/notes/documents/b.md",
            "/v1/projects/{project}/documents/{path:path}",
            b"",
        ),
        ("POST", "/v1/ask", "/v1/ask", b""),
        ("POST", "/mcp", "/mcp", b""),
        ("POST", "/mcp", "/mcp", b"MCP-Protocol-Version: 2025-06-18\r\n"),
        ("POST", "/mcp", "/mcp", b"MCP-Protocol-Version: 2026-07-28\r\n"),
    ],
)
def test_a_client_that_leaves_in_the_middle_of_its_body_is_not_a_bug(
    address: str,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    route: str,
    headers: bytes,
    is_reset: bool,
) -> None:
    before = requests(address)
    line = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
    begin = line + JSON + headers + b"Content-Length: 10000\r\n\r\n"
    leave(address, begin, b'{"query": "wal', is_reset=is_reset)
    eventually(lambda: (route, GONE) in requests(address))
    after = {key: count for key, count in requests(address).items() if key not in before}
    assert {key for key in after if key[0] != "/metrics"} == {(route, GONE)}
    assert errors(caplog) == []
    assert httpx2.get(f"{address}/v1/projects").status_code == 200


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_leaves_before_the_answer_is_not_a_bug(
    address: str, place: Path, caplog: pytest.LogCaptureFixture, is_reset: bool
) -> None:
    """A writer that locks the catalog keeps the request waiting.

    A request that was read is completed, and nobody hears of its end.
    """
    route = "/v1/projects/{project}/documents/{path:path}"
    body = b'{"text": "x"}'
    begin = b"PUT /v1/projects/notes/documents/b.md HTTP/1.1\r\nHost: localhost\r\n" + JSON
    with beside(place) as other:
        other.run("BEGIN IMMEDIATE")
        leave(address, begin, b"Content-Length: %d\r\n\r\n" % len(body), body, is_reset=is_reset)
        other.run("ROLLBACK")
    eventually(lambda: any(one == route for one, _ in requests(address)))
    assert {status for _, status in requests(address)} <= {"200", GONE}
    assert errors(caplog) == []


@pytest.mark.parametrize("version", [b"2025-06-18", b"2026-07-28"])
def test_an_agent_that_leaves_before_the_answer_is_not_a_bug(
    address: str, place: Path, caplog: pytest.LogCaptureFixture, version: bytes
) -> None:
    meta = b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
    arguments = b'{"text":"The owl moved in.","project":"notes"}'
    params = b'{"name":"remember","arguments":' + arguments + b"," + meta + b"}"
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}"
    begin = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nMCP-Protocol-Version: " + version + b"\r\n"
    named = b"MCP-Method: tools/call\r\nMCP-Name: remember\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    with beside(place) as other:
        other.run("BEGIN IMMEDIATE")
        leave(address, begin + JSON + named + length, body, is_reset=False)
        eventually(lambda: any(route == "/mcp" for route, _ in requests(address)))
        other.run("ROLLBACK")
    assert not any(status.startswith("5") for _, status in requests(address))
    assert errors(caplog) == []
