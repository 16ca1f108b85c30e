"""Metrics: what is counted under which labels, that those are few, and that several processes
count together.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import happenings
import unspool
from happenings import Teller, page
from unspool.domain.events import Outcome
from unspool.domain.jobs import JobState
from unspool.domain.queries import Served
from unspool.errors import MissingDependencyError
from unspool.observability import Observer, install, shared_metrics

pytest.importorskip(
    "prometheus_client", reason="metrics need prometheus-client; pip install 'unspool[serve]'"
)

from prometheus_client.parser import text_string_to_metric_families

from unspool.observability.to_prometheus import MOST_NAMES, Metrics

ROOT = Path(__file__).resolve().parents[2]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    families = text_string_to_metric_families(text.decode())
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


class Watched:
    """A teller of events, whoever watches it, and what was counted."""

    def __init__(self, teller: Teller, observer: Observer) -> None:
        self.tell = teller.tell
        self.observer = observer

    def samples(self) -> Samples:
        return samples(self.observer.metrics()[0])

    def value(self, name: str, **labels: str) -> float | None:
        """None where there is no such series."""
        return self.samples().get((f"unspool_{name}", tuple(sorted(labels.items()))))


@pytest.fixture
def watched() -> Iterator[Watched]:
    teller = Teller()
    settings = unspool.Settings.load(
        arguments={"slow_query_ms": 100}, environment={}, folder=Path("/nowhere")
    )
    observer = install(teller, settings, stream=io.StringIO())
    yield Watched(teller, observer)
    observer.close()


def test_queries_and_passages_that_were_known_are_told_from_those_that_were_embedded(
    watched: Watched,
) -> None:
    watched.tell(
        page(embedding="computed"),
        page(embedding="cached"),
        page(embedding="cached"),
        page(embedding="unneeded"),
        happenings.INDEX,
    )
    cache = {
        (kind, result): watched.value("embedding_cache_total", kind=kind, result=result)
        for kind in ("query", "passage")
        for result in ("hit", "miss")
    }
    known = happenings.INDEX.chunks - happenings.INDEX.embedded
    assert cache == {
        ("query", "hit"): 2,
        ("query", "miss"): 1,
        ("passage", "hit"): known,
        ("passage", "miss"): happenings.INDEX.embedded,
    }


def test_pages_are_counted_by_store_and_by_how_they_were_served(watched: Watched) -> None:
    watched.tell(
        page(), page(), page(served=Served.WIDER), page(store="postgresql", served=Served.HINT)
    )
    assert watched.value("pages_total", store="embedded", served="window") == 2
    assert watched.value("pages_total", store="embedded", served="wider") == 1
    assert watched.value("pages_total", store="postgresql", served="hint") == 1
    assert watched.value("page_hits_total", store="embedded") == 3 * happenings.PAGE.hits
    assert watched.value("page_tokens_total", store="embedded") == 3 * happenings.PAGE.tokens


def test_pages_far_behind_are_counted_together(watched: Watched) -> None:
    watched.tell(*(page(number=number, total_s=0.25) for number in (1, 2, 4, 5, 6, 1000)))
    counts = {
        number: watched.value("page_seconds_count", store="embedded", page=number)
        for number in ("1", "2", "3", "4", "5+", "6")
    }
    assert counts == {"1": 1, "2": 1, "3": None, "4": 1, "5+": 3, "6": None}
    assert watched.value("page_seconds_sum", store="embedded", page="5+") == pytest.approx(0.75)
    assert watched.value("slow_pages_total", store="embedded") == 6


def test_a_part_that_was_not_needed_is_not_counted(watched: Watched) -> None:
    watched.tell(page(), page(embedding="unneeded", searched=False))
    counts = {
        stage: watched.value("page_stage_seconds_count", store="embedded", stage=stage)
        for stage in ("embed", "search", "hydrate")
    }
    assert counts == {"embed": 1, "search": 1, "hydrate": 2}
    assert watched.value("slow_pages_total", store="embedded") is None


def test_answers_and_their_tokens(watched: Watched) -> None:
    watched.tell(
        happenings.ANSWER,
        replace(
            happenings.ANSWER,
            outcome=Outcome.FAILED,
            prompt_tokens=None,
            completion_tokens=None,
            first_s=None,
        ),
    )
    assert (
        watched.value("answers_total", outcome="answered")
        == watched.value("answers_total", outcome="failed")
        == 1
    )
    assert watched.value("answers_total", outcome="nothing") == 0
    tokens = {
        kind: watched.value("answer_tokens_total", kind=kind)
        for kind in ("context", "prompt", "completion")
    }
    assert tokens == {"context": 2400, "prompt": 1300, "completion": 80}
    assert watched.value("answer_first_text_seconds_count") == 1
    assert watched.value("answer_citations_total", result="dropped") == 2


def test_what_was_indexed(watched: Watched) -> None:
    watched.tell(happenings.INDEX, happenings.INDEX)
    assert (
        watched.value("index_runs_total", task="index")
        == watched.value("index_run_seconds_count", task="index")
        == 2
    )
    documents = {
        result: watched.value("index_documents_total", result=result)
        for result in ("added", "updated", "unchanged", "removed", "failed")
    }
    assert documents == {"added": 6, "updated": 4, "unchanged": 20, "removed": 2, "failed": 2}
    assert watched.value("index_chunks_total") == 80


def test_jobs_are_as_they_were_said_to_be_last(watched: Watched) -> None:
    watched.observer.jobs({JobState.QUEUED: 3, JobState.RUNNING: 1})
    watched.observer.jobs({JobState.QUEUED: 2, JobState.DONE: 1})
    assert {state: watched.value("jobs", state=state) for state in JobState} == {
        **dict.fromkeys(JobState, 0),
        "queued": 2,
        "done": 1,
    }


def test_errors_of_every_code_are_there_before_the_first_and_unknown_codes_are_one(
    watched: Watched,
) -> None:
    for code in ("not_found", "bug", "made up", "made up too"):
        watched.observer.error(code)
    assert [
        watched.value("errors_total", code=code)
        for code in ("not_found", "bug", "other", "throttled")
    ] == [1, 1, 2, 0]


def test_requests_by_route_and_status(watched: Watched) -> None:
    for status in (200, 200, 404):
        with watched.observer.request(method="GET") as request:
            assert watched.value("http_requests_in_progress") == 1
            request.route, request.status = "/v1/jobs/{id}", status
    with watched.observer.request(method="BREW"):
        pass
    assert (
        watched.value("http_requests_total", method="GET", route="/v1/jobs/{id}", status="200") == 2
    )
    assert (
        watched.value("http_requests_total", method="GET", route="/v1/jobs/{id}", status="404") == 1
    )
    assert (
        watched.value("http_requests_total", method="other", route="unmatched", status="none") == 1
    )
    assert watched.value("http_request_seconds_count", method="GET", route="/v1/jobs/{id}") == 3
    assert watched.value("http_requests_in_progress") == 0


def test_no_label_takes_any_number_of_values(watched: Watched) -> None:
    for number in range(2 * MOST_NAMES):
        watched.observer.tool(f"tool_{number}", f"outcome_{number}", 0.01)
        watched.observer.error(f"code_{number}")
        with watched.observer.request(method=f"M{number}") as request:
            request.route, request.status = f"/route/{number}", 200
        watched.tell(page(number=number + 1))
    counted: dict[tuple[str, str], set[str]] = {}
    for name, labels in watched.samples():
        for label, value in labels:
            counted.setdefault((name, label), set()).add(value)
    assert max(len(found) for found in counted.values()) <= MOST_NAMES + 1


def test_every_kind_of_event_is_counted(watched: Watched) -> None:
    for event in happenings.ALL:
        before = watched.samples()
        watched.tell(event)
        assert watched.samples() != before, type(event)


def test_the_format_is_the_one_that_was_asked_for(watched: Watched) -> None:
    plain, plain_type = watched.observer.metrics()
    assert plain_type.startswith("text/plain")
    assert samples(plain)
    body, kind = watched.observer.metrics("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert not [name for name, _ in samples(plain) if name.endswith("_created")]


def test_the_documentation_has_every_metric_with_its_type_and_labels(watched: Watched) -> None:
    watched.tell(*happenings.ALL, page(total_s=1))
    watched.observer.tool("search", "ok", 0.1)
    with watched.observer.request(method="GET"):
        pass
    counted = {}
    for family in text_string_to_metric_families(watched.observer.metrics()[0].decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        counted[name] = (
            family.type,
            {label for one in family.samples for label in one.labels} - {"le"},
        )
    text = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(unspool_\w+)` \| (\w+) \|([^|]*)\|", text, re.MULTILINE)
    assert {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows} == counted
    assert {
        f"{one.name}_total" if one.type == "counter" else one.name
        for one in Metrics(slow_s=1).registry.collect()
    } == set(counted)


def test_without_the_package_everything_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "unspool.observability.observer.importlib.util.find_spec", lambda name: None
    )
    teller = Teller()
    observer = install(
        teller, unspool.Settings.load(environment={}, folder=Path("/nowhere")), stream=io.StringIO()
    )
    teller.tell(*happenings.ALL)
    observer.jobs({})
    with pytest.raises(MissingDependencyError):
        observer.metrics()
    observer.close()


_WORKER = """
import io, sys, unspool
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from happenings import PAGE, Teller
from unspool.observability import install
teller = Teller()
observer = install(teller, unspool.Settings.load(environment={}, folder=Path("/nowhere")), stream=io.StringIO())
teller.tell(PAGE, PAGE)
observer.jobs({"queued": int(sys.argv[2])})
with observer.request(method="GET") as request:
    request.route, request.status = "/v1/stores", 200
    sys.stdout.buffer.write(observer.metrics()[0] + b"# over\\n")
    sys.stdout.flush()
    sys.stdin.read()
if sys.argv[2] == "7":
    observer.close()
"""


def _worker(number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _WORKER, str(ROOT / "tests"), str(number)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _said(worker: subprocess.Popen[bytes]) -> Samples:
    assert worker.stdout is not None
    return samples(b"".join(iter(worker.stdout.readline, b"# over\n")))


def _busy(found: Samples) -> float:
    return found["unspool_http_requests_in_progress", ()]


def test_workers_count_together_and_one_that_is_killed_takes_its_requests_with_it() -> None:
    pages = "unspool_pages_total", (("served", "window"), ("store", "embedded"))
    with shared_metrics(3):
        first = _worker(5)
        before = _said(first)[pages]  # a second worker that is halfway would make it 3
        second = _worker(6)
        try:
            assert (before, _said(second)[pages]) == (2, 4)
            first.kill()
            first.wait()
            third = _worker(7)
            found = _said(third)
            third.communicate()
        finally:
            for one in (first, second):
                one.kill()
                one.communicate()
    assert found[pages] == 6  # what the dead one counted stays
    assert _busy(found) == 2  # the second and the third are at it; the first is not any more
    assert found["unspool_jobs", (("state", "queued"),)] == 7
    assert len([name for name, _ in found if name == "unspool_build_info"]) == 1


def test_one_worker_needs_no_folder() -> None:
    before = dict(os.environ)
    with shared_metrics(1):
        assert dict(os.environ) == before
    with shared_metrics(2):
        assert Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).is_dir()
    assert dict(os.environ) == before
