"""A client whose service is away, slow, busy, strict or in the middle of an answer."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

import chats
import unspool
import wire
from models import needed
from services import serving
from support import settings_for
from unspool import Document, aio
from unspool.errors import (
    ConfigError,
    ForbiddenError,
    InputError,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    ServiceTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnreachableError,
    UnspoolError,
)

needed("httpx2", "pip install 'unspool[client]'")

from unspool.client import RemoteCorpus, service  # noqa: E402

KEY = "unspool_0123456789ab_" + "k" * 43
NOTE = Document(project="p", path="a.md", text="tomatoes want sun")
Reply = tuple[int, Any, dict[str, str]]
FINE: Reply = (200, {"tokens": 3}, {})


class Scripted:
    """A server that gives prepared answers, the last one again and again, and remembers what it
    was asked.
    """

    def __init__(self) -> None:
        self.answers: list[Reply] = [FINE]
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.holds = threading.Event()
        own = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                own.asked.append(
                    (
                        self.command,
                        self.path,
                        {name.lower(): value for name, value in self.headers.items()},
                    )
                )
                status, body, headers = (
                    own.answers.pop(0) if len(own.answers) > 1 else own.answers[0]
                )
                if not status:
                    own.holds.wait(wire.WAIT_S)
                    return
                data = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(data)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the names that the library looks for

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - as it is called there
                """Tests print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def close(self) -> None:
        self.holds.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def script() -> Iterator[Scripted]:
    opened = Scripted()
    yield opened
    opened.close()


def refusing(status: int, code: str, **headers: str) -> Reply:
    return (
        status,
        {"error": {"code": code, "message": "not now", "request_id": "r7"}},
        {name.replace("_", "-"): value for name, value in headers.items()},
    )


Ask = Callable[[str, str], Any]


def plainly(address: str, method: str, *args: Any, key: str = KEY) -> Any:
    with RemoteCorpus(address, key=key, settings=unspool.Settings()) as corpus:
        return getattr(corpus, method)(*args)


def awaited(address: str, method: str, *args: Any, key: str = KEY) -> Any:
    async def story() -> Any:
        async with aio.open(address, key=key, settings=unspool.Settings()) as corpus:
            return await getattr(corpus, method)(*args)

    return anyio.run(story)


@pytest.fixture(params=[plainly, awaited])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A call of either face."""
    return request.param  # type: ignore[no-any-return]


def test_a_service_that_is_busy_is_asked_again(script: Scripted, ask: Callable[..., Any]) -> None:
    script.answers = [
        refusing(429, "throttled", Retry_After="0"),
        refusing(503, "rate_limited", Retry_After="0"),
        FINE,
    ]
    assert ask(script.address, "count_tokens", "x") == 3
    assert len(script.asked) == 3


def test_it_is_not_asked_for_ever(script: Scripted, ask: Callable[..., Any]) -> None:
    script.answers = [refusing(429, "throttled", Retry_After="0")]
    with pytest.raises(ThrottledError) as found:
        ask(script.address, "answering", "a question")
    assert (len(script.asked), found.value.request_id) == (1 + service.RETRIES, "r7")


def test_what_may_have_been_done_is_not_done_again(
    script: Scripted, ask: Callable[..., Any]
) -> None:
    script.answers = [refusing(503, "unreachable")]
    with pytest.raises(UnreachableError):
        ask(script.address, "answering", "a question")
    assert len(script.asked) == 1


def test_a_service_that_asks_for_much_patience_is_believed(
    script: Scripted, ask: Callable[..., Any]
) -> None:
    script.answers = [refusing(503, "rate_limited", Retry_After="600")]
    with pytest.raises(RateLimitedError) as found:
        ask(script.address, "count_tokens", "x")
    assert (len(script.asked), found.value.retry_after) == (1, 600)


def test_a_service_that_is_away_is_unreachable(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRIES", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{free.getsockname()[1]}"
        for method in ("count_tokens", "answering"):
            with pytest.raises(UnreachableError, match="unspool serve"):
                ask(place, method, "x")


@pytest.mark.parametrize("method", ["count_tokens", "answering"])
def test_a_service_that_does_not_answer_is_waited_for_so_long_and_no_longer(
    script: Scripted, ask: Callable[..., Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "GRACE_S", -29.9)
    script.answers = [(0, None, {})]
    with pytest.raises(ServiceTimeoutError, match="UNSPOOL_SERVE_TIMEOUT_S"):
        ask(script.address, method, "x")
    assert len(script.asked) == 1


def test_the_key_goes_to_the_service_and_nowhere_else(
    script: Scripted, ask: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ask(script.address, "count_tokens", "x")
    assert script.asked[0][2]["authorization"] == f"Bearer {KEY}"
    other = Scripted()
    try:
        script.answers = [
            (307, {}, {"Location": f"{other.address}/v1/count_tokens"}),
            refusing(401, "unauthenticated"),
        ]
        raised: list[UnspoolError] = []
        for _ in range(2):
            with pytest.raises(UnspoolError) as found:
                ask(script.address, "count_tokens", "x")
            raised.append(found.value)
    finally:
        other.close()
    assert other.asked == []
    corpus = RemoteCorpus(script.address, key=KEY, settings=unspool.Settings.of(key=KEY))
    shown = [
        repr(corpus),
        repr(corpus.settings),
        caplog.text,
        *(f"{one!r} {one} {getattr(one, '__notes__', '')}" for one in raised),
    ]
    corpus.close()
    assert not any(KEY in text for text in shown)


def test_no_proxy_of_the_environment_reads_what_is_not_encrypted(
    script: Scripted, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Scripted()
    try:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        monkeypatch.setenv("ALL_PROXY", proxy.address)
        script.answers = [FINE, refusing(404, "not_found")]
        ask(script.address, "count_tokens", "x")
        with pytest.raises(NotFoundError):
            ask(script.address, "ask", "x")
    finally:
        proxy.close()
    assert [path for _, path, _ in script.asked] == ["/v1/count_tokens", "/v1/ask"]
    assert proxy.asked == []


def test_a_proxy_of_the_environment_leads_to_a_service_with_encryption(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRIES", 0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listening.getsockname()[1]}")
        said: list[bytes] = []

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                said.append(connection.recv(10_000))

        proxy = threading.Thread(target=refuse)
        proxy.start()
        with pytest.raises(UnreachableError):
            ask("https://find.example", "count_tokens", "x")
        proxy.join(wire.WAIT_S)
    assert said[0].startswith(b"CONNECT find.example:443") and KEY.encode() not in said[0]


def test_a_task_that_is_cancelled_cancels_its_job(script: Scripted) -> None:
    job = {
        "id": "0123456789abcdef",
        "project": "p",
        "source": "",
        "state": "running",
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    job |= {
        "started_at": None,
        "finished_at": None,
        "progress": {"task": "indexing", "done": 1, "total": 2, "chunks": 0},
        "report": None,
        "error_code": "",
        "error": "",
    }
    script.answers = [(202, job, {})]

    async def story() -> None:
        async with aio.open(script.address, key=None, settings=unspool.Settings()) as corpus:
            with anyio.CancelScope() as scope:
                await corpus.index(
                    "/srv/x", project="p", on_progress=lambda progress: scope.cancel()
                )
            assert scope.cancelled_caught

    anyio.run(story)
    assert [method for method, _, _ in script.asked] == ["POST", "GET", "DELETE"]
    assert script.asked[-1][1] == "/v1/jobs/0123456789abcdef"


@pytest.mark.parametrize("method", ["count_tokens", "answering"])
def test_a_task_that_is_cancelled_does_not_wait_for_the_service(
    script: Scripted, method: str
) -> None:
    script.answers = [(0, None, {})]  # until the test ends

    async def story() -> None:
        async with aio.open(script.address, key=None, settings=unspool.Settings()) as corpus:
            with anyio.move_on_after(0.1) as scope:
                await getattr(corpus, method)("x")
            assert scope.cancelled_caught

    anyio.run(story)
    assert not script.holds.is_set()


def test_a_task_that_is_cancelled_sends_no_further_request(script: Scripted) -> None:
    script.answers = [refusing(503, "rate_limited", Retry_After="20")]

    async def story() -> None:
        async with aio.open(script.address, key=None, settings=unspool.Settings()) as corpus:
            task = asyncio.create_task(corpus.count_tokens("x"))
            while not script.asked:
                await anyio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    anyio.run(story)
    assert len(script.asked) == 1


# Keys


def test_a_key_opens_what_it_is_for(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "a.db")
    with unspool.open(settings=settings) as corpus:
        corpus.put(NOTE)
        corpus.put(Document(project="other", path="b", text="secret"))
        _, reader = corpus.keys.create(projects="p", role="read")
    with serving(settings) as address:
        with (
            unspool.open(address, settings=unspool.Settings()) as nobody,
            pytest.raises(UnauthenticatedError, match="key") as found,
        ):
            nobody.projects()
        assert found.value.request_id
        with unspool.open(
            address,
            settings=unspool.Settings.load(environment={"UNSPOOL_KEY": reader}, folder=tmp_path),
        ) as corpus:
            assert corpus.projects() == ["p"]
            assert corpus.search("tomatoes").hits[0].chunk.path == "a.md"
            with pytest.raises(ForbiddenError):
                corpus.put(NOTE)
            with pytest.raises(NotFoundError):
                corpus.read("b", project="other")
            assert (
                corpus.streams(project="other") == corpus.conversations.list(project="other") == []
            )


# Answers


@pytest.fixture
def model() -> Iterator[wire.WireServer]:
    with wire.WireServer() as opened:
        yield opened


@pytest.fixture
def answering(tmp_path: Path, model: wire.WireServer) -> Iterator[str]:
    """A service with a model, and a document in it."""
    settings = settings_for(
        tmp_path / "a.db", answer_model="anthropic:m", answer_url=model.url, answer_retries=0
    )
    with unspool.open(settings=settings) as corpus:
        corpus.put(NOTE)
    with serving(settings) as address:
        yield address


def test_an_answer_comes_piece_by_piece(answering: str, model: wire.WireServer) -> None:
    model.says = ("Sun ", "[1].")
    with unspool.open(answering, key=None, settings=unspool.Settings()) as corpus:
        with corpus.answering("What do tomatoes want?") as stream:
            with pytest.raises(InputError, match="not at its end"):
                _ = stream.answer
            assert "".join(stream) == "Sun [1]." == stream.answer.text
            assert stream.answer.citations[0].hit.chunk.text == NOTE.text
            assert list(stream) == []
        assert stream.answer.model == "anthropic:m"

    async def story() -> None:
        async with aio.open(answering, key=None, settings=unspool.Settings()) as corpus:
            heard: list[str] = []
            answer = await corpus.ask("What do tomatoes want?", on_text=heard.append)
            assert answer.text == "Sun [1]." == "".join(heard)

    anyio.run(story)


def test_closing_an_answer_ends_it_in_the_service_and_at_the_model(
    answering: str, model: wire.WireServer
) -> None:
    gone = threading.Event()
    model.script(chats.hanging(gone, "Sun"))
    with unspool.open(answering, key=None, settings=unspool.Settings()) as corpus:
        stream = corpus.answering("What do tomatoes want?")
        assert next(stream) == "Sun"
        threading.Timer(0.05, stream.close).start()
        with pytest.raises(InputError, match="closed"):
            next(stream)
        assert gone.wait(wire.WAIT_S)
        with pytest.raises(InputError, match="before its end"):
            _ = stream.answer


def test_a_loop_that_is_left_ends_the_answer(answering: str, model: wire.WireServer) -> None:
    gone = threading.Event()
    model.script(chats.hanging(gone, "Sun"))
    with unspool.open(answering, key=None, settings=unspool.Settings()) as corpus:
        for piece in corpus.answering("What do tomatoes want?"):
            assert piece == "Sun"
            break
        assert gone.wait(wire.WAIT_S)


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_an_awaited_answer_is_ended_alike(answering: str, model: wire.WireServer, how: str) -> None:
    gone = threading.Event()
    model.script(chats.hanging(gone, "Sun"))

    async def story() -> None:
        async with aio.open(answering, key=None, settings=unspool.Settings()) as corpus:
            stream = await corpus.answering("What do tomatoes want?")
            assert await anext(stream) == "Sun"
            async with anyio.create_task_group() as group:

                async def wait() -> None:
                    with pytest.raises(InputError, match="closed"):
                        await anext(stream)

                group.start_soon(wait)
                await anyio.sleep(0.05)
                if how == "close":
                    await stream.close()
                else:
                    group.cancel_scope.cancel()
            assert await to_thread.run_sync(gone.wait, wire.WAIT_S)
            with pytest.raises(InputError, match="before its end"):
                _ = stream.answer
            await stream.close()

    anyio.run(story)


def test_an_answer_that_fails_ends_with_the_error_of_the_model(
    answering: str, model: wire.WireServer, ask: Callable[..., Any]
) -> None:
    model.script(wire.failing(401))
    with pytest.raises(RejectedError) as found:
        ask(answering, "ask", "What do tomatoes want?", key="")
    assert found.value.request_id
    model.script(chats.broken("Sun"))
    with pytest.raises(UnreachableError):
        ask(answering, "ask", "What do tomatoes want?", key="")


# Opening


def test_what_a_service_chooses_cannot_be_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="where the service runs"):
        unspool.open("http://localhost:1", embedder="static")
    with pytest.raises(ConfigError, match="needs none"):
        unspool.open(f"sqlite:///{tmp_path}/a.db", key=KEY)


def test_only_a_trusted_folder_decides_who_gets_the_key(tmp_path: Path) -> None:
    (tmp_path / "unspool.toml").write_text('database = "http://localhost:1"\n')
    environment = {"UNSPOOL_KEY": KEY}
    with pytest.warns(unspool.UntrustedFolderWarning, match="database"):
        assert (
            unspool.Settings.load(environment=environment, folder=tmp_path).database.address == ""
        )
    trusted = unspool.Settings.load(environment=environment, folder=tmp_path, trust_folder=True)
    with unspool.open(settings=trusted) as corpus:
        assert isinstance(corpus, RemoteCorpus)


def test_without_its_package_the_client_says_what_to_install() -> None:
    code = """if True:
        import sys, unspool
        sys.modules["httpx2"] = None
        try:
            unspool.open("http://localhost:1")
        except ImportError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'unspool[client]'" in done.stdout
