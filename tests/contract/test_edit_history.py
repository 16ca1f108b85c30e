"""Rankings depend on the content alone: whatever was edited or deleted before, a corpus ranks like a fresh one of the same documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unspool
from support import Places, doc, open_corpus
from unspool.embedded import segments, store

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
histories = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def apply(corpus: unspool.Corpus, project: str, history: list[Edit]) -> dict[str, str]:
    """Apply edits; returns the content that they end in."""
    content: dict[str, str] = {}
    for action, path, text in history:
        if action == "put" and path and text:
            corpus.put(doc(path, text, project=project))
            content[path] = text
        elif action == "forget" and path in content:
            corpus.forget(project=project, path=path)
            del content[path]
        elif action == "absorb":
            corpus.refresh()
        elif content:
            corpus.search("walrus", projects=project)
    return content


def rank(corpus: unspool.Corpus, project: str) -> list[list[tuple[float, str]]]:
    """Return the scores and paths of every query. Hits of the same score are in the order of their paths: their ids depend on the project."""
    pages = [corpus.search(query, projects=project, alpha=alpha, limit=20) for query in QUERIES for alpha in (None, 0.0, 1.0)]
    return [sorted((-hit.score, hit.chunk.path) for hit in page.hits) for page in pages]


def check(corpus: unspool.Corpus, history: list[Edit]) -> None:
    content = apply(corpus, "edited", history)
    if not content:
        return
    corpus.put(*(doc(path, text, project="fresh") for path, text in sorted(content.items())))
    corpus.search("walrus", projects="fresh")
    for mine, expected in zip(rank(corpus, "edited"), rank(corpus, "fresh"), strict=True):
        assert [path for _, path in mine] == [path for _, path in expected]
        assert [score for score, _ in mine] == pytest.approx([score for score, _ in expected], abs=1e-6)


@pytest.fixture(scope="module")
def corpus(module_places: Places) -> Iterator[unspool.Corpus]:
    with open_corpus(module_places.new()) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "TAIL_LIMIT", 2)  # so that a few chunks are enough for the tail, commits and merges
        patch.setattr(segments, "MAX_SEGMENTS", 2)
        yield opened


@histories
@given(history=edits)
def test_any_history_ranks_like_a_fresh_index(corpus: unspool.Corpus, history: list[Edit]) -> None:
    try:
        check(corpus, history)
    finally:
        for status in corpus.status():
            corpus.forget(project=status.name)


def test_files_indexed_in_three_versions_and_back_rank_as_at_first(tmp_path: Path) -> None:
    """The catalog's changes are absorbed between the versions, so that rows of every version were in the index."""
    folder = tmp_path / "repo"
    folder.mkdir()

    def write(version: int) -> None:
        for number in range(150):
            words = [WORDS[(number * 7 + version * number + at) % len(WORDS)] for at in range(20 + number % 30)]
            (folder / f"{number}.md").write_text(f"Note {number}: {' '.join(words)}\n" * (1 + version * number % 3))

    write(0)
    with open_corpus(tmp_path / "fresh.db") as fresh, open_corpus(tmp_path / "edited.db") as edited:
        fresh.index(folder, project="repo")
        for version in (0, 1, 2, 0):
            write(version)
            edited.index(folder, project="repo")
            edited.refresh()
        assert rank(edited, "repo") == rank(fresh, "repo")
