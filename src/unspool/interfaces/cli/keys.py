"""The commands about keys: key create, key list, key revoke."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from unspool.domain.keys import Role
from unspool.interfaces import render, terminal
from unspool.interfaces.cli.door import command, group, note, opened, print_json
from unspool.interfaces.cli.looking import NOTHING_FOUND, show

_EXAMPLES = ("unspool key create --project notes --role read", "unspool key list")
MAX_DAYS = 36_500


@group("key", "Say who may ask through a service", examples=_EXAMPLES)
def key() -> None:
    """Make, list and revoke the keys of a service.

    As soon as there has been one, nobody is let in without.
    """


@command(
    "create",
    "Make a key and show it, once",
    examples=(_EXAMPLES[0], "unspool key create --project '*' --role admin --days 90"),
    within=key,
)
@click.option(
    "--project",
    "-p",
    "projects",
    metavar="NAME",
    multiple=True,
    required=True,
    help="A project that it can see; '*' is all.",
)
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.READ.value,
    show_default=True,
    help="What may be done with it there.",
)
@click.option("--name", metavar="TEXT", default="", help="What you call it.")
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS),
    metavar="N",
    help="How long it can be used; for good unless given.",
)
def create(
    flags: dict[str, str | None],
    as_json: bool,
    projects: tuple[str, ...],
    role: str,
    name: str,
    days: int | None,
) -> None:
    """Make a key. Its text is shown now and never again: what is stored only proves it."""
    until = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with opened(flags) as corpus:
        made, text = corpus.keys.create(projects=projects, role=role, name=name, expires_at=until)
    if as_json:
        print_json(render.key(made, text=text))
        return
    click.echo(text)
    note(f"this is shown once; `unspool key revoke {made.id}` ends it")


@command(
    "list",
    "Show the keys there are",
    examples=(_EXAMPLES[1], "unspool key list --json"),
    within=key,
)
def list_(flags: dict[str, str | None], as_json: bool) -> int:
    """Show every key: what it can see and do, and whether it can be used; its text is not kept."""
    with opened(flags) as corpus:
        found = corpus.keys.list()
    if as_json:
        print_json({"keys": [render.key(one) for one in found]})
    elif found:
        show(terminal.keys(found, datetime.now(UTC)))
    else:
        note("no keys yet; `unspool key create --project NAME` makes one")
    return 0 if found else NOTHING_FOUND


@command(
    "revoke",
    "End a key",
    examples=("unspool key revoke 3f9c1a7b2e4d", "unspool key revoke 3f9c1a7b2e4d --json"),
    within=key,
)
@click.argument("id_", metavar="ID")
def revoke(flags: dict[str, str | None], as_json: bool, id_: str) -> None:
    """End the key of that ID: the next request with it is refused."""
    with opened(flags) as corpus:
        ended = corpus.keys.revoke(id_)
    if as_json:
        print_json(render.key(ended))
    else:
        note(f"key {ended.id} is revoked")
