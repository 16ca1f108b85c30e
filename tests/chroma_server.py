"""Chroma server for tests, from the package chromadb."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from servers import NOBODY, NoServer
from store_servers import StoreServer

# The interpreter may be in a folder that only root can read, so the process changes its user itself.
# That cancels the signal at the death of its parent, which is requested again.
PROGRAM = f"""
import ctypes, os, signal
from chromadb.cli.cli import app
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
app()
"""


class ChromaServer(StoreServer):
    """Server of Chroma. It has no keys."""

    keeps_user = True

    def __init__(self) -> None:
        if importlib.util.find_spec("chromadb_rust_bindings") is None:
            raise NoServer("no Chroma server; run: pip install chromadb", service="chroma")
        super().__init__()

    @property
    def address(self) -> str:
        """Address for UNSPOOL_VECTORS."""
        return f"chroma+http://127.0.0.1:{self.port}/unspool"

    @property
    def command(self) -> list[str]:
        """Program and arguments."""
        place = ["--path", "data", "--host", "127.0.0.1", "--port", str(self.port)]
        return [sys.executable, "-c", PROGRAM, "run", *place]

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the process."""
        return {"ANONYMIZED_TELEMETRY": "False"}

    @property
    def ready_url(self) -> str:
        """URL that answers with 200 when the server is ready."""
        return f"http://127.0.0.1:{self.port}/api/v2/heartbeat"


class Gate:
    """Proxy in front of a server, as people use it for keys. It can answer by itself."""

    def __init__(self, server: ChromaServer, *, header: str, value: str) -> None:
        self.status = 0  # of its own answers; 0 to forward requests
        self.body = b""
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def forward(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                status, answer = gate.status, gate.body
                if self.headers.get(header) != value:
                    status, answer = 401, b"no"
                elif not status:
                    url = f"http://127.0.0.1:{server.port}{self.path}"
                    named = {"content-type": "application/json"}
                    found = httpx.request(self.command, url, content=body, headers=named)
                    status, answer = found.status_code, found.content
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = forward  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"chroma+http://127.0.0.1:{self._http.server_port}/unspool"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
