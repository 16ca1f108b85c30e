"""`unspool index`, `documents`, `forget`, `status`, `repair`, `migrate`, `eval`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]


def test_index_reports_what_it_did(cli: Cli, folder: Path) -> None:
    first = cli("index", str(folder))
    assert first.exit_code == 0
    assert first.stdout.startswith("mine  4 added, 0 updated, 0 unchanged, 0 removed\n")
    (folder / "guide.md").write_text("# Guide\n\nNew.\n")
    (folder / "session.py").unlink()
    report = json.loads(cli("index", str(folder), "--json").stdout)
    assert [report[key] for key in ("added", "updated", "unchanged", "removed", "failed")] == [
        0,
        1,
        2,
        1,
        0,
    ]


def test_index_takes_several_sources_and_prints_a_line_of_json_each(cli: Cli, folder: Path) -> None:
    result = cli("index", str(folder / "deep"), str(folder / "notes"), "--json")
    assert [json.loads(line)["project"] for line in result.stdout.splitlines()] == ["deep", "notes"]


def test_index_of_a_single_file_is_a_project_of_one_document(cli: Cli, folder: Path) -> None:
    assert json.loads(cli("index", str(folder / "guide.md"), "--json").stdout)["added"] == 1
    assert cli("related", str(folder / "guide.md")).exit_code == 1  # nothing else to relate it to
    assert cli("search", "session", str(folder / "guide.md")).exit_code == 0


def test_index_of_an_empty_folder_is_no_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = cli("index", str(tmp_path / "empty"))
    assert result.exit_code == 0 and "0 added" in result.stdout
    assert cli("search", "x", str(tmp_path / "empty")).exit_code == 1


def test_index_quietly_says_nothing(cli: Cli, folder: Path) -> None:
    result = cli("index", str(folder), "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_the_project_is_named_by_flag_or_setting(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        json.loads(cli("index", str(folder), "--project", "named", "--json").stdout)["project"]
        == "named"
    )
    cli("forget", "--project", "named", "--all")
    monkeypatch.setenv("UNSPOOL_PROJECT", "fromsetting")
    assert cli("search", "session", str(folder)).exit_code == 0
    assert json.loads(cli("status", "--json").stdout)["projects"][0]["name"] == "fromsetting"


def test_index_of_a_part_of_a_project_refreshes_the_project(cli: Cli, folder: Path) -> None:
    cli("index", str(folder))
    assert json.loads(cli("index", str(folder / "deep"), "--json").stdout)["project"] == "mine"
    assert (
        json.loads(cli("index", str(folder / "deep"), "--project", "own", "--json").stdout)[
            "project"
        ]
        == "own"
    )


def test_skipped_files_are_counted_and_listed_on_request(cli: Cli, folder: Path) -> None:
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 20)
    plain, listed = cli("index", str(folder)), cli("index", str(folder), "--skipped")
    assert "1 skipped: " in plain.stdout and "picture.bin" not in plain.stdout
    assert "    picture.bin  " in listed.stdout
    assert "skips" not in json.loads(cli("index", str(folder), "--json").stdout)
    assert (
        json.loads(cli("index", str(folder), "--json", "--skipped").stdout)["skips"][0]["path"]
        == "picture.bin"
    )


def test_masked_secrets_are_listed_by_place_and_never_shown(cli: Cli, folder: Path) -> None:
    key = "AKIA" + "Z7Q2WMX4PLK9VD3T"
    (folder / "deploy.py").write_text(f'REGION = "eu"\nKEY = "{key}"\n')
    result = cli("index", str(folder))
    assert "1 secret masked:" in result.stdout and "    deploy.py:2  " in result.stdout
    assert key not in result.stdout + cli("search", "KEY deploy region", "--full").stdout


def test_some_failures_warn_and_all_failures_are_exit_code_3(
    cli: Cli, folder: Path, tmp_path: Path
) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    some = cli("index", str(folder))
    assert some.exit_code == 0
    assert "1 failed" in some.stdout and "    broken.pdf: " in some.stdout
    assert "warning: 1 document of mine failed" in some.stderr
    (tmp_path / "bad").mkdir()
    shutil.copy(folder / "broken.pdf", tmp_path / "bad")
    assert cli("index", str(tmp_path / "bad")).exit_code == 3
    failed = [
        json.loads(line)
        for line in cli("documents", "--status", "failed", "--json").stdout.splitlines()
    ]
    assert [(one["path"], bool(one["error"])) for one in failed] == [("broken.pdf", True)] * 2


def test_a_git_url_is_indexed_at_a_ref(cli: Cli, folder: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-qm", "one"],
        ["tag", "first"],
        ["rm", "-q", "guide.md"],
        ["commit", "-qm", "two"],
    ):
        subprocess.run([*git, *command], check=True)
    url = f"file://{folder}"
    assert json.loads(cli("index", url, "--ref", "first", "--json").stdout)["added"] == 4
    assert cli("search", "session", url).exit_code == 0
    assert json.loads(cli("status", "--json").stdout)["projects"][0]["root"] == url


def test_documents_are_a_table_or_an_object_a_line(cli: Cli, small: Path) -> None:
    table = cli("documents").stdout.splitlines()
    assert table[0].split() == ["status", "chunks", "bytes", "language", "project", "path"]
    assert len(table) == 5 and table[1].startswith("indexed")
    objects = [
        json.loads(line)
        for line in cli("documents", "--project", "small", "--json").stdout.splitlines()
    ]
    assert [one["path"] for one in objects] == [
        "deep/cache.go",
        "guide.md",
        "notes/garden.md",
        "session.py",
    ]
    nothing = cli("documents", "--status", "failed")
    assert (nothing.exit_code, nothing.stdout) == (1, "")


def test_forget_takes_a_document_or_with_all_a_project(cli: Cli, small: Path) -> None:
    assert (
        cli("forget", "--project", "small", "guide.md").stdout
        == "forgotten: guide.md of project small\n"
    )
    assert json.loads(
        cli("forget", "--project", "small", str(small / "session.py"), "--json").stdout
    ) == {
        "project": "small",
        "path": "session.py",
        "documents": 1,
    }
    assert (
        cli("forget", "--project", "small", "--all").stdout
        == "forgotten: project small with 2 documents\n"
    )
    assert json.loads(cli("status", "--json").stdout)["totals"]["projects"] == 0
    assert (small / "guide.md").exists()


def test_status_shows_projects_totals_and_the_catalog(
    cli: Cli, small: Path, database: Path
) -> None:
    text = cli("status").stdout
    assert "small" in text and "1 project, 4 documents" in text and str(database) in text
    empty = cli("status", "--database", f"sqlite:///{database}.new")
    assert empty.exit_code == 0 and "nothing is indexed yet" in empty.stderr


def test_settings_are_listed_with_their_origin(cli: Cli, database: Path) -> None:
    rows = cli("settings").stdout.splitlines()
    assert rows[0].split() == ["name", "value", "origin", "meaning"]
    assert rows[1].split()[:3] == ["database", f"sqlite:///{database}", "environment"]
    assert "secret" not in cli("settings", "--database", "postgresql://me:secret@db/x").stdout


def test_repair_rebuilds_what_was_deleted(cli: Cli, small: Path, database: Path) -> None:
    before = cli("search", "open session").stdout
    shutil.rmtree(database.with_name(database.name + ".derived"))
    assert cli("repair").stdout.startswith("repaired: 1 project, ")
    assert cli("doctor").exit_code == 0
    assert cli("search", "open session").stdout == before
    assert json.loads(cli("repair", "--json").stdout)["projects"][0]["waiting"] == 0


def test_migrate_goes_down_only_when_told_so_and_up_again(
    cli: Cli, small: Path, database: Path
) -> None:
    assert "already" in cli("migrate").stdout
    assert cli("migrate", "base").exit_code == 2
    assert json.loads(cli("status", "--json").stdout)["totals"]["documents"] == 4
    assert json.loads(cli("migrate", "base", "--yes", "--json").stdout)["after"] == "base"
    assert cli("migrate").stdout.endswith(
        f"base -> {json.loads(cli('migrate', '--json').stdout)['after']}\n"
    )
    assert json.loads(cli("status", "--json").stdout)["totals"]["documents"] == 0
    nowhere = cli("migrate", "base", "--yes", "--database", f"sqlite:///{database}.none")
    assert nowhere.exit_code == 1


def test_eval_measures_a_test_set(cli: Cli, tmp_path: Path, database: Path) -> None:
    texts = {
        "d1": "Tomatoes want sun.",
        "d2": "A session is opened by name.",
        "d3": "The cache drops its oldest entry.",
    }
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    (tmp_path / "set" / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"_id": key, "title": "", "text": text}) + "\n"
            for key, text in texts.items()
        )
    )
    (tmp_path / "set" / "queries.jsonl").write_text(
        json.dumps({"_id": "q1", "text": "how is a session opened"}) + "\n"
    )
    (tmp_path / "set" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\n")
    result = cli("eval", str(tmp_path / "set"), "--json")
    assert result.exit_code == 0
    assert (json.loads(result.stdout)["ndcg_10"], json.loads(result.stdout)["documents"]) == (
        1.0,
        3,
    )
    assert "ndcg_10" in cli("eval", str(tmp_path / "set")).stdout
    assert not database.exists()
