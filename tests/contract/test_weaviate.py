"""Weaviate beyond the contract: options, failures, lost collections, restarts, and its limits."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("weaviate", reason="pip install 'unspool[weaviate]'")

import httpx

import unspool
from store_servers import StoreServer, get_server
from support import doc, open_corpus, required
from unspool.domain import filters
from unspool.domain.queries import Stability
from unspool.errors import (
    AddressError,
    RejectedError,
    ServiceTimeoutError,
    UnreachableError,
    UnsupportedError,
)
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import NO_IDS, Capabilities, DamagedError, Points, Within
from unspool.index.vectors.weaviate import WeaviateIndex
from unspool.testing.vector_contract import VectorContract
from unspool.testing.vector_setup import EAST, NO_POINTS, NORTH, THREE, make_points, to_ids
from weaviate_server import WeaviateServer, find_free_ports

Open = Callable[..., WeaviateIndex]
VECTOR = np.array(EAST, dtype=np.float32)


@pytest.fixture
def server() -> StoreServer:
    return required(lambda: get_server("weaviate"))


@pytest.fixture
def own(server: StoreServer) -> Iterator[WeaviateServer]:
    """Return a server that a test may freeze and kill. It runs again afterwards."""
    if not isinstance(server, WeaviateServer):
        pytest.skip("this test stops the server; give the path of a program in place of an address")
    yield server
    server.start()


@pytest.fixture
def open_index(server: StoreServer) -> Iterator[Open]:
    """Return a function that opens the same collection, by other options and another address."""
    opened: list[WeaviateIndex] = []
    collection = f"t_{token_hex(8)}"

    def open_(
        more: str = "", *, address: str = "", path: str = "", **options: Any
    ) -> WeaviateIndex:
        base, _, query = (address or server.address).partition("?")
        given = VectorOptions(**{"key": server.key, "retries": 0, "timeout_s": 10, **options})
        index = WeaviateIndex.open(
            f"{base}{path}?{query}{more}", collection=collection, dimension=4, options=given
        )
        opened.append(index)
        return index

    yield open_
    for index in opened:
        if not index._server._closed.is_set():
            if index._name is not None:
                index.drop()
            index.close()


@pytest.fixture
def rest(server: StoreServer) -> Iterator[httpx.Client]:
    """Return a client of the server, past unspool."""
    place = urlsplit(server.address)
    with httpx.Client(
        base_url=f"http://{place.netloc}/v1", headers={"authorization": f"Bearer {server.key}"}
    ) as client:
        yield client


def search(index: WeaviateIndex, **more: Any) -> list[int]:
    ids: list[int] = index.search(1, VECTOR, k=10, **more).ids.tolist()
    return ids


class TestHnsw(VectorContract):
    """An approximate index has no continuation, because its order depends on the limit."""

    adapter = WeaviateIndex
    facts = Capabilities(  # type: ignore[assignment]
        metrics=frozenset(Metric),
        filter_fields=frozenset({"kind", "language"}),
        max_ids=1_000,
        stability=Stability.BEST_EFFORT,
    )

    # Writes are those of a flat index, and 10 000 equal vectors take 16 s.
    test_a_large_write_is_divided_as_the_store_needs = None  # type: ignore[assignment]

    @pytest.fixture
    def address(self, server: StoreServer) -> str:
        return f"{server.address}&index=hnsw"

    @pytest.fixture
    def key(self, server: StoreServer) -> str:
        return server.key

    def test_pages_over_equal_vectors_have_no_repeats_and_no_gaps(
        self, corpus: unspool.Corpus
    ) -> None:
        """A graph does not reach all of many equal vectors: 1 of 260 was missing."""
        corpus.put(*(doc(f"{number}.md", f"note {number}") for number in range(260)))
        corpus.refresh()
        page = corpus.search("anything", limit=20, alpha=1)
        paths = [hit.chunk.path for hit in page.hits]
        while page.continuation is not None:
            page = corpus.more(page.continuation)
            paths += [hit.chunk.path for hit in page.hits]
        assert 250 <= len(paths) == len(set(paths)) <= 260


# Options


@pytest.mark.parametrize(
    ("more", "metric", "index", "distance"),
    [
        ("", "cosine", "flat", "cosine"),
        ("&index=hnsw", "l2", "hnsw", "l2-squared"),
        ("", "ip", "flat", "dot"),
    ],
)
def test_options_of_the_address_reach_the_server(
    open_index: Open, rest: httpx.Client, more: str, metric: str, index: str, distance: str
) -> None:
    opened = open_index(more, path="/team_a", metric=Metric(metric))
    opened.apply(-7, THREE, NO_IDS)
    epoch = opened.read_epoch()
    assert opened._name is not None
    assert opened._name.startswith("Team_a_t_")
    assert opened._name.endswith(f"_{index}_{epoch}")
    found = rest.get(f"/schema/{opened._name}").json()
    assert (found["vectorIndexType"], found["vectorIndexConfig"]["distance"]) == (index, distance)
    assert found["vectorIndexConfig"]["skipDefaultQuantization"]
    assert found["replicationConfig"]["factor"] == 1
    assert found["multiTenancyConfig"] == dict.fromkeys(
        ("enabled", "autoTenantCreation", "autoTenantActivation"), True
    )
    names = [one["name"] for one in found["properties"]]
    assert sorted(names) == ["document", "kind", "language"]
    tenants = rest.get(f"/schema/{opened._name}/tenants").json()
    assert [one["name"] for one in tenants] == ["p-7"]


def test_more_replicas_than_nodes_are_rejected(open_index: Open) -> None:
    index = open_index("&replication=3&consistency=quorum")
    assert index.capabilities.stability is Stability.BEST_EFFORT
    with pytest.raises(RejectedError, match="422"):
        index.read_epoch()


@pytest.mark.parametrize(
    ("address", "match"),
    [
        ("weaviate://host", "weaviate\\+http://"),
        ("weaviate+http://host?index=ivf", "flat, hnsw, dynamic"),
        ("weaviate+http://host?consistency=some", "one, quorum, all"),
        ("weaviate+http://host?replication=0", "replication"),
        ("weaviate+http://host?max_results=5", "max_results"),
        ("weaviate+http://host?grpc_port=x", "grpc_port"),
        ("weaviate+http://host/Team", "PREFIX"),
        ("weaviate+http://host/a/b", "PREFIX"),
        ("weaviate+http://:k3y@host/a", "UNSPOOL_VECTORS_KEY"),
    ],
)
def test_a_wrong_address_is_rejected_with_the_cure(address: str, match: str) -> None:
    with pytest.raises(AddressError, match=match) as caught:
        WeaviateIndex.open(address, collection="t", dimension=4, options=VectorOptions())
    assert "k3y" not in str(caught.value)


def test_a_prefix_and_an_index_have_a_collection_of_their_own(open_index: Open) -> None:
    indexes = [open_index(), open_index(path="/team"), open_index("&index=hnsw")]
    assert len({index.read_epoch() for index in indexes}) == 3
    indexes[0].apply(1, THREE, NO_IDS)
    assert [index.count(1) for index in indexes] == [3, 0, 0]


def test_max_results_limits_k(open_index: Open) -> None:
    index = open_index("&max_results=100")
    index.apply(1, make_points(dict.fromkeys(range(1, 251), EAST)), NO_IDS)
    assert index.ids(1, after=-1, limit=240).tolist() == list(range(1, 241))
    assert index.search(1, VECTOR, k=100).ids.tolist() == sorted(index.search(1, VECTOR, k=100).ids)
    with pytest.raises(UnsupportedError, match="100"):
        index.search(1, VECTOR, k=101)
    index.apply(1, NO_POINTS, np.arange(1, 251, dtype=np.int64))
    assert index.count(1) == 0


def test_max_results_above_that_of_the_server_is_rejected_with_its_name(open_index: Open) -> None:
    index = open_index("&max_results=20000")
    index.apply(1, THREE, NO_IDS)
    with pytest.raises(RejectedError, match="option max_results"):
        index.search(1, VECTOR, k=20_000)


# Failures


def test_a_wrong_key_is_rejected(open_index: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for key in ("wr0ng", ""):
        index = open_index(key=key)
        with pytest.raises(RejectedError, match="UNSPOOL_VECTORS_KEY") as caught:
            index.read_epoch()
        assert caught.value.__cause__ is None
        assert "wr0ng" not in f"{caught.value!r} {index!r} {caplog.text}"


def test_a_key_that_was_withdrawn_is_rejected_by_grpc_too(open_index: Open) -> None:
    index = open_index()
    index.read_epoch()
    index._metadata = (("authorization", "Bearer wr0ng"),)
    for call in (lambda: search(index), lambda: index.apply(1, THREE, NO_IDS)):
        with pytest.raises(RejectedError, match="UNSPOOL_VECTORS_KEY"):
            call()


def test_a_server_that_does_not_run_is_unreachable(open_index: Open) -> None:
    port = find_free_ports(1)
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port}"):
        open_index(address=f"weaviate+http://127.0.0.1:{port}").read_epoch()


def test_a_wrong_grpc_port_is_unreachable(open_index: Open, server: StoreServer) -> None:
    base = server.address.partition("?")[0]
    index = open_index(address=f"{base}?grpc_port={find_free_ports(1)}")
    index.read_epoch()
    with pytest.raises(UnreachableError):
        index.count(1)


def test_a_frozen_server_times_out(open_index: Open, own: WeaviateServer) -> None:
    index, other = open_index(timeout_s=1), open_index(timeout_s=1)
    index.apply(1, THREE, NO_IDS)
    own.freeze()
    for call in (
        lambda: search(index),
        lambda: index.apply(1, THREE, to_ids(9)),
        lambda: index.count(1),
        lambda: index.drop(2),  # the server does it after the thaw
        other.read_epoch,
    ):
        with pytest.raises(ServiceTimeoutError, match="UNSPOOL_VECTORS_TIMEOUT_S"):
            call()
    own.thaw()
    patient = open_index(retries=2)
    patient.apply(1, THREE, NO_IDS)
    assert search(patient) == [3, 2, 1]


def test_a_killed_server_is_used_again_at_once_when_it_is_back(
    open_index: Open, own: WeaviateServer
) -> None:
    index = open_index(retries=2)
    index.apply(1, THREE, NO_IDS)
    epoch = index.read_epoch()
    own.kill()
    with pytest.raises(UnreachableError):
        search(index)
    own.start()
    assert search(index) == [3, 2, 1]
    again = open_index()
    assert (index.read_epoch(), again.read_epoch()) == (epoch, epoch)
    assert again.ids(1, after=-1, limit=10).tolist() == [1, 2, 3]


def find_all(index: WeaviateIndex) -> set[int]:
    return set(index.search(1, VECTOR, k=5_000).ids.tolist())


def test_vectors_that_were_stored_survive_a_kill(open_index: Open, own: WeaviateServer) -> None:
    """Without the flush, a server keeps the objects and loses the last 4 KB of their vectors."""
    index = open_index(retries=2)
    for start in (1, 1001):
        points = make_points(dict.fromkeys(range(start, start + 1000), EAST))
        index.apply(1, points, NO_IDS)
        own.kill()
        own.start()
        assert find_all(index) == set(range(1, start + 1000))
    index.apply(1, NO_POINTS, np.arange(1, 1951, dtype=np.int64))
    own.kill()
    own.start()
    assert find_all(index) == set(range(1951, 2001))


def test_a_repeated_write_restores_vectors_that_a_killed_server_has_lost(
    open_index: Open, own: WeaviateServer
) -> None:
    """A server ignores an object that it has already, with its vector."""
    index = open_index("&flush=off", retries=2)
    points = make_points(dict.fromkeys(range(1, 1001), EAST))
    index.apply(1, points, NO_IDS)
    own.kill()
    own.start()
    assert index.count(1) == 1000
    assert len(find_all(index)) < 1000, "the flush is no longer necessary"
    index.apply(1, points, NO_IDS)
    assert find_all(index) == set(range(1, 1001))


class OldServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"version": "1.32.9"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def test_a_server_that_is_too_old_is_rejected_with_both_versions(open_index: Open) -> None:
    with HTTPServer(("127.0.0.1", 0), OldServer) as old:
        threading.Thread(target=old.serve_forever, daemon=True).start()
        with pytest.raises(UnsupportedError, match=r"Weaviate 1\.32\.9; unspool needs 1\.33"):
            open_index(address=f"weaviate+http://127.0.0.1:{old.server_port}").read_epoch()
        old.shutdown()


# Collections


def test_a_deleted_collection_is_reported_by_every_call(
    open_index: Open, rest: httpx.Client
) -> None:
    calls: list[Callable[[WeaviateIndex], object]] = [
        search,
        lambda index: index.apply(1, THREE, NO_IDS),
        lambda index: index.apply(1, NO_POINTS, to_ids(1)),
        lambda index: index.count(1),
        lambda index: index.ids(1, after=-1, limit=5),
        lambda index: index.drop(1),
    ]
    for call in calls:
        index = open_index()
        epoch = index.read_epoch()
        index.apply(1, THREE, NO_IDS)
        rest.delete(f"/schema/{index._name}")
        for _ in range(2):
            with pytest.raises(DamagedError):
                call(index)
        assert index.read_epoch() != epoch
        assert index.count(1) == 0


def test_a_write_to_a_deleted_collection_is_no_success_with_auto_schema() -> None:
    """The server creates the collection again, without tenants. It must not be used."""
    with required(lambda: WeaviateServer(AUTOSCHEMA_ENABLED="true")) as server:
        options = VectorOptions(key=server.key)
        index = WeaviateIndex.open(server.address, collection="t", dimension=4, options=options)
        epoch, name = index.read_epoch(), index._name
        index._send("DELETE", f"/schema/{name}")
        with pytest.raises(DamagedError):
            index._call(lambda name: index._store(name, 1, THREE))
        names = [one["class"] for one in index._send("GET", "/schema")["classes"]]
        assert names == [name]
        assert index.read_epoch() != epoch
        names = [one["class"] for one in index._send("GET", "/schema")["classes"]]
        assert names == [index._name]
        index.apply(1, THREE, NO_IDS)
        assert search(index) == [3, 2, 1]
        index.close()


def test_many_who_create_a_collection_at_once_use_the_same(
    open_index: Open, rest: httpx.Client
) -> None:
    for _ in range(3):
        indexes = [open_index() for _ in range(6)]
        barrier = threading.Barrier(len(indexes))

        def read(index: WeaviateIndex, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            return index.read_epoch()

        with ThreadPoolExecutor(len(indexes)) as threads:
            list(threads.map(read, indexes))
        for index in indexes:
            with suppress(DamagedError):  # it saw a collection that its creator withdrew
                index.count(1)
        assert len({index.read_epoch() for index in indexes}) == 1
        names = [one["class"] for one in rest.get("/schema").json()["classes"]]
        assert [name for name in names if name.startswith(indexes[0]._base)] == [indexes[0]._name]
        indexes[0].drop()


def test_a_collection_that_is_dropped_twice_is_no_error(open_index: Open) -> None:
    index = open_index()
    index.read_epoch()
    index.drop()
    index.drop()
    index.drop(5)


# Points


def test_ids_and_documents_of_63_bits_are_exact(open_index: Open) -> None:
    """A number of Weaviate is a double."""
    index = open_index()
    ids = to_ids(0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)
    vectors = np.array([EAST] * 6, dtype=np.float32)
    for project in (2**63 - 1, -(2**63)):
        index.apply(project, Points(ids, ids, ["code"] * 6, [""] * 6, vectors), NO_IDS)
        assert index.ids(project, after=-1, limit=10).tolist() == ids.tolist()
        for id_ in ids.tolist():
            for kind in ("documents", "chunks"):
                within = Within(**{kind: to_ids(id_)}, total=1)  # type: ignore[arg-type]
                found = index.search(project, VECTOR, k=10, within=within)
                assert found.ids.tolist() == [id_]
    assert index.count(1) == 0


def test_more_points_are_deleted_than_a_server_deletes_by_one_request(open_index: Open) -> None:
    index = open_index()
    ids = np.arange(1, 12_001, dtype=np.int64)
    index.apply(1, make_points(dict.fromkeys(ids.tolist(), EAST)), NO_IDS)
    assert index.count(1) == 12_000
    assert index.ids(1, after=-1, limit=20_000).tolist() == ids.tolist()
    index.apply(1, NO_POINTS, ids)
    assert index.count(1) == 0


def test_a_search_ends_where_the_server_ends(open_index: Open) -> None:
    index = open_index()
    angles = np.linspace(0, 1.5, 10_500)
    vectors = {at: [np.cos(one), np.sin(one), 0, 0] for at, one in enumerate(angles.tolist(), 1)}
    index.apply(1, make_points(vectors), NO_IDS)
    found = index.search(1, VECTOR, k=9_990)
    assert len(found.ids) == 9_990 and found.hint is not None
    assert len(index.search(1, VECTOR, k=10_000).ids) == 10_000
    rest = index.search(1, VECTOR, k=100, hint=found.hint)
    assert rest.hint is None
    assert len(set(found.ids.tolist()) | set(rest.ids.tolist())) == 10_000


def test_a_point_that_is_refused_is_an_error(open_index: Open) -> None:
    """The server stores the other points of a batch and reports success."""
    index = open_index()
    index.apply(1, THREE, NO_IDS)
    bad = make_points({7: EAST, 8: NORTH})._replace(kinds=["code", "\ud800"])
    with pytest.raises(Exception):  # noqa: B017
        index.apply(1, bad, NO_IDS)
    assert search(index) == [3, 2, 1]


def test_a_filter_with_many_values_is_exact(open_index: Open) -> None:
    index = open_index()
    names = [f"lang{number}" for number in range(1200)]
    points = make_points(dict.fromkeys(range(1, 1201), EAST), languages=names)
    index.apply(1, points, NO_IDS)
    condition = filters.parse({"language": names[:1000]})
    within = Within(filter=condition, total=1000)
    assert index.search(1, VECTOR, k=2000, within=within).ids.tolist() == list(range(1, 1001))
    opposite = Within(filter=filters.parse({"not": {"language": names[:1000]}}), total=200)
    assert index.search(1, VECTOR, k=2000, within=opposite).ids.tolist() == list(range(1001, 1201))


def test_a_tenant_that_was_deactivated_is_activated_by_a_search(
    open_index: Open, rest: httpx.Client
) -> None:
    index = open_index()
    for change in (
        lambda: search(index),
        lambda: index.count(1),
        lambda: index.apply(1, THREE, to_ids(9)),
    ):
        index.apply(1, THREE, NO_IDS)
        rest.put(
            f"/schema/{index._name}/tenants", json=[{"name": "p1", "activityStatus": "INACTIVE"}]
        ).raise_for_status()
        change()
        assert search(index) == [3, 2, 1]


# Corpus


def count_hits(corpus: unspool.Corpus) -> int:
    return len(corpus.search("walrus", limit=1000, alpha=1).hits)


def test_a_corpus_fills_a_deleted_collection_again(
    server: StoreServer, rest: httpx.Client, tmp_path: Path
) -> None:
    with open_corpus(tmp_path / "a.db", vectors=server.address, vectors_key=server.key) as corpus:
        corpus.put(*(doc(f"{at}.md", f"walrus number {at}") for at in range(300)))
        index: Any = corpus._resources.session.indexes.vectors.index
        assert index.count(1) == 300
        for _ in range(2):
            rest.delete(f"/schema/{index._name}").raise_for_status()
            assert count_hits(corpus) == 300
            assert index.count(1) == 300
        index.drop()
