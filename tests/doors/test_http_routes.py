"""Every route of the HTTP service, as a program calls it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

import unspool
from services import events, serving
from support import doc, settings_for, write
from unspool import Conversation, Message

ODD = (
    "a/../b",
    "..",
    "x #?&=%25 %2F+ä.md",
    "//two//",
    "日本.md",
    "a%2Fb",
    "a%0Ab",
    "a\n",
    "a\nb\n",
    "'; DROP TABLE documents; --",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def api(home: Path) -> Iterator[httpx2.Client]:
    settings = settings_for(home / "catalog.db", roots=str(home / "code"))
    write(
        home / "code",
        {"one.py": "def walrus():\n    return 1\n", "two.md": "# Two\n\nA walrus sleeps at sea.\n"},
    )
    with unspool.open(settings=settings) as corpus:
        corpus.put(
            *(
                doc(f"{number}.md", f"# Note {number}\n\nwalrus number {number}\n\nthe end")
                for number in range(12)
            )
        )
        corpus.remember(
            Conversation(
                id="talk/1",
                project="said",
                messages=[Message(text="how does a walrus sleep?", author="ann", id="m1")],
            )
        )
    with serving(settings) as address, httpx2.Client(base_url=address, timeout=30) as client:
        yield client


def ask(api: httpx2.Client, what: str, **body: Any) -> Any:
    answer = api.post(f"/v1/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_search_goes_on_page_by_page(api: httpx2.Client) -> None:
    first = ask(
        api,
        "search",
        query="walrus",
        projects=["notes"],
        limit=5,
        explain=True,
        full=True,
        where={"path": "*.md"},
    )
    assert [hit["rank"] for hit in first["hits"]] == [1, 2, 3, 4, 5]
    assert all(hit["reason"] and hit["id"].isdigit() for hit in first["hits"])
    second = ask(api, "more", continuation=first["continuation"])
    assert [hit["rank"] for hit in second["hits"]] == [6, 7, 8, 9, 10]
    assert second == ask(api, "more", continuation=first["continuation"])
    assert not {hit["path"] for hit in first["hits"]} & {hit["path"] for hit in second["hits"]}


def test_what_is_like_a_place_and_what_is_near_a_vector(api: httpx2.Client) -> None:
    assert ask(api, "related", path="3.md", project="notes", limit=2)["hits"][0]["path"] != "3.md"
    made = ask(api, "embed", text="walrus number 7")
    assert made["dimension"] == len(made["vector"])
    hits = ask(api, "nearest", vector=made["vector"], k=3, projects=["notes"])["hits"]
    assert len(hits) == 3
    assert ask(api, "count_tokens", text="walrus number 7")["tokens"] > 2


@pytest.mark.parametrize(
    "query",
    [
        '" OR 1=1 --',
        "walrus AND (",
        "NEAR/3 * ^ title:",
        "%' UNION SELECT name FROM keys",
        "\\",
        "\u0000walrus",
        "🐳" * 50,
    ],
)
def test_a_query_is_text_whatever_it_looks_like(api: httpx2.Client, query: str) -> None:
    assert ask(api, "search", query=query, projects=["*"])["query"] == query


def test_without_a_model_a_question_is_answered_with_what_one_would_be_shown(
    api: httpx2.Client,
) -> None:
    answer = ask(
        api,
        "ask",
        question="how does a walrus sleep?",
        projects=["said"],
        full=True,
        conversation=[{"text": "hello", "kind": "assistant"}],
    )
    assert answer["found"]
    assert answer["citations"][0]["hit"]["message"]["speaker"] == "ann"


@pytest.mark.parametrize("path", ODD)
def test_a_document_is_stored_read_and_removed_by_any_name(api: httpx2.Client, path: str) -> None:
    address = f"/v1/projects/odd/documents/{'%2E%2E' if path == '..' else quote(path, safe='')}"
    stored = api.put(
        address,
        json={
            "text": "one\ntwo\nthree",
            "title": "T",
            "metadata": {"n": 1.5, "ok": True},
            "modified": "2026-01-31T12:00:00+02:00",
        },
    )
    assert (stored.status_code, stored.json()["added"]) == (200, 1)
    found = api.get(address, params={"first": 2, "last": 2}).json()
    assert (found["document"]["path"], found["passage"]["text"], found["passage"]["lines"]) == (
        path,
        "two",
        [2, 2],
    )
    assert found["document"]["modified"] == "2026-01-31T10:00:00+00:00"
    assert found["document"]["metadata"] == {"n": 1.5, "ok": True}
    assert (
        api.put(
            address, json={"text": "new", "version": found["document"]["version"] + 1}
        ).status_code
        == 409
    )
    assert api.delete(address).json() == {"forgotten": 1}
    assert api.get(address).status_code == 404


def test_documents_are_listed_in_portions(api: httpx2.Client) -> None:
    given = [{"path": f"{letter}.md", "text": letter} for letter in "abcde"]
    assert api.put("/v1/projects/listed/documents", json={"documents": given}).json()["added"] == 5
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = api.get(
            "/v1/projects/listed/documents", params={"limit": 2, "status": "indexed", **after}
        ).json()
        seen += [one["path"] for one in page["documents"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == ["a.md", "b.md", "c.md", "d.md", "e.md"]
    twice = api.put("/v1/projects/listed/documents", json={"documents": [given[0], given[0]]})
    assert (twice.status_code, twice.json()["error"]["code"]) == (409, "conflict")


def test_a_project_is_looked_at_and_removed(api: httpx2.Client) -> None:
    api.put("/v1/projects/a%2Fb/documents/x", json={"text": "x"})
    assert "a/b" in [one["name"] for one in api.get("/v1/projects").json()["projects"]]
    assert api.get("/v1/projects/a%2Fb").json()["documents"]["indexed"] == 1
    assert api.delete("/v1/projects/a%2Fb").json() == {"forgotten": 1}
    gone = api.get("/v1/projects/a%2Fb")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


def test_a_conversation_is_saved_continued_read_and_removed(api: httpx2.Client) -> None:
    said = {"text": "how does it sleep?", "author": "ann", "at": "2026-01-31T12:00:00Z", "id": "m1"}
    address = "/v1/projects/talks/conversations"
    assert (
        api.post(
            address, json={"conversations": [{"id": "a/b", "title": "Sleep", "messages": [said]}]}
        ).json()["added"]
        == 1
    )
    more = {"messages": [said, {"text": "upright", "kind": "assistant"}]}
    report = api.post(f"{address}/a%2Fb/messages", json=more).json()
    assert (report["messages"], report["duplicates"]) == (1, 1)
    assert (
        api.put(
            f"{address}/two",
            json={"messages": [{"text": "hi"}], "created_at": "2026-02-01T00:00:00Z"},
        ).status_code
        == 200
    )
    listed = api.get(address, params={"limit": 1}).json()
    assert (listed["count"], [one["id"] for one in listed["conversations"]]) == (2, ["two"])
    whole = api.get(f"{address}/a%2Fb").json()
    assert [(one["text"], one["kind"]) for one in whole["messages"]] == [
        ("how does it sleep?", "user"),
        ("upright", "assistant"),
    ]
    assert len(api.get(f"{address}/a%2Fb", params={"last": 1}).json()["messages"]) == 1
    chunks = api.get(f"{address}/a%2Fb/chunks").json()["chunks"]
    assert [one["text"] for one in chunks] == ["how does it sleep?", "upright"]
    assert api.get(f"/v1/projects/talks/chunks/{chunks[0]['id']}").json() == chunks[0]
    assert api.get("/v1/projects/talks/chunks/1").status_code == 404
    assert api.delete(f"{address}/a%2Fb").json() == {"forgotten": 1}
    assert [api.get(f"{address}/a%2Fb{end}").status_code for end in ("", "/chunks")] == [404, 404]
    assert api.delete(f"{address}/a%2Fb").status_code == 404


def test_responses_are_kept_looked_at_and_removed(api: httpx2.Client) -> None:
    address = "/v1/projects/kept/streams/jobs%2Fnightly"
    for body in ("one", "two", "x" * 1500):
        assert api.post(f"{address}/records", json={"body": body}).json()["appended"][
            "length"
        ] == len(body)
    page = api.get(f"{address}/records", params={"limit": 2}).json()
    assert [(one["number"], one["is_truncated"]) for one in page["records"]] == [
        (3, True),
        (2, False),
    ]
    assert page["has_more"]
    assert (
        len(
            api.get(f"{address}/records", params={"limit": 1, "full": "true"}).json()["records"][0][
                "body"
            ]
        )
        == 1500
    )
    whole = api.get(address, params={"limit": 2, "offset": 1}).json()
    assert ([one["body"] for one in whole["records"]], whole["count"]) == (["two", "one"], 3)
    assert [one["stream"] for one in api.get("/v1/projects/kept/streams").json()["streams"]] == [
        "jobs/nightly"
    ]
    assert api.get(f"{address}/records", params={"offset": 9}).json()["records"] == []
    assert api.post(f"{address}/prune").json() == {"cleared": 0}
    assert api.delete(address).json() == {"cleared": 3}
    assert [
        api.request(method, f"{address}{end}").status_code
        for method, end in (("GET", ""), ("GET", "/records"), ("DELETE", ""))
    ] == [404] * 3
    assert api.get("/v1/projects/kept/streams").json() == {"streams": []}
    assert [
        api.get(f"/v1/projects/nothing/{what}").status_code
        for what in ("streams", "conversations", "documents")
    ] == [404] * 3


def test_records_that_are_past_the_retention_can_be_removed(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "catalog.db")
    with unspool.open(settings=settings) as corpus:
        for stream in ("pruned", "cleared"):
            corpus.history(stream, project="kept").append(
                "old", datetime.now(UTC) - timedelta(days=2)
            )
    with serving(settings, history_max_age_s=3600) as address:
        streams = f"{address}/v1/projects/kept/streams"
        assert [one["stream"] for one in httpx2.get(streams).json()["streams"]] == [
            "cleared",
            "pruned",
        ]
        assert (
            httpx2.get(f"{streams}/pruned/records").json()["records"]
            == httpx2.get(f"{streams}/pruned").json()["records"]
            == []
        )
        assert httpx2.post(f"{streams}/pruned/prune").json() == {"cleared": 1}
        assert httpx2.delete(f"{streams}/cleared").json() == {"cleared": 1}
        assert httpx2.delete(f"{streams}/cleared").status_code == 404


def test_a_folder_is_indexed_by_a_job_that_can_be_watched(api: httpx2.Client, home: Path) -> None:
    started = api.post("/v1/projects/code/index", json={"source": str(home / "code")})
    assert started.status_code == 202
    job = started.json()
    with api.stream("GET", f"/v1/jobs/{job['id']}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        *_, (name, last) = events(answer)
    assert (name, last["state"], last["report"]["added"]) == ("done", "done", 2)
    assert api.get(f"/v1/jobs/{job['id']}").json() == last
    assert last in api.get("/v1/jobs").json()["jobs"]
    again = api.post("/v1/projects/code/index", json={}).json()
    assert again["source"] == str(home / "code")
    # what is over stays as it is
    assert api.delete(f"/v1/jobs/{job['id']}").json()["state"] == "done"
    assert api.post("/v1/projects/notes/index", json={}).status_code == 409


@pytest.mark.parametrize(
    "source", ["/etc", "../..", "code/../../..", "~", "file:///etc", "C:\\", "relative"]
)
def test_nothing_outside_of_the_roots_is_indexed(
    api: httpx2.Client, home: Path, source: str
) -> None:
    for given in (source, f"{home}/code/../{source}", f"{home}/code{'/..' * 20}/etc"):
        refused = api.post("/v1/projects/stolen/index", json={"source": given})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")


def test_operators_see_whether_it_is_well(api: httpx2.Client) -> None:
    assert api.get("/health").json() == {"status": "ok"}
    assert api.get("/ready").json() == {"status": "ready"}
    assert [one["name"] for one in api.get("/v1/stores").json()["stores"] if one["in_use"]] == [
        "embedded"
    ]
    metrics = api.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "unspool_" in metrics.text


def test_request_ids_come_and_go(api: httpx2.Client) -> None:
    assert (
        api.get("/health", headers={"X-Request-ID": "my.own-id_7"}).headers["x-request-id"]
        == "my.own-id_7"
    )
    made = [
        api.get("/health", headers={"X-Request-ID": given}).headers["x-request-id"]
        for given in ("", "a b", "x" * 65, "a%0d%0aSet-Cookie:x", b"\xe4")
    ]
    assert len(set(made)) == 5
    assert all(one.isalnum() and len(one) == 16 for one in made)
    error = api.get("/v1/nothing", headers={"X-Request-ID": "mine"})
    assert error.json()["error"]["request_id"] == error.headers["x-request-id"] == "mine"
