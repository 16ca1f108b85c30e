"""Documents and exports that are made to be slow or large: each is read, or reported, and the
rest goes on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import attacks
import exports
import unspool
from hashing import Words
from support import settings_for, write
from unspool.domain.reports import Progress
from unspool.indexing import preparing
from unspool.processes import Limits
from unspool.sources import extraction, reading
from unspool.sources.conversations import building, isolation
from unspool.sources.extraction import extract
from unspool.sources.folders import scan
from unspool.sources.pages import extract_page

SAMPLES = {
    "wide-cell.docx": attacks.docx_with_wide_cell(),
    "bomb.docx": attacks.docx_bomb(20),
    "cut.docx": attacks.docx_of_paragraphs(100)[:-200],
    "stream-bomb.pdf": attacks.pdf_of_content(b" " * 100_000_000),
    "loop.pdf": attacks.pdf_with_loop(),
    "deep.pdf": attacks.deep_pdf(100_000),
    "notebook.ipynb": attacks.notebook(0.3),
    "deep.json": b"[" * 300_000,
    "parentheses.py": b"x = " + b"(" * 150_000,
}
STOPPABLE = pytest.mark.skipif(
    sys.platform != "linux", reason="finds the children of a process in /proc; run it on Linux"
)


def test_every_hostile_document_is_indexed_or_reported_and_the_rest_goes_on(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"good.md": "# Walrus\n\nIt swims.\n"})
    for name, content in SAMPLES.items():
        (tree / name).write_bytes(content)
    report = corpus.index(tree, project="tree")
    failed, skipped = (
        {failure.path for failure in report.failures},
        {skip.path for skip in report.skips},
    )
    indexed = {record.path for record in corpus.documents(status="indexed")}
    assert failed | skipped | indexed == {"good.md", *SAMPLES}
    assert "good.md" in indexed
    assert failed == {"bomb.docx", "cut.docx", "stream-bomb.pdf", "loop.pdf", "deep.pdf"}
    assert not [failure for failure in report.failures if "bug in unspool" in failure.error]


def test_a_cell_that_claims_a_million_columns_is_read_once() -> None:
    result = extract(attacks.docx_with_wide_cell(1_000_000), "a.docx")
    assert result is not None
    assert result.text == "wide walrus | narrow"


def test_merged_cells_are_read_once_in_a_row_and_repeated_below() -> None:
    cell = "<w:tc><w:tcPr>{}</w:tcPr><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>"
    first = cell.format('<w:vMerge w:val="restart"/>', "tank") + cell.format(
        '<w:gridSpan w:val="2"/>', "both"
    )
    second = cell.format("<w:vMerge/>", "") + cell.format("", "left") + cell.format("", "right")
    result = extract(
        attacks.docx(f"<w:tbl><w:tr>{first}</w:tr><w:tr>{second}</w:tr></w:tbl>"), "a.docx"
    )
    assert result is not None
    assert result.text == "tank | both\ntank | left | right"


def test_a_docx_with_more_xml_than_the_parser_can_hold_is_refused_before_it_is_parsed() -> None:
    paragraphs = extraction._MAX_XML_BYTES // 50
    with pytest.raises(unspool.UnspoolError, match="bytes of XML; split it"):
        extract(attacks.docx_of_paragraphs(paragraphs), "a.docx")


def test_a_tag_with_too_many_attributes_stays_source() -> None:
    assert extract_page(attacks.attributes_html(150_000).decode()) is None
    assert extract_page(attacks.attributes_html(1_000).decode()) is not None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.pdf", attacks.pdf_of_pages(1)),
        ("a.txt", attacks.pdf_of_pages(1)),  # what a file contains counts, not only its name
        ("a.docx", attacks.docx_of_paragraphs(1)),
        ("a.html", b"<p>walrus</p>"),
        ("a.ipynb", b"{}"),
        ("a.md", b"x" * (reading.SMALL_BYTES + 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_needs_a_parser_is_never_read_in_the_process_that_indexes(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "small.md").write_text("# Walrus")
    work = [preparing.PendingFile(found=found) for found in scan(tmp_path).found]
    outcomes, deferred = preparing.prepare_small_files(
        work, chunker=preparing.Chunker(counter=Words(), chunk_tokens=300), max_bytes=2_000_000
    )
    assert [outcome.path for outcome in outcomes] == ["small.md"]
    assert [one.found.path for one in deferred] == [name]


def test_documents_are_indexed_with_an_embedder_that_no_other_process_can_open(
    tmp_path: Path,
) -> None:
    tree = write(tmp_path / "tree", {"small.md": "# Penguin\n\nIt swims.\n"})
    (tree / "manual.docx").write_bytes(attacks.docx_of_paragraphs(3))
    with unspool.open(
        settings=settings_for(tmp_path / "catalog.db", jobs=1), embedder=Words()
    ) as corpus:
        report = corpus.index(tree, project="tree")
        assert (report.added, report.failed) == (2, 0)
        assert (
            "walrus 1 on the island" in corpus.search("walrus", projects="tree").hits[0].chunk.text
        )


def children() -> list[int]:
    """The processes that this one has started."""
    return [
        int(pid)
        for file in Path("/proc/self/task").glob("*/children")
        for pid in file.read_text().split()
    ]


def chat(name: str, messages: int) -> dict[str, object]:
    return {
        "id": name,
        "messages": [{"text": f"{name} sails {number} miles " * 50} for number in range(messages)],
    }


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Limits], None]:
    """Set the limits of imports."""
    return lambda limits: monkeypatch.setattr(isolation, "LIMITS", limits)


@STOPPABLE
def test_an_export_without_progress_is_reported_and_the_other_files_are_imported(
    corpus: unspool.Corpus, tmp_path: Path, limit: Callable[[Limits], None]
) -> None:
    limit(Limits(seconds=2))
    stuck = exports.lines(tmp_path / "a.jsonl", *(chat(f"a{number}", 20) for number in range(100)))
    other = exports.lines(tmp_path / "b.jsonl", chat("b", 1))
    before = set(children())
    stopped: set[int] = set()

    def stop(progress: Progress) -> None:
        """Stop the process that reads the first file, once."""
        if not stopped:
            stopped.update(set(children()) - before)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    report = corpus.remember_files([stuck, other], on_progress=stop)
    assert corpus.conversations.exists("b")
    (bad,) = report.bad
    assert bad.source == str(stuck)
    assert (
        bad.position == "the whole file" or bad.position == f"after conversation {report.added - 1}"
    )
    assert "no progress for 2 seconds" in bad.reason
    assert not stopped & set(children())


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux enforces the memory limit; run it there"
)
def test_an_export_that_needs_too_much_memory_is_imported_up_to_that_place(
    corpus: unspool.Corpus, tmp_path: Path, limit: Callable[[Limits], None]
) -> None:
    limit(Limits(memory_bytes=130_000_000))
    bomb = tmp_path / "a.json"
    bomb.write_text(
        '[{"id": "a", "messages": [{"text": "we sail"}]}, {"id": "x", "messages": ['
        + "[], " * 3_000_000
        + "[]]}]"
    )
    other = exports.written(tmp_path / "b.json", [chat("b", 1)])
    report = corpus.remember_files([bomb, other])
    assert report.added == 2
    assert [(bad.source, bad.position) for bad in report.bad] == [
        (str(bomb), "after conversation 1")
    ]
    assert "the memory limit of 130 MB" in report.bad[0].reason


def test_a_message_that_is_too_long_is_reported_and_the_others_are_imported(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    said = [{"text": "we sail"}, {"text": "walrus " * (building.MAX_CHARS // 7 + 1)}]
    report = corpus.remember_files(
        exports.lines(
            tmp_path / "a.jsonl", {"id": "a", "messages": said}, {"id": "b", "messages": said[1:]}
        )
    )
    assert (report.added, report.messages) == (1, 1)
    assert [bad.position for bad in report.bad] == ["line 1 message 2", "line 2 message 1"]


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux enforces the memory limit; run it there"
)
def test_a_line_that_needs_too_much_memory_is_reported_and_the_next_one_is_imported(
    corpus: unspool.Corpus, tmp_path: Path, limit: Callable[[Limits], None]
) -> None:
    limit(Limits(memory_bytes=130_000_000))
    file = exports.lines(
        tmp_path / "a.jsonl",
        chat("a", 1),
        '{"messages": [' + "[], " * 3_000_000 + "[]]}",
        chat("b", 1),
    )
    report = corpus.remember_files(file)
    assert report.added == 2
    assert [bad.position for bad in report.bad] == ["line 2"]
