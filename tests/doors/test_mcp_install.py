"""`unspool mcp install` from the command line: real files in a temporary home, and fake programs
on PATH that record their arguments.
"""

from __future__ import annotations

import errno
import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result
from test_cli_json import compare

from unspool.interfaces.cli.installing import resolve_launcher
from unspool.interfaces.cli.serving import mcp
from unspool.interfaces.clients import CLIENTS, VARIABLES, McpServer, format_snippet, locate_file

Cli = Callable[..., Result]

PAGE = Path(__file__).parents[2] / "docs" / "mcp-clients.md"
SERVICE = "http://127.0.0.1:8765/mcp"
STARTED = [sys.executable, "-P", "-m", "unspool", "mcp"]
FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
}
CODEX_TABLE = (
    f"[mcp_servers.unspool]\ncommand = {json.dumps(STARTED[0])}\n"
    f'args = {json.dumps(STARTED[1:])}\nenv_vars = ["UNSPOOL_DATABASE"]\n'
)
OTHERS = {"theme": "dark", "mcpServers": {"docs": {"env": {"API_KEY": "hunter2hunter2"}}}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home on Linux, beside the current folder, and a PATH without clients."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "user").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path / "user"


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Callable[[], list[list[str]]]]:
    """Put a fake program on PATH; the result reads the arguments of its calls."""

    def make(name: str, *, status: int = 0, folder: str = "bin") -> Callable[[], list[list[str]]]:
        script, log = tmp_path / folder / name, tmp_path / f"{name}.log"
        script.write_text(
            f"#!{sys.executable}\nimport json, os, sys\n"
            f"print(json.dumps([os.getcwd(), *sys.argv[1:]]), file=open({str(log)!r}, 'a'))\n"
            f"print('no such thing', file=sys.stderr)\nsys.exit({status})\n"
        )
        script.chmod(0o755)
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    return make


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make stdin a terminal."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)


def run(cli: Cli, client: str, *arguments: str, code: int = 0) -> Result:
    result = cli("mcp", "install", "--client", client, "--yes", *arguments)
    assert result.exit_code == code, result.output
    return result


def put(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent="\t"))
    return file


def list_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("client", [name for name in CLIENTS if not CLIENTS[name].program])
def test_a_file_is_edited_backed_up_and_restored(cli: Cli, home: Path, client: str) -> None:
    key = CLIENTS[client].key
    others = {"theme": "dark", key: {"docs": {"env": {"API_KEY": "hunter2hunter2"}}}}
    file = put(home / FILES[client], others)
    file.chmod(0o640)
    before = file.read_bytes()
    shown = run(cli, client, "--project", "notes", "--read-only")
    assert "hunter2" not in shown.output and '+\t\t"unspool": {' in shown.stdout
    content = json.loads(file.read_text())
    entry = content[key].pop("unspool")
    assert content == others
    arguments = [*STARTED[1:], "--project", "notes", "--read-only"]
    kind = {"type": "stdio"} if client == "cursor" else {}
    assert entry == {**kind, "command": STARTED[0], "args": arguments}
    backup = file.with_name(f"{file.name}.unspool.bak")
    assert backup.read_bytes() == before and str(backup) in shown.stdout.replace("\n", "")
    assert {stat.S_IMODE(one.stat().st_mode) for one in (file, backup)} == {0o640}
    written = list_files(home)
    assert "nothing to change" in run(cli, client, "--project", "notes", "--read-only").stdout
    assert list_files(home) == written
    assert "replace 'unspool'" in run(cli, client).stdout
    run(cli, client, "--undo")
    assert json.loads(file.read_text()) == others and "\n\t" in file.read_text()
    assert "nothing to change" in run(cli, client, "--undo").stdout


def test_a_new_file_can_be_read_by_its_owner_only(cli: Cli, home: Path) -> None:
    run(cli, "cursor")
    assert list(list_files(home)) == [".cursor/mcp.json"]
    assert stat.S_IMODE((home / ".cursor/mcp.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("client", "name", "added", "removed", "entry"),
    [
        (
            "claude-code",
            "claude",
            ["mcp", "add", "--scope", "user", "unspool", "--", *STARTED],
            ["mcp", "remove", "--scope", "user", "unspool"],
            {
                "mcpServers": {
                    "unspool": {
                        "type": "stdio",
                        "command": STARTED[0],
                        "args": STARTED[1:],
                        "env": {},
                    }
                }
            },
        ),
        (
            "codex",
            "codex",
            ["mcp", "add", "unspool", "--", *STARTED],
            ["mcp", "remove", "unspool"],
            CODEX_TABLE,
        ),
    ],
)
def test_a_client_with_a_command_is_configured_by_it(
    cli: Cli, home: Path, program: Any, client: str, name: str, added: Any, removed: Any, entry: Any
) -> None:
    calls = program(name)
    assert "UNSPOOL_DATABASE" in run(cli, client).stderr
    # A program reads settings of its working folder, and the current one is not trusted.
    assert calls() == [[str(home), *added]]
    put(home / FILES[client], entry)
    assert "nothing to change" in run(cli, client).stdout
    run(cli, client, "--read-only")
    assert calls()[1:] == [[str(home), *removed], [str(home), *added, "--read-only"]]
    run(cli, client, "--undo")
    assert calls()[3:] == [[str(home), *removed]]


def test_vs_code_adds_by_its_command_and_removes_in_its_file(
    cli: Cli, home: Path, program: Any
) -> None:
    calls = program("code")
    run(cli, "vscode")
    [[_, flag, text]] = calls()
    entry = {"type": "stdio", "command": STARTED[0], "args": STARTED[1:]}
    assert flag == "--add-mcp" and json.loads(text) == {"name": "unspool", **entry}
    file = put(home / FILES["vscode"], {"servers": {"unspool": entry}})
    run(cli, "vscode", "--undo")
    assert json.loads(file.read_text()) == {"servers": {}} and len(calls()) == 1


def test_without_the_command_an_existing_file_is_edited(cli: Cli, home: Path) -> None:
    for client in ("claude-code", "vscode", "codex"):
        missing = run(cli, client, code=2)
        assert "is on PATH" in missing.stderr and "unspool" in missing.stderr
        assert list_files(home) == {}
    file = put(home / ".claude.json", OTHERS)
    run(cli, "claude-code")
    assert json.loads(file.read_text())["mcpServers"]["unspool"]["type"] == "stdio"
    put(home / ".codex/config.toml", 'model = "gpt"\n')
    assert "[mcp_servers.unspool]" in run(cli, "codex", code=2).stderr
    assert (home / ".codex/config.toml").read_text() == 'model = "gpt"\n'


def test_a_program_in_the_current_folder_is_not_run(
    cli: Cli, home: Path, program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("codex", folder="home")
    assert Path.cwd() == tmp_path / "home"
    monkeypatch.setenv("PATH", ".")
    run(cli, "codex", code=2)
    assert not (tmp_path / "codex.log").exists()


def test_a_command_that_fails_is_reported(cli: Cli, program: Any) -> None:
    program("codex", status=3)
    failed = run(cli, "codex", code=3)
    assert "no such thing" in failed.stderr and "by hand" in failed.stderr


def test_every_client_that_is_found_is_configured(cli: Cli, home: Path, program: Any) -> None:
    nothing = cli("mcp", "install", "--yes")
    assert nothing.exit_code == 2 and "no MCP client was found" in nothing.stderr
    calls = program("claude")
    (home / ".cursor").mkdir()
    put(home / FILES["zed"], '{\n  // mine\n  "theme": "One"\n}')
    result = cli("mcp", "install", "--yes", "--json")
    assert result.exit_code == 2 and '"context_servers"' in result.stderr
    configured = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one.get("client") for one in configured] == ["claude-code", "cursor", None]
    assert configured[2]["error"]["code"] == "config"
    assert len(calls()) == 1 and (home / ".cursor/mcp.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        '{\n  // mine\n  "mcpServers": {}\n}',
        '{"mcpServers": {},}',
        '{"mcpServers": []}',
        '{"mcpServers": {"unspool": "x"}}',
        '{"mcpServers": {}, "mcpServers": {}}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        "[]",
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_file_that_is_not_plain_json_is_never_rewritten(cli: Cli, home: Path, text: str) -> None:
    file = home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = list_files(home)
    result = run(cli, "cursor", code=2)
    assert '"unspool": {' in result.stderr and str(file) in result.stderr
    assert '"unspool": {' not in run(cli, "cursor", "--undo", code=2).stderr
    assert list_files(home) == before


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "unspool", "args": ["mcp"]},
        {"type": "stdio", "command": "/bin/unspool", "args": ["mcp"], "env": {"A": "1"}},
        {"type": "stdio", "command": "/bin/unspool", "args": ["mcp", "--mcp-max-tokens", "9"]},
        {"type": "stdio", "command": "/bin/other", "args": ["mcp"]},
        {"url": SERVICE},
        {"url": SERVICE, "headers": {"Authorization": "Bearer secret"}},
        {},
    ],
)
def test_an_entry_that_was_edited_by_hand_is_left_alone(
    cli: Cli, home: Path, entry: dict[str, Any]
) -> None:
    put(home / ".cursor/mcp.json", {"mcpServers": {"unspool": entry}})
    before = list_files(home)
    for arguments in ((), ("--undo",)):
        assert "edited since" in run(cli, "cursor", *arguments, code=2).stderr
    assert list_files(home) == before


def test_nothing_is_changed_without_confirmation(cli: Cli, home: Path, person: None) -> None:
    (home / ".cursor").mkdir()
    refused = cli("mcp", "install", "--client", "cursor", input="n\n")
    assert refused.exit_code == 1 and '+    "unspool": {' in refused.stdout
    assert "nothing was changed" in refused.stderr and list_files(home) == {}
    assert cli("mcp", "install", "--client", "cursor", "--json").exit_code == 2
    assert list_files(home) == {}
    assert cli("mcp", "install", "--client", "cursor", input="y\n").exit_code == 0
    assert list(list_files(home)) == [".cursor/mcp.json"]


def test_without_a_terminal_nothing_is_changed(cli: Cli, home: Path) -> None:
    result = cli("mcp", "install", "--client", "cursor")
    assert result.exit_code == 2 and "--yes" in result.stderr and list_files(home) == {}


def test_print_shows_the_lines_to_paste(cli: Cli, home: Path) -> None:
    result = cli("mcp", "install", "--client", "cursor", "--print")
    assert json.loads(result.stdout)["mcpServers"]["unspool"]["command"] == sys.executable
    assert str(home / ".cursor/mcp.json") in result.stderr.replace("\n", "")
    shown = json.loads(cli("mcp", "install", "--client", "zed", "--print", "--json").stdout)
    assert set(shown) == {"client", "file", "snippet"} and list_files(home) == {}


def test_json_is_as_documented(cli: Cli, home: Path) -> None:
    put(home / ".cursor/mcp.json", OTHERS)
    added = json.loads(run(cli, "cursor", "--json").stdout)
    again = json.loads(run(cli, "cursor", "--json").stdout)
    printed = json.loads(cli("mcp", "install", "--client", "cursor", "--print", "--json").stdout)
    compare("mcp install", added, again, printed)
    assert (added["action"], again["action"], again["difference"]) == ("add", "none", "")
    assert added["backup"] == added["file"] + ".unspool.bak" and "hunter2" not in str(added)


def test_a_link_stays_a_link(cli: Cli, home: Path, tmp_path: Path) -> None:
    real = put(tmp_path / "dotfiles" / "claude.json", "{}")
    (home / ".claude.json").symlink_to(real)
    run(cli, "claude-code")
    assert (home / ".claude.json").is_symlink() and "unspool" in real.read_text()


def test_a_full_disk_leaves_the_file_whole(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home / ".cursor/mcp.json", "{}")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    assert "No space left" in run(cli, "cursor", code=3).stderr
    assert list_files(home) == {".cursor/mcp.json": b"{}"}


def test_a_file_that_changes_before_the_confirmation_is_not_overwritten(
    cli: Cli, home: Path, person: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(home / ".cursor/mcp.json", "{}")

    def confirm(*_: object, **__: object) -> bool:
        file.write_text('{"a": 1}')
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    result = cli("mcp", "install", "--client", "cursor")
    assert result.exit_code == 2 and "changed meanwhile" in result.stderr
    assert list_files(home) == {".cursor/mcp.json": b'{"a": 1}'}


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("cursor", {"url": SERVICE, "headers": {"Authorization": "Bearer ${env:UNSPOOL_KEY}"}}),
        ("gemini", {"httpUrl": SERVICE, "headers": {"Authorization": "Bearer ${UNSPOOL_KEY}"}}),
        (
            "windsurf",
            {"serverUrl": SERVICE, "headers": {"Authorization": "Bearer ${env:UNSPOOL_KEY}"}},
        ),
    ],
)
def test_a_service_is_called_with_a_key_that_is_not_written(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, client: str, entry: dict[str, Any]
) -> None:
    monkeypatch.setenv("UNSPOOL_KEY", "unspool_abc_verysecret")
    file = home / FILES[client]
    result = run(cli, client, "--url", SERVICE)
    assert json.loads(file.read_text()) == {"mcpServers": {"unspool": entry}}
    assert "verysecret" not in result.output and "unencrypted" not in result.stderr
    assert "unencrypted" in run(cli, client, "--url", "http://find.example/mcp").stderr
    run(cli, client, "--undo")
    run(cli, client, "--url", SERVICE, "--no-key")
    assert "UNSPOOL_KEY" not in file.read_text()
    # An entry without a key can be anybody's.
    run(cli, client, "--undo", code=2)
    run(cli, client, "--undo", "--url", SERVICE, "--no-key")
    assert json.loads(file.read_text()) == {"mcpServers": {}}


@pytest.mark.parametrize(
    ("client", "name", "expected"),
    [
        (
            "claude-code",
            "claude",
            [
                *("mcp", "add", "--scope", "user", "--transport", "http", "unspool", SERVICE),
                *("--header", "Authorization: Bearer ${UNSPOOL_KEY}"),
            ],
        ),
        (
            "codex",
            "codex",
            ["mcp", "add", "unspool", "--url", SERVICE, "--bearer-token-env-var", "UNSPOOL_KEY"],
        ),
    ],
)
def test_commands_add_a_service(
    cli: Cli, program: Any, client: str, name: str, expected: list[str]
) -> None:
    calls = program(name)
    run(cli, client, "--url", SERVICE)
    assert calls()[0][1:] == expected


@pytest.mark.parametrize(
    ("client", "arguments", "message"),
    [
        ("cursor", ["--database", "postgresql://me:hunter2@db/app"], "UNSPOOL_DATABASE"),
        ("cursor", ["--database", "postgresql://me@db/app?password=hunter2"], "UNSPOOL_DATABASE"),
        ("cursor", ["--url", "http://me:hunter2@host/mcp"], "UNSPOOL_KEY"),
        ("cursor", ["--url", "https://host/mcp?key=hunter2"], "UNSPOOL_KEY"),
        ("cursor", ["--url", "http://127.0.0.1:8765"], "no address"),
        ("cursor", ["--url", "http://host:port/mcp"], "no address"),
        ("cursor", ["--url", "ftp://host/mcp"], "no address"),
        ("cursor", ["--url", "http://ho st/mcp"], "no address"),
        ("cursor", ["--url", SERVICE, "--project", "notes"], "--project"),
        ("cursor", ["--no-key"], "--url"),
        ("cursor", ["--database", "nosuch://x"], "nosuch"),
        ("cursor", ["--project", "a,b"], "a,b"),
        ("cursor", ["--name", "a.b"], "a.b"),
        ("claude-desktop", ["--url", SERVICE], "Claude Desktop cannot call a service"),
        ("zed", ["--url", SERVICE], "Zed cannot read a key"),
    ],
)
def test_invalid_arguments_and_secrets_are_rejected(
    cli: Cli, home: Path, client: str, arguments: list[str], message: str
) -> None:
    result = run(cli, client, *arguments, code=2)
    assert message in result.stderr and "hunter2" not in result.output
    assert list_files(home) == {}


def test_the_command_works_in_every_folder(cli: Cli, home: Path, tmp_path: Path) -> None:
    run(cli, "cursor", "--database", "sqlite:///50%25/notes.db", "--project", "notes")
    written = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["unspool"]
    arguments = written["args"][written["args"].index("mcp") + 1 :]
    address = f"sqlite:///{Path.cwd()}/50%25/notes.db"
    assert arguments == ["--database", address, "--project", "notes"]
    assert mcp.make_context("mcp", arguments).params["projects"] == ("notes",)
    put(tmp_path / "unspool" / "__init__.py", "raise SystemExit('not this one')")
    command = [written["command"], *written["args"], "--help"]
    help_text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert help_text.returncode == 0 and "unspool mcp" in help_text.stdout


def test_an_installed_script_is_started_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = put(tmp_path / "bin" / "unspool", "#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert resolve_launcher(str(script)) == resolve_launcher("bin/unspool") == (str(script),)
    assert resolve_launcher("-c") == (sys.executable, "-P", "-m", "unspool")


def test_settings_of_the_folder_that_the_server_does_not_read_are_reported(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSPOOL_DATABASE")
    monkeypatch.setenv("UNSPOOL_EMBEDDER_KEY", "hunter2")
    monkeypatch.setenv("UNSPOOL_TRUST", str(Path.cwd()))
    Path("unspool.toml").write_text('database = "sqlite:///here.db"')
    result = run(cli, "cursor")
    assert "database comes from unspool.toml" in result.stderr
    assert "UNSPOOL_EMBEDDER_KEY" in result.stderr and "hunter2" not in result.output


@pytest.mark.parametrize(
    ("client", "system", "variables", "path"),
    [
        *((client, "linux", {}, f"home/{path}") for client, path in FILES.items()),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("codex", "linux", {"CODEX_HOME": "/x"}, "/x/config.toml"),
        ("zed", "linux", {"XDG_CONFIG_HOME": "/g"}, "/g/zed/settings.json"),
        ("zed", "darwin", {"XDG_CONFIG_HOME": "/g"}, "home/.config/zed/settings.json"),
        ("vscode", "darwin", {}, "home/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", {"APPDATA": "/r"}, "/r/Code/User/mcp.json"),
        (
            "claude-desktop",
            "win32",
            {},
            "home/AppData/Roaming/Claude/claude_desktop_config.json",
        ),
    ],
)
def test_each_client_has_a_file_on_each_system(
    client: str, system: str, variables: dict[str, str], path: str
) -> None:
    file = locate_file(CLIENTS[client], system=system, home=Path("home"), variables=variables)
    assert file == Path(path)


def test_a_packaged_claude_desktop_is_found(tmp_path: Path) -> None:
    packaged = tmp_path / "Packages" / "Claude_abc" / "LocalCache" / "Roaming" / "Claude"
    packaged.mkdir(parents=True)
    variables = {"LOCALAPPDATA": str(tmp_path)}
    client = CLIENTS["claude-desktop"]
    file = locate_file(client, system="win32", home=tmp_path, variables=variables)
    assert file == packaged / "claude_desktop_config.json"


def test_the_page_shows_what_is_written() -> None:
    servers = [
        McpServer(command=("/home/me/.local/bin/unspool", "mcp")),
        McpServer(url=SERVICE, has_key=True),
    ]
    written = {
        format_snippet(client, "unspool", server) + "\n"
        for client in CLIENTS.values()
        for server in servers
        if not server.url or client.reference
    }
    pattern = r"^```(?:json|toml)\n(.*?)^```$"
    blocks = re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert set(blocks) == written
