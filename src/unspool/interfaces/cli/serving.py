"""The command that serves programs: serve."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from unspool.errors import ConfigError
from unspool.interfaces.cli.door import ADDRESSES, command, load_settings, note
from unspool.settings.definitions import DEFINITIONS

Function = TypeVar("Function", bound=Callable[..., Any])
_NAMES = {"host": "ADDRESS", "port": "N", "workers": "N"}


def _placed(function: Function) -> Function:
    """A command with --host, --port and --workers: the settings of the same names, with `serve_`
    in front.
    """
    for name, metavar in reversed(_NAMES.items()):
        about = DEFINITIONS[f"serve_{name}"].about
        function = click.option(
            f"--{name}", metavar=metavar, help=f"{about[0].upper()}{about[1:]}."
        )(function)
    return function


@command(
    "serve",
    "Answer programs over HTTP and agents over MCP",
    examples=("unspool serve", "unspool serve --host 0.0.0.0 --workers 4 --root /srv/repositories"),
    takes=(*ADDRESSES, "answer_model", "log_format"),
)
@_placed
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="FOLDER",
    help="Let admins index what lies in this folder; give it several times.",
)
@click.option(
    "--without-keys",
    count=True,
    help=(
        "Given twice, serve other machines although there are no keys: whoever reaches it may do "
        "everything."
    ),
)
def serve(
    flags: dict[str, str | None],
    as_json: bool,
    host: str | None,
    port: str | None,
    workers: str | None,
    roots: Sequence[str],
    without_keys: int,
) -> None:
    """Serve HTTP under /v1 and MCP under /mcp until SIGTERM or Ctrl-C. Without keys (`unspool
    key create`) only this machine is served.
    """
    from unspool.access.scope import parse_roots
    from unspool.interfaces.http import server

    given = {
        "serve_host": host,
        "serve_port": port,
        "serve_workers": workers,
        "roots": os.pathsep.join(roots) or None,
    }
    settings = load_settings({**flags, **given})
    for root in parse_roots(settings):
        if not root.is_dir():
            raise ConfigError(
                f"{root} is no folder, and nothing in it could be indexed; correct --root or "
                f"UNSPOOL_ROOTS"
            )
    server.serve(
        settings, without_keys=without_keys >= 2, say=lambda text: note(text, kind="serve")
    )
