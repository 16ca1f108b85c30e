"""Application: routes and middleware around a corpus that is opened at the start of the server."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from unspool import __version__
from unspool.corpus import Corpus
from unspool.interfaces.http import (
    conversations,
    documents,
    errors,
    history,
    jobs,
    openapi,
    operations,
    searching,
)
from unspool.interfaces.http.middleware import RequestMiddleware
from unspool.interfaces.http.service import ServiceState, find_caller
from unspool.interfaces.mcp.asgi import McpApp
from unspool.jobs import JobQueue
from unspool.observability import install
from unspool.settings import NO_FOLDER, Settings

EXIT_S = 1.0  # time for a process to end by itself once everything is closed
ROUTERS = (
    searching.routes,
    searching.answers,
    documents.projects,
    documents.routes,
    jobs.routes,
    conversations.routes,
    history.routes,
    operations.routes,
    operations.public,
)


def create_from_environment() -> FastAPI:
    """Return the application for a worker process.

    The process that started it has put all settings into the environment.
    """
    return create_app(Settings.load(folder=NO_FOLDER), owns_process=True)


def create_app(settings: Settings, *, owns_process: bool = False) -> FastAPI:
    """Return the application, which opens the corpus when the server starts.

    One that `owns_process` ends the process when the server has stopped: a call that hangs, such
    as of git, must not keep it alive.
    """
    app = FastAPI(
        title="unspool",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=partial(_open_service, settings, owns_process),
        middleware=[Middleware(RequestMiddleware, settings.serve)],
        exception_handlers={
            HTTPException: errors.reraise,
            RequestValidationError: errors.reraise,
        },
    )
    for router in ROUTERS:
        app.include_router(router)
    app.add_route("/openapi.json", openapi.publish, include_in_schema=False)
    return app


@asynccontextmanager
async def _open_service(
    settings: Settings, owns_process: bool, app: FastAPI
) -> AsyncIterator[None]:
    with ExitStack() as opened:
        corpus = opened.enter_context(Corpus(settings))
        service = ServiceState(corpus, JobQueue(corpus), install(corpus, settings))
        opened.pop_all()  # the service closes it from here on
    try:
        app.state.service = service
        agents = McpApp(lambda request: find_caller(request).corpus, settings, service.observer)
        for path in ("/mcp", "/mcp/"):
            app.add_route(path, agents)  # type: ignore[arg-type]
        app.state.table = [
            *(route for router in ROUTERS for route in router.routes),
            *app.routes[len(ROUTERS) :],
        ]
        async with agents.running():
            yield
    finally:
        service.close()
        if owns_process:
            threading.Thread(target=_exit, daemon=True).start()


def _exit() -> None:
    time.sleep(EXIT_S)
    sys.stderr.flush()
    os._exit(0)
