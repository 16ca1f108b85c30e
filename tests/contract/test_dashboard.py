"""The dashboard that ships: built as Grafana wants it, from metrics that there are, and every
panel shows something on a real Prometheus.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import unspool
import wire
from models import needed
from monitoring import PrometheusServer, endpoint, eventually
from servers import NoServer
from support import doc, open_corpus, report_missing
from unspool.errors import UnspoolError
from unspool.observability import Observer, install

pytest.importorskip(
    "prometheus_client", reason="metrics need prometheus-client; pip install 'unspool[serve]'"
)

from unspool.observability.to_prometheus import Metrics

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "grafana" / "unspool.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
KEY = "unspool_0123456789abcdef_a-secret-of-the-scraper"
COLUMNS = 24
VARIABLES = {"$job": ".*", "$store": ".*", "$__rate_interval": "1m"}


def expressions() -> Iterator[tuple[str, str]]:
    """Every query of every panel, with the panel's title."""
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_every_panel_has_a_place_a_number_and_a_query_of_its_own() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in PANELS]
    assert len(titles) == len(set(titles))
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]),
                range(place["y"], place["y"] + place["h"]),
            )
        )
        assert cells, panel["title"]
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
        assert not taken & cells, panel["title"]
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["description"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"], panel["title"]
        assert all(
            target["expr"].strip() and target["datasource"] == panel["datasource"]
            for target in panel["targets"]
        )
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_every_variable_that_is_used_is_defined_and_the_other_way_round() -> None:
    defined = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(PANELS)))
    assert used == defined
    assert set(re.findall(r"\$__\w+", json.dumps(PANELS))) <= set(VARIABLES)


def test_every_metric_that_is_named_exists_and_every_one_that_exists_is_shown() -> None:
    named = {
        name for _, expression in expressions() for name in re.findall(r"\bunspool_\w+", expression)
    }
    suffix = {"counter": "_total", "gauge": "", "histogram": "_bucket"}
    existing = {
        metric.name + suffix[metric.type] for metric in Metrics(slow_s=1).registry.collect()
    }
    assert named == existing


def test_every_panel_shows_what_a_service_did(tmp_path: Path) -> None:
    needed("httpx2", "pip install 'unspool[hosted]'")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with (
        wire.WireServer() as model,
        open_corpus(tmp_path / "catalog.db", slow_query_ms=0, **_model(model)) as corpus,
    ):
        observer = install(corpus, corpus.settings, stream=io.StringIO())
        round_ = itertools.count()
        try:
            with endpoint(observer.metrics, KEY) as place, _prometheus(folder, place) as prometheus:
                _scraped(prometheus, lambda: _work(corpus, observer, next(round_)))
                # a rate needs two
                _scraped(prometheus, lambda: _work(corpus, observer, next(round_)))
                empty = {
                    title: expression
                    for title, expression in expressions()
                    if not _shows(prometheus, expression)
                }
                values = {
                    one["name"]: prometheus.label_values(*_asked(one))
                    for one in DASHBOARD["templating"]["list"]
                    if one["type"] == "query"
                }
        finally:
            observer.close()
    assert empty == {}
    assert values == {"job": ["unspool"], "store": ["embedded"]}


def _model(server: wire.WireServer) -> dict[str, str]:
    return {"answer_model": "openai:gpt-test", "answer_url": server.url, "answer_key": "sk-0"}


def _prometheus(folder: Path, place: str) -> PrometheusServer:
    """A server with the configuration of the documentation, in more of a hurry."""
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    (configuration,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    secret = folder / "unspool.key"
    secret.write_text(KEY, encoding="utf-8")
    for old, new in (
        ("localhost:8765", place),
        ("/etc/prometheus/unspool.key", str(secret)),
        ("scrape_interval: 15s", "scrape_interval: 200ms"),
    ):
        assert old in configuration
        configuration = configuration.replace(old, new)
    try:
        return PrometheusServer.start(folder, configuration)
    except NoServer as error:
        report_missing(error.service, str(error))


def _scraped(prometheus: PrometheusServer, work: Callable[[], None]) -> None:
    """Do something, and return when Prometheus has seen it: of two more scrapes the second began
    afterwards.
    """
    work()
    so_far = prometheus.scrapes("unspool")
    eventually(lambda: prometheus.scrapes("unspool") >= so_far + 2)


def _work(corpus: unspool.Corpus, observer: Observer, number: int) -> None:
    """Something of everything: writing, searching, paging, an answer, an error, requests, tools,
    jobs.
    """
    texts = [
        f"The lighthouse number {one} of harbour {number} needs new lamps." for one in range(30)
    ]
    corpus.put(*(doc(f"{number}/{place}.md", text) for place, text in enumerate(texts)))
    # of which every vector is known
    corpus.put(*(doc(f"{number}/copy-{place}.md", text) for place, text in enumerate(texts)))
    with observer.request(method="POST", request_id="a1") as request:
        request.route, request.key = "/v1/search", "0123456789abcdef"
        page = corpus.search(f"lamps of harbour {number}", limit=5)
        for _ in range(5):
            page = page.more()
        corpus.search(f"lamps of harbour {number}")
        request.status = 200
    with observer.request(method="POST", request_id="a2") as request:
        request.route = "/v1/search"
        with pytest.raises(UnspoolError) as caught:
            corpus.search("lamps", limit=0)
        observer.error(caught.value.code)
        request.status = caught.value.http_status
    assert corpus.ask("Which lighthouse needs lamps?").citations
    observer.tool("search", "ok", 0.02)
    observer.tool("read", "not_found", 0.001)
    observer.jobs({"queued": 2, "running": 1, "done": 5})


def _shows(prometheus: PrometheusServer, expression: str) -> bool:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return any(math.isfinite(float(series["value"][1])) for series in prometheus.query(expression))


def _asked(variable: dict[str, Any]) -> tuple[str, str]:
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert found is not None
    return found[2], found[1]
