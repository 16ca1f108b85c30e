"""A server on this machine that embeds in the wire formats of OpenAI, Cohere and Voyage, answers
questions in those of OpenAI and Anthropic (`chats.py`), and does whatever a test has it do instead.

Vectors are sums of one fixed vector per word, so that they are known without the server and every
difference in a text shows. The next answers can be scripted, one by one; when the script is over,
the server answers as it should.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

DIMENSION = 48
WAIT_S = 20.0  # for something that has to happen; only a test that fails waits as long


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it came."""

    path: str
    query: str
    headers: Mapping[str, str]
    body: Any

    @property
    def texts(self) -> list[str]:
        return list(self.body.get("input", self.body.get("texts")))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What goes back: an object as JSON, or bytes as they are.

    A reset closes the connection without a word.
    """

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_reset: bool = False
    until: threading.Event | None = None  # the body comes byte by byte, and does not end before
    # instead of a body: one by one, as they are made; a reset comes behind them
    pieces: Iterable[bytes] | None = None
    # behind the pieces nothing comes, and this is set when whoever asked has gone
    hung_up: threading.Event | None = None


Reply = Callable[[Asked], Answer]


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 50.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class WireServer:
    """Listens on a free port of the loopback while it is open."""

    def __init__(self, dimension: int = DIMENSION, *, tls: ssl.SSLContext | None = None) -> None:
        self.dimension = dimension
        self._scheme = "http" if tls is None else "https"
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.always: Reply | None = None  # instead of a proper answer, when the script is over
        self.says: Sequence[str] = ("It is so [1].",)  # the pieces of a proper answer to a question
        self._script: deque[Reply] = deque()
        self._now = 0
        self._guard = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server = _Listener(("127.0.0.1", 0), _handler_of(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def address(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """What UNSPOOL_EMBEDDER_URL would be for OpenAI's format."""
        return f"{self.address}/v1"

    def script(self, *replies: Reply) -> None:
        """The next requests are answered with these, in the order in which they come."""
        with self._guard:
            self._script.extend(replies)

    def proper(self, asked: Asked) -> Answer:
        """What a server that is well answers."""
        if asked.path.endswith(("/chat/completions", "/messages")):
            import chats

            return chats.proper(asked, self.says)
        if asked.path.endswith("/embed"):
            rows = vectors(
                [f"{asked.body['input_type']} {text}" for text in asked.texts],
                self._dimension_of(asked),
            )
            return Answer(
                body={
                    "id": "1",
                    "embeddings": {"float": rows.tolist()},
                    "meta": {"api_version": {"version": "2"}},
                }
            )
        kind = asked.body.get("input_type")
        rows = vectors(
            [f"{kind} {text}" if kind else text for text in asked.texts], self._dimension_of(asked)
        )
        in_base64 = asked.body.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": place,
                "embedding": encoded(row) if in_base64 else row.tolist(),
            }
            for place, row in enumerate(rows)
        ]
        return Answer(
            body={
                "object": "list",
                "data": data,
                "model": asked.body["model"],
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            }
        )

    def changed(self, change: Callable[[dict[str, Any]], Any]) -> Reply:
        """A proper answer with something about it changed."""

        def reply(asked: Asked) -> Answer:
            body = self.proper(asked).body
            change(body)
            return Answer(body=body)

        return reply

    def later(self, until: threading.Event) -> Reply:
        """A proper answer, when something else has happened."""

        def reply(asked: Asked) -> Answer:
            until.wait(WAIT_S)
            return self.proper(asked)

        return reply

    def slowly(self, asked: Asked) -> Answer:
        """A proper answer that takes long enough for others to come in the meantime."""
        time.sleep(0.01)
        return self.proper(asked)

    def together(self, count: int) -> Reply:
        """For a script, so many times: each is answered when all of them have come, or not at
        all.
        """
        meeting = threading.Barrier(count)

        def reply(asked: Asked) -> Answer:
            try:
                meeting.wait(WAIT_S)
            except threading.BrokenBarrierError:
                return error(400, code="came_alone")
            return self.proper(asked)

        return reply

    def answer(self, asked: Asked) -> Answer:
        with self._guard:
            self.asked.append(asked)
            reply = self._script.popleft() if self._script else self.always or self.proper
        return reply(asked)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Requests under way are counted until their answer goes out: whoever has it may ask
        again at once.
        """
        with self._guard:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            yield
        finally:
            with self._guard:
                self._now -= 1

    def connected(self, connection: socket.socket) -> None:
        with self._guard:
            self._connections.add(connection)

    def disconnected(self, connection: socket.socket) -> None:
        with self._guard:
            self._connections.discard(connection)

    def _dimension_of(self, asked: Asked) -> int:
        return int(
            asked.body.get("dimensions") or asked.body.get("output_dimension") or self.dimension
        )

    def __enter__(self) -> WireServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        with self._guard:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away while it was answered is part of some tests."""


def _handler_of(server: WireServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            server.connected(self.connection)

        def finish(self) -> None:
            super().finish()
            server.disconnected(self.connection)

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            given = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            asked = Asked(
                path=parts.path,
                query=parts.query,
                headers={k.lower(): v for k, v in self.headers.items()},
                body=json.loads(given or b"{}"),
            )
            with server.counted():
                answer = server.answer(asked)
            if answer.pieces is not None:
                self._send_pieces(answer, answer.pieces)
                return
            if answer.is_reset:
                self._reset()
                return
            body = (
                answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            )
            self.send_response(answer.status)
            for name, value in {
                "Content-Type": "application/json",
                **answer.headers,
                "Content-Length": str(len(body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if answer.until is not None:
                with suppress(OSError):  # whoever asked has gone
                    for place in range(len(body)):
                        self.wfile.write(body[place : place + 1])
                        answer.until.wait(0.05)
                return
            self.wfile.write(body)

        def _send_pieces(self, answer: Answer, pieces: Iterable[bytes]) -> None:
            self.send_response(answer.status)
            for name, value in {
                "Content-Type": "text/event-stream",
                **answer.headers,
                "Transfer-Encoding": "chunked",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # whoever asked has gone
                for piece in pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if answer.hung_up is not None:
                    self._await_hang_up(answer.hung_up)
                elif answer.is_reset:
                    self._reset()
                else:
                    self.wfile.write(b"0\r\n\r\n")

        def _await_hang_up(self, hung_up: threading.Event) -> None:
            self.close_connection = True
            self.connection.settimeout(WAIT_S)
            try:
                gone = not self.connection.recv(1)
            except TimeoutError:
                return
            except OSError:
                gone = True
            if gone:
                hung_up.set()

        def do_GET(self) -> None:
            """Whatever a hub would be asked for: it is not here."""
            with server.counted():
                server.answer(
                    Asked(path=self.path, query="", headers={}, body={"input": [], "model": ""})
                )
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - the name that the library looks for

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.rfile.close()
            self.connection.close()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - as it is called there
            """Tests print nothing."""

    return Handler


def error(
    status: int, *, code: str = "", message: str = "no", headers: Mapping[str, str] | None = None
) -> Answer:
    """An error as OpenAI words it."""
    return Answer(
        status=status,
        body={"error": {"message": message, "type": "error_type", "code": code or None}},
        headers=headers or {},
    )


def failing(status: int, *, code: str = "", message: str = "no", **headers: str) -> Reply:
    """Headers are given with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda asked: error(status, code=code, message=message, headers=named)


def saying(body: Any, *, status: int = 200) -> Reply:
    """An answer that is the same whatever was asked."""
    return lambda asked: Answer(status=status, body=body)


def reset(asked: Asked) -> Answer:
    """The connection breaks."""
    return Answer(is_reset=True)


def repeating(asked: Asked) -> Answer:
    """A refusal that quotes all it was sent, key and texts."""
    return error(
        400,
        code="invalid_input",
        message=f"cannot embed {asked.texts!r} for {asked.headers.get('authorization')}",
    )


def refusing_formats(server: WireServer) -> Reply:
    """A server that knows no `encoding_format`."""

    def reply(asked: Asked) -> Answer:
        if "encoding_format" in asked.body:
            return error(
                400, code="unknown_parameter", message="encoding_format: extra fields not permitted"
            )
        return server.proper(asked)

    return reply


def vectors(texts: Sequence[str], dimension: int = DIMENSION) -> npt.NDArray[np.float32]:
    """What the server gives for texts: unit rows."""
    rows = np.stack(
        [np.sum([_word(word, dimension) for word in text.split()], axis=0) for text in texts]
    )
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def encoded(row: npt.NDArray[np.float32]) -> str:
    """A vector in base64, as OpenAI has it."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


@lru_cache(maxsize=10_000)
def _word(word: str, dimension: int) -> npt.NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
    return np.random.default_rng(seed).normal(size=dimension)
