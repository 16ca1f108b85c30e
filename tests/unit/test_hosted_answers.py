"""Models that answer over a wire: what is sent, what is taken for an answer, when a call is
repeated, how it ends, and what no message ever holds.
"""

from __future__ import annotations

import importlib.util
import shutil
import ssl
import subprocess
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import chats
import wire
from models import needed
from unspool import pacing
from unspool.answering import PROVIDERS, choose_model
from unspool.answering.models import AnswerModel, ChatMessage, ReplyFacts
from unspool.answering.options import AnswerOptions
from unspool.errors import (
    AddressError,
    ConfigError,
    InputError,
    MissingDependencyError,
    RateLimitedError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)

KEY = "sk-very-secret-0123456789"
SYSTEM, QUESTION = "Answer from the passages.", "a secret question about walruses"
MESSAGES = [ChatMessage(role="user", text=QUESTION)]


@pytest.fixture
def server() -> Iterator[wire.WireServer]:
    needed("httpx2", "pip install 'unspool[hosted]'")
    with wire.WireServer() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE_S", 0.001)


@pytest.fixture(params=chats.PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(server: wire.WireServer, provider: str, **options: Any) -> AnswerModel:
    return open_model(f"{provider}:m", **{"url": server.url, "key": KEY, **options})


def open_model(name: str, **options: Any) -> AnswerModel:
    model = choose_model(name, AnswerOptions(**options))
    assert model is not None
    return model


def ask(model: AnswerModel, max_tokens: int = 50) -> Any:
    return model.stream(SYSTEM, MESSAGES, max_tokens=max_tokens)


def all_of(error: BaseException) -> str:
    """Whatever is shown of an error, its causes included."""
    return (
        "".join(traceback.format_exception(error))
        + repr(error)
        + str(error)
        + repr(error.__cause__)
        + repr(error.args)
    )


# What is sent and what comes back


def test_openai_is_asked_as_it_wants_to_be(server: wire.WireServer) -> None:
    server.says = ("One ", "two", " thrée.")
    reply = ask(opened(server, "openai"))
    assert list(reply) == ["One ", "two", " thrée."]
    assert reply.facts == ReplyFacts(
        prompt_tokens=chats.PROMPT_TOKENS, completion_tokens=chats.COMPLETION_TOKENS
    )
    (asked,) = server.asked
    assert (asked.path, asked.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert asked.body == {
        "model": "m",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}],
        "stream": True,
        "max_tokens": 50,
        "stream_options": {"include_usage": True},
    }


def test_anthropic_is_asked_as_it_wants_to_be(server: wire.WireServer) -> None:
    server.says = ("One ", "two", " thrée.")
    reply = ask(opened(server, "anthropic"))
    assert list(reply) == ["One ", "two", " thrée."]
    assert reply.facts == ReplyFacts(
        prompt_tokens=chats.PROMPT_TOKENS, completion_tokens=chats.COMPLETION_TOKENS
    )
    (asked,) = server.asked
    assert (asked.path, asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (
        "/v1/messages",
        KEY,
        "2023-06-01",
    )
    assert "authorization" not in asked.headers
    assert asked.body == {
        "model": "m",
        "system": SYSTEM,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 50,
        "stream": True,
    }


@pytest.mark.parametrize(
    ("provider", "given", "path"),
    [
        ("openai", "/v1", "/v1/chat/completions"),
        ("openai", "/v1/", "/v1/chat/completions"),
        (
            "openai",
            "/openai/deployments/d/chat/completions?api-version=7",
            "/openai/deployments/d/chat/completions",
        ),
        ("anthropic", "", "/v1/messages"),
        ("anthropic", "/", "/v1/messages"),
        ("anthropic", "/v1", "/v1/messages"),
        ("anthropic", "/proxy/v1/messages", "/proxy/v1/messages"),
    ],
)
def test_the_address_may_be_given_in_several_forms(
    server: wire.WireServer, provider: str, given: str, path: str
) -> None:
    assert list(ask(opened(server, provider, url=server.address + given)))
    assert server.asked[0].path == path
    assert server.asked[0].query == given.partition("?")[2]


def test_a_server_that_does_not_stream_is_understood(
    server: wire.WireServer, provider: str
) -> None:
    server.script(lambda asked: wire.Answer(body=chats.whole(asked, "All at once [1].")))
    reply = ask(opened(server, provider))
    assert "".join(reply) == "All at once [1]."
    assert reply.facts.prompt_tokens == chats.PROMPT_TOKENS


def test_events_come_in_however_the_network_cuts_them(
    server: wire.WireServer, provider: str
) -> None:
    def byte_by_byte(asked: wire.Asked) -> wire.Answer:
        data = b"".join(chats.stream(asked, ["Ünd ", "so\u2028fort."]))
        return wire.Answer(pieces=[data[place : place + 1] for place in range(len(data))])

    server.script(byte_by_byte)
    assert "".join(ask(opened(server, provider))) == "Ünd so\u2028fort."


def test_no_key_is_sent_where_there_is_none(server: wire.WireServer, provider: str) -> None:
    assert list(ask(opened(server, provider, key="")))
    assert not {"authorization", "x-api-key", "api-key"} & set(server.asked[0].headers)


@pytest.mark.parametrize(
    ("provider", "reason", "hint"),
    [
        ("openai", "length", "UNSPOOL_ANSWER_MAX_TOKENS"),
        ("openai", "content_filter", "provider stopped"),
        ("anthropic", "max_tokens", "UNSPOOL_ANSWER_MAX_TOKENS"),
        ("anthropic", "refusal", "provider stopped"),
    ],
)
def test_an_answer_that_was_cut_says_why(
    server: wire.WireServer, provider: str, reason: str, hint: str
) -> None:
    server.script(chats.ending(reason))
    reply = ask(opened(server, provider))
    assert "".join(reply) == "So far [1]."
    assert hint in reply.facts.cut


def test_a_server_that_knows_no_usage_or_only_the_other_name_for_the_length_is_asked_again(
    server: wire.WireServer,
) -> None:
    def picky(asked: wire.Asked) -> wire.Answer:
        if "stream_options" in asked.body:
            return wire.error(
                400, code="unknown_parameter", message="stream_options: extra fields not permitted"
            )
        if "max_tokens" in asked.body:
            return wire.error(
                400,
                code="unsupported_parameter",
                message="'max_tokens' is not supported; use 'max_completion_tokens'",
            )
        return server.proper(asked)

    server.always = picky
    model = opened(server, "openai")
    assert "".join(ask(model)) == "It is so [1]."
    assert len(server.asked) == 3 and server.asked[-1].body["max_completion_tokens"] == 50
    assert "".join(ask(model)) == "It is so [1]."
    assert len(server.asked) == 4  # it has learnt


# Calls that are repeated


@pytest.mark.parametrize(
    "reply",
    [
        wire.failing(429, Retry_After="0"),
        wire.failing(429, retry_after_ms="5"),
        wire.failing(429),
        wire.failing(408),
        wire.failing(500),
        wire.failing(503, Retry_After="0"),
        wire.failing(529),
        wire.reset,
        chats.broken(),
        chats.failing_inside("overloaded_error", "busy"),
    ],
    ids="seconds milliseconds unsaid 408 500 503 529 reset broken overloaded".split(),
)
def test_a_call_that_may_succeed_later_is_repeated(
    server: wire.WireServer, provider: str, reply: wire.Reply
) -> None:
    server.script(reply, reply)
    assert "".join(ask(opened(server, provider))) == "It is so [1]."
    assert len(server.asked) == 3
    assert server.asked[0].body == server.asked[2].body


def test_what_has_begun_is_never_begun_again(server: wire.WireServer, provider: str) -> None:
    server.script(chats.broken("It ", "is "))
    reply = ask(opened(server, provider))
    assert [next(reply), next(reply)] == ["It ", "is "]
    with pytest.raises(UnreachableError, match="broke off"):
        next(reply)
    assert len(server.asked) == 1


def test_there_is_an_end_to_it(server: wire.WireServer, provider: str) -> None:
    server.always = wire.failing(503)
    with pytest.raises(UnreachableError, match="not well"):
        list(ask(opened(server, provider, retries=2)))
    assert len(server.asked) == 3


def test_a_server_that_asks_for_long_is_not_waited_for(
    server: wire.WireServer, provider: str
) -> None:
    server.script(wire.failing(429, Retry_After="3600"))
    with pytest.raises(RateLimitedError) as raised:
        list(ask(opened(server, provider)))
    assert raised.value.retry_after == 3600
    assert len(server.asked) == 1


def test_a_wait_for_the_next_attempt_ends_when_the_reply_is_closed(
    server: wire.WireServer, provider: str
) -> None:
    server.always = wire.failing(429, Retry_After="25")
    reply = ask(opened(server, provider))
    ended = _in_another_thread(reply)
    _until(lambda: bool(server.asked))
    reply.close()
    assert ended.wait(wire.WAIT_S)
    assert len(server.asked) == 1


# Errors


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, InputError, "UNSPOOL_ANSWER_CONTEXT_TOKENS"),
        (401, RejectedError, "UNSPOOL_ANSWER_KEY"),
        (402, RejectedError, "UNSPOOL_ANSWER_KEY"),
        (403, RejectedError, "UNSPOOL_ANSWER_KEY"),
        (404, RejectedError, "UNSPOOL_ANSWER_MODEL or UNSPOOL_ANSWER_URL"),
        (301, RejectedError, "UNSPOOL_ANSWER_URL"),
        (408, ServiceTimeoutError, "try again"),
        (413, InputError, "UNSPOOL_ANSWER_CONTEXT_TOKENS"),
        (429, RateLimitedError, "ask again later"),
        (500, UnreachableError, "try again later"),
    ],
)
def test_each_status_has_its_error(
    server: wire.WireServer, provider: str, status: int, kind: type[UnspoolError], hint: str
) -> None:
    server.always = wire.failing(status, Location=server.address + "/elsewhere")
    with pytest.raises(kind, match=hint) as raised:
        list(ask(opened(server, provider, retries=0)))
    assert "UNSPOOL_EMBEDDER" not in str(raised.value)
    assert {one.path for one in server.asked} == {server.asked[0].path}


@pytest.mark.parametrize(
    "reply",
    [
        chats.unfinished,
        chats.garbled,
        wire.saying([1]),
        wire.saying(b"<html>"),
        lambda asked: wire.Answer(
            body=b"[" * 200_000, headers={"Content-Type": "application/json"}
        ),
        lambda asked: wire.Answer(pieces=[b"data: " + b'{"a":' * 150_000 + b"\n\n"]),
    ],
    ids="unfinished garbled list html nested nested-event".split(),
)
def test_what_is_no_answer_is_an_error(
    server: wire.WireServer, provider: str, reply: wire.Reply
) -> None:
    server.script(reply)
    with pytest.raises(ServiceError, match="check that server"):
        list(ask(opened(server, provider)))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"delta": {"content": 7}}]},
        {"choices": [7]},
        {"choices": 7},
        {"choices": {"delta": {"content": "a"}}},
        {"type": {"a": 1}, "choices": [{"delta": {"content": {"a": 1}}}]},
        {"type": "content_block_delta", "delta": {"type": "text_delta"}},
        {"choices": [{"delta": {"content": None}, "finish_reason": None}]},
    ],
)
def test_pieces_without_text_are_an_error_or_nothing_at_all(
    server: wire.WireServer, provider: str, body: dict[str, Any]
) -> None:
    server.script(lambda asked: wire.Answer(pieces=[chats.event(body)]))
    with pytest.raises(ServiceError):
        list(ask(opened(server, provider)))


@pytest.mark.parametrize("reason", [["stop"], {"type": "stop"}, 7, True])
def test_a_reason_for_the_end_that_is_no_word_says_nothing(
    server: wire.WireServer, provider: str, reason: Any
) -> None:
    server.script(
        lambda asked: wire.Answer(pieces=list(chats.stream(asked, ["It is so."], reason=reason)))
    )
    reply = ask(opened(server, provider))
    assert list(reply) == ["It is so."]
    assert reply.facts.cut == ""


def test_a_whole_answer_without_blocks_holds_no_text(server: wire.WireServer) -> None:
    server.script(wire.saying({"type": "message", "content": 7}))
    assert "".join(ask(opened(server, "anthropic"))) == ""


def test_an_error_that_goes_on_and_on_is_read_in_part(
    server: wire.WireServer, provider: str
) -> None:
    given = 0

    def endless() -> Iterator[bytes]:
        nonlocal given
        yield b'{"error": {"code": "'
        while True:
            given += 1
            yield b"x" * 65_536

    server.script(
        lambda asked: wire.Answer(
            status=400, pieces=endless(), headers={"Content-Type": "application/json"}
        )
    )
    with pytest.raises(InputError, match="400"):
        list(ask(opened(server, provider, timeout_s=5)))
    assert given < 1_000  # what fits into the buffers on the way; the rest is never sent


def test_an_error_that_is_nested_without_end_has_no_reason(
    server: wire.WireServer, provider: str
) -> None:
    server.script(
        lambda asked: wire.Answer(
            status=400, body=b"[" * 50_000, headers={"Content-Type": "application/json"}
        )
    )
    with pytest.raises(InputError, match=r"\(400\)"):
        list(ask(opened(server, provider)))


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_no_error_holds_the_key_or_what_was_sent(
    server: wire.WireServer, provider: str, status: int
) -> None:
    server.always = lambda asked: wire.error(
        status, code=KEY, message=f"{asked.headers} {asked.body} {KEY}"
    )
    with pytest.raises(UnspoolError) as raised:
        list(ask(opened(server, provider, retries=0)))
    assert KEY not in all_of(raised.value) and "walrus" not in all_of(raised.value)
    server.always = chats.failing_inside("api_error", f"{KEY} {QUESTION}")
    with pytest.raises(UnspoolError) as raised:
        list(ask(opened(server, provider, retries=0)))
    assert KEY not in all_of(raised.value) and "walrus" not in all_of(raised.value)


def test_a_server_that_is_not_there_cannot_be_reached(provider: str) -> None:
    needed("httpx2", "pip install 'unspool[hosted]'")
    with wire.WireServer() as gone:
        url = gone.url
    model = open_model(f"{provider}:m", url=url, key=KEY, retries=0)
    with pytest.raises(UnreachableError, match="UNSPOOL_ANSWER_URL"):
        list(ask(model))


# Time and ends


def test_an_answer_that_dribbles_on_ends_when_its_time_is_over(
    server: wire.WireServer, provider: str
) -> None:
    gone = threading.Event()
    server.script(chats.dribbling(gone))
    reply = ask(opened(server, provider, timeout_s=1, retries=0))
    with pytest.raises(ServiceTimeoutError, match="UNSPOOL_ANSWER_TIMEOUT_S"):
        list(reply)
    assert gone.wait(wire.WAIT_S)


def test_a_server_that_says_nothing_is_not_waited_for_longer_than_that(
    server: wire.WireServer, provider: str
) -> None:
    free = threading.Event()
    server.always = server.later(free)
    with pytest.raises(ServiceTimeoutError, match="in time"):
        list(ask(opened(server, provider, timeout_s=1, retries=0)))
    free.set()


def _in_another_thread(reply: Any) -> threading.Event:
    """Read a reply to its end elsewhere; the event is set when that has ended, however."""
    ended = threading.Event()

    def read() -> None:
        try:
            list(reply)
        except Exception:  # noqa: BLE001 - that it ends is what matters
            pass
        finally:
            ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


def _until(holds: Any) -> None:
    waiting = threading.Event()
    for _ in range(int(wire.WAIT_S / 0.01)):
        if holds():
            return
        waiting.wait(0.01)
    pytest.fail("it did not happen")


def test_closing_ends_the_request_at_once_and_the_server_sees_it(
    server: wire.WireServer, provider: str
) -> None:
    gone = threading.Event()
    server.script(chats.hanging(gone, "It is "))
    reply = ask(opened(server, provider))
    assert next(reply) == "It is "
    reply.close()
    assert gone.wait(wire.WAIT_S)
    assert list(reply) == []


def test_closing_from_another_thread_wakes_whoever_waits_for_a_piece(
    server: wire.WireServer, provider: str
) -> None:
    gone = threading.Event()
    server.script(chats.hanging(gone, "It is "))
    reply = ask(opened(server, provider, timeout_s=600))
    assert next(reply) == "It is "
    ended = _in_another_thread(reply)
    reply.close()
    assert ended.wait(wire.WAIT_S) and gone.wait(wire.WAIT_S)
    assert len(server.asked) == 1


def test_closing_wakes_whoever_waits_for_the_first_word(
    server: wire.WireServer, provider: str
) -> None:
    free = threading.Event()
    server.always = server.later(free)
    reply = ask(opened(server, provider, timeout_s=600))
    ended = _in_another_thread(reply)
    _until(lambda: bool(server.asked))
    reply.close()
    assert ended.wait(wire.WAIT_S)
    free.set()
    assert len(server.asked) == 1


def test_closing_wakes_whoever_waits_behind_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """As at every provider: closing has to reach the socket below."""
    needed("httpx2", "pip install 'unspool[hosted]'")
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no program openssl to make a certificate; install it")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            key,
            "-out",
            certificate,
            *subject,
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    gone = threading.Event()
    with wire.WireServer(tls=context) as server:
        server.script(chats.hanging(gone, "It is "))
        reply = ask(opened(server, provider, timeout_s=600))
        assert next(reply) == "It is "
        ended = _in_another_thread(reply)
        reply.close()
        assert ended.wait(wire.WAIT_S) and gone.wait(wire.WAIT_S)


# By name


def test_an_unknown_provider_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(ConfigError, match="did you mean 'anthropic'") as raised:
        choose_model("antropic:x", AnswerOptions())
    assert all(name in str(raised.value) for name in PROVIDERS)
    with pytest.raises(ConfigError, match="UNSPOOL_ANSWER_MODEL"):
        choose_model("gpt-5", AnswerOptions())


def test_a_model_and_a_key_are_needed(provider: str) -> None:
    needed("httpx2", "pip install 'unspool[hosted]'")
    with pytest.raises(ConfigError, match=f"UNSPOOL_ANSWER_MODEL={provider}:"):
        choose_model(f"{provider}:", AnswerOptions(key=KEY))
    with pytest.raises(ConfigError, match="UNSPOOL_ANSWER_KEY"):
        choose_model(f"{provider}:m", AnswerOptions())
    with pytest.raises(AddressError, match="UNSPOOL_ANSWER_URL"):
        choose_model(f"{provider}:m", AnswerOptions(url="localhost:11434", key=KEY))
    with pytest.raises(ConfigError, match="UNSPOOL_ANSWER_KEY") as raised:
        choose_model(f"{provider}:m", AnswerOptions(url="http://localhost", key=KEY + "\n"))
    assert KEY not in all_of(raised.value)


def test_a_model_of_ones_own_needs_a_name_and_a_stream() -> None:
    class Mine:
        name = "mine"

        def stream(self, system: str, messages: Any, *, max_tokens: int) -> Iterator[str]:
            yield "yes"

    mine = Mine()
    assert choose_model(mine, AnswerOptions()) is mine
    with pytest.raises(InputError, match="int"):
        choose_model(7, AnswerOptions())


def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError) as raised:
        # options that nobody else has, for nothing that was opened before
        choose_model(f"{provider}:missing", AnswerOptions(retries=77))
    assert "pip install 'unspool[hosted]'" in str(raised.value) and "httpx2" in str(raised.value)


def test_several_threads_ask_one_model_and_each_gets_its_own_answer(
    server: wire.WireServer, provider: str
) -> None:
    server.always = lambda asked: wire.Answer(
        pieces=list(chats.stream(asked, [f"about {chats.user_of(asked)}", " and no other"]))
    )
    model = opened(server, provider)

    def one(number: int) -> str:
        return "".join(
            model.stream(SYSTEM, [ChatMessage(role="user", text=f"walrus {number}")], max_tokens=9)
        )

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(40))) == [
            f"about walrus {number} and no other" for number in range(40)
        ]
