"""Observer of a service, which passes events of the corpus and of the doors to logs, metrics and
traces.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from unspool.domain.events import Hook
from unspool.domain.jobs import JobState
from unspool.errors import MissingDependencyError
from unspool.observability.context import DoorEvent, ErrorResponse, Request, ToolCallEvent
from unspool.observability.context import request_id as current_request
from unspool.observability.to_logging import Logs
from unspool.settings import Settings

if TYPE_CHECKING:  # extras, imported only if they are installed or required
    from unspool.observability.to_otel import Traces
    from unspool.observability.to_prometheus import Metrics


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
OTHER = "other"  # replaces a name that a caller made up


class Observed(Protocol):
    """Source of events: a corpus, synchronous or not."""

    def observe(self, hook: Hook) -> Callable[[], None]: ...


def install(
    corpus: Observed, settings: Settings, *, stream: TextIO | None = None, metrics: bool = True
) -> Observer:
    """Observe a corpus as the settings say.

    Logs go to a stream, by default stderr. Metrics need their package, traces a setting. Pass
    `metrics=False` where nobody could read them, which makes the start faster.
    """
    slow_s = settings.log.slow_query_ms / 1000
    return Observer(
        corpus,
        traces=_open_traces(settings.log.traces) if settings.log.traces else None,
        logs=Logs(
            level=settings.log.level,
            is_json=settings.log.format == "json",
            slow_s=slow_s,
            stream=stream,
        ),
        metrics=_open_metrics(slow_s) if metrics else None,
    )


class Observer:
    """Observer that passes events to logs, metrics and traces. Safe to use from several threads."""

    def __init__(
        self, corpus: Observed, *, logs: Logs, metrics: Metrics | None, traces: Traces | None
    ) -> None:
        self._metrics = metrics
        self._traces = traces
        self._sinks = [one for one in (metrics, traces, logs) if one is not None]
        # a hook each: one that fails stops no other
        self._unsubscribe = [corpus.observe(one.on_event) for one in self._sinks]

    @contextmanager
    def request(
        self, *, method: str, request_id: str = "", traceparent: str = ""
    ) -> Iterator[Request]:
        """Observe an HTTP request. Events within the block belong to it.

        An exception before the request has a status makes it 500. A cancelled request has none.
        """
        request = Request(method=method if method in METHODS else OTHER)
        token = current_request.set(request_id)
        begin = time.perf_counter()
        try:
            with ExitStack() as stack:
                if self._metrics is not None:
                    stack.enter_context(self._metrics.track_request())
                if self._traces is not None:
                    stack.enter_context(self._traces.request(request, traceparent))
                try:
                    yield request
                except Exception:
                    request.status = request.status or 500
                    raise
        finally:
            request.total_s = time.perf_counter() - begin
            self._emit(request)
            current_request.reset(token)

    def tool(self, name: str, outcome: str, seconds: float) -> None:
        """Report the call of a tool. The outcome is "ok" or the code of an error."""
        name, outcome = (word if _WORD.fullmatch(word) else OTHER for word in (name, outcome))
        self._emit(ToolCallEvent(tool=name, outcome=outcome, total_s=seconds))

    def error(self, code: str, cause: BaseException | None = None) -> None:
        """Report an error that a door answered with.

        Give the cause of a bug: its class and position are logged, never its text.
        """
        self._emit(ErrorResponse(code=code, cause=cause))

    def jobs(self, counts: Mapping[JobState, int]) -> None:
        """Set the number of jobs in each state. Call this before `metrics`."""
        if self._metrics is not None:
            self._metrics.jobs(counts)

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in the format of an `Accept` header, and its content type."""
        if self._metrics is None:
            raise MissingDependencyError(
                "metrics need the package prometheus-client; pip install 'unspool[serve]'"
            )
        return self._metrics.text(accept)

    def close(self) -> None:
        """Stop observing, send pending traces, and restore logging.

        A second call does nothing.
        """
        while self._unsubscribe:
            self._unsubscribe.pop()()
        for sink in self._sinks:
            sink.close()

    def _emit(self, event: DoorEvent) -> None:
        for sink in self._sinks:
            sink.on_event(event)


def _open_metrics(slow_s: float) -> Metrics | None:
    """Return the metrics; None without the package."""
    if importlib.util.find_spec("prometheus_client") is None:
        return None
    from unspool.observability.to_prometheus import Metrics

    return Metrics(slow_s=slow_s)


def _open_traces(address: str) -> Traces:
    from unspool.observability.to_otel import Traces

    return Traces(address)
