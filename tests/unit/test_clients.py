"""Configurations of MCP clients: where they are, what is written into them, and that nothing
else in them changes.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from unspool.errors import InputError
from unspool.interfaces import clients, configurations
from unspool.interfaces.clients import Client, InstallScope, Server
from unspool.interfaces.configurations import (
    Entry,
    Table,
    UnclearError,
    entry_in,
    undone,
    with_entry,
    without_entry,
)

PAGE = Path(__file__).parents[2] / "docs" / "mcp-clients.md"
JSON = Table(key="mcpServers", language="json")
TOML = Table(key="mcp_servers", language="toml")
STARTED = Server(
    command=("/opt/bin/unspool", "mcp", "--project", "notes"), variables=("UNSPOOL_DATABASE",)
)
SERVED = Server(url="https://find.example/mcp", key_variable="UNSPOOL_KEY")
ENTRY: Entry = {"command": "/opt/bin/unspool", "args": ["mcp", "--project", "Größe \\ quoted"]}

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
servers = st.dictionaries(
    names,
    st.dictionaries(st.sampled_from(["command", "url", "env"]), values, max_size=2),
    max_size=3,
)


def ours(entry: Entry, client: Client = Client.CLAUDE_DESKTOP) -> bool:
    return clients.is_ours(client, entry, key_variable="UNSPOOL_KEY")


@st.composite
def json_files(draw: st.DrawFn) -> str:
    """A configuration as anybody might have written it."""
    content = draw(
        st.dictionaries(st.text(max_size=6).filter(lambda key: key != JSON.key), values, max_size=3)
    )
    if draw(st.booleans()):
        content[JSON.key] = draw(servers)
    content = dict(draw(st.permutations(list(content.items()))))
    indent = draw(st.sampled_from([None, 0, 1, 2, 4, "\t"]))
    separators = draw(st.sampled_from([None, (",", ":"), (" ,", " : "), (", ", ":")]))
    text = json.dumps(
        content, indent=indent, separators=separators, ensure_ascii=draw(st.booleans())
    )
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\n\n "])))
    if text != "{}" and draw(st.booleans()):
        text = "{ " + text[1:-1] + " }"
    return (
        draw(st.sampled_from(["", "\ufeff", "\n "]))
        + text
        + draw(st.sampled_from(["", "\n", "\r\n", " \n\n"]))
    )


PIECES = [
    'model = "gpt"  # the best\n',
    "# a remark of mine\n",
    "count = 1_000\nratio = 1e3\nodd = nan\n",
    "when = 1979-05-27T07:32:00Z\n",
    'long = """\n[mcp_servers.unspool]\ncommand = "not a server"\n"""\n',
]
TABLES = [
    "[profiles.deep]\neffort = 'high' # really\n",
    "[[rules]]\nx = 1\n\n[[rules]]\nx = 2\n",
    '[mcp_servers.docs]\ncommand = "npx" # of others\nargs = [\n  "-y", # yes\n  "docs",\n]\n',
    '[mcp_servers.other]\nurl = "https://x.example/mcp"\n\n[mcp_servers.other.env]\nAPI = "1"\n',
    "  [projects.\"/home/me\"]\n  trust_level = 'trusted'\n",
]


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    """A configuration as anybody might have written it."""
    top = draw(st.lists(st.sampled_from(PIECES), unique=True))
    tables = draw(st.lists(st.sampled_from(TABLES), unique=True))
    if draw(st.booleans()):
        tables = [table for table in tables if "mcp_servers" not in table]
        kind = draw(
            st.sampled_from(
                [
                    "mcp_servers = {}\n",
                    "mcp_servers = { a = { command = 'x' } } # closed\n",
                    "mcp_servers.a.command = 'x'\n",
                ]
            )
        )
        top.append(kind)
    text = "".join(top) + draw(st.sampled_from(["", "\n"])).join(tables)
    text = text.replace("\n", "\r\n") if draw(st.booleans()) else text
    return text.rstrip("\r\n") if draw(st.booleans()) else text


def files(table: Table) -> st.SearchStrategy[str]:
    return json_files() if table is JSON else toml_files()


def meaning(text: str, table: Table) -> dict[str, Any]:
    text = text.removeprefix("\ufeff")
    if not text.strip():
        return {}
    return json.loads(text) if table is JSON else tomllib.loads(text, parse_float=str)


def others(text: str, table: Table, name: str) -> dict[str, Any]:
    """All that a file says, but for the one server; no servers are the same as an empty table of
    them.
    """
    content = meaning(text, table)
    rest = {key: value for key, value in content.pop(table.key, {}).items() if key != name}
    return {**content, **({table.key: rest} if rest else {})}


@pytest.mark.parametrize("table", [JSON, TOML], ids=["json", "toml"])
@settings(max_examples=25)
@given(data=st.data())
def test_installing_and_undoing_leaves_the_file_as_it_was(
    table: Table, data: st.DataObject
) -> None:
    before = data.draw(files(table))
    name = data.draw(names)
    installed = with_entry(before, table, name, ENTRY)
    assert meaning(installed, table)[table.key][name] == ENTRY
    assert others(installed, table, name) == others(before, table, name)
    assert with_entry(installed, table, name, ENTRY) == installed
    assert undone(installed, before, table, name, ours=ours) == before


@pytest.mark.parametrize("table", [JSON, TOML], ids=["json", "toml"])
@settings(max_examples=25)
@given(data=st.data())
def test_what_others_write_in_between_stays(table: Table, data: st.DataObject) -> None:
    before = data.draw(files(table))
    assume("docs" not in meaning(before, table).get(table.key, {}))
    between = with_entry(
        with_entry(before, table, "unspool", ENTRY), table, "docs", {"command": "npx"}
    )
    after = undone(between, before, table, "unspool", ours=ours)
    assert after is not None
    assert meaning(after, table) == meaning(
        with_entry(before, table, "docs", {"command": "npx"}), table
    )
    forgotten = undone(between, None, table, "unspool", ours=ours)  # nobody knows what was there
    assert forgotten is not None
    assert others(forgotten, table, "unspool") == others(between, table, "unspool")


@pytest.mark.parametrize("table", [JSON, TOML], ids=["json", "toml"])
@settings(max_examples=25)
@given(data=st.data())
def test_an_entry_of_somebody_else_comes_back(table: Table, data: st.DataObject) -> None:
    before = with_entry(
        data.draw(files(table)), table, "unspool", {"command": "mine", "args": ["of my own"]}
    )
    installed = with_entry(before, table, "unspool", ENTRY)
    assert meaning(installed, table)[table.key]["unspool"] == ENTRY
    assert others(installed, table, "unspool") == others(before, table, "unspool")
    assert undone(installed, before, table, "unspool", ours=ours) == before


def common(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


@settings(max_examples=25)
@given(before=json_files())
@example(before='{"mcpServers": {"a": {}}}')
def test_json_is_changed_at_one_place(before: str) -> None:
    assume("unspool" not in meaning(before, JSON).get(JSON.key, {}))
    after = with_entry(before, JSON, "unspool", ENTRY)
    first = common(before, after)
    last = min(common(before[::-1], after[::-1]), len(before) - first)
    # nothing is replaced but the white space in an empty object
    assert before[first : len(before) - last].strip() == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a":1}', '{"a":1,"mcpServers":{"s": {"command": "x"}}}'),
        ('{ "mcpServers": { "a": {} } }', '{ "mcpServers": { "a": {}, "s": {"command": "x"} } }'),
        ("{}\n", '{\n  "mcpServers": {\n    "s": {\n      "command": "x"\n    }\n  }\n}\n'),
        (
            '{\r\n\t"mcpServers": {},\r\n\t"b": 1\r\n}',
            (
                '{\r\n\t"mcpServers": {\r\n\t\t"s": {\r\n\t\t\t"command": "x"\r\n\t\t}\r\n\t},\r\n'
                '\t"b": 1\r\n}'
            ),
        ),
        (
            '{\n    "mcpServers": {\n        "a": {"command": "y"}\n    }\n}',
            (
                '{\n    "mcpServers": {\n        "a": {"command": "y"},\n        "s": {\n        '
                "    "
                '"command": "x"\n        }\n    }\n}'
            ),
        ),
    ],
)
def test_json_is_written_as_the_file_is(before: str, after: str) -> None:
    assert with_entry(before, JSON, "s", {"command": "x"}) == after


def test_comments_in_toml_stay_when_an_entry_is_replaced_and_removed() -> None:
    before = (
        '# top\n[mcp_servers.unspool]\n# why\ncommand = "old" # here\n\n'
        '[mcp_servers.unspool.env]\nA = "1"\n\n[other] # last\nx = 1\n'
    )
    replaced = with_entry(before, TOML, "unspool", ENTRY)
    assert all(remark in replaced for remark in ("# top", "# why", "# here", "# last"))
    assert meaning(replaced, TOML) == {"mcp_servers": {"unspool": ENTRY}, "other": {"x": 1}}
    removed = without_entry(replaced, TOML, "unspool", prune=True)
    assert meaning(removed, TOML) == {"other": {"x": 1}}
    assert "# top" in removed and "# last" in removed


@pytest.mark.parametrize("behind", ["[z]\ny = 1\n", ""])
def test_a_comment_about_what_comes_next_stays_when_an_entry_is_replaced_and_removed(
    behind: str,
) -> None:
    before = (
        f'[mcp_servers.unspool]\ncommand = "old" # with a "#" of mine\n'
        f'[mcp_servers.unspool.env]\nA = "1"\n\n# about next\n{behind}'
    )
    replaced = with_entry(before, TOML, "unspool", ENTRY)
    assert meaning(replaced, TOML) == {**meaning(before, TOML), "mcp_servers": {"unspool": ENTRY}}
    assert f"\n# about next\n{behind}" in replaced
    assert f"# about next\n{behind}" in without_entry(replaced, TOML, "unspool", prune=True)
    assert configurations.drops_comments(before, replaced) and not configurations.drops_comments(
        replaced, replaced
    )


def test_lines_of_a_long_text_are_not_taken_for_a_server() -> None:
    text = (
        'note = """\n[mcp_servers.unspool]\ncommand = "old"\n"""\nlist = [\n  [1],\n]\n'
        "[mcp_servers.docs]\nx = 1\n[[rules]]\nx = 1\n"
    )
    installed = with_entry(
        with_entry(text, TOML, "unspool", {"command": "old"}), TOML, "unspool", ENTRY
    )
    assert meaning(installed, TOML) == {
        **meaning(text, TOML),
        "mcp_servers": {"docs": {"x": 1}, "unspool": ENTRY},
    }
    assert without_entry(installed, TOML, "unspool", prune=True) == text


@pytest.mark.parametrize("table", [JSON, TOML], ids=["json", "toml"])
def test_a_file_that_was_made_here_goes_again(table: Table) -> None:
    made = with_entry(None, table, "unspool", ENTRY)
    changed = with_entry(made, table, "unspool", {**ENTRY, "args": ["mcp"]})
    assert undone(changed, None, table, "unspool", ours=ours) is None
    assert undone(changed, made, table, "unspool", ours=ours) is None
    both = with_entry(made, table, "docs", {"command": "npx"})
    kept = undone(both, None, table, "unspool", ours=ours)
    assert kept is not None and meaning(kept, table) == {table.key: {"docs": {"command": "npx"}}}


@pytest.mark.parametrize(
    ("text", "table", "after"),
    [
        (json.dumps({JSON.key: {"unspool": ENTRY}}), JSON, "{}"),
        (with_entry(None, TOML, "unspool", ENTRY).replace("\n", "\r\n"), TOML, ""),
    ],
)
def test_a_file_that_somebody_else_has_written_does_not_go(
    text: str, table: Table, after: str
) -> None:
    assert undone(text, None, table, "unspool", ours=ours) == after


def test_undoing_what_is_not_there_changes_nothing() -> None:
    assert undone('{ "a" : 1 }', None, JSON, "unspool", ours=ours) == '{ "a" : 1 }'
    assert undone("x = 1", "", TOML, "unspool", ours=ours) == "x = 1"


def test_a_table_of_servers_that_was_empty_before_stays() -> None:
    before = '{"mcpServers": {}, "a": 1}'
    between = with_entry(before, JSON, "unspool", ENTRY).replace('"a": 1', '"a": 2')
    assert undone(between, before, JSON, "unspool", ours=ours) == '{"mcpServers": {}, "a": 2}'
    assert undone(between, None, JSON, "unspool", ours=ours) == '{"a": 2}'


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ('{\n  // mine\n  "mcpServers": {}\n}', JSON),
        ('{"mcpServers": {},}', JSON),
        ('{"mcpServers": []}', JSON),
        ('{"mcpServers": {"unspool": "x"}}', JSON),
        ('{"mcpServers": {}, "mcpServers": {}}', JSON),
        ('{"mcpServers": {"unspool": {}, "unspool": {}}}', JSON),
        ('{"a": NaN}', JSON),
        ("[]", JSON),
        ('{"a"', JSON),
        ("[" * 100_000, JSON),
        ("x = ", TOML),
        ("x = 1\nx = 2\n", TOML),
        ("mcp_servers = 1", TOML),
        ("[[mcp_servers]]\nx = 1\n", TOML),
    ],
)
def test_what_is_not_understood_is_left_alone(text: str, table: Table) -> None:
    with pytest.raises(UnclearError):
        with_entry(text, table, "unspool", ENTRY)
    with pytest.raises(UnclearError):
        undone(text, None, table, "unspool", ours=ours)


def test_a_file_that_cannot_be_read_is_not_quoted() -> None:
    with pytest.raises(UnclearError) as caught:
        entry_in('{"key": "hunter2", }', JSON, "unspool")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UnclearError, match="line 2") as caught:
        entry_in("a = 1\nkey = hunter2\n", TOML, "unspool")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("client", "started", "served"),
    [
        (
            Client.CLAUDE_CODE,
            {"type": "stdio", "command": "/opt/bin/unspool", "args": ["mcp", "--project", "notes"]},
            {
                "type": "http",
                "url": "https://find.example/mcp",
                "headers": {"Authorization": "Bearer ${UNSPOOL_KEY}"},
            },
        ),
        (
            Client.CLAUDE_DESKTOP,
            {"command": "/opt/bin/unspool", "args": ["mcp", "--project", "notes"]},
            None,
        ),
        (
            Client.CURSOR,
            {"type": "stdio", "command": "/opt/bin/unspool", "args": ["mcp", "--project", "notes"]},
            {
                "url": "https://find.example/mcp",
                "headers": {"Authorization": "Bearer ${env:UNSPOOL_KEY}"},
            },
        ),
        (
            Client.VSCODE,
            {"type": "stdio", "command": "/opt/bin/unspool", "args": ["mcp", "--project", "notes"]},
            {
                "type": "http",
                "url": "https://find.example/mcp",
                "headers": {"Authorization": "Bearer ${env:UNSPOOL_KEY}"},
            },
        ),
        (
            Client.CODEX,
            {
                "command": "/opt/bin/unspool",
                "args": ["mcp", "--project", "notes"],
                "env_vars": ["UNSPOOL_DATABASE"],
            },
            {"url": "https://find.example/mcp", "bearer_token_env_var": "UNSPOOL_KEY"},
        ),
    ],
)
def test_each_client_writes_a_server_in_its_own_way(
    client: Client, started: Entry, served: Entry | None
) -> None:
    assert clients.entry(client, STARTED) == started
    assert ours(started, client)
    if served is None:
        with pytest.raises(InputError, match="only starts commands"):
            clients.entry(client, SERVED)
        return
    assert clients.entry(client, SERVED) == served
    assert ours(served, client)
    open_to_all = clients.entry(client, Server(url=SERVED.url))
    assert "Bearer" not in str(open_to_all) and "UNSPOOL_KEY" not in str(open_to_all)


@pytest.mark.parametrize(
    ("client", "entry", "is_ours"),
    [
        ("claude-desktop", {"command": "C:\\Python\\Scripts\\unspool.exe", "args": ["mcp"]}, True),
        (
            "claude-desktop",
            {"command": "/usr/bin/python3", "args": ["-P", "-m", "unspool", "mcp", "--read-only"]},
            True,
        ),
        (
            "claude-desktop",
            {
                "command": "/bin/unspool",
                "args": [
                    "mcp",
                    "--database",
                    "x",
                    "--project",
                    "a",
                    "--project",
                    "b",
                    "--read-only",
                ],
            },
            True,
        ),
        (
            "claude-desktop",
            {
                "command": "/usr/bin/python3",
                "args": ["-P", "-m", "unspool", "mcp"],
                "env": {"A": "1"},
            },
            False,
        ),
        (
            "claude-desktop",
            {"command": "/usr/bin/python3", "args": ["-m", "unspool", "mcp"]},
            False,
        ),
        ("claude-desktop", {"command": "/usr/bin/python3", "args": ["-m", "other", "mcp"]}, False),
        ("claude-desktop", {"command": "/usr/bin/unspooled", "args": ["mcp"]}, False),
        (
            "claude-desktop",
            {"command": "/usr/bin/unspool", "args": ["mcp", "--mcp-max-tokens", "5000"]},
            False,
        ),
        ("claude-desktop", {"command": "unspool", "args": ["mcp"]}, False),
        ("claude-desktop", {"command": "unspool"}, False),
        ("claude-desktop", {"type": "stdio", "command": "/bin/unspool", "args": ["mcp"]}, False),
        (
            "claude-desktop",
            {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${UNSPOOL_KEY}"}},
            False,
        ),
        ("cursor", {"type": "stdio", "command": "/bin/unspool", "args": ["mcp"]}, True),
        ("cursor", {"command": "/bin/unspool", "args": ["mcp"]}, False),
        (
            "cursor",
            {
                "url": "https://x.example/mcp",
                "headers": {"Authorization": "Bearer ${env:UNSPOOL_KEY}"},
            },
            True,
        ),
        (
            "cursor",
            {
                "url": "https://x.example/mcp",
                "headers": {"Authorization": "Bearer ${env:UNSPOOL_KEY}", "X-Mine": "1"},
            },
            False,
        ),
        (
            "cursor",
            {
                "url": "https://x.example/mcp",
                "headers": {"Authorization": "Bearer ${env:MY_UNSPOOL_KEY}"},
            },
            False,
        ),
        ("cursor", {"url": "https://x.example/mcp"}, False),
        ("cursor", {"url": ""}, False),
        ("claude-code", {"type": "http", "url": ""}, False),
        ("cursor", {"headers": {"Authorization": "Bearer ${env:UNSPOOL_KEY}"}}, False),
        (
            "codex",
            {"command": "/bin/unspool", "args": ["mcp"], "env_vars": ["UNSPOOL_LIMIT"]},
            True,
        ),
        (
            "codex",
            {"command": "/bin/unspool", "args": ["mcp"], "env_vars": ["UNSPOOL_LIMIT", "MINE"]},
            False,
        ),
        ("codex", {"command": "/bin/unspool", "args": ["mcp"], "env_vars": 7}, False),
        ("codex", {"command": "/bin/unspool", "args": ["mcp"], "startup_timeout_sec": 20}, False),
        ("codex", {}, False),
    ],
)
def test_our_own_entries_are_told_from_others(client: str, entry: Entry, is_ours: bool) -> None:
    assert ours(entry, Client(client)) is is_ours


@pytest.mark.parametrize(
    ("client", "system", "path"),
    [
        (Client.CLAUDE_CODE, "linux", "home/.claude.json"),
        (Client.CLAUDE_CODE, "win32", "home/.claude.json"),
        (Client.CLAUDE_DESKTOP, "linux", "home/.config/Claude/claude_desktop_config.json"),
        (
            Client.CLAUDE_DESKTOP,
            "darwin",
            "home/Library/Application Support/Claude/claude_desktop_config.json",
        ),
        (Client.CLAUDE_DESKTOP, "win32", "home/AppData/Roaming/Claude/claude_desktop_config.json"),
        (Client.CURSOR, "darwin", "home/.cursor/mcp.json"),
        (Client.VSCODE, "linux", "home/.config/Code/User/mcp.json"),
        (Client.VSCODE, "darwin", "home/Library/Application Support/Code/User/mcp.json"),
        (Client.VSCODE, "win32", "home/AppData/Roaming/Code/User/mcp.json"),
        (Client.CODEX, "linux", "home/.codex/config.toml"),
    ],
)
def test_each_client_has_its_place_on_each_system(
    client: Client, system: str, path: str, tmp_path: Path
) -> None:
    found = clients.location(
        client,
        InstallScope.USER,
        system=system,
        home=tmp_path / "home",
        folder=tmp_path,
        variables={},
    )
    assert found == tmp_path / path


def test_variables_and_packages_move_a_configuration(tmp_path: Path) -> None:
    def place(client: Client, system: str = "linux", **variables: str) -> Path:
        return clients.location(
            client,
            InstallScope.USER,
            system=system,
            home=tmp_path / "home",
            folder=tmp_path,
            variables=variables,
        )

    assert place(Client.CLAUDE_CODE, CLAUDE_CONFIG_DIR="/c") == Path("/c/.claude.json")
    assert place(Client.CODEX, CODEX_HOME="/x") == Path("/x/config.toml")
    assert place(Client.VSCODE, XDG_CONFIG_HOME="/g") == Path("/g/Code/User/mcp.json")
    assert place(Client.VSCODE, "win32", APPDATA="/r") == Path("/r/Code/User/mcp.json")
    packaged = tmp_path / "Packages" / "Claude_abc" / "LocalCache" / "Roaming" / "Claude"
    packaged.mkdir(parents=True)
    assert (
        place(Client.CLAUDE_DESKTOP, "win32", LOCALAPPDATA=str(tmp_path))
        == packaged / "claude_desktop_config.json"
    )


def test_projects_have_places_of_their_own(tmp_path: Path) -> None:
    def place(client: Client) -> Path:
        return clients.location(
            client,
            InstallScope.PROJECT,
            system="linux",
            home=Path("/home/me"),
            folder=tmp_path,
            variables={"CODEX_HOME": "/x"},
        )

    found = [
        place(client).relative_to(tmp_path).as_posix()
        for client in Client
        if client is not Client.CLAUDE_DESKTOP
    ]
    assert found == [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".codex/config.toml"]
    with pytest.raises(InputError, match="--scope user"):
        place(Client.CLAUDE_DESKTOP)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "1a", "x" * 65, "ü", "a\n", '"]'])
def test_a_name_that_some_client_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be used"):
        clients.check_name(name)


def test_every_client_has_a_label_a_table_and_advice() -> None:
    assert all(client.label and client.afterwards and client.table for client in Client)
    assert configurations.with_entry(None, Client.VSCODE.table, "s", {"a": "b"}).startswith(
        '{\n  "servers"'
    )


def test_the_page_shows_what_is_written() -> None:
    path = "/home/me/.local/bin/unspool"
    told = [
        Server(command=(path, "mcp"), variables=("UNSPOOL_DATABASE",)),
        Server(command=(path, "mcp", "--project", "notes")),
        Server(url="http://127.0.0.1:8765/mcp", key_variable="UNSPOOL_KEY"),
        SERVED,
    ]
    pairs = [
        (client, server)
        for client in Client
        for server in told
        if not (client is Client.CLAUDE_DESKTOP and server.url)
    ]
    written = {
        with_entry(None, client.table, "unspool", clients.entry(client, server))
        for client, server in pairs
    }
    blocks = re.findall(
        r"^```(?:json|toml)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 7
    assert [block for block in blocks if block not in written] == []
