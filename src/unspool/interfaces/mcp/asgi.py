"""The MCP server as an ASGI application: streamable HTTP without sessions.

So any of several processes can answer any request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Connection

from unspool.corpus import Corpus
from unspool.interfaces.mcp.messages import MessageError, decode_message
from unspool.interfaces.mcp.server import Context, McpCaller, RequestHandler
from unspool.observability import Observer
from unspool.settings import Settings


class McpApp:
    """Application mounted at `/mcp`. It serves inside of `running()`, which can be entered once.

    The routes before it check Host, Origin, key and size. `corpus_of` returns the corpus that the
    key of a request may see. It is called for every message, with the request that carried it.
    """

    def __init__(
        self,
        corpus_of: Callable[[Request], Corpus],
        settings: Settings,
        observer: Observer | None = None,
    ) -> None:
        def admit(ctx: Context) -> McpCaller:
            assert isinstance(ctx.request, Request)
            return McpCaller(corpus=corpus_of(ctx.request))

        self._sessions = StreamableHTTPSessionManager(
            RequestHandler(
                admit, max_tokens=settings.mcp.max_tokens, observer=observer
            ).build_server(),
            stateless=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=settings.serve.max_body_bytes,
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which requests are answered."""
        return self._sessions.run()

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_post = scope["method"] == "POST"
        try:
            if not is_post:
                reason = "there are no sessions to listen to or to end; send messages by POST"
                raise MessageError(reason)
            body = await Request(scope, receive).body()
            # The SDK answers some invalid requests as if they were notifications.
            decode_message(body)
        except MessageError as error:
            response = Response(
                error.response.model_dump_json(exclude_unset=True),
                status_code=400 if is_post else 405,
                headers=None if is_post else {"Allow": "POST"},
                media_type="application/json",
            )
            await response(scope, receive, send)
            return
        # The SDK compares values of headers with the body, and not every server removes the spaces
        # around them.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        replay = _replay_body(body, receive)
        await self._sessions.handle_request({**scope, "headers": headers}, replay, send)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns a body that was read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
