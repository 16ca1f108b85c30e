"""The observer of a service: hooked to the events of a corpus, and told by the doors what only
they know.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from unspool.domain.events import Hook
from unspool.domain.jobs import JobState
from unspool.errors import MissingDependencyError
from unspool.observability.context import request_id as current_request
from unspool.observability.to_logging import Logs
from unspool.settings import Settings

if TYPE_CHECKING:  # extras, imported where they are installed or asked for
    from unspool.observability.to_otel import Traces
    from unspool.observability.to_prometheus import Metrics


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
OTHER = "other"  # instead of what a caller made up


class Observed(Protocol):
    """What tells of events: a corpus, synchronous or not."""

    def observe(self, hook: Hook) -> Callable[[], None]: ...


@dataclass(slots=True, kw_only=True)
class Request:
    """A request under way.

    Whoever answers it fills in the rest: `route` is the template, never the path itself, `key` a
    key's id, never the key.
    """

    method: str
    request_id: str = ""
    route: str = ""
    status: int = 0
    key: str = ""


def install(
    corpus: Observed, settings: Settings, *, stream: TextIO | None = None, metrics: bool = True
) -> Observer:
    """Watch a corpus as the settings say: logs to a stream (stderr unless given), metrics where the
    package is installed, traces if asked for.

    `metrics` is False where nobody could read them: to make them takes a part of the start.
    """
    traces = _traces(settings) if settings.log.traces else None
    slow_s = settings.log.slow_query_ms / 1000
    logs = Logs(
        level=settings.log.level,
        is_json=settings.log.format == "json",
        slow_s=slow_s,
        stream=stream,
    )
    return Observer(corpus, logs=logs, metrics=_metrics(slow_s) if metrics else None, traces=traces)


class Observer:
    """Tells logs, metrics and traces. Safe to use from several threads."""

    def __init__(
        self, corpus: Observed, *, logs: Logs, metrics: Metrics | None, traces: Traces | None
    ) -> None:
        self._logs = logs
        self._metrics = metrics
        self._traces = traces
        self._ends = [
            corpus.observe(one.on_event) for one in (logs, metrics, traces) if one is not None
        ]  # a hook each: one that fails stops no other

    @contextmanager
    def request(
        self, *, method: str, request_id: str = "", traceparent: str = ""
    ) -> Iterator[Request]:
        """Around a request over HTTP: what happens within belongs to it, and its end is told of
        with whatever was filled in by then.

        Where it ends with an exception before it has a status, that is 500; where whoever asked
        went away, there is none.
        """
        method = method if method in METHODS else OTHER
        request = Request(method=method, request_id=request_id)
        token = current_request.set(request_id)
        if self._metrics is not None:
            self._metrics.begin_request()
        begun = time.perf_counter()
        try:
            with (
                self._traces.request(request, traceparent)
                if self._traces is not None
                else nullcontext()
            ):
                try:
                    yield request
                except Exception:
                    request.status = request.status or 500
                    raise
        finally:
            seconds = time.perf_counter() - begun
            if self._metrics is not None:
                self._metrics.end_request(method, request.route, request.status, seconds)
            self._logs.request(method, request.route, request.status, seconds, request.key)
            current_request.reset(token)

    def tool(self, name: str, outcome: str, seconds: float) -> None:
        """A tool was called by an agent: its name, a word for what came of it ("ok", or the code
        of an error), and how long it took.
        """
        name, outcome = (word if _WORD.fullmatch(word) else OTHER for word in (name, outcome))
        if self._metrics is not None:
            self._metrics.tool(name, outcome, seconds)
        if self._traces is not None:
            self._traces.tool(name, outcome, seconds)
        self._logs.tool(name, outcome, seconds)

    def error(self, code: str, cause: BaseException | None = None) -> None:
        """A door answered with an error.

        A cause is given for what is a bug: its class and where it was raised are logged, never its
        text.
        """
        if self._metrics is not None:
            self._metrics.error(code)
        self._logs.error(code, cause)

    def jobs(self, counts: Mapping[JobState, int]) -> None:
        """How many jobs there are in each state now.

        Whoever hands out the metrics says so before.
        """
        if self._metrics is not None:
            self._metrics.jobs(counts)

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the format that an `Accept` header asks for, and its content type."""
        if self._metrics is None:
            raise MissingDependencyError(
                "metrics need the package prometheus-client; pip install 'unspool[serve]'"
            )
        return self._metrics.text(accept)

    def close(self) -> None:
        """Stop watching, send the traces that wait, and leave logging as it was.

        A second time does nothing.
        """
        while self._ends:
            self._ends.pop()()
        if self._traces is not None:
            self._traces.close()
        if self._metrics is not None:
            self._metrics.close()
        self._logs.close()


def _metrics(slow_s: float) -> Metrics | None:
    """None without the package."""
    if importlib.util.find_spec("prometheus_client") is None:
        return None
    from unspool.observability.to_prometheus import Metrics

    return Metrics(slow_s=slow_s)


def _traces(settings: Settings) -> Traces:
    from unspool.observability.to_otel import Traces

    return Traces(settings.log.traces)
