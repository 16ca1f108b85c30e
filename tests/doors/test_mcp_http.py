"""`/mcp` of a service: the same tools, for whoever shows a key, and for each key only what it
may see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import unspool
from agents import CURRENT, PREVIOUS, call_tool, count_when_idle
from monitoring import Collector
from services import serving
from support import doc, open_corpus, settings_for, write

REQUEST = "unspool.request_id"
FILES = 2_000  # that take long enough to be indexed to be stopped


@dataclass(frozen=True, kw_only=True)
class Place:
    """A service with two projects and keys for them."""

    address: str
    reader: str  # of the garden
    writer: str  # of the house
    admin: str  # of everything
    folder: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    base = tmp_path_factory.mktemp("mcp")
    write(
        base / "open",
        {
            f"n{number}.md": f"# Note {number}\n\nA note about {number}.\n"
            for number in range(FILES)
        },
    )
    with open_corpus(base / "catalog.db") as corpus:
        corpus.put(
            *(
                doc(f"bed{number}.md", f"Tomatoes of bed {number} want water.", "garden")
                for number in range(9)
            )
        )
        corpus.put(
            *(
                doc(f"room{number}.md", f"Lamps of room {number} want oil and water.", "house")
                for number in range(9)
            )
        )
        keys = {
            name: corpus.keys.create(projects=projects, role=role)[1]
            for name, projects, role in (
                ("reader", "garden", "read"),
                ("writer", "house", "write"),
                ("admin", "*", "admin"),
            )
        }
    with serving(settings_for(base / "catalog.db", roots=str(base / "open"), jobs=1)) as address:
        yield Place(address=address, folder=base / "open", **keys)


@asynccontextmanager
async def connected(place: Place, key: str, mode: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60) as http,
        Client(
            streamable_http_client(f"{place.address}/mcp", http_client=http), mode=mode
        ) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", [CURRENT, PREVIOUS])
def test_each_key_has_its_tools_and_its_projects(place: Place, mode: str) -> None:
    async def story() -> None:
        async with (
            connected(place, place.reader, mode) as reader,
            connected(place, place.writer, mode) as writer,
        ):
            assert reader.protocol_version == ("2026-07-28" if mode == CURRENT else "2025-11-25")
            assert "remember" not in [one.name for one in (await reader.list_tools()).tools]
            names = [one.name for one in (await writer.list_tools()).tools]
            assert "remember" in names and "index" not in names
            page = await call_tool(reader, "search", query="water")
            assert all(place.startswith("bed") for place in page.places)
            assert (
                "no project 'house'; there are: garden"
                in (await call_tool(reader, "search", query="water", project="house")).text
            )
            assert (
                "continuation_swept"
                in (await call_tool(writer, "more", continuation=page.values["continuation"])).text
            )
            assert (
                len(
                    (
                        await call_tool(reader, "more", continuation=page.values["continuation"])
                    ).places
                )
                == 4
            )
            addresses = [one.uri for one in (await reader.list_resources()).resources]
            assert addresses == [
                f"unspool://garden/documents/bed{number}.md" for number in range(9)
            ]
            assert (await call_tool(writer, "remember", text="The owl moved in.")).values[
                "project"
            ] == "house"

    anyio.run(story)


def test_calls_at_the_same_time_see_what_their_own_key_may(place: Place) -> None:
    wrong: list[str] = []

    async def story() -> None:
        async def ask(client: Client, beginning: str, number: int) -> None:
            found = await call_tool(client, "search", query=f"water {number}", project="*", limit=9)
            wrong.extend(place for place in found.places if not place.startswith(beginning))

        async with (
            connected(place, place.reader, PREVIOUS) as reader,
            connected(place, place.writer, CURRENT) as writer,
            anyio.create_task_group() as group,
        ):
            for number in range(20):
                group.start_soon(ask, reader, "bed", number)
                group.start_soon(ask, writer, "room", number)

    anyio.run(story)
    # the writer has remembered something
    assert [one for one in wrong if not one.startswith("notes/")] == []


def test_the_clients_own_roots_open_nothing_on_the_server(place: Place) -> None:
    async def story() -> None:
        async with connected(place, place.admin, CURRENT) as admin:
            refused = await call_tool(admin, "index", path="/etc")
            assert refused.is_error and "error (forbidden)" in refused.text
            done = await call_tool(admin, "index", path=str(place.folder / "n1.md"), project="one")
            assert done.values["added"] == 1

    anyio.run(story)


@pytest.mark.parametrize("mode", [CURRENT, PREVIOUS])
def test_progress_is_told_and_who_goes_away_stops_the_work(place: Place, mode: str) -> None:
    """On failure: the request's end does not reach the thread that indexes; `Reporter` looks for
    it.
    """
    project = f"large {mode}"

    async def story() -> int:
        async with connected(place, place.admin, mode) as admin, anyio.create_task_group() as group:

            async def step(progress: float, total: float | None, message: str | None) -> None:
                group.cancel_scope.cancel()

            with anyio.fail_after(60):
                await admin.call_tool(
                    "index", {"path": str(place.folder), "project": project}, progress_callback=step
                )
        async with connected(place, place.admin, mode) as admin:
            return await count_when_idle(admin, project)

    assert anyio.run(story) < FILES


def test_who_shows_no_key_is_not_let_in_and_there_is_nothing_to_listen_to(place: Place) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"accept": "application/json, text/event-stream"}
    with httpx2.Client(base_url=place.address, headers=headers) as http:
        assert http.post("/mcp", json=body).status_code == 401
        let_in = {"authorization": f"Bearer {place.reader}"}
        listening = http.get("/mcp", headers=let_in)
        assert (
            listening.status_code,
            listening.headers["allow"],
            "POST" in listening.json()["error"]["message"],
        ) == (405, "POST", True)
        assert http.delete("/mcp", headers=let_in).status_code == 405
        assert http.post("/mcp", json=body, headers=let_in).status_code == 200
        assert (
            http.post("/mcp", json=body, headers={**let_in, "host": "evil.example"}).status_code
            == 421
        )
        assert (
            http.post(
                "/mcp", json=body, headers={**let_in, "origin": "https://evil.example"}
            ).status_code
            == 403
        )
        assert (
            http.post(
                "/mcp", content=b"\xff{", headers={**let_in, "content-type": "application/json"}
            ).status_code
            == 400
        )


def test_what_the_service_needs_is_told_to_admins_alone(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        async with (
            connected(place, place.writer, CURRENT) as writer,
            connected(place, place.admin, CURRENT) as admin,
        ):
            refused = await call_tool(writer, "remember", text="The owl moved in.")
            assert refused.text.startswith(
                "error (unreachable): something that the service needs does not answer"
            )
            assert (
                "127.0.0.1"
                in (
                    await call_tool(admin, "remember", text="The owl moved in.", project="house")
                ).text
            )

    model = {
        "embedder": "openai:m",
        "embedder_url": "http://127.0.0.1:9/secret-model",
        "embedder_retries": 0,
        "embedder_dimension": 3,
    }
    settings = settings_for(tmp_path / "catalog.db", **model)
    with unspool.open(settings=settings) as corpus:
        keys = {
            name: corpus.keys.create(projects="house", role=name)[1]
            for name in ("read", "write", "admin")
        }
    with serving(settings) as address:
        anyio.run(
            story,
            Place(
                address=address,
                reader=keys["read"],
                writer=keys["write"],
                admin=keys["admin"],
                folder=tmp_path,
            ),
        )


def test_a_call_is_a_span_of_its_request_with_what_was_done_beside_it(tmp_path: Path) -> None:
    pytest.importorskip(
        "opentelemetry.sdk", reason="traces need OpenTelemetry; pip install 'unspool[otel]'"
    )
    collector = Collector()
    with open_corpus(tmp_path / "catalog.db") as corpus:
        corpus.put(doc("a.md", "Tomatoes want water.", "garden"))

    async def story(address: str) -> None:
        async with Client(streamable_http_client(f"{address}/mcp"), mode=CURRENT) as client:
            assert not (await call_tool(client, "search", query="tomatoes")).is_error

    with (
        collector.listening() as traces,
        serving(settings_for(tmp_path / "catalog.db", traces=traces)) as address,
    ):
        anyio.run(story, address)
    (call,) = [span for span in collector.spans if span.name == "tool search"]
    (request,) = [span for span in collector.spans if span.span_id == call.parent_span_id]
    assert request.name == "POST /mcp"
    within = {span.name for span in collector.spans if span.trace_id == call.trace_id}
    assert within >= {"POST /mcp", "tool search", "page", "embed", "search", "hydrate"}
    ids = {
        one.value.string_value
        for span in collector.spans
        if span.trace_id == call.trace_id
        for one in span.attributes
        if one.key == REQUEST
    }
    assert len(ids) == 1
    assert all(any(one.key == REQUEST for one in span.attributes) for span in collector.spans)


def test_calls_are_counted_by_tool_and_outcome(place: Place) -> None:
    async def story() -> None:
        async with connected(place, place.admin, CURRENT) as admin:
            await call_tool(admin, "related", path="bed1.md", project="garden")
            await call_tool(admin, "related", path="nowhere.md", project="garden")

    anyio.run(story)
    counted = httpx2.get(
        f"{place.address}/metrics", headers={"authorization": f"Bearer {place.admin}"}
    ).text
    assert 'unspool_mcp_calls_total{outcome="ok",tool="related"} 1.0' in counted
    assert 'unspool_mcp_calls_total{outcome="not_found",tool="related"} 1.0' in counted
