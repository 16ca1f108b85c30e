"""Vectors in Weaviate: a collection for each vector space, a tenant for each project.

The package of Weaviate provides the messages of its gRPC API, which are sent directly. Its client
hides the status of a failed call, repeats calls by itself for a minute, and asks a package registry
for its latest version.
"""

from __future__ import annotations

import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import grpc
import httpx
import numpy as np
from weaviate.proto.v1 import (
    aggregate_pb2,
    base_pb2,
    base_search_pb2,
    batch_delete_pb2,
    batch_pb2,
    search_get_pb2,
    weaviate_pb2_grpc,
)

from unspool.domain.filters import AllOf, Compare, Filter, Not
from unspool.domain.queries import Stability
from unspool.errors import AddressError, DimensionError, UnsupportedError
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import (
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

PATTERN = "weaviate+http://HOST:PORT/PREFIX or weaviate+https://HOST:PORT/PREFIX"
OPTIONS: dict[str, OptionValue] = {
    "grpc_port": 50_051,
    "grpc_host": "",  # the host of the address
    "index": "flat",
    "replication": 1,
    "consistency": "quorum",
    "max_results": 10_000,  # QUERY_MAXIMUM_RESULTS of the server
    "flush": True,
}
CHOICES = {"index": ("flat", "hnsw", "dynamic"), "consistency": ("one", "quorum", "all")}
MINIMUM = (1, 33)  # the first version whose filters have a negation
UPSERT_BATCH = 500  # points of a request
DELETE_BATCH = 1_000  # points of a request; a server deletes at most `max_results` by one
LIST_BATCH = 4_000  # ids of a request
MAX_MESSAGE = 104_858_000  # bytes, the default of a server
SETTLE_ATTEMPTS = 7  # of processes that create the collection at once, in about 6 s

_DISTANCES = {Metric.COSINE: "cosine", Metric.L2: "l2-squared", Metric.INNER: "dot"}
_FIRST = 1 << 64  # id 0, so that a list can begin before it
_EPOCH = re.compile(r"[0-9a-f]{16}")
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,60}")
_T = TypeVar("_T")
_Filters = base_pb2.Filters
_BY_STATUS = {
    401: StoreFailure.KEY,
    403: StoreFailure.KEY,
    404: StoreFailure.LOST,
    429: StoreFailure.BUSY,
    503: StoreFailure.UNREACHABLE,
}
_BY_CODE = {
    "UNAVAILABLE": StoreFailure.UNREACHABLE,
    "DEADLINE_EXCEEDED": StoreFailure.TIMEOUT,
    "RESOURCE_EXHAUSTED": StoreFailure.BUSY,
    "UNAUTHENTICATED": StoreFailure.KEY,
    "PERMISSION_DENIED": StoreFailure.KEY,
    "UNIMPLEMENTED": StoreFailure.REFUSED,
}
# A server reports most failures with the code UNKNOWN, and a text.
_BY_TEXT = {
    "could not find class": (StoreFailure.LOST, "no collection"),
    "not present in schema": (StoreFailure.LOST, "no collection"),
    # a server with auto-schema creates a missing collection, but without tenants
    "multi-tenancy disabled": (StoreFailure.LOST, "no collection"),
    "unauthorized": (StoreFailure.KEY, "unauthorized"),
    "forbidden": (StoreFailure.KEY, "forbidden"),
    "vector lengths don't match": (StoreFailure.DIMENSION, "dimension"),
    "vector of the wrong size": (StoreFailure.DIMENSION, "dimension"),
    "query maximum results exceeded": (
        StoreFailure.REFUSED,
        "its QUERY_MAXIMUM_RESULTS is below the option max_results of the address",
    ),
}
_NO_TENANT = "tenant not found"


class BatchFailedError(Exception):
    """Reply that reports failed points. A server stores the others."""


def diagnose(error: Exception) -> Diagnosis | None:
    """Return the failure that an exception means; None for a defect."""
    match error:
        case httpx.TimeoutException():
            return Diagnosis(StoreFailure.TIMEOUT, "HTTP")
        case httpx.TransportError():
            return Diagnosis(StoreFailure.UNREACHABLE, type(error).__name__)
        case httpx.HTTPStatusError():
            status = error.response.status_code
            other = StoreFailure.BROKEN if status >= 500 else StoreFailure.REFUSED
            return Diagnosis(_BY_STATUS.get(status, other), f"HTTP {status}")
        case BatchFailedError():
            return _diagnose_text(str(error), "a batch failed")
        case grpc.RpcError():
            code = error.code().name
            if code in _BY_CODE:
                return Diagnosis(_BY_CODE[code], code)
            return _diagnose_text(error.details() or "", code)
    return None


def _diagnose_text(text: str, reason: str) -> Diagnosis:
    for part, (failure, name) in _BY_TEXT.items():
        if part in text:
            return Diagnosis(failure, name)
    return Diagnosis(StoreFailure.BROKEN, reason)


class WeaviateIndex:
    """Points of one vector space, as the `VectorIndex` port."""

    capabilities = Capabilities(
        metrics=frozenset(Metric),
        max_k=10_000,
        filter_fields=frozenset({"kind", "language"}),
        max_ids=1_000,
        native_continuation=True,
        stability=Stability.DETERMINISTIC,
    )

    def __init__(
        self, address: StoreAddress, base: str, dimension: int, options: VectorOptions
    ) -> None:
        chosen = address.options
        is_exact = chosen["index"] == "flat"
        is_alone = chosen["replication"] == 1  # a replica that was away lacks points for a while
        self.capabilities = replace(
            self.capabilities,
            max_k=int(chosen["max_results"]),
            native_continuation=is_exact,
            stability=Stability.DETERMINISTIC if is_exact and is_alone else Stability.BEST_EFFORT,
        )
        self._base = base  # name of the collection, without its epoch
        self._dimension = dimension
        self._metric = options.metric
        self._options = chosen
        self._consistency = base_pb2.ConsistencyLevel.Value(
            f"CONSISTENCY_LEVEL_{str(chosen['consistency']).upper()}"
        )
        self._server = StoreConnection(address.place, options, diagnose)
        self._timeout = options.timeout_s
        header = {"authorization": f"Bearer {options.key}"} if options.key else {}
        self._http = _connect(address, header, options.timeout_s)
        self._metadata = tuple(header.items())
        self._address = address
        self._channel = _open_channel(address)
        self._writing = threading.Lock()  # a flush stops other writes to the project
        self._guard = threading.Lock()  # of the next three
        self._name: str | None = None  # of the collection, with its epoch
        self._is_lost = False
        self._is_checked = False

    @classmethod
    def open(
        cls, address: str, *, collection: str, dimension: int, options: VectorOptions
    ) -> WeaviateIndex:
        """Return the index of a collection. The server is called later."""
        port = 443 if address.startswith("weaviate+https:") else 8080
        parsed = parse_store_address(address, pattern=PATTERN, port=port, options=OPTIONS)
        _check_address(parsed)
        prefix = f"{parsed.path}_" if parsed.path else ""
        # An exact collection and an approximate one are not the same.
        base = f"{prefix}{collection}_{parsed.options['index']}_"
        return cls(parsed, base[0].upper() + base[1:], dimension, options)

    # Calls

    def _send(self, method: str, path: str, content: object = None, accept: int = 200) -> Any:
        """Send a REST request. Returns the JSON of the answer; None for the accepted status."""
        response = self._http.request(method, path, json=content)
        if response.status_code != accept:
            response.raise_for_status()
        return response.json() if response.is_success and response.content else None

    def _invoke(self, method: str, request: Any) -> Any:
        """Send a gRPC request."""
        stub: Any = weaviate_pb2_grpc.WeaviateStub(self._channel)
        try:
            return getattr(stub, method)(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                # The old channel would wait for seconds before it connects again. Other threads
                # may be using it, so it is not closed here.
                self._channel = _open_channel(self._address)
            raise

    def _call(self, action: Callable[[str], _T]) -> _T:
        """Run an action with the name of the collection, which must exist."""
        if self._name is None:
            if self._is_lost:
                raise DamagedError("the vector store has lost its collection")
            self.read_epoch()
        name = self._name or ""
        try:
            return self._server.call(lambda: action(name))
        except DamagedError:
            with self._guard:
                if self._name == name:
                    self._name, self._is_lost = None, True
            raise

    def _call_tenant(self, project: int, method: str, request: Any) -> Any:
        """Send a gRPC request about a project. Returns None if the server does not know it."""

        def act(name: str) -> Any:
            request.collection, request.tenant = name, f"p{project}"
            try:
                reply = self._invoke(method, request)
            except grpc.RpcError as error:
                if _NO_TENANT in (error.details() or ""):
                    return None
                raise
            if method == "BatchDelete" and reply.failed:
                raise BatchFailedError(f"{reply.failed} points were not deleted")
            return reply

        return self._call(act)

    # Collection

    def read_epoch(self) -> str:
        """Return the end of the collection's name; create the collection if it is missing.

        A name is never used twice, so no call reaches the points of another epoch.
        """
        with self._guard:
            if self._name is None:
                self._check_version()
                self._name, self._is_lost = self._find_or_create(), False
            return self._name.removeprefix(self._base)

    def _check_version(self) -> None:
        """Reject a server that is too old."""
        if self._is_checked:
            return
        version = str(self._server.call(lambda: self._send("GET", "/meta"))["version"])
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers < MINIMUM:
            raise UnsupportedError(
                f"the vector store {self._server.place} is Weaviate {version}; unspool needs "
                f"{'.'.join(map(str, MINIMUM))} or newer"
            )
        self._is_checked = True

    def _find_or_create(self) -> str:
        """Return the name of the collection.

        Who creates one and then sees another deletes its own and looks again later. So the one
        that was alone after its creation stays. Two remain only if a process ended in between.
        """
        for attempt in range(SETTLE_ATTEMPTS):
            names = self._list_names()
            if len(names) == 1:
                return names[0]
            if not names:
                own = self._base + secrets.token_hex(8)
                self._server.call(lambda own=own: self._create(own))  # type: ignore[misc]
                if self._list_names() == [own]:
                    return own
                self._delete(own)
            time.sleep(random.uniform(0, 0.1 * 2**attempt))  # noqa: S311 - nothing secret
        return (self._list_names() or [self._base])[0]

    def _list_names(self) -> list[str]:
        """Return the names of the collections with any epoch; delete those that are not ours."""
        found: dict[str, bool] = {
            one["class"]: one["multiTenancyConfig"]["enabled"]
            for one in self._server.call(lambda: self._send("GET", "/schema"))["classes"] or ()
            if one["class"].startswith(self._base)
            and _EPOCH.fullmatch(one["class"], len(self._base))
        }
        for name, has_tenants in found.items():
            if not has_tenants:  # auto-schema created it for a write to a deleted one
                self._delete(name)
        return sorted(name for name, has_tenants in found.items() if has_tenants)

    def _create(self, name: str) -> None:
        index = {"distance": _DISTANCES[self._metric], "skipDefaultQuantization": True}
        if self._options["index"] == "dynamic":
            index = {"distance": index["distance"], "flat": index, "hnsw": index}
        fields = ("document", "kind", "language")
        content = {
            "class": name,
            "description": "Vectors of unspool, derived from its catalog.",
            "vectorizer": "none",
            "vectorIndexType": self._options["index"],
            "vectorIndexConfig": index,
            "multiTenancyConfig": {
                "enabled": True,
                "autoTenantCreation": True,
                "autoTenantActivation": True,
            },
            "replicationConfig": {"factor": self._options["replication"]},
            "invertedIndexConfig": {"indexNullState": True},
            "properties": [
                # Ids of documents are text, because a number would be a double.
                {
                    "name": field,
                    "dataType": ["text"],
                    "tokenization": "field",
                    "indexFilterable": True,
                    "indexSearchable": False,
                }
                for field in fields
            ],
        }
        response = self._http.post("/schema", json=content)
        # A repeated request finds the collection that the first has created.
        if response.status_code != 422 or self._http.get(f"/schema/{name}").is_error:
            response.raise_for_status()

    def _delete(self, name: str) -> None:
        self._server.call(lambda: self._send("DELETE", f"/schema/{name}", accept=404))

    def drop(self, project: int | None = None) -> None:
        """Delete the points of a project, or the collection of every epoch."""
        if project is not None:
            tenant = [f"p{project}"]
            self._call(lambda name: self._delete_tenant(name, tenant))
            return
        with self._guard:
            self._check_version()
            for name in self._list_names():
                self._delete(name)
            self._name, self._is_lost = None, False

    def _delete_tenant(self, name: str, tenant: list[str]) -> None:
        if self._send("DELETE", f"/schema/{name}/tenants", tenant, accept=422) is None:
            self._send("GET", f"/schema/{name}")  # raises if the collection is missing

    # Points

    def apply(self, project: int, upserts: Points, deletes: Ids) -> None:
        """Delete points, then store points in place of those with the same ids.

        A killed server keeps objects whose vectors it has lost, and ignores an object that it
        already has. So points are deleted before they are stored again, and vectors are flushed.
        """
        self._check_dimension(upserts.vectors.shape[1])
        with self._writing:
            self._write(project, upserts, np.union1d(deletes, upserts.ids))

    def _write(self, project: int, upserts: Points, deletes: Ids) -> None:
        size = min(DELETE_BATCH, int(self._options["max_results"]))
        for start in range(0, len(deletes), size):
            request = batch_delete_pb2.BatchDeleteRequest(
                filters=_list_chunks(deletes[start : start + size]),
                consistency_level=self._consistency,
            )
            if self._call_tenant(project, "BatchDelete", request) is None:
                break  # the project has no points yet
        for start in range(0, len(upserts.ids), UPSERT_BATCH):
            part = slice(start, start + UPSERT_BATCH)
            points = Points(*(column[part] for column in upserts))  # type: ignore[arg-type]
            self._call(lambda name, points=points: self._store(name, project, points))  # type: ignore[misc]
        if self._options["flush"] and project > 0:  # marks are listed, not searched
            self._call(lambda name: self._flush(name, project))

    def _store(self, name: str, project: int, points: Points) -> None:
        request = batch_pb2.BatchObjectsRequest(
            objects=_encode_points(name, f"p{project}", points),
            consistency_level=self._consistency,
        )
        reply = self._invoke("BatchObjects", request)
        if reply.errors:
            raise BatchFailedError(reply.errors[0].error)

    def _flush(self, name: str, project: int) -> None:
        """Deactivate the project, which writes its vectors to disk. The next call activates it."""
        change = [{"name": f"p{project}", "activityStatus": "INACTIVE"}]
        if self._send("PUT", f"/schema/{name}/tenants", change, accept=422) is None:
            self._send("GET", f"/schema/{name}")  # raises if the collection is missing

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
        """Return the nearest points. A continuation may return more than k."""
        self.capabilities.check_search(k, within, hint)
        self._check_dimension(len(vector))
        near = base_search_pb2.NearVector(vector_bytes=vector.astype("<f4").tobytes())
        filters = None if within is None else _translate(within)

        def fetch(offset: int, limit: int) -> Candidates:
            request = _create_request(near_vector=near, filters=filters, offset=offset, limit=limit)
            reply = self._call_tenant(project, "Search", request)
            found = [] if reply is None else reply.results
            distances = np.array([one.metadata.distance for one in found], dtype=np.float64)
            return Candidates(ids=_decode_ids(found), scores=self._convert(distances))

        found = search_by_offset(fetch, k, hint, last=self.capabilities.max_k)
        return found if self.capabilities.native_continuation else replace(found, hint=None)

    def _convert(self, distances: np.ndarray[Any, Any]) -> Vectors:
        """Return scores."""
        match self._metric:
            case Metric.COSINE:
                scores = 1 - distances
            case Metric.INNER:
                scores = -distances
            case Metric.L2:
                scores = 1 / (1 + np.sqrt(np.maximum(distances, 0)))
        return scores.astype(np.float32)

    def count(self, project: int) -> int:
        """Return the number of points of a project."""
        request = aggregate_pb2.AggregateRequest(objects_count=True)
        reply = self._call_tenant(project, "Aggregate", request)
        return 0 if reply is None else int(reply.single_result.objects_count)

    def ids(self, project: int, *, after: int, limit: int) -> Ids:
        """Return the first ids behind one, in ascending order."""
        pages = list(self._list_pages(project, after, limit))
        return np.concatenate(pages) if pages else np.zeros(0, dtype=np.int64)

    def _list_pages(self, project: int, after: int, limit: int) -> Iterator[Ids]:
        size = min(LIST_BATCH, int(self._options["max_results"]))
        while limit > 0:
            wanted = min(limit, size)
            request = _create_request(after=_encode_id(after), limit=wanted)
            reply = self._call_tenant(project, "Search", request)
            page = _decode_ids([] if reply is None else reply.results)
            yield page
            if len(page) < wanted:
                return
            after, limit = int(page[-1]), limit - wanted

    def close(self) -> None:
        """Close the connections."""
        self._server.close()
        self._http.close()
        self._channel.close()

    def _check_dimension(self, given: int) -> None:
        if given != self._dimension:
            raise DimensionError(f"a vector has {given} numbers, this index {self._dimension}")


def _check_address(address: StoreAddress) -> None:
    """Reject what only this store knows to be wrong."""
    if address.scheme not in ("weaviate+http", "weaviate+https"):
        raise AddressError(f"UNSPOOL_VECTORS names no protocol; give {PATTERN}")
    if address.path and not _PREFIX.fullmatch(address.path):
        raise AddressError(
            "the PREFIX in UNSPOOL_VECTORS has other characters than a-z, 0-9 and _, or does not "
            "begin with a letter"
        )
    for name, choices in CHOICES.items():
        if address.options[name] not in choices:
            raise AddressError(
                f"the option {name} of UNSPOOL_VECTORS is {str(address.options[name])[:40]!r}; "
                f"use one of: {', '.join(choices)}"
            )
    if not address.options["replication"] or int(address.options["max_results"]) < 100:
        raise AddressError(
            "the option replication of UNSPOOL_VECTORS is at least 1, and max_results at least 100"
        )


def _connect(address: StoreAddress, header: dict[str, str], timeout_s: int) -> httpx.Client:
    """Return a client for REST."""
    scheme = "https" if address.is_encrypted else "http"
    return httpx.Client(
        base_url=f"{scheme}://{_quote_host(address.host)}:{address.port}/v1",
        headers=header,
        timeout=timeout_s,
        trust_env=False,
    )


def _open_channel(address: StoreAddress) -> Any:
    """Return a channel for gRPC, which connects when it is used."""
    host = str(address.options["grpc_host"]) or address.host
    target = f"{_quote_host(host)}:{address.options['grpc_port']}"
    settings = [
        ("grpc.max_send_message_length", MAX_MESSAGE),
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),  # a new channel connects at once
    ]
    if address.is_encrypted:
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(), options=settings)
    return grpc.insecure_channel(target, options=settings)


def _quote_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# Messages


def _encode_id(id_: int) -> str:
    return str(UUID(int=_FIRST + id_))


def _decode_ids(found: Any) -> Ids:
    joined = b"".join(one.metadata.id_as_bytes[8:] for one in found)
    return np.frombuffer(joined, dtype=">i8").astype(np.int64)


def _create_request(**fields: Any) -> Any:
    """Return a search for ids and distances."""
    return search_get_pb2.SearchRequest(
        metadata=search_get_pb2.MetadataRequest(uuid=True, distance=True),
        properties=search_get_pb2.PropertiesRequest(),
        uses_123_api=True,
        uses_125_api=True,
        uses_127_api=True,
        **fields,
    )


def _encode_points(name: str, tenant: str, points: Points) -> Iterator[Any]:
    columns = zip(
        points.ids.tolist(), points.documents.tolist(), points.kinds, points.languages, strict=True
    )
    for (id_, document, kind, language), vector in zip(
        columns, points.vectors.astype("<f4"), strict=True
    ):
        fields = {"document": str(document), "kind": kind, "language": language}
        yield batch_pb2.BatchObject(
            uuid=_encode_id(id_),
            collection=name,
            tenant=tenant,
            vector_bytes=vector.tobytes(),
            properties=batch_pb2.BatchObject.Properties(non_ref_properties=fields),
        )


# Filters


def _compare(operator: int, field: str, **value: Any) -> Any:
    target = base_pb2.FilterTarget(property=field)
    return _Filters(operator=operator, target=target, **value)


def _list_chunks(ids: Ids) -> Any:
    values = base_pb2.TextArray(values=[_encode_id(id_) for id_ in ids.tolist()])
    return _compare(_Filters.OPERATOR_CONTAINS_ANY, "_id", value_text_array=values)


def _translate(within: Within) -> Any:
    """Return a restriction as a filter of the server."""
    if within.filter is not None:
        return _translate_filter(within.filter)
    if within.chunks is not None:
        return _list_chunks(within.chunks)
    assert within.documents is not None
    values = base_pb2.TextArray(values=[str(id_) for id_ in within.documents.tolist()])
    return _compare(_Filters.OPERATOR_CONTAINS_ANY, "document", value_text_array=values)


def _translate_filter(condition: Filter) -> Any:
    match condition:
        case Compare():
            return _compare(
                _Filters.OPERATOR_EQUAL, condition.field, value_text=str(condition.value)
            )
        case Not():
            inner = _translate_filter(condition.inner)
            return _Filters(operator=_Filters.OPERATOR_NOT, filters=[inner])
    is_all = isinstance(condition, AllOf)
    if not condition.parts:  # a server rejects an empty list; no field is ever null
        return _compare(_Filters.OPERATOR_IS_NULL, "document", value_boolean=not is_all)
    return _Filters(
        operator=_Filters.OPERATOR_AND if is_all else _Filters.OPERATOR_OR,
        filters=[_translate_filter(part) for part in condition.parts],
    )
