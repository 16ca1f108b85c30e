"""The MCP server: the tools and resources of a caller, and the handling of calls.

Both transports use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from unspool import __version__
from unspool.corpus import Corpus
from unspool.domain.keys import Role
from unspool.errors import ForbiddenError, UnspoolError
from unspool.interfaces import disclosure
from unspool.interfaces.mcp import confinement, resources, tools
from unspool.interfaces.mcp.answers import ToolAnswer
from unspool.interfaces.mcp.arguments import build_schema, parse_arguments
from unspool.interfaces.mcp.catalogue import INSTRUCTIONS, Tool, build_tools
from unspool.interfaces.mcp.progress import ProgressReporter
from unspool.observability import Observer

Context = ServerRequestContext[Any, Any]
ROOTS = "roots"  # key of the roots that a client of the current protocol sends with a call
ROOTS_TIMEOUT_S = 20
# More concurrent searches only wait for each other. Indexing has its own threads, so that searches
# do not wait for it.
MAX_CALLS, MAX_INDEXING = 8, 2
BUG, CANCELLED = "bug", "cancelled"
BUG_MESSAGE = "this is a bug in unspool; the log of the server says more"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCaller:
    """Sender of a request. `home` finds the project to use if none is named.

    A local caller is the user of this machine. `confine` returns its corpus limited to the roots
    that its client declares. `root_of` returns the folder of a project, also to a caller that may
    only read.
    """

    corpus: Corpus
    home: Callable[[], str] = str
    confine: Callable[[Sequence[Path]], Corpus] | None = None
    root_of: Callable[[str], str] | None = None

    @property
    def reads_as(self) -> Role:
        """Role that decides which errors are shown. A local user is the operator."""
        return self.corpus.scope.role if self.confine is None else Role.ADMIN


class _Roots(BaseModel):
    # The SDK's own model rejects all roots if one of them is not a file.
    roots: list[dict[str, Any]]


class _CallParams(types.CallToolRequestParams):
    """Call with responses of the client that are validated only if they are needed."""

    input_responses: dict[str, Any] | None = None


class RequestHandler:
    """Handler of all requests.

    `admit` returns the caller of a request. No state of a caller is kept between requests.
    """

    def __init__(
        self,
        admit: Callable[[Context], McpCaller],
        *,
        max_tokens: int,
        observer: Observer | None = None,
    ) -> None:
        self._admit = admit
        self._observer = observer
        self._tools = build_tools(max_tokens)
        self._threads = anyio.CapacityLimiter(MAX_CALLS)
        self._indexing_threads = anyio.CapacityLimiter(MAX_INDEXING)

    def build_server(self) -> Server[Any]:
        """Return a server of the SDK, which supports the current and earlier protocols."""
        schemas = {name: build_schema(tool.arguments) for name, tool in self._tools.items()}
        server: Server[Any] = Server(
            "unspool",
            version=__version__,
            title="unspool",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=schemas.get,
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        server.add_request_handler("tools/call", _CallParams, self._call_tool)
        return server

    def _allowed_tools(self, caller: McpCaller) -> dict[str, Tool]:
        role = caller.corpus.scope.role
        return {name: tool for name, tool in self._tools.items() if role.allows(tool.needs)}

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        found = self._allowed_tools(self._admit(ctx)).values()
        return types.ListToolsResult(tools=[_describe_tool(tool) for tool in found])

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        caller = self._admit(ctx)
        allowed = self._allowed_tools(caller)
        if params.name not in allowed:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"Unknown tool: {params.name[:80]}; there are: {', '.join(allowed)}",
            )
        begun, outcome = time.perf_counter(), CANCELLED
        try:
            result = await self._run_tool(ctx, params, caller, allowed[params.name])
            outcome = "ok"
        except Exception as error:  # noqa: BLE001 - the last place that can catch a bug
            outcome, message = self._report_error(error, caller)
            # Only text: clients do not forward the values of a call that failed.
            text = tools.format_error(outcome, message)
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        finally:
            if self._observer is not None:
                self._observer.tool(params.name, outcome, time.perf_counter() - begun)
        return result

    async def _run_tool(
        self, ctx: Context, params: types.CallToolRequestParams, caller: McpCaller, tool: Tool
    ) -> types.CallToolResult | types.InputRequiredResult:
        is_index = tool.name == "index"
        if is_index and caller.confine is not None:
            roots = await _request_roots(ctx, params)
            if roots is None:
                return types.InputRequiredResult(input_requests={ROOTS: types.ListRootsRequest()})
            caller = replace(caller, corpus=caller.confine(roots))
        reporter = ProgressReporter(ctx.session.report_progress)
        work = partial(_answer, caller, tool, params.arguments, reporter)
        limiter = self._indexing_threads if is_index else self._threads
        answer = await anyio.to_thread.run_sync(work, limiter=limiter)
        return types.CallToolResult(
            content=[types.TextContent(text=answer.text)], structured_content=answer.values
        )

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params else None
        return await self._run_request(ctx, lambda one: resources.list_resources(one, cursor))

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return resources.TEMPLATES

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await self._run_request(ctx, lambda one: resources.read_resource(one, params.uri))

    async def _run_request(self, ctx: Context, work: Callable[[Corpus], _T]) -> _T:
        """Run a request for resources. Errors are those of the protocol: no model reads them."""
        caller = self._admit(ctx)
        try:
            return await anyio.to_thread.run_sync(work, caller.corpus, limiter=self._threads)
        except Exception as error:  # noqa: BLE001 - the last place that can catch a bug
            code, message = self._report_error(error, caller)
            kind = types.INTERNAL_ERROR if code == BUG else types.INVALID_PARAMS
            raise MCPError(code=kind, message=message, data={"code": code}) from None

    def _report_error(self, error: Exception, caller: McpCaller) -> tuple[str, str]:
        """Report an error to the observer. Return its code and the message for the caller.

        The message of a bug may contain stored text, so the caller does not get it.
        """
        if isinstance(error, UnspoolError):
            code, cause = error.code, None
            message = disclosure.words(error, caller.reads_as, tools.ADVICE)
        else:
            code, cause, message = BUG, error, BUG_MESSAGE
        if self._observer is not None:
            self._observer.error(code, cause)
        return code, message


def _answer(
    caller: McpCaller, tool: Tool, given: dict[str, Any] | None, reporter: ProgressReporter
) -> ToolAnswer:
    call = tools.ToolCall(
        corpus=caller.corpus,
        given=parse_arguments(tool.name, tool.arguments, given),
        home=caller.home(),
        root_of=caller.root_of,
        on_progress=reporter,
    )
    return tools.RUN[tool.name](call)


async def _request_roots(ctx: Context, params: types.CallToolRequestParams) -> list[Path] | None:
    """Return the roots that the client declares.

    None means that the client has to be asked in an answer of its own, as the current protocol
    requires.
    """
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.roots is None:
        return []
    responses = params.input_responses or {}
    try:
        if ctx.session.can_send_request:
            found = await ctx.session.send_request(
                types.ListRootsRequest(), _Roots, request_read_timeout_seconds=ROOTS_TIMEOUT_S
            )
        elif ROOTS in responses:
            found = _Roots.model_validate(responses[ROOTS])
        else:
            return None
    except (MCPError, ValidationError) as error:
        raise ForbiddenError(
            "the client declares roots and does not list them, so nothing may be indexed; try again"
        ) from error
    paths = confinement.parse_uris([str(root.get("uri")) for root in found.roots])
    if found.roots and not paths:
        raise ForbiddenError(
            "none of the roots that the client declares is a folder of this machine, so nothing "
            "may be indexed; open one there"
        )
    return paths


def _describe_tool(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=build_schema(tool.arguments),
        output_schema=dict(tool.output),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.needs is Role.READ,
            destructive_hint=False,
            idempotent_hint=not tool.is_dated,
            open_world_hint=tool.is_open,
        ),
    )
