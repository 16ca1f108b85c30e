"""`unspool doctor` finds what is wrong, names the cure, and changes nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import unspool
from unspool import Corpus, diagnosis
from unspool.diagnosis import sqlite as diagnosis_sqlite

Cli = Callable[..., Result]


def failing(result: Result) -> dict[str, dict[str, str]]:
    found = json.loads(result.stdout)
    assert found["ok"] is all(check["ok"] for check in found["checks"])
    assert result.exit_code == (0 if found["ok"] else 2)
    assert all(check["cure"] for check in found["checks"] if not check["ok"])
    return {check["name"]: check for check in found["checks"] if not check["ok"]}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_a_well_corpus_is_exit_code_0_and_untouched(cli: Cli, small: Path, database: Path) -> None:
    before = contents(database.parent)
    result = cli("doctor")
    assert result.exit_code == 0 and "not ok" not in result.stdout
    assert "ok      index of small" in result.stdout
    assert failing(cli("doctor", "--json")) == {}
    assert contents(database.parent) == before


def test_a_missing_catalog_is_not_made(cli: Cli, database: Path) -> None:
    assert failing(cli("doctor", "--json")) == {}
    assert not database.parent.exists()


def test_bad_settings_are_a_finding(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSPOOL_LIMIT", "lots")
    assert "UNSPOOL_LIMIT" in failing(cli("doctor", "--json"))["settings"]["detail"]


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (["--embedder", "statik"], "embedder"),
        (["--embedder", "static:other"], "embedder"),
        (["--vectors", "acme+http://h/x"], "vectors"),
        (["--database", "mysql://h/x"], "catalog"),
    ],
)
def test_settings_that_name_what_does_not_exist_are_findings(
    cli: Cli, small: Path, flags: list[str], name: str
) -> None:
    assert name in failing(cli("doctor", "--json", *flags))


def test_a_foreign_file_is_a_finding_and_left_alone(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    assert (
        "belongs to another program"
        in failing(cli("doctor", "--json", "--database", f"sqlite:///{path}"))["catalog"]["detail"]
    )
    assert path.read_bytes() == before
    (tmp_path / "letter.txt").write_text("Dear reader, " * 500)
    assert (
        "not an SQLite file"
        in failing(cli("doctor", "--json", "--database", f"sqlite:///{tmp_path}/letter.txt"))[
            "catalog"
        ]["detail"]
    )


def test_a_damaged_catalog_is_a_finding(cli: Cli, small: Path, database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(database.read_bytes())
    for page in range(3, len(data) // 4096 - 1):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    database.write_bytes(data)
    found = failing(cli("doctor", "--json"))
    assert "integrity" in found or "catalog" in found


def test_an_old_catalog_is_a_finding_and_is_not_upgraded(
    cli: Cli, small: Path, database: Path
) -> None:
    cli("migrate", "base", "--yes")
    for _ in range(2):
        assert failing(cli("doctor", "--json"))["migrations"]["detail"].startswith("at base")


def test_a_newer_catalog_is_a_finding(cli: Cli, small: Path, database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num='9999'")
    connection.close()
    assert "upgrade unspool" in failing(cli("doctor", "--json"))["catalog"]["detail"]


def test_another_embedder_s_catalog_is_a_finding(cli: Cli, small: Path, database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE spaces SET revision='0'")
    connection.close()
    assert "vector space" in failing(cli("doctor", "--json"))


def test_a_missing_or_damaged_index_is_a_finding_that_repair_cures(
    cli: Cli, small: Path, database: Path
) -> None:
    derived = database.with_name(database.name + ".derived")
    state = next(derived.rglob("vectors-1/state.json"))
    state.write_text("{}")
    assert "damaged" in failing(cli("doctor", "--json"))["index of small"]["detail"]
    shutil.rmtree(derived)
    assert "missing" in failing(cli("doctor", "--json"))["index of small"]["detail"]
    assert not derived.exists()
    cli("repair")
    assert failing(cli("doctor", "--json")) == {}


def test_a_flipped_bit_in_any_file_of_the_index_is_a_finding_that_repair_cures(
    cli: Cli, small: Path, database: Path
) -> None:
    derived = database.with_name(database.name + ".derived")
    files = [file for file in sorted(derived.rglob("*")) if file.is_file() and file.stat().st_size]
    assert len(files) > 10
    for file in files:
        sound = file.read_bytes()
        for at in (0, len(sound) // 2, len(sound) - 1):
            content = bytearray(sound)
            content[at] ^= 1
            file.write_bytes(content)
            detail = failing(cli("doctor", "--json"))["index of small"]["detail"]
            assert "damaged" in detail and file.name in detail
            file.write_bytes(sound)
    file = derived / "p1" / "words" / "0-weights.f32"
    file.write_bytes(bytes(file.stat().st_size))
    assert any(
        "0-weights.f32" in one for one in json.loads(cli("repair", "--json").stdout)["repaired"]
    )
    assert failing(cli("doctor", "--json")) == {}


def test_failed_and_interrupted_documents_are_findings(
    cli: Cli, folder: Path, database: Path
) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    cli("index", str(folder))
    assert "1 failed" in failing(cli("doctor", "--json"))["documents of mine"]["detail"]
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE documents SET status='stale' WHERE status='failed'")
    connection.close()
    found = failing(cli("doctor", "--json"))["documents of mine"]
    assert (
        "1 stale; a run was interrupted" in found["detail"]
        and found["cure"] == f"unspool index {folder} --project mine"
    )


def test_a_full_disk_is_a_finding(cli: Cli, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        diagnosis_sqlite.shutil,
        "disk_usage",
        lambda folder: shutil._ntuple_diskusage(10**12, 10**12 - 10**8, 10**8),
    )  # type: ignore[attr-defined]
    assert "0.1 GB free" in failing(cli("doctor", "--json"))["disk"]["detail"]


def test_a_missing_extra_is_mentioned_but_no_fault(
    cli: Cli, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "EXTRAS", (("no_such_module", "pdf", "read", "not read"),))
    result = cli("doctor")
    assert result.exit_code == 0 and "pip install 'unspool[pdf]'" in result.stdout


def test_an_error_while_looking_is_a_finding(
    cli: Cli, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unspool.errors import ServiceError

    def broken(self: Corpus) -> None:
        raise ServiceError("the disk is on fire; leave the building")

    monkeypatch.setattr(Corpus, "status", broken)
    assert "on fire" in failing(cli("doctor", "--json"))["projects"]["detail"]


def test_a_few_documents_that_were_put_need_no_index(cli: Cli, tmp_path: Path) -> None:
    with unspool.open(f"sqlite:///{tmp_path}/few.db") as corpus:
        corpus.put(unspool.Document(path="a", text="walrus"))
    found = cli("doctor", "--database", f"sqlite:///{tmp_path}/few.db", "--json")
    assert "index of default" not in failing(found)
