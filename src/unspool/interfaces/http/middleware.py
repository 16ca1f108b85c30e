"""Middleware around every request: its id, its errors, its size and its time."""

from __future__ import annotations

import asyncio
import re
import secrets
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unspool.errors import AccessError, InputError, OverdueError, TooLargeError
from unspool.interfaces.http.authentication import Authentication
from unspool.interfaces.http.errors import SlowError, create_response, find_routes
from unspool.interfaces.http.hosts import SourceCheck, split_list
from unspool.settings.options import ServeOptions

PART_BYTES = 65_536  # uvicorn's buffer: a larger part would be kept in memory
DISCONNECTED = 499  # the status that proxies record for a client that has disconnected
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ALLOWED_HEADERS = (
    "Authorization",
    "X-API-Key",
    "X-Request-ID",
    "MCP-Protocol-Version",
    "MCP-Session-ID",
    "MCP-Method",
    "MCP-Name",
)


class RequestMiddleware:
    """Outermost middleware: it gives each request an id, reports it to the observer, checks its
    source and responds to errors.
    """

    def __init__(self, app: ASGIApp, options: ServeOptions) -> None:
        self._app = app
        self._source = SourceCheck(options)
        self._limits = RequestLimits(Authentication(app, options), options)
        self._cors = CORSMiddleware(
            self._respond,
            allow_origins=split_list(options.origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=_ALLOWED_HEADERS,
            expose_headers=["X-Request-ID", "Retry-After", "Location"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        with scope["app"].state.service.observer.request(
            method=scope["method"],
            request_id=request_id,
            traceparent=headers.get("traceparent", ""),
        ) as seen:
            scope["state"]["seen"] = seen

            async def send_with_id(message: Message) -> None:
                if message["type"] == "http.response.start":
                    added = MutableHeaders(scope=message)
                    added["X-Request-ID"] = request_id
                    added["X-Content-Type-Options"] = "nosniff"
                    # the route's template contains no name of a project or a document
                    route = next(find_routes(scope), None)
                    seen.status, seen.route = message["status"], route.path if route else ""
                await send(message)

            try:
                self._source.check(headers)
            except AccessError as error:
                await create_response(error, scope)(scope, receive, send_with_id)
            else:
                await self._cors(scope, receive, send_with_id)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and respond if it sent nothing."""
        response = Response(status_code=DISCONNECTED)
        try:
            decode_path(scope)
            await self._limits(scope, receive, send)
        except ClientDisconnect:
            pass
        except (Exception, asyncio.CancelledError) as error:
            stopping = scope["app"].state.service.stopping.is_set()
            if isinstance(error, asyncio.CancelledError) and not stopping:
                raise
            response = create_response(error, scope)
        # otherwise a part of the response is sent, and the server closes the connection
        if not scope["state"]["seen"].status:
            await response(scope, receive, send)


class RequestLimits:
    """Middleware that limits the size of a body, and the time to receive and to answer it."""

    def __init__(self, app: ASGIApp, options: ServeOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit_s = self._options.timeout_s
        length = Headers(scope=scope).get("content-length", "")
        try:
            async with asyncio.timeout(limit_s) as deadline:
                exchange = _Exchange(self._options, receive, send, deadline)
                exchange.check_size(int(length) if length.isdigit() else 0)
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            if not deadline.expired():
                raise
            if exchange.is_reading:
                raise SlowError(
                    f"the body did not arrive within {limit_s} s; send it faster, or in parts"
                ) from None
            raise OverdueError(
                f"this took longer than the limit of {limit_s} s; ask for less, or later"
            ) from None


class _Exchange:
    """Body and response of one request, as they are received and sent."""

    def __init__(
        self, options: ServeOptions, receive: Receive, send: Send, deadline: asyncio.Timeout
    ) -> None:
        self._options = options
        self._receive = receive
        self._send = send
        self._deadline = deadline
        self._size = 0
        self._is_complete = False
        self.is_reading = False

    def check_size(self, size: int) -> None:
        """Raise `TooLargeError` for a body beyond the limit."""
        if size > self._options.max_body_bytes:
            raise TooLargeError(
                f"the body is larger than the limit of {self._options.max_body_bytes} bytes; send "
                f"it in parts, or raise UNSPOOL_SERVE_MAX_BODY_BYTES"
            )

    async def receive(self) -> Message:
        """Receive a part of the body. Its end starts the time for the answer."""
        self.is_reading = not self._is_complete
        message = await self._receive()
        self.is_reading = False
        self._size += len(message.get("body", b""))
        self.check_size(self._size)
        if not self._is_complete and not message.get("more_body", False):
            self._is_complete = True
            if self._deadline.when() is not None:
                now = asyncio.get_running_loop().time()
                self._deadline.reschedule(now + self._options.timeout_s)
        return message

    async def send(self, message: Message) -> None:
        """Send a response, whose start ends the deadline.

        The body is sent in parts, because the protocol limits the time to read each of them.
        """
        if message["type"] == "http.response.start":
            self._deadline.reschedule(None)
            await self._send(message)
            return
        body, has_more = message.get("body", b""), message.get("more_body", False)
        for start in range(0, len(body) or 1, PART_BYTES):
            end = start + PART_BYTES
            await self._send(
                {**message, "body": body[start:end], "more_body": has_more or end < len(body)}
            )


def decode_path(scope: Scope) -> None:
    """Decode the path, except for slashes, line breaks and percent signs inside of names.

    Routes are matched by slashes, so `a%2Fb` stays one name. `fields.Decoded` decodes the rest.
    """
    raw = scope.get("raw_path") or scope["path"].encode()
    kept = re.sub(rb"%(2f|25|0a)", lambda code: b"%25" + code[1].upper(), raw, flags=re.IGNORECASE)
    try:
        scope["path"] = unquote_to_bytes(kept).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(
            "the address is not UTF-8; encode each name as UTF-8 before its percent signs"
        ) from None
