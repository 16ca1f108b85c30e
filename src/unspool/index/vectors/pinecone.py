"""Vectors in an index of Pinecone. Addresses are pinecone:///INDEX.

A project is a namespace, and its name contains the epoch. The epoch is the id of a record in a
namespace of its own. Pinecone shows writes to readers later, so a write waits until it is visible.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from pinecone import Pinecone, RetryConfig
from pinecone._internal.constants import DATA_PLANE_API_VERSION
from pinecone._internal.http_client import HTTPClient
from pinecone.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    PineconeConnectionError,
    PineconeTimeoutError,
    PineconeValueError,
    RateLimitError,
    ResponseParsingError,
    UnauthorizedError,
)
from pinecone.index import Index
from pinecone.models.vectors.responses import DescribeIndexStatsResponse, QueryResponse

from unspool.domain.filters import AllOf, Compare, Filter, Not
from unspool.errors import AddressError, DimensionError, RejectedError, ServiceTimeoutError
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Candidates, Capabilities, DamagedError, Ids, Points, Vectors, Within
from unspool.index.vectors.connection import (
    Diagnosis,
    OptionValue,
    StoreConnection,
    StoreFailure,
    parse_store_address,
)
from unspool.index.vectors.offsets import search_by_offset

_T = TypeVar("_T")
PATTERN = "pinecone:///INDEX"
OPTIONS: dict[str, OptionValue] = {"host": "", "control_host": "", "visible_s": 300}
LAST_K = 10_000  # of a query that asks for neither values nor metadata
UPSERT_RECORDS, UPSERT_BYTES = 1_000, 2_000_000
RECORD_BYTES, NUMBER_BYTES = 400, 13  # of a record without its vector, and of a number, as JSON
DELETE_IDS = 1_000
LIST_IDS = 100
DIGITS = 19  # of the largest id, so that text sorts as numbers do
RECHECK_S = 60.0  # an epoch that was lost is noticed after this time at the latest
CHECK_PAUSE_S = 0.3  # from this pause on, a wait also looks at the epoch
TINY = 1e-7
POLL_S = (0.02, 1.0)  # first and longest pause while a write is not visible
KNOWN_METRICS = ("cosine", "dotproduct", "euclidean")
NO_RETRIES = RetryConfig(max_retries=0)
TIMEOUT_STATUSES = (408, 504)
FIRST_SERVER_STATUS = 500

logging.getLogger("pinecone").setLevel(logging.WARNING)  # it logs addresses and namespaces


class Epoch(NamedTuple):
    """Name of the stored points, and when it was read."""

    name: str
    read_at: float

    @property
    def is_fresh(self) -> bool:
        """False if it has to be read again."""
        return time.monotonic() - self.read_at < RECHECK_S


class PineconeIndex:
    """Points of one collection, as the `VectorIndex` port."""

    capabilities = Capabilities(
        metrics=frozenset(Metric),
        max_k=LAST_K,
        filter_fields=frozenset({"kind", "language"}),
        max_ids=10_000,
    )

    def __init__(
        self,
        open_index: Callable[[], Index],
        connection: StoreConnection,
        *,
        name: str,
        collection: str,
        dimension: int,
        metric: Metric,
        visible_s: float,
    ) -> None:
        self._open_index = open_index
        self._connection = connection
        self._name = name
        self._collection = collection
        self._dimension = dimension
        self._metric = metric
        self._visible_s = visible_s
        self._guard = threading.RLock()  # of the index and the epoch
        self._index: Index | None = None
        self._is_euclidean = False
        self._epoch: Epoch | None = None
        # tokens that continue a list of ids behind an id, by namespace
        self._tokens: dict[str, dict[int, str]] = {}

    @classmethod
    def open(
        cls, address: str, *, collection: str, dimension: int, options: VectorOptions
    ) -> PineconeIndex:
        """Return the index of a collection. It connects when it is first used."""
        parsed = parse_store_address(address, pattern=PATTERN, port=0, options=OPTIONS)
        host, control = str(parsed.options["host"]), str(parsed.options["control_host"])
        if not parsed.path or "/" in parsed.path:
            raise AddressError(f"UNSPOOL_VECTORS names no index; give {PATTERN}")
        for name, url in (("host", host), ("control_host", control)):
            if url and (urlsplit(url).username or urlsplit(url).query):
                raise AddressError(f"the option {name} of UNSPOOL_VECTORS is no host")

        def open_index() -> Index:
            if not options.key:  # the client would look for one in the environment
                raise PineconeValueError("no key")
            with Pinecone(
                options.key,
                host=control or None,
                timeout=options.timeout_s,
                retry_config=NO_RETRIES,
            ) as client:
                return without_retries(client.index(name="" if host else parsed.path, host=host))

        return cls(
            open_index,
            StoreConnection(f"pinecone:///{parsed.path}", options, diagnose),
            name=parsed.path,
            collection=collection,
            dimension=dimension,
            metric=options.metric,
            visible_s=float(parsed.options["visible_s"]),
        )

    # Connection

    def _call(self, action: Callable[[Index], _T]) -> _T:
        index = self._connect()
        return self._connection.call(lambda: action(index))

    def _connect(self) -> Index:
        """Open the index by the first call, and check that it can contain the vectors."""
        if self._index is not None:
            return self._index
        with self._guard:
            if self._index is not None:
                return self._index
            self._index = self._connection.call(self._look_up)
            return self._index

    def _look_up(self) -> Index:
        """Return the index of the address, if it can contain the vectors."""
        try:
            index = self._open_index()
            try:
                self._check_index(index.describe_index_stats())
            except BaseException:
                index.close()
                raise
        except NotFoundError:
            raise RejectedError(self._describe_creation("does not exist")) from None
        except PineconeValueError:
            raise RejectedError(
                f"the vector store {self._connection.place} has no usable key or host; set "
                f"UNSPOOL_VECTORS_KEY, and wait until the index is ready"
            ) from None
        return index

    def _check_index(self, found: DescribeIndexStatsResponse) -> None:
        if found.dimension is not None and found.dimension != self._dimension:
            raise DimensionError(
                self._describe_creation(f"has vectors of {found.dimension} numbers")
            )
        if found.vector_type not in (None, "dense"):
            raise RejectedError(self._describe_creation(f"has {found.vector_type} vectors"))
        if found.metric is not None and found.metric not in KNOWN_METRICS:
            raise RejectedError(self._describe_creation(f"has the metric {found.metric!r}"))
        self._is_euclidean = found.metric == "euclidean"

    def _describe_creation(self, happened: str) -> str:
        return (
            f"the index {self._name!r} of Pinecone {happened}; create a serverless index of dense "
            f"vectors with dimension {self._dimension} and metric cosine, and give its name in "
            f"UNSPOOL_VECTORS"
        )

    def read_version(self) -> str:
        """Return the version of the API. The service reports none of its own."""
        self._connect()
        return f"Pinecone API {DATA_PLANE_API_VERSION}"

    # Epoch

    def read_epoch(self) -> str:
        """Return the epoch. It is read again after a minute."""
        known = self._epoch
        if known is not None and known.is_fresh:
            return known.name
        with self._guard:
            known = self._epoch
            if known is None or not known.is_fresh:
                name = self._find_epoch() or self._create_epoch()
                known = self._epoch = Epoch(name, time.monotonic())
            return known.name

    def _list_epochs(self) -> list[str]:
        found = self._query(self._collection, self._make_unit_vector(), top_k=LIST_IDS)
        return sorted(match.id for match in found.matches)

    def _find_epoch(self) -> str | None:
        """Return the first epoch. Names begin with the time, so a later process loses."""
        epochs = self._list_epochs()
        return epochs[0] if epochs else None

    def _create_epoch(self) -> str:
        """Write an epoch. If another process has written one before, use that."""
        epoch = f"{time.time_ns():016x}{secrets.token_hex(8)}"
        record = {"id": epoch, "values": self._make_unit_vector()}
        self._call(lambda index: index.upsert(vectors=[record], namespace=self._collection))
        self._wait_until(lambda: epoch in self._list_epochs())
        first = self._find_epoch() or epoch
        if first != epoch:
            self._call(lambda index: index.delete(ids=[epoch], namespace=self._collection))
        return first

    def _check_epoch(self, epoch: str) -> None:
        """Raise `DamagedError` if the epoch was lost. An empty result may mean that."""
        found = self._find_epoch()
        if found == epoch:
            self._epoch = Epoch(epoch, time.monotonic())
            return
        self._epoch = None
        raise DamagedError(
            f"the vector store {self._connection.place} has lost its points; they are written again"
        )

    def _get_namespace(self, epoch: str, project: int) -> str:
        return f"{self._collection}-{epoch}-{'p' if project >= 0 else 'm'}{abs(project)}"

    def _make_unit_vector(self) -> list[float]:
        return [1.0, *[0.0] * (self._dimension - 1)]

    # Writing

    def apply(self, project: int, upserts: Points, deletes: Ids) -> None:
        """Delete points, then store points in place of those with the same ids.

        Returns when searches find the points.
        """
        self._check_dimension(upserts.vectors.shape[1])
        epoch = self.read_epoch()
        namespace = self._get_namespace(epoch, project)
        self._check_epoch(epoch)
        last = ""
        for deleted in split([encode(id_) for id_ in deletes.tolist()], DELETE_IDS):
            self._delete(namespace, ids=deleted)
            last = deleted[-1]
        is_stored = len(upserts.ids) > 0
        position: int | None = None
        for batch in split(range(len(upserts.ids)), self._count_batch()):
            records = [make_record(upserts, at) for at in batch]
            position = self._upsert(namespace, records)
            last = records[-1]["id"]
        if last:
            self._wait_until(
                lambda: (
                    self._is_indexed(namespace, position)
                    and self._is_listed(namespace, last) == is_stored
                ),
                epoch,
            )

    def _upsert(self, namespace: str, records: list[dict[str, Any]]) -> int | None:
        """Store records, and return the position of the write in the namespace's log."""
        written = self._call(lambda index: index.upsert(vectors=records, namespace=namespace))
        return written.response_info.lsn_committed if written.response_info else None

    def _count_batch(self) -> int:
        size = RECORD_BYTES + NUMBER_BYTES * self._dimension
        return max(1, min(UPSERT_RECORDS, UPSERT_BYTES // size))

    def _delete(self, namespace: str, **what: Any) -> None:
        """Delete records. A namespace that does not exist has none."""

        def delete(index: Index) -> None:
            try:
                index.delete(namespace=namespace, **what)
            except NotFoundError:
                return

        self._call(delete)

    def _is_indexed(self, namespace: str, position: int | None) -> bool:
        """Return whether searches have reached a position of the log, or do not report it."""
        if position is None:
            return True
        found = self._query(namespace, self._make_unit_vector(), top_k=1)
        reached = found.response_info.lsn_reconciled if found.response_info else None
        return reached is None or reached >= position

    def _is_listed(self, namespace: str, id_: str) -> bool:
        """Return whether lists contain an id. They may lag behind searches."""
        ids, _ = self._list_page(namespace, None, prefix=id_)
        return bool(ids)

    def _query(self, namespace: str, vector: list[float], **options: Any) -> QueryResponse:
        return self._call(lambda index: index.query(namespace=namespace, vector=vector, **options))

    def _wait_until(self, is_visible: Callable[[], bool], epoch: str | None = None) -> None:
        """Wait for a write. If it takes long, perhaps the epoch was lost with it."""
        deadline, pause = time.monotonic() + self._visible_s, POLL_S[0]
        while not is_visible():
            if time.monotonic() > deadline:
                raise ServiceTimeoutError(
                    f"the vector store {self._connection.place} has not shown a write for "
                    f"{self._visible_s:.0f} seconds; try again, or raise its option visible_s"
                )
            if epoch is not None and pause >= CHECK_PAUSE_S:
                self._check_epoch(epoch)
            time.sleep(pause)
            pause = min(2 * pause, POLL_S[1])

    def drop(self, project: int | None = None) -> None:
        """Delete the points of a project, or the epoch and everything else."""
        if project is not None:
            epoch = self.read_epoch()
            namespace = self._get_namespace(epoch, project)
            self._delete(namespace, delete_all=True)
            self._wait_until(lambda: not self._has_points(namespace), epoch)
            return
        with self._guard:
            self._epoch = None
            epochs = self._list_epochs()
            if epochs:
                self._delete(self._collection, ids=epochs)
                self._wait_until(lambda: not set(epochs) & set(self._list_epochs()))
            for namespace in self._list_namespaces(f"{self._collection}-"):
                self._delete_namespace(namespace)
            self._delete_namespace(self._collection)

    def _has_points(self, namespace: str) -> bool:
        found = self._query(namespace, self._make_unit_vector(), top_k=1)
        return bool(found.matches) or bool(self._list_page(namespace, None)[0])

    def _list_namespaces(self, prefix: str) -> list[str]:
        pages = self._call(lambda index: list(index.list_namespaces(prefix=prefix)))
        return [one.name for page in pages for one in page.namespaces]

    def _delete_namespace(self, name: str) -> None:
        def delete(index: Index) -> None:
            try:
                index.delete_namespace(name=name)
            except NotFoundError:
                return

        self._call(delete)

    # Reading

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        within: Within | None = None,
        min_similarity: float | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest points. Equal scores at the end are read whole and sorted by id."""
        self.capabilities.check_search(k, within, hint)
        self._check_dimension(len(vector))
        condition = True if within is None else translate(within)
        if condition is False:
            return Candidates.empty()
        given = None if condition is True else condition
        epoch, query = self.read_epoch(), to_numbers(vector)
        namespace = self._get_namespace(epoch, project)

        def fetch(_: int, limit: int) -> Candidates:
            found = self._query(namespace, query, top_k=limit, filter=given)
            ids = np.array([int(match.id) for match in found.matches], dtype=np.int64)
            scores = np.array([match.score for match in found.matches], dtype=np.float64)
            return Candidates(ids=ids, scores=self._convert(scores))

        found = search_by_offset(fetch, k, None, last=LAST_K)
        if not len(found.ids) and given is None:
            self._check_epoch(epoch)
        return replace(found, hint=None)

    def _convert(self, scores: npt.NDArray[np.float64]) -> Vectors:
        """Return scores of the metric. Vectors have the length 1, so each metric gives another."""
        squares = scores if self._is_euclidean else 2 - 2 * scores
        if self._metric is Metric.L2:
            converted = 1 / (1 + np.sqrt(np.maximum(squares, 0)))
        else:
            converted = 1 - squares / 2
        return converted.astype(np.float32)

    def count(self, project: int) -> int:
        """Return the number of points of a project, as Pinecone has counted them last."""
        epoch = self.read_epoch()
        namespace = self._get_namespace(epoch, project)

        def count(index: Index) -> int:
            try:
                return index.describe_namespace(name=namespace).record_count
            except NotFoundError:
                return 0

        found = self._call(count)
        if not found:
            self._check_epoch(epoch)
        return found

    def ids(self, project: int, *, after: int, limit: int) -> Ids:
        """Return the first ids behind one, in ascending order."""
        epoch = self.read_epoch()
        found: list[int] = []
        for id_ in self._walk(self._get_namespace(epoch, project), after):
            found.append(id_)
            if len(found) == limit:
                break
        if not found:
            self._check_epoch(epoch)
        return np.array(found, dtype=np.int64)

    def _walk(self, namespace: str, after: int) -> Iterator[int]:
        """Yield ids behind one.

        Lists begin at the first id or at a token of an earlier list, so tokens are kept.
        """
        with self._guard:
            if after < 0:
                self._tokens = {namespace: {}}
            tokens = self._tokens.setdefault(namespace, {})
            start = max((id_ for id_ in list(tokens) if id_ <= after), default=None)
        token = None if start is None else tokens[start]
        while True:
            try:
                ids, token = self._list_page(namespace, token)
            except RejectedError:
                if token is None:
                    raise
                tokens.clear()  # the server does not know the token any more
                token = None
                continue
            yield from (id_ for id_ in ids if id_ > after)
            if token is None or not ids:
                return
            after, tokens[ids[-1]] = max(after, ids[-1]), token

    def _list_page(
        self, namespace: str, token: str | None, *, prefix: str | None = None
    ) -> tuple[list[int], str | None]:
        def list_page(index: Index) -> tuple[list[int], str | None]:
            try:
                page = index.list_paginated(
                    namespace=namespace, limit=LIST_IDS, pagination_token=token, prefix=prefix
                )
            except NotFoundError:
                return [], None
            following = page.pagination.next if page.pagination else None
            return [int(item.id or 0) for item in page.vectors], following or None

        return self._call(list_page)

    def close(self) -> None:
        """Close connections."""
        self._connection.close()
        with self._guard:
            if self._index is not None:
                self._index.close()
                self._index = None

    def _check_dimension(self, given: int) -> None:
        if given != self._dimension:
            raise DimensionError(f"a vector has {given} numbers, this index {self._dimension}")


def without_retries(index: Index) -> Index:
    """Return a client that never repeats a request. It has no setting for that."""
    config = replace(index._config, retry_config=NO_RETRIES)
    index._http.close()
    index._http = HTTPClient(config, DATA_PLANE_API_VERSION)
    return index


def diagnose(error: Exception) -> Diagnosis | None:
    """Return the failure that an exception of the client means."""
    match error:
        case PineconeTimeoutError():
            return Diagnosis(StoreFailure.TIMEOUT, "time-out")
        case PineconeConnectionError():
            return Diagnosis(StoreFailure.UNREACHABLE, "connection")
        case UnauthorizedError() | ForbiddenError():
            return Diagnosis(StoreFailure.KEY, f"status {error.status_code}")
        case RateLimitError():
            return Diagnosis(StoreFailure.BUSY, f"status {error.status_code}", error.retry_after)
        case ApiError() if error.status_code in TIMEOUT_STATUSES:
            return Diagnosis(StoreFailure.TIMEOUT, f"status {error.status_code}")
        case ApiError() if error.status_code >= FIRST_SERVER_STATUS:
            return Diagnosis(StoreFailure.UNREACHABLE, f"status {error.status_code}")
        case ApiError():
            return Diagnosis(StoreFailure.REFUSED, f"status {error.status_code}")
        case ResponseParsingError():
            return Diagnosis(StoreFailure.BROKEN, "answer that is not JSON")
    return None


def split(items: Sequence[_T], size: int) -> Iterator[list[_T]]:
    """Yield the items in parts of at most this size."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def encode(id_: int) -> str:
    """Return an id as text that sorts as its number does."""
    return f"{id_:0{DIGITS}d}"


def to_numbers(vector: Vectors) -> list[float]:
    """Return a vector with 8 decimal places, which halves requests and changes no score."""
    numbers: list[float] = np.round(vector.astype(np.float64), 8).tolist()
    if not any(numbers):
        numbers[0] = TINY  # Pinecone rejects a vector of zeros
    return numbers


def make_record(points: Points, at: int) -> dict[str, Any]:
    """Return a point as a record. Ids are text, because numbers of metadata have 53 bits."""
    id_ = encode(int(points.ids[at]))
    return {
        "id": id_,
        "values": to_numbers(points.vectors[at]),
        "metadata": {
            "chunk": id_,
            "document": encode(int(points.documents[at])),
            "kind": points.kinds[at],
            "language": points.languages[at],
        },
    }


def translate(within: Within) -> dict[str, Any] | bool:
    """Return a restriction as a metadata filter, or whether it accepts everything or nothing."""
    if within.filter is not None:
        return translate_filter(within.filter)
    field, ids = (
        ("document", within.documents) if within.chunks is None else ("chunk", within.chunks)
    )
    assert ids is not None
    return {field: {"$in": [encode(id_) for id_ in ids.tolist()]}} if len(ids) else False


def translate_filter(condition: Filter, *, is_negated: bool = False) -> dict[str, Any] | bool:
    """Return a filter as a metadata filter. Negations move to the comparisons."""
    if isinstance(condition, Not):
        return translate_filter(condition.inner, is_negated=not is_negated)
    if isinstance(condition, Compare):
        return {condition.field: {"$ne" if is_negated else "$eq": condition.value}}
    is_all = isinstance(condition, AllOf) != is_negated
    parts = [translate_filter(part, is_negated=is_negated) for part in condition.parts]
    if any(part is not is_all and isinstance(part, bool) for part in parts):
        return not is_all
    kept = [part for part in parts if not isinstance(part, bool)]
    if not kept:
        return is_all
    return kept[0] if len(kept) == 1 else {"$and" if is_all else "$or": kept}
