"""Events as metrics for Prometheus.

Labels have few values each: no project, no path, no name that a caller can choose.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, values
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from unspool.domain.events import AnswerFinished, Event, IndexFinished, Outcome, PageServed
from unspool.domain.jobs import JobState
from unspool.observability.context import DoorEvent, ErrorResponse, Request, ToolCallEvent
from unspool.observability.sharing import shared_folder
from unspool.observability.to_logging import list_statuses

VERSION = version("unspool")
# a page, a request: 10 ms is the aim, 30 s the limit
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# an answer, an indexing run
LONG = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0, 3600.0)
DEEPEST = 5  # pages beyond are counted together
MOST_NAMES = 64  # of tools, or of routes; more are counted as "other"
_DOCUMENT_RESULTS = ("added", "updated", "unchanged", "removed", "failed")
_ANY: tuple[str, ...] = ()

Measurement = tuple[str, float, tuple[str, ...]]  # metric, value, values of its labels


class _Definition(NamedTuple):
    """Metric: its class, meaning, labels and further options.

    Each label has the values that are reported before anything was counted.
    """

    kind: type[Any]
    about: str
    labels: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})


DEFINITIONS = {
    "embedding_cache": _Definition(
        Counter,
        "Vectors that were needed: found in a cache (hit) or computed (miss)",
        {"kind": ("query", "passage"), "result": ("hit", "miss")},
    ),
    "pages": _Definition(
        Counter, "Pages handed out, by where their hits came from", {"store": _ANY, "served": _ANY}
    ),
    "page_seconds": _Definition(
        Histogram,
        "How long a page took, by its number",
        {"store": _ANY, "page": _ANY},
        {"buckets": SHORT},
    ),
    "page_stage_seconds": _Definition(
        Histogram,
        "How long the parts of a page took",
        {"store": _ANY, "stage": _ANY},
        {"buckets": SHORT},
    ),
    "slow_pages": _Definition(
        Counter, "Pages that took longer than the setting slow_query_ms", {"store": _ANY}
    ),
    "page_hits": _Definition(Counter, "Hits on the pages handed out", {"store": _ANY}),
    "page_tokens": _Definition(Counter, "Tokens of the pages handed out", {"store": _ANY}),
    "answers": _Definition(
        Counter, "Answers, by how they ended", {"outcome": tuple(map(str, Outcome))}
    ),
    "answer_seconds": _Definition(
        Histogram, "How long answers took, to their end", {"outcome": _ANY}, {"buckets": LONG}
    ),
    "answer_first_text_seconds": _Definition(
        Histogram, "How long it took to the first text of an answer", options={"buckets": LONG}
    ),
    "answer_tokens": _Definition(
        Counter,
        "Tokens of answers: shown to the model, counted by it, written by it",
        {"kind": ("context", "prompt", "completion")},
    ),
    "answer_citations": _Definition(
        Counter, "Citations in answers: kept, or dropped for pointing at nothing", {"result": _ANY}
    ),
    "index_runs": _Definition(
        Counter, "Runs that wrote documents or conversations", {"task": _ANY}
    ),
    "index_run_seconds": _Definition(
        Histogram, "How long such runs took", {"task": _ANY}, {"buckets": LONG}
    ),
    "index_documents": _Definition(
        Counter, "Documents, by what became of them", {"result": _DOCUMENT_RESULTS}
    ),
    "index_chunks": _Definition(Counter, "Chunks written"),
    # every process sees all jobs in the catalog
    "jobs": _Definition(
        Gauge,
        "Jobs by state, as of now",
        {"state": _ANY},
        options={"multiprocess_mode": "mostrecent"},
    ),
    "errors": _Definition(
        Counter, "Errors that a door answered with, by code", {"code": (*list_statuses(), "bug")}
    ),
    "http_requests": _Definition(
        Counter, "Requests answered", {"method": _ANY, "route": _ANY, "status": _ANY}
    ),
    "http_request_seconds": _Definition(
        Histogram,
        "How long requests took, streams to their end",
        {"method": _ANY, "route": _ANY},
        {"buckets": SHORT},
    ),
    "http_requests_in_progress": _Definition(
        Gauge, "Requests being answered now", options={"multiprocess_mode": "livesum"}
    ),
    "mcp_calls": _Definition(Counter, "Calls of tools by agents", {"tool": _ANY, "outcome": _ANY}),
    "mcp_call_seconds": _Definition(
        Histogram, "How long calls of tools took", {"tool": _ANY}, {"buckets": SHORT}
    ),
    "build_info": _Definition(
        Gauge,
        "The version that runs",
        {"version": (VERSION,), "python": (platform.python_version(),)},
        options={"multiprocess_mode": "livemax"},
    ),
}


class Metrics:
    """All metrics of a service, in a registry of their own.

    Processes that share a folder each return what all of them counted.
    """

    def __init__(self, *, slow_s: float) -> None:
        self.registry = CollectorRegistry()
        # chosen while the library was imported, by the variable that names the folder
        self.is_shared = values.ValueClass is not values.MutexValue
        self._slow_s = slow_s
        self._tools, self._routes, self._outcomes = (
            _LimitedNames(),
            _LimitedNames(),
            _LimitedNames(),
        )
        self._metrics: dict[str, Any] = {
            name: one.kind(
                f"unspool_{name}",
                one.about,
                tuple(one.labels),
                registry=self.registry,
                **one.options,
            )
            for name, one in DEFINITIONS.items()
        }
        for name, one in DEFINITIONS.items():
            for labels in product(*one.labels.values()) if one.labels else ():
                self._metrics[name].labels(*labels)
        self._metrics["build_info"].labels(VERSION, platform.python_version()).set(1)
        self.jobs({})
        self._measure: dict[type[Any], Callable[[Any], Iterator[Measurement]]] = {
            PageServed: self._measure_page,
            AnswerFinished: _measure_answer,
            IndexFinished: _measure_index,
            Request: self._measure_request,
            ToolCallEvent: self._measure_tool,
            ErrorResponse: _measure_error,
        }

    def on_event(self, event: Event | DoorEvent) -> None:
        """Count an event."""
        for name, value, labels in self._measure[type(event)](event):
            metric = self._metrics[name].labels(*labels) if labels else self._metrics[name]
            (metric.observe if DEFINITIONS[name].kind is Histogram else metric.inc)(value)

    def track_request(self) -> AbstractContextManager[None]:
        """Count a request as in progress during a block."""
        tracker: AbstractContextManager[None] = self._metrics[
            "http_requests_in_progress"
        ].track_inprogress()
        return tracker

    def jobs(self, counts: Mapping[JobState, int]) -> None:
        """Set the number of jobs in each state; 0 for states that are missing."""
        for state in JobState:
            self._metrics["jobs"].labels(state.value).set(counts.get(state, 0))

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the requested format, and its content type."""
        encode, content_type = choose_encoder(accept)
        registry = self.registry
        if self.is_shared:
            _remove_dead_processes(shared_folder())
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return encode(_WithoutCreationTimes(registry)), content_type

    def close(self) -> None:
        """Remove the gauges of this process. Its counters stay for the other processes."""
        if self.is_shared:
            mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]

    def _measure_page(self, event: PageServed) -> Iterator[Measurement]:
        store = event.store
        page = str(event.number) if event.number < DEEPEST else f"{DEEPEST}+"
        yield "pages", 1, (store, event.served.value)
        yield "page_seconds", event.total_s, (store, page)
        if event.embedding != "unneeded":
            result = "hit" if event.embedding == "cached" else "miss"
            yield "embedding_cache", 1, ("query", result)
            yield "page_stage_seconds", event.embed_s, (store, "embed")
        if event.searched:
            yield "page_stage_seconds", event.search_s, (store, "search")
        yield "page_stage_seconds", event.hydrate_s, (store, "hydrate")
        yield "page_hits", event.hits, (store,)
        yield "page_tokens", event.tokens, (store,)
        if event.total_s > self._slow_s:
            yield "slow_pages", 1, (store,)

    def _measure_request(self, event: Request) -> Iterator[Measurement]:
        route = self._routes.limit(event.route or "unmatched")
        status = str(event.status) if 100 <= event.status <= 599 else "none"
        yield "http_requests", 1, (event.method, route, status)
        yield "http_request_seconds", event.total_s, (event.method, route)

    def _measure_tool(self, event: ToolCallEvent) -> Iterator[Measurement]:
        tool = self._tools.limit(event.tool)
        yield "mcp_calls", 1, (tool, self._outcomes.limit(event.outcome))
        yield "mcp_call_seconds", event.total_s, (tool,)


def _measure_answer(event: AnswerFinished) -> Iterator[Measurement]:
    yield "answers", 1, (event.outcome.value,)
    yield "answer_seconds", event.total_s, (event.outcome.value,)
    if event.first_s is not None:
        yield "answer_first_text_seconds", event.first_s, ()
    for kind in ("context", "prompt", "completion"):
        yield "answer_tokens", getattr(event, f"{kind}_tokens") or 0, (kind,)
    yield "answer_citations", event.citations, ("kept",)
    yield "answer_citations", event.dropped_citations, ("dropped",)


def _measure_index(event: IndexFinished) -> Iterator[Measurement]:
    yield "index_runs", 1, (event.task,)
    yield "index_run_seconds", event.total_s, (event.task,)
    for result in _DOCUMENT_RESULTS:
        yield "index_documents", getattr(event, result), (result,)
    yield "index_chunks", event.chunks, ()
    yield "embedding_cache", event.embedded, ("passage", "miss")
    # equal texts are embedded once
    yield "embedding_cache", max(event.chunks - event.embedded, 0), ("passage", "hit")


def _measure_error(event: ErrorResponse) -> Iterator[Measurement]:
    is_known = event.code in list_statuses() or event.code in ("bug", "usage")
    yield "errors", 1, (event.code if is_known else "other",)


class _WithoutCreationTimes:
    """Registry without the creation time of each series, which would double the number of
    series.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample for sample in metric.samples if not sample.name.endswith("_created")
            ]
            yield metric


class _LimitedNames(set[str]):
    """Set of the first `MOST_NAMES` names of a kind."""

    def limit(self, name: str) -> str:
        """Return a name, or "other" if there are too many."""
        if name not in self and len(self) >= MOST_NAMES:
            return "other"
        self.add(name)
        return name


def _remove_dead_processes(folder: Path) -> None:
    """Remove the gauges of killed processes, whose requests would count as in progress forever."""
    if os.name != "posix":  # signal 0 exists only there
        return
    for file in folder.glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not _is_alive(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
