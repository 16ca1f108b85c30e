"""What every request passes on its way in, as plain ASGI so that streams and disconnects pass,
too: who it is from, what for, how much, how long.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unspool.errors import InputError, OverdueError, TooLargeError, UnspoolError
from unspool.interfaces.http.errors import (
    BUG,
    GONE,
    BugError,
    HostError,
    OriginError,
    SlowError,
    response,
    stopping,
)
from unspool.interfaces.http.responses import EVENTS
from unspool.interfaces.http.service import Service

DISCARD_S = 2.0  # how long the rest of a body is read that nobody wants
# where the state of a request has the headers that a page of another origin needs
FOR_PAGES = "for_pages"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ALLOWED = "authorization, content-type, x-api-key, x-request-id, " + ", ".join(
    f"mcp-{name}" for name in ("protocol-version", "session-id", "method", "name")
)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Outermost:
    """Gives each request an id, tells the observer of it, and answers what was raised on the way.

    The application of the server.
    """

    def __init__(self, app: ASGIApp, service: Service, routes: Sequence[Route]) -> None:
        self._app = app
        self._service = service
        self._routes = routes

    def stop(self) -> None:
        """The service is told to stop."""
        self._service.over.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = header(scope, b"x-request-id")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8).encode()
        traceparent = header(scope, b"traceparent").decode("latin-1")
        with self._service.observer.request(
            method=_method(scope), request_id=request_id.decode(), traceparent=traceparent
        ) as seen:
            scope.setdefault("state", {})["seen"] = seen
            arriving = _Arriving(scope, receive)

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    own = [
                        (b"x-request-id", request_id),
                        (b"x-content-type-options", b"nosniff"),
                        *scope["state"].get(FOR_PAGES, ()),
                    ]
                    if message["status"] != SlowError.http_status:
                        await arriving.discard()
                    if not arriving.is_whole:
                        own.append((b"connection", b"close"))
                    message["headers"] = [*message["headers"], *own]
                    seen.status, seen.route = message["status"], self._template(scope)
                await send(message)

            error = await self._attempt(scope, arriving.receive, sending)
            if error is None and arriving.is_over and not seen.status:
                await Response(status_code=GONE)(scope, receive, sending)
            if error is not None:
                answer = response(error, self._service, scope)
                # else half an answer is out, and the server closes the connection on it
                if not seen.status:
                    await answer(scope, receive, sending)

    def _template(self, scope: Scope) -> str:
        """The address as the routes name it, without any name of a project or a document; also
        where the request was refused before it got there.
        """
        if "route" in scope:
            return str(getattr(scope["route"], "path", ""))
        path = scope["path"]
        if path in ("/mcp", "/mcp/"):
            return "/mcp"
        return next((route.path for route in self._routes if route.path_regex.match(path)), "")

    async def _attempt(self, scope: Scope, receive: Receive, send: Send) -> UnspoolError | None:
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            return None
        except UnspoolError as error:
            return error
        except asyncio.CancelledError:
            if not self._service.over.is_set():
                raise
            return stopping()
        except Exception as error:  # noqa: BLE001 - the one place where a bug in the door itself ends
            bug = BugError(BUG)
            bug.__cause__ = error
            return bug
        return None


class Gate:
    """Refuses what was sent to another name, or by a page of another origin: a web page must not
    reach a service that only its reader can reach.
    """

    def __init__(self, app: ASGIApp, *, host: str, hosts: str, origins: str) -> None:
        self._app = app
        self._is_open = not is_loopback(host)
        self._hosts = _LOOPBACK | {
            host.strip("[]").lower(),
            *(name.strip("[]") for name in _listed(hosts)),
        }
        self._origins = frozenset(_listed(origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_known(_hostname(host)):
            raise HostError(
                f"the service is not called {host[:60]!r}; UNSPOOL_SERVE_HOSTS names what it is "
                f"called by"
            )
        origin = header(scope, b"origin").decode("latin-1").lower()
        if not origin or urlsplit_host(origin) == host.lower():
            await self._app(scope, receive, send)
            return
        if origin not in self._origins:
            raise OriginError(
                f"pages of {origin[:60]!r} may not call this service; UNSPOOL_SERVE_ORIGINS "
                f"names those that may"
            )
        await self._for_page(scope, receive, send, origin)

    async def _for_page(self, scope: Scope, receive: Receive, send: Send, origin: str) -> None:
        """Answer so that the browser shows the answer to the page, whatever it is and whoever
        gives it.
        """
        allowing = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"vary", b"Origin"),
        ]
        scope["state"][FOR_PAGES] = allowing
        if scope["method"] == "OPTIONS":
            headers = {
                "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
                "Access-Control-Allow-Headers": _ALLOWED,
                "Access-Control-Max-Age": "600",
            }
            await Response(status_code=204, headers=headers)(scope, receive, send)
            return
        scope["state"][FOR_PAGES] = [
            *allowing,
            (b"access-control-expose-headers", b"x-request-id, retry-after, location"),
        ]
        await self._app(scope, receive, send)

    def _is_known(self, name: str) -> bool:
        # no name of somebody else's can lead to a bare address
        return name in self._hosts or (self._is_open and _is_address(name))


class Bounds:
    """Bounds what a request sends and how long it takes: to arrive, and then to be answered.

    Streams of events may take longer.
    """

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._most = max_body_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = header(scope, b"content-length")
        if length.isdigit() and int(length) > self._most:
            raise self._too_large()
        due = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(
                due + self._timeout_s if has_body(scope) else due
            ) as limit:
                await self._app(
                    scope, _Body(self, receive, limit, due).receive, _unhurried(send, limit)
                )
        except TimeoutError:
            if not limit.expired():
                raise
            raise OverdueError(
                f"this took longer than the {self._timeout_s:g} s that a request may; ask for "
                f"less, or later"
            ) from None

    def _too_large(self) -> TooLargeError:
        return TooLargeError(
            f"the body has more than the {self._most} bytes that are taken; send it in parts, or "
            f"raise UNSPOOL_SERVE_MAX_BODY_BYTES"
        )


class _Body:
    """The body of a request as it arrives. When it is there, the time for an answer begins."""

    def __init__(
        self, bounds: Bounds, receive: Receive, limit: asyncio.Timeout, due: float
    ) -> None:
        self._bounds = bounds
        self._receive = receive
        self._limit = limit
        self._due = due
        self._size = 0
        self._is_whole = False

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()  # whether the client is still there
        try:
            async with asyncio.timeout_at(self._due):
                message = await self._receive()
        except TimeoutError:
            raise SlowError(
                f"the body did not arrive within {self._bounds._timeout_s:g} s; send it faster, "
                f"or in parts"
            ) from None
        self._size += len(message.get("body", b""))
        if self._size > self._bounds._most:
            raise self._bounds._too_large()
        self._is_whole = not message.get("more_body", False)
        if self._is_whole and self._limit.when() is not None:  # else events are sent already
            self._limit.reschedule(asyncio.get_running_loop().time() + self._bounds._timeout_s)
        return message


def _unhurried(send: Send, limit: asyncio.Timeout) -> Send:
    """The same, without a limit once it is a stream of events that is sent; any other answer may
    wait for the rest of a body to be read.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and (due := limit.when()) is not None:
            are_events = any(
                name == b"content-type" and value.startswith(EVENTS.encode())
                for name, value in message["headers"]
            )
            limit.reschedule(None if are_events else due + 2 * DISCARD_S)
        await send(message)

    return sending


class Paths:
    """Keeps the slashes inside of names apart from those between them, and line breaks, at which a
    route's pattern would end: `a%2Fb` is one name in an address. What is not UTF-8 is refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or scope["path"].encode()
        if b"%" in raw:
            kept = re.sub(
                rb"%(2f|25|0a)", lambda found: b"%25" + found[1].upper(), raw, flags=re.IGNORECASE
            )
            try:
                scope["path"] = unquote_to_bytes(kept).decode("utf-8")
            except UnicodeDecodeError:
                raise InputError(
                    "the address is not UTF-8; encode each name as UTF-8 before its percent signs"
                ) from None
        await self._app(scope, receive, send)


class _Arriving:
    """A request's body, and whether all of it has come.

    Who is still sending does not see an answer, so the rest is read for a while.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        # nothing is sent before somebody wants to read
        self._is_held_back = header(scope, b"expect").lower() == b"100-continue"
        self.is_whole = not has_body(scope)
        self.is_over = False  # the client has disconnected

    async def receive(self) -> Message:
        message = await self._receive()
        self.is_over = self.is_over or message["type"] == "http.disconnect"
        self._is_held_back = False
        self.is_whole = self.is_whole or not message.get("more_body", False)
        return message

    async def discard(self) -> None:
        if self._is_held_back:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                while not self.is_whole:
                    await self.receive()


def has_body(scope: Scope) -> bool:
    """Whether something is sent behind the headers of a request."""
    return bool(header(scope, b"content-length").strip(b"0") or header(scope, b"transfer-encoding"))


def header(scope: Scope, name: bytes) -> bytes:
    """The first header of a name; empty where there is none."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    name = host.strip("[]").lower()
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _hostname(host: str) -> str:
    """A `Host` header without its port."""
    name, separator, port = host.rpartition(":")
    return (
        (
            name
            if separator and port.isdigit() and not (":" in name and not name.endswith("]"))
            else host
        )
        .strip("[]")
        .lower()
    )


def urlsplit_host(origin: str) -> str:
    """The host and port of an origin; empty for one that is none."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""


def _listed(text: str) -> Iterable[str]:
    return (part.strip().lower().rstrip("/") for part in text.split(",") if part.strip())


def _method(scope: Scope) -> str:
    """A method, as one of few words: what counts requests by it must not count what anybody
    makes up.
    """
    return (
        scope["method"]
        if scope["method"] in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
        else "other"
    )
