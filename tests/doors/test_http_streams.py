"""Answers and jobs as events: piece by piece, ended by whoever goes away, and by a service that
stops.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import httpx2
import pytest

import chats
import unspool
import wire
from services import events, serving
from support import doc, settings_for
from unspool.interfaces.http import service
from unspool.jobs import JobQueue

QUESTION = {"question": "What do tomatoes want?", "projects": ["notes"]}


@pytest.fixture
def model() -> Iterator[wire.WireServer]:
    with wire.WireServer() as opened:
        yield opened


@pytest.fixture
def settings(tmp_path: Path, model: wire.WireServer) -> unspool.Settings:
    made = settings_for(
        tmp_path / "catalog.db",
        answer_model="anthropic:m",
        answer_url=model.url,
        answer_timeout_s=600,
        answer_retries=0,
    )
    with unspool.open(settings=made) as corpus:
        corpus.put(doc("a.md", "tomatoes want sun"))
    return made


@pytest.fixture
def api(settings: unspool.Settings) -> Iterator[httpx2.Client]:
    with (
        serving(settings) as address,
        httpx2.Client(base_url=address, timeout=wire.WAIT_S) as client,
    ):
        yield client


def test_an_answer_comes_whole_or_piece_by_piece(
    api: httpx2.Client, model: wire.WireServer
) -> None:
    model.says = ("Sun ", "[1].")
    whole = api.post("/v1/ask", json=QUESTION).json()
    assert (whole["text"], whole["citations"][0]["path"]) == ("Sun [1].", "a.md")
    with api.stream("POST", "/v1/ask", json={**QUESTION, "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"]
        *pieces, (name, last) = events(answer)
    assert {name for name, _ in pieces} == {"text"}
    assert "".join(piece["text"] for _, piece in pieces) == "Sun [1]."
    assert name == "answer"
    # what the model is shown has a mark in it that nobody can guess
    assert {**last, "usage": None} == {**whole, "usage": None}


def test_what_goes_wrong_before_and_within_a_stream(
    api: httpx2.Client, model: wire.WireServer
) -> None:
    before = api.post("/v1/ask", json={**QUESTION, "projects": ["nobody"], "stream": True})
    assert (before.status_code, before.json()["error"]["code"]) == (404, "not_found")
    model.script(lambda asked: wire.Answer(pieces=list(chats.begin(asked)), is_reset=True))
    with api.stream(
        "POST", "/v1/ask", json={**QUESTION, "stream": True}, headers={"X-Request-ID": "mine"}
    ) as answer:
        ((name, told),) = list(events(answer))
    assert name == "error"
    assert told["error"]["request_id"] == "mine"
    assert told["error"]["code"] in ("unreachable", "service")


@pytest.mark.parametrize("stream", [True, False])
def test_whoever_goes_away_ends_the_call_of_the_model(
    api: httpx2.Client, model: wire.WireServer, stream: bool
) -> None:
    gone, asked = threading.Event(), threading.Event()

    def reply(question: wire.Asked) -> wire.Answer:
        answer = chats.hanging(gone, "Sun")(question)

        def pieces() -> Iterator[bytes]:
            yield from answer.pieces or ()
            asked.set()

        return replace(answer, pieces=pieces())

    model.script(reply)
    if stream:
        with api.stream("POST", "/v1/ask", json={**QUESTION, "stream": True}) as answer:
            assert next(events(answer))[0] == "text"
    else:
        connection = HTTPConnection(api.base_url.host, api.base_url.port)
        connection.request(
            "POST", "/v1/ask", json.dumps(QUESTION), {"Content-Type": "application/json"}
        )
        assert asked.wait(wire.WAIT_S)
        connection.close()
    assert gone.wait(wire.WAIT_S)


def test_a_request_that_takes_too_long_ends_the_call_of_the_model(
    settings: unspool.Settings, model: wire.WireServer
) -> None:
    gone = threading.Event()
    model.script(chats.hanging(gone, "Sun"), chats.hanging(threading.Event(), "Sun"))
    with serving(settings, serve_timeout_s=1) as address:
        late = httpx2.post(f"{address}/v1/ask", json=QUESTION, timeout=wire.WAIT_S)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "overdue")
        assert gone.wait(wire.WAIT_S)
        with (
            httpx2.stream(
                "POST", f"{address}/v1/ask", json={**QUESTION, "stream": True}, timeout=1.5
            ) as answer,
            pytest.raises(httpx2.ReadTimeout),
        ):
            list(events(answer))  # a stream is not given up


def test_slow_answers_leave_searches_alone(api: httpx2.Client, model: wire.WireServer) -> None:
    gone = [threading.Event() for _ in range(service.SEARCHES_AT_ONCE + 4)]
    model.script(*(chats.hanging(one, "Sun") for one in gone))
    with ExitStack() as open_:
        for _ in gone:
            answer = open_.enter_context(
                api.stream("POST", "/v1/ask", json={**QUESTION, "stream": True})
            )
            assert next(events(answer))[0] == "text"
        assert (
            api.post("/v1/search", json={"query": "tomatoes", "projects": ["notes"]}).status_code
            == 200
        )
    assert all(one.wait(wire.WAIT_S) for one in gone)


@pytest.mark.parametrize(
    "reply", [lambda gone: chats.hanging(gone, "Sun"), chats.dribbling], ids=["hangs", "writes on"]
)
def test_a_service_that_stops_ends_streams_at_once(
    settings: unspool.Settings,
    model: wire.WireServer,
    reply: Callable[[threading.Event], wire.Reply],
) -> None:
    gone, begun = threading.Event(), threading.Event()
    model.script(reply(gone))
    with ThreadPoolExecutor(1) as pool:
        with serving(settings, serve_drain_s=600) as address:
            heard = pool.submit(_heard, f"{address}/v1/ask", begun)
            assert begun.wait(wire.WAIT_S)
        *pieces, last = heard.result(wire.WAIT_S)
    assert ({*pieces}, last) == ({"text"}, "error")
    assert gone.wait(wire.WAIT_S)


def test_a_job_can_be_watched_for_longer_than_a_request_may_take(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "catalog.db")
    end = threading.Event()
    with unspool.open(settings=settings) as corpus, JobQueue(corpus) as jobs, ExitStack() as held:
        held.callback(end.set)

        def work(_: object) -> unspool.IndexReport:
            end.wait(wire.WAIT_S)
            return corpus.put(doc("a.md", "walrus"))

        job = jobs.start("notes", "/somewhere", work)
        address = held.enter_context(serving(settings, serve_timeout_s=1))
        with httpx2.stream(
            "GET", f"{address}/v1/jobs/{job.id}/events", timeout=wire.WAIT_S
        ) as answer:
            coming = events(answer)
            assert next(coming)[0] == "progress"
            time.sleep(1.5)
            end.set()
            assert [name for name, _ in coming][-1] == "done"


def _heard(address: str, begun: threading.Event) -> list[str]:
    names = []
    with httpx2.stream(
        "POST", address, json={**QUESTION, "stream": True}, timeout=wire.WAIT_S
    ) as answer:
        for name, _ in events(answer):
            names.append(name)
            begun.set()
    return names
