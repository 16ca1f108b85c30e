"""Continuation by offset skips nothing, whatever order a server gives to equal scores."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unspool.index.ports import Candidates
from unspool.index.vectors.offsets import search_by_offset

scores = st.lists(st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9]), max_size=60)


class Server:
    """Ranked results whose ties are in another order at every call."""

    def __init__(self, scores: list[float], seed: int) -> None:
        self.points = dict(enumerate(scores, 1))
        self.random = random.Random(seed)
        self.calls = 0

    def fetch(self, offset: int, limit: int) -> Candidates:
        self.calls += 1
        points = list(self.points.items())
        self.random.shuffle(points)
        points.sort(key=lambda point: -point[1])
        page = points[offset : offset + limit]
        return Candidates(
            ids=np.array([id_ for id_, _ in page], dtype=np.int64),
            scores=np.array([score for _, score in page], dtype=np.float32),
        )


def walk(server: Server, k: int, *, last: int = 10_000) -> list[list[int]]:
    pages, hint = [], None
    while True:
        found = search_by_offset(server.fetch, k, hint, last=last)
        pages.append(found.ids.tolist())
        hint = found.hint
        if hint is None:
            return pages
        assert len(pages) < 100


@given(scores, st.integers(1, 20), st.integers())
def test_all_pages_together_contain_every_result(scores: list[float], k: int, seed: int) -> None:
    server = Server(scores, seed)
    pages = walk(server, k)
    ranked = sorted(server.points, key=lambda id_: (-server.points[id_], id_))
    assert pages[0] == ranked[:k]  # ties by id, although the server has no order
    assert {id_ for page in pages for id_ in page} == set(server.points)


@given(scores, st.integers(1, 20), st.integers(), st.data())
def test_deletes_between_pages_skip_nothing(
    scores: list[float], k: int, seed: int, data: st.DataObject
) -> None:
    server = Server(scores, seed)
    doomed = data.draw(st.sets(st.sampled_from(sorted(server.points) or [0])))
    found = search_by_offset(server.fetch, k, None, last=10_000)
    returned, hint = set(found.ids.tolist()), found.hint
    while hint is not None:
        for id_ in sorted(doomed & server.points.keys())[:3]:
            del server.points[id_]
        found = search_by_offset(server.fetch, k, hint, last=10_000)
        returned, hint = returned | set(found.ids.tolist()), found.hint
    assert returned >= server.points.keys() - doomed


def test_a_delete_before_a_group_of_equal_scores_skips_none_of_its_members() -> None:
    for seed in range(20):
        server = Server([0.9, 0.5, 0.5, 0.5], seed)
        first = search_by_offset(server.fetch, 2, None, last=10_000)
        del server.points[1]
        rest = search_by_offset(server.fetch, 2, first.hint, last=10_000)
        assert {*first.ids.tolist(), *rest.ids.tolist()} == {1, 2, 3, 4}


@given(scores, st.integers(1, 20), st.integers(20, 40), st.integers())
def test_nothing_is_asked_for_behind_the_last_offset(
    scores: list[float], k: int, last: int, seed: int
) -> None:
    server = Server(scores, seed)
    fetch = server.fetch

    def fetch_within(offset: int, limit: int) -> Candidates:
        assert limit > 0
        assert offset + limit <= last
        return fetch(offset, limit)

    server.fetch = fetch_within  # type: ignore[method-assign]
    assert len(walk(server, k, last=last)[0]) == min(k, len(scores))


def test_a_page_of_different_scores_takes_one_call() -> None:
    server = Server([1 - number / 1000 for number in range(500)], 0)
    hint, calls = None, []
    for _ in range(5):
        before = server.calls
        found = search_by_offset(server.fetch, 50, hint, last=10_000)
        hint = found.hint
        calls.append(server.calls - before)
    assert calls == [1, 1, 1, 1, 1]
