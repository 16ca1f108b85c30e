"""Traces: what a collector gets, of which parents, and when it is said to have been."""

from __future__ import annotations

import builtins
import io
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import happenings
import unspool
from happenings import Teller
from monitoring import Collector
from support import doc, open_corpus
from unspool.domain.events import Event, PageServed
from unspool.errors import AddressError, MissingDependencyError
from unspool.observability import install

pytest.importorskip(
    "opentelemetry.sdk", reason="traces need OpenTelemetry; pip install 'unspool[otel]'"
)

from opentelemetry import trace

from unspool.observability.to_otel import endpoint

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SLACK_NS = 5_000_000  # between the clock that tells the time and the one that measures


@pytest.fixture
def collector() -> Collector:
    return Collector()


def settings(address: str) -> unspool.Settings:
    return unspool.Settings.load(
        arguments={"traces": address}, environment={}, folder=Path("/nowhere")
    )


def named(collector: Collector, name: str) -> Any:
    (span,) = [span for span in collector.spans if span.name == name]
    return span


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def length_ns(span: Any) -> int:
    return int(span.end_time_unix_nano - span.start_time_unix_nano)


def test_a_search_in_a_request_is_a_tree_with_true_times(
    collector: Collector, tmp_path: Path
) -> None:
    told: list[Event] = []
    with collector.listening() as address, open_corpus(tmp_path / "catalog.db") as corpus:
        corpus.put(doc("a.md", "The lighthouse needs new lamps."))
        observer = install(corpus, settings(address), stream=io.StringIO())
        corpus.observe(told.append)
        before = time.time_ns()
        with observer.request(
            method="POST", request_id="r-1", traceparent=f"00-{TRACE}-{CALLER}-01"
        ) as request:
            corpus.search("lamps of the lighthouse")
            request.route, request.status = "/v1/search", 200
        after = time.time_ns()
        observer.close()
    assert collector.paths == ["/v1/traces"]
    assert {("service.name", "unspool"), ("service.version", version("unspool"))} <= set(
        collector.resources[0].items()
    )
    root, page = named(collector, "POST /v1/search"), named(collector, "page")
    parts = [named(collector, name) for name in ("embed", "search", "hydrate")]
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert root.parent_span_id.hex() == CALLER
    assert page.parent_span_id == root.span_id
    assert {part.parent_span_id for part in parts} == {page.span_id}
    assert len(collector.spans) == 5
    (event,) = told
    assert isinstance(event, PageServed)
    lengths = [
        round(seconds * 1e9)
        for seconds in (event.total_s, event.embed_s, event.search_s, event.hydrate_s)
    ]
    assert [length_ns(span) for span in (page, *parts)] == lengths
    for outer, inner in ((root, page), *((page, part) for part in parts)):
        assert outer.start_time_unix_nano - SLACK_NS <= inner.start_time_unix_nano
        assert inner.end_time_unix_nano <= outer.end_time_unix_nano + SLACK_NS
    assert (
        before - SLACK_NS
        <= root.start_time_unix_nano
        <= root.end_time_unix_nano
        <= after + SLACK_NS
    )
    assert attributes(root) == {
        "http.request.method": "POST",
        "http.route": "/v1/search",
        "http.response.status_code": 200,
        "unspool.request_id": "r-1",
    }
    assert {attributes(span)["unspool.request_id"] for span in collector.spans} == {"r-1"}
    assert "lamps" not in str(collector.spans)


def test_every_kind_of_event_is_a_span_and_without_a_request_a_trace_of_its_own(
    collector: Collector,
) -> None:
    teller = Teller()
    with collector.listening() as address:
        observer = install(teller, settings(address), stream=io.StringIO())
        teller.tell(*happenings.ALL)
        observer.tool("search", "ok", 0.25)
        observer.close()
    roots = {span.name: span for span in collector.spans if not span.parent_span_id}
    assert set(roots) == {"page", "answer", "index", "tool search"}
    assert len({span.trace_id for span in roots.values()}) == 4
    seconds = {name: length_ns(span) / 1e9 for name, span in roots.items()}
    assert seconds == pytest.approx(
        {"page": 0.008, "answer": 1.5, "index": 0.7, "tool search": 0.25}
    )
    (first,) = roots["answer"].events
    assert (first.time_unix_nano - roots["answer"].start_time_unix_nano) / 1e9 == pytest.approx(
        happenings.ANSWER.first_s
    )


def test_all_spans_of_a_request_carry_its_id_and_a_bug_is_an_error(collector: Collector) -> None:
    teller = Teller()
    with collector.listening() as address:
        observer = install(teller, settings(address), stream=io.StringIO())
        with observer.request(method="POST", request_id="r-2") as request:
            teller.tell(*happenings.ALL)
            for outcome in ("ok", "not_found", "bug"):
                observer.tool(outcome, outcome, 0.1)
            request.status = 200
        observer.close()
    assert {attributes(span).get("unspool.request_id") for span in collector.spans} == {"r-2"}
    assert [
        span.name for span in collector.spans if span.status.code == span.status.STATUS_CODE_ERROR
    ] == ["tool bug"]


def test_what_was_not_done_has_no_span(collector: Collector) -> None:
    teller = Teller()
    with collector.listening() as address:
        observer = install(teller, settings(address), stream=io.StringIO())
        teller.tell(happenings.page(number=2, embedding="unneeded", searched=False))
        observer.close()
    assert sorted(span.name for span in collector.spans) == ["hydrate", "page"]


def test_events_are_below_the_span_of_whoever_calls(collector: Collector) -> None:
    """A program that traces itself: its span is the parent, without a request."""
    teller = Teller()
    caller = trace.SpanContext(
        int(TRACE, 16), int(CALLER, 16), is_remote=False, trace_flags=trace.TraceFlags(1)
    )
    with collector.listening() as address:
        observer = install(teller, settings(address), stream=io.StringIO())
        with trace.use_span(trace.NonRecordingSpan(caller)):
            teller.tell(happenings.PAGE)
        observer.close()
    page = named(collector, "page")
    assert (page.trace_id.hex(), page.parent_span_id.hex()) == (TRACE, CALLER)


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{'0' * 32}-{CALLER}-01", "00-é-1-01"])
def test_a_request_without_a_proper_parent_begins_a_trace(
    collector: Collector, traceparent: str
) -> None:
    with collector.listening() as address:
        observer = install(Teller(), settings(address), stream=io.StringIO())
        with pytest.raises(RuntimeError), observer.request(method="GET", traceparent=traceparent):
            raise RuntimeError("a text that stays here")
        observer.close()
    (span,) = collector.spans
    assert not span.parent_span_id
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert attributes(span)["http.response.status_code"] == 500
    assert "stays here" not in str(span)


def test_where_spans_are_posted() -> None:
    assert (
        endpoint("http://localhost:4318")
        == endpoint("http://localhost:4318/")
        == "http://localhost:4318/v1/traces"
    )
    assert (
        endpoint("https://traces.example/otlp/v1/traces") == "https://traces.example/otlp/v1/traces"
    )


@pytest.mark.parametrize(
    "address",
    [
        "localhost:4318",
        "ftp://host",
        "http://",
        "http://me:hunter2@host:port",
        "http://[me:hunter2@x",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(AddressError) as caught:
        install(Teller(), settings(address), stream=io.StringIO())
    assert "hunter2" not in str(caught.value)


def test_without_the_extra_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name, name=name)
        return real(name, *more)

    monkeypatch.delitem(sys.modules, "unspool.observability.to_otel")
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingDependencyError) as caught:
        install(Teller(), settings("http://localhost:4318"), stream=io.StringIO())
    assert "unspool[otel]" in str(caught.value)
