"""`unspool remember`: exports in, a summary out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

import exports

Cli = Callable[..., Result]


def test_remember_reports_what_it_did_and_a_second_time_costs_nothing(
    cli: Cli, tmp_path: Path
) -> None:
    path = exports.written(tmp_path / "c.json", [exports.chatgpt(), exports.claude()])
    first = cli("remember", str(path))
    assert first.exit_code == 0
    assert first.stdout.startswith("conversations  2 added, 0 updated, 0 unchanged\n")
    again = json.loads(cli("remember", str(path), "--json").stdout)
    assert [
        again[key] for key in ("project", "added", "updated", "unchanged", "messages", "embedded")
    ] == ["conversations", 0, 0, 2, 0, 0]
    found = cli("search", "which knot", "--project", "conversations", "--json")
    assert "bowline" in found.stdout


def test_remember_takes_several_files_of_several_formats_and_a_project(
    cli: Cli, tmp_path: Path
) -> None:
    slack = exports.zipped(tmp_path / "s.zip", exports.slack_files())
    chats = exports.written(tmp_path / "c.json", [exports.claude()])
    report = json.loads(
        cli("remember", str(slack), str(chats), "--project", "team", "--json").stdout
    )
    assert (report["project"], report["added"]) == ("team", 4)


def test_remember_reads_lines_from_stdin(cli: Cli) -> None:
    result = cli(
        "remember",
        "-",
        "--json",
        input='{"messages": [{"role": "user", "content": "hello"}]}\nbroken\n',
    )
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["added"] == 1
    assert [(one["source"], one["position"]) for one in report["bad"]] == [("-", "line 2")]


def test_remember_lists_the_first_bad_records_and_counts_the_rest(cli: Cli, tmp_path: Path) -> None:
    path = exports.lines(tmp_path / "c.jsonl", {"messages": [{"text": "good"}]}, *["broken"] * 30)
    result = cli("remember", str(path))
    assert result.exit_code == 0
    assert "30 records could not be read:" in result.stdout
    assert result.stdout.count("it is no JSON") == 20
    assert "and 10 more" in result.stdout


def test_remember_says_when_there_was_nothing(cli: Cli, tmp_path: Path) -> None:
    assert (
        cli("remember", str(exports.lines(tmp_path / "c.jsonl", {"messages": "none"}))).exit_code
        == 1
    )
    assert cli("remember", str(exports.written(tmp_path / "c.json", []))).exit_code == 1


def test_remember_refuses_what_is_no_export_before_anything_is_stored(
    cli: Cli, tmp_path: Path
) -> None:
    good = exports.written(tmp_path / "c.json", [exports.claude()])
    (tmp_path / "notes.md").write_text("# Notes")
    result = cli("remember", str(good), str(tmp_path / "notes.md"))
    assert result.exit_code == 2
    assert "holds no conversations" in result.stderr
    assert cli("remember", str(tmp_path / "missing.zip")).exit_code == 1
    assert cli("remember", "-", "-").exit_code == 2
    assert json.loads(cli("status", "--json").stdout)["totals"]["documents"] == 0


def test_remember_takes_a_name_that_begins_as_a_home_for_a_name(cli: Cli) -> None:
    result = cli("remember", "~nobody-is-called-so/c.json")
    assert result.exit_code == 1
    assert "no such file: ~nobody-is-called-so/c.json" in result.stderr


def test_remember_names_stdin_and_not_where_it_was_kept(cli: Cli) -> None:
    for given in ("", "hello\n"):
        result = cli("remember", "-", input=given)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: stdin ") and "unspool-" not in result.stderr


def test_remember_says_which_files_hold_no_conversation(cli: Cli, tmp_path: Path) -> None:
    path = exports.written(tmp_path / "none.json", [])
    result = cli("remember", str(path))
    assert result.exit_code == 1
    assert "nothing was imported" in result.stderr and str(path) in result.stderr
