"""What is wrong with a request is said in one shape, with a code, a status and a cure; what is
wrong with the service, to its log alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import unspool
from services import serving
from support import beside, doc, settings_for

SECRET = "the walrus is in the vault"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    settings = settings_for(tmp_path_factory.mktemp("served") / "catalog.db")
    with unspool.open(settings=settings) as corpus:
        corpus.put(doc("a.md", "walrus\nsecond"), doc("b.md", "another walrus"))
        corpus.put(doc("c.md", "other", project="second"))
    with serving(settings) as address, httpx2.Client(base_url=address, timeout=30) as client:
        yield client


def error(answer: httpx2.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "request_id"}
    assert body["error"]["request_id"] == answer.headers["x-request-id"]
    return answer.status_code, body["error"]["code"]


def post(
    api: httpx2.Client,
    content: bytes | str,
    path: str = "/v1/search",
    media_type: str = "application/json",
) -> httpx2.Response:
    return api.post(path, content=content, headers={"Content-Type": media_type})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'"walrus"',
        b'{"query": "walr\xff"}',
        b"\xff\xfe{\x00}\x00",
        b'{"query": "\\ud800"}',
        b'{"query": "walrus", "min_score": NaN}',
        b'{"query": "walrus", "min_score": Infinity}',
        b'{"query": "walrus", "min_score": 1e999}',
        b'{"query": "walrus", "limit": ' + b"9" * 5000 + b"}",
        b'{"query": "walrus", "where": ' + b'{"not":' * 100_000 + b"{}" + b"}" * 100_000 + b"}",
        b"[" * 500_000,
        b'{"query": "  \\t\\u3000 "}',
        b'{"query": ""}',
        b'{"query": "' + b"x" * 20_001 + b'"}',
        b'{"query": "walrus", "limit": "5"}',
        b'{"query": "walrus", "limit": 0}',
        b'{"query": "walrus", "limit": 1.5}',
        b'{"query": "walrus", "limit": true}',
        b'{"query": "walrus", "projects": []}',
        b'{"query": "walrus", "projects": "notes"}',
        b'{"query": "walrus", "projects": ["a,b"]}',
        b'{"query": "walrus", "explain": 1}',
        b'{"query": "walrus", "lim": 5}',
        b'{"query": "walrus", "max_tokens": 10000001}',
    ],
)
def test_what_is_no_request_is_refused(api: httpx2.Client, content: bytes) -> None:
    answer = post(api, content)
    assert error(answer) == (422, "input")
    assert len(answer.text) < 500


def test_a_message_says_where_what_and_how_to_cure_it(api: httpx2.Client) -> None:
    message = post(api, json.dumps({"query": "x", "limit": 5000})).json()["error"]["message"]
    assert message.startswith("limit of the body is 5000; ")
    assert "1000" in message
    nested = api.put(
        "/v1/projects/notes/documents",
        json={"documents": [{"path": "a", "text": "x", "metadata": {"k": [1]}}]},
    ).json()["error"]["message"]
    assert nested == (
        "documents[0].metadata of the body: metadata 'k' is a list; give a string, number or "
        "boolean"
    )
    long = api.put(
        "/v1/projects/notes/documents/a", json={"text": "x", "metadata": {"k" * 5_000: 1}}
    ).json()["error"]["message"]
    assert long.startswith("metadata of the body: metadata key 'kkk")
    assert len(long) < 300
    assert (
        api.get("/v1/jobs", params={"limit": "ten"})
        .json()["error"]["message"]
        .startswith("limit of the query is 'ten'; ")
    )
    assert "not known" in api.get("/v1/jobs", params={"count": "1"}).json()["error"]["message"]


def test_a_message_names_what_may_stand_there(api: httpx2.Client) -> None:
    unknown = post(api, json.dumps({"query": "x", "lim": 5})).json()["error"]["message"]
    assert unknown.startswith(
        "lim of the body is not known; known names are query, projects, limit, "
    )
    address = "/v1/projects/notes/streams/s/records"
    assert (
        api.post(address, json={"body": {"a": 1}}).json()["error"]["message"]
        == "the field body is an object; give text"
    )


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ({"langauge": "go"}, "language"),
        ({"kind": "prose"}, "chat"),
        ({"metadata.a": 10**30}, "2**63"),
        ({"path": ["x"] * 101}, "100"),
    ],
)
def test_a_filter_that_makes_no_sense_is_an_error_of_its_own(
    api: httpx2.Client, where: dict[str, Any], word: str
) -> None:
    answer = api.post("/v1/search", json={"query": "walrus", "projects": ["notes"], "where": where})
    assert error(answer) == (422, "filter")
    assert word in answer.json()["error"]["message"]


def test_a_glob_that_is_meant_to_take_for_ever_is_answered(api: httpx2.Client) -> None:
    api.put(f"/v1/projects/notes/documents/{'a' * 300}", json={"text": "walrus"})
    answer = api.post(
        "/v1/search",
        json={"query": "walrus", "projects": ["notes"], "where": {"path": "*a" * 100 + "b"}},
    )
    assert (answer.status_code, answer.json()["hits"]) == (200, [])


@pytest.mark.parametrize(
    "content",
    [
        {"query": "walrus", **{f"name{number}": 1 for number in range(1_000)}},
        {"query": "walrus", "where": {"not": [{str(number): 1 for number in range(1_001)}]}},
        {"query": "walrus", "projects": [{str(number): "x" * 100 for number in range(1_001)}]},
        {"query": "walrus", "projects": [1] * 1_000_001},
        {"query": "walrus", "projects": [[1] * 1_000] * 1_001},
    ],
    ids=["names", "inner names", "names of a large body", "values", "inner values"],
)
def test_more_names_and_values_than_any_request_needs_are_refused_at_once(
    api: httpx2.Client, content: dict[str, Any]
) -> None:
    answer = api.post("/v1/search", json=content)
    assert error(answer) == (422, "input")
    assert "at most 1000" in answer.text or "more than 1000000 values" in answer.text
    assert "more errors" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/v1/search", {"query": "walrus", "projects": [1] * 9}),
        ("POST", "/v1/nearest", {"vector": ["a"] * 9}),
        ("POST", "/v1/ask", {"question": "walrus", "conversation": [1] * 9}),
        ("PUT", "/v1/projects/notes/documents", {"documents": [1] * 9}),
        (
            "POST",
            "/v1/projects/notes/conversations",
            {"conversations": [{"id": "a", "messages": [1] * 9}]},
        ),
        ("POST", "/v1/projects/notes/conversations/a/messages", {"messages": [1] * 9}),
    ],
)
def test_of_a_list_only_the_first_wrong_item_is_an_error(
    api: httpx2.Client, method: str, path: str, content: dict[str, Any]
) -> None:
    answer = api.request(method, path, json=content)
    assert error(answer) == (422, "input")
    assert "[0]" in answer.text
    assert "more errors" not in answer.text


def test_a_thousand_names_are_taken_where_they_belong(api: httpx2.Client) -> None:
    metadata = {f"key{number}": number for number in range(1_000)}
    assert (
        api.put(
            "/v1/projects/notes/documents/many", json={"text": "x" * 100_000, "metadata": metadata}
        ).status_code
        == 200
    )


@pytest.mark.parametrize("path", ["/v1/embed", "/v1/count_tokens"])
def test_a_text_that_is_embedded_or_counted_has_a_bound(api: httpx2.Client, path: str) -> None:
    answer = api.post(path, json={"text": "x" * 500_001})
    assert error(answer) == (422, "input")
    assert "500000 characters" in answer.text


def test_what_there_is_nothing_of_is_not_found(api: httpx2.Client) -> None:
    for path in (
        "/",
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/docs",
        "/redoc",
        "/v1/search/",
        "/v1/projects/nobody",
        "/v1/projects/notes/documents/z",
    ):
        answer = api.get(path) if path != "/v1/search/" else api.post(path, json={"query": "x"})
        assert error(answer) == (404, "not_found"), path
    for path in (
        "/v1/projects/%ff",
        "/v1/projects/notes/documents/%ff%fe",
        "/v1/projects/%00",
        "/v1/jobs/..%2f..%2fetc",
        "/v1/jobs/1",
    ):
        assert error(api.get(path)) == (422, "input"), path


def test_an_address_that_is_called_in_another_way_says_how(api: httpx2.Client) -> None:
    for method, path, allowed in (
        ("GET", "/v1/search", "POST"),
        ("PATCH", "/v1/projects/notes/documents/a.md", "DELETE, GET, PUT"),
        ("OPTIONS", "/v1/projects", "GET"),
        ("TRACE", "/health", "GET"),
        ("POST", "/openapi.json", "GET, HEAD"),
        ("PUT", "/v1/projects/notes", "DELETE, GET"),
    ):
        answer = api.request(method, path)
        assert (error(answer), answer.headers["allow"]) == ((405, "method"), allowed)


def test_only_json_is_taken(api: httpx2.Client) -> None:
    for media_type in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application/xml",
    ):
        assert error(post(api, b'{"query": "walrus"}', media_type=media_type)) == (
            415,
            "media_type",
        )
    assert (
        post(
            api,
            b'{"query": "walrus", "projects": ["notes"]}',
            media_type="Application/JSON; charset=utf-8",
        ).status_code
        == 200
    )


def test_a_project_that_was_not_named_is_a_conflict_where_there_are_several(
    api: httpx2.Client,
) -> None:
    answer = api.post("/v1/search", json={"query": "walrus"})
    assert error(answer) == (409, "ambiguous")
    assert "notes, second" in answer.json()["error"]["message"]


@pytest.mark.parametrize("continuation", ["A" * 22, "Ah0CmZqkYr3mKtkKrnwBCgI", "_" * 5000])
def test_a_continuation_that_is_none_is_not_found(api: httpx2.Client, continuation: str) -> None:
    assert error(api.post("/v1/more", json={"continuation": continuation})) == (
        404,
        "continuation_malformed",
    )


def test_a_continuation_that_was_tampered_with_or_comes_from_elsewhere_is_not_followed(
    api: httpx2.Client, tmp_path: Path
) -> None:
    mine = api.post(
        "/v1/search", json={"query": "walrus", "projects": ["notes"], "limit": 1}
    ).json()["continuation"]
    for position in range(len(mine)):
        changed = mine[:position] + ("A" if mine[position] != "A" else "B") + mine[position + 1 :]
        assert api.post("/v1/more", json={"continuation": changed}).status_code == 404
    with unspool.open(settings=settings_for(tmp_path / "other.db")) as other:
        other.put(doc("a.md", "walrus"), doc("b.md", "another walrus"))
        foreign = other.search("walrus", limit=1).continuation
    assert error(api.post("/v1/more", json={"continuation": foreign})) in (
        (404, "continuation_foreign"),
        (404, "continuation_swept"),
    )


def test_lines_that_are_not_there_and_vectors_of_another_length(api: httpx2.Client) -> None:
    address = "/v1/projects/notes/documents/a.md"
    assert error(api.get(address, params={"first": 9})) == (404, "not_found")
    assert error(api.get(address, params={"first": 2, "last": 1})) == (409, "conflict")
    assert error(api.post("/v1/nearest", json={"vector": [0.5, 1], "projects": ["notes"]})) == (
        409,
        "dimension",
    )


def test_a_bug_is_told_to_the_log_without_what_is_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody but a bug writes a word where a kind of document belongs.

    Reading it raises what is no error of ours, with the word in its text.
    """
    settings = settings_for(tmp_path / "catalog.db")
    with unspool.open(settings=settings) as corpus:
        corpus.put(doc("a.md", "walrus"))
    with beside(tmp_path / "catalog.db") as catalog:
        catalog.run(f"UPDATE documents SET kind = '{SECRET}'")
    with serving(settings) as address:
        answer = httpx2.get(
            f"{address}/v1/projects/notes/documents", headers={"X-Request-ID": "bug-1"}
        )
        assert error(answer) == (500, "bug")
        assert SECRET not in answer.text
        assert "ValueError" not in answer.text
        assert httpx2.get(f"{address}/v1/projects").status_code == 200
    assert any(record.levelno == logging.ERROR for record in caplog.records)
    assert SECRET not in caplog.text


def test_where_the_service_reads_and_what_it_needs_is_told_to_admins_alone(tmp_path: Path) -> None:
    place = tmp_path / "secret-folder"
    place.mkdir()
    settings = settings_for(
        tmp_path / "catalog.db",
        answer_model="openai:m",
        answer_url="http://127.0.0.1:9/secret-model",
        answer_retries=0,
        roots=str(place),
    )
    with unspool.open(settings=settings) as corpus:
        corpus.put(doc("a.md", "walrus"))
        keys = {
            role: corpus.keys.create(projects="notes", role=role)[1]
            for role in ("read", "write", "admin")
        }
    with serving(settings) as address, httpx2.Client(base_url=address, timeout=30) as api:

        def asked(
            role: str, method: str, path: str, body: dict[str, Any] | None = None
        ) -> httpx2.Response:
            return api.request(
                method, path, json=body, headers={"Authorization": f"Bearer {keys[role]}"}
            )

        started = asked(
            "admin", "POST", "/v1/projects/notes/index", {"source": str(place / "nothing")}
        )
        assert started.status_code == 202
        job = started.headers["location"]
        assert job == f"/v1/jobs/{started.json()['id']}"
        # it is over
        assert (
            api.get(
                f"{job}/events", headers={"Authorization": f"Bearer {keys['admin']}"}
            ).status_code
            == 200
        )
        assert "secret-folder" in asked("admin", "GET", job).json()["error"]
        for role in ("read", "write"):
            for path in (job, "/v1/jobs", f"{job}/events"):
                answer = asked(role, "GET", path)
                assert (answer.status_code, "secret-folder" in answer.text) == (200, False)
            assert asked(role, "GET", job).json()["error_code"] == "not_found"
            refused = asked(role, "POST", "/v1/ask", {"question": "walrus"})
            assert (
                error(refused)[0] >= 500,
                "127.0.0.1" in refused.text,
                "secret-model" in refused.text,
            ) == (True, False, False)
            streamed = asked(role, "POST", "/v1/ask", {"question": "walrus", "stream": True})
            assert (
                "event: error" in streamed.text,
                "127.0.0.1" in streamed.text,
                "secret-model" in streamed.text,
            ) == (True, False, False)
        relative = asked("admin", "POST", "/v1/projects/notes/index", {"source": "secret-folder"})
        assert (error(relative), "absolute" in relative.text) == ((403, "forbidden"), True)
        assert error(
            asked("admin", "POST", "/v1/projects/notes/index", {"source": "~nobody-of-that-name/x"})
        ) == (403, "forbidden")
        assert error(
            asked(
                "admin", "POST", "/v1/projects/notes/index", {"source": str(place), "ref": "main"}
            )
        ) == (422, "input")
        assert error(
            asked("write", "POST", "/v1/projects/notes/index", {"source": "secret-folder"})
        ) == (403, "forbidden")
        whole = asked("admin", "POST", "/v1/ask", {"question": "walrus"})
        assert error(whole) == error(refused)
        assert "127.0.0.1" in whole.text
