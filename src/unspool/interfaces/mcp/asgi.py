"""The MCP server as an ASGI app: streamable HTTP without sessions, so that any of several
processes can answer any request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Connection

from unspool.interfaces.mcp.messages import MessageError, decode_message
from unspool.interfaces.mcp.server import Caller, Context, Door
from unspool.observability import Observer
from unspool.settings import Settings
from unspool.views import View


class McpApp:
    """The application mounted at `/mcp`. It serves inside of `running()`, which can be entered
    once.

    Who asks and from where is checked before a request gets here: Host, Origin, key and body.
    `view_of` gives the view of a request's key; it is asked for every message, with the very
    request that carried it, so that no request can see what another may.
    """

    def __init__(
        self,
        view_of: Callable[[Request], View],
        settings: Settings,
        observer: Observer | None = None,
    ) -> None:
        def admit(ctx: Context) -> Caller:
            assert isinstance(ctx.request, Request)
            return Caller(view=view_of(ctx.request))

        self._sessions = StreamableHTTPSessionManager(
            Door(admit, max_tokens=settings.mcp.max_tokens, observer=observer).server(),
            stateless=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=settings.serve.max_body_bytes,
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """The time in which requests are answered."""
        return self._sessions.run()

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        # without sessions there is nothing to listen to, and none to end
        if scope["method"] != "POST":
            refused = {
                "code": INVALID_REQUEST,
                "message": "messages are sent by POST; there is no session to listen to, and none to end",  # noqa: E501
            }
            answer = {"jsonrpc": "2.0", "id": None, "error": refused}
            await JSONResponse(answer, status_code=405, headers={"Allow": "POST"})(
                scope, receive, send
            )
            return
        body = await Request(scope, receive).body()
        try:
            # the SDK answers some invalid requests as if they were notifications
            decode_message(body)
        except MessageError as error:
            content = error.response.model_dump_json(exclude_unset=True)
            response = Response(content, status_code=400, media_type="application/json")
            await response(scope, receive, send)
            return
        # Spaces around a header's value are no part of it, and not every server takes them away;
        # the SDK compares values with the body.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        replay = _replay_body(body, receive)
        await self._sessions.handle_request({**scope, "headers": headers}, replay, send)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then whatever comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
