"""Requests and events as OpenTelemetry traces, sent over OTLP/HTTP. Spans of events are made
after the fact, from their durations.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from unspool.domain.events import AnswerFinished, Event, IndexFinished, Outcome, PageServed
from unspool.errors import AddressError, MissingDependencyError
from unspool.observability.context import request_id

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise MissingDependencyError(
        "UNSPOOL_TRACES needs OpenTelemetry; pip install 'unspool[otel]', or leave it empty"
    ) from error

if TYPE_CHECKING:
    from unspool.observability.observer import Request

VERSION = version("unspool")
TIMEOUT_S = 5.0  # for a batch of spans to be taken
_PATH = "/v1/traces"  # where the protocol has them
Value = str | int | float | bool


class _Exporter(OTLPSpanExporter):
    """Says once that the collector does not take spans, and once that it does again, instead of
    with every batch.
    """

    _is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        is_away = result is not SpanExportResult.SUCCESS
        if is_away != self._is_away:
            self._is_away = is_away
            what = (
                "cannot be reached or refuses spans; they are dropped until it does"
                if is_away
                else "takes spans again"
            )
            logging.getLogger("unspool").warning("the collector that UNSPOOL_TRACES names %s", what)
        return result


class Traces:
    """Sends spans to a collector, in batches, from a thread of its own.

    A collector that is away costs nothing but its spans.
    """

    def __init__(self, address: str) -> None:
        resource = Resource.create({"service.name": "unspool", "service.version": VERSION})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(
            BatchSpanProcessor(_Exporter(endpoint=endpoint(address), timeout=TIMEOUT_S))
        )
        self._tracer = self._provider.get_tracer("unspool", VERSION)

    @contextmanager
    def request(self, request: Request, traceparent: str) -> Iterator[None]:
        """A span around a request: the child of the caller's, where the caller has one.

        Spans of what happens within are its children.
        """
        parent = (
            TraceContextTextMapPropagator().extract({"traceparent": traceparent})
            if traceparent
            else None
        )
        span = self._tracer.start_span(request.method, context=parent, kind=SpanKind.SERVER)
        try:
            # an exception's text may be what was sent
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        finally:
            route = request.route or "unmatched"
            span.update_name(f"{request.method} {route}")
            span.set_attributes(
                {
                    "http.request.method": request.method,
                    "http.route": route,
                    **_told(request_id.get()),
                }
            )
            if request.status:
                span.set_attribute("http.response.status_code", request.status)
            if request.status >= 500 or not request.status:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

    def on_event(self, event: Event) -> None:
        """The spans of an event that has just ended, below whatever span is current."""
        end = time.time_ns()
        if isinstance(event, PageServed):
            self._page(event, end)
        elif isinstance(event, AnswerFinished):
            self._answer(event, end)
        elif isinstance(event, IndexFinished):
            self._index(event, end)

    def tool(self, name: str, outcome: str, seconds: float) -> None:
        """The span of a call that has just ended."""
        end = time.time_ns()
        span = self._span(
            f"tool {name}", end - _ns(seconds), {"unspool.tool": name, "unspool.outcome": outcome}
        )
        if outcome == "bug":
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    def close(self) -> None:
        """Send what waits, as long as the collector takes it, and end the thread."""
        self._provider.shutdown()

    def _page(self, event: PageServed, end: int) -> None:
        begin = end - _ns(event.total_s)
        span = self._span(
            "page",
            begin,
            {
                "unspool.store": event.store,
                "unspool.projects": event.projects,
                "unspool.page": event.number,
                "unspool.served": event.served.value,
                "unspool.embedding": event.embedding,
                "unspool.hits": event.hits,
                "unspool.tokens": event.tokens,
            },
        )
        # How long the parts took is measured. Where they lie is known from their order: embedding
        # comes first, hydration last.
        within = trace.set_span_in_context(span)
        embedded = begin + _ns(event.embed_s)
        if event.embedding != "unneeded":
            self._part("embed", begin, embedded, within)
        if event.searched:
            self._part("search", embedded, min(embedded + _ns(event.search_s), end), within)
        self._part("hydrate", end - _ns(event.hydrate_s), end, within)
        span.end(end)

    def _answer(self, event: AnswerFinished, end: int) -> None:
        begin = end - _ns(event.total_s)
        span = self._span(
            "answer",
            begin,
            {
                "unspool.outcome": event.outcome.value,
                "unspool.model": event.model,
                "unspool.hits": event.hits,
                "unspool.shown": event.shown,
                "unspool.citations": event.citations,
                "unspool.context_tokens": event.context_tokens,
                **(
                    {}
                    if event.prompt_tokens is None
                    else {"unspool.prompt_tokens": event.prompt_tokens}
                ),
                **(
                    {}
                    if event.completion_tokens is None
                    else {"unspool.completion_tokens": event.completion_tokens}
                ),
            },
        )
        self._part("search", begin, begin + _ns(event.search_s), trace.set_span_in_context(span))
        if event.first_s is not None:
            span.add_event("first text", timestamp=begin + _ns(event.first_s))
        if event.outcome is Outcome.FAILED:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    def _index(self, event: IndexFinished, end: int) -> None:
        counts = {
            f"unspool.{name}": getattr(event, name)
            for name in ("added", "updated", "unchanged", "removed", "failed", "chunks", "embedded")
        }
        span = self._span(
            event.task, end - _ns(event.total_s), {"unspool.store": event.store, **counts}
        )
        span.end(end)

    def _span(
        self, name: str, begin: int, attributes: Mapping[str, Value], within: Context | None = None
    ) -> Span:
        return self._tracer.start_span(
            name,
            context=within,
            start_time=begin,
            attributes={**attributes, **_told(request_id.get())},
        )

    def _part(self, name: str, begin: int, end: int, within: Context) -> None:
        self._span(name, begin, {}, within).end(end)


def endpoint(address: str) -> str:
    """Where spans are posted: the address itself if it has a path, else the one that the
    protocol fixes.
    """
    try:
        parts = urlsplit(address)
        named = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        named = False
    if not named:
        raise AddressError(
            "UNSPOOL_TRACES is no address of a collector; give http://host:4318, or leave it empty"
        )
    return address if parts.path.strip("/") else parts._replace(path=_PATH).geturl()


def _told(asked: str) -> dict[str, Value]:
    return {"unspool.request_id": asked} if asked else {}


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
