"""Git repositories for tests: made in a folder, and served over HTTP."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PASSWORD = "correct" + "Horse9"
IDENTITY = (
    "-c",
    "user.name=t",
    "-c",
    "user.email=t@example.org",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "init.defaultBranch=main",
)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *IDENTITY, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(work: Path, name: str, text: str, *, push: str = "") -> None:
    (work / name).write_text(text)
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", name)
    if push:
        git(work, "push", "-q", "../origin.git", push)


def url(origin: Path) -> str:
    return f"file://{origin.parent}/origin.git"


class Guarded(BaseHTTPRequestHandler):
    """Repositories below a folder over HTTP, for alice alone."""

    folder: Path
    seen: list[str | None]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        shown = self.headers.get("Authorization")
        self.seen.append(shown)
        if shown != "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        variables = {
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        made = subprocess.run(
            ["git", "http-backend"],
            env=dict(os.environ) | variables,
            input=body,
            capture_output=True,
            check=True,
        ).stdout
        head, _, content = made.partition(b"\r\n\r\n")
        self.send_response(200)
        for line in head.decode().splitlines():
            self.send_header(*line.split(": ", 1))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - as the standard library calls them

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def leading_to(address: str) -> Iterator[str]:
    """The address of a host that sends every caller to another one."""

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://{address}{self.path.removeprefix('/origin.git')}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"localhost:{server.server_port}/origin.git"
        finally:
            server.shutdown()
            thread.join()
