"""`unspool reembed`: what it shows before it begins, whom it asks, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hashing import Asked
from unspool.errors import UnreachableError

Cli = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("hashing")
STATIC = "static:wordllama-256 (revision 1, 256 dimensions)"
B = "hashing:b (revision 1, 16 dimensions)"


def test_the_plan_and_the_note_are_on_stderr_and_what_came_of_it_on_stdout(
    cli: Cli, small: Path
) -> None:
    result = cli("reembed", "--embedder", "hashing:b", "--yes")
    assert result.exit_code == 0, result.stderr
    shown = " ".join(result.stderr.split())
    assert f"from {STATIC} to {B} cost 4 texts to embed, about" in shown
    assert "set UNSPOOL_EMBEDDER=hashing:b from now on" in shown
    assert result.stdout.startswith(f"in use: {B}  4 chunks, 4 texts embedded in ")
    assert f"kept, to switch back: {STATIC}; --drop-old deletes the vectors" in result.stdout
    assert "from now on" not in result.stdout and "cost" not in result.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_where_nobody_can_be_asked_it_wants_a_yes_and_does_nothing(
    cli: Cli, small: Path, hashing: Asked, as_json: bool
) -> None:
    result = cli("reembed", "--embedder", "hashing:b", *(["--json"] if as_json else []))
    assert result.exit_code == 2
    assert "give --yes" in result.stderr
    if as_json:
        assert json.loads(result.stdout)["error"]["code"] == "usage"
    else:
        assert result.stdout == "" and "cost" in result.stderr
    assert hashing.count("b") == 0
    assert cli("search", "session").exit_code == 0


COMMAND = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import hashing; hashing.register(); from "
    "unspool.interfaces.cli import main; main()"
)


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)], ids=["no", "yes"])
def test_at_a_terminal_it_asks(small: Path, answer: str, code: int) -> None:
    keyboard, terminal = os.openpty()
    try:
        os.write(keyboard, answer.encode())
        command = [
            sys.executable,
            "-c",
            COMMAND,
            str(Path(__file__).parent.parent),
            "reembed",
            "--embedder",
            "hashing:b",
        ]
        done = subprocess.run(
            command, stdin=terminal, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert done.returncode == code, done.stderr
    assert "Continue?" in done.stderr
    assert ("in use" in done.stdout) == (code == 0)


def test_json_is_one_object_with_the_plan_and_the_report(cli: Cli, small: Path) -> None:
    result = cli("reembed", "--embedder", "hashing:free", "--yes", "--json")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1
    found = json.loads(result.stdout)
    assert found.pop("tokens") > 20 and found.pop("seconds") >= 0
    assert found == {
        "before": STATIC,
        "after": "hashing:free (revision 1, 16 dimensions)",
        "texts": 4,
        "price": 0,
        "too_long": 0,
        "embedded": 4,
        "chunks": 4,
        "kept": [STATIC],
        "dropped": [],
        "warnings": [],
    }


def test_a_price_that_is_known_is_told(cli: Cli, small: Path) -> None:
    assert "at no charge" in cli("reembed", "--embedder", "hashing:free").stderr
    assert "about $0.00" in cli("reembed", "--embedder", "hashing:dear").stderr
    assert "$" not in cli("reembed", "--embedder", "hashing:b").stderr


def test_the_next_search_with_the_old_one_is_told_what_to_set_and_what_to_run(
    cli: Cli, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("reembed", "--embedder", "hashing:b", "--yes").exit_code == 0
    result = cli("search", "session", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "conflict")
    for part in (
        B,
        "static:wordllama-256",
        "UNSPOOL_EMBEDDER=hashing:b",
        "unspool reembed --embedder static",
    ):
        assert part in result.stderr
    monkeypatch.setenv("UNSPOOL_EMBEDDER", "hashing:b")
    assert cli("search", "session").exit_code == 0


def test_the_one_in_use_needs_no_yes_and_changes_nothing(cli: Cli, small: Path) -> None:
    result = cli("reembed", "--embedder", "static")
    assert result.exit_code == 0, result.stderr
    assert "it is in use already" in result.stderr and "from now on" not in result.stderr
    assert "0 texts embedded" in result.stdout


def test_the_embedder_may_be_named_by_the_environment(
    cli: Cli, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_EMBEDDER", "hashing:b")
    assert json.loads(cli("reembed", "--yes", "--json").stdout)["after"] == B


def test_without_an_embedder_there_is_nothing_to_go_over_to(cli: Cli, small: Path) -> None:
    for more in ([], ["--yes"]):
        result = cli("reembed", *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "--embedder NAME, or UNSPOOL_EMBEDDER" in result.stderr


def test_the_old_can_be_dropped_with_it_or_alone(cli: Cli, small: Path) -> None:
    assert json.loads(cli("reembed", "--drop-old", "--json").stdout) == {"dropped": []}
    together = json.loads(
        cli("reembed", "--embedder", "hashing:b", "--yes", "--drop-old", "--json").stdout
    )
    assert (together["dropped"], together["kept"]) == ([STATIC], [])
    cli("reembed", "--embedder", "hashing:c", "--yes")
    alone = cli("reembed", "--drop-old")
    assert (alone.exit_code, alone.stdout) == (0, f"deleted: {B}\n")
    assert cli("reembed", "--drop-old").stdout == "deleted: nothing, there are no others\n"
    assert cli("search", "session", "--embedder", "hashing:c").exit_code == 0


def test_texts_that_are_too_long_are_foretold_and_warned_of(
    cli: Cli, small: Path, tmp_path: Path
) -> None:
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "a.txt").write_text("island " * 100, encoding="utf-8")
    assert cli("index", str(tmp_path / "long")).exit_code == 0
    result = cli("reembed", "--embedder", "hashing:short", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "chunks are longer than it reads" in result.stderr
    assert "warning: " in result.stderr and "tokens that hashing:short reads" in " ".join(
        result.stderr.split()
    )


def test_an_embedder_that_nobody_knows_and_a_catalog_that_is_none_are_errors(
    cli: Cli, small: Path, tmp_path: Path
) -> None:
    unknown = cli("reembed", "--embedder", "statik", "--yes")
    assert unknown.exit_code == 2 and "did you mean 'static'" in unknown.stderr
    (tmp_path / "other.db").write_text("no database")
    wrong = cli(
        "reembed", "--embedder", "static", "--yes", "--database", f"sqlite:///{tmp_path}/other.db"
    )
    assert wrong.exit_code == 2 and "is not an SQLite file" in wrong.stderr


def test_a_provider_that_fails_is_a_service_that_failed(
    cli: Cli, small: Path, hashing: Asked
) -> None:
    def fail(texts: object) -> None:
        raise UnreachableError("the provider is away; try again")

    hashing.before["b"] = fail
    result = cli("reembed", "--embedder", "hashing:b", "--yes", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (3, "unreachable")
    assert cli("search", "session").exit_code == 0


def test_dropping_does_not_go_over_to_what_a_variable_names(
    cli: Cli, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable may still name the old one."""
    cli("reembed", "--embedder", "hashing:b", "--yes")
    monkeypatch.setenv("UNSPOOL_EMBEDDER", "static")
    dropped = cli("reembed", "--drop-old", "--yes")
    assert (dropped.exit_code, dropped.stdout) == (0, f"deleted: {STATIC}\n")
    assert cli("search", "session", "--embedder", "hashing:b").exit_code == 0


def test_a_replica_alone_is_not_enough(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSPOOL_DATABASE", raising=False)
    monkeypatch.setenv("UNSPOOL_DATABASE_READ", "postgresql://nobody@127.0.0.1:9/none")
    result = cli("reembed", "--embedder", "hashing:b", "--yes")
    assert result.exit_code == 2
    assert "UNSPOOL_DATABASE" in result.stderr
