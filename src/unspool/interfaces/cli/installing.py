"""The command that tells a client of the MCP server: mcp install.

What is changed, and how, is decided in `interfaces/clients.py`.
"""

from __future__ import annotations

import difflib
import itertools
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from unspool.domain.documents import check_project, storable
from unspool.errors import ConfigError, ConflictError, InputError, ServiceError, UnspoolError
from unspool.interfaces import clients, configurations, terminal
from unspool.interfaces.cli.door import ADDRESSES, color, command, load_settings, note, print_json
from unspool.interfaces.cli.looking import show
from unspool.interfaces.cli.mcp import mcp
from unspool.interfaces.clients import Client, InstallScope, Server
from unspool.interfaces.configurations import Entry, UnclearError
from unspool.settings import read_locations
from unspool.settings.definitions import DEFINITIONS
from unspool.settings.masking import redact_address

if TYPE_CHECKING:
    from unspool.interfaces.terminal import Line

DECLINED = 1
_KEY = DEFINITIONS["key"].variable
# permissions of a file that is made here; clients put keys of others into theirs
_NEW = {InstallScope.USER: 0o600, InstallScope.PROJECT: None}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to become of a client's file."""

    client: Client
    scope: InstallScope
    name: str
    file: Path
    before: str | None  # None: there is no file
    after: str | None  # None: there shall be none
    backup: Path
    keep: bool = False  # what was there goes to the backup
    tidy: bool = False  # what the backup holds is in the file again

    @property
    def action(self) -> str:
        """In one word."""
        if self.before == self.after:
            return "none"
        return "create" if self.before is None else "delete" if self.after is None else "change"


@command(
    "install",
    "Tell a client of the server",
    examples=(
        "unspool mcp install --client claude-code --project notes",
        "unspool mcp install --client claude-code --undo",
    ),
    takes=("database",),
    within=mcp,
)
@click.option(
    "--client",
    "client_name",
    type=click.Choice([one.value for one in Client]),
    required=True,
    help="The program that is to use the server.",
)
@click.option(
    "--scope",
    "scope_name",
    type=click.Choice([one.value for one in InstallScope]),
    default=InstallScope.USER.value,
    show_default=True,
    help="For you, or in this folder alone.",
)
@click.option(
    "--name",
    default="unspool",
    show_default=True,
    metavar="NAME",
    help="What the client calls the server.",
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
    help=(
        "A service that runs already, such as http://127.0.0.1:8765/mcp, instead of a command to "
        "start."
    ),
)
@click.option(
    "--no-key",
    is_flag=True,
    help=f"The service at --url needs no key; otherwise the client shows it what {_KEY} holds.",
)
@click.option("--undo", is_flag=True, help="Take out what this command put in.")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@click.option("--yes", is_flag=True, help="Yes, without a question.")
def install(
    flags: dict[str, str | None],
    as_json: bool,
    client_name: str,
    scope_name: str,
    name: str,
    projects: tuple[str, ...],
    read_only: bool,
    url: str | None,
    no_key: bool,
    undo: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Put the server into a client's configuration, or take it out again with --undo. The change is
    shown first, and only made after a yes. All else in the file stays as it is, and what was there
    is kept beside it."""
    client, scope = Client(client_name), InstallScope(scope_name)
    if url and (projects or read_only or flags["database"]):
        raise click.UsageError(
            "--url is a service with settings of its own; leave out --project, --read-only and "
            "--database"
        )
    if no_key and not url:
        raise click.UsageError("--no-key is about the service at --url")
    clients.check_name(name)
    server = (
        _reached(url, no_key)
        if url
        else Server()
        if undo
        else _started(flags["database"], projects, read_only)
    )
    change = _planned(client, scope, name, server, undo=undo)
    if not as_json:
        show(_shown(change))
    wanted = change.action != "none" and not dry_run
    if wanted and not (yes or _is_meant(as_json)):
        note("nothing was changed")
        return DECLINED
    if wanted:
        _apply(change)
    _report(change, as_json=as_json, made=wanted, undo=undo)
    if wanted and not undo and not as_json:
        _advise(client, server)
    return 0


# What is to be written


def _started(database: str | None, projects: Sequence[str], read_only: bool) -> Server:
    """The command with which a client starts the server, from whatever folder it does."""
    arguments = ["mcp"]
    if database is not None:
        arguments += ["--database", _anywhere(database)]
    for project in projects:
        check_project(project)
        arguments += ["--project", project]
    if read_only:
        arguments.append("--read-only")
    settings = load_settings({"database": database})
    origins = settings.origins
    if projects:
        _warn_of_missing(projects, settings.database_address)
    for one in ADDRESSES:
        if origins[one] in (".env", "unspool.toml"):
            note(
                f"{one} comes from {origins[one]} in this folder, which a server that is started "
                f"in another folder does not read",
                kind="warning",
            )
    started = (*launcher(sys.argv[0]), *arguments)
    if not all(map(storable, started)):
        raise InputError(
            "the path of unspool is no UTF-8, and a configuration is; install unspool under "
            "another path"
        )
    read = sorted(
        DEFINITIONS[one].variable
        for one, origin in origins.items()
        if origin == "environment" and one != "key"
    )
    return Server(command=started, variables=tuple(read))


def _warn_of_missing(projects: Sequence[str], address: str) -> None:
    """Say which of the projects do not exist, if the catalog is a file that there is: nothing is
    made for this, and no server waited for.
    """
    from unspool.access import projects as naming
    from unspool.catalog import Catalog
    from unspool.catalog import projects as rows
    from unspool.catalog.database import describe_place

    if not address.startswith("sqlite:") or not Path(describe_place(address)).is_file():
        return
    with suppress(UnspoolError):  # what is wrong with it is told by the server
        catalog = Catalog.open(address, create=False)
        try:
            with catalog.read() as connection:
                said = naming.describe_missing(
                    projects, [row.name for row in rows.list_projects(connection)]
                )
        finally:
            catalog.close()
        if said:
            note(said, kind="warning")


def launcher(program: str) -> tuple[str, ...]:
    """How the program that runs now is started from anywhere: the script by its whole path, or
    the module by that of its Python.
    """
    found = shutil.which(program)
    if found and Path(found).stem == "unspool":
        # not resolved: a link stays when what it leads to is replaced by a newer version
        return (str(Path(found).absolute()),)
    # -P: a folder `unspool` where the client is started is not taken for ours
    return (sys.executable, "-P", "-m", "unspool")


def _anywhere(address: str) -> str:
    """An address that means the same in every folder, and that may be read by whoever reads the
    file.
    """
    from unspool.catalog.database import describe_place

    if redact_address(address) != address:
        raise InputError(
            f"the address {redact_address(address)} holds a password, which is not written into "
            f"a configuration; "
            f"leave out --database, and set {DEFINITIONS['database'].variable} where the client is "
            f"started"
        )
    place = describe_place(address)
    relative = (
        address.startswith("sqlite:")
        and not Path(unquote(address.partition(":///")[2])).is_absolute()
    )
    return (
        "sqlite:///" + Path(place).as_posix().replace("%", "%25").replace("?", "%3F")
        if relative
        else address
    )


def _reached(url: str, no_key: bool) -> Server:
    """The service at an address, with a key that the client takes from its environment."""
    if not _is_service(url):
        raise InputError(
            f"{redact_address(url)[:200]!r} is no address of a service; give the whole of it, "
            f"such as http://127.0.0.1:8765/mcp"
        )
    if urlsplit(url).username is not None or redact_address(url) != url:
        raise InputError(
            f"the address {redact_address(url)} holds a password or key, which is not written "
            f"into a configuration; leave it out and set {_KEY}"
        )
    return Server(url=url, key_variable="" if no_key else _KEY)


def _is_service(url: str) -> bool:
    try:
        parts = urlsplit(url)
        written = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and bool(parts.path.strip("/"))
        )
    except ValueError:  # a port that is no number, a bracket that is not closed
        return False
    return written and url.isprintable() and " " not in url


# The change


def _planned(
    client: Client, scope: InstallScope, name: str, server: Server, *, undo: bool
) -> Change:
    entry = clients.entry(client, server) if server != Server() else {}
    file = clients.location(
        client,
        scope,
        system=sys.platform,
        home=Path.home(),
        folder=Path.cwd(),
        variables=read_locations(clients.VARIABLES),
    ).absolute()
    real = Path(os.path.realpath(file))
    backup = real.with_name(f"{real.name}.before-{name}")
    text = _read(real)

    def ours(found: Entry) -> bool:
        return (bool(entry) and found == entry) or clients.is_ours(client, found, key_variable=_KEY)

    try:
        there = configurations.entry_in(text, client.table, name)
        if undo:
            return _removal(
                Change(
                    client=client,
                    scope=scope,
                    name=name,
                    file=real,
                    before=text,
                    after=text,
                    backup=backup,
                ),
                there,
                ours=ours,
            )
        after = configurations.with_entry(text, client.table, name, entry)
        # all of it was made here
        untouched = there is not None and text == configurations.with_entry(
            None, client.table, name, there
        )
        own = there is not None and ours(there) and (untouched or backup.exists())
        keep = (
            text is not None
            and after != text
            and (not own or configurations.drops_comments(text, after))
        )
        return Change(
            client=client,
            scope=scope,
            name=name,
            file=real,
            before=text,
            after=after,
            backup=backup,
            keep=keep,
        )
    except UnclearError as error:
        cure = f"take {name!r} out of its {client.table.key} by hand"
        if not undo:
            snippet = configurations.with_entry(None, client.table, name, entry)
            terminal.Screen(sys.stderr, color=color()).write(
                [[(line, terminal.GOOD)] for line in snippet.splitlines()]
            )
            cure = "put the lines above into it by hand"
        raise ConfigError(f"{file} is left as it is: {error}; {cure}") from error


def _removal(nothing: Change, there: Entry | None, *, ours: Callable[[Entry], bool]) -> Change:
    if there is None:
        return nothing
    if not ours(there):
        raise ConflictError(
            f"{nothing.name!r} in {nothing.file} was not put there by this command, or not in "
            f"this form; "
            "take it out by hand, or give the --url that it was installed with"
        )
    assert nothing.before is not None
    earlier = _read(nothing.backup)
    after = configurations.undone(
        nothing.before, earlier, nothing.client.table, nothing.name, ours=ours
    )
    keep = after != earlier and configurations.drops_comments(nothing.before, after)
    return replace(
        nothing,
        after=after,
        keep=keep,
        tidy=not keep and earlier is not None and (after is None or after == earlier),
    )


def _is_meant(as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise InputError(
            "nothing was changed: nobody can be asked here; give --yes if the change is meant, "
            "or --dry-run to only see it"
        )
    return click.confirm("Make this change?", err=True)


def _apply(change: Change) -> None:
    if _read(change.file) != change.before:
        raise ConflictError(
            f"{change.file} was changed by somebody else meanwhile, and is left as it is; give "
            f"the command again"
        )
    try:
        change.file.parent.mkdir(parents=True, exist_ok=True)
        mode = (
            stat.S_IMODE(change.file.stat().st_mode)
            if change.before is not None
            else _NEW[change.scope]
        )
        if change.keep and change.before is not None:
            _set_aside(change.backup, change.before)
            _write(change.backup, change.before, mode)
        if change.after is None:
            change.file.unlink()
        else:
            _write(change.file, change.after, mode)
        if change.tidy:
            change.backup.unlink()
    except OSError as error:
        raise ServiceError(
            f"{change.file} cannot be written ({error.strerror}); make it and its folder writable"
        ) from error


def _set_aside(backup: Path, text: str) -> None:
    """Make room for what is kept; what was kept before goes beside it, by a number of its own."""
    if backup.exists() and backup.read_bytes() != text.encode("utf-8"):
        places = (backup.with_name(f"{backup.name}-{number}") for number in itertools.count(2))
        backup.rename(next(place for place in places if not place.exists()))


def _read(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is left as it is: it is no UTF-8; save it as UTF-8 and give the command again"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read ({error.strerror}); make it a readable file"
        ) from error


def _write(file: Path, text: str, mode: int | None) -> None:
    """All of the text or none of it, with those permissions; None: with the usual ones."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    handle = os.open(
        draft,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0),
        0o666 if mode is None else 0o600,
    )
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            draft.chmod(mode)
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


# What is said of it


def difference(change: Change) -> list[str]:
    """The change as a unified diff; what looks like a secret in it is starred out."""
    from unspool.sources.secrets.masking import mask_secrets

    # Configurations are as full of keys as .env files are, and are judged like them.
    before, after = (
        mask_secrets(text or "", ".env")[0].splitlines() for text in (change.before, change.after)
    )
    old, new = (
        str(change.file) if text is not None else "(no file)"
        for text in (change.before, change.after)
    )
    return list(difflib.unified_diff(before, after, old, new, lineterm=""))


def _shown(change: Change) -> Iterator[Line]:
    styles = {"+++": "bold", "---": "bold", "@@ ": terminal.NAME}
    for line in difference(change):
        yield [
            (
                line,
                styles.get(line[:3]) or {"+": terminal.GOOD, "-": terminal.BAD}.get(line[:1], ""),
            )
        ]


def _report(change: Change, *, as_json: bool, made: bool, undo: bool) -> None:
    if as_json:
        print_json(
            {
                "client": change.client.value,
                "scope": change.scope.value,
                "name": change.name,
                "file": str(change.file),
                "action": change.action,
                "made": made,
                "backup": str(change.backup) if change.keep or change.backup.exists() else None,
                "difference": "\n".join(difference(change)),
            }
        )
        return
    if change.action == "none":
        show(
            [
                [
                    ("nothing of unspool is there: " if undo else "as it should be: ", ""),
                    (str(change.file), terminal.PATH),
                ]
            ]
        )
    elif not made:
        note("nothing was changed")
    else:
        show(
            [
                [
                    ("removed: " if change.after is None else "written: ", ""),
                    (str(change.file), terminal.PATH),
                ]
            ]
        )
    if change.keep and made:
        show([[("what was there: ", ""), (str(change.backup), terminal.PATH)]])


def _advise(client: Client, server: Server) -> None:
    """What the client's user has to do or know."""
    if server.key_variable:
        note(
            f"{client.label} takes the key from {server.key_variable}; set it where "
            f"{client.label} is started"
        )
        if server.url.startswith("http:") and urlsplit(server.url).hostname not in _LOOPBACK:
            note("the key travels unencrypted to that address; use https", kind="warning")
    elif server.variables:
        note(
            f"the server sees {', '.join(server.variables)} only if {client.label} is started "
            f"with the same values"
        )
    note(client.afterwards)
