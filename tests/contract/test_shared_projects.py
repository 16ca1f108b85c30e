"""Writers of every kind that change the same project at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from support import Place, assert_no_orphans, doc, name, open_corpus, paths, write
from talks import assert_whole, said
from unspool import Corpus
from unspool.catalog import documents, projects
from unspool.errors import ConflictError, NotFoundError
from unspool.indexing import pipeline

PROJECT = "tree"
FILES, ROUNDS = 40, 4


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small folder take several claims, transactions and pages."""
    for constant, value in (("CLAIM_FILES", 8), ("BATCH_FILES", 4), ("COMMIT_DOCUMENTS", 6)):
        monkeypatch.setattr(pipeline, constant, value)
    monkeypatch.setitem(documents._STREAM, "yield_per", 7)


@pytest.fixture
def corpora(database: Place) -> Iterator[list[Corpus]]:
    """Four corpora, as four processes have them."""
    opened = [open_corpus(database, jobs=1) for _ in range(4)]
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


def create_files(folder: Path, round_: int = 0, *, count: int = FILES) -> Path:
    texts = {
        f"{name(number)}.md": f"walrus {name(number)} of round {round_ if number % 3 else 0}\n"
        for number in range(count)
    }
    return write(folder, texts)


def run_together(*work: Callable[[], object]) -> list[object]:
    """Run functions in threads that begin together, and return their results."""
    ready = threading.Barrier(len(work))

    def begin(one: Callable[[], object]) -> object:
        ready.wait(timeout=60)
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(begin, work))


def test_two_runs_share_the_files_of_a_project(
    database: Place, corpora: list[Corpus], tmp_path: Path
) -> None:
    tree = create_files(tmp_path / "tree")
    reports = run_together(*(lambda one=one: one.index(tree, project=PROJECT) for one in corpora))
    assert sum(report.added for report in reports) == FILES  # type: ignore[attr-defined]
    for round_ in range(1, ROUNDS):
        create_files(tree, round_)
        (tree / f"{name(round_)}.md").unlink()
        reports = run_together(
            *(lambda one=one: one.index(tree, project=PROJECT) for one in corpora[:2])
        )
        assert all(not report.failures for report in reports)  # type: ignore[attr-defined]
        corpora[0].index(tree, project=PROJECT)  # what was busy in both
        present = {(PROJECT, file.name) for file in tree.iterdir()}
        found = assert_whole(database)
        assert set(found.documents) == present
        assert {row[0] for row in found.documents.values()} == {"indexed"}
        assert {text for _, _, _, text in found.chunks.values()} == {
            file.read_text().strip() for file in tree.iterdir()
        }


def test_every_kind_of_writer_changes_the_same_documents(
    database: Place, corpora: list[Corpus], tmp_path: Path
) -> None:
    tree = create_files(tmp_path / "tree")
    shared = [f"{name(number)}.md" for number in range(6)]

    def index() -> None:
        for round_ in range(ROUNDS):
            create_files(tree, round_)
            corpora[0].index(tree, project=PROJECT)

    def put() -> None:
        for round_ in range(2 * ROUNDS):
            order = shared if round_ % 2 else reversed(shared)
            corpora[1].put(*(doc(path, f"penguin {path} {round_}", PROJECT) for path in order))

    def forget() -> None:
        for _ in range(2 * ROUNDS):
            for path in shared:
                with suppress(NotFoundError):
                    corpora[2].forget(project=PROJECT, path=path)

    def append() -> None:
        for round_ in range(4 * ROUNDS):
            # a file or a text may have the path of the conversation
            with suppress(ConflictError):
                corpora[3].conversations.append(shared[0], said(f"otter {round_}"), project=PROJECT)
            corpora[3].conversations.append("talk", said(f"otter {round_}"), project=PROJECT)

    def put_or_lose() -> None:
        with suppress(ConflictError):  # the path became a conversation
            put()

    corpora[0].index(tree, project=PROJECT)
    run_together(index, put_or_lose, forget, append)
    assert_whole(database)
    corpora[0].index(tree, project=PROJECT)
    found = assert_whole(database)
    assert {file.name for file in tree.iterdir()} <= {path for _, path in found.documents}
    assert corpora[0].conversations.get("talk", project=PROJECT).messages[-1].text == (  # type: ignore[union-attr]
        f"otter {4 * ROUNDS - 1}"
    )


def test_a_project_is_forgotten_while_every_kind_of_writer_changes_it(
    database: Place, corpora: list[Corpus], tmp_path: Path
) -> None:
    tree = create_files(tmp_path / "tree", count=20)

    def index() -> None:
        for round_ in range(ROUNDS):
            create_files(tree, round_, count=20)
            with suppress(NotFoundError, ConflictError):  # the project was deleted meanwhile
                corpora[0].index(tree, project=PROJECT)

    def put() -> None:
        for round_ in range(4 * ROUNDS):
            corpora[1].put(doc(f"text {round_}", f"penguin {round_}", PROJECT))

    def append() -> None:
        for round_ in range(4 * ROUNDS):
            corpora[2].conversations.append("talk", said(f"otter {round_}"), project=PROJECT)

    def forget() -> None:
        for _ in range(2 * ROUNDS):
            with suppress(NotFoundError):
                corpora[3].forget(project=PROJECT)

    run_together(index, put, append, forget)
    assert_whole(database)
    with suppress(NotFoundError):
        corpora[3].forget(project=PROJECT)
    assert corpora[0].index(tree, project=PROJECT).added == 20
    assert_whole(database)


def test_a_document_that_changed_since_the_comparison_is_not_removed(
    corpora: list[Corpus], tmp_path: Path
) -> None:
    tree = create_files(tmp_path / "tree", count=10)
    corpora[0].index(tree, project=PROJECT)
    catalog = corpora[0]._resources.catalog
    with catalog.read() as connection:
        row = projects.find_project(connection, PROJECT)
        assert row is not None
        states = {state.path: state for state in documents.stream_states(connection, row.id)}
    changed = f"{name(3)}.md"
    corpora[1].put(doc(changed, "penguin", PROJECT))
    with catalog.write() as connection:
        ids = documents.lock_unchanged(connection, row.id, set(states.values()))
    assert set(ids) == {state.id for path, state in states.items() if path != changed}


def test_vectors_come_back_from_another_store_without_gaps(database: Place) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus one"), doc("b.md", "walrus two"))
    with open_corpus(database, vectors="memory://elsewhere") as corpus:
        corpus.put(doc("c.md", "walrus three"))
        corpus.forget(project="notes", path="a.md")
        with open_corpus(database) as other:  # at the same time
            assert set(paths(other.search("walrus", alpha=1.0))) == {"b.md", "c.md"}
            corpus.put(doc("d.md", "walrus four"))
            assert set(paths(other.search("walrus", alpha=1.0))) == {"b.md", "c.md", "d.md"}
            other.put(doc("e.md", "walrus five"))
        expected = {"b.md", "c.md", "d.md", "e.md"}
        assert set(paths(corpus.search("walrus", alpha=1.0))) == expected
    assert_no_orphans(database)
