"""The MCP server: which tools and resources a caller has, and what becomes of a call.

Both transports use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from unspool import __version__
from unspool.domain.keys import Role
from unspool.errors import ForbiddenError, UnspoolError
from unspool.interfaces import disclosure
from unspool.interfaces.mcp import arguments, confinement, resources, tools
from unspool.interfaces.mcp.answers import Answer
from unspool.interfaces.mcp.catalogue import INSTRUCTIONS, Tool
from unspool.interfaces.mcp.catalogue import tools as catalogue
from unspool.interfaces.mcp.progress import Reporter
from unspool.observability import Observer
from unspool.views import View

Context = ServerRequestContext[Any, Any]
ROOTS = "roots"  # under which a client of the current protocol hands in its roots
ROOTS_TIMEOUT_S = 20
# calls in threads: more searches only wait for each other, and indexing must not keep them waiting
AT_ONCE, INDEXING_AT_ONCE = 8, 2
BUG, CANCELLED = "bug", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls. `home` finds the project that is meant where none is named.

    A local caller is the user of this machine: `confined` makes its view one that may index in the
    roots that its client names, and `root_of` tells it where a project lies, even if it may only
    read.
    """

    view: View
    home: Callable[[], str] = str
    confined: Callable[[Sequence[Path]], View] | None = None
    root_of: Callable[[str], str] | None = None

    @property
    def reads_as(self) -> Role:
        """Whose words of errors it may read: the user of this machine is the operator of what
        runs here.
        """
        return self.view.scope.role if self.confined is None else Role.ADMIN


class _Root(BaseModel):
    # of any scheme: the SDK's own model refuses all that is said for one root that is no file
    uri: str


class _Roots(BaseModel):
    roots: list[_Root]


class _Params(types.CallToolRequestParams):
    """A call as it comes. What a client was asked for is read where it is needed."""

    input_responses: dict[str, Any] | None = None


class Door:
    """What the server answers.

    `admit` says who a request comes from; nothing about a caller is kept from one request to the
    next.
    """

    def __init__(
        self,
        admit: Callable[[Context], Caller],
        *,
        max_tokens: int,
        observer: Observer | None = None,
    ) -> None:
        self._admit = admit
        self._observer = observer
        self._tools = catalogue(max_tokens)
        self._threads, self._slow = (
            anyio.CapacityLimiter(AT_ONCE),
            anyio.CapacityLimiter(INDEXING_AT_ONCE),
        )

    def server(self) -> Server[Any]:
        """A server of the SDK that speaks the current protocol and the ones before it."""
        server: Server[Any] = Server(
            "unspool",
            version=__version__,
            title="unspool",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=self._schema,
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        server.add_request_handler("tools/call", _Params, self._call_tool)
        return server

    def _schema(self, name: str) -> dict[str, Any] | None:
        return arguments.schema(self._tools[name].arguments) if name in self._tools else None

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        role = self._admit(ctx).view.scope.role
        return types.ListToolsResult(
            tools=[_described(one) for one in self._tools.values() if role.allows(one.needs)]
        )

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        caller = self._admit(ctx)
        tool = self._tools.get(params.name)
        if tool is None or not caller.view.scope.role.allows(tool.needs):
            known = ", ".join(
                name
                for name, one in self._tools.items()
                if caller.view.scope.role.allows(one.needs)
            )
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"Unknown tool: {params.name[:80]}; there are: {known}",
            )
        begun, outcome = time.perf_counter(), CANCELLED
        try:
            result = await self._run(ctx, params, caller, tool)
            outcome = "ok"
        except UnspoolError as error:
            outcome = error.code
            result = self._failed(error.code, tools.error_text(error, caller.reads_as))
        except Exception as error:  # noqa: BLE001 - the one place where a bug ends; its text may hold what is stored, so it is not told
            outcome = BUG
            result = self._failed(
                BUG,
                f"error ({BUG}): this is a bug in unspool; the log of the server says more",
                error,
            )
        finally:
            if self._observer is not None:
                self._observer.tool(tool.name, outcome, time.perf_counter() - begun)
        return result

    async def _run(
        self, ctx: Context, params: types.CallToolRequestParams, caller: Caller, tool: Tool
    ) -> types.CallToolResult | types.InputRequiredResult:
        if tool.name == "index" and caller.confined is not None:
            declared = await _declared_roots(ctx, params)
            if declared is None:
                return types.InputRequiredResult(input_requests={ROOTS: types.ListRootsRequest()})
            caller = replace(caller, view=caller.confined(declared))
        work = partial(
            _answered, caller, tool, params.arguments, Reporter(ctx.session.report_progress)
        )
        answer = await anyio.to_thread.run_sync(
            work, limiter=self._slow if tool.name == "index" else self._threads
        )
        return types.CallToolResult(
            content=[types.TextContent(text=answer.text)], structured_content=answer.values
        )

    def _failed(self, code: str, text: str, cause: Exception | None = None) -> types.CallToolResult:
        """An error that the model can read and act upon.

        It is text alone: clients do not forward the values of one that failed.
        """
        self._tell(code, cause)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)

    def _tell(self, code: str, cause: Exception | None = None) -> None:
        if self._observer is not None:
            self._observer.error(code, cause)

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = None if params is None else params.cursor
        page = await self._resource(ctx, lambda caller: resources.listed(caller.view, cursor))
        found = [
            types.Resource(
                uri=one.address,
                name=one.name,
                title=one.title or None,
                mime_type=one.mime_type,
                size=one.size_bytes,
            )
            for one in page.entries
        ]
        return types.ListResourcesResult(resources=found, next_cursor=page.cursor)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        found = [
            types.ResourceTemplate(uri_template=address, name=name, description=about)
            for name, address, about in resources.TEMPLATES
        ]
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        found = await self._resource(ctx, lambda caller: resources.read(caller.view, params.uri))
        return types.ReadResourceResult(
            contents=[
                types.TextResourceContents(
                    uri=params.uri, mime_type=found.mime_type, text=found.text
                )
            ]
        )

    async def _resource(self, ctx: Context, work: Callable[[Caller], Any]) -> Any:
        """What is known of resources; errors as the protocol has them, for there is no model
        here to read them.
        """
        caller = self._admit(ctx)
        try:
            return await anyio.to_thread.run_sync(work, caller, limiter=self._threads)
        except UnspoolError as error:
            self._tell(error.code)
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=disclosure.words(error, caller.reads_as),
                data={"code": error.code},
            ) from None
        except Exception as error:  # noqa: BLE001 - see above
            self._tell(BUG, error)
            raise MCPError(
                code=types.INTERNAL_ERROR,
                message="this is a bug in unspool; the log of the server says more",
            ) from None


def _answered(
    caller: Caller, tool: Tool, given: dict[str, Any] | None, reporter: Reporter
) -> Answer:
    understood = arguments.understand(tool.name, tool.arguments, given)
    return tools.RUN[tool.name](
        tools.Call(
            view=caller.view,
            given=understood,
            home=caller.home(),
            root_of=caller.root_of,
            on_progress=reporter,
        )
    )


async def _declared_roots(ctx: Context, params: types.CallToolRequestParams) -> list[Path] | None:
    """The roots that the client declares; None where it has to be asked first, in an answer of
    its own as the current protocol has it.
    """
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.roots is None:
        return []
    try:
        if ctx.session.can_send_request:
            found = await ctx.session.send_request(
                types.ListRootsRequest(), _Roots, request_read_timeout_seconds=ROOTS_TIMEOUT_S
            )
        elif ROOTS in (params.input_responses or {}):
            found = _Roots.model_validate((params.input_responses or {})[ROOTS])
        else:
            return None
    except (MCPError, ValidationError) as error:
        raise ForbiddenError(
            "the client declares roots and does not say which, so nothing may be indexed; try again"
        ) from error
    paths = confinement.paths_of([root.uri for root in found.roots])
    if found.roots and not paths:
        raise ForbiddenError(
            "none of the roots that the client declares is a folder of this machine, so nothing "
            "may be indexed; open one there"
        )
    return paths


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=arguments.schema(tool.arguments),
        output_schema=dict(tool.output),
        annotations=types.ToolAnnotations.model_validate(tool.hints),
    )
