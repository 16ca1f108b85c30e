"""The same documents on SQLite and on PostgreSQL: the same answers, and what is best comes first
on both.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import unspool
from servers import PostgresServer
from support import Places, doc, open_corpus
from unspool.errors import FilterError

DOCUMENTS = [
    doc("garden/tomatoes.md", ("# Tomatoes\n\nWater tomatoes in the morning, never on their leaves. Pick them in August "
        "when they are red.")),
    doc("garden/roses.md", ("# Roses\n\nPrune roses in March before they begin to grow. Aphids come in May; soap and "
        "water drive them off.")),
    doc("kitchen/bread.md", ("# Bread\n\nKnead flour, water, salt and yeast. Let the dough rest overnight, then bake "
        "it in a hot oven.")),
    doc("kitchen/soup.md", ("# Tomato soup\n\nSimmer ripe tomatoes with onion and basil, then pass them through a "
        "sieve.")),
    doc("sea/walrus.md", "# Walrus\n\nThe walrus lives on ice floes and dives for clams. Its tusks are long teeth."),
    doc("sea/tides.md", "# Tides\n\nThe moon pulls the sea, so that the water rises and falls twice a day."),
    doc("src/cache.py", ("class LruCache:\n    def evict_oldest(self):\n        # The one used longest ago goes.\n"
        "        self.order.pop(0)\n")),
    doc("src/config.py", ("def parse_config(text):\n    # From lines of key=value.\n    return "
        "dict(line.split('=') for line in text)\n")),
    doc("src/retry.go", ("package net\n\n// Retry calls f until it succeeds, longer apart after each failure.\n"
        "func Retry(f func() error) { f() }\n")),
    doc("music/violin.md", "# Violin\n\nA violin has four strings. Rosin on the bow makes them sound."),
    doc("travel/trains.md", ("# Night trains\n\nA sleeper leaves Vienna in the evening and reaches Venice at "
        "breakfast.")),
    doc("travel/alps.md", "# The Alps\n\nSnow lies on the passes until June. Take water and a map."),
]  # fmt: skip
QUERIES = {
    "when should I water tomatoes": "garden/tomatoes.md",
    "tomato soup with basil": "kitchen/soup.md",
    "animal with tusks on the ice": "sea/walrus.md",
    "evict_oldest": "src/cache.py",
    "parseConfig": "src/config.py",
    "try again after a failure": "src/retry.go",
    "bake dough": "kitchen/bread.md",
    "moon and the sea": "sea/tides.md",
    "sleeper to Venice": "travel/trains.md",
    "rosin for the bow": "music/violin.md",
}


@pytest.fixture(scope="module")
def both(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[unspool.Corpus, unspool.Corpus]]:
    folder = tmp_path_factory.mktemp("agree")
    with (
        Places(folder, postgres_server) as places,
        open_corpus(folder / "catalog.db") as one,
        open_corpus(places.new()) as other,
    ):
        for corpus in (one, other):
            corpus.put(*DOCUMENTS)
            corpus.refresh()
        yield one, other


@pytest.mark.parametrize("query", QUERIES)
def test_the_first_hits_are_the_same(
    both: tuple[unspool.Corpus, unspool.Corpus], query: str
) -> None:
    for alpha in (None, 1.0, 0.0):
        one, other = (
            [hit.chunk.path for hit in corpus.search(query, limit=3, alpha=alpha).hits]
            for corpus in both
        )
        assert one == other, alpha
    assert one[:1] in ([], [QUERIES[query]]), "by words"
    assert both[1].search(query, limit=3).hits[0].chunk.path == QUERIES[query]


@pytest.mark.parametrize("query", QUERIES)
def test_the_nearest_are_the_same_with_the_same_scores(
    both: tuple[unspool.Corpus, unspool.Corpus], query: str
) -> None:
    one, other = (corpus.nearest(corpus.embed(query), k=100) for corpus in both)
    assert [hit.chunk for hit in one] == [hit.chunk for hit in other]
    assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-5)


@pytest.mark.parametrize("query", QUERIES)
def test_words_find_the_same_documents(
    both: tuple[unspool.Corpus, unspool.Corpus], query: str
) -> None:
    one, other = (
        {hit.chunk.path for hit in corpus.search(query, limit=100, alpha=0.0).hits}
        for corpus in both
    )
    assert one == other


def test_related_and_filtered_are_the_same(both: tuple[unspool.Corpus, unspool.Corpus]) -> None:
    for document in DOCUMENTS:
        one, other = (
            [hit.chunk.path for hit in corpus.related(document.path, limit=5).hits]
            for corpus in both
        )
        assert one == other
    for where in (
        {"path": "garden/**"},
        {"language": "python"},
        {"heading": "tomato"},
        {"not": {"kind": "code"}},
    ):
        one, other = (
            [
                hit.chunk.path
                for hit in corpus.search("water", where=where, alpha=1.0, limit=100).hits
            ]
            for corpus in both
        )
        assert one == other
        assert one


def test_what_is_refused_is_refused_in_the_same_words(
    both: tuple[unspool.Corpus, unspool.Corpus],
) -> None:
    said = []
    for corpus in both:
        with pytest.raises(FilterError) as caught:
            corpus.search("water", where={"lang": "python"})
        said.append(str(caught.value))
    assert said[0] == said[1]
