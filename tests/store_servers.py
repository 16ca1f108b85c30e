"""Servers of vector stores for tests and benches, one per process that asks for it.

`SERVERS` starts each by the name of its adapter. A server listens on the loopback, runs as an
unprivileged user, and ends with the process that started it. Its data survive `kill` and `start`.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from servers import DISK, NOBODY, end_with_parent, find_free_port

START_S = 60.0


class StoreServer(ABC):
    """Process of a server with a folder of its own."""

    keeps_user = False  # the process is our own, or gives its rights up by itself

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="unspool-store-", dir=DISK))
        self._is_demoted = os.geteuid() == 0 and not self.keeps_user
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        self.port = self.choose_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def choose_port(self) -> int:
        """Return the port that the server keeps through all starts."""
        return find_free_port()

    @property
    @abstractmethod
    def address(self) -> str:
        """Address for UNSPOOL_VECTORS."""

    @property
    def key(self) -> str:
        """Key for UNSPOOL_VECTORS_KEY; empty for none."""
        return ""

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments."""

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Variables of the process, in addition to PATH."""

    @property
    @abstractmethod
    def ready_url(self) -> str:
        """URL that answers with 200 when the server is ready."""

    def start(self) -> None:
        """Start it on its data, unless it runs; return when it is ready."""
        if self._process is not None:
            self.thaw()
            return
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self._is_demoted else {}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **self.environment},
                preexec_fn=end_with_parent,
                **other,
            )  # type: ignore[call-overload]
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.command[0]} did not start:\n{self.log[-2000:]}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.ready_url, timeout=2) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def kill(self) -> None:
        """End it as the out-of-memory killer would; a second time does nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        """Start it again without its data."""
        self.kill()
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
        self.start()

    def freeze(self) -> None:
        """Let it accept connections and answer nobody, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        """Output of the server."""
        file = self.folder / "log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def close(self) -> None:
        """End it and delete its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


# by the name of the adapter; starting one raises `NoServer` with the cure
SERVERS = {
    "chroma": "chroma_server:ChromaServer",
    "pinecone": "pinecone_server:PineconeServer",
    "qdrant": "qdrant_server:QdrantServer",
    "weaviate": "weaviate_server:start_server",
}


def start(name: str) -> StoreServer:
    """Start a new server."""
    module, _, factory = SERVERS[name].partition(":")
    server: StoreServer = getattr(importlib.import_module(module), factory)()
    return server


@functools.cache
def get_server(name: str) -> StoreServer:
    """Return the server of this process, started by the first call."""
    server = start(name)
    atexit.register(server.close)
    return server
