"""Chroma: its options reach the server, its failures are ours, and a lost collection is noticed."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.fastapi import FastAPI
from chromadb.config import Settings, System

import unspool
from chroma_server import ChromaServer, Gate
from servers import find_free_port
from store_servers import get_server
from support import doc, open_corpus, required
from unspool.domain.filters import AllOf, AnyOf, Compare, Not
from unspool.errors import (
    AddressError,
    MissingDependencyError,
    RateLimitedError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
    UnsupportedError,
)
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import NO_IDS, DamagedError, Points, Within
from unspool.index.vectors import chroma
from unspool.index.vectors.chroma import ChromaIndex, translate_filter
from unspool.testing.vector_setup import EAST, NORTH, make_points, to_ids, to_vector

DIMENSION = 4
SPACE = {"tenant": "default_tenant", "database": "unspool"}
ONE = make_points({1: EAST})


@pytest.fixture
def server() -> Iterator[ChromaServer]:
    """Return the server of this process, running."""
    found: Any = required(lambda: get_server("chroma"))
    found.start()
    yield found
    found.start()


_opened: list[ChromaIndex] = []


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def open_index(address: str, **options: Any) -> ChromaIndex:
    given = VectorOptions(address=address, **{"retries": 0, **options})
    index = ChromaIndex.open(address, collection="own", dimension=DIMENSION, options=given)
    _opened.append(index)
    return index


@pytest.fixture
def index(server: ChromaServer) -> Iterator[ChromaIndex]:
    opened = open_index(server.address)
    opened.drop()
    opened.read_epoch()
    yield opened
    opened.drop()


@pytest.fixture
def driver(server: ChromaServer) -> Iterator[FastAPI]:
    """Return a driver of our own, to look behind the adapter's back."""
    settings = Settings(
        _env_file=None, chroma_server_host="127.0.0.1", chroma_server_http_port=server.port
    )  # type: ignore[call-arg]
    found = System(settings).instance(FastAPI)
    yield found
    found._session.close()


def list_collections(driver: FastAPI) -> list[str]:
    names = [one.name for one in driver.list_collections(**SPACE)]
    return sorted(name for name in names if name.startswith("own"))


# Address


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("chroma://127.0.0.1:8000", "begins with chroma://"),
        ("chroma+ftp://127.0.0.1", "chroma"),
        ("chroma:///", "names no folder"),
        ("chroma:///tmp/x?tenant=a", "unknown option 'tenant'"),
        ("chroma+http://127.0.0.1?ef_search=many", "give a number"),
        ("chroma+http://127.0.0.1?header=cookie", "x-chroma-token, authorization"),
        ("chroma+http://me:secret@127.0.0.1", "UNSPOOL_VECTORS_KEY"),
    ],
)
def test_a_wrong_address_is_rejected_without_a_call(address: str, message: str) -> None:
    with pytest.raises(AddressError, match=message) as caught:
        open_index(address)
    assert "secret" not in str(caught.value)


def test_the_options_of_the_address_reach_the_server(server: ChromaServer, driver: FastAPI) -> None:
    index = open_index(
        f"{server.address}?ef_search=1234",
        metric=Metric.INNER,
        hnsw_m=24,
        hnsw_ef_construction=277,
    )
    index.drop()
    index.apply(-7, ONE, NO_IDS)
    name = f"own.{index.read_epoch()}.n7"
    assert list_collections(driver) == ["own", name]
    found = driver.get_collection(name, **SPACE).configuration_json["hnsw"]
    index.drop()
    assert list_collections(driver) == []
    assert (found["space"], found["ef_search"]) == ("ip", 1234)
    assert (found["ef_construction"], found["max_neighbors"]) == (277, 24)


@pytest.mark.parametrize("option", [{"index": "exact"}, {"index": "ivfflat"}, {"type": "halfvec"}])
def test_an_index_that_chroma_lacks_is_unsupported(option: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError, match="UNSPOOL_VECTOR_INDEX"):
        open_index("chroma+http://127.0.0.1", **option)


def test_tenants_and_databases_are_separate(server: ChromaServer, index: ChromaIndex) -> None:
    index.apply(1, ONE, NO_IDS)
    for address in (f"{server.address}?tenant=nobody", f"{server.address}-2"):
        other = open_index(address)
        assert other.read_epoch() != index.read_epoch()
        assert other.count(1) == 0
        other.drop()
    assert index.count(1) == 1


def test_a_missing_tenant_is_named(server: ChromaServer) -> None:
    """Chroma's own server creates databases of any tenant. Others may refuse that."""
    gate = Gate(server, header="x-chroma-token", value="k")
    gate.status, gate.body = 404, b'{"error": "NotFoundError", "message": "no"}'
    with pytest.raises(RejectedError, match="has no tenant 'nobody'"):
        open_index(f"{gate.address}?tenant=nobody", key="k").read_epoch()
    gate.close()


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(importlib.util, "find_spec", lambda _: None), (chromadb, "is_client", True)],
)
def test_a_folder_needs_the_whole_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: Any
) -> None:
    monkeypatch.setattr(module, name, value)
    with pytest.raises(MissingDependencyError, match="--force-reinstall chromadb"):
        open_index(f"chroma://{tmp_path}")


def test_the_version_is_read_and_nothing_is_created(
    server: ChromaServer, driver: FastAPI, tmp_path: Path
) -> None:
    assert open_index(server.address).read_version() == f"Chroma API {driver.get_version()}"
    folder = tmp_path / "none"
    assert open_index(f"chroma://{folder}").read_version() == f"Chroma {chromadb.__version__}"
    assert list_collections(driver) == []
    assert not folder.exists()


def test_the_settings_of_the_current_folder_are_not_read(
    server: ChromaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("CHROMA_API_IMPL=planted.Class\nMIGRATIONS=nonsense\n")
    monkeypatch.chdir(tmp_path)
    index = open_index(server.address)
    assert index.read_epoch() == index.read_epoch()
    index.drop()
    local = open_index(f"chroma://{tmp_path}/c")
    assert local.count(1) == 0
    local.close()


# Failures


def test_a_wrong_key_is_rejected_and_never_shown(
    server: ChromaServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    gate = Gate(server, header="x-chroma-token", value="right-key")
    index = open_index(gate.address, key="wrong-secret-key")
    with pytest.raises(RejectedError, match="refused the key") as caught:
        index.read_epoch()
    gate.close()
    shown = "".join([repr(caught.value), repr(index), caplog.text, *capfd.readouterr()])
    assert "wrong-secret-key" not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("key", ["schl\u00fcssel", "two\nlines"])
def test_a_key_that_is_no_header_is_rejected_and_never_shown(key: str) -> None:
    with pytest.raises(AddressError, match="UNSPOOL_VECTORS_KEY") as caught:
        open_index("chroma+http://127.0.0.1", key=key)
    assert key[:3] not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "value"), [("x-chroma-token", "the-key"), ("authorization", "Bearer the-key")]
)
def test_a_key_is_sent_in_the_header_of_choice(
    server: ChromaServer, header: str, value: str
) -> None:
    gate = Gate(server, header=header, value=value)
    index = open_index(f"{gate.address}?header={header}", key="the-key")
    index.apply(1, ONE, NO_IDS)
    assert index.count(1) == 1
    index.drop()
    index.close()
    gate.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, RejectedError),
        (404, RejectedError),
        (429, RateLimitedError),
        (500, ServiceError),
        (503, UnreachableError),
        (504, ServiceTimeoutError),
        (200, RejectedError),
    ],
)
def test_answers_of_a_proxy_are_understood(
    server: ChromaServer, index: ChromaIndex, status: int, error: type[UnspoolError]
) -> None:
    gate = Gate(server, header="x-chroma-token", value="k")
    index = open_index(gate.address, key="k")
    index.read_epoch()
    gate.status, gate.body = status, b"<html>secret</html>"
    with pytest.raises(error) as caught:
        index.count(1)
    assert type(caught.value) is error
    assert "secret" not in str(caught.value)
    index.close()
    gate.close()


def test_an_unreachable_server_is_named() -> None:
    address = f"chroma+http://127.0.0.1:{find_free_port()}"
    with pytest.raises(UnreachableError, match=address.replace("+", r"\+")):
        open_index(address).read_epoch()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_frozen_server_times_out(
    server: ChromaServer, index: ChromaIndex, is_known: bool
) -> None:
    other = open_index(server.address, timeout_s=1)
    if is_known:
        other.read_epoch()
    server.freeze()
    started = time.monotonic()
    with pytest.raises(ServiceTimeoutError):
        other.search(1, to_vector(EAST), k=1)
    assert time.monotonic() - started < 3
    server.thaw()
    assert other.count(1) == 0
    other.close()


def test_points_and_the_epoch_survive_a_kill(server: ChromaServer, index: ChromaIndex) -> None:
    index.apply(1, ONE, NO_IDS)
    epoch = index.read_epoch()
    server.kill()
    with pytest.raises(UnreachableError):
        index.count(1)
    server.start()
    assert index.count(1) == 1
    again = open_index(server.address)
    assert (again.read_epoch(), again.count(1)) == (epoch, 1)


# Lost collections


def test_a_wiped_server_is_damage_and_then_empty(server: ChromaServer, index: ChromaIndex) -> None:
    index.apply(1, ONE, NO_IDS)
    epoch = index.read_epoch()
    server.wipe()
    for call in (
        lambda: index.count(1),
        lambda: index.search(1, to_vector(EAST), k=1),
        lambda: index.ids(1, after=0, limit=1),
        lambda: index.apply(1, ONE, NO_IDS),
        lambda: index.count(2),
    ):
        index._home = index._home or open_index(server.address)._get_home()
        server.wipe()
        with pytest.raises(DamagedError):
            call()
    assert index.read_epoch() != epoch
    assert (index.count(1), index.count(2)) == (0, 0)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_lost_project_is_noticed_by_every_process(
    server: ChromaServer, index: ChromaIndex, driver: FastAPI, is_known: bool
) -> None:
    index.apply(1, ONE, NO_IDS)
    index.apply(2, ONE, NO_IDS)
    other = open_index(server.address)
    epoch = other.read_epoch()
    if is_known:
        assert other.count(1) == 1
    driver.delete_collection(f"own.{epoch}.p1", **SPACE)
    with pytest.raises(DamagedError):
        other.count(1)
    assert other.read_epoch() != epoch
    assert list_collections(driver) == ["own"], "the creator deletes what is left"
    with pytest.raises(DamagedError):
        index.count(2)
    assert index.read_epoch() == other.read_epoch()


def test_a_project_that_was_created_again_by_others_is_lost(
    index: ChromaIndex, driver: FastAPI
) -> None:
    index.apply(1, ONE, NO_IDS)
    epoch = index.read_epoch()
    name = f"own.{epoch}.p1"
    driver.delete_collection(name, **SPACE)
    driver.create_collection(name, **SPACE)
    with pytest.raises(DamagedError):
        index.search(1, to_vector(EAST), k=1)
    assert index.read_epoch() != epoch


def test_a_project_that_another_process_dropped_is_empty_and_not_lost(
    server: ChromaServer, index: ChromaIndex
) -> None:
    other = open_index(server.address)
    epoch = other.read_epoch()
    index.apply(1, ONE, NO_IDS)
    assert other.count(1) == 1
    index.drop(1)
    assert other.count(1) == 0
    index.apply(1, make_points({4: EAST, 5: NORTH}), NO_IDS)
    assert other.count(1) == 2
    index.drop(1)
    index.apply(1, make_points({6: EAST}), NO_IDS)
    assert other.search(1, to_vector(EAST), k=5).ids.tolist() == [6]
    index.drop(1)
    other.apply(1, ONE, to_ids(3))
    assert index.count(1) == 1
    assert index.read_epoch() == other.read_epoch() == epoch


def test_a_write_is_repeated_as_a_whole_if_its_project_is_dropped_meanwhile(
    server: ChromaServer, index: ChromaIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first batch would be missing, and nobody would notice."""
    other = open_index(server.address)
    batches: list[int] = []
    upsert = chroma._upsert

    def disturb(collection: Any, points: Points) -> None:
        if len(batches) == 1:
            other.drop(1)
        batches.append(len(points.ids))
        upsert(collection, points)

    monkeypatch.setattr(chroma, "_upsert", disturb)
    index.apply(1, make_points(dict.fromkeys(range(1_500), EAST)), NO_IDS)
    assert index.count(1) == 1_500
    assert batches == [1_000, 500, 1_000, 500]


def test_a_lost_collection_is_filled_again_by_a_corpus(
    server: ChromaServer, driver: FastAPI, hashing: object, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"embedder": "hashing:a", "vectors": server.address}
    with open_corpus(tmp_path / "a.db", **arguments) as corpus:
        corpus.put(*(doc(f"{at}.md", f"walrus number {at}") for at in range(300)))
        corpus.refresh()
        store: Any = corpus._resources.session.indexes.vectors.index
        for kind in ("p1", "n1"):
            name = f"{store._collection}.{store.read_epoch()}.{kind}"
            driver.delete_collection(name, **SPACE)
            page = corpus.search("walrus", alpha=1, limit=300, max_tokens=0)
            corpus.put(doc("7.md", f"walrus again {kind}"))
            corpus.refresh()
            assert (len(page.hits), store.count(1)) == (300, 300)
        store.drop()


# Several processes

CHILD = """
import sys
from unspool.index.options import VectorOptions
from unspool.index.vectors import chroma
from unspool.index.vectors.chroma import ChromaIndex
from unspool.index.ports import NO_IDS
from unspool.testing.vector_setup import EAST, make_points
address, number = sys.argv[1], int(sys.argv[2])
index = ChromaIndex.open(
    address, collection="own", dimension=4, options=VectorOptions(address=address)
)
index.read_epoch()
sys.stdin.read(1)
index.drop(number + 100)
index.apply(number, make_points({number: EAST}), NO_IDS)
index.apply(50, make_points({number: EAST}), NO_IDS)
print(index.read_epoch(), index.count(number))
"""


def start(address: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, address, str(number)]
    return subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_processes_that_create_at_once_share_one_epoch(
    server: ChromaServer, index: ChromaIndex
) -> None:
    index.drop()
    children = [start(server.address, number) for number in range(1, 4)]
    outputs = [child.communicate("x", timeout=60) for child in children]
    assert {output for output, _ in outputs} == {f"{index.read_epoch()} 1\n"}, outputs
    assert index.count(50) == 3


def test_threads_that_create_at_once_share_one_epoch(
    server: ChromaServer, index: ChromaIndex
) -> None:
    index.drop()
    with ThreadPoolExecutor(8) as threads:
        opened = [open_index(server.address) for _ in range(8)]
        found = list(threads.map(lambda one: one.read_epoch(), opened))
    assert len(set(found)) == 1


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    address = f"chroma://{tmp_path}/chroma"
    index, second = open_index(address), open_index(address)
    index.apply(1, ONE, NO_IDS)
    assert second.count(1) == 1
    index.close()
    output = start(address, 2).communicate("x", timeout=60)
    assert "in use by another process; run a Chroma server" in output[1]
    second.close()
    output = start(address, 2).communicate("x", timeout=60)
    assert output[0].endswith(" 1\n"), output
    assert open_index(address).count(2) == 1


# Points


def test_large_ids_negative_projects_and_equal_ids_are_separate(index: ChromaIndex) -> None:
    last = 2**63 - 1
    for project in (1, -1, last, -last):
        index.apply(project, make_points({last: EAST, 1: NORTH}), NO_IDS)
    index.apply(-1, make_points({2: EAST}), to_ids(last))
    assert index.ids(1, after=-1, limit=9).tolist() == [1, last]
    assert index.ids(-1, after=-1, limit=9).tolist() == [1, 2]
    index.drop(last)
    assert [index.count(project) for project in (1, -1, last, -last)] == [2, 2, 0, 2]
    documents = to_ids(1000 + last % 100)
    found = index.search(1, to_vector(EAST), k=5, within=Within(documents=documents, total=1))
    assert found.ids.tolist() == [last]


def test_points_that_the_graph_does_not_reach_are_found(index: ChromaIndex) -> None:
    """Up to half of 3,000 equal vectors were unreachable in a graph with 16 neighbours."""
    count = 3_000
    ids = np.arange(1, count + 1, dtype=np.int64)
    kinds = ["even" if id_ % 2 == 0 else "odd" for id_ in ids.tolist()]
    index.apply(1, make_points(dict.fromkeys(ids.tolist(), EAST), kinds=kinds), NO_IDS)
    found = index.search(1, to_vector(EAST), k=count + 1)
    assert found.ids.tolist() == ids.tolist()
    assert not found.is_truncated
    assert set(found.scores.tolist()) == {1.0}
    within = Within(filter=Compare(field="kind", op="eq", value="even"), total=count // 2)
    found = index.search(1, to_vector(EAST), k=count, within=within)
    assert found.ids.tolist() == ids[1::2].tolist()
    within = Within(chunks=ids[:2_000], total=2_000)
    assert len(index.search(1, to_vector(EAST), k=count, within=within).ids) == 2_000


def test_a_write_of_wide_vectors_is_divided_by_bytes(server: ChromaServer) -> None:
    width, count = 3_072, 4_000
    options = VectorOptions(address=server.address)
    index = ChromaIndex.open(server.address, collection="wide", dimension=width, options=options)
    assert index._get_batch_size() * width * 4 < 40 << 20
    vectors = np.random.default_rng(1).normal(size=(count, width)).astype(np.float32)[:1_500]
    ids = np.arange(len(vectors), dtype=np.int64)
    index.apply(1, Points(ids, ids, [""] * len(ids), [""] * len(ids), vectors), NO_IDS)
    assert index.count(1) == len(ids)
    index.drop()
    index.close()


def test_a_negated_filter_has_no_not() -> None:
    code = Compare(field="kind", op="eq", value="code")
    go = Compare(field="language", op="eq", value="go")
    both = Not(inner=AllOf(parts=(code, Not(inner=go))))
    assert translate_filter(both, is_negated=False) == {
        "$or": [{"kind": {"$ne": "code"}}, {"language": {"$eq": "go"}}]
    }
    nothing: AnyOf = AnyOf(parts=())
    assert translate_filter(nothing, is_negated=False) is False
    assert translate_filter(nothing, is_negated=True) is True
    assert translate_filter(AllOf(parts=(code, nothing)), is_negated=False) is False
    assert translate_filter(AnyOf(parts=(code, nothing)), is_negated=False) == {
        "kind": {"$eq": "code"}
    }


def test_unspool_is_imported_without_the_driver() -> None:
    code = "import sys, unspool; sys.exit('chromadb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert unspool.__version__
