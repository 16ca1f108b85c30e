"""`unspool more` and `unspool warm`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]


def asked(cli: Cli, *arguments: str) -> dict:
    result = cli(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_last_line_of_a_search_is_the_command_for_the_next_page(cli: Cli, small: Path) -> None:
    shown = [cli("search", "open a session", "--limit", "1")]
    while shown[-1].stderr.splitlines() and (line := shown[-1].stderr.splitlines()[-1]).startswith(
        "more: unspool more "
    ):
        shown.append(cli(*line.split()[2:]))
    assert [one.exit_code for one in shown] == [0] * len(shown)
    paths = [one.stdout.split(":")[0] for one in shown]
    whole = asked(cli, "search", "open a session", "--limit", "10")
    assert paths == [hit["path"] for hit in whole["hits"]]
    assert len(paths) == len(set(paths)) == 4


def test_pages_in_json_say_where_they_stand(cli: Cli, small: Path) -> None:
    first = asked(cli, "search", "open a session", "--limit", "1")
    second = asked(cli, "more", first["continuation"])
    assert (first["number"], second["number"]) == (1, 2)
    assert (first["served"], second["served"], second["stability"]) == (
        "window",
        "window",
        "snapshot",
    )
    assert [hit["rank"] for hit in first["hits"] + second["hits"]] == [1, 2]
    assert first["remaining"] == second["remaining"] + 1 == 3
    assert asked(cli, "more", first["continuation"]) == second
    rest = asked(cli, "more", second["continuation"], "--limit", "10")
    assert (len(rest["hits"]), rest["continuation"], rest["remaining"]) == (2, None, 0)


def test_explanations_go_on_and_whole_chunks_are_shown_on_request(cli: Cli, small: Path) -> None:
    first = asked(cli, "search", "open a session", "--limit", "1", "--explain")
    assert asked(cli, "more", first["continuation"])["hits"][0]["reason"].startswith("words ")
    text = cli("more", first["continuation"], "--full").stdout
    assert len(text) >= len(cli("more", first["continuation"]).stdout)


def test_a_cap_on_all_pages_ends_the_walk(cli: Cli, small: Path) -> None:
    page = asked(cli, "search", "open a session", "--limit", "1", "--max-total-tokens", "60")
    total = page["tokens"]
    assert page["tokens_remaining"] == 60 - total
    while page["continuation"] is not None:
        result = cli("more", page["continuation"], "--json")
        page = json.loads(result.stdout)
        total += page["tokens"]
    assert 0 < total <= 60
    none = cli("search", "open a session", "--max-total-tokens", "1")
    assert none.exit_code == 1
    assert "try other words" not in none.stderr


@pytest.mark.parametrize("bad", ["garbage", "", "AAAAAAAAAAAAAAAAAAAAAA", "x" * 5000, "--", "ä"])
def test_what_is_no_continuation_is_an_error_with_its_code(cli: Cli, small: Path, bad: str) -> None:
    result = cli("more", "--json", "--", bad)
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "continuation_malformed"


def test_another_process_goes_on(cli: Cli, small: Path) -> None:
    first = asked(cli, "search", "open a session", "--limit", "1")
    done = subprocess.run(
        [sys.executable, "-m", "unspool", "more", first["continuation"], "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == asked(cli, "more", first["continuation"])


def test_queries_are_warmed_from_a_file_or_stdin_once(
    cli: Cli, small: Path, tmp_path: Path
) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("open a session\n\n  evict the cache  \nopen a session\n", encoding="utf-8")
    assert json.loads(cli("warm", str(file), "--json").stdout) == {"queries": 2, "embedded": 2}
    assert json.loads(cli("warm", "-", "--json", input="open a session\nnew one\n").stdout) == {
        "queries": 2,
        "embedded": 1,
    }
    assert cli("warm", str(file)).stdout == "2 queries ready, 0 embedded now\n"


@pytest.mark.parametrize("text", ["", "\n\n  \n"])
def test_nothing_to_warm_is_refused(cli: Cli, small: Path, text: str) -> None:
    assert cli("warm", "-", input=text).exit_code == 2
