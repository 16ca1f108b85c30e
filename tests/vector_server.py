"""A vector index in a process of its own, for tests and benches: `served://127.0.0.1:PORT`.

The server keeps its points in memory. It can be killed, started again empty, frozen and wiped, and
it can kill itself or its client in the middle of a write.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from unspool.errors import AddressError, ServiceTimeoutError, UnreachableError
from unspool.index import vectors
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Candidates, Ids, Points, Vectors, Within
from unspool.index.vectors.memory import MemoryIndex

SCHEME = "served"
TIMEOUT_S = 2.0
START_S = 60.0
_SHUT_DOWN = 9


class ServedIndex:
    """Client of the server, as the `VectorIndex` port. Each call opens a connection."""

    capabilities = MemoryIndex.capabilities

    def __init__(self, host: str, port: int, opening: tuple[str, int, Metric]) -> None:
        self._host = host
        self._port = port
        self._opening = opening  # collection, dimension and metric

    @classmethod
    def open(
        cls, address: str, *, collection: str, dimension: int, options: VectorOptions
    ) -> ServedIndex:
        """Return the client of a collection. It connects when it is first used."""
        host, _, port = address.removeprefix(f"{SCHEME}://").partition(":")
        if not host or not port.isdecimal():
            raise AddressError(f"the address {address!r} is wrong; give {SCHEME}://HOST:PORT")
        return cls(host, int(port), (collection, dimension, options.metric))

    def read_epoch(self) -> str:
        """Return a name that is another one after a restart and after `wipe`."""
        return str(self._call("read_epoch"))

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
        """Return the k nearest chunks."""
        found: Candidates = self._call(
            "search", project, vector, k=k, within=within, min_similarity=min_similarity, hint=hint
        )
        return found

    def apply(self, project: int, upserts: Points, deletes: Ids) -> None:
        """Delete points, then store points in place of those with the same ids."""
        self._call("apply", project, upserts, deletes)

    def count(self, project: int) -> int:
        """Return the number of points of a project."""
        return int(self._call("count", project))

    def ids(self, project: int, *, after: int, limit: int) -> Ids:
        """Return the first ids behind one, in ascending order."""
        found: Ids = self._call("ids", project, after=after, limit=limit)
        return found

    def drop(self, project: int | None = None) -> None:
        """Delete the points of a project, or everything."""
        self._call("drop", project)

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def control(self, name: str, *arguments: object) -> Any:
        """Tell the server what to do besides its work."""
        return self._call(name, *arguments)

    def _call(self, name: str, *arguments: object, **named: object) -> Any:
        place = f"the vector index at {self._host}:{self._port}"
        cure = "start it, or correct UNSPOOL_VECTORS"
        try:
            with _connect(self._host, self._port) as connection:
                connection.send((os.getpid(), self._opening, name, arguments, named))
                if not connection.poll(TIMEOUT_S):
                    raise TimeoutError
                return connection.recv()
        except (TimeoutError, BlockingIOError) as error:
            raise ServiceTimeoutError(
                f"{place} did not answer within {TIMEOUT_S:g} s; {cure}"
            ) from error
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or "it closed the connection"
            raise UnreachableError(f"{place} cannot be reached ({reason}); {cure}") from error


def _connect(host: str, port: int) -> Connection:
    opened = socket.create_connection((host, port), timeout=TIMEOUT_S)
    opened.settimeout(None)  # `Connection` reads and writes the descriptor itself
    limit = struct.pack("ll", int(TIMEOUT_S), int(TIMEOUT_S % 1 * 1e6))
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        opened.setsockopt(socket.SOL_SOCKET, option, limit)
    return Connection(opened.detach())


def register() -> None:
    """Make `served://` known in this process."""
    vectors.ADAPTERS[SCHEME] = vectors.Adapter("vector_server:ServedIndex")


def unregister() -> None:
    """Undo `register`."""
    vectors.ADAPTERS.pop(SCHEME, None)


class VectorServer:
    """A server on the loopback. It ends with the process that started it."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        # imports once, then forks a server for each start
        self._parent = subprocess.Popen(
            [sys.executable, __file__, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_end_with_parent,
        )
        self._pid: int | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"{SCHEME}://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return ""

    @property
    def client(self) -> ServedIndex:
        """A client of no collection, for `control`."""
        return ServedIndex("127.0.0.1", self.port, ("", 1, Metric.COSINE))

    def start(self) -> None:
        """Start it empty, unless it is running; return when it answers."""
        if self._pid is not None and not _is_dead(self._pid):
            self.thaw()
            return
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        self._pid = int(self._parent.stdout.readline())
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.client.control("ping")
                return
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def kill(self) -> None:
        """End it with all its points; a second time does nothing."""
        if self._pid is not None:
            if not _is_dead(self._pid):
                os.kill(self._pid, signal.SIGKILL)
            deadline = time.monotonic() + START_S
            while not _is_dead(self._pid) and time.monotonic() < deadline:
                time.sleep(0.005)
            self._pid = None

    def freeze(self) -> None:
        """Let it accept connections and answer nobody, until `thaw`."""
        assert self._pid is not None
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it answer again."""
        assert self._pid is not None
        os.kill(self._pid, signal.SIGCONT)

    def wipe(self) -> None:
        """Delete all points while it runs."""
        self.client.control("wipe")

    def strike(self, victim: str, writes: int) -> None:
        """Kill the server or its client when so many writes have been applied from now on."""
        self.client.control("strike", victim, writes)

    def count_writes(self) -> int:
        """Return the number of writes since `strike` was called with 0."""
        return -int(self.client.control("count_writes"))

    def close(self) -> None:
        """End it and the process that starts it."""
        self.kill()
        self._parent.kill()
        self._parent.communicate()  # also closes the pipes

    def __enter__(self) -> VectorServer:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class _Service:
    """Collections in the memory of the server's process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._indexes: dict[str, MemoryIndex] = {}
        self._victim, self._writes = "", 0

    def answer(self, connection: Connection) -> None:
        with connection:
            try:
                pid, opening, name, arguments, named = connection.recv()
            except (EOFError, OSError):  # the client was killed
                return
            result = self._run(opening, name, arguments, named)
            if name == "apply" and arguments[0] > 0 and self._strikes():
                if self._victim == "server":
                    os._exit(_SHUT_DOWN)
                os.kill(pid, signal.SIGKILL)
            try:
                connection.send(result)
            except OSError:
                return

    def _run(self, opening: Any, name: str, arguments: Any, named: Any) -> Any:
        if name == "ping":
            return None
        if name == "wipe":
            with self._guard:
                self._indexes.clear()
            return None
        if name == "strike":
            self._victim, self._writes = arguments
            return None
        if name == "count_writes":
            return self._writes
        collection, dimension, metric = opening
        with self._guard:
            index = self._indexes.get(collection)
            if index is None:
                index = self._indexes[collection] = MemoryIndex(dimension, metric)
        return getattr(index, name)(*arguments, **named)

    def _strikes(self) -> bool:
        with self._guard:
            self._writes -= 1
            return self._writes == 0


def _serve(port: int) -> None:
    service = _Service()
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
        while True:
            accepted = Connection(listener.accept()[0].detach())
            threading.Thread(target=service.answer, args=(accepted,), daemon=True).start()


def _main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # collects the servers that were killed
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _end_with_parent()
            _serve(int(sys.argv[1]))
        print(pid, flush=True)


if __name__ == "__main__":
    _main()
