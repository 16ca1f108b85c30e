"""Hosted models over a wire: what is sent, what is taken for an answer, when a call is repeated,
and what no message ever holds.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest

import wire
from models import needed
from unspool import pacing
from unspool.embedders import open_embedder
from unspool.embedders.model import ModelEmbedder
from unspool.embedders.options import EmbedderOptions, OverLimit
from unspool.errors import (
    AddressError,
    ConfigError,
    InputError,
    RateLimitedError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)
from unspool.settings import Settings
from unspool.settings.masking import MASK

KEY = "sk-very-secret-0123456789"
TEXT = "the walrus sleeps"
TEXTS = [f"text number {number} of twelve" for number in range(12)]
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def server() -> Iterator[wire.WireServer]:
    needed("httpx2", "pip install 'unspool[hosted]'")
    with wire.WireServer() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE_S", 0.001)


def opened(server: wire.WireServer, model: str = "openai:m", **options: Any) -> ModelEmbedder:
    made = open_embedder(model, EmbedderOptions(**{"url": server.url, "key": KEY, **options}))
    assert isinstance(made, ModelEmbedder)
    return made


class Unhurried(pacing.Backoff):
    """Waits by its own clock, whatever else could end the wait."""

    def wait(self, tokens: int, *, sleep: Callable[[float], object] | None = None) -> None:
        super().wait(tokens)


def timed(embedder: ModelEmbedder, **rates: int) -> wire.Clock:
    """Have an embedder wait by a clock that costs no time."""
    clock = wire.Clock()
    embedder._backoff = Unhurried(clock=clock, sleep=clock.sleep, **rates)
    return clock


def all_of(error: BaseException) -> str:
    """Whatever is shown of an error, its causes included."""
    return (
        "".join(traceback.format_exception(error))
        + repr(error)
        + str(error)
        + repr(error.__cause__)
        + repr(error.args)
    )


# Calls that are repeated


@pytest.mark.parametrize(
    "reply",
    [
        wire.failing(429, Retry_After="0"),
        wire.failing(429, Retry_After="0.01"),
        wire.failing(
            429, Retry_After=format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)
        ),
        wire.failing(429, retry_after_ms="5"),
        wire.failing(429),
        wire.failing(429, Retry_After="soon"),
        wire.failing(408),
        wire.failing(500),
        wire.failing(502),
        wire.failing(503),
        wire.failing(529),
        wire.reset,
    ],
    ids="seconds parts-of-a-second date milliseconds unsaid unreadable 408 500 502 503 529 reset".split(),
)
def test_a_call_that_may_succeed_later_is_repeated(
    server: wire.WireServer, reply: wire.Reply
) -> None:
    server.script(reply, reply)
    np.testing.assert_allclose(opened(server).embed_query(TEXT), wire.vectors([TEXT])[0], atol=1e-6)
    assert len(server.asked) == 3
    assert server.asked[0] == server.asked[2]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [({"Retry_After": "7"}, 7.0), ({"retry_after_ms": "1500"}, 1.5), ({"Retry_After": "2.5"}, 2.5)],
)
def test_the_wait_is_as_long_as_the_server_asks_for(
    server: wire.WireServer, header: dict[str, str], seconds: float
) -> None:
    embedder = opened(server)
    clock = timed(embedder)
    server.script(wire.failing(429, **header))
    embedder.embed_query(TEXT)
    assert clock.waits == [pytest.approx(seconds)]


def test_a_date_is_waited_for(server: wire.WireServer) -> None:
    embedder = opened(server)
    clock = timed(embedder)
    server.script(
        wire.failing(
            429, Retry_After=format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
        )
    )
    embedder.embed_passages([TEXT])
    assert 30 < clock.waits[0] <= 60


@pytest.mark.parametrize(
    "after",
    ["3600", format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)],
    ids=["seconds", "date"],
)
def test_a_wait_that_is_too_long_is_left_to_the_caller(server: wire.WireServer, after: str) -> None:
    server.script(wire.failing(429, Retry_After=after))
    with pytest.raises(RateLimitedError) as raised:
        opened(server).embed_query(TEXT)
    assert raised.value.retry_after is not None
    assert raised.value.retry_after > pacing.LONGEST_WAIT_S
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (wire.failing(429, Retry_After="0"), RateLimitedError),
        (wire.failing(503), UnreachableError),
        (wire.reset, UnreachableError),
    ],
    ids=["limited", "unwell", "reset"],
)
def test_it_is_given_up_after_so_many_repetitions(
    server: wire.WireServer, reply: wire.Reply, kind: type[UnspoolError]
) -> None:
    server.always = reply
    with pytest.raises(kind, match="openai:m"):
        opened(server, retries=3).embed_passages([TEXT])
    assert len(server.asked) == 4


def test_a_query_which_somebody_waits_for_is_given_up_sooner(server: wire.WireServer) -> None:
    server.always = wire.failing(503)
    with pytest.raises(UnreachableError):
        opened(server, retries=20).embed_query(TEXT)
    assert len(server.asked) == 3
    server.always = wire.failing(429, Retry_After="30")
    with pytest.raises(RateLimitedError):
        opened(server, retries=20).embed_query(TEXT)
    assert len(server.asked) == 4


def test_nothing_is_repeated_where_nothing_may_be(server: wire.WireServer) -> None:
    server.always = wire.failing(503)
    with pytest.raises(UnreachableError):
        opened(server, retries=0).embed_query(TEXT)
    assert len(server.asked) == 1


def test_pauses_grow_and_end_somewhere(
    server: wire.WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE_S", 1.0)
    embedder = opened(server, retries=8)
    clock = timed(embedder)
    server.always = wire.failing(500)
    with pytest.raises(UnreachableError):
        embedder.embed_passages([TEXT])
    longest = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert len(clock.waits) == len(longest)
    assert all(
        most / 2 <= wait <= most + 1e-6 for wait, most in zip(clock.waits, longest, strict=True)
    )


def test_one_failed_batch_does_not_repeat_the_others(server: wire.WireServer) -> None:
    server.script(wire.failing(500))
    rows = opened(server, batch=3).embed_passages(TEXTS)
    np.testing.assert_allclose(rows, wire.vectors(TEXTS), atol=1e-6)
    assert len(server.asked) == 5


def test_an_answer_that_does_not_come_in_time_is_not_waited_for(server: wire.WireServer) -> None:
    never = threading.Event()
    server.always = server.later(never)
    with pytest.raises(ServiceTimeoutError, match="UNSPOOL_EMBEDDER_TIMEOUT_S"):
        opened(server, timeout_s=0.2, retries=0).embed_query(TEXT)
    never.set()


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for_either(
    server: wire.WireServer,
) -> None:
    enough = threading.Event()
    server.always = lambda asked: wire.Answer(body=server.proper(asked).body, until=enough)
    with pytest.raises(ServiceTimeoutError, match="UNSPOOL_EMBEDDER_TIMEOUT_S"):
        opened(server, timeout_s=0.3, retries=0).embed_query(TEXT)
    enough.set()


def test_an_answer_that_does_not_come_in_time_is_asked_for_again(server: wire.WireServer) -> None:
    never = threading.Event()
    server.script(server.later(never))
    np.testing.assert_allclose(
        opened(server, timeout_s=2, retries=1).embed_query(TEXT), wire.vectors([TEXT])[0], atol=1e-6
    )
    never.set()


def test_a_server_that_is_not_there_is_named() -> None:
    with wire.WireServer() as gone:
        address = gone.address
    embedder = open_embedder("openai:m", EmbedderOptions(url=address, retries=1))
    with pytest.raises(UnreachableError, match=address):
        embedder.embed_query(TEXT)


def test_calls_are_no_more_frequent_than_allowed(server: wire.WireServer) -> None:
    embedder = opened(server, batch=1, concurrency=1)
    clock = timed(embedder, requests_per_minute=120)
    embedder.embed_passages(TEXTS)
    assert sum(clock.waits) == pytest.approx(11 * 0.5)


def test_tokens_are_no_more_than_allowed(server: wire.WireServer) -> None:
    embedder = opened(server, batch=1, concurrency=1)
    clock = timed(embedder, tokens_per_minute=60)
    embedder.embed_passages([TEXT, TEXT, TEXT])
    assert sum(clock.waits) == pytest.approx(2 * embedder.count_tokens(TEXT))


# Answers that are final


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (wire.failing(401, code="invalid_api_key"), RejectedError),
        (wire.failing(403), RejectedError),
        (wire.failing(402), RejectedError),
        (wire.failing(404, code="model_not_found"), RejectedError),
        (wire.failing(405), RejectedError),
        (wire.failing(429, code="insufficient_quota", Retry_After="0"), RejectedError),
        (wire.failing(400), InputError),
        (wire.failing(413), InputError),
        (wire.failing(422), InputError),
        (wire.saying(b"<html>welcome</html>"), ServiceError),
        (wire.saying(b""), ServiceError),
        (wire.saying(b"\xff\xfe"), ServiceError),
    ],
    ids="401 403 402 404 405 quota 400 413 422 html nothing bytes".split(),
)
def test_what_will_not_change_is_not_asked_for_again(
    server: wire.WireServer, reply: wire.Reply, kind: type[UnspoolError]
) -> None:
    server.always = reply
    # what others may read names no address
    where = "refused" if kind is InputError else r"at http://127\.0\.0\.1"
    with pytest.raises(kind, match=f"openai:m {where}") as raised:
        opened(server).embed_query(TEXT)
    assert not raised.value.retryable
    assert len(server.asked) == 1


def test_a_word_for_what_is_wrong_is_passed_on(server: wire.WireServer) -> None:
    server.always = wire.failing(400, code="context_length_exceeded")
    with pytest.raises(InputError, match="context_length_exceeded"):
        opened(server).embed_query(TEXT)


def test_a_redirection_is_not_followed_with_the_key(server: wire.WireServer) -> None:
    with wire.WireServer() as elsewhere:
        server.always = wire.failing(307, Location=f"{elsewhere.url}/embeddings")
        with pytest.raises(RejectedError, match="UNSPOOL_EMBEDDER_URL"):
            opened(server).embed_query(TEXT)
        assert elsewhere.asked == []


def test_an_error_in_one_of_several_batches_ends_them_all(server: wire.WireServer) -> None:
    server.always = wire.failing(400)
    with pytest.raises(InputError):
        opened(server, batch=1, concurrency=2).embed_passages(TEXTS)
    assert len(server.asked) < len(TEXTS)


def test_a_batch_that_waits_for_its_turn_is_not_waited_for_when_another_has_failed_for_good(
    server: wire.WireServer,
) -> None:
    """Otherwise the error would come a minute later, and the server be called once more."""
    both, told = threading.Event(), threading.Event()

    def limited(asked: wire.Asked) -> wire.Answer:
        both.wait(wire.WAIT_S)  # otherwise the other one might not even be sent
        told.set()
        return wire.error(429, headers={"Retry-After": "60"})

    def refused(asked: wire.Asked) -> wire.Answer:
        both.set()
        told.wait(wire.WAIT_S)
        return wire.error(400)

    server.script(limited, refused)
    with pytest.raises(InputError):
        opened(server, batch=6, concurrency=2).embed_passages(TEXTS)
    assert len(server.asked) == 2


# Answers that are none


def rows_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = body["data"]
    return rows


BROKEN: dict[str, Change] = {
    "too few": lambda body: rows_of(body).pop(),
    "too many": lambda body: rows_of(body).append(
        {"index": 3, "embedding": [1.0] * wire.DIMENSION}
    ),
    "an index twice": lambda body: rows_of(body)[0].update(index=1),
    "an index too high": lambda body: rows_of(body)[0].update(index=9),
    "an index below": lambda body: rows_of(body)[0].update(index=-1),
    "an index that is none": lambda body: rows_of(body)[0].update(index=None),
    "an index as text": lambda body: rows_of(body)[0].update(index="0"),
    "null": lambda body: rows_of(body)[1].update(embedding=[None, *[1.0] * (wire.DIMENSION - 1)]),
    "not a number": lambda body: rows_of(body)[1].update(embedding=[float("nan")] * wire.DIMENSION),
    "infinite": lambda body: rows_of(body)[1].update(
        embedding=[float("inf"), *[1.0] * (wire.DIMENSION - 1)]
    ),
    "infinite in base64": lambda body: rows_of(body)[1].update(
        embedding=wire.encoded(np.full(wire.DIMENSION, np.inf, dtype=np.float32))
    ),
    "a number without end": lambda body: rows_of(body)[1].update(
        embedding=[10**400] * wire.DIMENSION
    ),
    "zeros": lambda body: rows_of(body)[1].update(embedding=[0.0] * wire.DIMENSION),
    "one shorter": lambda body: rows_of(body)[1].update(embedding=[1.0] * (wire.DIMENSION - 1)),
    "all shorter": lambda body: [one.update(embedding=[1.0, 2.0]) for one in rows_of(body)],
    "all empty": lambda body: [one.update(embedding=[]) for one in rows_of(body)],
    "empty text": lambda body: [one.update(embedding="") for one in rows_of(body)],
    "words": lambda body: rows_of(body)[1].update(embedding=["one", "two"]),
    "lists in lists": lambda body: [
        one.update(embedding=[[1.0] * wire.DIMENSION]) for one in rows_of(body)
    ],
    "no base64": lambda body: rows_of(body)[1].update(embedding="$$$"),
    "part of a number": lambda body: rows_of(body)[1].update(embedding="AAAA"),
    "none": lambda body: rows_of(body)[1].pop("embedding"),
    "another form": lambda body: (body.clear(), body.update(vectors=[[1.0]])),
    "no rows": lambda body: body.update(data=[1, 2, 3]),
    "no list": lambda body: body.update(data="many"),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_vectors_that_cannot_be_right_are_refused_with_the_provider_named(
    server: wire.WireServer, change: Change
) -> None:
    server.always = server.changed(change)
    with pytest.raises(ServiceError, match="openai:m") as raised:
        opened(server, dimension=wire.DIMENSION).embed_passages(TEXTS[:3])
    assert type(raised.value) is ServiceError
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [[], None, 7, "text"], ids=["list", "null", "number", "text"])
def test_json_that_is_no_answer_is_refused(server: wire.WireServer, body: object) -> None:
    server.always = wire.saying(body)
    with pytest.raises(ServiceError, match="without vectors"):
        opened(server).embed_query(TEXT)


def test_another_dimension_than_before_is_refused(server: wire.WireServer) -> None:
    embedder = opened(server)
    embedder.embed_query(TEXT)
    server.dimension = 24
    with pytest.raises(ServiceError, match="24 numbers, not 48"):
        embedder.embed_query(TEXT)


def test_rows_in_another_order_are_put_back_by_their_indexes(server: wire.WireServer) -> None:
    server.always = server.changed(lambda body: rows_of(body).reverse())
    np.testing.assert_allclose(opened(server).embed_passages(TEXTS), wire.vectors(TEXTS), atol=1e-6)


def test_rows_without_indexes_are_taken_in_the_order_given(server: wire.WireServer) -> None:
    server.always = server.changed(lambda body: [one.pop("index") for one in rows_of(body)])
    np.testing.assert_allclose(opened(server).embed_passages(TEXTS), wire.vectors(TEXTS), atol=1e-6)


@pytest.mark.parametrize("model", ["openai:m", "openai:text-embedding-3-small"])
def test_vectors_of_any_length_come_out_with_length_1(server: wire.WireServer, model: str) -> None:
    server.always = server.changed(
        lambda body: [one.update(embedding=[3.0, 4.0] + [0.0] * 46) for one in rows_of(body)]
    )
    row = opened(server, model, dimension=wire.DIMENSION).embed_query(TEXT)
    np.testing.assert_allclose(row[:3], [0.6, 0.8, 0.0], atol=1e-6)


# What is sent


def test_vectors_are_asked_for_in_base64(server: wire.WireServer) -> None:
    opened(server).embed_passages([TEXT])
    assert server.asked[0].path == "/v1/embeddings"
    assert server.asked[0].body == {"model": "m", "input": [TEXT], "encoding_format": "base64"}


def test_decimals_are_taken_where_base64_was_asked_for(server: wire.WireServer) -> None:
    server.always = server.changed(
        lambda body: [
            one.update(embedding=wire.vectors([TEXT])[0].tolist()) for one in rows_of(body)
        ]
    )
    np.testing.assert_allclose(opened(server).embed_query(TEXT), wire.vectors([TEXT])[0], atol=1e-6)


def test_a_server_that_knows_no_formats_is_asked_once_more_and_then_never_with_one(
    server: wire.WireServer,
) -> None:
    server.always = wire.refusing_formats(server)
    embedder = opened(server)
    for _ in range(2):
        np.testing.assert_allclose(embedder.embed_query(TEXT), wire.vectors([TEXT])[0], atol=1e-6)
    assert ["encoding_format" in one.body for one in server.asked] == [True, False, False]


def test_a_server_that_knows_no_formats_may_be_asked_by_several_threads_at_first(
    server: wire.WireServer,
) -> None:
    """All of them have sent the format before any has heard that it is not known."""
    meeting = threading.Barrier(4)

    def refused_together(asked: wire.Asked) -> wire.Answer:
        meeting.wait(wire.WAIT_S)
        return wire.refusing_formats(server)(asked)

    server.script(*[refused_together] * 4)
    server.always = wire.refusing_formats(server)
    np.testing.assert_allclose(
        opened(server, batch=3, concurrency=4).embed_passages(TEXTS), wire.vectors(TEXTS), atol=1e-6
    )


def test_a_refusal_for_another_reason_is_not_tried_in_another_format(
    server: wire.WireServer,
) -> None:
    server.always = wire.failing(400, message="too many texts")
    with pytest.raises(InputError):
        opened(server).embed_query(TEXT)
    assert len(server.asked) == 1


def test_the_key_goes_into_one_header_and_nowhere_else(server: wire.WireServer) -> None:
    opened(server).embed_query(TEXT)
    [asked] = server.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert [name for name, value in asked.headers.items() if KEY in value] == ["authorization"]
    assert KEY not in f"{asked.path}?{asked.query} {asked.body}"


def test_a_server_that_wants_no_key_is_sent_none(server: wire.WireServer) -> None:
    opened(server, key="").embed_query(TEXT)
    assert not {"authorization", "api-key"} & server.asked[0].headers.keys()


def test_azure_has_a_header_of_its_own() -> None:
    from unspool.calling import key_headers

    assert key_headers(KEY, "https://mine.openai.azure.com/openai/deployments/d") == {
        "api-key": KEY
    }
    assert key_headers(KEY, "https://azure.com.example.org/v1") == {
        "Authorization": f"Bearer {KEY}"
    }
    assert key_headers(KEY, "") == {"Authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("given", "path", "query"),
    [
        ("/v1", "/v1/embeddings", ""),
        ("/v1/", "/v1/embeddings", ""),
        ("", "/embeddings", ""),
        ("/v1/embeddings", "/v1/embeddings", ""),
        (
            "/openai/deployments/d?api-version=2024-10-21",
            "/openai/deployments/d/embeddings",
            "api-version=2024-10-21",
        ),
        (
            "/openai/deployments/d/embeddings?api-version=1&x=y",
            "/openai/deployments/d/embeddings",
            "api-version=1&x=y",
        ),
    ],
)
def test_the_address_is_completed_and_its_query_kept(
    server: wire.WireServer, given: str, path: str, query: str
) -> None:
    opened(server, url=server.address + given).embed_query(TEXT)
    assert (server.asked[0].path, server.asked[0].query) == (path, query)


@pytest.mark.parametrize(
    ("model", "query"),
    [
        ("openai:bge-small-en-v1.5", "Represent this sentence"),
        ("openai:nomic-embed-text", "search_query: "),
    ],
)
def test_a_model_of_a_known_family_is_asked_as_its_makers_say(
    server: wire.WireServer, model: str, query: str
) -> None:
    embedder = opened(server, model)
    embedder.embed_query(TEXT)
    assert server.asked[0].texts[0].startswith(query)
    assert server.asked[0].texts[0].endswith(TEXT)
    assert embedder.revision != opened(server, model, query_prefix="other: ").revision


def test_prefixes_that_are_set_go_before_the_texts_and_into_the_revision(
    server: wire.WireServer,
) -> None:
    embedder = opened(server, query_prefix="ask: ", passage_prefix="tell: ")
    embedder.embed_query(TEXT)
    embedder.embed_passages([TEXT])
    assert [one.texts for one in server.asked] == [[f"ask: {TEXT}"], [f"tell: {TEXT}"]]
    assert embedder.revision != opened(server).revision


@pytest.mark.parametrize("texts", [[""], [TEXT, " \n"], []], ids=["empty", "blank", "none"])
def test_nothing_is_sent_where_there_is_nothing_to_embed(
    server: wire.WireServer, texts: list[str]
) -> None:
    embedder = opened(server, dimension=wire.DIMENSION)
    if texts:
        with pytest.raises(InputError, match="blank"):
            embedder.embed_passages(texts)
    else:
        assert embedder.embed_passages(texts).shape == (0, wire.DIMENSION)
    assert server.asked == []


def test_a_text_over_the_limit_is_cut_before_it_is_sent(server: wire.WireServer) -> None:
    embedder = opened(server, max_tokens=40)
    embedder.embed_passages(["word " * 300])
    sent = server.asked[0].texts[0]
    assert ("word " * 300).startswith(sent)
    assert embedder.count_tokens(sent) == 40


def test_a_text_over_the_limit_is_refused_before_it_is_sent(server: wire.WireServer) -> None:
    with pytest.raises(InputError, match="text 1 of 2 has 300 tokens, openai:m reads 40"):
        opened(server, max_tokens=40, over_limit=OverLimit.REFUSE).embed_passages(
            [TEXT, "word " * 299 + "word"]
        )
    assert server.asked == []


def test_a_text_that_begins_with_more_space_than_fits_is_still_sent_with_its_words(
    server: wire.WireServer,
) -> None:
    opened(server, max_tokens=40).embed_passages(["\n\t" * 200 + "walrus"])
    assert server.asked[0].texts[0].strip() == "walrus"


# Batches, order, several calls at once


def test_a_call_holds_no_more_texts_than_are_set(server: wire.WireServer) -> None:
    opened(server, batch=5, concurrency=1).embed_passages(TEXTS)
    assert [one.texts for one in server.asked] == [TEXTS[:5], TEXTS[5:10], TEXTS[10:]]


def test_a_call_holds_no_more_tokens_than_the_provider_takes(
    server: wire.WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unspool.embedders.openai.BATCH_TOKENS", 50)
    embedder = opened(
        server, "openai:text-embedding-3-small", dimension=wire.DIMENSION, concurrency=1
    )
    texts = ["word " * size for size in (20, 20, 20, 60, 5, 5, 45, 1)]
    embedder.embed_passages(texts)
    sent = [one.texts for one in server.asked]
    assert [text for some in sent for text in some] == texts
    assert all(len(some) == 1 or sum(map(embedder.count_tokens, some)) <= 50 for some in sent)
    assert len(sent) == 5


def test_rows_are_in_order_though_the_first_answer_comes_last(server: wire.WireServer) -> None:
    others = threading.Event()
    come = threading.Semaphore(0)

    def counted(asked: wire.Asked) -> wire.Answer:
        come.release()
        return server.proper(asked)

    server.script(server.later(others), *[counted] * 5)
    embedder = opened(server, batch=2, concurrency=3)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(embedder.embed_passages, TEXTS)
        for _ in range(5):
            assert come.acquire(timeout=wire.WAIT_S)
        others.set()
        rows = waiting.result()
    np.testing.assert_allclose(rows, wire.vectors(TEXTS), atol=1e-6)


def test_several_calls_are_under_way_at_once_and_no_more_than_are_set(
    server: wire.WireServer,
) -> None:
    server.script(*[server.together(3)] * 3)
    server.always = server.slowly
    opened(server, batch=1, concurrency=3).embed_passages(TEXTS)
    assert server.most_at_once == 3
    assert len(server.asked) == 12


def test_calls_of_several_threads_together_are_no_more_than_are_set(
    server: wire.WireServer,
) -> None:
    embedder = opened(server, batch=1, concurrency=2)
    server.script(*[server.together(2)] * 2)
    server.always = server.slowly
    with ThreadPoolExecutor(4) as threads:
        for rows in threads.map(embedder.embed_passages, [TEXTS] * 4):
            np.testing.assert_allclose(rows, wire.vectors(TEXTS), atol=1e-6)
    assert server.most_at_once == 2


# Dimensions


def test_the_dimension_of_an_unknown_model_is_found_out_once(server: wire.WireServer) -> None:
    embedder = opened(server)
    assert [embedder.dimension for _ in range(3)] == [wire.DIMENSION] * 3
    assert len(server.asked) == 1
    embedder.embed_query(TEXT)
    assert len(server.asked) == 2


def test_the_dimension_that_something_embedded_had_is_not_asked_for(
    server: wire.WireServer,
) -> None:
    embedder = opened(server)
    embedder.embed_passages(TEXTS)
    assert embedder.dimension == wire.DIMENSION
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("model", "dimension"),
    [
        ("openai:text-embedding-3-small", 1536),
        ("openai:text-embedding-3-large", 3072),
        ("openai:text-embedding-ada-002", 1536),
        ("cohere:embed-v4.0", 1536),
        ("cohere:embed-english-v3.0", 1024),
        ("voyage:voyage-3.5", 1024),
    ],
)
def test_the_dimension_of_a_known_model_needs_no_call(
    server: wire.WireServer, model: str, dimension: int
) -> None:
    assert opened(server, model).dimension == dimension
    assert server.asked == []


def test_a_dimension_that_is_set_or_assumed_needs_no_call(server: wire.WireServer) -> None:
    assert opened(server, dimension=48).dimension == 48
    assumed = opened(server, "openai:other")
    assumed.assume_dimension(48)
    assert assumed.dimension == 48
    assert server.asked == []


def test_shorter_vectors_are_asked_of_models_that_can(server: wire.WireServer) -> None:
    embedder = opened(server, "openai:text-embedding-3-large", dimension=256)
    assert embedder.embed_query(TEXT).shape == (256,)
    assert server.asked[0].body["dimensions"] == 256


def test_the_whole_length_and_that_of_an_unknown_model_is_not_asked_for(
    server: wire.WireServer,
) -> None:
    server.dimension = 1536
    opened(server, "openai:text-embedding-3-small", dimension=1536).embed_query(TEXT)
    opened(server, "openai:m", dimension=1536).embed_query(TEXT)
    assert [one.body.get("dimensions") for one in server.asked] == [None, None]


@pytest.mark.parametrize(
    ("model", "dimension"), [("text-embedding-3-small", 3072), ("text-embedding-ada-002", 256)]
)
def test_a_length_that_a_model_cannot_have_is_refused_at_once(
    server: wire.WireServer, model: str, dimension: int
) -> None:
    with pytest.raises(ConfigError, match="UNSPOOL_EMBEDDER_DIMENSION"):
        opened(server, f"openai:{model}", dimension=dimension)


# Cohere and Voyage


def test_cohere_is_told_queries_from_passages(server: wire.WireServer) -> None:
    embedder = opened(server, "cohere:m", url=f"{server.address}/v2/embed")
    rows, row = embedder.embed_passages([TEXT, "other"]), embedder.embed_query(TEXT)
    told = {"model": "m", "embedding_types": ["float"], "truncate": "NONE"}
    assert [one.body for one in server.asked] == [
        {**told, "texts": [TEXT, "other"], "input_type": "search_document"},
        {**told, "texts": [TEXT], "input_type": "search_query"},
    ]
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    np.testing.assert_allclose(
        rows, wire.vectors([f"search_document {TEXT}", "search_document other"]), atol=1e-6
    )
    np.testing.assert_allclose(row, wire.vectors([f"search_query {TEXT}"])[0], atol=1e-6)


def test_voyage_is_told_queries_from_passages(server: wire.WireServer) -> None:
    embedder = opened(server, "voyage:m", url=f"{server.address}/v1/embeddings")
    rows, row = embedder.embed_passages([TEXT, "other"]), embedder.embed_query(TEXT)
    told = {"model": "m", "truncation": False}
    assert [one.body for one in server.asked] == [
        {**told, "input": [TEXT, "other"], "input_type": "document"},
        {**told, "input": [TEXT], "input_type": "query"},
    ]
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    np.testing.assert_allclose(
        rows, wire.vectors([f"document {TEXT}", "document other"]), atol=1e-6
    )
    np.testing.assert_allclose(row, wire.vectors([f"query {TEXT}"])[0], atol=1e-6)


OTHERS = {"cohere:m": "/v2/embed", "voyage:m": "/v1/embeddings"}


@pytest.mark.parametrize("model", OTHERS)
def test_shorter_vectors_can_be_had_of_others_too(server: wire.WireServer, model: str) -> None:
    assert opened(server, model, url=server.address + OTHERS[model], dimension=32).embed_query(
        TEXT
    ).shape == (32,)
    assert server.asked[0].body["output_dimension"] == 32


@pytest.mark.parametrize("model", OTHERS)
def test_calls_to_others_are_repeated_too(server: wire.WireServer, model: str) -> None:
    server.script(wire.failing(429, Retry_After="0"), wire.reset, wire.failing(503))
    opened(server, model, url=server.address + OTHERS[model]).embed_passages([TEXT])
    assert len(server.asked) == 4


@pytest.mark.parametrize("model", OTHERS)
@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"embeddings": None, "data": None},
        {"embeddings": {"float": [["x"]]}, "data": [{"index": 0, "embedding": ["x"]}]},
        {
            "embeddings": {"float": [[1.0], [1.0]]},
            "data": [{"embedding": [1.0]}, {"embedding": [1.0]}],
        },
        {"embeddings": {"float": [[None, 1.0]]}, "data": [{"index": 0, "embedding": [None, 1.0]}]},
        {"embeddings": {"float": [[0.0, 0.0]]}, "data": [{"index": 0, "embedding": [0.0, 0.0]}]},
        {"embeddings": {"float": [[10**400]]}, "data": [{"index": 0, "embedding": [10**400]}]},
    ],
    ids="nothing list null words count nan zeros endless".split(),
)
def test_vectors_of_others_that_cannot_be_right_are_refused(
    server: wire.WireServer, model: str, body: object
) -> None:
    server.always = wire.saying(body)
    with pytest.raises(ServiceError, match=model):
        opened(server, model, url=server.address + OTHERS[model]).embed_query(TEXT)


@pytest.mark.parametrize("model", OTHERS)
def test_others_are_called_by_batches_of_what_they_take(
    server: wire.WireServer, model: str
) -> None:
    embedder = opened(server, model, url=server.address + OTHERS[model])
    texts = [f"word{number}" for number in range(200)]
    embedder.embed_passages(texts)
    assert sorted(len(one.texts) for one in server.asked) == (
        [8, 96, 96] if model == "cohere:m" else [72, 128]
    )


# Keys, texts and addresses


@pytest.mark.parametrize("provider", ["openai", "cohere", "voyage"])
def test_without_a_model_or_a_key_it_says_what_to_set(provider: str) -> None:
    needed("httpx2", "pip install 'unspool[hosted]'")
    with pytest.raises(ConfigError, match=f"UNSPOOL_EMBEDDER={provider}:"):
        open_embedder(provider, EmbedderOptions(key=KEY))
    with pytest.raises(ConfigError, match="UNSPOOL_EMBEDDER_KEY"):
        open_embedder(f"{provider}:m")


@pytest.mark.parametrize(
    ("provider", "place"),
    [("openai", "api.openai.com"), ("cohere", "api.cohere.com"), ("voyage", "api.voyageai.com")],
)
def test_with_a_key_alone_the_provider_itself_is_called(provider: str, place: str) -> None:
    needed("httpx2", "pip install 'unspool[hosted]'")
    embedder: Any = open_embedder(f"{provider}:m", EmbedderOptions(key=KEY))
    assert f"https://{place}/" in str(embedder._model._server)


SAID = {
    "message": wire.failing(401, message=f"Incorrect API key provided: {KEY}"),
    "code": wire.failing(401, code=KEY, message=KEY),
    "part of a code": wire.failing(400, code=f"bad_{KEY}"),
    "page": wire.saying(f"<html>{KEY} {TEXT}</html>".encode(), status=502),
    "not json": wire.saying(f"{KEY} {TEXT}".encode()),
    "all": wire.repeating,
    "quota": wire.failing(429, code="insufficient_quota", message=KEY),
    "limited": wire.failing(429, message=f"{KEY} {TEXT}"),
    "address": wire.failing(302, Location=f"http://127.0.0.1:1/{KEY}"),
}


@pytest.mark.parametrize("reply", SAID.values(), ids=SAID)
@pytest.mark.parametrize("model", ["openai:m", *OTHERS])
def test_no_error_repeats_the_key_or_a_text(
    server: wire.WireServer, model: str, reply: wire.Reply
) -> None:
    server.always = reply
    with pytest.raises(UnspoolError) as raised:
        opened(server, model, retries=0).embed_query(TEXT)
    assert KEY not in all_of(raised.value)
    assert "walrus" not in all_of(raised.value)


def test_no_error_repeats_a_password_or_a_key_in_the_address(server: wire.WireServer) -> None:
    server.always = wire.failing(500)
    with pytest.raises(UnreachableError) as raised:
        opened(
            server,
            url=server.url.replace("://", f"://me:{KEY}@") + f"?key={KEY}",
            key="",
            retries=0,
        ).embed_query(TEXT)
    assert KEY not in all_of(raised.value)


def test_neither_options_nor_embedders_nor_models_show_the_key(server: wire.WireServer) -> None:
    embedder = opened(server)
    model: Any = embedder._model
    shown = [EmbedderOptions(key=KEY), embedder, embedder.facts, model, model._server]
    assert KEY not in " ".join(f"{one!r} {one}" for one in shown)


def test_the_settings_that_are_shown_hide_the_key() -> None:
    shown = {name: value for name, value, _, _ in Settings.of(embedder_key=KEY).rows()}
    assert shown["embedder_key"] == MASK
    assert KEY not in str(shown)


@pytest.mark.parametrize(
    "key",
    ["sk secret", "sk-secret\n", "sk-sécret", "sk-secret\x00"],
    ids=["space", "line", "accent", "nul"],
)
def test_a_key_that_cannot_be_one_is_refused_and_not_repeated(
    server: wire.WireServer, key: str
) -> None:
    with pytest.raises(ConfigError, match="UNSPOOL_EMBEDDER_KEY") as raised:
        opened(server, key=key)
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:11434/v1",
        "ftp://localhost/v1",
        "http://",
        "http:///v1",
        "http://localhost:99999/v1",
        "http://localhost:port/v1",
        "http://[::1/v1",
        "http://a..b/v1",
        f"http://{'a' * 70}.org/v1",
        "redis://localhost",
    ],
)
@pytest.mark.parametrize("provider", ["openai", "cohere", "voyage"])
def test_an_address_that_is_none_is_refused_at_once(provider: str, url: str) -> None:
    needed("httpx2", "pip install 'unspool[hosted]'")
    with pytest.raises(AddressError, match="UNSPOOL_EMBEDDER_URL"):
        open_embedder(f"{provider}:m", EmbedderOptions(url=url))
