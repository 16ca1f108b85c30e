"""Files that cannot be indexed: each is reported, the rest goes on, and what was known of them
stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import unspool
from support import assert_no_orphans, open_corpus, paths, write
from unspool.errors import ConflictError

WALRUS = "def walrus():\n    return 1\n"


def test_a_binary_a_huge_file_a_loop_and_an_empty_file_are_counted_and_the_rest_is_indexed(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = write(
        tmp_path / "tree",
        {"good.py": WALRUS, "empty.py": "", "sub/also.md": "# Walrus\n\nIt swims.\n"},
    )
    (tree / "binary.py").write_bytes(bytes(range(256)) * 20)
    with (tree / "huge.py").open("wb") as handle:
        handle.truncate(2 * 1024**3)
    (tree / "sub" / "loop").symlink_to(tree)
    (tree / "dangling.py").symlink_to(tree / "nowhere.py")
    report = corpus.index(tree)
    assert (report.added, report.failed) == (2, 0)
    reasons = {skip.path: skip.reason for skip in report.skips}
    assert {reasons["binary.py"], reasons["huge.py"], reasons["empty.py"]} == {
        "binary",
        "huge",
        "empty",
    }
    assert sum(report.skipped.values()) == len(report.skips)
    assert {record.path for record in corpus.documents()} == {"good.py", "sub/also.md"}
    again = corpus.index(tree)
    assert (again.unchanged, again.added, again.removed, again.skipped) == (2, 0, 0, report.skipped)


def test_an_empty_folder_is_a_project_without_documents(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    report = corpus.index(tmp_path / "empty")
    assert (report.added, report.failed, corpus.projects(), corpus.count()) == (0, 0, ["empty"], 0)
    assert corpus.search("walrus").hits == ()


def test_a_document_that_became_a_binary_is_removed_from_the_index(
    corpus: unspool.Corpus, database: Path, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"a.py": WALRUS, "b.py": "def penguin():\n    return 2\n"})
    corpus.index(tree)
    (tree / "a.py").write_bytes(b"\x7fELF" + bytes(range(256)) * 20)
    report = corpus.index(tree)
    assert (report.removed, report.skipped) == (1, {"binary": 1})
    assert paths(corpus.search("walrus", limit=50)) == ["b.py"]
    assert_no_orphans(database)
    (tree / "a.py").write_text(WALRUS)
    assert corpus.index(tree).added == 1
    assert paths(corpus.search("walrus"))[0] == "a.py"


def test_a_file_that_changes_while_it_is_read_is_whole_or_failed_and_right_in_the_end(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"growing.md": "# Log\n\n", "good.py": WALRUS})
    stop = threading.Event()

    def grow() -> None:
        number = 0
        while not stop.is_set():
            with (tree / "growing.md").open("a") as handle:
                handle.write(f"The walrus line {number}.\n\n")
            number += 1
            stop.wait(0.001)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(3):
            report = corpus.index(tree)
            assert report.failed <= 1
            states = {record.path: record.status for record in corpus.documents()}
            assert states["good.py"] is unspool.Status.INDEXED
            assert states["growing.md"] in (unspool.Status.INDEXED, unspool.Status.FAILED)
    finally:
        stop.set()
        writer.join()
    assert corpus.index(tree).failed == 0
    record = corpus.documents(path="growing.md")[0]
    data = (tree / "growing.md").read_bytes()
    assert (record.status, record.error, record.sha256) == (
        unspool.Status.INDEXED,
        "",
        hashlib.sha256(data).hexdigest(),
    )
    text = data.decode()
    hits = corpus.search("walrus", where={"document": "growing.md"}, limit=1000).hits
    assert all(text[hit.chunk.start : hit.chunk.end] == hit.chunk.text for hit in hits)


# What may not be read: root may read everything, so another user tries. What is imported lies where
# only root can read, so it is imported first.
AS_NOBODY = """
import json, os, sys
from pathlib import Path
base = Path(sys.argv[1])
import unspool
def run(name):
    settings = unspool.Settings.load(arguments={"database": f"sqlite:///{base}/{name}.db", "jobs": 1}, environment={}, folder=base)
    with unspool.open(settings=settings) as corpus:
        report = corpus.index(base / "tree", project="tree")
        records = {record.path: (record.status, record.error, record.chunk_count) for record in corpus.documents()}
        hits = [(hit.chunk.path, hit.chunk.status) for hit in corpus.search("walrus", alpha=0).hits]
    return {"added": report.added, "updated": report.updated, "removed": report.removed, "failed": report.failed,
            "failures": [one.path for one in report.failures],
            "unchanged": report.unchanged, "warnings": len(report.warnings), "records": records, "hits": hits}
run("warm")
os.setgid(65534); os.setuid(65534)
locked, tree = base / "tree" / sys.argv[2], base / "tree"
out = []
if sys.argv[3] == "known":
    out.append(run("own"))
    if locked.is_file():
        locked.write_text("def walrus():\\n    return 22\\n")
locked.chmod(0)
out.append(run("own"))
out.append(run("own"))
locked.chmod(0o755)
if sys.argv[3] == "known" and locked.is_file():
    locked.write_text("def walrus():\\n    return 1\\n")
out.append(run("own"))
print(json.dumps(out))
"""


def as_nobody(folder: Path, locked: str, known: str) -> list[dict]:
    write(
        folder / "tree",
        {
            "a.py": WALRUS,
            "b.py": "def penguin():\n    return 2\n",
            "deep/c.py": "def zebra():\n    return 3\n",
        },
    )
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(folder), locked, known],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict] = json.loads(done.stdout)
    return found


needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can become another user; run the tests as root"
)


@needs_root
def test_an_unreadable_file_is_failed_with_its_error_and_the_rest_goes_on(
    shared_folder: Path,
) -> None:
    first, again, mended = as_nobody(shared_folder, "a.py", "new")
    assert (first["added"], first["failed"], first["failures"]) == (2, 1, ["a.py"])
    status, error, chunks = first["records"]["a.py"]
    assert (status, chunks) == ("failed", 0)
    assert "a.py" in error
    assert (again["failed"], again["unchanged"]) == (1, 2)
    assert (mended["added"], mended["failed"], mended["records"]["a.py"][:2]) == (
        1,
        0,
        ["indexed", ""],
    )
    assert mended["hits"][0][0] == "a.py"


@needs_root
def test_a_document_that_fails_keeps_its_old_chunks_and_is_well_again_later(
    shared_folder: Path,
) -> None:
    before, failed, again, mended = as_nobody(shared_folder, "a.py", "known")
    assert before["failed"] == 0
    for report in (failed, again):
        assert (report["failed"], report["failures"], report["removed"]) == (1, ["a.py"], 0)
        assert report["records"]["a.py"][0] == "failed"
        assert report["hits"] == [["a.py", "failed"]]
    assert (mended["failed"], mended["records"]["a.py"][:2]) == (0, ["indexed", ""])
    assert mended["hits"] == [["a.py", "indexed"]]


@needs_root
def test_what_lies_in_a_folder_that_cannot_be_listed_is_kept_with_a_warning(
    shared_folder: Path,
) -> None:
    before, locked, again, mended = as_nobody(shared_folder, "deep", "known")
    assert before["added"] == 3
    for report in (locked, again):
        assert (report["removed"], report["warnings"]) == (0, 1)
        assert report["records"]["deep/c.py"][0] == "indexed"
    assert (mended["unchanged"], mended["warnings"]) == (3, 0)


def test_two_folders_cannot_be_one_project(corpus: unspool.Corpus, tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", {"a.py": WALRUS}), write(tmp_path / "two", {"b.py": WALRUS})
    corpus.index(one, project="p")
    with pytest.raises(ConflictError, match="--project"):
        corpus.index(two, project="p")
    assert [record.path for record in corpus.documents()] == ["a.py"]


def test_files_that_vanish_between_the_scan_and_the_reading_do_not_stop_a_run(
    corpus: unspool.Corpus, database: Path, tmp_path: Path
) -> None:
    tree = write(
        tmp_path / "tree", {f"m{n}.py": f"def walrus_{n}():\n    return {n}\n" for n in range(30)}
    )
    report = corpus.index(
        tree,
        on_progress=lambda progress: (
            [file.unlink() for file in list(tree.glob("m1*.py"))] and None
            if progress.task == "scanning"
            else None
        ),
    )
    assert report.added == 19
    assert corpus.index(tree).failed == 0
    assert {record.status for record in corpus.documents()} == {unspool.Status.INDEXED}
    assert len(corpus.documents()) == 19
    assert_no_orphans(database)


def test_open_corpora_can_be_closed_twice_and_reopened(tmp_path: Path) -> None:
    opened = open_corpus(tmp_path / "catalog.db")
    opened.close()
    opened.close()
    open_corpus(tmp_path / "catalog.db").close()
