"""What one caller may take of what all share: places among the requests, memory for answers and
records; the others do not notice.
"""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
from pydantic import ValidationError

import unspool
import wire
from services import WAIT_S, serving
from support import beside, doc, settings_for
from unspool.errors import ThrottledError
from unspool.interfaces.http import protocol, responses, service
from unspool.interfaces.http.limits import ConcurrencyLimit
from unspool.interfaces.http.requests import GivenConversation, GivenDocument
from unspool.jobs import JobQueue


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "catalog.db"
    with unspool.open(settings=settings_for(path)) as corpus:
        corpus.put(doc("a.md", "walrus"))
    return path


def line_to(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_one_key_does_not_take_the_places_of_others() -> None:
    limit = ConcurrencyLimit(8, "requests")
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(limit.acquire("a"))
        with (
            pytest.raises(ThrottledError, match="2 requests are running already with this key"),
            limit.acquire("a"),
        ):
            pass
        for key in ("b", "b", "", "", "", ""):
            held.enter_context(limit.acquire(key))
        with pytest.raises(ThrottledError, match="8 requests"), limit.acquire("c"):
            pass
    with limit.acquire("a"):
        pass


def test_streams_take_no_places_of_requests_and_have_a_bound_for_each_key(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "catalog.db")
    end = threading.Event()
    with unspool.open(settings=settings) as corpus, JobQueue(corpus) as jobs, ExitStack() as held:
        corpus.put(doc("a.md", "walrus"))
        keys = [
            {"X-API-Key": corpus.keys.create(projects="notes", role="read")[1]} for _ in range(2)
        ]

        def work(_: object) -> unspool.IndexReport:
            end.wait(WAIT_S)
            return corpus.put(doc("b.md", "walrus"))

        job = jobs.start("notes", "/somewhere", work)
        held.callback(end.set)
        address = held.enter_context(serving(settings, serve_queue=4))
        watch = f"{address}/v1/jobs/{job.id}/events"
        for key in keys:
            held.enter_context(
                httpx2.stream("GET", watch, headers=key, timeout=WAIT_S)
            ).raise_for_status()
            assert code(httpx2.get(watch, headers=key)) == (429, "throttled")
        assert httpx2.get(f"{address}/v1/projects", headers=keys[0]).status_code == 200


def test_searches_that_take_long_leave_the_look_at_keys_alone(tmp_path: Path) -> None:
    with wire.WireServer() as model, ThreadPoolExecutor(service.SEARCHES_AT_ONCE) as pool:
        given = {
            "embedder": "openai:m",
            "embedder_url": model.url,
            "embedder_key": "k",
            "embedder_concurrency": service.SEARCHES_AT_ONCE,
        }
        settings = settings_for(tmp_path / "catalog.db", **given)
        with unspool.open(settings=settings) as corpus:
            corpus.put(doc("a.md", "walrus"))
        end, asked = threading.Event(), len(model.asked)
        with serving(settings) as address, ExitStack() as held:
            held.callback(end.set)
            model.always = model.later(end)
            queries = [
                {"query": f"walrus {number}", "projects": ["notes"]}
                for number in range(service.SEARCHES_AT_ONCE)
            ]
            waiting = [
                pool.submit(httpx2.post, f"{address}/v1/search", json=query, timeout=WAIT_S)
                for query in queries
            ]
            deadline = time.monotonic() + WAIT_S
            while (
                len(model.asked) < asked + service.SEARCHES_AT_ONCE and time.monotonic() < deadline
            ):
                time.sleep(0.01)
            assert len(model.asked) == asked + service.SEARCHES_AT_ONCE
            assert httpx2.get(f"{address}/ready").status_code == 200
            assert httpx2.get(f"{address}/v1/nothing").status_code == 404
            assert not any(one.done() for one in waiting)
            end.set()
            assert {one.result().status_code for one in waiting} == {200}


def test_an_answer_that_nobody_reads_is_not_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "UNREAD_S", 0.2)
    with unspool.open(settings=settings_for(place)) as corpus:
        corpus.put(doc("large.md", "walrus\n" * 700_000))
    with serving(settings_for(place)) as address, line_to(address) as line:
        line.sendall(
            b"GET /v1/projects/notes/documents/large.md HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        time.sleep(1.5)
        heard = 0
        with suppress(ConnectionError):
            while piece := line.recv(1_000_000):
                heard += len(piece)
        assert heard < 4_900_000


@pytest.mark.parametrize(
    "following",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 10_000_000,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 250_000,
    ],
    ids=["headers", "requests"],
)
def test_what_follows_a_request_has_a_bound_until_that_is_answered(
    place: Path, following: bytes
) -> None:
    with serving(settings_for(place)) as address, beside(place) as other, line_to(address) as line:
        other.run("BEGIN IMMEDIATE")
        line.sendall(
            b"DELETE /v1/projects/notes/documents/none HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        # a server that only stops reading would cause a time-out, which is another error
        with pytest.raises(ConnectionError):
            line.sendall(following)
        other.run("ROLLBACK")


def test_pages_of_what_may_be_large_have_a_bound_and_say_where_they_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "PAGE_BYTES", 5_000)
    settings = settings_for(tmp_path / "catalog.db")
    with unspool.open(settings=settings) as corpus:
        corpus.put(
            *(
                doc(f"{number:02}.md", f"walrus {number}", metadata={"about": "x" * 700})
                for number in range(12)
            )
        )
        history = corpus.history("builds", project="notes")
        for number in range(14):
            history.append(f"{number} " + "word " * (2_000 if number == 7 else 200))
    with (
        serving(settings) as address,
        httpx2.Client(base_url=address, timeout=30) as api,
        unspool.open(address) as client,
    ):
        for path, named, parameter in (
            ("documents", "documents", "after"),
            ("streams/builds", "records", "offset"),
        ):
            pages: list[list[object]] = []
            following: dict[str, object] = {}
            while not pages or following[parameter] is not None:
                answer = api.get(f"/v1/projects/notes/{path}", params=following)
                assert len(answer.content) < 5_500 or len(answer.json()[named]) == 1
                pages.append([one.get("path", one.get("number")) for one in answer.json()[named]])
                following = {parameter: answer.json()["next"]}
            assert len(pages) > 2
            assert [one for page in pages for one in page] == (
                [f"{number:02}.md" for number in range(12)]
                if path == "documents"
                else list(range(14, 0, -1))
            )
        assert [one.number for one in client.history("builds", project="notes").read(13)] == list(
            range(14, 1, -1)
        )
        assert len(client.documents(project="notes")) == 12


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"title": "x" * 1_001}, "1000"),
        ({"url": "x" * 4_097}, "4096"),
        ({"metadata": {str(n): "x" * 70 for n in range(1_000)}}, "65536"),
    ],
)
def test_what_is_kept_beside_a_text_has_a_bound(given: dict[str, object], bound: str) -> None:
    with pytest.raises(ValidationError, match=bound):
        GivenConversation.model_validate(given)
    if "url" not in given:
        with pytest.raises(ValidationError, match=bound):
            GivenDocument.model_validate({"text": "x", **given})
