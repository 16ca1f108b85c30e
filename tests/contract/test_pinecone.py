"""The adapter of Pinecone on a wire server: addresses, failures, limits and lost storage."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from pinecone_server import PineconeServer
from unspool.errors import (
    AddressError,
    DimensionError,
    RateLimitedError,
    RejectedError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import NO_IDS, DamagedError, Within
from unspool.index.vectors import pinecone
from unspool.index.vectors.pinecone import PineconeIndex
from unspool.testing.vector_setup import (
    EAST,
    LARGE_IDS,
    NO_POINTS,
    SCORES,
    THREE,
    make_points,
    to_ids,
    to_vector,
)


@pytest.fixture(scope="module")
def running() -> Iterator[PineconeServer]:
    with PineconeServer() as server:
        yield server


@pytest.fixture
def server(running: PineconeServer) -> Iterator[PineconeServer]:
    """Return a running server without points."""
    running.start()
    running.delete_namespaces()
    yield running
    running.start()
    running.set_delay(0.03)


class Opener:
    """Function that opens an index of the server, and closes all at the end."""

    def __init__(self, server: PineconeServer) -> None:
        self.server = server
        self.opened: list[PineconeIndex] = []

    def __call__(
        self, address: str = "", *, collection: str = "c", dimension: int = 4, **options: Any
    ) -> PineconeIndex:
        address = address or self.server.get_address("tests")
        given = {"address": address, "key": self.server.key, "retries": 0, **options}
        index = PineconeIndex.open(
            address, collection=collection, dimension=dimension, options=VectorOptions(**given)
        )
        self.opened.append(index)
        return index


@pytest.fixture
def open_index(server: PineconeServer) -> Iterator[Opener]:
    opener = Opener(server)
    yield opener
    for index in opener.opened:
        index.close()


def find(index: PineconeIndex, k: int = 10, **options: Any) -> list[int]:
    found: list[int] = index.search(1, to_vector(EAST), k=k, **options).ids.tolist()
    return found


# Address


@pytest.mark.parametrize(
    "address",
    [
        "pinecone://",
        "pinecone:///",
        "pinecone:///a/b",
        "pinecone://server/a",
        "pinecone:///a#b",
        "pinecone:///a?visible_s=soon",
        "pinecone:///a?host=https://key@host",
    ],
)
def test_a_wrong_address_is_rejected_with_the_right_pattern(
    address: str, open_index: Opener
) -> None:
    with pytest.raises(AddressError, match="UNSPOOL_VECTORS"):
        open_index(address)


def test_the_host_of_an_index_is_looked_up_by_its_name(open_index: Opener) -> None:
    server = open_index.server
    before = server.read_state()["requests"].get("index", 0)
    open_index(server.address).read_epoch()
    assert server.read_state()["requests"]["index"] == before + 1
    open_index(server.get_address("tests")).read_epoch()
    assert server.read_state()["requests"]["index"] == before + 1


def test_an_index_that_does_not_exist_is_reported_with_how_to_create_it(
    open_index: Opener,
) -> None:
    address = open_index.server.address.replace("///tests", "///absent")
    with pytest.raises(RejectedError, match=r"'absent'.*does not exist.*dimension 4"):
        open_index(address).read_epoch()


def test_an_index_of_another_dimension_is_reported_with_how_to_create_it(
    open_index: Opener,
) -> None:
    with pytest.raises(DimensionError, match=r"4 numbers.*dimension 256"):
        open_index(dimension=256).read_epoch()


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("index", ["tests", "euclidean", "dotproduct"])
def test_an_index_of_any_metric_returns_the_scores_of_the_metric_in_use(
    index: str, metric: Metric, open_index: Opener
) -> None:
    opened = open_index(open_index.server.get_address(index), metric=metric)
    opened.apply(1, THREE, NO_IDS)
    found = opened.search(1, to_vector(EAST), k=3)
    assert found.ids.tolist() == [3, 2, 1]
    np.testing.assert_allclose(found.scores, SCORES[metric][::-1], atol=1e-4)


def test_the_version_of_the_api_is_read_and_nothing_is_created(open_index: Opener) -> None:
    assert open_index().read_version() == "Pinecone API 2026-07"
    assert open_index.server.read_state()["namespaces"]["tests"] == []
    with pytest.raises(RejectedError):
        open_index(key="wrong").read_version()


# Failures


@pytest.mark.parametrize("key", ["", "wrong", "two\nlines"])
def test_a_wrong_key_is_rejected(key: str, open_index: Opener) -> None:
    with pytest.raises(RejectedError, match="key"):
        open_index(key=key).read_epoch()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, RejectedError),
        (401, RejectedError),
        (403, RejectedError),
        (404, RejectedError),
        (408, ServiceTimeoutError),
        (429, RateLimitedError),
        (500, UnreachableError),
        (503, UnreachableError),
        (504, ServiceTimeoutError),
    ],
)
def test_a_status_is_translated_and_contains_no_key(
    status: int, expected: type[UnspoolError], open_index: Opener
) -> None:
    index = open_index()
    index.read_epoch()
    open_index.server.fail_next(status)
    with pytest.raises(expected) as caught:
        find(index)
    assert open_index.server.key not in f"{caught.value!r}{caught.value.__cause__!r}"
    assert "pinecone:///tests" in str(caught.value)


def test_calls_are_repeated_by_our_policy_alone(open_index: Opener) -> None:
    server = open_index.server
    index = open_index()
    index.apply(1, THREE, NO_IDS)
    before = server.read_state()["requests"]["query"]
    server.fail_next(503)
    with pytest.raises(UnreachableError):
        find(index)
    assert server.read_state()["requests"]["query"] == before + 1
    patient = open_index(retries=2)
    patient.read_epoch()
    server.fail_next(503, 429, retry_after="0")
    assert find(patient) == [3, 2, 1]


def test_the_wait_that_a_server_asks_for_is_known(open_index: Opener) -> None:
    index = open_index()
    index.read_epoch()
    open_index.server.fail_next(429, retry_after="7")
    with pytest.raises(RateLimitedError) as caught:
        find(index)
    assert caught.value.retry_after == 7


def test_a_server_that_is_down_is_unreachable(open_index: Opener) -> None:
    index = open_index()
    index.apply(1, THREE, NO_IDS)
    epoch = index.read_epoch()
    open_index.server.kill()
    with pytest.raises(UnreachableError):
        find(index)
    open_index.server.start()
    assert find(index) == [3, 2, 1]
    assert open_index().read_epoch() == epoch


def test_a_frozen_server_is_given_up_in_time(open_index: Opener) -> None:
    index = open_index(timeout_s=1)
    index.read_epoch()
    open_index.server.freeze()
    started = time.monotonic()
    with pytest.raises(ServiceTimeoutError):
        find(index)
    assert time.monotonic() - started < 3


def test_nothing_is_logged_about_addresses_or_keys(
    open_index: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        open_index().apply(1, THREE, NO_IDS)
    assert open_index.server.key not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("pinecone")]


# Eventual consistency


def test_a_write_returns_when_searches_and_lists_show_it(open_index: Opener) -> None:
    index = open_index()
    index.read_epoch()
    open_index.server.set_delay(0.3)
    started = time.monotonic()
    index.apply(1, THREE, NO_IDS)
    assert time.monotonic() - started >= 0.3
    assert find(index) == [3, 2, 1]
    index.apply(1, NO_POINTS, to_ids(1, 3))
    assert (find(index), index.ids(1, after=-1, limit=5).tolist()) == ([2], [2])
    index.drop(1)
    assert find(index) == []


def test_a_write_that_stays_invisible_fails(open_index: Opener) -> None:
    index = open_index(f"{open_index.server.get_address('tests')}&visible_s=1")
    index.read_epoch()
    open_index.server.set_delay(60)
    with pytest.raises(ServiceTimeoutError, match="visible_s"):
        index.apply(1, THREE, NO_IDS)


def test_processes_that_create_a_collection_at_once_agree(open_index: Opener) -> None:
    open_index.server.set_delay(0.2)
    indexes = [open_index(collection="new") for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        epochs = set(threads.map(lambda index: index.read_epoch(), indexes))
    assert len(epochs) == 1


# Lost storage


def test_lost_points_are_noticed_by_a_write_and_by_an_empty_result(open_index: Opener) -> None:
    for read in (
        find,
        lambda index: index.count(1),
        lambda index: index.ids(1, after=-1, limit=5),
        lambda index: index.apply(1, THREE, NO_IDS),
    ):
        index = open_index()
        epoch = index.read_epoch()
        index.apply(1, THREE, NO_IDS)
        open_index.server.delete_namespaces()
        time.sleep(0.1)
        with pytest.raises(DamagedError):
            read(index)
        assert index.read_epoch() != epoch
        assert find(index) == []


def test_another_epoch_is_noticed_after_a_minute(
    open_index: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, other = open_index(), open_index()
    index.apply(1, THREE, NO_IDS)
    other.drop()
    epoch = other.read_epoch()
    assert index.read_epoch() != epoch
    monkeypatch.setattr(pinecone, "RECHECK_S", 0.0)
    assert index.read_epoch() == epoch


def test_everything_of_a_collection_is_dropped_and_nothing_else(open_index: Opener) -> None:
    one, other = open_index(collection="a"), open_index(collection="a_b")
    for index in (one, other):
        for project in (1, -1, 2**62):
            index.apply(project, THREE, NO_IDS)
    one.drop()
    time.sleep(0.1)
    names = open_index.server.read_state()["namespaces"]["tests"]
    assert {name.partition("-")[0] for name in names} == {"a_b"}
    assert len(names) == 4
    assert find(other) == [3, 2, 1]


# Ids, filters and limits


def test_ids_of_63_bits_are_exact_in_lists_of_chunks_and_documents(open_index: Opener) -> None:
    index = open_index()
    points = make_points(dict.fromkeys(LARGE_IDS, EAST))._replace(documents=to_ids(*LARGE_IDS))
    index.apply(1, points, NO_IDS)
    for chosen in (LARGE_IDS[2:3], LARGE_IDS[3:]):
        assert find(index, within=Within(chunks=to_ids(*chosen), total=1)) == chosen
        assert find(index, within=Within(documents=to_ids(*chosen), total=1)) == chosen


def test_long_lists_of_ids_are_continued_and_never_read_twice(open_index: Opener) -> None:
    index = open_index()
    index.apply(1, make_points(dict.fromkeys(range(1, 1001), EAST)), NO_IDS)
    before = open_index.server.read_state()["requests"]["list"]
    found: list[int] = []
    while len(page := index.ids(1, after=found[-1] if found else -1, limit=200)):
        found += page.tolist()
    assert found == list(range(1, 1001))
    assert open_index.server.read_state()["requests"]["list"] - before <= 16
    assert index.ids(1, after=555, limit=3).tolist() == [556, 557, 558]
    assert open_index().ids(1, after=555, limit=3).tolist() == [556, 557, 558]


def test_a_list_begins_again_if_its_token_has_expired(open_index: Opener) -> None:
    index = open_index()
    index.apply(1, make_points(dict.fromkeys(range(1, 301), EAST)), NO_IDS)
    assert len(index.ids(1, after=-1, limit=150)) == 150
    for tokens in index._tokens.values():
        tokens.update(dict.fromkeys(tokens, "expired!"))
    assert index.ids(1, after=150, limit=1000).tolist() == list(range(151, 301))


def test_a_batch_of_long_vectors_fits_into_a_request() -> None:
    connection: Any = None
    index = PineconeIndex(
        lambda: connection,
        connection,
        name="a",
        collection="c",
        dimension=1536,
        metric=Metric.COSINE,
        visible_s=1,
    )
    vectors = np.random.default_rng(0).standard_normal((200, 1536)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    points = make_points(dict(enumerate(vectors.tolist(), 2**62)))
    records = [pinecone.make_record(points, at) for at in range(index._count_batch())]
    size = len(str(records).encode())
    assert pinecone.UPSERT_BYTES / 2 < size < pinecone.UPSERT_BYTES


def test_a_vector_of_zeros_is_stored(open_index: Opener) -> None:
    index = open_index()
    index.apply(1, make_points({1: [0.0] * 4, 2: EAST}), NO_IDS)
    assert index.ids(1, after=-1, limit=5).tolist() == [1, 2]
    assert set(index.search(1, to_vector([0.0] * 4), k=5).ids.tolist()) == {1, 2}


def test_every_request_and_answer_has_the_shape_of_the_published_api(open_index: Opener) -> None:
    index = open_index(open_index.server.address)
    index.apply(1, THREE, to_ids(5))
    find(index, within=Within(chunks=to_ids(1), total=1))
    index.count(1)
    index.ids(1, after=-1, limit=5)
    index.drop(1)
    index.drop()
    state = open_index.server.read_state()
    used = {"index", "stats", "upsert", "query", "delete", "list", "namespaces", "namespace"}
    assert used | {"delete_namespace"} <= state["requests"].keys()
    assert state["violations"] == []


def test_a_request_of_another_shape_is_noticed() -> None:
    """The wire server fails for good, so that no other test can pass with such a request."""
    with PineconeServer() as server, httpx.Client() as client:
        headers = {"Api-Key": server.key, "X-Pinecone-Api-Version": "2026-07"}
        body = {"topK": 1, "top_k": 1, "vector": EAST}
        url = f"{server.get_host('tests')}/query"
        assert client.post(url, json=body, headers=headers).status_code == 500
        assert "top_k" in server.read_state()["violations"][0]
