"""The MCP server over stdin and stdout, for a client on the same machine that starts it."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
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
from unspool.views import View

# that a corpus which is still being opened may take to come to rest when the client leaves
READY_S = 30


def serve(
    settings: Settings,
    *,
    projects: Sequence[str] = (),
    read_only: bool = False,
    warn: Callable[[str], None],
) -> None:
    """Answer one client until it closes stdin. Stdout carries the protocol and nothing else."""
    scope = Scope.everything(
        role=Role.READ if read_only else Role.ADMIN, roots=parse_roots(settings)
    )
    scope = scope.narrow(projects) if projects else scope
    with (
        Corpus(settings) as corpus,
        closing(install(corpus, _quiet(settings), metrics=False)) as observer,
    ):
        missing = naming.describe_missing(projects, corpus.projects() if projects else ())
        if missing:
            warn(missing)
        # The SDK takes about as long to import as the corpus to open: the one does not wait for the
        # other.
        opening = threading.Thread(target=_warm, args=(corpus,), daemon=True)
        # nothing of what is imported is ever given up: looking for what is takes a tenth of the
        # start
        gc.disable()
        opening.start()
        try:
            _run(corpus, scope, observer, _current_folder())
        finally:
            # Python does not end well while a thread is in the middle of an extension
            opening.join(READY_S)


def _quiet(settings: Settings) -> Settings:
    """Clients show whatever comes on stderr as if something were wrong: without being asked,
    only what is goes there.
    """
    is_asked = settings.origins.get("log_level", "default") != "default"
    return settings if is_asked else settings.with_arguments({"log_level": "warning"})


def _current_folder() -> Path | None:
    """Where the client has started this, asked while it is there; None where it is not any more."""
    try:
        return Path.cwd().resolve()
    except OSError:
        return None


def _warm(corpus: Corpus) -> None:
    """Load what the first search needs. What fails here fails again where somebody can be told."""
    with suppress(UnspoolError):
        corpus.nearest(corpus.embed("unspool"), k=1, projects="*")


def _run(corpus: Corpus, scope: Scope, observer: Observer, here: Path | None) -> None:
    try:
        import anyio

        from unspool.interfaces.mcp.server import Caller, Door
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

    def confined(declared: Sequence[Path]) -> View:
        return View(
            corpus, replace(scope, roots=confinement.local_roots(declared, scope.roots, here=here))
        )

    caller = Caller(view=View(corpus, scope), home=home, confined=confined, root_of=corpus.root_of)
    server = Door(
        lambda ctx: caller, max_tokens=corpus.settings.mcp.max_tokens, observer=observer
    ).server()

    async def answer() -> None:
        async with connect_stdio() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    with _interruptible():
        try:
            anyio.run(answer)
        except* ConnectionError:  # whoever should read the answer is gone, and so is this
            pass


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the process at once: the thread that waits for stdin would be waited for
    otherwise, and no run minds being killed.
    """

    def end(number: int, frame: object) -> None:
        git.end_all()  # which is in sessions of its own, and does not hear of it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
