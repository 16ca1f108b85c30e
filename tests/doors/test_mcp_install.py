"""`unspool mcp install` from outside: what it shows, what it writes, what it never writes, and
that it can be undone.
"""

from __future__ import annotations

import errno
import json
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result
from test_cli_json import compare

from support import doc, open_corpus
from unspool.interfaces.cli.installing import launcher
from unspool.interfaces.cli.mcp import mcp
from unspool.interfaces.clients import VARIABLES, Client

Cli = Callable[..., Result]

FILES = {
    Client.CLAUDE_CODE: ".claude.json",
    Client.CLAUDE_DESKTOP: ".config/Claude/claude_desktop_config.json",
    Client.CURSOR: ".cursor/mcp.json",
    Client.VSCODE: ".config/Code/User/mcp.json",
    Client.CODEX: ".codex/config.toml",
}
PROJECT_FILES = {
    Client.CLAUDE_CODE: ".mcp.json",
    Client.CURSOR: ".cursor/mcp.json",
    Client.VSCODE: ".vscode/mcp.json",
    Client.CODEX: ".codex/config.toml",
}
OWN = {
    "json": (
        '{\r\n\t"theme": "dark",\r\n\t"mcpServers": {\r\n\t\t"docs": {"command": "npx", "env": '
        '{"API_KEY": "hunter2hunter2"}}\r\n\t}\r\n}'
    ),
    "toml": (
        'model = "gpt" # mine\n\n[mcp_servers.docs]\ncommand = "npx"\n[mcp_servers.docs.env]\n'
        'API_KEY = "hunter2hunter2"'
    ),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of one's own on Linux, beside the current folder."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits at the terminal."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)


def installed(cli: Cli, client: Client | str, *arguments: str) -> Result:
    result = cli("mcp", "install", "--client", str(client), "--yes", *arguments)
    assert result.exit_code == 0, result.output
    return result


def put(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file


def entry(file: Path, name: str = "unspool") -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    content = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    return next(
        content[key][name] for key in ("mcpServers", "servers", "mcp_servers") if key in content
    )


def all_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("client", Client)
def test_a_file_that_is_made_goes_with_undo(cli: Cli, home: Path, client: Client) -> None:
    shown = installed(cli, client).stdout
    file = home / FILES[client]
    assert f"+++ {file}" in shown and "--- (no file)" in shown
    assert entry(file)["args"][-1] == "mcp"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = all_files(home)
    assert "as it should be" in installed(cli, client).stdout
    assert all_files(home) == before
    assert f"--- {file}" in installed(cli, client, "--undo").stdout
    assert all_files(home) == {}
    again = installed(cli, client, "--undo").stdout
    assert "nothing of unspool is there" in again and str(file) in again.replace("\n", "")


@pytest.mark.parametrize("client", PROJECT_FILES)
def test_what_was_there_stays_and_is_kept_beside(cli: Cli, client: Client) -> None:
    file = Path.cwd() / PROJECT_FILES[client]
    own = OWN["toml" if client is Client.CODEX else "json"].replace("mcpServers", client.table.key)
    put(file, own).chmod(0o640)
    result = installed(
        cli, client, "--scope", "project", "--project", "notes", "--project", "mail", "--read-only"
    )
    assert entry(file)["args"][-6:] == [
        "mcp",
        "--project",
        "notes",
        "--project",
        "mail",
        "--read-only",
    ]
    assert entry(file, "docs")["env"] == {"API_KEY": "hunter2hunter2"}
    backup = file.with_name(file.name + ".before-unspool")
    assert backup.read_bytes() == own.encode()
    assert str(backup) in result.stdout
    assert {stat.S_IMODE(one.stat().st_mode) for one in (file, backup)} == {0o640}
    installed(cli, client, "--scope", "project")  # a change of one's own does not touch the backup
    assert backup.read_bytes() == own.encode()
    installed(cli, client, "--scope", "project", "--undo")
    assert all_files(Path.cwd()) == {str(file.relative_to(Path.cwd())): own.encode()}
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_secrets_of_other_servers_are_not_shown(cli: Cli, home: Path) -> None:
    put(home / ".claude.json", OWN["json"])
    outputs = [
        installed(cli, "claude-code").output,
        installed(cli, "claude-code", "--undo", "--json").output,
    ]
    assert all("docs" in output and "hunter2" not in output for output in outputs)


def test_nothing_is_changed_without_a_yes(cli: Cli, home: Path, person: None) -> None:
    file = put(home / ".cursor" / "mcp.json", "{}")
    refused = cli("mcp", "install", "--client", "cursor", input="n\n")
    assert refused.exit_code == 1
    assert '+    "unspool": {' in refused.stdout and "nothing was changed" in refused.stderr
    assert all_files(home) == {".cursor/mcp.json": b"{}"}
    accepted = cli("mcp", "install", "--client", "cursor", input="y\n")
    assert accepted.exit_code == 0 and entry(file)["type"] == "stdio"


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_where_nobody_can_be_asked_nothing_is_changed_and_that_is_said(
    cli: Cli, home: Path, extra: tuple[str, ...]
) -> None:
    result = cli("mcp", "install", "--client", "cursor", *extra)
    assert result.exit_code == 2
    assert "nothing was changed" in result.stderr and "--yes" in result.stderr
    assert all_files(home) == {}


def test_a_dry_run_only_shows(cli: Cli, home: Path) -> None:
    result = cli("mcp", "install", "--client", "vscode", "--dry-run")
    assert result.exit_code == 0 and '+  "servers": {' in result.stdout
    assert all_files(home) == {}


def test_colour_is_for_terminals_and_on_demand(cli: Cli) -> None:
    arguments = ("mcp", "install", "--client", "vscode", "--dry-run")
    assert "\x1b[32m+{" in cli(*arguments, "--color").stdout
    assert "\x1b" not in cli(*arguments).stdout


def test_json_says_the_same(cli: Cli, home: Path) -> None:
    file = put(home / ".codex" / "config.toml", "# mine\n")
    planned = json.loads(cli("mcp", "install", "--client", "codex", "--dry-run", "--json").stdout)
    done = json.loads(installed(cli, "codex", "--json").stdout)
    again = json.loads(installed(cli, "codex", "--json").stdout)
    compare("mcp install", planned, done, again)
    assert (planned["made"], done["made"], again["made"]) == (False, True, False)
    assert (planned["action"], done["action"], again["action"]) == ("change", "change", "none")
    assert planned["difference"] == done["difference"] != again["difference"] == ""
    assert done["file"] == str(file) and done["backup"] == f"{file}.before-unspool"


def test_another_entry_of_the_name_is_shown_as_a_change_and_comes_back(
    cli: Cli, home: Path
) -> None:
    own = '{"mcpServers": {"unspool": {"command": "/my/wrapper", "args": ["x"]}}}'
    file = put(home / ".claude.json", own)
    put(home / ".claude.json.before-unspool", "of an earlier time")
    refused = cli("mcp", "install", "--client", "claude-code", "--undo", "--yes")
    assert refused.exit_code == 2 and "was not put there by this command" in refused.stderr
    shown = installed(cli, "claude-code").stdout
    assert any(line.startswith("-") and "/my/wrapper" in line for line in shown.splitlines())
    installed(cli, "claude-code", "--undo")
    assert all_files(home) == {
        ".claude.json": own.encode(),
        ".claude.json.before-unspool-2": b"of an earlier time",
    }
    assert file.read_text() == own


def test_nothing_that_was_ever_there_is_lost(cli: Cli, home: Path) -> None:
    own = '{"mcpServers": {"unspool": {"command": "/my/wrapper", "args": ["x"]}}}'
    file = put(home / ".claude.json", own)
    installed(cli, "claude-code")
    changed = file.read_text().replace('"args"', '"env": {"A": "1"}, "args"')
    put(file, changed)
    installed(cli, "claude-code", "--read-only")
    installed(cli, "claude-code", "--undo")
    assert all_files(home) == {
        ".claude.json": changed.encode(),
        ".claude.json.before-unspool-2": own.encode(),
    }


@pytest.mark.parametrize(
    "own",
    [
        {"command": "unspool", "args": ["mcp"]},
        {"command": "/bin/unspool", "args": ["mcp"], "env": {"A": "1"}},
    ],
)
def test_an_entry_that_was_written_by_hand_is_not_taken_out_and_comes_back(
    cli: Cli, home: Path, own: dict[str, Any]
) -> None:
    text = json.dumps({"mcpServers": {"unspool": own}})
    put(home / ".claude.json", text)
    assert cli("mcp", "install", "--client", "claude-code", "--undo", "--yes").exit_code == 2
    assert all_files(home) == {".claude.json": text.encode()}
    installed(cli, "claude-code")
    installed(cli, "claude-code", "--undo")
    assert all_files(home) == {".claude.json": text.encode()}


def test_what_was_added_to_an_entry_is_kept_when_it_is_installed_anew(cli: Cli, home: Path) -> None:
    file = put(home / ".claude.json", '{"theme": "dark"}')
    installed(cli, "claude-code")
    content = json.loads(file.read_text())
    content["mcpServers"]["unspool"]["env"] = {"UNSPOOL_LIMIT": "5"}
    put(file, json.dumps(content))
    assert cli("mcp", "install", "--client", "claude-code", "--undo", "--yes").exit_code == 2
    assert "what was there" in installed(cli, "claude-code", "--read-only").stdout
    assert "env" not in entry(file)
    installed(cli, "claude-code", "--undo")
    assert json.loads(file.read_text()) == content


@pytest.mark.parametrize("arguments", [("--undo",), ("--read-only",)])
def test_a_remark_that_goes_is_kept_beside(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    installed(cli, "codex")
    file = home / ".codex" / "config.toml"
    text = file.read_text().rstrip("\n") + " # which\n# about z\n[z]\n"
    put(file, text)
    monkeypatch.delenv("UNSPOOL_DATABASE")
    installed(cli, "codex", *arguments)
    assert "# which" not in file.read_text() and "# about z\n[z]\n" in file.read_text()
    assert file.with_name("config.toml.before-unspool").read_text() == text


def test_what_others_wrote_meanwhile_survives_undo(cli: Cli, home: Path) -> None:
    file = put(home / ".claude.json", '{\n  "a": 1\n}\n')
    installed(cli, "claude-code")
    file.write_text(file.read_text().replace('"a": 1', '"a": 2'))
    installed(cli, "claude-code", "--undo")
    assert file.read_text() == '{\n  "a": 2\n}\n'


def test_two_names_are_two_servers(cli: Cli, home: Path) -> None:
    installed(cli, "cursor", "--name", "notes", "--project", "notes")
    installed(cli, "cursor", "--name", "code", "--project", "code")
    file = home / ".cursor" / "mcp.json"
    assert entry(file, "notes")["args"][-1] == "notes" and entry(file, "code")["args"][-1] == "code"
    installed(cli, "cursor", "--name", "code", "--undo")
    installed(cli, "cursor", "--name", "notes", "--undo")
    assert all_files(home) == {}
    assert cli("mcp", "install", "--client", "cursor", "--name", "a.b", "--yes").exit_code == 2


def test_a_link_stays_a_link(cli: Cli, home: Path, tmp_path: Path) -> None:
    real = put(tmp_path / "dotfiles" / "claude.json", "{}")
    (home / ".claude.json").symlink_to(real)
    installed(cli, "claude-code")
    assert (home / ".claude.json").is_symlink() and "unspool" in real.read_text()
    installed(cli, "claude-code", "--undo")
    assert (home / ".claude.json").is_symlink() and real.read_text() == "{}"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b'{\n  // mine\n  "servers": {}\n}', "line 2 is not plain JSON"),
        (b'{"servers": []}', "servers is not a table"),
        (b"\xff\xfe{\0}\0", "no UTF-8"),
    ],
)
def test_what_is_not_understood_is_left_as_it_is_with_what_to_paste(
    cli: Cli, home: Path, text: bytes, what: str
) -> None:
    file = home / ".config" / "Code" / "User" / "mcp.json"
    put(file, "").write_bytes(text)
    result = cli("mcp", "install", "--client", "vscode", "--yes")
    assert result.exit_code == 2 and what in result.stderr and str(file) in result.stderr
    assert ('"unspool": {' in result.stderr) is (what != "no UTF-8")
    assert all_files(home) == {".config/Code/User/mcp.json": text}


def test_a_place_that_is_no_file_is_said(cli: Cli, home: Path) -> None:
    put(home / ".cursor", "a file where a folder should be")
    result = cli("mcp", "install", "--client", "cursor", "--yes")
    assert result.exit_code == 2 and "cannot be read" in result.stderr
    assert all_files(home) == {".cursor": b"a file where a folder should be"}


def test_a_full_disk_leaves_the_file_whole(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home / ".claude.json", "{}")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = cli("mcp", "install", "--client", "claude-code", "--yes")
    assert result.exit_code == 3 and "No space left" in result.stderr
    assert all_files(home) == {".claude.json": b"{}"}


def test_a_file_that_changes_while_somebody_thinks_is_not_overwritten(
    cli: Cli, home: Path, person: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(home / ".claude.json", "{}")

    def thinking(*_: object, **__: object) -> bool:
        file.write_text('{"a": 1}')
        return True

    monkeypatch.setattr(click, "confirm", thinking)
    result = cli("mcp", "install", "--client", "claude-code")
    assert result.exit_code == 2 and "changed by somebody else" in result.stderr
    assert all_files(home) == {".claude.json": b'{"a": 1}'}


@pytest.mark.parametrize(
    "client", [client for client in Client if client is not Client.CLAUDE_DESKTOP]
)
def test_a_service_is_reached_with_a_key_that_is_not_written(
    cli: Cli, home: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_KEY", "unspool_abc_verysecret")
    result = installed(cli, client, "--url", "http://127.0.0.1:8765/mcp")
    text = (home / FILES[client]).read_text()
    assert (
        "http://127.0.0.1:8765/mcp" in text
        and "UNSPOOL_KEY" in text
        and "verysecret" not in text + result.output
    )
    assert "unencrypted" not in result.stderr
    assert "unencrypted" in installed(cli, client, "--url", "http://find.example/mcp").stderr
    installed(cli, client, "--undo")
    installed(cli, client, "--url", "http://127.0.0.1:8765/mcp", "--no-key")
    assert "UNSPOOL_KEY" not in (home / FILES[client]).read_text()
    # it could be anybody's
    assert cli("mcp", "install", "--client", str(client), "--undo", "--yes").exit_code == 2
    installed(cli, client, "--undo", "--url", "http://127.0.0.1:8765/mcp", "--no-key")
    assert all_files(home) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--database", "postgresql://me:hunter2@db/app"),
        ("--database", "postgresql://me@db/app?password=hunter2"),
        ("--url", "http://me:hunter2@host/mcp"),
        ("--url", "https://host/mcp?key=hunter2"),
    ],
)
def test_an_address_with_a_password_is_refused_and_the_variable_named(
    cli: Cli, home: Path, arguments: tuple[str, ...]
) -> None:
    result = cli("mcp", "install", "--client", "claude-code", "--yes", *arguments)
    assert result.exit_code == 2 and "hunter2" not in result.output
    assert ("UNSPOOL_DATABASE" if "--database" in arguments else "UNSPOOL_KEY") in result.stderr
    assert all_files(home) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--url", "127.0.0.1:8765"),
        ("--url", "http://127.0.0.1:8765"),
        ("--url", "http://host:port/mcp"),
        ("--url", "ftp://host/mcp"),
        ("--url", "http://ho st/mcp"),
        ("--url", "http://host/mcp", "--project", "notes"),
        ("--url", "http://host/mcp", "--read-only"),
        ("--no-key",),
        ("--database", "nosuch://x"),
        ("--project", "a,b"),
        ("--name", ""),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, home: Path, arguments: tuple[str, ...]) -> None:
    assert cli("mcp", "install", "--client", "claude-code", "--yes", *arguments).exit_code == 2
    assert all_files(home) == {}


def test_claude_desktop_has_no_services_and_no_projects(cli: Cli, home: Path) -> None:
    for arguments in (("--url", "http://127.0.0.1:8765/mcp"), ("--scope", "project")):
        result = cli("mcp", "install", "--client", "claude-desktop", "--yes", *arguments)
        assert result.exit_code == 2 and "Claude Desktop" in result.stderr
    assert all_files(home) == {}


def test_the_command_means_the_same_in_every_folder(cli: Cli, home: Path, tmp_path: Path) -> None:
    installed(
        cli,
        "claude-code",
        "--database",
        "sqlite:///50%25/notes.db",
        "--project",
        "notes",
        "--read-only",
    )
    written = entry(home / ".claude.json")
    address = f"sqlite:///{Path.cwd()}/50%25/notes.db"
    assert written["args"][-6:] == [
        "mcp",
        "--database",
        address,
        "--project",
        "notes",
        "--read-only",
    ]
    arguments = written["args"][written["args"].index("mcp") + 1 :]
    assert mcp.make_context("mcp", arguments).params["projects"] == ("notes",)
    (tmp_path / "unspool").mkdir()
    (tmp_path / "unspool" / "__init__.py").write_text("raise SystemExit('not this one')")
    help_text = subprocess.run(
        [written["command"], *written["args"], "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert help_text.returncode == 0 and "unspool mcp" in help_text.stdout


def test_the_script_is_started_by_its_whole_path_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = put(tmp_path / "bin" / "unspool", "#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert launcher(str(script)) == launcher("bin/unspool") == (str(script),)
    assert (
        launcher("-c")
        == launcher(str(tmp_path / "unspool" / "__main__.py"))
        == (sys.executable, "-P", "-m", "unspool")
    )


def test_settings_that_the_server_will_not_see_are_said(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_EMBEDDER_KEY", "hunter2")
    result = installed(cli, "codex")
    assert entry(home / ".codex" / "config.toml")["env_vars"] == [
        "UNSPOOL_DATABASE",
        "UNSPOOL_EMBEDDER_KEY",
    ]
    assert "UNSPOOL_DATABASE" in result.stderr and "hunter2" not in result.output
    monkeypatch.delenv("UNSPOOL_DATABASE")
    Path("unspool.toml").write_text('database = "sqlite:///here.db"')
    monkeypatch.setenv("UNSPOOL_TRUST", str(Path.cwd()))
    assert (
        "database comes from unspool.toml"
        in cli("mcp", "install", "--client", "cursor", "--dry-run").stderr
    )
    assert (
        "comes from"
        not in cli(
            "mcp", "install", "--client", "cursor", "--dry-run", "--database", "sqlite:///x.db"
        ).stderr
    )


def test_a_client_that_was_moved_is_found(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "moved"))
    installed(cli, "codex")
    assert list(all_files(tmp_path / "moved")) == ["config.toml"]


def test_a_project_that_does_not_exist_is_warned_of_and_no_catalog_made(
    cli: Cli, home: Path, database: Path
) -> None:
    assert "warning" not in installed(cli, "cursor", "--project", "nope", "--dry-run").stderr
    assert not database.exists()
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus", "notes"))
    said = installed(cli, "cursor", "--project", "notes", "--project", "nope").stderr
    assert "warning" in said and "'nope'" in said and "'notes'" not in said
    assert "warning" not in installed(cli, "cursor", "--project", "notes").stderr
