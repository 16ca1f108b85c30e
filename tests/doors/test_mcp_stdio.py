"""`unspool mcp` as a client starts it: a process of its own, the protocol on its pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import mcp_types as types
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters

from agents import CURRENT, PREVIOUS, ToolResult, call_tool, count_when_idle
from support import doc, open_corpus, write

FILES = 2_000  # that take long enough to be indexed to be stopped
_T = TypeVar("_T")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a catalog that holds two projects, one of them from the folder `work` beside
    it.
    """
    base = tmp_path_factory.mktemp("stdio")
    write(
        base / "work",
        {
            "session.py": "def open_session(name):\n    return name\n",
            "guide.md": "# Guide\n\nHow to open a session.\n",
        },
    )
    write(
        base / "large",
        {
            f"n{number}.md": f"# Note {number}\n\nA note about {number}.\n"
            for number in range(FILES)
        },
    )
    with open_corpus(base / "catalog.db") as corpus:
        corpus.index(base / "work")
        corpus.put(doc("garden.md", "# Garden\n\nTomatoes want sun.\n", "notes"))
    return base


def command(place: Path, *flags: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "unspool",
        "mcp",
        "--database",
        f"sqlite:///{place}/catalog.db",
        *flags,
    ]


class Running:
    """A client that stays connected to a server process while a module's tests use it."""

    def __init__(self, portal: BlockingPortal, client: Client, mode: str) -> None:
        self.mode = mode
        self._portal = portal
        self._client = client

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        return self.run(lambda client: call_tool(client, tool, **arguments))

    def run(self, story: Callable[[Client], Awaitable[_T]]) -> _T:
        async def told_story() -> _T:
            return await story(self._client)

        return self._portal.call(told_story)


@contextmanager
def running(place: Path, *flags: str, mode: str, cwd: Path, **more: Any) -> Iterator[Running]:
    server = StdioServerParameters(
        command=sys.executable, args=command(place, *flags)[1:], cwd=cwd, env={"UNSPOOL_JOBS": "1"}
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(server, mode=mode, **more)) as client,
    ):
        yield Running(portal, client, mode)


@pytest.fixture(scope="module", params=[CURRENT, PREVIOUS])
def agent(place: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A client of each protocol, in the folder of a project, whose roots are the two folders."""

    async def roots(context: object) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root(uri=(place / name).as_uri()) for name in ("work", "large")]
        )

    with running(place, mode=request.param, cwd=place / "work", list_roots_callback=roots) as made:
        yield made


def test_the_tools_and_what_they_are_for_are_told(agent: Running) -> None:
    names = [one.name for one in agent.run(lambda client: client.list_tools()).tools]
    assert names == [
        "search",
        "more",
        "related",
        "read",
        "list_projects",
        "get_response_history",
        "remember",
        "index",
    ]

    async def about(client: Client) -> tuple[str, str]:
        return client.protocol_version, client.instructions or ""

    version, instructions = agent.run(about)
    assert version == ("2026-07-28" if agent.mode == CURRENT else "2025-11-25")
    assert "search first" in instructions


def test_the_project_of_the_current_folder_is_meant_where_none_is_named(agent: Running) -> None:
    assert {place.split(":")[0] for place in agent.call("search", query="open session").places} == {
        "session.py",
        "guide.md",
    }
    assert agent.call("search", query="tomatoes", project="notes").places == ["garden.md:1-3"]


def test_a_file_can_be_named_as_it_is_called_on_this_machine(agent: Running, place: Path) -> None:
    assert (
        agent.call("read", file_path=str(place / "work" / "session.py"))
        .values["text"]
        .startswith("def open_session")
    )


def test_several_calls_are_answered_at_once(agent: Running) -> None:
    async def story(client: Client) -> list[ToolResult]:
        found: list[ToolResult] = []

        async def one(number: int) -> None:
            found.append(await call_tool(client, "search", query=f"session {number}"))

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(one, number)
        return found

    assert [answer.is_error for answer in agent.run(story)] == [False] * 12


def test_only_the_clients_roots_can_be_indexed_and_progress_is_told(
    agent: Running, place: Path
) -> None:
    refused = agent.call("index", path=str(place))
    assert refused.is_error and "lies outside of what may be indexed" in refused.text
    steps: list[float] = []

    async def story(client: Client) -> types.CallToolResult:
        async def step(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        return await client.call_tool(
            "index", {"path": "session.py", "project": "one"}, progress_callback=step
        )

    result = agent.run(story)
    assert not result.is_error and result.structured_content["project"] == "one"
    assert steps and steps == sorted(set(steps))


def test_a_call_that_is_given_up_stops(agent: Running, place: Path) -> None:
    """On failure: nothing looks whether the client has cancelled; `Reporter` does, wherever a
    task reports how far it is.
    """

    async def story(client: Client) -> None:
        async with anyio.create_task_group() as group:

            async def step(progress: float, total: float | None, message: str | None) -> None:
                group.cancel_scope.cancel()

            with anyio.fail_after(60):
                await client.call_tool(
                    "index",
                    {"path": str(place / "large"), "project": "large"},
                    progress_callback=step,
                )

    agent.run(story)
    assert agent.run(lambda client: count_when_idle(client, "large")) < FILES


def test_the_oldest_protocol_is_spoken_and_stdout_carries_nothing_else(place: Path) -> None:
    version = "2024-11-05"
    asked = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"query": "tomatoes", "project": "notes"}},
        },
    ]
    with subprocess.Popen(
        command(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=place,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(
            b"this is no JSON\n" + b"".join(json.dumps(one).encode() + b"\n" for one in asked)
        )
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(timeout=60) == 0
    assert [one["id"] for one in answers] == [None, 1, 2]
    assert answers[1]["result"]["protocolVersion"] == version
    assert "garden.md:1-3" in answers[2]["result"]["content"][0]["text"]


def test_read_only_and_one_project(place: Path) -> None:
    with running(
        place, "--read-only", "--project", "notes", mode=CURRENT, cwd=place / "work"
    ) as narrow:
        assert "remember" not in [
            one.name for one in narrow.run(lambda client: client.list_tools()).tools
        ]
        assert [one["name"] for one in narrow.call("list_projects").values["projects"]] == ["notes"]
        # the only project there is for it
        assert narrow.call("search", query="session").places == ["garden.md:1-3"]
        assert "there are: notes" in narrow.call("search", query="session", project="work").text


def test_a_catalog_that_cannot_be_opened_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"this is no database" * 100)
    result = subprocess.run(
        command(tmp_path),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert (result.returncode, result.stdout) == (
        2,
        "",
    ) and "is not an SQLite file" in result.stderr


def test_without_the_sdk_the_command_says_how_to_get_it(place: Path) -> None:
    hidden = (
        "import sys; sys.modules['mcp'] = None; from unspool.interfaces.cli import main; "
        "main(['mcp'])"
    )
    result = subprocess.run(
        [sys.executable, "-c", hidden],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        cwd=place,
        check=False,
    )
    assert result.returncode == 2 and "pip install 'unspool[mcp]'" in result.stderr


def test_the_command_line_does_not_import_the_sdk() -> None:
    code = (
        "import sys, unspool.interfaces.cli, unspool.interfaces.mcp.tools; sys.exit(any(name in "
        "sys.modules for name in ('mcp', 'pydantic')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_project_that_does_not_exist_is_warned_of(place: Path) -> None:
    for flags, is_warned in (
        (("--project", "nope", "--project", "notes"), True),
        (("--project", "notes"), False),
        ((), False),
    ):
        ended = subprocess.run(
            command(place, *flags),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert ("'nope'" in ended.stderr) is is_warned
        assert "'notes'" not in ended.stderr
        assert ended.stdout == ""
