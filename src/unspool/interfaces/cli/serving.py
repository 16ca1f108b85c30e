"""Commands of services: serve, mcp, key create, key list, key revoke."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import click

from unspool import Role, wire
from unspool.errors import ConfigError
from unspool.interfaces import terminal
from unspool.interfaces.cli.commands import (
    ADDRESSES,
    Flags,
    build_setting_option,
    command,
    group,
    load_settings,
    note,
    open_corpus,
    show_result,
)

MAX_DAYS = 36_500
_CREATE, _LIST = "unspool key create --project notes --role read", "unspool key list"


@command(
    "serve",
    "Serve programs over HTTP and agents over MCP",
    examples=("unspool serve", "unspool serve --host 0.0.0.0 --workers 4 --root /srv/repositories"),
    takes=(*ADDRESSES, "answer_model", "log_format"),
)
@build_setting_option("serve_host", "host")
@build_setting_option("serve_port", "port")
@build_setting_option("serve_workers", "workers")
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
    help="Given twice, serve other machines although there are no keys. Every caller may do "
    "everything.",
)
def serve(flags: Flags, as_json: bool, roots: Sequence[str], without_keys: int) -> None:
    """Serve HTTP under /v1 and MCP under /mcp until SIGTERM or Ctrl-C. Without keys (`unspool
    key create`) only this machine is served.
    """
    from unspool.access.scope import parse_roots
    from unspool.interfaces.http import server

    settings = load_settings({**flags, "roots": os.pathsep.join(roots) or None})
    for root in parse_roots(settings):
        if not root.is_dir():
            raise ConfigError(
                f"{root} is no folder, and nothing in it could be indexed; correct --root or "
                f"UNSPOOL_ROOTS"
            )
    server.serve(settings, without_keys=without_keys >= 2, say=partial(note, kind="serve"))


@group(
    "mcp",
    "Serve agents over MCP",
    examples=("unspool mcp", "unspool mcp --read-only --project notes"),
    takes=("mcp_max_tokens", *ADDRESSES),
)
@click.option(
    "--project",
    "-p",
    "projects",
    multiple=True,
    metavar="NAME",
    help="Let it see only this project; give it several times.",
)
@click.option("--read-only", is_flag=True, help="Leave out the tools that store something.")
@click.pass_context
def mcp(context: click.Context, flags: Flags, projects: tuple[str, ...], read_only: bool) -> None:
    """Answer the MCP client of an agent over stdin and stdout, until it closes them. The client
    starts this command itself.
    """
    if context.invoked_subcommand is None:
        from unspool.interfaces.mcp import stdio

        settings, warn = load_settings(flags), partial(note, kind="warning")
        stdio.serve(settings, projects=projects, read_only=read_only, warn=warn)


@group("key", "Manage the keys of a service", examples=(_CREATE, _LIST))
def key() -> None:
    """Create, list and revoke the keys of a service. Once there is a key, the service requires
    one.
    """


@command(
    "create",
    "Create a key and show it, once",
    examples=(_CREATE, "unspool key create --project '*' --role admin --days 90"),
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
    help="Permission of the key in its projects.",
)
@click.option("--name", metavar="TEXT", default="", help="Your name for the key.")
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS),
    metavar="N",
    help="Days until the key expires; by default it never does.",
)
def create_key(
    flags: Flags,
    as_json: bool,
    projects: tuple[str, ...],
    role: str,
    name: str,
    days: int | None,
) -> None:
    """Create a key. Its text is shown now and never again: only a hash is stored."""
    until = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with open_corpus(flags) as corpus:
        made, text = corpus.keys.create(projects=projects, role=role, name=name, expires_at=until)
    show_result(wire.encode(made) | {"key": text}, [[(text, "")]], as_json=as_json)
    note(f"this is shown once; `unspool key revoke {made.id}` revokes it")


@command("list", "List the keys", examples=(_LIST, "unspool key list --json"), within=key)
def list_keys(flags: Flags, as_json: bool) -> int:
    """List every key with its projects, role and state. The text of a key is not stored."""
    with open_corpus(flags) as corpus:
        found = corpus.keys.list()
    nothing = "" if found else "no keys yet; `unspool key create --project NAME` makes one"
    lines = terminal.render_keys(found, datetime.now(UTC))
    return show_result({"keys": found}, lines, as_json=as_json, nothing=nothing)


@command(
    "revoke",
    "Revoke a key",
    examples=("unspool key revoke 3f9c1a7b2e4d", "unspool key revoke 3f9c1a7b2e4d --json"),
    within=key,
)
@click.argument("id_", metavar="ID")
def revoke_key(flags: Flags, as_json: bool, id_: str) -> None:
    """Revoke the key with that ID: the next request with it is refused."""
    with open_corpus(flags) as corpus:
        revoked = corpus.keys.revoke(id_)
    show_result(revoked, (), as_json=as_json)
    note(f"key {revoked.id} is revoked")
