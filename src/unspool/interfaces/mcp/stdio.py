"""The MCP server over stdin and stdout, started by a client on the same machine."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from unspool.access import projects as naming
from unspool.access.scope import Scope, parse_roots
from unspool.corpus import Corpus
from unspool.domain.keys import Role
from unspool.errors import MissingDependencyError, UnspoolError
from unspool.interfaces.mcp import confinement
from unspool.observability import Observer, install
from unspool.settings import Settings
from unspool.sources import git

LOADING_TIMEOUT_S = 30  # for an index that is still loading when the client leaves


def serve(
    settings: Settings,
    *,
    projects: Sequence[str] = (),
    read_only: bool = False,
    warn: Callable[[str], None],
) -> None:
    """Answer one client until it closes stdin. Only the protocol writes to stdout."""
    scope = Scope.everything(
        role=Role.READ if read_only else Role.ADMIN, roots=parse_roots(settings)
    )
    scope = scope.narrow(projects) if projects else scope
    with (
        Corpus(settings) as corpus,
        closing(install(corpus, _limit_log(settings), metrics=False)) as observer,
    ):
        missing = naming.describe_missing(projects, corpus.projects() if projects else ())
        if missing:
            warn(missing)
        # The SDK takes about as long to import as the index to load, so both run at once.
        loading = threading.Thread(target=_load_index, args=(corpus,), daemon=True)
        # Collecting garbage takes a tenth of the start, and imported modules are none.
        gc.disable()
        loading.start()
        try:
            _run(corpus, scope, observer, _find_current_folder())
        finally:
            # Python may crash at its end while a thread runs code of an extension.
            loading.join(LOADING_TIMEOUT_S)


def _limit_log(settings: Settings) -> Settings:
    """Return settings that log only warnings, unless a level is set.

    Clients show every line on stderr as a problem.
    """
    if settings.origins.get("log_level", "default") != "default":
        return settings
    return settings.with_arguments({"log_level": "warning"})


def _find_current_folder() -> Path | None:
    """Return the folder in which the client started the server, or None if it was deleted."""
    try:
        return Path.cwd().resolve()
    except OSError:
        return None


def _load_index(corpus: Corpus) -> None:
    """Load what the first search needs. An error occurs again in that search."""
    with suppress(UnspoolError):
        corpus.nearest(corpus.embed("unspool"), k=1, projects="*")


def _run(corpus: Corpus, scope: Scope, observer: Observer, here: Path | None) -> None:
    try:
        import anyio

        from unspool.interfaces.mcp.server import McpCaller, RequestHandler
        from unspool.interfaces.mcp.transport import connect_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingDependencyError(
            "the MCP server needs the package mcp; install it with: pip install 'unspool[mcp]'"
        ) from error

    gc.freeze()
    gc.enable()

    def home() -> str:
        name = (
            corpus.settings.project or (corpus.project_of(here) if here is not None else None) or ""
        )
        return name if scope.contains(name) else ""

    def confine(declared: Sequence[Path]) -> Corpus:
        return corpus.scoped(
            replace(scope, roots=confinement.choose_roots(declared, scope.roots or (), here=here))
        )

    caller = McpCaller(
        corpus=corpus.scoped(scope), home=home, confine=confine, root_of=corpus.root_of
    )
    server = RequestHandler(
        lambda ctx: caller, max_tokens=corpus.settings.mcp.max_tokens, observer=observer
    ).build_server()

    async def answer() -> None:
        async with connect_stdio() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    signal.signal(signal.SIGINT, _end_process)
    try:
        anyio.run(answer)
    except* ConnectionError:  # the client left
        pass


def _end_process(number: int, frame: object) -> None:
    """End the process at once on Ctrl-C. Every run can be interrupted safely.

    Otherwise the process would wait for the thread that reads stdin.
    """
    git.end_all()  # its processes run in sessions of their own, which get no signal
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
