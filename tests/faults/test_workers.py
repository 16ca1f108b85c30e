"""The processes that prepare files: what may happen to them, and the limits that end them."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import sys
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import attacks
from support import open_corpus, write
from unspool.domain.prepared import PreparedDocument
from unspool.indexing import workers
from unspool.indexing.changes import Work
from unspool.indexing.preparing import Failed, Outcome, Unchunked
from unspool.indexing.workers import Phase, Pool, Recipe
from unspool.processes import Child, Limits
from unspool.sources.folders import scan

PIPE_BYTES = 60_000  # nearly all that a pipe holds
RECIPE = Recipe(
    database="",
    options={},
    space_id=1,
    embedder="",
    counts=True,
    max_tokens=512,
    tokenizer_file="",
    chunk_tokens=400,
    max_bytes=10_000_000,
    seconds=60,
    memory_bytes=350_000_000,
)
LINUX = pytest.mark.skipif(
    sys.platform != "linux",
    reason="memory limits and the sizes of pipes are Linux's own; run it there",
)


def works(tree: Path) -> list[Work]:
    return [Work(found=found) for found in scan(tree).found]


def prepare_all(recipe: Recipe, batches: list[list[Work]], *, jobs: int = 1) -> dict[str, Outcome]:
    with closing(Pool(recipe, jobs)) as pool:
        return {
            outcome.path: outcome for outcomes in pool.map(iter(batches)) for outcome in outcomes
        }


def slow_tree(folder: Path) -> Path:
    """Three notes, and between them a document that takes more than ten seconds to read."""
    tree = write(
        folder / "tree",
        {f"{name}.md": f"# {name}\n\nAbout a walrus.\n" for name in ("a", "b", "z")},
    )
    (tree / "m.docx").write_bytes(attacks.docx_of_paragraphs(200_000))
    return tree


@LINUX
def test_a_worker_that_is_stopped_in_the_middle_of_an_answer_sends_all_of_it(
    tmp_path: Path,
) -> None:
    """A write that a signal interrupts may end halfway."""
    tree = write(
        tmp_path / "tree",
        {
            "long.md": "\n\n".join(
                f"Paragraph {number} about walruses and fish." for number in range(5_000)
            )
        },
    )
    with (
        closing(Child("unspool.indexing.workers:serve")) as worker,
        ThreadPoolExecutor(1) as reader,
    ):
        worker.send(RECIPE)
        worker.send(works(tree))
        assert worker.receive() == Phase(0)
        waiting = array.array("i", [0])
        deadline = time.monotonic() + 60
        while waiting[0] < PIPE_BYTES and time.monotonic() < deadline:
            time.sleep(0.01)
            fcntl.ioctl(worker._output, termios.FIONREAD, waiting)
        os.kill(worker.pid, signal.SIGSTOP)
        os.kill(worker.pid, signal.SIGCONT)
        (document,) = reader.submit(worker.receive).result(timeout=20)  # type: ignore[misc]
        assert sum(len(chunk.text) for chunk in document.chunks) > PIPE_BYTES


def test_a_file_that_takes_too_long_fails_alone_and_its_error_names_the_limit(
    tmp_path: Path,
) -> None:
    tree = slow_tree(tmp_path)
    outcomes = prepare_all(replace(RECIPE, seconds=3), [works(tree)])
    assert [
        path for path, outcome in outcomes.items() if isinstance(outcome, PreparedDocument)
    ] == ["a.md", "b.md", "z.md"]
    failed = outcomes["m.docx"]
    assert isinstance(failed, Failed)
    assert "the limit of 3 seconds" in failed.error


@LINUX
def test_a_file_that_needs_too_much_memory_fails_alone_and_its_error_names_the_limit(
    tmp_path: Path,
) -> None:
    tree = write(tmp_path / "tree", {f"{name}.md": f"About walrus {name}." for name in ("a", "z")})
    (tree / "m.docx").write_bytes(attacks.docx_of_cells(600, 200))
    (tree / "n.pdf").write_bytes(
        attacks.pdf_of_content(b"BT /F1 12 Tf (" + b"walrus " * 5_000_000 + b") Tj ET")
    )
    outcomes = prepare_all(replace(RECIPE, memory_bytes=120_000_000), [works(tree)])
    for name in ("m.docx", "n.pdf"):
        failed = outcomes.pop(name)
        assert isinstance(failed, Failed)
        assert "the memory limit of 120 MB" in failed.error
    assert all(isinstance(outcome, PreparedDocument) for outcome in outcomes.values())
    assert list(outcomes) == ["a.md", "z.md"]


def test_a_file_whose_worker_is_killed_fails_alone(tmp_path: Path) -> None:
    with closing(Pool(RECIPE, 1)) as pool:
        threading.Timer(0, _kill_at_slow_file, [pool]).start()
        outcomes = {
            outcome.path: outcome
            for some in pool.map(iter([works(slow_tree(tmp_path))]))
            for outcome in some
        }
    failed = outcomes.pop("m.docx")
    assert isinstance(failed, Failed)
    assert "died" in failed.error
    assert all(isinstance(outcome, PreparedDocument) for outcome in outcomes.values())


def _kill_at_slow_file(pool: Pool) -> None:
    """Kill the worker once it is at work on the slow document."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for worker in pool._workers:
            if worker._received >= 3:  # the announcements of a, b and m
                time.sleep(0.2)
                worker._process.kill()
                return
        time.sleep(0.01)


def test_without_a_counter_a_worker_only_reads(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {"a.md": "About a walrus."})
    (outcome,) = prepare_all(replace(RECIPE, counts=False), [works(tree)]).values()
    assert isinstance(outcome, Unchunked)
    assert outcome.reading.text == "About a walrus."


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the time for each file to three seconds."""
    monkeypatch.setattr(workers, "LIMITS", Limits(seconds=3))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_reports_the_slow_file_and_indexes_the_others(tmp_path: Path, jobs: int) -> None:
    with open_corpus(tmp_path / "catalog.db", jobs=jobs) as corpus:
        report = corpus.index(slow_tree(tmp_path), project="tree")
        assert (report.added, report.failed) == (3, 1)
        assert [
            (failure.path, "the limit of 3 seconds" in failure.error) for failure in report.failures
        ] == [("m.docx", True)]
        assert len(corpus.documents(status="indexed")) == 3
