"""Requests that are not valid: over stdin and over HTTP each gets an answer, and so does the
next one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from services import serving
from support import doc, open_corpus, settings_for

Ask = Callable[[bytes], Any]
PING = b'{"jsonrpc":"2.0","id":"next","method":"ping"}'
INVALID = {
    "an integer of 5,001 digits": (7, b"9" * 5_001),
    "deep nesting": (7, b"[" * 100_000 + b"]" * 100_000),
    "bytes that are not UTF-8": (7, b'"\xff\xfe"'),
    "a lone surrogate": (7, b'"\\ud800"'),
}
ODD = {
    "NaN": b"NaN",
    "infinity": b"1e999",
    "a large integer": b"9" * 4_000,
    "8 MB": b'"' + b"x" * 8_000_000 + b'"',
}


def call(limit: bytes, id_: bytes = b"7") -> bytes:
    arguments = b'{"query":"walrus","limit":' + limit + b"}"
    params = b'{"name":"search","arguments":' + arguments + b"}"
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"method":"tools/call","params":' + params + b"}"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("invalid") / "catalog.db"
    with open_corpus(place) as corpus:
        corpus.put(doc("a.md", "walrus"))
    return place


@contextmanager
def asking_stdio(catalog: Path) -> Iterator[Ask]:
    """A process that reads lines; the answer to each is the next line that it writes."""
    database = f"sqlite:///{catalog}"
    command = [sys.executable, "-m", "unspool", "mcp", "--database", database]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=catalog.parent, **pipes) as process:  # type: ignore[call-overload]

        def ask(line: bytes) -> Any:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        client = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        ask(
            json.dumps(
                {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            ).encode()
        )
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield ask
        process.stdin.close()
        assert process.wait(20) == 0


@contextmanager
def asking_http(catalog: Path, version: str) -> Iterator[Ask]:
    """A service; the answer is the body of a response, as it is or as an event."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
    }
    with serving(settings_for(catalog)) as address, httpx2.Client(timeout=30) as client:

        def ask(line: bytes) -> Any:
            answer = client.post(f"{address}/mcp", content=line, headers=headers)
            assert answer.status_code < 500
            text = answer.text
            return json.loads(text.split("data: ")[1] if text.startswith("event:") else text)

        yield ask


@pytest.fixture(scope="module", params=["stdio", "2025-06-18", "2026-07-28"])
def ask(catalog: Path, request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Each transport, and over HTTP each of the two protocols."""
    over_stdio = request.param == "stdio"
    with asking_stdio(catalog) if over_stdio else asking_http(catalog, request.param) as found:
        yield found


@pytest.mark.parametrize("name", INVALID)
def test_an_argument_that_cannot_be_parsed_is_an_error_with_the_id_of_the_request(
    ask: Ask, name: str
) -> None:
    id_, argument = INVALID[name]
    answer = ask(call(argument))
    assert (answer["id"], answer["error"]["code"]) == (id_, -32700)
    assert ask(PING)["id"] == "next"


@pytest.mark.parametrize("name", ODD)
def test_an_argument_that_makes_no_sense_is_answered_too(ask: Ask, name: str) -> None:
    assert ask(call(ODD[name]))["id"] == 7
    assert ask(PING)["id"] == "next"


@pytest.mark.parametrize(
    "line",
    [
        call(b"1", id_=b"9" * 5_001),
        call(b"1", id_=b"null"),
        call(b"1", id_=b"1.5"),
        b"[" + call(b"1") + b"]",
        b'{"jsonrpc":"2.0",',
    ],
    ids=["huge id", "null", "fraction", "batch", "cut"],
)
def test_a_message_without_an_id_that_can_be_read_is_an_error_without_one(
    ask: Ask, line: bytes
) -> None:
    answer = ask(line)
    assert answer["id"] is None
    assert answer["error"]["code"] in (-32600, -32700)
    assert ask(PING)["id"] == "next"


def test_a_line_of_fifty_megabytes_is_answered(catalog: Path) -> None:
    with asking_stdio(catalog) as ask:
        assert ask(call(b'"' + b"x" * 50_000_000 + b'"'))["id"] == 7
        assert ask(PING)["id"] == "next"
