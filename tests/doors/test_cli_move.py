"""`unspool move` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Cli


def test_a_catalog_moves_to_another_file(cli: Cli, small: Path, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/moved.db"
    result = cli("move", "--to", target, "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["setting"], report["agreement"]) == (0, "UNSPOOL_DATABASE", 1)
    before = json.loads(cli("search", "session", "--json").stdout)
    after = json.loads(cli("search", "session", "--json", "--database", target).stdout)
    assert [hit["path"] for hit in after["hits"]] == [hit["path"] for hit in before["hits"]]


def test_the_result_says_what_to_do_next(cli: Cli, small: Path) -> None:
    result = cli("move", "--to", "memory://there")
    assert result.exit_code == 0
    assert "100.0% of the ten best chunks" in result.stdout
    assert "set UNSPOOL_VECTORS to the address you gave" in result.stdout


def test_a_wrong_target_is_named(cli: Cli, small: Path) -> None:
    result = cli("move", "--to", "nosuch://x")
    assert result.exit_code == 2
    assert "neither a store nor a database" in " ".join(result.stderr.split())
