"""What goes wrong at the command line: the message, the exit code, and nothing on stdout but the
error object.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from unspool import Corpus
from unspool.interfaces.cli import main

Cli = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "says"),
    [
        (["search", ""], 2, "input", "the query is empty"),
        (["search", "  \n"], 2, "input", "the query is empty"),
        (["search", "x" * 100_000], 2, "input", "100000 characters"),
        (["search", "x", "--alpha", "2"], 2, "config", "alpha (flag) is 2"),
        (["search", "x", "--alpha", "much"], 2, "config", "give a number from 0 to 1"),
        (["search", "x", "--limit", "0"], 2, "config", "give a number from 1 to 1000"),
        (["search", "x", "--max-tokens", "-1"], 2, "config", "max_tokens (flag) is -1"),
        (["search", "x", "--min-score", "high"], 2, "usage", "not a valid float"),
        (["search", "x", "--where", "langage=python"], 2, "filter", "did you mean 'language'"),
        (["search", "x", "--where", "python"], 2, "filter", "give FIELD=VALUE"),
        (["search", "x", "--where", "language>python"], 2, "filter", "has no order"),
        (["search", "x", "--where", "modified>yesterday"], 2, "filter", "2026-01-31"),
        (["search", "x", "--kind", "poem"], 2, "filter", "kinds are code, docs, data"),
        (["search", "x", "--filter", "{"], 2, "filter", "--filter is not JSON"),
        (["search", "x", "--filter", "[1]"], 2, "filter", "--filter is a list"),
        (["search", "x", "--project", "nope"], 1, "not_found", "there are: small"),
        (["search", "x", "no/such/path"], 1, "not_found", "no such path: no/such/path"),
        (
            ["search", "x", "--project", "*", "."],
            2,
            "input",
            "--project names the one project of one path",
        ),
        (["search", "x", "--embedder", "statik"], 2, "config", "did you mean 'static'"),
        (["search", "x", "--vectors", "acme+http://h/x"], 2, "address", "UNSPOOL_VECTORS"),
        (
            ["search", "x", "--database", "mysql://u:secret@h/d"],
            2,
            "address",
            "give sqlite:///relative.db",
        ),
        (["search"], 2, "usage", "Missing argument"),
        (["serch", "x"], 2, "usage", "No such command"),
        (["index", "no/such/path"], 1, "not_found", "no such path"),
        (["index", ""], 2, "input", "the path is empty"),
        (["index"], 2, "usage", "Missing argument"),
        (["index", ".", "--jobs", "many"], 2, "config", "jobs (flag)"),
        (["watch", "no/such/path"], 1, "not_found", "no such path"),
        (["related", ""], 2, "input", "give FILE:LINE"),
        (["documents", "--project", "nope"], 1, "not_found", "no project 'nope'"),
        (["documents", "--status", "lost"], 2, "usage", "'lost' is not one of"),
        (["forget", "a.md"], 2, "usage", "--project"),
        (["forget", "--project", "small"], 2, "usage", "--all"),
        (["forget", "--project", "small", "session.py", "--all"], 2, "usage", "--all"),
        (["forget", "--project", "small", "nope.md"], 1, "not_found", "no document 'nope.md'"),
        (["forget", "--project", "nope", "--all"], 1, "not_found", "no project 'nope'"),
        (["migrate", "base"], 2, "usage", "--yes"),
        (["migrate", "9999"], 2, "input", "revision '9999' does not exist"),
        (["eval", "no/such/folder"], 2, "usage", "does not exist"),
        (["eval", "."], 1, "not_found", "qrels"),
    ],
)
def test_bad_input_is_answered_with_its_cure(
    cli: Cli, small: Path, arguments: list[str], code: int, kind: str, says: str
) -> None:
    plain, as_json = cli(*arguments), cli(*arguments, "--json")
    assert (plain.exit_code, plain.stdout) == (code, "")
    assert says in " ".join(plain.stderr.split())
    assert "Traceback" not in plain.stderr and "secret" not in plain.stderr
    assert as_json.exit_code == code
    error = json.loads(as_json.stdout)["error"]
    assert error["code"] == kind and says in error["message"]
    assert as_json.stderr == plain.stderr


def test_a_bad_value_in_the_environment_names_the_variable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_LIMIT", "lots")
    result = cli("search", "x")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: UNSPOOL_LIMIT is 'lots'; give a whole number from 1 to 1000\n",
    )
    # a broken layer is reported even where another wins
    assert cli("search", "x", "--limit", "3").exit_code == 2


def test_an_unknown_setting_in_the_file_of_a_trusted_folder_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("unspool.toml").write_text("limt = 3\n")
    monkeypatch.setenv("UNSPOOL_TRUST", str(Path.cwd()))
    result = cli("status")
    assert result.exit_code == 2 and "did you mean 'limit'" in result.stderr


def test_flags_win_over_the_environment_and_that_over_the_files(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("unspool.toml").write_text("limit = 1\nmax_tokens = 1\nalpha = 0.1\nwindow = 1\n")
    Path(".env").write_text("UNSPOOL_LIMIT=2\nUNSPOOL_MAX_TOKENS=2\nUNSPOOL_ALPHA=0.2\n")
    monkeypatch.setenv("UNSPOOL_LIMIT", "3")
    monkeypatch.setenv("UNSPOOL_MAX_TOKENS", "3")
    rows = {
        row["name"]: (row["value"], row["origin"])
        for row in json.loads(cli("settings", "--limit", "4", "--json").stdout)["settings"]
    }
    assert rows["limit"] == ("4", "flag")
    assert rows["max_tokens"] == ("3", "environment")
    assert rows["alpha"] == ("0.2", ".env")
    assert rows["window"] == ("1", "unspool.toml")
    assert rows["embedder"] == ("static", "default")


def test_a_database_of_another_program_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    for command in (["search", "x"], ["migrate"], ["migrate", "base", "--yes"], ["status"]):
        result = cli(*command, "--database", f"sqlite:///{path}")
        assert result.exit_code == 2 and "belongs to another program" in result.stderr
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 500)
    before = path.read_bytes()
    for command in (["search", "x"], ["migrate"], ["status"]):
        result = cli(*command, "--database", f"sqlite:///{path}")
        assert result.exit_code == 2 and "is not an SQLite file" in result.stderr
    assert path.read_bytes() == before


def test_a_catalog_that_cannot_be_made_is_exit_code_3(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = cli("status", "--json", "--database", f"sqlite:///{tmp_path}/file/below.db")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["code"] == "service"


def test_a_bug_is_exit_code_70_and_shows_its_traceback_only_on_request(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Corpus) -> None:
        raise RuntimeError("indexed text")

    monkeypatch.setattr(Corpus, "status", broken)
    result = cli("status")
    assert (result.exit_code, result.stdout) == (70, "")
    assert (
        result.stderr
        == "error: this is a bug in unspool: RuntimeError; run again with --debug and report it\n"
    )
    assert json.loads(cli("status", "--json").stdout)["error"]["code"] == "bug"
    for arguments in (["status", "--debug"], ["--debug", "status"]):
        result = cli(*arguments)
        assert result.exit_code == 70 and "RuntimeError: indexed text" in result.stderr


def test_debug_shows_the_traceback_of_an_error_and_keeps_its_exit_code(cli: Cli) -> None:
    result = cli("documents", "--project", "nope", "--debug")
    assert (
        result.exit_code == 1
        and "Traceback" in result.stderr
        and "error: no project 'nope'" in result.stderr
    )


def test_an_interrupt_is_exit_code_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Corpus) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Corpus, "status", interrupted)
    result = cli("status")
    assert result.exit_code == 130 and "Traceback" not in result.stderr


@pytest.mark.parametrize("name", [None, *main.commands])
def test_every_help_ends_with_two_examples_and_describes_every_flag(
    cli: Cli, name: str | None
) -> None:
    result = cli(*([name] if name else []), "--help")
    assert result.exit_code == 0
    *_, title, first, second = result.stdout.rstrip("\n").split("\n")
    assert title.strip() == "Examples:"
    assert first.strip().startswith("unspool") and second.strip().startswith("unspool")
    if name:
        assert f"unspool {name}" in first and f"unspool {name}" in second
        assert all(
            getattr(option, "help", "")
            for option in main.commands[name].params
            if option.param_type_name == "option"
        )


def test_the_examples_of_every_help_are_accepted_by_the_parser() -> None:
    import shlex

    for name, command in main.commands.items():
        for example in (command.epilog or "").split("\n")[2:]:
            _, called, *arguments = shlex.split(example)
            assert called == name
            if name not in ("eval", "warm"):  # what they read has to exist
                command.make_context(name, arguments)
