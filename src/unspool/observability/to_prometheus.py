"""Events and requests as metrics for Prometheus.

Labels are few words each: no project, no path, no name that a caller can choose.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, values
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from unspool.domain.events import AnswerFinished, Event, IndexFinished, Outcome, PageServed
from unspool.domain.jobs import JobState
from unspool.observability import sharing
from unspool.observability.to_logging import statuses

VERSION = version("unspool")
# a page, a request: 10 ms is the aim, 30 s the limit
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# an answer, an indexing run
LONG = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0, 3600.0)
DEEPEST = 5  # pages beyond are counted together
MOST_NAMES = 64  # of tools, or of routes; more are counted as "other"


class Metrics:
    """All metrics of a service, in a registry of their own.

    Where processes share a folder, each hands out what all of them counted.
    """

    def __init__(self, *, slow_s: float) -> None:
        self.registry = CollectorRegistry()
        # chosen while the library was imported, by the variable that names the folder
        self.is_shared = values.ValueClass is not values.MutexValue
        self._slow_s = slow_s
        self._tools = _Few()
        self._routes = _Few()
        self._outcomes = _Few()
        self._define_searching()
        self._define_writing()
        self._define_doors()
        self._told: dict[type[Any], Callable[[Any], None]] = {
            PageServed: self._on_page,
            AnswerFinished: self._on_answer,
            IndexFinished: self._on_index,
        }

    def _define_searching(self) -> None:
        self._cache = self._counter(
            "embedding_cache",
            "Vectors that were needed: found in a cache (hit) or computed (miss)",
            "kind",
            "result",
        )
        for kind in ("query", "passage"):
            for result in ("hit", "miss"):
                self._cache.labels(kind, result)
        self._pages = self._counter(
            "pages", "Pages handed out, by where their hits came from", "store", "served"
        )
        self._page_s = self._histogram(
            "page_seconds", "How long a page took, by its number", SHORT, "store", "page"
        )
        self._stage_s = self._histogram(
            "page_stage_seconds", "How long the parts of a page took", SHORT, "store", "stage"
        )
        self._slow = self._counter(
            "slow_pages", "Pages that took longer than the setting slow_query_ms", "store"
        )
        self._hits = self._counter("page_hits", "Hits on the pages handed out", "store")
        self._page_tokens = self._counter("page_tokens", "Tokens of the pages handed out", "store")
        self._answers = self._counter("answers", "Answers, by how they ended", "outcome")
        self._answer_s = self._histogram(
            "answer_seconds", "How long answers took, to their end", LONG, "outcome"
        )
        self._first_s = self._histogram(
            "answer_first_text_seconds", "How long it took to the first text of an answer", LONG
        )
        self._answer_tokens = self._counter(
            "answer_tokens",
            "Tokens of answers: shown to the model, counted by it, written by it",
            "kind",
        )
        self._citations = self._counter(
            "answer_citations",
            "Citations in answers: kept, or dropped for pointing at nothing",
            "result",
        )
        for outcome in Outcome:
            self._answers.labels(outcome.value)
        for kind in ("context", "prompt", "completion"):
            self._answer_tokens.labels(kind)

    def _define_writing(self) -> None:
        self._runs = self._counter(
            "index_runs", "Runs that wrote documents or conversations", "task"
        )
        self._run_s = self._histogram("index_run_seconds", "How long such runs took", LONG, "task")
        self._documents = self._counter(
            "index_documents", "Documents, by what became of them", "result"
        )
        for result in ("added", "updated", "unchanged", "removed", "failed"):
            self._documents.labels(result)
        self._chunks = self._counter("index_chunks", "Chunks written")
        self._jobs = Gauge(
            "unspool_jobs",
            "Jobs by state, as of now",
            ["state"],
            registry=self.registry,
            multiprocess_mode="mostrecent",
        )  # every process sees all of them in the catalog
        for state in JobState:
            self._jobs.labels(state.value).set(0)

    def _define_doors(self) -> None:
        self._errors = self._counter("errors", "Errors that a door answered with, by code", "code")
        for code in (*statuses(), "bug"):
            self._errors.labels(code)
        self._requests = self._counter(
            "http_requests", "Requests answered", "method", "route", "status"
        )
        self._request_s = self._histogram(
            "http_request_seconds",
            "How long requests took, streams to their end",
            SHORT,
            "method",
            "route",
        )
        self._in_progress = Gauge(
            "unspool_http_requests_in_progress",
            "Requests being answered now",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._calls = self._counter("mcp_calls", "Calls of tools by agents", "tool", "outcome")
        self._call_s = self._histogram(
            "mcp_call_seconds", "How long calls of tools took", SHORT, "tool"
        )
        build = Gauge(
            "unspool_build_info",
            "The version that runs",
            ["version", "python"],
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        build.labels(VERSION, platform.python_version()).set(1)

    def on_event(self, event: Event) -> None:
        """Count an event."""
        self._told[type(event)](event)

    def begin_request(self) -> None:
        """A request came in."""
        self._in_progress.inc()

    def end_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has ended.

        A route that there is none for is called "unmatched", a status that was never sent "none".
        """
        self._in_progress.dec()
        route = self._routes.name(route or "unmatched")
        self._requests.labels(method, route, str(status) if 100 <= status <= 599 else "none").inc()
        self._request_s.labels(method, route).observe(seconds)

    def tool(self, name: str, outcome: str, seconds: float) -> None:
        """A tool was called."""
        name = self._tools.name(name)
        self._calls.labels(name, self._outcomes.name(outcome)).inc()
        self._call_s.labels(name).observe(seconds)

    def error(self, code: str) -> None:
        """A door answered with an error."""
        self._errors.labels(
            code if code in statuses() or code in ("bug", "usage") else "other"
        ).inc()

    def jobs(self, counts: Mapping[JobState, int]) -> None:
        """How many jobs there are in each state; in those not named there are none."""
        for state in JobState:
            self._jobs.labels(state.value).set(counts.get(state, 0))

    def text(self, accept: str) -> tuple[bytes, str]:
        """Everything counted so far, and the content type of the format that was asked for."""
        encode, content_type = choose_encoder(accept)
        whole = self.registry
        if self.is_shared:
            _bury(sharing.folder())
            whole = CollectorRegistry()
            MultiProcessCollector(whole)  # type: ignore[no-untyped-call]
        return encode(_Counted(whole)), content_type

    def close(self) -> None:
        """What this process is doing now is over; what it counted stays, for the others."""
        if self.is_shared:
            mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]

    def _on_page(self, event: PageServed) -> None:
        store = event.store
        self._pages.labels(store, event.served.value).inc()
        self._page_s.labels(
            store, str(event.number) if event.number < DEEPEST else f"{DEEPEST}+"
        ).observe(event.total_s)
        if event.embedding != "unneeded":
            self._cache.labels("query", "hit" if event.embedding == "cached" else "miss").inc()
            self._stage_s.labels(store, "embed").observe(event.embed_s)
        if event.searched:
            self._stage_s.labels(store, "search").observe(event.search_s)
        self._stage_s.labels(store, "hydrate").observe(event.hydrate_s)
        self._hits.labels(store).inc(event.hits)
        self._page_tokens.labels(store).inc(event.tokens)
        if event.total_s > self._slow_s:
            self._slow.labels(store).inc()

    def _on_answer(self, event: AnswerFinished) -> None:
        self._answers.labels(event.outcome.value).inc()
        self._answer_s.labels(event.outcome.value).observe(event.total_s)
        if event.first_s is not None:
            self._first_s.observe(event.first_s)
        self._answer_tokens.labels("context").inc(event.context_tokens)
        self._answer_tokens.labels("prompt").inc(event.prompt_tokens or 0)
        self._answer_tokens.labels("completion").inc(event.completion_tokens or 0)
        self._citations.labels("kept").inc(event.citations)
        self._citations.labels("dropped").inc(event.dropped_citations)

    def _on_index(self, event: IndexFinished) -> None:
        self._runs.labels(event.task).inc()
        self._run_s.labels(event.task).observe(event.total_s)
        for result in ("added", "updated", "unchanged", "removed", "failed"):
            self._documents.labels(result).inc(getattr(event, result))
        self._chunks.inc(event.chunks)
        self._cache.labels("passage", "miss").inc(event.embedded)
        # equal texts are embedded once
        self._cache.labels("passage", "hit").inc(max(event.chunks - event.embedded, 0))

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"unspool_{name}", about, labels, registry=self.registry)

    def _histogram(
        self, name: str, about: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"unspool_{name}", about, labels, registry=self.registry, buckets=buckets)


class _Counted:
    """A registry without the times at which each series began, which would double the number of
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


class _Few:
    """The first so many names of a kind; every further one is "other"."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def name(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= MOST_NAMES:
                return "other"
            self._known.add(name)
        return name


def _bury(folder: Path) -> None:
    """Forget what killed processes were doing: nobody else takes back the requests that they
    were answering.
    """
    if os.name != "posix":  # elsewhere signal 0 is none
        return
    for file in folder.glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not _lives(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
