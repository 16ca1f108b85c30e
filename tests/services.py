"""A service over a catalog, in a thread of this process, on a free port of the loopback; and an
async corpus that a plain test can call.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from anyio.from_thread import BlockingPortal

import unspool
from unspool.interfaces.http import server
from unspool.interfaces.http.app import create_app

WAIT_S = 20.0  # for something that has to happen; only a test that fails waits as long


class _Server(server.HttpServer):
    """A server that says when it listens."""

    def __init__(self, settings: unspool.Settings) -> None:
        super().__init__(server.create_config(settings, create_app(settings)))
        self.listens = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@contextmanager
def serving(settings: unspool.Settings, **given: object) -> Iterator[str]:
    """The address of a service with these settings, until the block ends."""
    settings = settings.with_arguments(
        {"serve_port": 0, "log_level": "error", "rate_limit": 0, "serve_drain_s": 1, **given}
    )
    listening = server.bind(settings)
    running = _Server(settings)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert running.listens.wait(WAIT_S)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(WAIT_S)
        listening.close()


def events(answer: httpx2.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream: their names, and what they carry."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


class Plain:
    """An async object whose methods can be called without awaiting them; what they give is
    wrapped alike.
    """

    def __init__(self, own: Any, portal: BlockingPortal) -> None:
        self._own = own
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._own, name)
        return self._called(found) if callable(found) else _plain(found, self._portal)

    def _called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(args: Any, kwargs: Any) -> Any:
            given = function(*args, **kwargs)
            return await given if inspect.isawaitable(given) else given

        return lambda *args, **kwargs: _plain(self._portal.call(call, args, kwargs), self._portal)


def _plain(value: Any, portal: BlockingPortal) -> Any:
    return Plain(value, portal) if type(value).__name__.startswith("AsyncRemote") else value
