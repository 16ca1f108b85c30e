"""What must never get out, and what must never get lost, whatever it is called and whoever else
is at work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import unspool
from support import Place, address_of, open_corpus
from unspool.catalog import documents, projects
from unspool.indexing import changes
from unspool.sources.folders import scan

SECRET = "ghp_" + "k3Jx9QmZ7rT2vW8yB4nL6pD1sF5hG0aCeUiO"


@pytest.mark.parametrize("name", ["..", ".", "/", "../..", "a/b", "C:\\x"])
def test_no_project_name_leads_out_of_the_folder_of_clones(catalog_file: Path, name: str) -> None:
    beside = catalog_file.parent / "other.txt"
    beside.write_text("mine")
    catalog_file.with_name(catalog_file.name + ".clones").mkdir()
    with open_corpus(catalog_file) as corpus:
        corpus.put(unspool.Document(project=name, path="a.md", text="a walrus"))
        assert corpus.forget(project=name) == 1
    assert beside.read_text() == "mine"
    assert catalog_file.exists()


def test_secrets_in_titles_and_metadata_are_masked_too(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.html").write_text(
        f"<html><head><title>{SECRET}</title></head><body><p>walrus</p></body></html>"
    )
    corpus.index(tree, project="tree")
    corpus.put(
        unspool.Document(
            project="given",
            path="b.md",
            text="walrus",
            title=f"key {SECRET}",
            metadata={"token": SECRET},
        )
    )
    for record in corpus.documents():
        assert SECRET not in record.title
        assert SECRET not in str(dict(record.metadata))
    for hit in corpus.search("walrus", projects="*").hits:
        assert SECRET not in hit.chunk.title + hit.chunk.text + str(dict(hit.chunk.metadata))


def test_a_secret_with_an_escape_in_it_is_masked(corpus: unspool.Corpus) -> None:
    corpus.put(unspool.Document(path="b.py", text='password = "Xk9\\\\vQ2!mmZp0"\n'))
    assert "mmZp0" not in corpus.search("password").hits[0].chunk.text


def test_a_run_with_an_old_scan_does_not_remove_what_another_has_indexed_since(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "old.md").write_text("walrus")
    corpus.index(tree, project="tree")
    before = datetime.now(UTC)
    stale_scan = scan(tree)
    (tree / "new.md").write_text("penguin")
    corpus.index(tree, project="tree")
    with corpus._resources.catalog.read() as connection:
        row = projects.find_project(connection, "tree")
        assert row is not None
        known = list(documents.stream_states(connection, row.id))
    plan = changes.plan_run(
        stale_scan.found,
        known,
        recipe=known[0].recipe,
        live_runs=frozenset(),
        scanned_at=before,
    )
    assert plan.removed == set()
    late = changes.plan_run(
        stale_scan.found,
        known,
        recipe=known[0].recipe,
        live_runs=frozenset(),
        scanned_at=before + timedelta(hours=1),
    )
    assert [state.path for state in late.removed] == ["new.md"]


def test_a_document_put_anew_while_a_run_holds_it_stays_as_it_was_put(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    corpus.put(unspool.Document(project="p", path="a.md", text="first"))
    with corpus._resources.catalog.write() as connection:
        row = projects.find_project(connection, "p")
        assert row is not None
        run = projects.begin_run(connection, row.id, "token")
        ids = documents.find_ids(connection, row.id, ["a.md"])
        documents.mark_stale(connection, list(ids.values()))
        assert documents.claim_documents(connection, row.id, run, ["a.md"], frozenset()) != {}
    corpus.put(unspool.Document(project="p", path="a.md", text="second"))
    with corpus._resources.catalog.write() as connection:
        assert documents.lock_claims(connection, row.id, ["a.md"], run) == {}


def test_a_dead_run_of_an_earlier_process_with_our_number_is_not_taken_for_ours(
    corpus: unspool.Corpus,
) -> None:
    corpus.put(unspool.Document(project="p", path="a.md", text="first"))
    with corpus._resources.catalog.write() as connection:
        row = projects.find_project(connection, "p")
        assert row is not None
        with projects.issue_run_token() as token:
            run = projects.begin_run(connection, row.id, token)
            assert run in projects.list_live_runs(connection, row.id)
            connection.exec_driver_sql("UPDATE runs SET process = 'another'")
            assert run not in projects.list_live_runs(connection, row.id)
            connection.exec_driver_sql(f"UPDATE runs SET process = '{token}'")
        # it is over, though nobody noted it
        assert run not in projects.list_live_runs(connection, row.id)


def test_a_failed_run_lets_go_of_the_folder(
    corpus: unspool.Corpus, database: Place, tmp_path: Path
) -> None:
    """Another process can absorb at once after a run was interrupted."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(80):
        (tree / f"f{number}.md").write_text(
            "\n\n".join(f"Paragraph {i} of file {number} about walruses." for i in range(300))
        )
    environment = {**os.environ, "UNSPOOL_DATABASE": address_of(database)}
    process = subprocess.Popen(
        [sys.executable, "-m", "unspool", "index", str(tree), "--project", "tree"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    corpus.index(tree, project="tree")
    assert len(corpus.documents(project="tree", status="indexed")) == 80
