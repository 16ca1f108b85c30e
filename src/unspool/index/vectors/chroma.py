"""Vectors in Chroma: on a server, or in a folder that this process opens itself.

Each project has a collection of its own. The home collection of a vector space lists them. Its
UUID is the epoch and part of their names, so no call reaches the points of another epoch.
"""

from __future__ import annotations

import importlib.util
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import chromadb
import httpx
import numpy as np
from chromadb import errors
from chromadb.api import ServerAPI
from chromadb.api.fastapi import FastAPI
from chromadb.api.models.Collection import Collection
from chromadb.config import DEFAULT_DATABASE, DEFAULT_TENANT, Settings, System
from chromadb.types import Collection as CollectionModel
from filelock import FileLock, Timeout

from unspool.domain.filters import AllOf, Compare, Filter, Not
from unspool.errors import (
    AddressError,
    DimensionError,
    MissingDependencyError,
    RejectedError,
    UnreachableError,
    UnsupportedError,
)
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
    rank_candidates,
)
from unspool.index.tail import compute_scores
from unspool.index.vectors.connection import (
    Diagnosis,
    OptionValue,
    StoreAddress,
    StoreConnection,
    StoreFailure,
    parse_store_address,
)
from unspool.index.vectors.offsets import search_by_offset

_T = TypeVar("_T")
PATTERN = "chroma+http://HOST:8000/DATABASE, chroma+https://HOST/DATABASE or chroma:///FOLDER"
PORT = 8000
# A search keeps this many candidates. Of a window of 200, Chroma's own 100 find nine tenths.
FOLDER_OPTIONS: dict[str, OptionValue] = {"ef_search": 1000}
HEADERS = ("x-chroma-token", "authorization")
SERVER_OPTIONS: dict[str, OptionValue] = {
    "tenant": DEFAULT_TENANT,
    "header": HEADERS[0],
    **FOLDER_OPTIONS,
}
# Least candidates while a graph is built. With 64 a search of real text shared 98 % of its top 10
# with an exact one (bench/moving.py).
EF_CONSTRUCTION = 200
BATCH = 1_000  # larger batches are not faster
BATCH_BYTES = 16 << 20  # a server accepts requests of 40 MB
LAST = 20_000  # results of a query, when many of them tie
COMPLETED = 5_000  # points that are compared because a graph does not reach them
LISTED = 500  # collections of a page
_folders_guard = threading.Lock()  # the driver does not guard its table of open folders


class ChromaIndex:
    """Points of one vector space, as the `VectorIndex` port. Searches are approximate."""

    capabilities = Capabilities(
        metrics=frozenset(Metric),
        filter_fields=frozenset({"kind", "language"}),
        max_ids=10_000,  # SQLite accepts no more than 32 766 values
    )

    def __init__(
        self, store: Server | Folder, collection: str, dimension: int, options: VectorOptions
    ) -> None:
        self._store = store
        self._collection = collection
        self._dimension = dimension
        self._metric = options.metric
        self._graph = {
            "space": str(options.metric),
            "max_neighbors": options.hnsw_m,
            "ef_construction": max(options.hnsw_ef_construction, EF_CONSTRUCTION),
            "ef_search": store.ef_search,
        }
        self._connection = StoreConnection(store.place, options, diagnose)
        self._token = secrets.token_hex(8)  # in the home collection that this index created
        self._guard = threading.Lock()
        self._creating = threading.Lock()
        self._home: Collection | None = None
        self._projects: dict[str, Collection] = {}  # by name, which contains the epoch

    @classmethod
    def open(
        cls, address: str, *, collection: str, dimension: int, options: VectorOptions
    ) -> ChromaIndex:
        """Return the index of a collection. Nothing is called yet."""
        if options.index != "hnsw" or options.type == "halfvec":
            raise UnsupportedError(
                "Chroma has HNSW indexes of 32-bit vectors only; set UNSPOOL_VECTOR_INDEX=hnsw "
                "and UNSPOOL_VECTOR_TYPE=auto"
            )
        if address.startswith("chroma:///"):
            local = address.replace("chroma:///", "chroma://folder/", 1)
            target = parse_store_address(local, pattern=PATTERN, port=PORT, options=FOLDER_OPTIONS)
            return cls(Folder(target), collection, dimension, options)
        target = parse_store_address(address, pattern=PATTERN, port=PORT, options=SERVER_OPTIONS)
        if target.scheme not in ("chroma+http", "chroma+https"):
            raise AddressError(f"UNSPOOL_VECTORS begins with {target.scheme}://; give {PATTERN}")
        if target.options["header"] not in HEADERS:
            raise AddressError(
                f"the option header of UNSPOOL_VECTORS is unknown; known are: {', '.join(HEADERS)}"
            )
        if not (options.key.isascii() and options.key.isprintable()):
            raise AddressError("UNSPOOL_VECTORS_KEY has characters that no header can contain")
        return cls(Server(target, options), collection, dimension, options)

    def read_version(self) -> str:
        """Return the version of the server's API, or of the driver that opens a folder."""
        return self._connection.call(self._store.read_version)

    # The home collection and those of projects

    def read_epoch(self) -> str:
        """Return the UUID of the home collection; create it if it is missing."""
        return self._get_home().id.hex

    def _get_home(self) -> Collection:
        home = self._home
        if home is None:
            home = self._connection.call(self._create_home)
            with self._guard:
                self._home = home
        return home

    def _create_home(self) -> Collection:
        """Return the home collection. Its creator deletes what other epochs have left."""
        self._store.prepare()
        model = self._store.create(self._collection, metadata={"creator": self._token})
        if (model.metadata or {}).get("creator") == self._token:
            for name in self._store.list_names(f"{self._collection}."):
                if not name.startswith(f"{self._collection}.{model.id.hex}."):
                    self._store.delete(name)
        return self._store.bind(model)

    def _name_project(self, home: Collection, project: int) -> str:
        """Return the name of a project's collection. It has no sign, but n for negative."""
        return f"{self._collection}.{home.id.hex}.{'n' if project < 0 else 'p'}{abs(project)}"

    def _find(self, home: Collection, project: int) -> Collection | None:
        """Return the collection of a project; None for a project without points."""
        name = self._name_project(home, project)
        if (known := self._projects.get(name)) is not None:
            return known
        listed = self._read_list(home, project)
        while listed is not None:
            model = self._connection.call(lambda: self._store.get(name))
            if model is not None and str(model.id) == listed:
                with self._guard:
                    self._projects[name] = collection = self._store.bind(model)
                return collection
            before, listed = listed, self._read_list(home, project)
            if listed == before:  # a project that is dropped leaves the list first
                self._discard(home)
        return None

    def _read_list(self, home: Collection, project: int) -> str | None:
        """Return the UUID of a project's collection from the home collection."""
        rows = self._call_home(
            home, lambda: home.get(ids=[str(project)], include=["metadatas"])["metadatas"]
        )
        return str(rows[0]["collection"]) if rows else None

    def _call_home(self, home: Collection, action: Callable[[], _T]) -> _T:
        """Call the home collection. If it was deleted, forget the epoch."""
        try:
            return self._connection.call(action)
        except DamagedError:
            self._forget(home)
            raise

    def _forget(self, home: Collection) -> None:
        with self._guard:
            if self._home is home:
                self._home = None

    def _discard(self, home: Collection) -> None:
        """Delete the epoch of a lost project, so that every process fills it again."""

        def delete() -> None:
            model = self._store.get(self._collection)
            if model is not None and model.id == home.id:
                self._store.delete(self._collection)

        self._connection.call(delete)
        self._forget(home)
        raise DamagedError(
            f"the vector store {self._store.place} has lost the points of a project; all are "
            f"written again"
        )

    def _create(self, home: Collection, project: int) -> Collection:
        """Create the collection of a project, then list it."""
        with self._creating:
            if (found := self._find(home, project)) is not None:
                return found
            name = self._name_project(home, project)
            graph = self._graph
            model = self._connection.call(lambda: self._store.create(name, graph=graph))
            stored = model.configuration_json.get("hnsw") or graph
            if stored["space"] != graph["space"]:  # it existed, and was only returned
                raise RejectedError(
                    f"the collection {name} of {self._store.place} has another metric; delete it"
                )
            try:
                self._call_home(home, lambda: _list_project(home, project, model))
            except DamagedError:  # nobody else would delete it
                self._connection.call(lambda: self._store.delete(name))
                raise
            with self._guard:
                self._projects[name] = collection = self._store.bind(model)
            return collection

    def _run(
        self,
        find: Callable[[Collection, int], Collection | None],
        project: int,
        action: Callable[[Collection], _T],
        absent: _T,
    ) -> _T:
        """Run an action on the collection of a project, or return `absent` if there is none.

        Another process may have dropped the project and filled it again, so the whole action is
        repeated on the new collection. Both are of the same epoch.
        """
        home = self._get_home()
        for is_last in (False, True):
            collection = find(home, project)
            if collection is None:
                return absent
            try:
                return action(collection)
            except DamagedError:
                with self._guard:
                    self._projects.pop(collection.name, None)
                if is_last:
                    raise
        raise AssertionError("unreachable")

    def _call(self, project: int, action: Callable[[Collection], _T], absent: _T) -> _T:
        """Make one call to the collection of a project."""
        return self._run(
            self._find, project, lambda found: self._connection.call(partial(action, found)), absent
        )

    # Points

    def apply(self, project: int, upserts: Points, deletes: Ids) -> None:
        """Delete points, then store points in batches. `upsert` replaces all fields we send."""
        self._check_dimension(upserts.vectors.shape[1])
        find = self._create if len(upserts.ids) else self._find
        self._run(find, project, lambda found: self._write(found, upserts, deletes), None)

    def _write(self, collection: Collection, upserts: Points, deletes: Ids) -> None:
        size = self._get_batch_size()
        for start in range(0, len(deletes), size):
            ids = deletes[start : start + size]
            self._connection.call(partial(_delete, collection, ids))
        for start in range(0, len(upserts.ids), size):
            columns: Any = (column[start : start + size] for column in upserts)
            self._connection.call(partial(_upsert, collection, Points(*columns)))

    def _get_batch_size(self) -> int:
        allowed = self._connection.call(self._store.get_max_batch_size)
        return max(1, min(allowed, BATCH, BATCH_BYTES // (6 * self._dimension)))

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
        """Search the graph of a project. Ties at the end are read whole and ordered by id."""
        self.capabilities.check_search(k, within, hint)
        self._check_dimension(len(vector))
        where = True if within is None else translate(within)
        if where is False:
            return Candidates.empty()

        def fetch(_: int, limit: int) -> Candidates:
            return self._call(
                project,
                lambda collection: self._query(collection, vector, limit, where, within),
                Candidates.empty(),
            )

        found = replace(search_by_offset(fetch, k, None, last=LAST), hint=None)
        if len(found.ids) >= k:
            return found
        return self._call(
            project,
            lambda collection: self._complete(collection, vector, k, where, within, found),
            found,
        )

    def _query(
        self,
        collection: Collection,
        vector: Vectors,
        limit: int,
        where: dict[str, Any] | bool,
        within: Within | None,
    ) -> Candidates:
        chunks = None
        if within is not None and within.chunks is not None:
            # a query for an id that does not exist fails
            chunks = _to_names(_list_ids(collection, where, within))
            if not chunks:
                return Candidates.empty()
        result = collection.query(
            query_embeddings=cast("Any", [vector]),
            ids=chunks,
            n_results=limit,
            where=where if isinstance(where, dict) else None,
            include=["distances"],
        )
        ids = np.array(result["ids"][0], dtype=np.int64)
        distances = np.array((result["distances"] or [[]])[0], dtype=np.float64)
        if self._metric is Metric.L2:
            scores = 1 / (1 + np.sqrt(np.maximum(distances, 0)))  # it returns the square
        else:
            scores = 1 - distances
        return Candidates(ids=ids, scores=scores.astype(np.float32))

    def _complete(
        self,
        collection: Collection,
        vector: Vectors,
        k: int,
        where: dict[str, Any] | bool,
        within: Within | None,
        found: Candidates,
    ) -> Candidates:
        """Compare the points that the graph does not reach. Many equal vectors divide it."""
        ids = _list_ids(collection, where, within)
        missing = ids[~np.isin(ids, found.ids)]
        if not len(missing):
            return found
        is_truncated = len(missing) > COMPLETED
        names = _to_names(missing[:COMPLETED])
        rows = collection.get(ids=names, include=["embeddings"])
        vectors = np.asarray(rows["embeddings"], dtype=np.float32).reshape(-1, self._dimension)
        scores = np.round(compute_scores(vectors, vector, self._metric), 6)
        ranked = rank_candidates(
            np.concatenate([found.ids, np.array(rows["ids"], dtype=np.int64)]),
            np.concatenate([found.scores, scores.astype(np.float32)]),
            k,
        )
        return replace(ranked, is_truncated=is_truncated)

    def count(self, project: int) -> int:
        """Return the number of points of a project."""
        return self._call(project, lambda collection: collection.count(), 0)

    def ids(self, project: int, *, after: int, limit: int) -> Ids:
        """Return the first ids above one. All are read, since Chroma lists them in no order."""
        ids: Ids = self._call(project, _list_ids, NO_IDS)
        return np.sort(ids[ids > after])[:limit]

    def drop(self, project: int | None = None) -> None:
        """Delete the collection of a project, or all and the epoch."""
        if project is None:
            self._connection.call(self._drop_all)
            self._home = None
            return
        home = self._get_home()
        name = self._name_project(home, project)
        with self._guard:
            self._projects.pop(name, None)
        self._call_home(home, lambda: home.delete(ids=[str(project)]))
        self._connection.call(lambda: self._store.delete(name))

    def _drop_all(self) -> None:
        self._store.delete(self._collection)
        for name in self._store.list_names(f"{self._collection}."):
            self._store.delete(name)

    def close(self) -> None:
        """Close connections, and release the folder."""
        self._connection.close()
        self._store.close()

    def _check_dimension(self, given: int) -> None:
        if given != self._dimension:
            raise DimensionError(f"a vector has {given} numbers, this index {self._dimension}")


class Server:
    """Chroma server, called by HTTP. `chromadb.HttpClient` would call it without a time limit."""

    def __init__(self, target: StoreAddress, options: VectorOptions) -> None:
        self.place = target.place
        self.ef_search = target.options["ef_search"]
        self.tenant = str(target.options["tenant"])
        self.database = target.path or DEFAULT_DATABASE
        self._target = target
        self._options = options
        self._guard = threading.Lock()
        self._api: FastAPI | None = None

    @property
    def api(self) -> ServerAPI:
        """Driver of the server. It is created when it is first used."""
        with self._guard:
            if self._api is None:
                self._api = self._start()
            return self._api

    def _start(self) -> FastAPI:
        settings = _make_settings(
            chroma_api_impl="chromadb.api.fastapi.FastAPI",
            chroma_server_host=self._target.host,
            chroma_server_http_port=self._target.port,
            chroma_server_ssl_enabled=self._target.is_encrypted,
        )
        system = System(settings)
        api = system.instance(FastAPI)
        # The driver has no setting for the time limit. The key is not given as one, because
        # messages of the driver may contain its settings.
        session = api._session
        session.timeout = httpx.Timeout(self._options.timeout_s)
        if self._options.key and self._target.options["header"] == "authorization":
            session.headers["Authorization"] = f"Bearer {self._options.key}"
        elif self._options.key:
            session.headers["X-Chroma-Token"] = self._options.key
        system.start()
        return api

    def read_version(self) -> str:
        """Return the version of the API. A server does not tell its own."""
        return f"Chroma API {self.api.get_version()}"

    def prepare(self) -> None:
        """Create the database if it is missing."""
        try:
            self.api.get_database(self.database, tenant=self.tenant)
        except errors.NotFoundError:
            try:
                self.api.create_database(self.database, tenant=self.tenant)
            except errors.NotFoundError:
                raise RejectedError(
                    f"the vector store {self.place} has no tenant {self.tenant!r}; create it, or "
                    f"correct UNSPOOL_VECTORS"
                ) from None
            except errors.ChromaError as error:
                if type(error) not in (errors.ChromaError, errors.UniqueConstraintError):
                    raise  # otherwise another process has created it

    def create(
        self, name: str, *, metadata: dict[str, Any] | None = None, graph: Any = None
    ) -> CollectionModel:
        """Return a collection; create it if it is missing."""
        return self.api.create_collection(
            name=name,
            metadata=metadata,
            configuration=None if graph is None else {"hnsw": graph},
            get_or_create=True,
            tenant=self.tenant,
            database=self.database,
        )

    def get(self, name: str) -> CollectionModel | None:
        """Return a collection; None if it is missing."""
        try:
            return self.api.get_collection(name, tenant=self.tenant, database=self.database)
        except errors.NotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Delete a collection, unless it is missing."""
        try:
            self.api.delete_collection(name, tenant=self.tenant, database=self.database)
        except errors.NotFoundError:
            return

    def list_names(self, prefix: str) -> list[str]:
        """Return the names of collections that begin with a prefix."""
        return [name for name in self._iterate_names() if name.startswith(prefix)]

    def _iterate_names(self) -> Iterator[str]:
        where = {"tenant": self.tenant, "database": self.database}
        for start in range(0, 1 << 30, LISTED):
            page = self.api.list_collections(limit=LISTED, offset=start, **where)
            yield from (model.name for model in page)
            if len(page) < LISTED:
                return

    def bind(self, model: CollectionModel) -> Collection:
        """Return a collection to call. It embeds nothing."""
        return Collection(client=self.api, model=model, embedding_function=None)

    def get_max_batch_size(self) -> int:
        """Return the most points of a request."""
        return self.api.get_max_batch_size()

    def close(self) -> None:
        """Close the connections."""
        with self._guard:
            if self._api is not None:
                self._api._session.close()
                self._api = None


class Folder(Server):
    """Folder that Chroma opens in this process. Only one process may do so at a time."""

    def __init__(self, target: StoreAddress) -> None:
        # chromadb-client has the same module and calls servers only, also beside chromadb
        if chromadb.is_client or importlib.util.find_spec("chromadb_rust_bindings") is None:
            raise MissingDependencyError(
                "a folder of Chroma needs the package chromadb in place of chromadb-client; run: "
                "pip uninstall chromadb-client; pip install --force-reinstall chromadb"
            )
        if not target.path:
            raise AddressError(f"UNSPOOL_VECTORS names no folder; give {PATTERN}")
        self.folder = Path("/", target.path)
        self.place = f"chroma://{self.folder}"
        self.ef_search = target.options["ef_search"]
        self.tenant, self.database = DEFAULT_TENANT, DEFAULT_DATABASE
        self._lock = FileLock(self.folder / "unspool.lock", is_singleton=True, thread_local=False)
        self._guard = threading.Lock()
        self._client: Any = None

    @property
    def api(self) -> ServerAPI:
        """Driver of the folder, which all indexes of this process share."""
        with self._guard, _folders_guard:
            if self._client is None:
                self._client = self._open()
            api: ServerAPI = self._client._server
            return api

    def _open(self) -> Any:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UnreachableError(
                f"the vector store {self.place} is in use by another process; run a Chroma server "
                f"for several processes"
            ) from None
        except OSError as error:
            raise UnreachableError(
                f"the vector store {self.place} cannot be opened: {error.strerror}"
            ) from error
        try:
            settings = _make_settings(chroma_api_impl="chromadb.api.rust.RustBindingsAPI")
            return chromadb.PersistentClient(self.folder, settings=settings)
        except BaseException:
            self._lock.release()
            raise

    def read_version(self) -> str:
        """Return the version of the driver."""
        return f"Chroma {chromadb.__version__}"

    def prepare(self) -> None:
        """Do nothing: a folder has a database."""

    def close(self) -> None:
        """Close the folder if no other index uses it."""
        with self._guard, _folders_guard:
            if self._client is not None:
                self._client.close()
                self._client = None
                self._lock.release()


def _make_settings(**values: Any) -> Settings:
    """Return settings of the driver, which would read a file `.env` of the current folder."""
    return Settings(_env_file=None, anonymized_telemetry=False, **values)  # type: ignore[call-arg]


def _to_names(ids: Ids) -> list[str]:
    return [f"{id_:020d}" for id_ in ids.tolist()]


def _list_ids(
    collection: Collection, where: dict[str, Any] | bool = True, within: Within | None = None
) -> Ids:
    """Return the ids that a restriction accepts, in no order."""
    chunks = None if within is None or within.chunks is None else _to_names(within.chunks)
    condition = where if isinstance(where, dict) else None
    found = collection.get(ids=chunks, where=condition, include=[])["ids"]
    return np.array(found, dtype=np.int64)


def _delete(collection: Collection, ids: Ids) -> None:
    collection.delete(ids=_to_names(ids))


def _upsert(collection: Collection, points: Points) -> None:
    columns: Sequence[Any] = (points.documents.tolist(), points.kinds, points.languages)
    collection.upsert(
        ids=_to_names(points.ids),
        embeddings=points.vectors,
        metadatas=[
            {"document": document, "kind": kind, "language": language}
            for document, kind, language in zip(*columns, strict=True)
        ],
    )


def _list_project(home: Collection, project: int, model: CollectionModel) -> None:
    """Add a project to the home collection. Its vector has no meaning."""
    vector = np.zeros((1, 1), dtype=np.float32)
    rows: Any = [{"collection": str(model.id)}]
    home.upsert(ids=[str(project)], embeddings=vector, metadatas=rows)


def translate(within: Within) -> dict[str, Any] | bool:
    """Return a restriction as a filter of Chroma; True accepts everything, False nothing."""
    if within.filter is not None:
        return translate_filter(within.filter, is_negated=False)
    if within.documents is None:
        return True  # chunks are no part of the filter
    return {"document": {"$in": within.documents.tolist()}} if len(within.documents) else False


def translate_filter(condition: Filter, *, is_negated: bool) -> dict[str, Any] | bool:
    """Return a filter or its negation, by De Morgan's laws: Chroma has no NOT."""
    if isinstance(condition, Compare):
        return {condition.field: {"$ne" if is_negated else "$eq": condition.value}}
    if isinstance(condition, Not):
        return translate_filter(condition.inner, is_negated=not is_negated)
    is_all = isinstance(condition, AllOf) is not is_negated
    parts = [translate_filter(part, is_negated=is_negated) for part in condition.parts]
    if any(part is not is_all for part in parts if isinstance(part, bool)):
        return not is_all
    parts = [part for part in parts if not isinstance(part, bool)]
    if len(parts) < 2:  # which Chroma rejects
        return parts[0] if parts else is_all
    return {"$and" if is_all else "$or": parts}


_STATUSES = {
    401: StoreFailure.KEY,
    403: StoreFailure.KEY,
    408: StoreFailure.TIMEOUT,
    429: StoreFailure.BUSY,
    502: StoreFailure.UNREACHABLE,
    503: StoreFailure.UNREACHABLE,
    504: StoreFailure.TIMEOUT,
}


def diagnose(error: Exception) -> Diagnosis | None:
    """Return the failure that an exception of the driver means; None for a defect."""
    reason = type(error).__name__
    if isinstance(error, errors.NotFoundError):
        return Diagnosis(StoreFailure.LOST, reason)
    if isinstance(error, errors.ChromaError):
        return _diagnose_status(error.code(), reason)
    if isinstance(error, httpx.TimeoutException):
        return Diagnosis(StoreFailure.TIMEOUT, reason)
    if isinstance(error, httpx.TransportError):
        return Diagnosis(StoreFailure.UNREACHABLE, reason)
    # A response that is not Chroma's, such as a proxy's, is raised as a bare exception.
    response = error.__context__
    if isinstance(response, httpx.HTTPStatusError):
        status = response.response.status_code
        wait = response.response.headers.get("retry-after", "")
        found = _diagnose_status(status, f"HTTP {status}")
        return found._replace(retry_after=float(wait) if wait.isdecimal() else None)
    if reason == "JSONDecodeError":
        return Diagnosis(StoreFailure.REFUSED, "no JSON")
    return None


def _diagnose_status(status: int, reason: str) -> Diagnosis:
    default = StoreFailure.BROKEN if status >= 500 else StoreFailure.REFUSED
    return Diagnosis(_STATUSES.get(status, default), reason)
