"""What a request may send and take, from where and how often: large, slow, wrong and too many
ones are refused, and the others are answered.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

import unspool
from services import WAIT_S, serving
from support import beside, doc, settings_for
from unspool.errors import ThrottledError
from unspool.interfaces.http import protocol, service
from unspool.interfaces.http.limits import RateLimit

BODY = 20_000  # bytes that the service takes here


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "catalog.db"
    with unspool.open(settings=settings_for(path)) as corpus:
        corpus.put(doc("a.md", "walrus"))
    return path


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(protocol, "HEADERS_S", 0.4)
        patched.setattr(protocol, "KEEP_ALIVE_S", 2)
        given = {
            "serve_max_body_bytes": BODY,
            "serve_timeout_s": 1,
            "serve_hosts": "search.example.org",
            "serve_origins": "https://app.example.org",
        }
        with serving(settings_for(place), **given) as found:
            yield found


@pytest.fixture
def api(address: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=address, timeout=30) as client:
        yield client


def spoken(address: str, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """What a service says to somebody who speaks HTTP by hand, until it closes the connection."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as line:
        for piece in pieces:
            line.sendall(piece)
            time.sleep(pause_s)
        heard = b""
        while piece := line.recv(65_536):
            heard += piece
        return heard


def refusal(heard: bytes) -> dict[str, str]:
    head, _, body = heard.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    error: dict[str, str] = json.loads(body)["error"]
    return error


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_body_that_is_too_large_is_refused_however_it_is_sent(api: httpx2.Client) -> None:
    said = api.post(
        "/v1/search", content=b" " * (BODY + 1), headers={"Content-Type": "application/json"}
    )
    assert code(said) == (413, "too_large")
    assert str(BODY) in said.json()["error"]["message"]
    unsaid = api.post(
        "/v1/search", content=iter([b" " * 5_000] * 5), headers={"Content-Type": "application/json"}
    )
    assert code(unsaid) == (413, "too_large")
    assert api.post("/v1/count_tokens", json={"text": "x" * (BODY - 20)}).status_code == 200


def test_a_hundred_megabytes_are_neither_kept_nor_waited_for(address: str) -> None:
    begin = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    asked_first = spoken(
        address, begin + b"Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n"
    )
    assert asked_first.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in asked_first
    assert b"connection: close" in asked_first
    with httpx2.Client(base_url=address, timeout=30) as client:
        assert code(client.post("/v1/search", content=iter([b" " * 1_000_000] * 100))) == (
            413,
            "too_large",
        )


def test_a_body_that_is_refused_unread_is_answered_once_and_the_connection_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "catalog.db"
    with unspool.open(settings=settings_for(path)) as corpus:
        corpus.keys.create(projects="*")
    begin = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with serving(settings_for(path)) as address:
        heard = spoken(address, begin, *(b" " * 100_000 for _ in range(30)), last)
    assert re.findall(rb"HTTP/1.1 (\d+) ", heard) == [b"401", b"200"]


def test_a_body_that_does_not_arrive_is_not_waited_for(address: str) -> None:
    begin = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    assert spoken(address, begin).startswith(b"HTTP/1.1 408 ")


def test_an_answer_does_not_get_lost_while_the_rest_of_a_body_is_waited_for(address: str) -> None:
    heard = spoken(
        address, b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    )
    assert heard.startswith(b"HTTP/1.1 200 ")
    assert heard.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("begin", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_headers_that_do_not_end_close_the_connection(address: str, begin: bytes) -> None:
    assert spoken(address, begin) == b""


def test_headers_that_come_one_by_one_do_not_hold_a_connection(address: str) -> None:
    with pytest.raises(OSError):
        spoken(
            address,
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
            *(b"X-A: b\r\n" for _ in range(60)),
            pause_s=0.05,
        )


def test_headers_without_measure_are_refused(address: str) -> None:
    heard = spoken(
        address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: " + b"a" * 70_000
    )
    assert heard.startswith(b"HTTP/1.1 431 ")
    assert refusal(heard) == {
        "code": "too_large",
        "message": "the headers have more than 65536 bytes; send fewer",
        "request_id": "",
    }


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/9.9",
        b"GET  HTTP/1.1",
        b"\x16\x03\x01\x02\x00",
        b"GET /\xff HTTP/1.1",
        b"POST /v1/search HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5",
    ],
)
def test_what_is_no_http_is_refused(address: str, line: bytes) -> None:
    heard = spoken(address, line + b"\r\nHost: localhost\r\n\r\n")
    assert heard.startswith(b"HTTP/1.1 4")
    assert refusal(heard)["code"] in ("input", "not_found")


def test_a_header_cannot_be_smuggled_into_an_answer(address: str) -> None:
    heard = spoken(
        address,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: a\rSet-Cookie: b\r\nConnection: close\r\n\r\n",
    ).lower()
    assert b"set-cookie" not in heard


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.7",
        "",
        "[::2]",
        "a\tb",
    ],
)
def test_a_name_that_is_not_the_services_is_refused(api: httpx2.Client, host: str) -> None:
    assert code(api.get("/health", headers={"Host": host})) == (421, "host")
    assert api.post("/mcp", headers={"Host": host}, json={}).status_code == 421


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        "[::1]:80",
        "search.example.org",
        "Search.Example.Org:443",
    ],
)
def test_a_name_of_the_services_is_taken(api: httpx2.Client, host: str) -> None:
    assert api.get("/health", headers={"Host": host}).status_code == 200


def test_two_names_are_none(address: str) -> None:
    heard = spoken(
        address,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    )
    assert heard.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 "))


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost:9",
        "file://",
        "https://app.example.org.evil.example",
        "http://[",
        "https://app.example.org:8443",
    ],
)
def test_a_page_of_another_origin_is_refused(api: httpx2.Client, origin: str) -> None:
    for answer in (
        api.get("/v1/projects", headers={"Origin": origin}),
        api.post("/mcp", headers={"Origin": origin}, json={}),
    ):
        assert code(answer) == (403, "origin")
        assert "access-control-allow-origin" not in answer.headers


def test_a_page_of_the_services_own_or_of_one_that_is_named_is_answered(api: httpx2.Client) -> None:
    own = f"http://{api.base_url.host}:{api.base_url.port}"
    assert api.get("/v1/projects", headers={"Origin": own}).status_code == 200
    named = api.get("/v1/projects", headers={"Origin": "https://app.example.org"})
    assert (named.status_code, named.headers["access-control-allow-origin"]) == (
        200,
        "https://app.example.org",
    )
    first = api.options(
        "/v1/search",
        headers={"Origin": "https://app.example.org", "Access-Control-Request-Method": "POST"},
    )
    assert first.status_code == 200
    assert (
        first.headers["access-control-allow-origin"],
        "Authorization" in first.headers["access-control-allow-headers"],
    ) == (
        "https://app.example.org",
        True,
    )


def test_a_page_reads_what_it_is_refused_with(api: httpx2.Client) -> None:
    headers = {"Origin": "https://app.example.org", "Content-Type": "application/json"}
    for answer in (
        api.post("/v1/search", content=b" " * (BODY + 1), headers=headers),
        api.get("/v1/%ff", headers=headers),
    ):
        assert answer.status_code in (413, 422)
        assert answer.headers["access-control-allow-origin"] == "https://app.example.org"
        assert "Retry-After" in answer.headers["access-control-expose-headers"]


def test_what_takes_too_long_is_given_up(api: httpx2.Client, place: Path) -> None:
    """A writer that holds the catalog makes another wait longer than a request may."""
    with beside(place) as other:
        other.run("BEGIN IMMEDIATE")
        late = api.put("/v1/projects/notes/documents/b.md", json={"text": "x"})
        assert code(late) == (504, "overdue")
        assert api.get("/v1/projects/notes/documents/a.md").status_code == 200


def test_more_than_are_taken_at_once_are_refused(place: Path) -> None:
    with (
        serving(settings_for(place), serve_queue=2) as address,
        beside(place) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        other.run("BEGIN IMMEDIATE")

        def put(number: int) -> int:
            while (
                answer := httpx2.put(
                    f"{address}/v1/projects/notes/documents/{number}",
                    json={"text": "x"},
                    timeout=30,
                )
            ).status_code == 429:
                continue  # the question below was under way
            return answer.status_code

        waiting = [pool.submit(put, number) for number in range(2)]
        answers: list[httpx2.Response] = []
        deadline = time.monotonic() + WAIT_S
        while (
            not any(answer.status_code == 429 for answer in answers) and time.monotonic() < deadline
        ):
            answers.append(httpx2.get(f"{address}/v1/projects"))
        assert code(answers[-1]) == (429, "throttled")
        assert answers[-1].headers["retry-after"] == "1"
        assert httpx2.get(f"{address}/health").status_code == 200
        other.run("ROLLBACK")
        assert [one.result() for one in waiting] == [200, 200]


def test_a_rate_limit_recovers_as_time_goes_by() -> None:
    now = 0.0
    limit = RateLimit(60, "calls", clock=lambda: now)

    def wait_s(name: str) -> float:
        try:
            limit.acquire(name)
        except ThrottledError as error:
            return error.retry_after or 0.0
        return 0.0

    assert [wait_s("a") for _ in range(60)] == [0.0] * 60
    assert wait_s("a") == pytest.approx(1.0)
    assert wait_s("b") == 0.0
    now = 2.5
    assert [wait_s("a") > 0 for _ in range(3)] == [False, False, True]
    RateLimit(0, "calls").acquire("a")


def test_keys_are_checked_before_anything_else_and_throttled_each_for_itself(
    tmp_path: Path,
) -> None:
    path = tmp_path / "catalog.db"
    with unspool.open(settings=settings_for(path)) as corpus:
        corpus.put(doc("a.md", "walrus"), doc("b.md", "walrus two"))
        keys = {
            role: corpus.keys.create(projects="notes", role=role)[1]
            for role in ("read", "write", "admin")
        }
        revoked, gone = corpus.keys.create(projects="notes")
        corpus.keys.revoke(revoked.id)
        expired = corpus.keys.create(
            projects="notes", expires_at=datetime.now(UTC) + timedelta(milliseconds=1)
        )[1]
    with (
        serving(settings_for(path), rate_limit=30) as address,
        httpx2.Client(base_url=address, timeout=30) as api,
    ):

        def as_(key: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {key}"}

        wrong = [
            {},
            as_("unspool_000000000000_" + "A" * 43),
            as_(gone),
            as_(expired),
            {"Authorization": "Basic eA=="},
        ]
        refused = [
            api.post("/v1/search", content=b"{", headers={**headers, "X-Request-ID": "same"})
            for headers in wrong
        ]
        assert {
            (one.status_code, one.text, one.headers["www-authenticate"]) for one in refused
        } == {(401, refused[0].text, 'Bearer realm="unspool"')}
        assert not any(key in refused[0].text for key in (gone, expired))
        assert api.post("/mcp", json={}).status_code == 401
        assert api.get("/v1/nothing").status_code == 401
        assert api.get("/health").status_code == 200
        assert (
            api.get("/openapi.json").json()["components"]["securitySchemes"]["bearer"]["scheme"]
            == "bearer"
        )
        assert (
            api.post(
                "/v1/search", json={"query": "walrus"}, headers={"X-API-Key": keys["read"]}
            ).status_code
            == 200
        )
        for role, method, path_, status in (
            ("read", "PUT", "/v1/projects/notes/documents/c.md", 403),
            ("write", "PUT", "/v1/projects/notes/documents/c.md", 200),
            ("write", "DELETE", "/v1/projects/notes", 403),
            ("admin", "GET", "/metrics", 403),
        ):
            body = {"text": "x"} if method == "PUT" else None
            assert (
                api.request(method, path_, json=body, headers=as_(keys[role])).status_code == status
            ), (role, path_)
        often = [api.get("/v1/projects", headers=as_(keys["read"])) for _ in range(40)]
        assert code(often[-1]) == (429, "throttled")
        assert int(often[-1].headers["retry-after"]) >= 1
        assert api.get("/v1/projects", headers=as_(keys["write"])).status_code == 200


def test_two_keys_are_none(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with unspool.open(settings=settings_for(path)) as corpus:
        key = corpus.keys.create(projects="*")[1]
    with serving(settings_for(path)) as address, httpx2.Client(base_url=address) as api:
        assert (
            api.get(
                "/v1/projects", headers=[("Authorization", f"Bearer {key}"), ("X-API-Key", key)]
            ).status_code
            == 200
        )
        for name, value in (("Authorization", f"Bearer {key}"), ("X-API-Key", key)):
            assert code(api.get("/v1/projects", headers=[(name, value), (name, value)])) == (
                401,
                "unauthenticated",
            )
        heard = spoken(
            address,
            (
                f"GET /v1/projects HTTP/1.1\r\nHost: localhost\r\nX-API-Key:  {key} \r\n"
                f"Connection: "
                f"close\r\n\r\n"
            ).encode(),
        )
        assert heard.startswith(b"HTTP/1.1 200 ")


def test_a_service_that_has_seen_keys_is_not_opened_by_their_loss(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with unspool.open(settings=settings_for(path)) as corpus:
        corpus.keys.create(projects="*")
    with serving(settings_for(path)) as address:
        assert httpx2.get(f"{address}/v1/projects").status_code == 401
        with beside(path) as other:
            other.run("DELETE FROM keys")
        assert httpx2.get(f"{address}/v1/projects").status_code == 401


def test_writers_that_wait_leave_searches_alone(place: Path) -> None:
    with (
        serving(settings_for(place)) as address,
        beside(place) as other,
        ThreadPoolExecutor(service.SEARCHES_AT_ONCE + 2) as pool,
    ):
        other.run("BEGIN IMMEDIATE")
        paths = [
            f"{address}/v1/projects/notes/documents/{number}"
            for number in range(service.SEARCHES_AT_ONCE + 2)
        ]
        waiting = [
            pool.submit(httpx2.put, path, json={"text": "x"}, timeout=WAIT_S) for path in paths
        ]
        assert not any(one.done() for one in waiting)
        assert (
            httpx2.post(
                f"{address}/v1/search",
                json={"query": "walrus", "projects": ["notes"]},
                timeout=WAIT_S,
            ).status_code
            == 200
        )
        other.run("ROLLBACK")
        assert {one.result().status_code for one in waiting} == {200}
