"""The application: routes, errors and what stands before them, around one corpus that is opened
when the service starts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from unspool import __version__
from unspool.corpus import open as open_corpus
from unspool.errors import UnspoolError
from unspool.interfaces.http import (
    asking,
    conversations,
    documents,
    errors,
    history,
    jobs,
    openapi,
    operations,
    searching,
)
from unspool.interfaces.http.admission import Admission
from unspool.interfaces.http.middleware import Bounds, Gate, Outermost, Paths
from unspool.interfaces.http.responses import GoneError
from unspool.interfaces.http.service import Service, in_scope
from unspool.interfaces.mcp.asgi import McpApp
from unspool.jobs import JobQueue
from unspool.observability import install
from unspool.settings import NO_FOLDER, Settings

LEAVE_S = 1.0  # how long a process may take to end by itself once everything is closed
ROUTERS = (
    searching.routes,
    asking.routes,
    documents.projects,
    documents.routes,
    jobs.routes,
    conversations.routes,
    history.routes,
    operations.routes,
    operations.public,
)


def from_environment() -> App:
    """Return the application for a process of a service.

    The process that started it has put all settings into the environment.
    """
    return App(Settings.load(folder=NO_FOLDER), owns_process=True)


class App:
    """An ASGI application. It opens the corpus when the server starts it, and closes it in the end.

    One that `owns_process` ends it a moment later: what nobody waits for any more, as a call of git
    that hangs, must not keep it.
    """

    def __init__(self, settings: Settings, *, owns_process: bool = False) -> None:
        self._settings = settings
        self._owns_process = owns_process
        self._door: Outermost | None = None
        self._api = api()
        self._api.router.lifespan_context = self._lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._api(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            assert self._door is not None
            await self._door(scope, receive, send)

    def stop(self) -> None:
        """The server is told to stop: streams end, so that it need not wait for them."""
        if self._door is not None:
            self._door.stop()

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        settings = self._settings
        with ExitStack() as opened:
            corpus = opened.enter_context(open_corpus(settings=settings))
            service = Service(corpus, JobQueue(corpus), install(corpus, settings))
            opened.pop_all()  # the service closes it from here on
        try:
            self._api.state.service = service
            agents = McpApp(
                lambda request: in_scope(request.scope).view, settings, service.observer
            )
            self._door = Outermost(
                guarded(Split(self._api, agents), service), service, self._api.state.table
            )
            async with agents.running():
                yield
        finally:
            service.over.set()
            service.close()
            if self._owns_process:
                threading.Thread(target=_leave, daemon=True).start()


class Split:
    """Agents at /mcp, programs elsewhere."""

    def __init__(self, programs: ASGIApp, agents: ASGIApp) -> None:
        self._programs = programs
        self._agents = agents

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._agents if scope["path"].rstrip("/") == "/mcp" else self._programs)(
            scope, receive, send
        )


def _leave() -> None:
    time.sleep(LEAVE_S)
    sys.stderr.flush()
    os._exit(0)


def guarded(app: ASGIApp, service: Service) -> ASGIApp:
    """An application behind the gate, within bounds, for whoever is let in."""
    settings = service.settings
    app = Paths(Admission(app, service))
    app = Bounds(
        app, max_body_bytes=settings.serve.max_body_bytes, timeout_s=settings.serve.timeout_s
    )
    return Gate(
        app, host=settings.serve.host, hosts=settings.serve.hosts, origins=settings.serve.origins
    )


def api() -> FastAPI:
    """The routes, and what becomes of errors in them."""
    made = FastAPI(
        title="unspool",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in ROUTERS:
        made.include_router(router)
    openapi.publish(made)
    made.state.table = [*(route for router in ROUTERS for route in router.routes), made.routes[-1]]
    handlers: dict[type[Exception], Callable[..., object]] = {
        UnspoolError: errors.on_error,
        GoneError: errors.on_disconnect,
        RequestValidationError: errors.on_invalid,
        HTTPException: errors.on_http,
    }
    for kind, handler in handlers.items():
        made.add_exception_handler(kind, handler)  # type: ignore[arg-type]
    return made
