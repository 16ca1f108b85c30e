"""Vectors in a Qdrant server, called by gRPC.

A vector space is one collection. Its projects share it: a payload field names the project of each
point, and every call filters by that field. The name of a collection ends with its epoch, so a call
cannot reach the points of another epoch.
"""

from __future__ import annotations

import math
import re
import secrets
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

import numpy as np
from qdrant_client import grpc as api

# isort: split
# after qdrant_client, so that the error of a missing driver names that
import grpc

from unspool.domain.filters import AllOf, AnyOf, Compare, Filter, Not
from unspool.domain.queries import Stability
from unspool.errors import AddressError, DimensionError, UnsupportedError
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import (
    NO_IDS,
    Candidates,
    Capabilities,
    DamagedError,
    Ids,
    Points,
    Vectors,
    Within,
)
from unspool.index.vectors.connection import (
    Diagnosis,
    OptionValue,
    StoreAddress,
    StoreConnection,
    StoreFailure,
    parse_store_address,
)
from unspool.index.vectors.offsets import search_by_offset

PATTERN = "qdrant+http://HOST:PORT/PREFIX or qdrant+https://HOST:PORT/PREFIX"
PORT = 6333
OLDEST_VERSION = (1, 16)
OPTIONS: dict[str, OptionValue] = {
    "grpc_port": 0,  # the port of the address plus 1
    "quantisation": "none",
    "on_disk": False,
    "shards": 0,  # 0 leaves these three to the server
    "replication": 0,
    "write_consistency": 0,
}
QUANTISATIONS = {
    "none": None,
    "scalar": api.QuantizationConfig(
        scalar=api.ScalarQuantization(type=api.QuantizationType.Int8, always_ram=True)
    ),
    "binary": api.QuantizationConfig(binary=api.BinaryQuantization(always_ram=True)),
}
DISTANCES = {
    Metric.COSINE: api.Distance.Cosine,
    Metric.L2: api.Distance.Euclid,
    Metric.INNER: api.Distance.Dot,
}
FIELDS = {
    "project": api.PayloadIndexParams(keyword_index_params=api.KeywordIndexParams(is_tenant=True)),
    "document": api.PayloadIndexParams(
        integer_index_params=api.IntegerIndexParams(lookup=True, range=False)
    ),
    "kind": api.PayloadIndexParams(keyword_index_params=api.KeywordIndexParams()),
    "language": api.PayloadIndexParams(keyword_index_params=api.KeywordIndexParams()),
}
FIELD_TYPES = {"document": api.FieldType.FieldTypeInteger}
FAILURES = {
    grpc.StatusCode.UNAVAILABLE: StoreFailure.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: StoreFailure.TIMEOUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: StoreFailure.BUSY,
    grpc.StatusCode.UNAUTHENTICATED: StoreFailure.KEY,
    grpc.StatusCode.PERMISSION_DENIED: StoreFailure.KEY,
    grpc.StatusCode.NOT_FOUND: StoreFailure.LOST,
    grpc.StatusCode.INVALID_ARGUMENT: StoreFailure.REFUSED,
    grpc.StatusCode.UNIMPLEMENTED: StoreFailure.REFUSED,
}
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    # otherwise a new channel waits with an old one that failed
    ("grpc.use_local_subchannel_pool", 1),
)
BATCH_BYTES = 8 << 20  # a request may have 32 MB
BATCH_POINTS = 1_000
BATCH_DELETES = 10_000
# Among 100,000 vectors of 256 numbers, the 200 nearest took 5 ms exactly and 4.2 ms by the graph.
EXACT_NUMBERS = 25_600_000
# Candidates of a search by the graph: at least so many, and so many per result. With 1 per result
# recall@200 was 0.955, with 4 it was 0.991. Single bits order them badly, so more are needed.
CANDIDATES = {"none": (128, 4), "scalar": (128, 4), "binary": (1_000, 10)}
COUNT_LIFETIME_S = 60.0
LAST_EXACT = 1_000_000  # highest sum of offset and limit
LAST_APPROXIMATE = 20_000
ATTEMPTS = 5
LAST_ID = 2**63 - 1
MASK = 2**64 - 1


class QdrantIndex:
    """Points of one vector space, as the `VectorIndex` port."""

    capabilities = Capabilities(
        metrics=frozenset(Metric),
        filter_fields=frozenset({"kind", "language"}),
        max_ids=10_000,
        native_continuation=True,
        stability=Stability.BEST_EFFORT,  # a project above `exact_below` is searched by its graph
    )

    def __init__(
        self, address: StoreAddress, *, collection: str, dimension: int, options: VectorOptions
    ) -> None:
        self._address = address
        self._stem = f"{address.path}_{collection}" if address.path else collection
        self._dimension = dimension
        self._options = options
        self._connection = StoreConnection(address.place, options, diagnose)
        self._server = _Server(address)
        self._guard = threading.Lock()  # of the two below
        self._name: str | None = None  # of the collection, with its epoch
        self._is_supported = False  # the version of the server
        self._sizes: dict[int, tuple[int, float]] = {}  # number of points and time, by project

    @classmethod
    def open(
        cls, address: str, *, collection: str, dimension: int, options: VectorOptions
    ) -> QdrantIndex:
        """Return the index of a collection. It connects when it is first used."""
        parsed = parse_store_address(address, pattern=PATTERN, port=PORT, options=OPTIONS)
        if parsed.scheme not in ("qdrant+http", "qdrant+https"):
            raise AddressError(f"UNSPOOL_VECTORS names no protocol; give {PATTERN}")
        if not re.fullmatch(r"[A-Za-z0-9_-]{0,60}", parsed.path):
            raise AddressError(
                "the prefix in UNSPOOL_VECTORS has other characters than letters, digits, - and _"
            )
        if parsed.options["quantisation"] not in QUANTISATIONS:
            raise AddressError(
                f"the option quantisation of UNSPOOL_VECTORS is unknown; give one of: "
                f"{', '.join(QUANTISATIONS)}"
            )
        if options.index == "ivfflat":
            raise UnsupportedError("Qdrant has no IVFFlat index; set UNSPOOL_VECTOR_INDEX to hnsw")
        return cls(parsed, collection=collection, dimension=dimension, options=options)

    # The collection

    def read_epoch(self) -> str:
        """Return the epoch in the collection's name. Only the first call asks the server."""
        for _ in range(ATTEMPTS):
            try:
                return self._resolve(create=True).rpartition("_")[2]
            except DamagedError:  # another process deleted the collection meanwhile
                continue
        raise DamagedError(f"the collection {self._stem} is deleted again and again")

    def _resolve(self, *, create: bool) -> str:
        """Return the name of the collection."""
        with self._guard:
            if self._name is None:
                self._check_version()
                names = self._list_names()
                if not names and not create:
                    raise DamagedError(f"the collection {self._stem} is missing")
                if not names:
                    self._create(f"{self._stem}_{time.time_ns():016x}{secrets.token_hex(4)}")
                    names = self._list_names()
                if not names:
                    raise DamagedError(f"the collection {self._stem} was deleted")
                # Processes that create at once must agree. The oldest stays, and those who use
                # another one notice that it is missing.
                for name in names[1:]:
                    self._delete(name)
                self._create_indexes(names[0])
                self._name = names[0]
            return self._name

    def _check_version(self) -> None:
        if self._is_supported:
            return
        version = self._call("root.HealthCheck", api.HealthCheckRequest()).version
        found = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
        if found < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise UnsupportedError(
                f"the vector store {self._address.place} is Qdrant {version}; unspool needs "
                f"{oldest} or later"
            )
        self._is_supported = True

    def _list_names(self) -> list[str]:
        """Return the collections of this vector space, the oldest first."""
        pattern = re.compile(re.escape(self._stem) + "_[0-9a-f]{24}")
        found = self._call("collections.List", api.ListCollectionsRequest()).collections
        return sorted(one.name for one in found if pattern.fullmatch(one.name))

    def _create(self, name: str) -> None:
        options, own = self._options, self._address.options
        is_graph = options.index == "hnsw"
        # Every search filters by project, so a graph over all projects would never be used.
        graph = api.HnswConfigDiff(
            m=0,
            payload_m=options.hnsw_m if is_graph else 0,
            ef_construct=options.hnsw_ef_construction,
        )
        is_half = options.type == "halfvec"
        vectors = api.VectorParams(
            size=self._dimension,
            distance=DISTANCES[options.metric],
            on_disk=bool(own["on_disk"]),
            datatype=api.Datatype.Float16 if is_half else api.Datatype.Float32,
        )
        request = api.CreateCollection(
            collection_name=name,
            vectors_config=api.VectorsConfig(params=vectors),
            hnsw_config=graph,
            quantization_config=QUANTISATIONS[str(own["quantisation"])],
            shard_number=int(own["shards"]) or None,
            replication_factor=int(own["replication"]) or None,
            write_consistency_factor=int(own["write_consistency"]) or None,
        )

        self._call("collections.Create", request)

    def _create_indexes(self, name: str) -> None:
        """Create the payload indexes. Those that exist already are left alone."""
        for field, parameters in FIELDS.items():
            request = api.CreateFieldIndexCollection(
                collection_name=name,
                wait=True,
                field_name=field,
                field_type=FIELD_TYPES.get(field, api.FieldType.FieldTypeKeyword),
                field_index_params=parameters,
            )
            self._call("points.CreateFieldIndex", request)

    def _delete(self, name: str) -> None:
        with suppress(DamagedError):  # another process was faster
            self._call("collections.Delete", api.DeleteCollection(collection_name=name))

    # Points

    def apply(self, project: int, upserts: Points, deletes: Ids) -> None:
        """Delete points, then store points in place of those with the same ids."""
        self._check_dimension(upserts.vectors.shape[1])
        for start in range(0, len(deletes), BATCH_DELETES):
            ids = _encode_ids(project, deletes[start : start + BATCH_DELETES])
            chosen = api.PointsSelector(points=api.PointsIdsList(ids=ids))
            self._send("points.Delete", api.DeletePoints, wait=True, points=chosen)
        size = max(1, min(BATCH_POINTS, BATCH_BYTES // (4 * self._dimension + 256)))
        for start in range(0, len(upserts.ids), size):
            points = _encode_points(project, upserts, slice(start, start + size))
            self._send("points.Upsert", api.UpsertPoints, wait=True, points=points)

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
        """Compare all points if they are few, else search the graph.

        Only an exact search returns a hint, because pages of a graph repeat and skip points.
        """
        self.capabilities.check_search(k, within, hint)
        self._check_dimension(len(vector))
        conditions = [_match("project", str(project))]
        if within is not None:
            conditions.append(_encode_restriction(project, within))
        query = api.Query(nearest=api.VectorInput(dense=api.DenseVector(data=vector)))
        restriction = api.Filter(must=conditions)

        def fetch(offset: int, limit: int, *, exact: bool = True) -> Candidates:
            found = self._send(
                "points.Query",
                api.QueryPoints,
                query=query,
                filter=restriction,
                params=self._choose_parameters(limit, exact=exact),
                limit=limit,
                offset=offset,
            )
            return self._decode(found.result)

        if hint is None and (total := self._estimate(project, within)) > self._exact_below:
            found = search_by_offset(partial(fetch, exact=False), k, None, last=LAST_APPROXIMATE)
            if len(found.ids) >= min(k, total):
                return replace(found, hint=None)
        return search_by_offset(fetch, k, hint, last=LAST_EXACT)

    def _choose_parameters(self, limit: int, *, exact: bool) -> Any:
        if exact:
            return api.SearchParams(exact=True)
        fewest, per_result = CANDIDATES[str(self._address.options["quantisation"])]
        candidates = max(fewest, per_result * limit)
        # All candidates are scored again with the whole vectors.
        scoring = api.QuantizationSearchParams(rescore=True, oversampling=candidates / limit)
        return api.SearchParams(hnsw_ef=candidates, quantization=scoring)

    def _decode(self, found: Iterable[Any]) -> Candidates:
        ids = np.array([_decode_id(one.id) for one in found], dtype=np.int64)
        scores = np.array([one.score for one in found], dtype=np.float32)
        if self._options.metric is Metric.L2:
            scores = np.float32(1) / (1 + scores)
        return Candidates(ids=ids, scores=scores)

    @property
    def _exact_below(self) -> float:
        """Number of points up to which all are compared."""
        if self._options.index == "exact":
            return math.inf
        return self._options.exact_below or EXACT_NUMBERS // self._dimension

    def _estimate(self, project: int, within: Within | None) -> int:
        """Return about how many points a search compares if it is exact.

        The number of a project is counted once a minute, so that a search is one call. An old
        number costs time or the hint, never a result.
        """
        if within is not None and within.total <= self._exact_below:
            return within.total
        size, until = self._sizes.get(project, (0, 0.0))
        if time.monotonic() >= until:
            size = self.count(project)
            self._sizes[project] = size, time.monotonic() + COUNT_LIFETIME_S
        return size if within is None else min(size, within.total)

    def count(self, project: int) -> int:
        """Return the number of points of a project."""
        restriction = api.Filter(must=[_match("project", str(project))])
        found = self._send("points.Count", api.CountPoints, filter=restriction, exact=True)
        return int(found.result.count)

    def ids(self, project: int, *, after: int, limit: int) -> Ids:
        """Return the first ids above one. The server orders them as numbers of 128 bits."""
        if after >= LAST_ID:
            return NO_IDS
        found = self._send(
            "points.Scroll",
            api.ScrollPoints,
            filter=api.Filter(must=[_match("project", str(project))]),
            offset=_encode_id(project, after + 1),
            limit=limit,
            with_payload=api.WithPayloadSelector(enable=False),
        )
        return np.array([_decode_id(one.id) for one in found.result], dtype=np.int64)

    def drop(self, project: int | None = None) -> None:
        """Delete the points of a project, or the collection."""
        self._sizes.clear()
        with suppress(DamagedError):  # the collection is missing
            if project is None:
                self._send("collections.Delete", api.DeleteCollection)
                self._forget(self._name)
                return
            restriction = api.Filter(must=[_match("project", str(project))])
            chosen = api.PointsSelector(filter=restriction)
            self._send("points.Delete", api.DeletePoints, wait=True, points=chosen)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._server.channel.close()

    # Calls

    def _send(self, method: str, kind: Any, **fields: Any) -> Any:
        """Call the server for the collection. Forget its name if it is missing."""
        name = self._name or self._resolve(create=False)
        try:
            return self._call(method, kind(collection_name=name, **fields))
        except DamagedError:
            self._forget(name)
            raise

    def _forget(self, name: str | None) -> None:
        with self._guard:
            if self._name == name:
                self._name = None

    def _call(self, method: str, request: Any) -> Any:
        """Call a method, such as `points.Query`, through the current connection."""
        key = self._options.key
        metadata = (("api-key", key),) if key else ()

        def attempt() -> Any:
            server = self._server
            try:
                send = attrgetter(method)(server)
                return send(request, timeout=self._options.timeout_s, metadata=metadata)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.ALREADY_EXISTS:
                    return None  # created by an attempt whose answer was lost
                if error.code() is grpc.StatusCode.UNAVAILABLE and self._server is server:
                    # The next attempt of a channel is late, and once hung for 11 s.
                    self._server = _Server(self._address)
                raise

        return self._connection.call(attempt)

    def _check_dimension(self, given: int) -> None:
        if given != self._dimension:
            raise DimensionError(f"a vector has {given} numbers, this index {self._dimension}")


def diagnose(error: Exception) -> Diagnosis | None:
    """Return the failure of a call by its gRPC status; None for a defect."""
    if not isinstance(error, grpc.RpcError):
        return None
    code = error.code()
    trailer = dict(error.trailing_metadata() or ())
    pause = trailer.get("retry-after", "")
    failure = FAILURES.get(code, StoreFailure.BROKEN)
    return Diagnosis(failure, code.name, float(pause) if pause.isdecimal() else None)


class _Server:
    """Channel to a server, and the services that are called through it."""

    def __init__(self, address: StoreAddress) -> None:
        target = f"{address.host}:{address.options['grpc_port'] or address.port + 1}"
        if address.is_encrypted:
            encryption = grpc.ssl_channel_credentials()
            self.channel = grpc.secure_channel(target, encryption, CHANNEL_OPTIONS)
        else:
            self.channel = grpc.insecure_channel(target, CHANNEL_OPTIONS)
        self.root = api.QdrantStub(self.channel)
        self.points = api.PointsStub(self.channel)
        self.collections = api.CollectionsStub(self.channel)


def _encode_id(project: int, id_: int) -> Any:
    """Return the id of a point: a UUID of 64 bits of the project and 64 bits of the chunk.

    The server orders UUIDs as numbers, so the chunks of a project are in order.
    """
    return api.PointId(uuid=str(UUID(int=(project & MASK) << 64 | id_)))


def _encode_ids(project: int, ids: Ids) -> list[Any]:
    return [_encode_id(project, id_) for id_ in ids.tolist()]


def _decode_id(point: Any) -> int:
    return int(point.uuid.replace("-", "")[16:], 16)


def _encode_points(project: int, points: Points, chosen: slice) -> list[Any]:
    fields = zip(
        _encode_ids(project, points.ids[chosen]),
        points.documents[chosen].tolist(),
        points.kinds[chosen],
        points.languages[chosen],
        points.vectors[chosen],
        strict=True,
    )
    return [
        api.PointStruct(
            id=id_,
            vectors=api.Vectors(vector=api.Vector(dense=api.DenseVector(data=vector))),
            payload={
                "project": api.Value(string_value=str(project)),
                "document": api.Value(integer_value=document),
                "kind": api.Value(string_value=kind),
                "language": api.Value(string_value=language),
            },
        )
        for id_, document, kind, language, vector in fields
    ]


def _match(field: str, value: str) -> Any:
    return api.Condition(field=api.FieldCondition(key=field, match=api.Match(keyword=value)))


def _encode_restriction(project: int, within: Within) -> Any:
    """Return a restriction as a condition."""
    if within.filter is not None:
        return _encode_filter(within.filter)
    if within.chunks is not None:
        return api.Condition(has_id=api.HasIdCondition(has_id=_encode_ids(project, within.chunks)))
    documents = api.RepeatedIntegers(
        integers=[] if within.documents is None else within.documents.tolist()
    )
    return api.Condition(
        field=api.FieldCondition(key="document", match=api.Match(integers=documents))
    )


def _encode_filter(condition: Filter) -> Any:
    match condition:
        case Compare():
            return _match(condition.field, str(condition.value))
        case Not():
            inner = api.Filter(must_not=[_encode_filter(condition.inner)])
        case AllOf():
            inner = api.Filter(must=[_encode_filter(part) for part in condition.parts])
        case AnyOf(parts=()):
            inner = api.Filter(must_not=[api.Condition(filter=api.Filter())])
        case AnyOf():
            inner = api.Filter(should=[_encode_filter(part) for part in condition.parts])
    return api.Condition(filter=inner)
