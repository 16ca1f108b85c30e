"""Logs: a record for everything, whose it was and how long it took; nothing of what was asked,
stored or shown as a key.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import happenings
import unspool
from happenings import Teller, page
from support import doc, open_corpus
from unspool.observability import Observer, install
from unspool.observability.context import request_id

SECRET = "unspool_0123456789abcdef_thisIsTheSecretOfTheKey"
QUERY = "zanzibar lighthouse keepers"
TEXT = "The wombat keeps the lighthouse of zanzibar."
WORDS = (
    "zanzibar",
    "wombat",
    "lighthouse",
    "private-path",
    "hidden-project",
    "thisIsTheSecretOfTheKey",
    "hunter2",
)


@contextmanager
def observed(corpus: Any, **settings: object) -> Iterator[tuple[Observer, io.StringIO]]:
    stream = io.StringIO()
    observer = install(
        corpus,
        unspool.Settings.load(
            arguments={"log_format": "json", **settings}, environment={}, folder=Path("/nowhere")
        ),
        stream=stream,
    )
    try:
        yield observer, stream
    finally:
        observer.close()


def records(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def teller() -> Teller:
    return Teller()


def test_every_kind_of_event_is_a_record_with_all_its_fields(teller: Teller) -> None:
    with observed(teller) as (_, stream):
        teller.tell(*happenings.ALL)
    written = records(stream)
    assert [one["event"] for one in written] == ["page", "answer", "index"]
    for event, record in zip(happenings.ALL, written, strict=True):
        for field in fields(event):
            assert record[field.name] == getattr(event, field.name)
        assert {"at", "level", "event"} <= set(record)


def test_a_page_that_took_too_long_is_a_warning(teller: Teller) -> None:
    with observed(teller, slow_query_ms=20) as (_, stream):
        teller.tell(page(total_s=0.019), page(total_s=0.021))
    assert [(one["level"], one["slow"]) for one in records(stream)] == [
        ("info", False),
        ("warning", True),
    ]


def test_records_of_a_request_carry_its_id_and_those_outside_none(teller: Teller) -> None:
    with observed(teller) as (observer, stream):
        with observer.request(method="POST", request_id="r-1") as request:
            assert request_id.get() == "r-1"
            teller.tell(happenings.PAGE)
            observer.error("not_found")
            request.route, request.status, request.key = "/v1/search", 404, "0123456789abcdef"
        assert request_id.get() == ""
        teller.tell(happenings.PAGE)
    inside, error, request_record, outside = records(stream)
    assert {one["request_id"] for one in (inside, error, request_record)} == {"r-1"}
    assert "request_id" not in outside
    wanted = {
        "event": "request",
        "method": "POST",
        "route": "/v1/search",
        "status": 404,
        "key": "0123456789abcdef",
        "level": "info",
    }
    assert wanted.items() <= request_record.items()
    assert request_record["total_s"] >= 0


@pytest.mark.parametrize(
    ("route", "status", "level"),
    [
        ("/v1/search", 200, "info"),
        ("/v1/search", 422, "info"),
        ("/v1/search", 503, "error"),
        ("/health", 200, "debug"),
        ("/health", 500, "error"),
    ],
)
def test_how_grave_a_request_is(teller: Teller, route: str, status: int, level: str) -> None:
    with (
        observed(teller, log_level="debug") as (observer, stream),
        observer.request(method="GET") as request,
    ):
        request.route, request.status = route, status
    assert [one["level"] for one in records(stream)] == [level]


@pytest.mark.parametrize(
    ("code", "level"), [("not_found", "info"), ("unreachable", "warning"), ("bug", "error")]
)
def test_how_grave_an_error_is(teller: Teller, code: str, level: str) -> None:
    with observed(teller) as (observer, stream):
        observer.error(code)
    assert [(one["code"], one["level"]) for one in records(stream)] == [(code, level)]


def test_a_request_that_ends_with_an_exception_is_a_500_and_the_exception_goes_on(
    teller: Teller,
) -> None:
    with observed(teller) as (observer, stream):
        with pytest.raises(RuntimeError), observer.request(method="GET"):
            raise RuntimeError
        with pytest.raises(KeyboardInterrupt), observer.request(method="GET"):
            raise KeyboardInterrupt
    assert [one["status"] for one in records(stream)] == [500, 0]


def test_below_the_level_nothing_is_written(teller: Teller) -> None:
    with observed(teller, log_level="warning", slow_query_ms=20) as (observer, stream):
        teller.tell(page(total_s=0.001), page(total_s=0.5))
        observer.tool("search", "ok", 0.1)
    assert [one["event"] for one in records(stream)] == ["page"]


def test_the_readable_form_is_one_line_for_each_record(teller: Teller) -> None:
    with observed(teller, log_format="text") as (observer, stream):
        teller.tell(*happenings.ALL)
        with observer.request(method="GET", request_id='x" y=1\nz') as request:
            request.route = "/v1/jobs/{id}"
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert [line.split()[2] for line in lines] == ["page", "answer", "index", "request"]
    assert f"store={happenings.PAGE.store}" in lines[0].split()


def test_of_a_bug_its_class_and_place_are_written_and_not_what_it_says(teller: Teller) -> None:
    with observed(teller) as (observer, stream):
        try:
            try:
                raise KeyError(QUERY)
            except KeyError as error:
                raise RuntimeError(f"{QUERY} {SECRET}") from error
        except RuntimeError as error:
            observer.error("bug", error)
    (record,) = records(stream)
    assert record["error"] == "RuntimeError < KeyError"
    assert any(
        line.endswith("test_of_a_bug_its_class_and_place_are_written_and_not_what_it_says")
        for line in record["trace"]
    )
    assert not [word for word in WORDS if word in stream.getvalue()]


def test_what_other_libraries_say_is_written_without_what_it_may_quote(teller: Teller) -> None:
    with observed(teller) as (_, stream):
        logging.getLogger("mcp.server").warning("Failed to validate request: %s", QUERY)
        logging.getLogger("httpx2").info(
            "HTTP Request: POST https://me:hunter2@example.com/v1?key=hunter2"
        )
        logging.getLogger("uvicorn.access").warning(
            '127.0.0.1 - "GET /v1/projects/hidden-project?q=zanzibar HTTP/1.1" 200'
        )
        logging.getLogger("uvicorn.error").warning(
            "calling https://me:hunter2@example.com/?api_key=hunter2&x=1 with Bearer %s and %s",
            SECRET,
            SECRET,
        )
        try:
            raise ValueError(QUERY)
        except ValueError:
            logging.getLogger("uvicorn.error").exception("an exception")
    written = records(stream)
    assert [one["logger"] for one in written] == ["mcp.server", "uvicorn.error", "uvicorn.error"]
    assert ["message" in one for one in written] == [False, True, True]
    assert "example.com" in written[1]["message"]
    assert written[2]["error"] == "ValueError"
    assert not [word for word in WORDS if word in stream.getvalue()]


def test_logging_is_left_as_it_was(teller: Teller) -> None:
    names = ("unspool", "httpx2", "httpcore2")
    before = (
        [*logging.getLogger().handlers],
        {name: logging.getLogger(name).level for name in names},
    )
    with observed(teller, log_level="debug"):
        assert len(logging.getLogger().handlers) == len(before[0]) + 1
        with observed(teller):  # a second one in the process does not write everything twice
            assert len(logging.getLogger().handlers) == len(before[0]) + 1
    assert (
        [*logging.getLogger().handlers],
        {name: logging.getLogger(name).level for name in names},
    ) == before


def test_a_tool_or_a_method_that_somebody_made_up_is_not_repeated(teller: Teller) -> None:
    with observed(teller) as (observer, stream):
        observer.tool("search", "ok", 0.1)
        observer.tool(QUERY, QUERY, 0.1)
        with observer.request(method="ZANZIBAR"):
            pass
    written = records(stream)
    assert [(one["tool"], one["outcome"]) for one in written[:2]] == [
        ("search", "ok"),
        ("other", "other"),
    ]
    assert written[2]["method"] == "other"


def test_nothing_of_what_is_stored_or_asked_is_ever_written(tmp_path: Path) -> None:
    """A whole corpus is used with everything logged: if a word of it appears, look at the event
    that was added last.
    """
    with (
        open_corpus(tmp_path / "catalog.db") as corpus,
        observed(corpus, log_level="debug", slow_query_ms=0, key=SECRET) as (observer, stream),
    ):
        with observer.request(method="POST", request_id="r-2") as request:
            corpus.put(doc("private-path/wombat.md", TEXT, project="hidden-project"))
            found = corpus.search(QUERY, projects="hidden-project")
            assert TEXT in found.hits[0].chunk.text
            corpus.ask(QUERY, projects="hidden-project")
            request.route, request.status = "/v1/search", 200
        with pytest.raises(unspool.UnspoolError) as caught:
            corpus.search(QUERY, projects="zanzibar")
        observer.error(caught.value.code, caught.value)
    assert {"page", "answer", "index", "request", "error"} == {
        one["event"] for one in records(stream)
    }
    assert not [word for word in WORDS if word in stream.getvalue()]
