"""Indexing and searching with a model that is neither cheap nor in the workers: they read and
cut, this process embeds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import unspool
from hashing import Asked, Words
from support import (
    Place,
    Places,
    assert_no_orphans,
    contents,
    doc,
    open_corpus,
    settings_for,
    write,
)
from unspool.errors import InputError
from unspool.indexing import pipeline

FILES = pipeline.INLINE_FILES + 20  # enough for worker processes


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    module = '"""Module {0}."""\n\n\ndef load_{0}(path):\n    return {0} * len(path)\n'
    return write(
        tmp_path / "tree",
        {f"d{number % 5}/m{number}.py": module.format(number) for number in range(FILES)},
    )


def test_workers_cut_what_this_process_embeds(places: Places, tree: Path, hashing: Asked) -> None:
    by_workers, alone = places.new(), places.new()
    with open_corpus(by_workers, embedder="hashing:a", jobs=2) as corpus:
        report = corpus.index(tree, project="tree")
        assert (report.added, report.failed) == (FILES, 0)
        assert report.embedded == hashing.count("a") == report.chunks
        hits = corpus.search("load_7", projects="tree", limit=5).hits
    with open_corpus(alone, embedder="hashing:a", jobs=1) as corpus:
        corpus.index(tree, project="tree")
        assert corpus.search("load_7", projects="tree", limit=5).hits == hits
    assert contents(by_workers).ids("tree") == contents(alone).ids("tree")
    assert_no_orphans(by_workers, embedder="hashing:a")


def test_an_object_that_no_other_process_can_have_embeds_a_large_tree(
    database: Place, tree: Path
) -> None:
    words = Words()
    with unspool.open(settings=settings_for(database, jobs=2), embedder=words) as corpus:
        report = corpus.index(tree, project="tree")
        assert report.embedded == len(words.asked) == report.chunks
        assert corpus.search("load_7", projects="tree").hits[0].chunk.path == "d2/m7.py"


@pytest.mark.usefixtures("hashing")
def test_chunks_fit_a_model_that_reads_little(database: Place) -> None:
    """Nothing is cut that could have been put into another chunk."""
    text = "\n\n".join(
        f"Paragraph {number} speaks of the walrus and of the island it lives on."
        for number in range(30)
    )
    with open_corpus(database, embedder="hashing:short") as corpus:
        report = corpus.put(doc("long.md", text))
        assert report.chunks > 10
        assert report.warnings == ()


@pytest.mark.usefixtures("hashing")
def test_a_passage_that_does_not_fit_with_its_headings_is_told(database: Place) -> None:
    title = (
        "A title with so many words that hardly anything is left for what stands below it, "
        "however short that may be, and more"
    )
    with open_corpus(database, embedder="hashing:short") as corpus:
        report = corpus.put(
            unspool.Document(
                project="notes",
                path="a.md",
                title=title,
                text="The walrus lives on the island " * 5,
            )
        )
        assert [
            warning
            for warning in report.warnings
            if "longer than the 40 tokens that hashing:short reads" in warning
        ]


@pytest.mark.usefixtures("hashing")
def test_a_query_that_is_too_long_is_cut_and_that_is_told(database: Place) -> None:
    with open_corpus(database, embedder="hashing:short") as corpus:
        corpus.put(doc("a.md", "The walrus lives on the island."))
        assert corpus.search("walrus").warnings == ()
        long = corpus.search("walrus island " * 60)
        assert long.hits
        assert [warning for warning in long.warnings if "the first 40 tokens" in warning]
        assert corpus.search("walrus island " * 60, alpha=0).warnings == ()


@pytest.mark.usefixtures("hashing")
def test_a_text_that_is_embedded_by_itself_is_not_cut_in_silence(database: Place) -> None:
    with open_corpus(database, embedder="hashing:short") as corpus:
        corpus.put(doc("a.md", "The walrus lives on the island."))
        corpus.embed("walrus")
        with pytest.warns(UserWarning, match="reads the first 40"):
            corpus.embed("walrus island " * 60)


@pytest.mark.usefixtures("hashing")
def test_a_query_that_is_too_long_is_refused_where_that_is_set(database: Place) -> None:
    with open_corpus(database, embedder="hashing:short", embedder_over_limit="refuse") as corpus:
        corpus.put(doc("a.md", "The walrus lives on the island."))
        with pytest.raises(InputError, match="UNSPOOL_EMBEDDER_OVER_LIMIT"):
            corpus.search("walrus island " * 60)
