"""Filters on every engine: they let through what they say, and never less."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unspool
from support import Place, Places, doc, open_corpus, paths
from unspool.errors import FilterError

LIBRARY = [
    doc(
        "src/app.py",
        "def walrus():\n    return 'python'\n",
        modified=datetime(2026, 1, 10, tzinfo=UTC),
        metadata={"author": "ann", "year": 2026, "done": True},
    ),
    doc(
        "src/deep/app.go",
        "package deep\n\nfunc Walrus() int { return 1 }\n",
        modified=datetime(2025, 1, 10, tzinfo=UTC),
        metadata={"author": "bob", "year": 2025, "done": False},
    ),
    doc(
        "docs/guide.md",
        "# Guide\n\nThe walrus guide.\n\n## Feeding\n\nA walrus eats fish.\n",
        modified=datetime(2024, 1, 10, tzinfo=UTC),
        metadata={"author": "ann", "year": 2024.5},
    ),
    doc("data/table.json", '{"walrus": [1, 2, 3]}\n', metadata={"year": 1999}),
    doc("plain.txt", "A plain walrus note."),
]

CASES: list[tuple[dict[str, Any], set[str]]] = [
    ({"document": "plain.txt"}, {"plain.txt"}),
    ({"document": ["plain.txt", "src/app.py"]}, {"plain.txt", "src/app.py"}),
    ({"path": "src/**"}, {"src/app.py", "src/deep/app.go"}),
    ({"path": "*.py"}, {"src/app.py"}),
    ({"path": {"not": "src/**"}}, {"docs/guide.md", "data/table.json", "plain.txt"}),
    ({"path": "nothing/**"}, set()),
    ({"language": "python"}, {"src/app.py"}),
    ({"language": "Python"}, {"src/app.py"}),
    ({"language": ["python", "go"]}, {"src/app.py", "src/deep/app.go"}),
    ({"language": {"not": ["python", "go"]}}, {"docs/guide.md", "data/table.json", "plain.txt"}),
    ({"kind": "code"}, {"src/app.py", "src/deep/app.go"}),
    ({"kind": "data"}, {"data/table.json"}),
    ({"modified": {"ge": "2025-01-10"}}, {"src/app.py", "src/deep/app.go"}),
    ({"modified": {"gt": "2025-01-10"}}, {"src/app.py"}),
    ({"modified": {"lt": "2025-01-10"}}, {"docs/guide.md"}),
    ({"modified": {"le": "2025-01-10", "gt": "2024-06-01"}}, {"src/deep/app.go"}),
    ({"modified": "2025-01-10"}, {"src/deep/app.go"}),
    (
        {"modified": {"not": "2025-01-10"}},
        {"src/app.py", "docs/guide.md", "data/table.json", "plain.txt"},
    ),
    ({"metadata.author": "ann"}, {"src/app.py", "docs/guide.md"}),
    ({"metadata": {"author": "ann", "year": 2026}}, {"src/app.py"}),
    ({"metadata.author": ["bob", "carl"]}, {"src/deep/app.go"}),
    ({"metadata.author": {"not": "ann"}}, {"src/deep/app.go", "data/table.json", "plain.txt"}),
    ({"metadata.year": {"ge": 2024, "lt": 2026}}, {"src/deep/app.go", "docs/guide.md"}),
    ({"metadata.year": {"gt": 2024.5}}, {"src/app.py", "src/deep/app.go"}),
    ({"metadata.year": "2026"}, set()),
    ({"metadata.done": True}, {"src/app.py"}),
    ({"metadata.done": False}, {"src/deep/app.go"}),
    ({"metadata.absent": "x"}, set()),
    (
        {"metadata.absent": {"not": "x"}},
        {"src/app.py", "src/deep/app.go", "docs/guide.md", "data/table.json", "plain.txt"},
    ),
    ({"not": {"metadata.year": {"gt": 2000}}}, {"data/table.json", "plain.txt"}),
    (
        {"any": [{"language": "go"}, {"metadata.year": 1999}]},
        {"src/deep/app.go", "data/table.json"},
    ),
    ({"all": [{"kind": "code"}, {"not": {"language": "go"}}]}, {"src/app.py"}),
    ({"any": []}, set()),
    (
        {"project": "notes"},
        {"src/app.py", "src/deep/app.go", "docs/guide.md", "data/table.json", "plain.txt"},
    ),
    ({"project": "other"}, set()),
    ({"heading": "guide"}, {"docs/guide.md"}),
    ({"heading": "100%"}, set()),
    ({"any": [{"heading": "Guide"}, {"language": "go"}]}, {"docs/guide.md", "src/deep/app.go"}),
]


@pytest.fixture(scope="module")
def libraries(module_places: Places) -> Iterator[dict[str, unspool.Corpus]]:
    """The same documents, once absorbed by a store that catches up later, once all in its tail,
    once half and half and rewritten.
    """
    with contextlib.ExitStack() as opened_ones:
        yield {
            state: opened_ones.enter_context(library(module_places.new(), state))
            for state in ("absorbed", "tail", "both")
        }


@contextlib.contextmanager
def library(place: Place, state: str) -> Iterator[unspool.Corpus]:
    with open_corpus(place) as opened:
        opened.put(*(LIBRARY if state != "both" else LIBRARY[:2]))
        if state != "tail":
            opened.refresh()
        if state == "both":
            opened.put(
                doc("src/app.py", "old text of another kind", metadata={"author": "zoe", "year": 1})
            )
            opened.put(*LIBRARY[2:], LIBRARY[0])
        yield opened


@pytest.mark.parametrize("alpha", [0, 1, None])
@pytest.mark.parametrize("state", ["absorbed", "tail", "both"])
def test_a_filter_lets_through_what_it_says_and_nothing_less(
    libraries: dict[str, unspool.Corpus], state: str, alpha: float | None
) -> None:
    """All documents hold the word, so that the filter alone decides, for words, meaning and
    both.
    """
    wrong = {}
    for where, expected in CASES:
        found = set(paths(libraries[state].search("walrus", where=where, alpha=alpha, limit=100)))
        if found != expected:
            wrong[str(where)] = found ^ expected
    assert wrong == {}


@pytest.mark.parametrize("state", ["absorbed", "tail", "both"])
def test_the_nearest_obey_filters_too(libraries: dict[str, unspool.Corpus], state: str) -> None:
    opened = libraries[state]
    hits = opened.nearest(opened.embed("walrus"), k=100, where={"metadata.author": "ann"})
    assert {hit.chunk.path for hit in hits} == {"src/app.py", "docs/guide.md"}


def test_a_heading_filter_chooses_the_chunks_below_it(corpus: unspool.Corpus) -> None:
    corpus.put(
        doc(
            "a.md",
            "# Top\n\n"
            + "walrus in the introduction. " * 80
            + "\n\n## 100% sure_thing\n\n"
            + "walrus below. " * 80
            + "\n\n## Other\n\n"
            + "walrus elsewhere. " * 80,
        )
    )
    for spelled in ("100% sure", "sure_thing", "SURE"):
        hits = corpus.search("walrus", where={"heading": spelled}, limit=100).hits
        assert hits
        assert all("100% sure_thing" in hit.chunk.headings for hit in hits)
    assert corpus.search("walrus", where={"heading": "100_ sure"}).hits == ()


@pytest.mark.parametrize(
    "where", [{"lang": "x"}, {"language": {"like": "x"}}, {"modified": "soon"}]
)
def test_a_filter_that_makes_no_sense_is_refused(corpus: unspool.Corpus, where: dict) -> None:
    corpus.put(doc("a", "x"))
    with pytest.raises(FilterError):
        corpus.search("x", where=where)


@pytest.mark.parametrize(
    "pattern",
    [
        "[z-a].py",
        "[]",
        "[!]",
        "[^]",
        "a[b",
        "(",
        "+",
        "\\",
        "[a&&b]",
        "[[:alpha:]]x",
        "[\\d]",
        "*a" * 30 + "b",
    ],
)
def test_an_odd_glob_matches_nothing(corpus: unspool.Corpus, pattern: str) -> None:
    corpus.put(doc("a.txt", "walrus"), doc("a" * 200, "walrus"))
    assert corpus.search("walrus", where={"path": pattern}).hits == ()


@pytest.mark.parametrize("field", ["document", "language", "metadata.author"])
def test_a_list_may_have_a_thousand_values(corpus: unspool.Corpus, field: str) -> None:
    corpus.put(doc("a.txt", "walrus", metadata={"author": "ann"}), doc("b.md", "walrus"))
    others = [f"x{number}" for number in range(999)]
    wanted = {"document": "a.txt", "language": "text", "metadata.author": "ann"}[field]
    assert paths(corpus.search("walrus", where={field: [*others, wanted]})) == ["a.txt"]
    assert paths(corpus.search("walrus", where={field: {"not": [*others, wanted]}})) == ["b.md"]


def test_long_metadata_is_compared_to_its_end(corpus: unspool.Corpus) -> None:
    corpus.put(
        doc("a.txt", "walrus", metadata={"url": "u" * 450 + "a"}),
        doc("b.txt", "walrus", metadata={"url": "u" * 450 + "b"}),
    )
    assert paths(corpus.search("walrus", where={"metadata.url": "u" * 450 + "a"})) == ["a.txt"]


moments = st.datetimes(min_value=datetime(1950, 1, 1), max_value=datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=UTC)
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moments)
def test_a_time_is_found_again_exactly(corpus: unspool.Corpus, moment: datetime) -> None:
    corpus.put(doc("a.txt", "walrus", modified=moment))
    assert corpus.documents()[0].modified == moment
    tick = timedelta(microseconds=1)
    for where, expected in [
        ({"modified": moment}, 1),
        ({"modified": {"ge": moment, "le": moment}}, 1),
        ({"modified": {"lt": moment}}, 0),
        ({"modified": {"gt": moment}}, 0),
        ({"modified": {"gt": moment - tick, "lt": moment + tick}}, 1),
    ]:
        assert len(corpus.search("walrus", where=where).hits) == expected, where


words = st.sampled_from(
    ["walrus", "penguin", "cache", "eviction", "parseConfig", "garden", "tomato"]
)
notes = st.lists(
    st.tuples(
        st.lists(words, min_size=1, max_size=6),
        st.sampled_from(["ann", "bob", None]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)
wheres = st.sampled_from(
    [
        {},
        {"metadata.author": "ann"},
        {"metadata.author": {"not": "ann"}},
        {"metadata.level": {"ge": 2}},
        {"path": "n1*"},
        {"any": [{"metadata.level": 0}, {"metadata.author": "bob"}]},
    ]
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(notes, notes, wheres, st.sampled_from([0, 1, None]), st.integers(1, 30))
def test_never_fewer_hits_than_the_filter_allows(
    places: Places, first: list, second: list, where: dict, alpha: float | None, limit: int
) -> None:
    """Compared with going through the documents one by one; the second batch replaces the first
    in part and stays in the tail.
    """

    def document(number: int, row: tuple[list[str], str | None, int]) -> unspool.Document:
        metadata = {"level": row[2]} | ({"author": row[1]} if row[1] else {})
        return doc(f"n{number}.txt", " ".join(row[0]), metadata=metadata)

    def allowed(one: unspool.Document) -> bool:
        author, level = one.metadata.get("author"), one.metadata["level"]
        checks: dict[str, bool] = {
            "{}": True,
            str({"metadata.author": "ann"}): author == "ann",
            str({"metadata.author": {"not": "ann"}}): author != "ann",
            str({"metadata.level": {"ge": 2}}): level >= 2,
            str({"path": "n1*"}): one.path.startswith("n1"),
        }
        return checks.get(str(where), level == 0 or author == "bob")

    with open_corpus(places.new()) as opened:
        opened.put(*(document(number, row) for number, row in enumerate(first)))
        opened.refresh()
        opened.put(*(document(number * 2, row) for number, row in enumerate(second)))
        now = {f"n{number}.txt": document(number, row) for number, row in enumerate(first)}
        now |= {
            f"n{number * 2}.txt": document(number * 2, row) for number, row in enumerate(second)
        }
        expected = {
            path
            for path, one in now.items()
            if allowed(one) and (alpha != 0 or "walrus" in one.text)
        }
        hits = opened.search("walrus", where=where, alpha=alpha, limit=limit).hits
        texts = {" ".join(now[path].text.split()) for path in expected}
        assert len(hits) == min(limit, len(texts)), "the same text is one hit"
        assert {hit.chunk.path for hit in hits} <= expected
        if len(texts) <= limit:
            found = {hit.chunk.path for hit in hits} | {
                copy.rpartition(":")[0] for hit in hits for copy in hit.copies
            }
            assert found == expected
