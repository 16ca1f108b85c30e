"""Rankings depend on the content alone: whatever was edited or deleted before, a corpus ranks
like a fresh one of the same documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unspool
from support import Places, doc, open_corpus
from unspool.index import follower as store
from unspool.index.embedded import segments

PATHS = [f"{name}.md" for name in ("ant", "bee", "cat", "dog", "eel", "fox")]
WORDS = ["walrus", "penguin", "zebra", "giraffe", "lion", "the", "ice", "floe", "savanna", "grass"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join)
edits = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(PATHS), texts),
        st.tuples(st.just("forget"), st.sampled_from(PATHS), st.none()),
        st.tuples(st.sampled_from(["absorb", "search"]), st.none(), st.none()),
    ),
    max_size=16,
)
Edit = tuple[str, str | None, str | None]
QUERIES = ["walrus on the ice", "zebra giraffe lion", "penguin", "grass of the savanna"]
histories = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def apply(corpus: unspool.Corpus, history: list[Edit]) -> dict[str, str]:
    """Apply edits; returns the content that they end in."""
    content: dict[str, str] = {}
    for action, path, text in history:
        if action == "put" and path and text:
            corpus.put(doc(path, text))
            content[path] = text
        elif action == "forget" and path in content:
            corpus.forget(project="notes", path=path)
            del content[path]
        elif action == "absorb":
            corpus.refresh()
        elif content:
            corpus.search("walrus")
    return content


def rank(corpus: unspool.Corpus) -> list[list[tuple[str, float]]]:
    pages = [
        corpus.search(query, alpha=alpha, limit=20)
        for query in QUERIES
        for alpha in (None, 0.0, 1.0)
    ]
    return [[(hit.chunk.path, hit.score) for hit in page.hits] for page in pages]


@pytest.fixture(scope="module")
def corpora(module_places: Places) -> Iterator[tuple[unspool.Corpus, unspool.Corpus]]:
    """Two catalogs.

    Both give a project the same number, on which the ids of chunks depend, and so the order of
    ties.
    """
    with (
        open_corpus(module_places.new()) as edited,
        open_corpus(module_places.new()) as fresh,
        pytest.MonkeyPatch.context() as patch,
    ):
        # so that a few chunks are enough for the tail, commits and merges
        patch.setattr(store, "TAIL_LIMIT", 2)
        patch.setattr(segments, "MAX_SEGMENTS", 2)
        yield edited, fresh


@histories
@given(history=edits)
def test_any_history_ranks_like_a_fresh_index(
    corpora: tuple[unspool.Corpus, unspool.Corpus], history: list[Edit]
) -> None:
    edited, fresh = corpora
    try:
        content = apply(edited, history)
        if content:
            fresh.put(*(doc(path, text) for path, text in sorted(content.items())))
            assert rank(edited) == rank(fresh)
        elif edited.status():
            fresh.put(doc("nothing.md", "nothing"))  # so that both have made a project
    finally:
        for corpus in corpora:
            for status in corpus.status():
                corpus.forget(project=status.name)


def test_files_indexed_in_three_versions_and_back_rank_as_at_first(tmp_path: Path) -> None:
    """The catalog's changes are absorbed between the versions, so that rows of every version
    were in the index.
    """
    folder = tmp_path / "repo"
    folder.mkdir()

    def write(version: int) -> None:
        for number in range(60):
            words = [
                WORDS[(number * 7 + version * number + at) % len(WORDS)]
                for at in range(20 + number % 30)
            ]
            (folder / f"{number}.md").write_text(
                f"Note {number}: {' '.join(words)}\n" * (1 + version * number % 3)
            )

    write(0)
    with open_corpus(tmp_path / "fresh.db") as fresh, open_corpus(tmp_path / "edited.db") as edited:
        fresh.index(folder, project="repo")
        for version in (0, 1, 2, 0):
            write(version)
            edited.index(folder, project="repo")
            edited.refresh()
        assert rank(edited) == rank(fresh)
