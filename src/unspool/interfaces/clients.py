"""The programs that start or call an MCP server: where each keeps its configuration, and how it
writes a server down.

| client | of the user | of a project | key |
|---|---|---|---|
| claude-code | `~/.claude.json` | `.mcp.json` | `mcpServers` |
| claude-desktop | `claude_desktop_config.json` in its own folder | - | `mcpServers` |
| cursor | `~/.cursor/mcp.json` | `.cursor/mcp.json` | `mcpServers` |
| vscode | `mcp.json` in the folder of its user | `.vscode/mcp.json` | `servers` |
| codex | `~/.codex/config.toml` | `.codex/config.toml` | `mcp_servers` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from unspool.errors import InputError
from unspool.interfaces.configurations import Entry, Table
from unspool.settings.definitions import PREFIX

# With these, systems and clients say where configurations are.
VARIABLES = ("APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME")

# what all five take; VS Code wants a letter first
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_DESKTOP = "claude_desktop_config.json"


class Client(StrEnum):
    """A program that can be told of the server."""

    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"

    @property
    def label(self) -> str:
        """What people call it."""
        return _LABELS[self]

    @property
    def table(self) -> Table:
        """Where in its file it looks for servers."""
        return _TABLES[self]

    @property
    def afterwards(self) -> str:
        """What has to be done before it sees a change."""
        return _AFTERWARDS[self]


class InstallScope(StrEnum):
    """Whether a server is there in one project or wherever the user works."""

    PROJECT = "project"
    USER = "user"


_LABELS = {
    Client.CLAUDE_CODE: "Claude Code",
    Client.CLAUDE_DESKTOP: "Claude Desktop",
    Client.CURSOR: "Cursor",
    Client.VSCODE: "VS Code",
    Client.CODEX: "Codex",
}
_TABLES = {
    Client.CLAUDE_CODE: Table(key="mcpServers", language="json"),
    Client.CLAUDE_DESKTOP: Table(key="mcpServers", language="json"),
    Client.CURSOR: Table(key="mcpServers", language="json"),
    Client.VSCODE: Table(key="servers", language="json"),
    Client.CODEX: Table(key="mcp_servers", language="toml"),
}
_AFTERWARDS = {
    Client.CLAUDE_CODE: (
        "start a new session; /mcp lists the server, and one of a project has to be approved "
        "there once"
    ),
    Client.CLAUDE_DESKTOP: "quit Claude Desktop, not only its window, and start it again",
    Client.CURSOR: "restart Cursor; the server stands under MCP in its settings",
    Client.VSCODE: "run 'MCP: List Servers' and start it; VS Code asks once whether it is trusted",
    Client.CODEX: (
        "start a new session; /mcp lists the server, and one of a project is there once the "
        "project is trusted"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a client is told: a command to start, or the address of a service that runs already."""

    command: tuple[str, ...] = ()
    url: str = ""
    # the variable with the key for that service; the key itself is never written
    key_variable: str = ""
    # what the command reads from the environment, for a client that passes on only what is named
    variables: tuple[str, ...] = ()


def check_name(name: str) -> None:
    """Refuse a name of a server that some client does not take."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"the name {name[:80]!r} cannot be used; give a letter, then up to 63 letters, "
            f"digits, '-' and '_'"
        )


def entry(client: Client, server: Server) -> Entry:
    """The server as the client writes it down."""
    if server.url:
        return _remote(client, server)
    program, *arguments = server.command
    written: dict[str, Any] = {"command": program, "args": arguments}
    if client in (Client.CLAUDE_CODE, Client.CURSOR, Client.VSCODE):
        return {"type": "stdio", **written}
    if client is Client.CODEX and server.variables:
        return {**written, "env_vars": list(server.variables)}
    return written


def _remote(client: Client, server: Server) -> Entry:
    if client is Client.CLAUDE_DESKTOP:
        raise InputError(
            f"{client.label} reaches no service through its configuration file, it only starts "
            f"commands; "
            "leave out --url, and give --database if the service's catalog is not the default one"
        )
    if client is Client.CODEX:
        return {
            "url": server.url,
            **({"bearer_token_env_var": server.key_variable} if server.key_variable else {}),
        }
    reference = (
        f"${{{server.key_variable}}}"
        if client is Client.CLAUDE_CODE
        else f"${{env:{server.key_variable}}}"
    )
    headers = {"headers": {"Authorization": f"Bearer {reference}"}} if server.key_variable else {}
    kind = {} if client is Client.CURSOR else {"type": "http"}
    return {**kind, "url": server.url, **headers}


def is_ours(client: Client, found: Entry, *, key_variable: str) -> bool:
    """Whether an entry is one that `entry` makes, and nothing in it but that: whatever else it
    says is somebody's own.
    """
    url, program, arguments, variables = (
        found.get(field) for field in ("url", "command", "args", "env_vars")
    )
    if isinstance(url, str) and url and client is not Client.CLAUDE_DESKTOP:
        return dict(found) == entry(client, Server(url=url, key_variable=key_variable))
    if (
        not isinstance(program, str)
        or not isinstance(arguments, list)
        or not _is_start(program, arguments)
    ):
        return False
    named = (
        tuple(variables)
        if isinstance(variables, list) and all(str(one).startswith(PREFIX) for one in variables)
        else ()
    )
    return dict(found) == entry(client, Server(command=(program, *arguments), variables=named))


def _is_start(program: str, arguments: Sequence[Any]) -> bool:
    """Whether a command is of the kind that is installed: unspool by its whole path, and of its
    flags those that `mcp install` takes.
    """
    path = PureWindowsPath(program) if "\\" in program else PurePosixPath(program)
    begin = ["mcp"] if path.stem == "unspool" else ["-P", "-m", "unspool", "mcp"]
    flags = list(arguments[len(begin) :])
    if flags[:1] == ["--database"]:
        flags = flags[2:]
    while flags[:1] == ["--project"]:
        flags = flags[2:]
    return (
        path.is_absolute() and arguments[: len(begin)] == begin and flags in ([], ["--read-only"])
    )


def location(
    client: Client,
    scope: InstallScope,
    *,
    system: str,
    home: Path,
    folder: Path,
    variables: Mapping[str, str],
) -> Path:
    """The file.

    `system` is `sys.platform`, `folder` the project's, and `variables` those of `VARIABLES` that
    are set.
    """
    if scope is InstallScope.PROJECT:
        return folder / _of_project(client)
    match client:
        case Client.CLAUDE_CODE:
            return Path(variables.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
        case Client.CURSOR:
            return home / ".cursor" / "mcp.json"
        case Client.CODEX:
            return Path(variables.get("CODEX_HOME") or home / ".codex") / "config.toml"
        case Client.VSCODE:
            return _applications(system, home, variables) / "Code" / "User" / "mcp.json"
        case Client.CLAUDE_DESKTOP:
            return _desktop(system, home, variables)


def _of_project(client: Client) -> str:
    match client:
        case Client.CLAUDE_CODE:
            return ".mcp.json"
        case Client.CURSOR:
            return ".cursor/mcp.json"
        case Client.VSCODE:
            return ".vscode/mcp.json"
        case Client.CODEX:
            return ".codex/config.toml"
        case Client.CLAUDE_DESKTOP:
            raise InputError(f"{client.label} knows no projects; give --scope user")


def _applications(system: str, home: Path, variables: Mapping[str, str]) -> Path:
    if system == "win32":
        return Path(variables.get("APPDATA") or home / "AppData" / "Roaming")
    if system == "darwin":
        return home / "Library" / "Application Support"
    return Path(variables.get("XDG_CONFIG_HOME") or home / ".config")


def _desktop(system: str, home: Path, variables: Mapping[str, str]) -> Path:
    if system == "win32":
        # Installed as a package, which is the usual way, it sees a folder of its own in the place
        # of AppData\Roaming\Claude.
        packages = Path(variables.get("LOCALAPPDATA") or home / "AppData" / "Local") / "Packages"
        for package in _newest(list(packages.glob("Claude_*/LocalCache/Roaming/Claude"))):
            return package / _DESKTOP
    return _applications(system, home, variables) / "Claude" / _DESKTOP


def _newest(folders: Sequence[Path]) -> list[Path]:
    """Folders with a configuration first."""
    return sorted(folders, key=lambda one: (not (one / _DESKTOP).exists(), one.name, str(one)))
