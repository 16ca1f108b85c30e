"""Wire server that answers as Pinecone's published API says, for tests. Pinecone itself is a hosted
service, so nothing here proves what that does.

It shows writes to readers after a delay, enforces the documented limits, and checks every request
and answer against `pinecone_schema`. After a violation all answers are failures. Each index has an address of the loopback of its own. It can be
told to fail: `PineconeServer.fail_next`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import urllib.request
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import pinecone_schema
from store_servers import StoreServer

KEY = "pcsk_test_0123456789abcdef"
DELAY_S = 0.03  # until a write is visible
# dimension and metric by the name of the index, in the order of their addresses
INDEXES = {
    "tests": (4, "cosine"),
    "euclidean": (4, "euclidean"),
    "dotproduct": (4, "dotproduct"),
    "words": (16, "cosine"),
}
MAX_BODY, MAX_METADATA, MAX_VALUES, MAX_IN, MAX_LIST = 2 << 20, 40 << 10, 1_000, 10_000, 100
CHECKED_BODY = 300_000  # bytes; a longer body takes seconds to check


class PineconeServer(StoreServer):
    """Process of the wire server."""

    keeps_user = True

    def __init__(self, delay_s: float = DELAY_S) -> None:
        self._delay_s = delay_s
        super().__init__()

    @property
    def address(self) -> str:
        return f"pinecone:///tests?control_host=http://127.0.0.1:{self.port}"

    def get_address(self, index: str) -> str:
        """Return the address of an index by its host."""
        return f"pinecone:///{index}?host={self.get_host(index)}"

    def get_host(self, index: str) -> str:
        return f"http://{_get_ip(index)}:{self.port}"

    @property
    def key(self) -> str:
        return KEY

    @property
    def command(self) -> list[str]:
        data = self.folder / "data"
        return [sys.executable, __file__, str(self.port), str(data), str(self._delay_s)]

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}

    @property
    def ready_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/test/state"

    def fail_next(self, *statuses: int, retry_after: str = "") -> None:
        """Answer the next requests with these statuses."""
        self._post("fail", {"statuses": statuses, "retry_after": retry_after})

    def set_delay(self, seconds: float) -> None:
        """Show later writes after this time."""
        self._post("delay", {"seconds": seconds})

    def delete_namespaces(self) -> None:
        """Delete everything, as a user could in the console."""
        self._post("wipe", {})

    def read_state(self) -> dict[str, Any]:
        """Return the numbers of requests by operation, the violations and the namespaces."""
        with urllib.request.urlopen(self.ready_url, timeout=10) as response:
            state: dict[str, Any] = json.load(response)
            return state

    def _post(self, name: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/test/{name}", data=json.dumps(body).encode()
        )
        urllib.request.urlopen(request, timeout=10).close()


def _get_ip(index: str) -> str:
    return f"127.0.0.{1 + list(INDEXES).index(index)}"


class Refusal(Exception):  # noqa: N818
    """Answer with a status that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Namespace:
    """Records that readers see, and writes that they do not see yet. Lists see them last."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.listed: dict[str, dict[str, Any]] = {}
        self.indexed = 0  # position of the last write that is visible
        self._pending: deque[tuple[float, int, dict[str, Any]]] = deque()
        self._unlisted: deque[tuple[float, dict[str, Any]]] = deque()

    def write(self, delay_s: float, position: int, change: dict[str, Any]) -> None:
        now = time.monotonic()
        self._pending.append((now + delay_s, position, change))
        self._unlisted.append((now + 2 * delay_s, change))

    def catch_up(self) -> None:
        while self._pending and self._pending[0][0] <= time.monotonic():
            _, self.indexed, change = self._pending.popleft()
            _apply(self.records, change)
        while self._unlisted and self._unlisted[0][0] <= time.monotonic():
            _apply(self.listed, self._unlisted.popleft()[1])

    @property
    def is_gone(self) -> bool:
        return not self.records and not self._unlisted


def _apply(records: dict[str, dict[str, Any]], change: dict[str, Any]) -> None:
    if change.get("all"):
        records.clear()
    for id_ in change.get("ids", ()):
        records.pop(id_, None)
    records.update({record["id"]: record for record in change.get("vectors", ())})


class Database:
    """Namespaces by index, with a file of all writes that a restart reads."""

    def __init__(self, folder: Path, delay_s: float) -> None:
        folder.mkdir(exist_ok=True)
        self.delay_s = 0.0
        self.position = 0
        self.namespaces: dict[tuple[str, str], Namespace] = {}
        self._file = folder / "writes.jsonl"
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                try:
                    index, name, change = json.loads(line)
                except ValueError:  # the server was killed while it wrote the line
                    continue
                self._write(index, name, change)
        self.delay_s = delay_s
        self._log = self._file.open("a", encoding="utf-8")

    def write(self, index: str, name: str, change: dict[str, Any]) -> int:
        self._log.write(json.dumps([index, name, change]) + "\n")
        self._log.flush()
        return self._write(index, name, change)

    def _write(self, index: str, name: str, change: dict[str, Any]) -> int:
        self.position += 1
        namespace = self.namespaces.setdefault((index, name), Namespace())
        namespace.write(self.delay_s, self.position, change)
        return self.position

    def wipe(self) -> None:
        self._log.truncate(0)
        self.namespaces.clear()

    def find(self, index: str, name: str) -> Namespace | None:
        namespace = self.namespaces.get((index, name))
        if namespace is not None:
            namespace.catch_up()
            if namespace.is_gone:
                return None
        return namespace

    def list_names(self, index: str) -> list[str]:
        names = sorted(name for one, name in self.namespaces if one == index)
        return [name for name in names if self.find(index, name) is not None]


def decode_token(token: str) -> str:
    """Return the name or id that a list continues behind."""
    try:
        return b64decode(token, validate=True).decode()
    except ValueError:
        raise Refusal(400, "invalid pagination token") from None


def accepts(condition: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """Evaluate a metadata filter."""
    return all(_accepts(key, given, metadata) for key, given in condition.items())


def _accepts(key: str, given: Any, metadata: dict[str, Any]) -> bool:
    if key in ("$and", "$or"):
        if not given:
            raise Refusal(400, f"{key} needs a part")
        return (all if key == "$and" else any)(accepts(part, metadata) for part in given)
    ((operator, value),) = given.items()
    found = metadata.get(key)
    if operator == "$eq":
        return bool(found == value)
    if operator == "$ne":
        return bool(found != value)
    if operator == "$in":
        if not 0 < len(value) <= MAX_IN:
            raise Refusal(400, f"$in has {len(value)} values")
        return found in set(value) if len(value) > 100 else found in value
    raise Refusal(400, f"unknown operator {operator}")


class Api:
    """Operations on the data of one index."""

    def __init__(self, database: Database, index: str) -> None:
        self.database = database
        self.index = index
        self.dimension, self.metric = INDEXES[index]

    def check_vector(self, values: list[float]) -> None:
        if len(values) != self.dimension:
            raise Refusal(400, f"Vector dimension {len(values)} does not match that of the index")
        if not any(values):
            raise Refusal(400, "Dense vectors must contain at least one non-zero value")

    def upsert(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        vectors = body["vectors"]
        if len(vectors) > MAX_VALUES:
            raise Refusal(400, "too many records")
        for record in vectors:
            self.check_vector(record["values"])
            if len(json.dumps(record.get("metadata", {}))) > MAX_METADATA:
                raise Refusal(400, "metadata is too large")
        position = self.database.write(self.index, body.get("namespace", ""), {"vectors": vectors})
        return {"upsertedCount": len(vectors)}, {"x-pinecone-request-lsn": str(position)}

    def delete(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        name = body.get("namespace", "")
        if (self.index, name) not in self.database.namespaces:
            raise Refusal(404, "Namespace not found")
        if len(body.get("ids", ())) > MAX_VALUES:
            raise Refusal(400, "too many ids")
        change = {"all": True} if body.get("deleteAll") else {"ids": body["ids"]}
        position = self.database.write(self.index, name, change)
        return {}, {"x-pinecone-request-lsn": str(position)}

    def query(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        top_k = body["topK"]
        is_long = body.get("includeValues") or body.get("includeMetadata")
        if not 0 < top_k <= (MAX_VALUES if is_long else MAX_IN):
            raise Refusal(400, "topK is out of range")
        self.check_vector(body["vector"])
        name = body.get("namespace", "")
        namespace = self.database.find(self.index, name)
        records = [] if namespace is None else list(namespace.records.values())
        if body.get("filter"):
            kept = body["filter"]
            accepts(kept, {})
            records = [one for one in records if accepts(kept, one.get("metadata", {}))]
        matches = self.rank(records, np.array(body["vector"]), top_k)
        known = self.database.namespaces.get((self.index, name))
        headers = {} if known is None else {"x-pinecone-max-indexed-lsn": str(known.indexed)}
        return {"matches": matches, "namespace": name, "usage": {"readUnits": 1}}, headers

    def rank(
        self, records: list[dict[str, Any]], query: np.ndarray, top_k: int
    ) -> list[dict[str, Any]]:
        """Return the nearest records. Equal scores are in no useful order."""
        if not records:
            return []
        vectors = np.array([record["values"] for record in records], dtype=np.float32)
        if self.metric == "euclidean":
            scores = ((vectors - query) ** 2).sum(axis=1)
        else:
            scores = vectors @ query
        if self.metric == "cosine":
            scores = scores / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
        near = scores if self.metric == "euclidean" else -scores
        shuffled = np.random.default_rng(top_k).permutation(len(records))
        order = shuffled[np.argsort(near[shuffled], kind="stable")][:top_k]
        return [{"id": records[at]["id"], "score": float(scores[at])} for at in order]

    def list_ids(self, given: Mapping[str, str]) -> dict[str, Any]:
        limit = int(given.get("limit", MAX_LIST))
        if not 0 < limit <= MAX_LIST:
            raise Refusal(400, "limit is out of range")
        name = given.get("namespace", "")
        namespace = self.database.find(self.index, name)
        after = decode_token(given.get("paginationToken", ""))
        ids = sorted(
            id_
            for id_ in ({} if namespace is None else namespace.listed)
            if id_ > after and id_.startswith(given.get("prefix", ""))
        )
        found: dict[str, Any] = {
            "vectors": [{"id": id_} for id_ in ids[:limit]],
            "namespace": name,
            "usage": {"readUnits": 1},
        }
        if len(ids) > limit:
            found["pagination"] = {"next": b64encode(ids[limit - 1].encode()).decode()}
        return found

    def describe(self) -> dict[str, Any]:
        counts = {name: self.describe_namespace(name)["record_count"] for name in self.list_names()}
        return {
            "namespaces": {name: {"vectorCount": count} for name, count in counts.items()},
            "dimension": self.dimension,
            "indexFullness": 0.0,
            "totalVectorCount": sum(counts.values()),
            "metric": self.metric,
            "vectorType": "dense",
        }

    def list_names(self) -> list[str]:
        return self.database.list_names(self.index)

    def list_namespaces(self, given: Mapping[str, str]) -> dict[str, Any]:
        names = [name for name in self.list_names() if name.startswith(given.get("prefix", ""))]
        after = decode_token(given.get("paginationToken", ""))
        rest = [name for name in names if name > after]
        limit = int(given.get("limit", MAX_LIST))
        found: dict[str, Any] = {
            "namespaces": [self.describe_namespace(name) for name in rest[:limit]],
            "total_count": len(names),
        }
        if len(rest) > limit:
            found["pagination"] = {"next": b64encode(rest[limit - 1].encode()).decode()}
        return found

    def describe_namespace(self, name: str) -> dict[str, Any]:
        namespace = self.database.find(self.index, name)
        if namespace is None:
            raise Refusal(404, "Namespace not found")
        return {"name": name, "record_count": len(namespace.records)}

    def delete_namespace(self, name: str) -> dict[str, Any]:
        if self.database.find(self.index, name) is None:
            raise Refusal(404, "Namespace not found")
        self.database.write(self.index, name, {"all": True})
        return {}


class Server:
    """HTTP application, with what the tests control."""

    def __init__(self, database: Database, port: int) -> None:
        from jsonschema import Draft202012Validator

        self.database = database
        self.port = port
        self.failures: deque[int] = deque()
        self.retry_after = ""
        self.requests: Counter[str] = Counter()
        self.violations: list[str] = []
        self._checks = {
            (kind, name): Draft202012Validator(schema)
            for kind, schemas in (
                ("request", pinecone_schema.REQUESTS),
                ("answer", pinecone_schema.ANSWERS),
            )
            for name, schema in schemas.items()
        }
        self._status = Draft202012Validator(pinecone_schema.STATUS)

    def check(self, kind: str, name: str, body: Any) -> None:
        """Note how a body differs from its schema."""
        validator = self._status if kind == "failure" else self._checks.get((kind, name))
        if validator is None:
            self.violations += [f"{kind} of {name} has a body"] if body else []
            return
        for error in validator.iter_errors(body):
            self.violations.append(f"{kind} of {name}: {error.json_path}: {error.message[:200]}")

    async def answer(self, request: Any) -> Any:
        from starlette.responses import JSONResponse, PlainTextResponse

        name, raw = name_operation(request), await request.body()
        self.requests[name] += 1
        if request.headers.get("api-key") != KEY:
            return PlainTextResponse("Unauthorized", 401)
        if self.failures:
            status = self.failures.popleft()
            headers = {"retry-after": self.retry_after} if self.retry_after else {}
            failed = {"code": 14, "message": "failed as the test has asked", "details": []}
            return JSONResponse(failed, status, headers)
        headers = {}
        try:
            found, headers = self.perform(name, request, raw)
            status = 200
        except Refusal as refusal:
            status = refusal.status
            found = {"code": 3, "message": str(refusal), "details": []}
        if status != 200 or len(raw) < CHECKED_BODY:
            self.check("answer" if status == 200 else "failure", name, found)
        if self.violations:  # so that no test passes with one
            found = {"code": 13, "message": self.violations[0], "details": []}
            return JSONResponse(found, 500)
        return JSONResponse(found, status, headers)

    def perform(self, name: str, request: Any, raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
        if not request.headers.get("x-pinecone-api-version"):
            raise Refusal(400, "the version of the API is missing")
        if len(raw) > MAX_BODY:
            raise Refusal(413, "the request is too large")
        body, given = json.loads(raw or b"null"), request.query_params
        if len(raw) < CHECKED_BODY:
            self.check("request", name, body)
        unknown = given.keys() - pinecone_schema.PARAMETERS.get(name, frozenset())
        self.violations += [f"unknown parameters of {name}: {sorted(unknown)}"] if unknown else []
        if name == "index":
            return self.describe_index(request.path_params["name"]), {}
        ip = request.headers["host"].partition(":")[0]
        api = Api(self.database, next(one for one in INDEXES if _get_ip(one) == ip))
        if name in ("upsert", "query", "delete"):
            answered: tuple[dict[str, Any], dict[str, str]] = getattr(api, name)(body)
            return answered
        if name == "stats":
            return api.describe(), {}
        if name == "list":
            return api.list_ids(given), {}
        if name == "namespaces":
            return api.list_namespaces(given), {}
        one = request.path_params["name"]
        return (api.delete_namespace if "delete" in name else api.describe_namespace)(one), {}

    def describe_index(self, name: str) -> dict[str, Any]:
        if name not in INDEXES:
            raise Refusal(404, f"Resource {name} not found")
        dimension, metric = INDEXES[name]
        field = {"type": "dense_vector", "dimension": dimension, "metric": metric}
        return {
            "name": name,
            "host": f"http://{_get_ip(name)}:{self.port}",
            "schema": {"fields": {"_values": field}},
            "deployment": {"deployment_type": "managed", "cloud": "aws", "region": "us-east-1"},
            "read_capacity": {"mode": "OnDemand", "status": {"state": "Ready"}},
            "status": {"ready": True, "state": "Ready"},
            "deletion_protection": "disabled",
        }

    async def control(self, request: Any) -> Any:
        """Do what a test asks for, or return the state."""
        from starlette.responses import JSONResponse

        body = json.loads(await request.body() or b"{}")
        match request.path_params["name"]:
            case "fail":
                self.failures.extend(body["statuses"])
                self.retry_after = body["retry_after"]
            case "delay":
                self.database.delay_s = body["seconds"]
            case "wipe":
                self.database.wipe()
        names = {index: self.database.list_names(index) for index in INDEXES}
        return JSONResponse(
            {"requests": self.requests, "violations": self.violations, "namespaces": names}
        )


def name_operation(request: Any) -> str:
    """Return the name under which the schemas know an operation."""
    path = request.url.path
    if path.startswith("/namespaces/"):
        return "delete_namespace" if request.method == "DELETE" else "namespace"
    if path.startswith("/indexes/"):
        return "index"
    return {"/describe_index_stats": "stats"}.get(path, path.rpartition("/")[2])


def run(port: int, folder: Path, delay_s: float) -> None:
    """Serve until the process is ended."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Route

    server = Server(Database(folder, delay_s), port)
    paths = {
        "/vectors/upsert": "POST",
        "/query": "POST",
        "/vectors/delete": "POST",
        "/describe_index_stats": "POST",
        "/vectors/list": "GET",
        "/namespaces": "GET",
        "/indexes/{name}": "GET",
    }
    routes = [Route(path, server.answer, methods=[method]) for path, method in paths.items()]
    routes.append(Route("/namespaces/{name}", server.answer, methods=["GET", "DELETE"]))
    routes.append(Route("/test/{name}", server.control, methods=["GET", "POST"]))
    sockets = []
    for index in INDEXES:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_get_ip(index), port))
        sockets.append(listening)
    config = uvicorn.Config(Starlette(routes=routes), log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=sockets)


if __name__ == "__main__":
    run(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
