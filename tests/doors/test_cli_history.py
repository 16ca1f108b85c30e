"""`unspool history`: responses in, and out again page by page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]
SECRET = "AKIA" + "Z7Q2WMX4PLK9VD3T"


@pytest.fixture
def seven(cli: Cli) -> str:
    """A stream with seven records."""
    for number in range(1, 8):
        assert (
            cli("history", "GET /orders", "--append", "-", input=f'{{"run": {number}}}\n').exit_code
            == 0
        )
    return "GET /orders"


def test_records_are_shown_newest_first_with_the_command_for_the_next_page(
    cli: Cli, seven: str
) -> None:
    result = cli("history", seven)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[::3]] == ["7", "6"]
    assert lines[1::3] == ['  {"run": 7}', '  {"run": 6}']
    assert result.stderr.strip() == "more: unspool history --limit 2 --offset 2 'GET /orders'"


def test_following_the_shown_commands_reads_every_record_once(cli: Cli, seven: str) -> None:
    seen, words = [], ["history", seven, "--limit", "3", "--json"]
    for _ in range(10):
        result = cli(*words)
        page = json.loads(result.stdout)
        seen += [record["number"] for record in page["records"]]
        assert page["has_more"] == bool(result.stderr) == (page["next"] is not None)
        if not page["has_more"]:
            break
        words = [*shlex.split(result.stderr.removeprefix("more: "))[1:], "--json"]
    assert seen == [7, 6, 5, 4, 3, 2, 1]


def test_the_command_for_the_next_page_names_the_project_and_copes_with_odd_names(cli: Cli) -> None:
    for number in range(2):
        cli(
            "history",
            "--project",
            "my jobs",
            "--append",
            "-",
            "--",
            "--it's odd",
            input=str(number),
        )
    result = cli("history", "--project", "my jobs", "--limit", "1", "--full", "--", "--it's odd")
    shown = result.stderr.strip().removeprefix("more: unspool ")
    again = cli(*shlex.split(shown))
    assert again.stdout.splitlines()[1:] == ["  0"]
    assert again.stderr == ""


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--limit", "11"], "limit is 11"),
        (["--limit", "0"], "limit is 0"),
        (["--offset", "-1"], "offset is -1"),
    ],
)
def test_values_out_of_range_are_refused(cli: Cli, seven: str, flags: list[str], what: str) -> None:
    result = cli("history", seven, *flags)
    assert result.exit_code == 2
    assert what in result.stderr
    assert result.stdout == ""


def test_long_bodies_are_cut_and_repeated_ones_named_unless_all_is_asked_for(cli: Cli) -> None:
    for _ in range(2):
        cli("history", "jobs", "--append", "-", input="x" * 1500)
    newer, older = json.loads(cli("history", "jobs", "--json").stdout)["records"]
    assert newer["body"] == "x" * 1000 + "...[truncated]"
    assert (newer["is_truncated"], newer["same_as_newer"], newer["length"]) == (True, False, 1500)
    assert (older["body"], older["is_truncated"], older["same_as_newer"]) == (None, False, True)
    full = json.loads(cli("history", "jobs", "--full", "--json").stdout)["records"]
    assert [record["body"] for record in full] == ["x" * 1500] * 2
    assert "the same as the newer one" in cli("history", "jobs").stdout


def test_a_file_of_any_bytes_can_be_appended(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "answer").write_bytes(b"caf\xe9 \x00\r\n" + SECRET.encode())
    result = cli("history", "jobs", "--append", str(tmp_path / "answer"), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["appended"]["number"] == 1
    (record,) = json.loads(cli("history", "jobs", "--json").stdout)["records"]
    assert record["body"] == "caf\ufffd \ufffd\r\n" + "*" * len(SECRET)


def test_a_file_that_cannot_be_read_is_named_and_makes_nothing(cli: Cli, tmp_path: Path) -> None:
    missing = cli("history", "jobs", "--append", str(tmp_path / "missing"))
    assert (missing.exit_code, "missing" in missing.stderr) == (1, True)
    assert cli("history", "jobs", "--append", str(tmp_path)).exit_code == 2
    assert cli("history").exit_code == 1


def test_escape_sequences_of_a_body_do_not_reach_the_terminal(cli: Cli) -> None:
    cli("history", "jobs", "--append", "-", input="\x1b[31mred\x1b]0;title\x07")
    assert "\x1b" not in cli("history", "jobs").stdout


def test_with_no_stream_all_are_listed(cli: Cli, seven: str) -> None:
    cli("history", "nightly", "--project", "jobs", "--append", "-", input="done")
    listed = json.loads(cli("history", "--json").stdout)["streams"]
    assert [(one["project"], one["stream"], one["records"]) for one in listed] == [
        ("default", "GET /orders", 7),
        ("jobs", "nightly", 1),
    ]
    assert len(cli("history").stdout.splitlines()) == 3
    assert [
        one["stream"]
        for one in json.loads(cli("history", "--project", "jobs", "--json").stdout)["streams"]
    ] == ["nightly"]


def test_nothing_to_show_is_said_and_makes_nothing(cli: Cli, seven: str) -> None:
    for arguments in (
        ["history", "unknown"],
        ["history", seven, "--offset", "7"],
        ["history", seven, "--project", "other"],
    ):
        result = cli(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr
    assert len(json.loads(cli("history", "--json").stdout)["streams"]) == 1
    empty = json.loads(cli("history", seven, "--offset", "7", "--json").stdout)
    assert (empty["records"], empty["has_more"], empty["next"]) == ([], False, None)


def test_an_empty_catalog_has_no_streams(cli: Cli) -> None:
    result = cli("history")
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    "arguments",
    [["--limit", "3"], ["--append", "-"], ["jobs", "--append", "-", "--limit", "3"], ["a\nb"]],
)
def test_what_makes_no_sense_is_refused(cli: Cli, arguments: list[str]) -> None:
    assert cli("history", *arguments, input="x").exit_code == 2


def test_the_settings_say_how_much_is_kept(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSPOOL_HISTORY_MAX_RECORDS", "2")
    for number in range(4):
        cli("history", "jobs", "--append", "-", input=str(number))
    monkeypatch.delenv("UNSPOOL_HISTORY_MAX_RECORDS")
    assert [
        record["body"]
        for record in json.loads(cli("history", "jobs", "--limit", "10", "--json").stdout)[
            "records"
        ]
    ] == ["3", "2"]
