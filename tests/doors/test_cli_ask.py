"""`unspool ask`, with a model and without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from test_cli_json import compare

import chats
import unspool
import wire
from models import needed
from unspool.wire import encode

Cli = Callable[..., Result]
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[wire.WireServer]:
    """A server with a model, which the environment names."""
    needed("httpx2", "pip install 'unspool[hosted]'")
    with wire.WireServer() as opened:
        monkeypatch.setenv("UNSPOOL_ANSWER_MODEL", "openai:m")
        monkeypatch.setenv("UNSPOOL_ANSWER_URL", opened.url)
        monkeypatch.setenv("UNSPOOL_ANSWER_KEY", KEY)
        yield opened


def test_an_answer_comes_with_its_sources(cli: Cli, small: Path, server: wire.WireServer) -> None:
    server.says = ("With `open_session`", " [1][9].\nSee the guide [", "2].")
    result = cli("ask", "open_session")
    assert result.exit_code == 0
    text, _, sources = result.stdout.partition("\n\n")
    assert text == "With `open_session` [1].\nSee the guide [2]."
    assert sources.splitlines()[0] == "[1] session.py:1-6  open_session"
    assert sources.splitlines()[1].startswith("[2] ")
    assert "warning: citations of what the model was not shown were taken out: 1" in result.stderr
    assert KEY not in result.output


def test_json_is_as_documented(cli: Cli, small: Path, server: wire.WireServer) -> None:
    result = cli("ask", "open_session", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    with unspool.open() as corpus:  # what only programs ask for, over HTTP
        full = encode(corpus.ask("open_session"), full=True)
    compare("ask", found, full)
    assert (found["text"], found["citations"][0]["path"], found["citations"][0]["number"]) == (
        "It is so [1].",
        "session.py",
        1,
    )
    assert found["usage"]["prompt_tokens"] == chats.PROMPT_TOKENS


def test_without_a_model_the_context_is_shown_and_how_to_set_one(cli: Cli, small: Path) -> None:
    result = cli("ask", "open_session")
    assert result.exit_code == 0
    assert (
        result.stdout.startswith("[1] session.py:1-6 open_session\n")
        and "def open_session(name):" in result.stdout
    )
    assert "\n\n[2] " in result.stdout
    assert (
        "UNSPOOL_ANSWER_MODEL" in result.stderr
        and "UNSPOOL_ANSWER_KEY" in result.stderr
        and "http://localhost:" in result.stderr
    )
    found = json.loads(cli("ask", "open_session", "--json").stdout)
    assert (found["model"], found["text"], found["found"]) == ("", "", True)


def test_nothing_found_is_said_and_calls_nobody(
    cli: Cli, small: Path, server: wire.WireServer
) -> None:
    result = cli("ask", "open_session", "--language", "cobol")
    assert (result.exit_code, result.stdout) == (1, "Nothing was found about this.\n")
    assert not server.asked
    assert (
        json.loads(cli("ask", "open_session", "--language", "cobol", "--json").stdout)["found"]
        is False
    )


def test_a_path_is_indexed_first_and_narrows(
    cli: Cli, folder: Path, server: wire.WireServer
) -> None:
    result = cli("ask", "how is a session opened?", str(folder))
    assert result.exit_code == 0 and result.stderr.startswith("index: mine: 4 added")
    cli("ask", "how is a session opened?", str(folder / "notes"))
    assert "garden.md" in chats.user_of(server.asked[-1]) and "open_session" not in chats.user_of(
        server.asked[-1]
    )
    cli(
        "ask",
        "-",
        "--project",
        "mine",
        "--where",
        "language=python",
        "--limit",
        "1",
        input="how is a session\nopened?\n",
    )
    assert "how is a session\nopened?\n</question" in chats.user_of(
        server.asked[-1]
    ) and 'number="2"' not in chats.user_of(server.asked[-1])


def test_what_a_model_writes_cannot_command_the_terminal(
    cli: Cli, small: Path, server: wire.WireServer
) -> None:
    server.says = ("\x1b[2J\x1b]0;title\x07So\r [1]", ".")
    result = cli("ask", "open_session")
    assert "\x1b" not in result.stdout and "\x07" not in result.stdout and "\r" not in result.stdout
    assert "So" in result.stdout


def test_errors_end_as_they_do_everywhere(
    cli: Cli, small: Path, server: wire.WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.always = wire.failing(401)
    refused = cli("ask", "open_session")
    assert (
        refused.exit_code == 3
        and refused.stderr.startswith("error: ")
        and "UNSPOOL_ANSWER_KEY" in refused.stderr
    )
    assert KEY not in refused.output
    assert json.loads(cli("ask", "open_session", "--json").stdout)["error"]["code"] == "rejected"
    server.always = chats.broken("It is ", "so, ", "perhaps ")
    broken = cli("ask", "open_session")
    assert (
        broken.exit_code == 3
        and broken.stdout.startswith("It is so,")
        and broken.stdout.endswith("\n")
    ), "the error begins a line"
    assert cli("ask", "open_session", "--answer-model", "openia:m").exit_code == 2
    assert cli("ask", " ").exit_code == 2


def test_ctrl_c_ends_the_command_and_the_request(small: Path, server: wire.WireServer) -> None:
    gone = threading.Event()
    server.script(chats.hanging(gone, "It is so far"))
    command = [sys.executable, "-m", "unspool", "ask", "open_session", "--project", "small"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"It is"
        process.send_signal(signal.SIGINT)
        assert gone.wait(wire.WAIT_S)
        assert process.wait(wire.WAIT_S) == 130
