"""What watches a service, for tests: a real Prometheus, an endpoint that it scrapes, a collector
of traces.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from servers import NoServer, end_with_parent, find_free_port

WAIT_S = 20.0  # for something that has to happen; only a test that fails waits as long


class PrometheusServer:
    """A Prometheus on the loopback with a folder of its own.

    It ends with the thread that started it.
    """

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self._process = process
        self._log = log
        self.address = address

    @classmethod
    def start(cls, folder: Path, configuration: str) -> PrometheusServer:
        """A new, empty server with this configuration; returns when it is ready."""
        program = shutil.which("prometheus")
        if program is None or not Path("/proc/self/stat").exists():
            reason = (
                "no Prometheus: the program is not installed; apt-get install "
                "--no-install-recommends prometheus"
            )
            raise NoServer(reason, service="prometheus")
        (folder / "prometheus.yml").write_text(configuration, encoding="utf-8")
        place = f"127.0.0.1:{find_free_port()}"
        options = [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={place}",
        ]
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, *options, "--log.level=warn"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_parent,
            )
        server = cls(process, f"http://{place}", log)
        try:
            eventually(server._is_ready)
        except BaseException:
            server.close()
            raise
        return server

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        return list(self._get("query", {"query": expression})["result"])

    def label_values(self, label: str, metric: str) -> list[str]:
        return list(self._get(f"label/{label}/values", {"match[]": metric}))

    def scrapes(self, job: str) -> int:
        """How often a job has been scraped with success."""
        found = self.query(f'sum_over_time(up{{job="{job}"}}[1h])')
        return int(float(found[0]["value"][1])) if found else 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> PrometheusServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(
                f"prometheus ended:\n{self._log.read_text(errors='replace')[-2000:]}"
            )
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{self.address}/-/ready", timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        address = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(
                f"{parameters}: {error.read().decode(errors='replace')}"
            ) from error


def eventually(is_so: Callable[[], bool]) -> None:
    """Return when something has become so."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@contextlib.contextmanager
def endpoint(metrics: Callable[[str], tuple[bytes, str]], key: str) -> Iterator[str]:
    """Where metrics can be scraped by who shows a key, as `host:port`."""

    class Handler(_Quiet):
        def do_GET(self) -> None:
            if self.path != "/metrics" or self.headers["Authorization"] != f"Bearer {key}":
                self.answer(401, b"", "text/plain")
                return
            body, content_type = metrics(self.headers.get("Accept", ""))
            self.answer(200, body, content_type)

    with _serving(Handler) as place:
        yield place


class Collector:
    """Takes spans as OTLP over HTTP has them."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.paths: list[str] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Its address, while it listens."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
        )

        collector = self

        class Handler(_Quiet):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.paths.append(self.path)
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    collector.resources.append(
                        {one.key: one.value.string_value for one in group.resource.attributes}
                    )
                    collector.spans += [span for scope in group.scope_spans for span in scope.spans]
                self.answer(
                    200, ExportTraceServiceResponse().SerializeToString(), "application/x-protobuf"
                )

        with _serving(Handler) as place:
            yield f"http://{place}"


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's own name for it
        """Nothing: the tests' output is not the place."""


@contextlib.contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
