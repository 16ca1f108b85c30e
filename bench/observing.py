"""What watching costs: the microseconds that logs, metrics and traces add to the event of a page,
and all three to a whole request.

Logs go to the null device. Traces are made and thrown away: sending them is the work of another
thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import unspool
from common import Figure, parser, show
from unspool.domain.events import Hook, Hooks, PageServed
from unspool.domain.queries import Served, Stability
from unspool.observability import Observer, install
from unspool.observability.to_logging import Logs
from unspool.observability.to_otel import Traces
from unspool.observability.to_prometheus import Metrics

PAGE = PageServed(
    store="embedded",
    projects=1,
    number=1,
    served=Served.WINDOW,
    stability=Stability.SNAPSHOT,
    searched=True,
    embedding="computed",
    hits=10,
    tokens=1800,
    is_last=False,
    embed_s=0.0004,
    search_s=0.004,
    hydrate_s=0.002,
    total_s=0.007,
)
ROUNDS = 15


class _Teller:
    """Tells of events as a corpus does."""

    def __init__(self) -> None:
        self.hooks = Hooks()

    def observe(self, hook: Hook) -> Callable[[], None]:
        return self.hooks.add(hook)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--events", type=int, default=2_000, help="in each of the rounds")
    given = options.parse_args()
    show("observing", list(_figures(given.events)), as_json=given.json)


def _figures(events: int) -> Iterator[Figure]:
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        traces = Traces("http://127.0.0.1:9")
        traces._provider._active_span_processor._span_processors = ()  # type: ignore[attr-defined] # nobody is there to send them to
        metrics = Metrics(slow_s=1)
        yield _figure("a page, metrics", lambda: metrics.on_event(PAGE), events)
        yield _figure("a page, traces", lambda: traces.on_event(PAGE), events)
        for form in ("text", "json"):
            logs = Logs(level="info", is_json=form == "json", slow_s=1, stream=nothing)
            yield _figure(f"a page, logs as {form}", lambda logs=logs: logs.on_event(PAGE), events)  # type: ignore[misc]
            logs.close()
        teller = _Teller()
        observer = install(
            teller,
            unspool.Settings.load(
                arguments={"log_format": "json"}, environment={}, folder=Path(os.devnull)
            ),
            stream=nothing,
        )
        yield _figure(
            "a page, metrics and logs", lambda: teller.hooks.emit(PAGE), events, bound=200
        )
        yield _figure(
            "a request around it, metrics and logs", lambda: _request(observer), events, bound=200
        )
        observer.close()
        traces.close()


def _request(observer: Observer) -> None:
    with observer.request(method="POST", request_id="0123456789abcdef") as request:
        request.route, request.status, request.key = "/v1/search", 200, "0123456789abcdef"


def _figure(name: str, call: Callable[[], None], times: int, bound: float | None = None) -> Figure:
    """The median of some rounds, in processor time: on a busy machine the rest is waiting."""
    taken = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        for _ in range(times):
            call()
        taken.append((time.thread_time() - begun) / times * 1e6)
    return Figure(
        name=name,
        value=round(median(taken), 1),
        unit="µs",
        bound=bound,
        note=f"the best round {min(taken):.1f}",
    )


if __name__ == "__main__":
    main()
