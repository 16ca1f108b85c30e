"""Start of the service: its checks, its socket, and one process or several."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType

from unspool.corpus import Corpus
from unspool.errors import ConfigError, MissingDependencyError, ServiceError
from unspool.observability import shared_metrics
from unspool.processes import isolated_children
from unspool.settings import Settings, export_settings
from unspool.settings.masking import redact_address

try:
    import uvicorn
    from fastapi import FastAPI
    from uvicorn.config import STARTUP_FAILURE
    from uvicorn.supervisors import Multiprocess

    from unspool.interfaces.http.app import create_app
    from unspool.interfaces.http.hosts import is_loopback
    from unspool.interfaces.http.protocol import KEEP_ALIVE_S, LimitedProtocol
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in (
        "uvicorn",
        "httptools",
        "fastapi",
        "starlette",
        "pydantic",
        "mcp",
    ):
        raise
    raise MissingDependencyError(
        f"`unspool serve` needs the package {error.name}; pip install 'unspool[serve]'"
    ) from error

BACKLOG = 2048
_FACTORY = "unspool.interfaces.http.app:create_from_environment"
_REASONS = {
    errno.EADDRINUSE: "is in use by another program; stop that, or choose another port with --port",
    errno.EACCES: "may not be used by this user; choose a port above 1023 with --port",
    errno.EADDRNOTAVAIL: "is not an address of this machine; choose one with --host",
}


class HttpServer(uvicorn.Server):
    """uvicorn's server. A process that a signal has stopped ends with 0."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def serve(settings: Settings, *, without_keys: bool, say: Callable[[str], None]) -> None:
    """Serve until a signal stops the process."""
    listening = bind(settings)
    try:
        with Corpus(settings) as corpus:
            about = check(corpus, without_keys=without_keys)
        # from here on, connections wait for a process instead of being refused
        listening.listen(BACKLOG)
        host, port = listening.getsockname()[:2]
        say(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}, {about}")
        with shared_metrics(settings.serve.workers):
            _run(settings, listening)
    finally:
        listening.close()


def _run(settings: Settings, listening: socket.socket) -> None:
    if settings.serve.workers == 1:
        HttpServer(create_config(settings, create_app(settings, owns_process=True))).run(
            sockets=[listening]
        )
        return
    with export_settings(settings), isolated_children():
        workers = Multiprocess(create_config(settings, _FACTORY), sockets=[listening])
        workers.run()
    if any(process.exitcode == STARTUP_FAILURE for process in workers.processes):
        raise ServiceError("the processes of the service could not start; see the log above")


def create_config(settings: Settings, app: FastAPI | str) -> uvicorn.Config:
    """Return uvicorn's configuration for an application."""
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        workers=settings.serve.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.serve.drain_s,
    )


def bind(settings: Settings) -> socket.socket:
    """Return a socket at the address. Raise `ConfigError` with the reason if that is impossible."""
    host, port = settings.serve.host.strip("[]"), settings.serve.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ConfigError(
            f"serve_host is {host[:80]!r}, which is no address and no name of one; give one such "
            f"as 127.0.0.1 with --host"
        ) from None
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        reason = _REASONS.get(error.errno or 0, f"cannot be used ({error.strerror})")
        raise ConfigError(f"port {port} of {host} {reason}") from None
    made.set_inheritable(True)
    return made


def check(corpus: Corpus, *, without_keys: bool) -> str:
    """Return a description of the catalog and its keys.

    Raise `ConfigError` if other machines could connect without a key, unless `without_keys`.
    """
    settings = corpus.settings
    now = datetime.now(UTC)
    has_keys, valid = corpus.keys.are_used(), sum(key.is_valid(now) for key in corpus.keys.list())
    if not has_keys and not without_keys and not is_loopback(settings.serve.host):
        raise ConfigError(
            f"serve_host is {settings.serve.host}, which other machines can reach, and there are "
            f"no keys; make one with `unspool key create "
            "--project NAME`, or listen on 127.0.0.1, or give --without-keys twice to let "
            "everybody in"
        )
    counted = (
        f"{valid} {'key' if valid == 1 else 'keys'}"
        if has_keys
        else "no keys: everybody who can connect may do everything"
    )
    return f"catalog {redact_address(settings.database_address)}, {counted}"
