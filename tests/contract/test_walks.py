"""Whole walks, page by page, while somebody writes: nothing twice, nothing lost, nothing that is
gone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import unspool
from support import Place, Places, assert_no_orphans, doc, name, open_corpus
from unspool.domain.queries import Served

WORDS = (
    "walrus fish island coast cache eviction token parse config garden tomato water harvest moon "
    "copper violin river bridge glass paper "
    "engine piston valve orchid lantern harbour sail anchor mast rope salt pepper flour oven "
    "bread honey bee hive meadow frost"
).split()
SIZES = {"notes": 230, "others": 70}
# so many at least are ranked with page one, whatever the mode; behind them the order is fixed when
# it is needed
ORDERED = 80
WALKS = 12  # that go on side by side, under the same writer
ROUNDS = 2
LONGEST = 60  # tokens that a hit may take
EXAMPLES = {"sqlite": 6, "postgresql": 3}

Key = tuple[str, str]


def text(chance: random.Random, number: int) -> str:
    return " ".join([name(number), *chance.choices(WORDS, k=8)])


@pytest.fixture(scope="module")
def template(module_places: Places) -> Place:
    """A catalog of two projects; each example works on a copy."""
    place = module_places.new()
    chance = random.Random(1)
    with open_corpus(place) as corpus:
        for project, size in SIZES.items():
            corpus.put(
                *(
                    doc(f"{name(number)}.txt", text(chance, number), project)
                    for number in range(size)
                )
            )
        corpus.refresh()
        corpus.search("walrus", projects="*")
    return place


@dataclass
class Library:
    """What the corpus holds, told by the one who writes it."""

    corpus: unspool.Corpus
    chance: random.Random
    texts: dict[Key, str]
    frozen: dict[Key, str] = field(default_factory=dict)  # what the texts were when the walks began
    number: int = 100_000
    added: set[Key] = field(default_factory=set)
    changed: set[Key] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)

    def write(self) -> None:
        """Add some, change some, delete some."""
        project = self.chance.choice(list(SIZES))
        mine = [key for key in self.texts if key[0] == project]
        rewritten = self.chance.sample(mine, self.chance.randint(0, 4))
        new = [
            (project, f"{name(self.number + 500 + at)}.txt")
            for at in range(self.chance.randint(0, 4))
        ]
        documents = []
        for key in (*rewritten, *new):
            self.number += 1
            self.texts[key] = text(self.chance, self.number)
            documents.append(doc(key[1], self.texts[key], project))
        self.number += 1000
        self.added.update(new)
        self.changed.update(rewritten)
        if documents:
            self.corpus.put(*documents)
        for key in self.chance.sample(sorted(self.texts), self.chance.randint(0, 3)):
            self.corpus.forget(project=key[0], path=key[1])
            del self.texts[key]
            self.gone.add(key)

    def begin(self) -> None:
        self.frozen, self.added, self.changed, self.gone = dict(self.texts), set(), set(), set()

    @property
    def touched(self) -> set[Key]:
        return {*self.added, *self.changed, *self.gone}


@dataclass
class Watched:
    """A walk, and what has come of it."""

    page: unspool.Page
    limit: int
    max_tokens: int
    total: int
    shown: dict[Key, unspool.Hit] = field(default_factory=dict)
    spent: int = 0
    past_window: bool = False

    def look(self, library: Library) -> None:
        """Everything that must be so of each page."""
        page = self.page
        assert page.hits or page.continuation is None
        assert page.tokens == sum(hit.tokens for hit in page.hits)
        assert not self.max_tokens or page.tokens <= self.max_tokens or page.warnings
        self.spent += page.tokens
        assert not self.total or (
            self.spent <= self.total and page.tokens_remaining == self.total - self.spent
        )
        # a page that a budget cut may show less
        self.past_window |= page.served is not Served.WINDOW and len(page.hits) == self.limit
        last = min((hit.score for hit in self.shown.values()), default=float("inf"))
        ids = {hit.chunk.id for hit in self.shown.values()}
        for hit in page.hits:
            key = (hit.chunk.project, hit.chunk.path)
            assert hit.chunk.id not in ids
            assert key not in self.shown
            assert hit.chunk.text == library.texts[key]
            assert hit.rank == len(self.shown) + 1
            assert hit.score <= last
            assert not hit.changed or key in library.changed
            assert page.served is not Served.WINDOW or key not in library.added
            last = hit.score
            ids.add(hit.chunk.id)
            self.shown[key] = hit

    @property
    def is_complete(self) -> bool:
        """Everything in the window had its turn."""
        used_up = self.page.tokens_remaining is not None and self.page.tokens_remaining < LONGEST
        return self.past_window or (self.page.continuation is None and not used_up)

    def compare(self, calm: list[Key], library: Library) -> None:
        """With what the same walk gives when nobody writes."""
        untouched = [key for key in calm if key not in library.touched]
        first = [key for key in calm[:ORDERED] if key not in library.touched]
        seen = [key for key in self.shown if key in set(first)]
        assert seen == first[: len(seen)]
        if self.is_complete:
            assert set(untouched) <= self.shown.keys()
        for key in calm[:ORDERED]:
            if key not in library.changed or key in library.gone:
                continue
            if key in self.shown:
                assert self.shown[key].changed == (
                    self.shown[key].chunk.text != library.frozen[key]
                )
            else:
                assert not self.is_complete


def calm_walk(corpus: unspool.Corpus, query: str, projects: list[str], alpha: float) -> list[Key]:
    """The order inside the window, while nobody writes."""
    page = corpus.search(query, projects=projects, alpha=alpha, limit=20)
    keys: list[Key] = []
    while page.served is Served.WINDOW:
        keys += [(hit.chunk.project, hit.chunk.path) for hit in page.hits]
        if page.continuation is None:
            break
        page = page.more()
    return keys


def walk_side_by_side(library: Library, projects: list[str], alpha: float) -> None:
    """Several walks over one query, one page each in turn, with the writer in between."""
    chance, corpus = library.chance, library.corpus
    query = " ".join(chance.sample(WORDS, chance.randint(1, 3)))
    library.begin()
    calm = calm_walk(corpus, query, projects, alpha)
    walks = []
    for _ in range(WALKS):
        limit, max_tokens, total = (
            chance.choice([1, 3, 7, 15, 40]),
            chance.choice([0, 0, 25, 90, 300]),
            chance.choice([0, 0, 150, 1500]),
        )
        page = corpus.search(
            query,
            projects=projects,
            alpha=alpha,
            limit=limit,
            max_tokens=max_tokens,
            max_total_tokens=total,
        )
        walks.append(Watched(page, limit, max_tokens, total))
    for turn in range(chance.choice([3, 3, 6, 20])):
        for walk in walks:
            if turn:
                walk.page = walk.page.more()
            walk.look(library)
            if walk.page.continuation is None:
                walk.compare(calm, library)
        walks = [walk for walk in walks if walk.page.continuation]
        if walks and chance.random() < 0.3:
            library.write()
    for walk in walks:
        walk.compare(calm, library)


def library_of(corpus: unspool.Corpus, seed: int) -> Library:
    chance = random.Random(1)
    texts = {
        (project, f"{name(number)}.txt"): text(chance, number)
        for project, size in SIZES.items()
        for number in range(size)
    }
    return Library(corpus, random.Random(seed), texts)


MODES = {
    "meaning": (["notes"], 1.0),
    "word": (["notes"], 0.0),
    "hybrid": (["notes"], 0.4),
    "several projects": (["notes", "others"], 0.4),
}


@pytest.mark.parametrize("mode", MODES)
def test_walks_lose_and_repeat_nothing_while_somebody_writes(
    engine: str, template: Place, places: Places, mode: str
) -> None:
    """24 walks in each example, for each of 4 modes: 1056 walks on SQLite, 288 on PostgreSQL."""
    projects, alpha = MODES[mode]

    @settings(
        max_examples=EXAMPLES[engine],
        deadline=None,
        phases=[Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32))
    def walk(seed: int) -> None:
        copy = places.copy(template)
        with open_corpus(copy) as corpus:
            library = library_of(corpus, seed)
            for _ in range(ROUNDS):
                walk_side_by_side(library, projects, alpha)
        assert_no_orphans(copy)
        places.drop(copy)

    walk()
