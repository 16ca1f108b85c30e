"""MCP client of the SDK, connected to a server in the same process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError

import unspool
from unspool.access.scope import Scope
from unspool.interfaces.mcp.server import McpCaller, RequestHandler

# protocols: where every request says who it is from, and where a connection begins with a handshake
CURRENT, PREVIOUS = "auto", "legacy"
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """Answer of a tool, in both forms."""

    text: str
    values: dict[str, Any]
    is_error: bool

    @property
    def places(self) -> list[str]:
        return [hit["at"] for hit in self.values["hits"]]

    @property
    def json(self) -> str:
        return json.dumps(self.values, ensure_ascii=False)


async def call_tool(client: Client, tool: str, /, **arguments: Any) -> ToolResult:
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    return ToolResult(
        text=content.text, values=result.structured_content or {}, is_error=result.is_error
    )  # type: ignore[union-attr]


async def count_when_idle(client: Client, project: str) -> int:
    """Return the chunks of a project once their number is stable."""
    counts: list[int] = []
    while len(counts) < 3 or len(set(counts[-3:])) > 1:
        found = (await call_tool(client, "list_projects")).values["projects"]
        counts.append(int({one["name"]: one["chunks"] for one in found}.get(project, 0)))
        await anyio.sleep(0.15)
    return counts[-1]


class Agent:
    """Agent that calls the tools of a server, each with a new client."""

    def __init__(
        self, corpus: unspool.Corpus, scope: Scope, *, home: str = "", max_tokens: int = 4000
    ) -> None:
        self.corpus = corpus
        caller = McpCaller(corpus=corpus.scoped(scope), home=lambda: home)
        self.server = RequestHandler(lambda ctx: caller, max_tokens=max_tokens).build_server()

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        return self.run(lambda client: call_tool(client, tool, **arguments))

    def run(self, story: Callable[[Client], Awaitable[_T]]) -> _T:
        async def connected() -> _T | MCPError:
            async with Client(self.server, mode=PREVIOUS) as client:
                try:
                    return await story(client)
                except MCPError as error:  # raised in here it would come out in a group
                    return error

        found = anyio.run(connected)
        if isinstance(found, MCPError):
            raise found
        return found

    def tokens(self, answer: ToolResult) -> tuple[int, int]:
        """Return the tokens of the text and of the values."""
        return self.corpus.count_tokens(answer.text), self.corpus.count_tokens(answer.json)
