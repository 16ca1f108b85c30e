"""The process of `unspool mcp` and a client that behaves badly: one that says odd things, goes
away, or is stopped. Line by line, without the SDK.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support import doc, open_corpus, write
from tasks import has_ended, until

WAIT_S = 60.0  # only a test that fails waits as long
CURRENT, PREVIOUS = "2026-07-28", "2025-11-25"
OF_OTHERS = (
    "vscode-remote://ssh-remote+box/home/me",
    "untitled:x",
    "file://elsewhere/srv",
    "http://[",
    "file:///a%00b",
    "file:work",
    "",
)
INTERRUPTED = -signal.SIGINT if sys.platform != "win32" else 0xC000013A


class Wire:
    """A server process and what is written to it and read from it."""

    def __init__(
        self, catalog: Path, *, cwd: Path, protocol: str = PREVIOUS, roots: Any = None
    ) -> None:
        command = [sys.executable, "-m", "unspool", "mcp", "--database", f"sqlite:///{catalog}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd
        )
        self._roots = roots
        about = {"name": "t", "version": "1"}
        capabilities = {} if roots is None else {"roots": {}}
        self._meta: dict[str, Any] = {}
        if protocol == CURRENT:
            said = {
                "protocolVersion": CURRENT,
                "clientInfo": about,
                "clientCapabilities": capabilities,
            }
            self._meta = {
                "_meta": {f"io.modelcontextprotocol/{name}": value for name, value in said.items()}
            }
            return
        self.ask(
            "initialize", protocolVersion=protocol, capabilities=capabilities, clientInfo=about
        )
        self.write({"method": "notifications/initialized"})

    def write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result; a server that asks for roots is told."""
        self.write({"id": 1, "method": method, "params": {**params, **self._meta}})
        answer = self.read()
        if answer.get("method") == "roots/list":
            self.write({"id": answer["id"], "result": self._roots})
            answer = self.read()
        if answer["result"].get("resultType") == "input_required":
            return self.ask(method, **params, inputResponses={"roots": self._roots})
        return answer["result"]  # type: ignore[no-any-return]

    def call(self, tool: str, /, **arguments: Any) -> str:
        return str(self.ask("tools/call", name=tool, arguments=arguments)["content"][0]["text"])

    def ended(self) -> tuple[int, str]:
        """The exit code, and what stood on stderr."""
        code = self.process.wait(WAIT_S)
        assert self.process.stderr is not None
        return code, self.process.stderr.read().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):  # what was written to it is in its buffer still
                stream.close()


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    write(tmp_path / "work", {"session.py": "def open_session(name):\n    return name\n"})
    with open_corpus(tmp_path / "catalog.db") as corpus:
        corpus.put(doc("garden.md", "# Garden\n\nTomatoes want sun.\n", "notes"))
    return tmp_path / "catalog.db"


@pytest.fixture
def wire(catalog: Path) -> Iterator[Wire]:
    opened = Wire(catalog, cwd=catalog.parent)
    yield opened
    opened.close()


@pytest.mark.parametrize("protocol", [CURRENT, PREVIOUS])
def test_a_root_that_is_no_folder_of_this_machine_leaves_the_others(
    catalog: Path, protocol: str
) -> None:
    roots = {"roots": [{"uri": uri} for uri in (*OF_OTHERS, (catalog.parent / "work").as_uri())]}
    wire = Wire(catalog, cwd=catalog.parent, protocol=protocol, roots=roots)
    try:
        assert "1 added" in wire.call("index", path="session.py", project="one")
        refused = wire.call("index", path=str(catalog.parent), project="one")
        assert "forbidden" in refused and refused.endswith(
            f"give a path in {catalog.parent / 'work'}"
        )
    finally:
        wire.close()


@pytest.mark.parametrize(
    "roots",
    [[{"path": "/"}], [{"uri": uri} for uri in OF_OTHERS]],
    ids=["no root", "none of this machine"],
)
def test_a_client_that_says_nothing_of_its_roots_has_nothing_indexed(
    catalog: Path, roots: list[dict[str, str]]
) -> None:
    wire = Wire(catalog, cwd=catalog.parent / "work", roots={"roots": roots})
    try:
        assert "forbidden" in wire.call("index", path="session.py", project="one")
    finally:
        wire.close()


def test_a_folder_that_is_gone_does_not_stop_the_server(catalog: Path) -> None:
    gone = catalog.parent / "gone"
    gone.mkdir()
    wire = Wire(catalog, cwd=gone)
    try:
        shutil.rmtree(gone)
        assert "garden.md" in wire.call("search", query="tomatoes")
        assert "notes" in wire.call("list_projects")
        assert "(bug)" not in wire.call("index", path="x.py")
    finally:
        wire.close()


def test_an_interrupt_ends_the_server_while_stdin_is_open(wire: Wire) -> None:
    """On failure: the thread that reads stdin is waited for, which nobody closes."""
    wire.call("list_projects")
    wire.process.send_signal(signal.SIGINT)
    code, said = wire.ended()
    assert code == INTERRUPTED
    assert said == ""


@pytest.mark.skipif(
    sys.platform == "win32", reason="the git in front of git is a shell script; use a POSIX system"
)
def test_an_interrupt_ends_git_too(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = catalog.parent
    write(
        folder,
        {
            "bin/git": (
                f"#!/bin/sh\necho $$ > {folder}/new; mv {folder}/new {folder}/pid; exec sleep 600\n"
            )
        },
    )
    (folder / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    wire = Wire(catalog, cwd=folder)
    try:
        wire.write(
            {
                "id": 9,
                "method": "tools/call",
                "params": {"name": "index", "arguments": {"path": "https://h.invalid/a.git"}},
            }
        )
        until(lambda: (folder / "pid").exists())
        wire.process.send_signal(signal.SIGINT)
        assert wire.ended()[0] == INTERRUPTED
        assert has_ended(int((folder / "pid").read_text()))
    finally:
        wire.close()


def test_a_client_that_is_gone_is_no_bug(wire: Wire) -> None:
    wire.call("list_projects")
    assert wire.process.stdin is not None and wire.process.stdout is not None
    wire.process.stdout.close()
    wire.write({"id": 2, "method": "tools/list", "params": {}})
    wire.process.stdin.close()
    assert wire.ended() == (0, "")


def test_metrics_that_nobody_can_read_are_not_made(catalog: Path) -> None:
    code = (
        "import sys, atexit; from unspool.interfaces.cli import main\n"
        "atexit.register(lambda: print('prometheus_client' in sys.modules, file=sys.stderr))\n"
        f"main(['mcp', '--database', 'sqlite:///{catalog}'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=catalog.parent,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "False\n")
