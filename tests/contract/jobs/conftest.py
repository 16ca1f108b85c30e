"""Jobs on one catalog for all tests of a module: making one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import unspool
from support import Place, Places, beside, open_corpus
from unspool import jobs as module
from unspool.jobs import JobQueue


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.02)
    monkeypatch.setattr(module, "RETRY_S", 0.02)


@pytest.fixture(scope="module")
def shared(module_places: Places) -> Iterator[tuple[Place, unspool.Corpus]]:
    place = module_places.new()
    with open_corpus(place) as opened:
        yield place, opened


@pytest.fixture
def database(shared: tuple[Place, unspool.Corpus]) -> Place:
    """Where the catalog is; it has no jobs and no projects."""
    place, corpus = shared
    for name in corpus.projects():
        corpus.forget(project=name)
    with beside(place) as catalog:
        catalog.run("DELETE FROM jobs")
    return place


@pytest.fixture
def corpus(database: Place, shared: tuple[Place, unspool.Corpus]) -> unspool.Corpus:
    return shared[1]


@pytest.fixture
def jobs(corpus: unspool.Corpus) -> Iterator[JobQueue]:
    with JobQueue(corpus) as made:
        yield made
