"""Programs that use MCP servers: their configuration files, the entries in them, their commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from unspool.errors import ConfigError, InputError, ServiceError
from unspool.settings.definitions import DEFINITIONS

Entry = Mapping[str, Any]

# Environment variables that move a configuration folder.
VARIABLES = ("APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME")
KEY_VARIABLE = DEFINITIONS["key"].variable

# Not measured, only generous: these programs start a runtime of their own first.
_PROGRAM_TIMEOUT_S = 120
# The intersection of all clients' rules. VS Code wants a letter first.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# Arguments of a command that this program installs, joined by NUL.
_ARGUMENTS = re.compile(
    r"(?:-P\0-m\0unspool\0)?mcp(?:\0--database\0[^\0]+)?(?:\0--project\0[^\0]+)*(?:\0--read-only)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Program that uses MCP servers, and the form in which it describes a server.

    `file` is a path below one of the folders of `locate_file`. `program` is the command with which
    the client configures itself. `reference` is the client's syntax for an environment variable in
    a header. An empty text stands for a missing feature.
    """

    name: str
    label: str
    file: str
    advice: str
    program: str = ""
    key: str = "mcpServers"
    command_type: str = ""
    url_type: str = ""
    url_field: str = "url"
    reference: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """MCP server for a client: a command to start, or the address of a running service.

    `has_key` makes the client send the key in `UNSPOOL_KEY`. The key itself is never written.
    `advice` lists what the user has to do before the client can use the server.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    has_key: bool = False
    advice: tuple[str, ...] = ()


_CLIENTS = (
    Client(
        name="claude-code",
        label="Claude Code",
        file="{claude}/.claude.json",
        program="claude",
        command_type="stdio",
        url_type="http",
        reference="${%s}",
        advice="start a new session; /mcp lists the server",
    ),
    Client(
        name="claude-desktop",
        label="Claude Desktop",
        file="{desktop}/claude_desktop_config.json",
        url_field="",
        advice="quit Claude Desktop completely and start it again",
    ),
    Client(
        name="codex",
        label="Codex",
        file="{codex}/config.toml",
        program="codex",
        key="mcp_servers",
        reference="%s",
        advice="start a new session; /mcp lists the server",
    ),
    Client(
        name="cursor",
        label="Cursor",
        file="{home}/.cursor/mcp.json",
        command_type="stdio",
        reference="${env:%s}",
        advice="restart Cursor; its settings list the server under MCP",
    ),
    Client(
        name="gemini",
        label="Gemini CLI",
        file="{home}/.gemini/settings.json",
        url_field="httpUrl",
        reference="${%s}",
        advice="start a new session; /mcp lists the server",
    ),
    Client(
        name="vscode",
        label="VS Code",
        file="{applications}/Code/User/mcp.json",
        program="code",
        key="servers",
        command_type="stdio",
        url_type="http",
        reference="${env:%s}",
        advice="run 'MCP: List Servers' and start it; VS Code asks once whether to trust it",
    ),
    Client(
        name="windsurf",
        label="Windsurf",
        file="{home}/.codeium/windsurf/mcp_config.json",
        url_field="serverUrl",
        reference="${env:%s}",
        advice="refresh the list of MCP servers in Cascade",
    ),
    Client(
        name="zed",
        label="Zed",
        file="{zed}/settings.json",
        key="context_servers",
        advice="open the settings of the Agent Panel; a green dot marks a running server",
    ),
)
CLIENTS = {client.name: client for client in _CLIENTS}


def check_name(name: str) -> None:
    """Reject a server name that some client does not accept."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"the name {name[:80]!r} is invalid; give a letter, then up to 63 letters, digits, "
            f"'-' and '_'"
        )


def locate_file(client: Client, *, system: str, home: Path, variables: Mapping[str, str]) -> Path:
    """Return the configuration file of a client.

    `system` is `sys.platform`. `variables` are those of `VARIABLES` that are set.
    """
    applications = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    if system == "darwin":
        applications = home / "Library" / "Application Support"
    desktop: list[Path] = []
    if system == "win32":
        applications = Path(variables.get("APPDATA") or home / "AppData" / "Roaming")
        # The usual installer is a package, which redirects AppData\Roaming\Claude.
        local = Path(variables.get("LOCALAPPDATA") or home / "AppData" / "Local")
        desktop = sorted(local.glob("Packages/Claude_*/LocalCache/Roaming/Claude"))
    folders = {
        "home": home,
        "applications": applications,
        "desktop": desktop[0] if desktop else applications / "Claude",
        "claude": variables.get("CLAUDE_CONFIG_DIR") or home,
        "codex": variables.get("CODEX_HOME") or home / ".codex",
        "zed": home / ".config/zed" if system == "darwin" else applications / "zed",
    }
    return Path(client.file.format(**folders))


def build_entry(client: Client, server: McpServer) -> dict[str, Any]:
    """Return the entry of a server in the client's configuration."""
    if not server.url:
        program, *arguments = server.command
        kind = {"type": client.command_type} if client.command_type else {}
        return {**kind, "command": program, "args": arguments}
    if not client.url_field or (server.has_key and not client.reference):
        feature = "read a key from the environment" if client.url_field else "call a service"
        raise InputError(
            f"{client.label} cannot {feature} through its configuration, and a key is never "
            f"written there; leave out --url, or configure {client.label} by hand"
        )
    kind = {"type": client.url_type} if client.url_type else {}
    if not server.has_key:
        return {**kind, client.url_field: server.url}
    key = (
        {"bearer_token_env_var": KEY_VARIABLE}
        if client.program == "codex"
        else {"headers": {"Authorization": f"Bearer {client.reference % KEY_VARIABLE}"}}
    )
    return {**kind, client.url_field: server.url, **key}


def is_written_here(client: Client, found: Entry, wanted: Entry) -> bool:
    """Return whether an entry is `wanted`, or has a form that only `build_entry` writes."""
    entry = normalize_entry(found)
    url, program, arguments = (entry.get(key) for key in (client.url_field, "command", "args"))
    if isinstance(url, str) and client.reference:
        return entry in (wanted, build_entry(client, McpServer(url=url, has_key=True)))
    if not isinstance(program, str) or not isinstance(arguments, list):
        return entry == wanted
    path = PureWindowsPath(program) if "\\" in program else PurePosixPath(program)
    return entry == wanted or (
        path.is_absolute()
        and (path.stem == "unspool") is (arguments[:1] == ["mcp"])
        and _ARGUMENTS.fullmatch("\0".join(map(str, arguments))) is not None
        and entry == build_entry(client, McpServer(command=(program, *arguments)))
    )


def normalize_entry(entry: Entry) -> dict[str, Any]:
    """Return an entry without what clients and users add to it: an empty `env`, and `env_vars`."""
    return {
        key: value
        for key, value in entry.items()
        if key != "env_vars" and not (key == "env" and value == {})
    }


def build_commands(client: Client, name: str, server: McpServer, action: str) -> list[list[str]]:
    """Return the arguments with which the client's program makes a change.

    The list is empty if the program cannot make it. `claude mcp add` refuses to replace an entry,
    and VS Code has no command that removes one.
    """
    scope = ["--scope", "user"] if client.program == "claude" else []
    remove = ["mcp", "remove", *scope, name]
    if client.program == "code":
        add = ["--add-mcp", json.dumps({"name": name, **build_entry(client, server)})]
        remove = []
    elif not server.url:
        add = ["mcp", "add", *scope, name, "--", *server.command]
    elif client.program == "codex":
        key = ["--bearer-token-env-var", KEY_VARIABLE] if server.has_key else []
        add = ["mcp", "add", name, "--url", server.url, *key]
    else:
        headers = build_entry(client, server).get("headers", {}).items()
        options = [part for key, value in headers for part in ("--header", f"{key}: {value}")]
        add = ["mcp", "add", *scope, "--transport", "http", name, server.url, *options]
    changes = {"add": [add], "replace": [remove, add], "remove": [remove], "none": []}
    return [arguments for arguments in changes[action] if arguments]


def format_snippet(client: Client, name: str, server: McpServer) -> str:
    """Return the lines that configure a server, to be pasted into the client's file."""
    entry = build_entry(client, server)
    if not client.file.endswith(".toml"):
        return json.dumps({client.key: {name: entry}}, indent=2, ensure_ascii=False)
    # JSON strings and lists of strings are valid TOML.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{client.key}.{name}]", *lines])


def read_text(file: Path) -> str | None:
    """Return the text of a configuration, or None if there is no file."""
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{file} cannot be read ({reason}); make it a readable file") from error


def parse_content(file: Path, text: str | None, key: str, name: str) -> dict[str, Any]:
    """Parse a configuration. Reject one that could not be written back with the same meaning."""
    try:
        if file.suffix == ".toml":
            content = tomllib.loads(text or "")
        else:
            content = json.loads((text or "").strip() or "{}", object_pairs_hook=_reject_duplicates)
            json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
        if not isinstance(content.get(key, {}).get(name, {}), dict):
            raise TypeError
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        line = f", see line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(
            f"{file} is left as it is: it is not plain {file.suffix[1:].upper()} with an object "
            f"{key!r}{line}; it may have comments or a mistake; edit it by hand"
        ) from None
    return dict(content)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("duplicate key")
    return unique


def format_content(content: dict[str, Any], before: str | None) -> str:
    """Return a configuration as JSON, with the indentation that the file has."""
    indentation = re.search(r'\n([ \t]+)"', before or "")
    unit = indentation[1] if indentation else "  "
    return json.dumps(content, indent=unit, ensure_ascii=False) + "\n"


def write_file(file: Path, text: str, mode: int) -> None:
    """Replace a file atomically."""
    import tempfile  # not at the top: every other command would wait for it

    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
        draft = Path(folder) / file.name
        with draft.open("wb") as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        draft.chmod(mode)
        draft.replace(file)


def find_program(client: Client) -> str | None:
    """Return the client's program on PATH.

    A program in the current folder is not trusted. A batch file is left out, because cmd.exe would
    interpret its arguments.
    """
    found = shutil.which(client.program) if client.program else None
    is_safe = found and Path(found).is_absolute() and not found.lower().endswith((".cmd", ".bat"))
    return found if is_safe else None


def run_program(arguments: Sequence[str]) -> None:
    """Run the program of a client."""
    import subprocess  # not at the top: every other command would wait for it

    try:
        subprocess.run(
            arguments,
            # Programs read settings of their working folder, and the current one is not trusted.
            cwd=Path.home(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROGRAM_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = str(getattr(error, "stderr", None) or "").strip()[-500:]
        raise ServiceError(
            f"{shlex.join(arguments)} failed ({type(error).__name__}): {output or error}; run it "
            f"by hand, or give --print for the lines to paste"
        ) from error
