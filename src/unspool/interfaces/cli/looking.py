"""Commands that show: documents, status, settings."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from unspool.domain.documents import Status
from unspool.interfaces import render, terminal
from unspool.interfaces.cli.door import color, command, load_settings, note, opened, print_json
from unspool.settings.definitions import DEFINITIONS
from unspool.settings.masking import redact_address

if TYPE_CHECKING:
    from unspool.interfaces.terminal import Line

NOTHING_FOUND = 1


def show(lines: Iterable[Line]) -> None:
    """Write to stdout, for people."""
    terminal.Screen(sys.stdout, color=color()).write(lines)


@command(
    "documents",
    "List the documents",
    examples=("unspool documents --project click", "unspool documents --status failed --json"),
)
@click.option(
    "--project", "-p", metavar="NAME", help="Only those of this project; by default of all."
)
@click.option(
    "--status",
    type=click.Choice([one.value for one in Status]),
    help="Only those that stand there.",
)
def documents(
    flags: dict[str, str | None], as_json: bool, project: str | None, status: str | None
) -> int:
    """List what is known of each document; with --json one object per line."""
    with opened(flags) as corpus:
        records = corpus.documents(
            project=project or corpus.settings.project or None, status=status
        )
    if as_json:
        for record in records:
            print_json(render.document(record))
    elif records:
        show(terminal.documents(records))
    if not records:
        note("no such documents; `unspool status` shows what there is")
    return 0 if records else NOTHING_FOUND


@command(
    "status",
    "Show the projects and the catalog",
    examples=("unspool status", "unspool status --json"),
)
def status(flags: dict[str, str | None], as_json: bool) -> None:
    """Show every project with its counts, and where the catalog is."""
    with opened(flags) as corpus:
        projects = corpus.status()
        catalog, size = redact_address(corpus.settings.database_address), corpus.size_bytes()
    if as_json:
        print_json(render.status(projects, catalog=catalog, size_bytes=size))
        return
    show(terminal.status(projects, catalog=catalog, size_bytes=size))
    if not projects:
        note("nothing is indexed yet; `unspool index PATH` begins")


@command(
    "settings",
    "Show every setting and its origin",
    examples=("unspool settings", "unspool settings --limit 5 --json"),
    takes=tuple(DEFINITIONS),
)
def settings(flags: dict[str, str | None], as_json: bool) -> None:
    """Show every setting, its value and its origin: a flag, the environment, .env, unspool.toml or
    the default. Settings of a folder that is not trusted are listed below, with the reason why they
    are ignored."""
    loaded = load_settings(flags)
    if as_json:
        print_json(render.settings(loaded.rows(), loaded.ignored))
        return
    show(terminal.settings(loaded.rows()))
    if loaded.ignored:
        show([[], *terminal.ignored_settings(loaded.ignored)])
