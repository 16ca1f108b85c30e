"""A hostile folder through every door: nothing is sent anywhere until the user trusts it.

And the command `trust`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result
from test_cli_json import compare

import unspool
from services import WAIT_S
from support import doc
from unspool import aio
from unspool.interfaces.cli import main

SECRET = "hunter2hunter2"


class Listener:
    """A server on the loopback that counts connections and closes each one at once."""

    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, written by somebody else.

    The user's catalog, at its default place, has a private project.
    """
    for name in [name for name in os.environ if name.startswith("UNSPOOL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with unspool.open() as corpus:
        corpus.put(doc("diary.md", f"The diary of the walrus: {SECRET}", project="private"))
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "readme.md").write_text("# Readme\n\nWhere does the walrus live?\n")
    monkeypatch.chdir(folder)
    return folder


ATTACKS = {
    "answer": {
        "answer_model": "openai:m",
        "answer_url": "http://{}/v1",
        "answer_retries": "0",
        "project": "private",
    },
    "embedder": {
        "embedder": "openai:m",
        "embedder_url": "http://{}/v1",
        "embedder_retries": "0",
        "embedder_dimension": "8",
    },
    "database": {"database": "postgresql://me@{}/x", "connect_timeout_s": "2"},
    "service": {"database": "http://{}"},
    "replica": {"database_read": "postgresql://me@{}/x", "connect_timeout_s": "2"},
    "cache": {"cache": "redis://{}/0"},
}
FILES = {name: ("unspool.toml", ".env")[number % 2] for number, name in enumerate(ATTACKS)}
COMMANDS = (
    ["index", "."],
    ["search", "walrus"],
    ["search", "walrus", "."],
    ["ask", "where does the walrus live?"],
    ["status"],
)


def plant(folder: Path, attack: str, listener: Listener) -> set[str]:
    """Write a settings file; returns the names of the settings in it."""
    file = FILES[attack]
    if attack == "embedder":  # another embedder is only used for a new catalog
        shutil.rmtree(folder.parent / "data")
    values = {name: value.format(listener.place) for name, value in ATTACKS[attack].items()}
    lines = [
        f"UNSPOOL_{name.upper()}={value}" if file == ".env" else f'{name} = "{value}"'
        for name, value in values.items()
    ]
    (folder / file).write_text("\n".join(lines) + "\n")
    return set(values)


def run(*arguments: str, **variables: str) -> Result:
    """Run a command in this process."""
    return CliRunner(env=variables).invoke(main, arguments, prog_name="unspool")


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_connects_to_an_address_of_the_folder(
    hostile: Path, listener: Listener, attack: str
) -> None:
    names = plant(hostile, attack, listener)
    for command in COMMANDS:
        result = run(*command, "--json")
        assert result.exit_code == 0, result.output
        assert all(isinstance(json.loads(line), dict) for line in result.stdout.splitlines())
        warnings = [
            line
            for line in result.stderr.splitlines()
            if line.startswith("warning: settings of this folder are ignored")
        ]
        assert (
            len(warnings) == 1
            and all(name in warnings[0] for name in names)
            and f"unspool trust {hostile}" in warnings[0]
        )
    assert listener.connections == 0


@pytest.mark.parametrize(
    ("attack", "command"),
    [
        ("answer", ["ask", "where does the walrus live?"]),
        ("embedder", ["index", "."]),
        ("database", ["status"]),
        ("replica", ["search", "walrus"]),
    ],
)
def test_the_same_address_is_used_once_the_user_trusts_the_folder(
    hostile: Path, listener: Listener, attack: str, command: list[str]
) -> None:
    plant(hostile, attack, listener)
    run("trust")
    run(*command)
    assert listener.connections > 0


@pytest.mark.parametrize("attack", ["answer", "embedder", "database"])
def test_the_module_as_a_program_connects_nowhere(
    hostile: Path, listener: Listener, attack: str
) -> None:
    plant(hostile, attack, listener)
    command = [sys.executable, "-m", "unspool", "ask", "where does the walrus live?", "."]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0 and done.stderr.count("settings of this folder are ignored") == 1
    assert listener.connections == 0


def speak(messages: Sequence[dict[str, Any]], **variables: str) -> tuple[list[dict[str, Any]], str]:
    """Start `unspool mcp` in the current folder and send messages; returns the answers, and
    stderr.
    """
    about = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "unspool", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    with started:
        assert (
            started.stdin is not None and started.stdout is not None and started.stderr is not None
        )
        answers = []
        sent: list[dict[str, Any]] = [
            {"id": 0, "method": "initialize", "params": about},
            {"method": "notifications/initialized"},
            *messages,
        ]
        for message in sent:
            started.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            started.stdin.flush()
            if "id" in message:
                answers.append(json.loads(started.stdout.readline()))
        started.stdin.close()
        assert started.stdout.read() == ""
        return answers[1:], started.stderr.read()


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.parametrize("attack", ["answer", "embedder", "database"])
def test_a_server_for_agents_connects_nowhere(
    hostile: Path, listener: Listener, attack: str
) -> None:
    plant(hostile, attack, listener)
    answers, said = speak([call("index", path="."), call("search", query="walrus")])
    assert [answer["result"].get("isError", False) for answer in answers] == [False, False]
    assert said.count("settings of this folder are ignored") == 1
    assert listener.connections == 0


def test_a_folder_does_not_widen_what_an_agent_may_index(hostile: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text("# Private\n")
    (hostile / "unspool.toml").write_text(f'roots = "{tmp_path}"\n')
    (answer,), said = speak([call("index", path=str(outside))])
    assert answer["result"]["isError"] and "outside" in json.dumps(answer) and "roots" in said
    (answer,), said = speak([call("index", path=str(outside))], UNSPOOL_TRUST=str(hostile))
    assert not answer["result"].get("isError", False) and said == ""


@contextmanager
def serve(*flags: str, **variables: str) -> Iterator[tuple[str, list[str]]]:
    """Run `unspool serve` in the current folder; yields its address and what it writes to
    stderr, all of it at the end.
    """
    command = [sys.executable, "-m", "unspool", "serve", "--port", "0", *flags]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    ) as started:
        assert started.stderr is not None
        said = []
        try:
            while not said or "listening on " not in said[-1]:
                said.append(started.stderr.readline())
                assert said[-1], said
            yield said[-1].split("listening on ")[1].partition(",")[0], said
        finally:
            started.terminate()
            said += started.stderr.readlines()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_follows_the_same_rule(
    hostile: Path, listener: Listener, tmp_path: Path, workers: str
) -> None:
    values = {
        **ATTACKS["embedder"],
        **ATTACKS["answer"],
        "roots": "/",
        "serve_host": "0.0.0.0",
        "git_hosts": "*",
        "traces": "http://{}",
    }
    (hostile / "unspool.toml").write_text(
        "".join(f'{name} = "{value.format(listener.place)}"\n' for name, value in values.items())
    )
    with (
        serve("--workers", workers) as (address, said),
        httpx2.Client(base_url=address, timeout=WAIT_S) as client,
    ):
        assert address.startswith("http://127.0.0.1:")
        found = client.post("/v1/search", json={"query": "walrus"})
        assert found.status_code == 200 and SECRET in found.text
        assert (
            client.post("/v1/projects/x/index", json={"source": str(tmp_path)}).status_code == 403
        )
    (line,) = [one for one in said if "settings of this folder are ignored" in one]
    assert all(name in line for name in values)
    assert listener.connections == 0


def test_every_process_of_a_service_uses_the_settings_it_was_started_with(
    hostile: Path, tmp_path: Path
) -> None:
    place = f"sqlite:///{tmp_path}/own.db"
    with unspool.open(place) as corpus:
        corpus.put(doc("a.md", "The otter", project="own"))
    (hostile / "unspool.toml").write_text(f'database = "{place}"\n')
    with (
        serve("--workers", "2", UNSPOOL_TRUST=str(hostile)) as (address, _),
        httpx2.Client(base_url=address, timeout=WAIT_S) as client,
    ):
        assert [one["name"] for one in client.get("/v1/projects").json()["projects"]] == ["own"]


# The command


def test_trust_shows_the_settings_and_lets_them_count(hostile: Path) -> None:
    (hostile / "unspool.toml").write_text(
        f'project = "private"\nanswer_key = "{SECRET}"\nlimit = 3\n'
    )
    (hostile / ".env").write_text("UNSPOOL_LIMIT=4\nOTHER=1\n")
    shown = run("trust", "--dry-run", "--json")
    assert shown.exit_code == 0 and not json.loads(shown.stdout)["trusted"]
    assert json.loads(run("status", "--json").stdout) and "project" in run("status").stderr
    done = run("trust")
    assert (
        done.exit_code == 0 and "private" in done.stdout and SECRET not in done.stdout + done.stderr
    )
    assert json.loads(shown.stdout)["settings"] == [
        {"name": "limit", "value": "4", "file": ".env", "state": "applies"},
        {"name": "project", "value": "private", "file": "unspool.toml", "state": "applies"},
        {"name": "answer_key", "value": "***", "file": "unspool.toml", "state": "applies"},
        {"name": "limit", "value": "3", "file": "unspool.toml", "state": "overridden by .env"},
    ]
    settings = json.loads(run("settings", "--json").stdout)
    rows = {row["name"]: (row["value"], row["origin"]) for row in settings["settings"]}
    assert (rows["project"], rows["limit"], settings["ignored"]) == (
        ("private", "unspool.toml"),
        ("4", ".env"),
        [],
    )
    assert run("status").stderr == ""


def test_json_is_as_documented(hostile: Path) -> None:
    (hostile / "unspool.toml").write_text('project = "private"\n')
    ignored = json.loads(run("settings", "--json").stdout)
    compare("settings", ignored)
    trusted, listed, revoked = (
        json.loads(run("trust", *flags, "--json").stdout)
        for flags in ([], ["--list"], ["--revoke"])
    )
    compare("trust", trusted, listed, revoked)


def test_a_changed_file_has_to_be_trusted_again(hostile: Path) -> None:
    (hostile / "unspool.toml").write_text('project = "private"\n')
    assert run("trust", str(hostile)).exit_code == 0
    assert json.loads(run("trust", "--list", "--json").stdout)["folders"][0]["state"] == "trusted"
    (hostile / "unspool.toml").write_text('project = "other"\n')
    assert "project" in run("status").stderr
    (one,) = json.loads(run("trust", "--list", "--json").stdout)["folders"]
    assert (one["folder"], one["state"]) == (str(hostile), "changed")
    assert run("trust").exit_code == 0 and run("status").stderr == ""
    assert run("trust", "--revoke").exit_code == 0
    assert "project" in run("status").stderr
    assert run("trust", "--revoke").exit_code == 1
    assert json.loads(run("trust", "--list", "--json").stdout)["folders"] == []


def test_a_folder_that_was_deleted_can_be_revoked(hostile: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".env").write_text("UNSPOOL_PROJECT=x\n")
    assert run("trust", str(other)).exit_code == 0
    (other / ".env").unlink()
    other.rmdir()
    assert json.loads(run("trust", "--list", "--json").stdout)["folders"][0]["state"] == "missing"
    assert run("trust", "--revoke", str(other)).exit_code == 0


def test_what_cannot_be_trusted_is_refused_and_not_stored(hostile: Path) -> None:
    assert run("trust").exit_code == 1  # no files
    assert run("trust", "no/such/folder").exit_code == 1
    assert run("trust", "--list", "--revoke").exit_code == 2
    for content, says in (
        (b"limt = 5\n", "did you mean 'limit'"),
        (b"\xff", "not UTF-8"),
        (b"#" * 20_000, "larger than"),
    ):
        (hostile / "unspool.toml").write_bytes(content)
        done = run("trust", "--json")
        assert done.exit_code == 2 and says in json.loads(done.stdout)["error"]["message"]
    assert json.loads(run("trust", "--list", "--json").stdout)["folders"] == []


def test_a_key_of_the_user_that_would_go_to_an_address_of_the_folder_is_named(
    hostile: Path,
) -> None:
    (hostile / "unspool.toml").write_text(
        'answer_model = "openai:m"\nanswer_url = "http://127.0.0.1:9/v1"\n'
    )
    done = run("trust", UNSPOOL_ANSWER_KEY=SECRET)
    assert (
        done.exit_code == 0
        and "answer_key" in done.stderr
        and SECRET not in done.stdout + done.stderr
    )
    assert "answer_key" not in run("trust").stderr


def test_settings_and_doctor_show_what_is_ignored(hostile: Path) -> None:
    (hostile / "unspool.toml").write_text(f'answer_url = "http://h/v1"\nanswer_key = "{SECRET}"\n')
    ignored = json.loads(run("settings", "--json").stdout)["ignored"]
    assert [(one["name"], one["value"], one["file"]) for one in ignored] == [
        ("answer_url", "http://h/v1", "unspool.toml"),
        ("answer_key", "***", "unspool.toml"),
    ]
    assert "not trusted" in run("settings").stdout
    done = run("doctor", "--json")
    (check,) = [
        one for one in json.loads(done.stdout)["checks"] if one["name"] == "folder settings"
    ]
    assert done.exit_code == 0 and "answer_url" in check["detail"] and str(hostile) in check["cure"]


@pytest.mark.anyio
async def test_an_async_program_can_trust_the_folder(hostile: Path) -> None:
    (hostile / "unspool.toml").write_text('project = "private"\n')
    async with aio.open(trust_folder=True) as corpus:
        assert corpus.settings.project == "private"
    with pytest.warns(unspool.UntrustedFolderWarning):
        async with aio.open() as corpus:
            assert corpus.settings.project == ""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
