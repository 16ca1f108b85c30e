"""A cluster of three Qdrant nodes loses one, which returns. No acknowledged point is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from qdrant_server import QdrantNode
from support import required
from unspool.errors import ServiceError
from unspool.index.options import VectorOptions
from unspool.index.ports import NO_IDS, Ids, Points
from unspool.index.vectors.qdrant import QdrantIndex

DIMENSION = 16
BATCH = 200


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[QdrantNode]]:
    with ExitStack() as stack:
        first = stack.enter_context(required(QdrantNode))
        others = [stack.enter_context(QdrantNode(first.uri)) for _ in range(2)]
        yield [first, *others]


def open_index(node: QdrantNode, consistency: int) -> QdrantIndex:
    address = f"{node.address}&shards=3&replication=2&write_consistency={consistency}"
    options = VectorOptions(address=address, key=node.key, retries=0, timeout_s=10)
    return QdrantIndex.open(
        address, collection=f"own{consistency}", dimension=DIMENSION, options=options
    )


def make_points(number: int) -> Points:
    vectors = np.random.default_rng(number).normal(size=(BATCH, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = np.arange(number * BATCH, (number + 1) * BATCH, dtype=np.int64)
    return Points(ids, ids, ["code"] * BATCH, ["python"] * BATCH, vectors)


def list_ids(index: QdrantIndex) -> Ids:
    return index.ids(1, after=-1, limit=10_000)


@pytest.mark.parametrize("consistency", [1, 2])
def test_a_node_that_returns_has_what_was_written_meanwhile(
    nodes: list[QdrantNode], consistency: int
) -> None:
    """With 2 acknowledgements of 2 replicas, writes fail while a node is away, and are repeated."""
    index = open_index(nodes[0], consistency)
    index.read_epoch()
    index.apply(1, make_points(0), NO_IDS)
    nodes[2].kill()
    failed = []
    for number in range(1, 6):
        try:
            index.apply(1, make_points(number), NO_IDS)
        except ServiceError:
            failed.append(number)
        assert len(index.search(1, make_points(0).vectors[0], k=BATCH).ids) == BATCH
    assert (failed == []) is (consistency == 1)
    nodes[2].start()
    deadline = time.monotonic() + 15
    while failed:
        try:
            index.apply(1, make_points(failed[0]), NO_IDS)
            del failed[0]
        except ServiceError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    expected = list(range(6 * BATCH))
    for node in nodes:
        other = open_index(node, consistency)
        assert other.read_epoch() == index.read_epoch()
        while list_ids(other).tolist() != expected:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        other.close()
    index.drop()
    index.close()
