"""Qdrant: its options reach the server, its failures are ours, and its collections are ours."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from qdrant_client import grpc as api

from qdrant_server import QdrantServer
from servers import find_free_port
from store_servers import get_server
from support import doc, open_corpus, required
from unspool.errors import (
    AddressError,
    RejectedError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
    UnsupportedError,
)
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import NO_IDS, DamagedError, Points, Within
from unspool.index.vectors import qdrant
from unspool.index.vectors.qdrant import QdrantIndex
from unspool.testing.vector_setup import EAST, make_points, to_vector

DIMENSION = 4


@pytest.fixture
def server() -> Iterator[QdrantServer]:
    """Return the server of this process, running."""
    found: Any = required(lambda: get_server("qdrant"))
    found.start()
    yield found
    found.start()


def open_index(
    server: QdrantServer, *, more: str = "", key: str | None = None, **options: Any
) -> QdrantIndex:
    address = server.address + more
    given = VectorOptions(
        address=address, key=server.key if key is None else key, **{"retries": 0, **options}
    )
    return QdrantIndex.open(address, collection="own", dimension=DIMENSION, options=given)


@pytest.fixture
def index(server: QdrantServer) -> Iterator[QdrantIndex]:
    opened = open_index(server)
    opened.drop()
    opened.read_epoch()
    yield opened
    opened.drop()
    opened.close()


def list_collections(server: QdrantServer) -> list[str]:
    return [name for name in list_all(server) if "own_" in name]


def list_all(server: QdrantServer) -> list[str]:
    stub, about = connect(server, api.CollectionsStub)
    return sorted(one.name for one in stub.List(api.ListCollectionsRequest(), **about).collections)


def connect(server: QdrantServer, stub: Any) -> tuple[Any, dict[str, Any]]:
    """Return a stub of our own, and the arguments of its calls."""
    channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
    return stub(channel), {"metadata": (("api-key", server.key),), "timeout": 10}


def read_settings(server: QdrantServer, name: str) -> Any:
    stub, about = connect(server, api.CollectionsStub)
    return stub.Get(api.GetCollectionInfoRequest(collection_name=name), **about).result


def delete_collection(server: QdrantServer, name: str) -> None:
    stub, about = connect(server, api.CollectionsStub)
    stub.Delete(api.DeleteCollection(collection_name=name), **about)


def make_random(count: int, *, start: int = 1, languages: int = 1) -> Points:
    numbers = np.random.default_rng(start)
    vectors = numbers.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = np.arange(start, start + count, dtype=np.int64)
    names = [f"language{at % languages}" for at in range(count)]
    return Points(ids, ids // 3, ["code"] * count, names, vectors)


# Address


@pytest.mark.parametrize(
    "address",
    [
        "qdrant://127.0.0.1:6333",
        "qdrant+ftp://127.0.0.1",
        "qdrant+http://127.0.0.1/a/b",
        "qdrant+http://127.0.0.1?quantisation=half",
        "qdrant+http://127.0.0.1?shards=many",
        "qdrant+http://me:secret@127.0.0.1",
    ],
)
def test_a_wrong_address_is_rejected_without_a_call(address: str) -> None:
    with pytest.raises(AddressError) as caught:
        QdrantIndex.open(address, collection="own", dimension=4, options=VectorOptions())
    assert "secret" not in str(caught.value)


def test_an_index_that_qdrant_lacks_is_unsupported(server: QdrantServer) -> None:
    with pytest.raises(UnsupportedError, match="IVFFlat"):
        open_index(server, index="ivfflat")


def test_the_options_of_the_address_reach_the_server(server: QdrantServer) -> None:
    more = "&quantisation=scalar&on_disk=on&shards=2&replication=1&write_consistency=1"
    index = open_index(server, more=more, metric=Metric.INNER, type="halfvec", hnsw_m=12)
    index.drop()
    name = f"own_{index.read_epoch()}"
    found = read_settings(server, name)
    index.drop()
    parameters = found.config.params
    vectors = parameters.vectors_config.params
    assert (vectors.size, vectors.on_disk) == (DIMENSION, True)
    assert vectors.distance == api.Distance.Dot
    assert vectors.datatype == api.Datatype.Float16
    assert (parameters.shard_number, parameters.replication_factor) == (2, 1)
    assert parameters.write_consistency_factor == 1
    assert found.config.quantization_config.scalar.type == api.QuantizationType.Int8
    assert (found.config.hnsw_config.m, found.config.hnsw_config.payload_m) == (0, 12)
    assert set(found.payload_schema) == {"project", "document", "kind", "language"}
    assert found.payload_schema["project"].params.keyword_index_params.is_tenant


@pytest.mark.parametrize("more", ["&quantisation=scalar", "&quantisation=binary", "&on_disk=on"])
def test_an_exact_search_compares_whole_vectors(server: QdrantServer, more: str) -> None:
    index = open_index(server, more=more)
    index.drop()
    index.read_epoch()
    points = make_random(500)
    index.apply(1, points, NO_IDS)
    found = index.search(1, points.vectors[7], k=20)
    scores = points.vectors @ points.vectors[7]
    index.drop()
    np.testing.assert_allclose(found.scores, np.sort(scores)[::-1][:20], atol=1e-5)


def test_a_prefix_separates_catalogs_on_one_server(
    server: QdrantServer, index: QdrantIndex
) -> None:
    address = server.address.replace("?", "/team-a?")
    options = VectorOptions(address=address, key=server.key)
    other = QdrantIndex.open(address, collection="own", dimension=DIMENSION, options=options)
    assert other.read_epoch() != index.read_epoch()
    assert list_collections(server) == sorted(
        [f"own_{index.read_epoch()}", f"team-a_own_{other.read_epoch()}"]
    )
    other.apply(1, make_points({1: EAST}), NO_IDS)
    assert index.count(1) == 0
    other.drop()
    assert list_collections(server) == [f"own_{index.read_epoch()}"]


# Failures


def test_a_wrong_key_is_rejected_and_never_shown(
    server: QdrantServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    index = open_index(server, key="wrong-secret-key")
    with pytest.raises(RejectedError, match="refused the key") as caught:
        index.read_epoch()
    shown = "".join([repr(caught.value), repr(index), caplog.text, *capfd.readouterr()])
    assert "wrong-secret-key" not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_an_unreachable_server_is_named() -> None:
    address = f"qdrant+http://127.0.0.1:{find_free_port()}"
    options = VectorOptions(address=address, retries=0)
    index = QdrantIndex.open(address, collection="own", dimension=4, options=options)
    with pytest.raises(UnreachableError, match=address.replace("+", r"\+")):
        index.read_epoch()


def test_a_frozen_server_times_out(server: QdrantServer, index: QdrantIndex) -> None:
    other = open_index(server, timeout_s=1)
    other.read_epoch()
    server.freeze()
    started = time.monotonic()
    with pytest.raises(ServiceTimeoutError):
        other.search(1, to_vector(EAST), k=1)
    assert time.monotonic() - started < 3
    server.thaw()
    assert other.count(1) == 0


def test_a_server_that_returns_is_reached_within_a_second(
    server: QdrantServer, index: QdrantIndex
) -> None:
    """The channel would wait longer after each failure, up to two minutes."""
    index.apply(1, make_points({1: EAST}), NO_IDS)
    epoch = index.read_epoch()
    server.kill()
    for _ in range(40):
        with pytest.raises(UnspoolError):
            index.count(1)
        time.sleep(0.05)
    server.start()
    deadline = time.monotonic() + 1
    while True:
        try:
            assert index.count(1) == 1
            break
        except UnreachableError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert open_index(server).read_epoch() == epoch  # written to disk with the points


def test_an_old_server_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(api.QdrantServicer):  # type: ignore[misc]
        def HealthCheck(self, request: Any, context: Any) -> Any:
            return api.HealthCheckReply(title="qdrant", version="1.9.7")

    with ThreadPoolExecutor() as threads:
        fake = grpc.server(threads)
        api.add_QdrantServicer_to_server(Old(), fake)
        port = fake.add_insecure_port("127.0.0.1:0")
        fake.start()
        address = f"qdrant+http://127.0.0.1?grpc_port={port}"
        options = VectorOptions(address=address)
        index = QdrantIndex.open(address, collection="own", dimension=4, options=options)
        with pytest.raises(UnsupportedError, match=r"1\.9\.7.*1\.16"):
            index.read_epoch()
        index.close()
        fake.stop(None).wait()


# Collections


def test_a_collection_deleted_behind_our_back_is_lost_and_made_again(
    server: QdrantServer, index: QdrantIndex
) -> None:
    index.apply(1, make_points({1: EAST}), NO_IDS)
    epoch = index.read_epoch()
    for call in (
        lambda: index.search(1, to_vector(EAST), k=1),
        lambda: index.count(1),
        lambda: index.ids(1, after=-1, limit=1),
        lambda: index.apply(1, make_points({2: EAST}), NO_IDS),
    ):
        delete_collection(server, f"own_{index.read_epoch()}")
        for _ in range(2):
            with pytest.raises(DamagedError):
                call()
    assert index.read_epoch() != epoch
    assert index.count(1) == 0


def test_a_corpus_refills_a_collection_that_was_deleted(
    server: QdrantServer, tmp_path: Path
) -> None:
    place = tmp_path / "a.db"
    with open_corpus(place, vectors=server.address, vectors_key=server.key) as corpus:
        corpus.put(*(doc(f"{at}.md", f"walrus number {at}") for at in range(40)))
        corpus.refresh()
        (name,) = (one for one in list_all(server) if one.startswith("unspool_"))
        delete_collection(server, name)
        found = corpus.search("walrus", limit=100, alpha=1)
        assert {hit.chunk.path for hit in found.hits} == {f"{at}.md" for at in range(40)}
        corpus.refresh()
        (again,) = (one for one in list_all(server) if one.startswith("unspool_"))
        assert again != name
        delete_collection(server, again)


CREATE = """
import sys
from unspool.index.options import VectorOptions
from unspool.index.vectors.qdrant import QdrantIndex
address, key = sys.argv[1:]
options = VectorOptions(address=address, key=key)
index = QdrantIndex.open(address, collection="own", dimension=4, options=options)
sys.stdin.readline()
index.read_epoch()
index.count(1)
print(index.read_epoch())
"""


def test_processes_that_create_at_once_agree(server: QdrantServer, index: QdrantIndex) -> None:
    index.drop()
    command = [sys.executable, "-c", CREATE, server.address, server.key]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for one in started:
        assert one.stdin is not None
    time.sleep(2)  # all have imported what they need
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    outputs = [one.communicate(timeout=60)[0].strip() for one in started]
    (left,) = list_collections(server)
    # A process may have returned before another deleted its collection. It notices in the next
    # call, which is why the epochs are compared with the one that is left.
    assert left == f"own_{index.read_epoch()}"
    assert left.removeprefix("own_") in outputs


def test_the_oldest_of_several_collections_stays(server: QdrantServer) -> None:
    first, second = open_index(server), open_index(server)
    first.drop()
    epoch = first.read_epoch()
    second._create(f"own_{'f' * 24}")
    assert second.read_epoch() == epoch
    assert list_collections(server) == [f"own_{epoch}"]
    second.drop()


# Points


def test_a_restart_keeps_points_and_epoch(server: QdrantServer, index: QdrantIndex) -> None:
    index.apply(1, make_random(2_500), NO_IDS)
    epoch = index.read_epoch()
    server.kill()
    server.start()
    other = open_index(server, retries=5)
    assert (other.read_epoch(), other.count(1)) == (epoch, 2_500)


def test_forty_thousand_points_are_applied_in_one_call(index: QdrantIndex) -> None:
    points = make_random(40_000)
    index.apply(1, points, NO_IDS)
    assert index.count(1) == 40_000
    listed = index.ids(1, after=100, limit=50_000)
    assert listed.tolist() == list(range(101, 40_001))
    index.apply(1, make_points({50_000: EAST}), points.ids)
    assert index.ids(1, after=-1, limit=10).tolist() == [50_000]


@pytest.mark.parametrize("project", [1, 2**63 - 1, -1, -(2**63) + 1])
def test_ids_of_all_lengths_are_kept_and_separate(index: QdrantIndex, project: int) -> None:
    ids = [0, 1, 2**32, 2**63 - 2, 2**63 - 1]
    index.apply(project, make_points(dict.fromkeys(ids, EAST)), NO_IDS)
    for other in (0, 2, -2, 7):
        index.apply(other, make_points({2**63 - 1: EAST}), NO_IDS)
    assert index.ids(project, after=-1, limit=10).tolist() == ids
    assert index.search(project, to_vector(EAST), k=10).ids.tolist() == ids
    index.drop(project)
    assert [index.count(other) for other in (project, 0, 2, -2, 7)] == [0, 1, 1, 1, 1]


# Search


def test_a_large_project_is_searched_by_its_graph_without_a_hint(server: QdrantServer) -> None:
    index = open_index(server, exact_below=100)
    index.drop()
    index.read_epoch()
    index.apply(1, make_random(500, languages=10), NO_IDS)
    index.apply(2, make_random(50), NO_IDS)
    assert index.search(1, to_vector(EAST), k=10).hint is None
    assert index.search(2, to_vector(EAST), k=10).hint is not None
    few = Within(chunks=np.arange(1, 51, dtype=np.int64), total=50)
    assert index.search(1, to_vector(EAST), k=10, within=few).hint is not None
    assert open_index(server, exact_below=100, index="exact").search(1, to_vector(EAST), k=10).hint
    index.drop()


def test_a_graph_that_finds_too_few_is_not_the_last_word(
    server: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may stop early behind a filter. All points are compared then."""
    index = open_index(server, exact_below=100)
    index.drop()
    index.read_epoch()
    index.apply(1, make_random(500), NO_IDS)
    send, is_exact = index._send, []

    def find_few(method: Any, kind: Any, **fields: Any) -> Any:
        found = send(method, kind, **fields)
        if kind is api.QueryPoints:
            is_exact.append(fields["params"].exact)
            if not fields["params"].exact:
                del found.result[5:]
        return found

    monkeypatch.setattr(index, "_send", find_few)
    assert len(index.search(1, to_vector(EAST), k=20).ids) == 20
    assert is_exact == [False, True]
    index.drop()


def test_a_search_is_one_call_once_the_project_was_counted(
    index: QdrantIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.apply(1, make_random(300), NO_IDS)
    calls: list[str] = []
    call = index._call

    def note(method: Any, request: Any) -> Any:
        calls.append(type(request).__name__)
        return call(method, request)

    monkeypatch.setattr(index, "_call", note)
    for _ in range(3):
        index.search(1, to_vector(EAST), k=200)
        index.read_epoch()
    assert calls == ["CountPoints", "QueryPoints", "QueryPoints", "QueryPoints"]
    monkeypatch.setattr(qdrant, "COUNT_LIFETIME_S", 0.0)
    index._sizes.clear()
    index.search(1, to_vector(EAST), k=200)
    index.search(1, to_vector(EAST), k=200)
    assert calls[4:] == ["CountPoints", "QueryPoints"] * 2


def test_pages_behind_the_window_of_a_graph_have_no_repeats_and_no_gaps(
    server: QdrantServer, tmp_path: Path, hashing: object
) -> None:
    """Without a hint the engine searches wider."""
    settings = {"embedder": "hashing:a", "vectors_key": server.key, "exact_below": 10}
    with open_corpus(tmp_path / "a.db", vectors=server.address, **settings) as corpus:
        corpus.put(*(doc(f"{at}.md", f"walrus {at % 7} number {at}") for at in range(300)))
        corpus.refresh()
        page = corpus.search("walrus", limit=40, alpha=1, max_tokens=0)
        paths = [hit.chunk.path for hit in page.hits]
        while page.continuation is not None:
            page = corpus.more(page.continuation)
            paths += [hit.chunk.path for hit in page.hits]
        found: Any = corpus._resources.session.indexes.vectors.index
        found.drop()
    assert sorted(paths) == sorted(f"{at}.md" for at in range(300))
