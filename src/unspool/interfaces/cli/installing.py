"""The command that configures MCP clients: mcp install."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from unspool.domain.documents import check_project, storable
from unspool.errors import ConfigError, ConflictError, InputError, ServiceError, UnspoolError
from unspool.interfaces import clients, terminal
from unspool.interfaces.cli.commands import (
    ADDRESSES,
    command,
    load_settings,
    note,
    print_json,
    report_error,
    show,
)
from unspool.interfaces.cli.serving import mcp
from unspool.interfaces.clients import CLIENTS, KEY_VARIABLE, Client, McpServer
from unspool.settings import read_locations
from unspool.settings.definitions import DEFINITIONS
from unspool.settings.masking import redact_address

DECLINED = 1
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Planned change of a configuration, by the client's program or by a new text of its file."""

    client: Client
    name: str
    file: Path
    action: str  # add, replace, remove or none
    commands: Sequence[Sequence[str]] = ()
    before: str | None = None
    after: str | None = None


@command(
    "install",
    "Configure MCP clients",
    examples=(
        "unspool mcp install",
        "unspool mcp install --client claude-code --project notes",
    ),
    takes=("database",),
    within=mcp,
)
@click.option(
    "--client",
    "client_name",
    type=click.Choice(list(CLIENTS)),
    help="The program to configure; by default every one that is found on this machine.",
)
@click.option(
    "--name", default="unspool", show_default=True, metavar="NAME", help="Name of the server."
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
@click.option(
    "--url",
    metavar="ADDRESS",
    help="A running service, such as http://127.0.0.1:8765/mcp, instead of a command to start.",
)
@click.option(
    "--no-key",
    is_flag=True,
    help=f"The service at --url needs no key; otherwise the client sends that in {KEY_VARIABLE}.",
)
@click.option("--undo", is_flag=True, help="Remove the server again.")
@click.option("--print", "only_print", is_flag=True, help="Print the lines to paste, and the file.")
@click.option("--yes", is_flag=True, help="Make the change without asking.")
def install(
    flags: dict[str, str | None],
    as_json: bool,
    client_name: str | None,
    name: str,
    projects: tuple[str, ...],
    read_only: bool,
    url: str | None,
    no_key: bool,
    undo: bool,
    only_print: bool,
    yes: bool,
) -> int:
    """Add the server to the configuration of MCP clients, or remove it with --undo.

    Every change is shown first. A client's own program makes it where there is one. Otherwise the
    client's JSON file is edited, and a backup is written beside it.
    """
    clients.check_name(name)
    server = _describe_server(flags["database"], projects, read_only, url, no_key)
    found = [CLIENTS[client_name]] if client_name else _detect_clients()
    codes = [0]
    for client in found:
        try:
            if only_print:
                _print_snippet(client, name, server, as_json=as_json)
            else:
                change = _plan_change(client, name, server, undo=undo)
                codes.append(_confirm_change(change, server, as_json=as_json, yes=yes))
        except UnspoolError as error:
            if isinstance(error, ConfigError) and not undo:
                click.echo(clients.format_snippet(client, name, server), err=True)
            if len(found) == 1:
                raise
            report_error(error.code, str(error), as_json=as_json)
            codes.append(error.exit_code)
    return max(codes)


def _detect_clients() -> list[Client]:
    """Return the clients that are installed: their program, or their configuration, exists."""
    found = [
        client
        for client in CLIENTS.values()
        if clients.find_program(client)
        # Without a program, the folder is the only trace of a client that has no servers yet.
        or (_locate_file(client) if client.program else _locate_file(client).parent).exists()
    ]
    if not found:
        raise InputError("no MCP client was found on this machine; name one with --client")
    return found


def _locate_file(client: Client) -> Path:
    """Return the configuration file of a client, behind any link."""
    file = clients.locate_file(
        client,
        system=sys.platform,
        home=Path.home(),
        variables=read_locations(clients.VARIABLES),
    )
    return Path(os.path.realpath(file))


# The server


def _describe_server(
    database: str | None, projects: Sequence[str], read_only: bool, url: str | None, no_key: bool
) -> McpServer:
    if url and (projects or read_only or database):
        raise click.UsageError(
            "--url is a service with its own settings; leave out --project, --read-only and "
            "--database"
        )
    if no_key and not url:
        raise click.UsageError("--no-key only works with --url")
    if url:
        return _describe_service(url, no_key)
    return _describe_command(database, projects, read_only)


def _describe_command(database: str | None, projects: Sequence[str], read_only: bool) -> McpServer:
    """Return the command that starts the server from any folder."""
    arguments = [*resolve_launcher(sys.argv[0]), "mcp"]
    if database is not None:
        arguments += ["--database", _resolve_address(database)]
    for project in projects:
        check_project(project)
        arguments += ["--project", project]
    if read_only:
        arguments.append("--read-only")
    if not all(map(storable, arguments)):
        raise InputError("the path of unspool is not valid UTF-8; install it under another path")
    origins = load_settings({"database": database}).origins
    advice = [
        f"{one} comes from {origins[one]} in this folder, which a server that is started in "
        f"another folder does not read; give --database, or set {DEFINITIONS[one].variable}"
        for one in ADDRESSES
        if origins[one] in (".env", "unspool.toml")
    ]
    variables = [
        DEFINITIONS[one].variable
        for one, origin in origins.items()
        if origin == "environment" and one != "key"
    ]
    if variables:
        advice.append(
            f"start the client with the same values of {', '.join(sorted(variables))}; Codex "
            f"passes on only variables that its entry lists in env_vars"
        )
    return McpServer(command=tuple(arguments), advice=tuple(advice))


def resolve_launcher(program: str) -> tuple[str, ...]:
    """Return the command that starts this program from any folder."""
    found = shutil.which(program)
    if found and Path(found).stem == "unspool":
        # Links are not resolved: a link survives an update of its target.
        return (str(Path(found).absolute()),)
    # -P: a folder `unspool` in the client's working folder is not imported
    return (sys.executable, "-P", "-m", "unspool")


def _resolve_address(address: str) -> str:
    """Return an address that is valid in every folder. Reject one with a password."""
    from unspool.catalog.database import describe_place

    if redact_address(address) != address:
        raise InputError(
            f"the address {redact_address(address)} contains a password, which is not written into "
            f"a configuration; leave out --database, and set {DEFINITIONS['database'].variable} "
            f"where the client is started"
        )
    place = Path(describe_place(address))  # rejects an unknown scheme
    path = unquote(address.partition(":///")[2])
    if not address.startswith("sqlite:") or Path(path).is_absolute():
        return address
    return "sqlite:///" + place.as_posix().replace("%", "%25").replace("?", "%3F")


def _describe_service(url: str, no_key: bool) -> McpServer:
    """Return the service at an address. The client reads the key from its environment."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port, an open bracket
        is_valid = False
    if not is_valid or not parts.path.strip("/") or not url.isprintable() or " " in url:
        raise InputError(
            f"{redact_address(url)[:200]!r} is no address of a service; give all of it, such as "
            f"http://127.0.0.1:8765/mcp"
        )
    if parts.username is not None or redact_address(url) != url:
        raise InputError(
            f"the address {redact_address(url)} contains a password or key, which is not written "
            f"into a configuration; leave it out and set {KEY_VARIABLE}"
        )
    advice = [f"the client reads the key from {KEY_VARIABLE}; set it where the client is started"]
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        advice.append("the key travels unencrypted to that address; use https")
    return McpServer(url=url, has_key=not no_key, advice=() if no_key else tuple(advice))


# The change


def _plan_change(client: Client, name: str, server: McpServer, *, undo: bool) -> Change:
    file = _locate_file(client)
    wanted = clients.build_entry(client, server)
    before = clients.read_text(file)
    content = clients.parse_content(file, before, client.key, name)
    servers = content.setdefault(client.key, {})
    found = servers.pop(name, None)
    action = "none" if undo else "add"
    if found is not None:
        if not clients.is_written_here(client, found, wanted):
            raise ConflictError(
                f"{name!r} in {file} was not written by this command, or was edited since; it is "
                f"left as it is; change it by hand, or give another --name"
            )
        is_current = clients.normalize_entry(found) == wanted
        action = "remove" if undo else "none" if is_current else "replace"
    if not undo:
        servers[name] = wanted
    program = clients.find_program(client)
    arguments = clients.build_commands(client, name, server, action) if program else []
    commands = [[str(program), *one] for one in arguments]
    change = Change(client=client, name=name, file=file, action=action, commands=commands)
    if action == "none" or commands:
        return change
    if file.suffix == ".toml" or (
        before is None and client.program and not shutil.which(client.program)
    ):
        raise ConfigError(
            f"{file} is not changed: no executable `{client.program}` is on PATH to do it; install "
            f"{client.label} with its command, or edit the file by hand"
        )
    return replace(change, before=before, after=clients.format_content(content, before))


def _confirm_change(change: Change, server: McpServer, *, as_json: bool, yes: bool) -> int:
    """Show a change, ask for confirmation, make the change and report it."""
    difference = _compute_difference(change)
    is_wanted = change.action != "none"
    if not as_json:
        _show_change(change, difference)
    if is_wanted and not yes:
        if as_json or not sys.stdin.isatty():
            raise InputError(
                "nothing was changed: there is no terminal to confirm it; give --yes to make the "
                "change"
            )
        if not click.confirm("Make this change?", err=True):
            note("nothing was changed")
            return DECLINED
    backup = _apply_change(change) if is_wanted else None
    if as_json:
        print_json(
            {
                "client": change.client.name,
                "name": change.name,
                "file": str(change.file),
                "action": change.action,
                "commands": change.commands,
                "backup": str(backup) if backup else None,
                "difference": "\n".join(difference),
            }
        )
    elif backup:
        show([[("backup: ", ""), (str(backup), terminal.PATH)]])
    if change.action in ("add", "replace"):
        for one in (*server.advice, change.client.advice):
            note(one)
    return 0


def _apply_change(change: Change) -> Path | None:
    """Make a change. Return the backup of a file that was edited."""
    for one in change.commands:
        clients.run_program(one)
    file, before = change.file, change.before
    if change.after is None:
        return None
    if clients.read_text(file) != before:
        raise ConflictError(
            f"{file} was changed meanwhile and is left as it is; give the command again"
        )
    backup = None if before is None else file.with_name(f"{file.name}.unspool.bak")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Only the owner may read a new file: clients store keys of other services there.
        mode = stat.S_IMODE(file.stat().st_mode) if backup else 0o600
        if backup:
            clients.write_file(backup, before or "", mode)
        clients.write_file(file, change.after, mode)
    except OSError as error:
        raise ServiceError(
            f"{file} cannot be written ({error.strerror}); make it and its folder writable"
        ) from error
    return backup


# Output


def _print_snippet(client: Client, name: str, server: McpServer, *, as_json: bool) -> None:
    file, snippet = _locate_file(client), clients.format_snippet(client, name, server)
    if as_json:
        print_json({"client": client.name, "file": str(file), "snippet": snippet})
    else:
        note(f"{client.label}: put these lines into {file}")
        click.echo(snippet)


def _compute_difference(change: Change) -> list[str]:
    """Return the change of a file as a unified diff, without secrets."""
    from unspool.sources.secrets.masking import mask_secrets

    # Configurations contain keys in the same way as .env files.
    before, after = (
        mask_secrets(text or "", ".env")[0].splitlines() for text in (change.before, change.after)
    )
    old = "(no file)" if change.before is None else str(change.file)
    return list(difflib.unified_diff(before, after, old, str(change.file), lineterm=""))


def _show_change(change: Change, difference: Sequence[str]) -> None:
    styles = {"+": terminal.GOOD, "-": terminal.BAD, "@": terminal.NAME}
    action = {"none": "nothing to change"}.get(change.action, f"{change.action} {change.name!r}")
    show([[(f"{change.client.label}: {action} in ", ""), (str(change.file), terminal.PATH)]])
    lines = [[(line, styles.get(line[:1], ""))] for line in difference]
    show([*lines, *([(shlex.join(one), terminal.GOOD)] for one in change.commands)])
