"""Requests and events as OpenTelemetry traces, sent over OTLP/HTTP.

Spans of events are created when the event has ended, from its durations.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from unspool.domain.events import AnswerFinished, Event, IndexFinished, Outcome, PageServed
from unspool.errors import AddressError, MissingDependencyError
from unspool.observability.context import (
    DoorEvent,
    ErrorResponse,
    Request,
    ToolCallEvent,
    request_id,
)

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

VERSION = version("unspool")
TIMEOUT_S = 5.0  # for a batch of spans
_PATH = "/v1/traces"  # of the protocol
Value = str | int | float | bool
_ATTRIBUTES: Mapping[type[Any], tuple[str, ...]] = {
    PageServed: ("store", "projects", "number", "served", "embedding", "hits", "tokens"),
    AnswerFinished: (
        "outcome",
        "model",
        "hits",
        "shown",
        "citations",
        "context_tokens",
        "prompt_tokens",
        "completion_tokens",
    ),
    IndexFinished: (
        "store",
        "added",
        "updated",
        "unchanged",
        "removed",
        "failed",
        "chunks",
        "embedded",
    ),
    ToolCallEvent: ("tool", "outcome"),
}
_RENAMED = {"number": "page"}


class _Exporter(OTLPSpanExporter):
    """Exporter that logs a change of the collector's state once, instead of with every batch."""

    _is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        is_away = result is not SpanExportResult.SUCCESS
        if is_away != self._is_away:
            self._is_away = is_away
            state = (
                "cannot be reached or refuses spans; they are dropped until it does"
                if is_away
                else "takes spans again"
            )
            logging.getLogger("unspool").warning(
                "the collector that UNSPOOL_TRACES names %s", state
            )
        return result


class Traces:
    """Sender of spans to a collector, in batches, from a thread of its own.

    If the collector is down, only the spans are lost.
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
        """Trace a request as a child of the caller's span.

        Spans of events within the block are its children.
        """
        parent = (
            TraceContextTextMapPropagator().extract({"traceparent": traceparent})
            if traceparent
            else None
        )
        span = self._tracer.start_span(request.method, context=parent, kind=SpanKind.SERVER)
        try:
            # the text of an exception may quote data
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        finally:
            route = request.route or "unmatched"
            span.update_name(f"{request.method} {route}")
            span.set_attributes(
                {
                    "http.request.method": request.method,
                    "http.route": route,
                    **_identify_request(),
                }
            )
            if request.status:
                span.set_attribute("http.response.status_code", request.status)
            if request.status >= 500 or not request.status:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

    def on_event(self, event: Event | DoorEvent) -> None:
        """Send the spans of an event that has just ended, below the current span."""
        if isinstance(event, Request | ErrorResponse):
            return
        end = time.time_ns()
        begin = end - _to_ns(event.total_s)
        values = {name: getattr(event, name) for name in _ATTRIBUTES[type(event)]}
        span = self._start(
            _name_span(event),
            begin,
            {
                f"unspool.{_RENAMED.get(name, name)}": value
                for name, value in values.items()
                if value is not None
            },
        )
        within = trace.set_span_in_context(span)
        for name, part_begin, part_end in _split(event, begin, end):
            self._start(name, part_begin, {}, within).end(part_end)
        if isinstance(event, AnswerFinished) and event.first_s is not None:
            span.add_event("first text", timestamp=begin + _to_ns(event.first_s))
        if values.get("outcome") in (Outcome.FAILED, "bug"):
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    def close(self) -> None:
        """Send pending spans, as long as the collector accepts them, and end the thread."""
        self._provider.shutdown()

    def _start(
        self, name: str, begin: int, attributes: Mapping[str, Value], within: Context | None = None
    ) -> Span:
        return self._tracer.start_span(
            name,
            context=within,
            start_time=begin,
            attributes={**attributes, **_identify_request()},
        )


def _name_span(event: Event | ToolCallEvent) -> str:
    if isinstance(event, ToolCallEvent):
        return f"tool {event.tool}"
    if isinstance(event, IndexFinished):
        return event.task
    return "page" if isinstance(event, PageServed) else "answer"


def _split(event: Event | ToolCallEvent, begin: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, begin and end of an event's parts.

    Their durations are measured, their positions follow from their order: embedding is first,
    hydration last.
    """
    if isinstance(event, AnswerFinished):
        yield "search", begin, begin + _to_ns(event.search_s)
    if isinstance(event, PageServed):
        embedded = begin + _to_ns(event.embed_s)
        if event.embedding != "unneeded":
            yield "embed", begin, embedded
        if event.searched:
            yield "search", embedded, min(embedded + _to_ns(event.search_s), end)
        yield "hydrate", end - _to_ns(event.hydrate_s), end


def endpoint(address: str) -> str:
    """Return the URL that spans are posted to.

    An address without a path gets the path of the protocol.
    """
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise AddressError(
            "UNSPOOL_TRACES is no address of a collector; give http://host:4318, or leave it empty"
        )
    return address if parts.path.strip("/") else parts._replace(path=_PATH).geturl()


def _identify_request() -> dict[str, Value]:
    current = request_id.get()
    return {"unspool.request_id": current} if current else {}


def _to_ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
