"""Settings files of a folder: which settings count without trust, and that no file can stop or
block a command.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import unspool
from unspool.errors import ConfigError
from unspool.settings import Settings, open_trust_store
from unspool.settings.definitions import DEFINITIONS
from unspool.settings.files import DOTENV, MAX_BYTES, TOML, SettingsFile, compute_digest, read_files
from unspool.settings.folders import accept_settings

HARMLESS = {
    "limit": "3",
    "max_tokens": "300",
    "max_total_tokens": "3000",
    "alpha": "0.25",
    "window": "50",
    "prefetch": "off",
    "chunk_tokens": "64",
    "mcp_max_tokens": "300",
    "debounce_ms": "50",
}


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder of this test, where the list of trusted folders is."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def load(
    folder: Path, environment: dict[str, str] | None = None, **given: object
) -> tuple[Settings, list[str]]:
    """Load settings; returns them with the lines that the user gets."""
    lines: list[str] = []
    return Settings.load(
        environment=environment or {}, folder=folder, notify=lines.append, **given
    ), lines  # type: ignore[arg-type]


def trust(folder: Path) -> None:
    open_trust_store().add(folder, compute_digest(read_files(folder, follow_links=True)))


def test_the_harmless_settings_are_these_and_no_others() -> None:
    assert {name for name, one in DEFINITIONS.items() if one.from_folder} == set(HARMLESS)


@pytest.mark.parametrize("file", [TOML, DOTENV])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_only_harmless_settings_count_in_a_folder_that_is_not_trusted(
    folder: Path, name: str, file: str
) -> None:
    value = HARMLESS.get(name, "7")
    (folder / file).write_text(
        f"{DEFINITIONS[name].variable}={value}\n" if file == DOTENV else f'{name} = "{value}"\n'
    )
    settings, lines = load(folder)
    if name in HARMLESS:
        assert (DEFINITIONS[name].format(settings.get(name)), settings.origins[name], lines) == (
            value,
            file,
            [],
        )
        return
    assert (settings.get(name), settings.origins[name]) == (
        Settings().get(name),
        "default",
    )
    assert [(one.name, one.file) for one in settings.ignored] == [(name, file)]
    assert len(lines) == 1 and name in lines[0]


def test_the_line_names_the_command_that_allows_the_settings(folder: Path) -> None:
    (folder / TOML).write_text('answer_url = "http://h/v1"\nproject = "private"\nlimit = 3\n')
    settings, (line,) = load(folder)
    assert f"unspool trust {folder}" in line and "\n" not in line
    assert "answer_url, project" in line and "limit" not in line
    assert settings.search.limit == 3


def test_a_library_user_gets_a_warning_at_the_line_of_the_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / TOML).write_text('embedder_url = "http://h/v1"\n')
    monkeypatch.chdir(folder)
    with (
        pytest.warns(unspool.UntrustedFolderWarning, match="embedder_url") as caught,
        unspool.open(f"sqlite:///{folder.parent}/a.db") as corpus,
    ):
        assert corpus.settings.embedder.url == ""
    assert [one.filename for one in caught] == [__file__]


def test_trust_folder_lets_every_setting_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / TOML).write_text(f'database = "sqlite:///{folder}/a.db"\nproject = "mine"\n')
    monkeypatch.chdir(folder)
    for name in [one for one in os.environ if one.startswith("UNSPOOL_")]:
        monkeypatch.delenv(name)
    with unspool.open(trust_folder=True) as corpus:
        assert corpus.settings.project == "mine"
    assert (folder / "a.db").exists()
    with pytest.raises(ConfigError, match=r"Settings\.load"):
        unspool.open(settings=Settings(), trust_folder=True)


def test_a_trusted_folder_counts_until_a_file_changes(folder: Path) -> None:
    (folder / TOML).write_text('project = "mine"\n')
    trust(folder)
    settings, lines = load(folder)
    assert (settings.project, settings.origins["project"], lines) == ("mine", TOML, [])
    (folder / TOML).write_text('project = "theirs"\n')
    settings, (line,) = load(folder)
    assert settings.project == "" and "changed" in line
    trust(folder)
    assert load(folder)[0].project == "theirs"


def test_a_file_that_appears_or_disappears_is_a_change(folder: Path) -> None:
    (folder / TOML).write_text('project = "mine"\n')
    trust(folder)
    (folder / DOTENV).write_text("")
    assert load(folder)[0].project == ""
    trust(folder)
    assert load(folder)[0].project == "mine"
    (folder / DOTENV).unlink()
    assert load(folder)[0].project == ""


def test_trust_belongs_to_the_path(folder: Path, tmp_path: Path) -> None:
    (folder / TOML).write_text('project = "mine"\n')
    trust(folder)
    (tmp_path / "alias").symlink_to(folder)
    assert load(tmp_path / "alias")[0].project == "mine"  # the same folder by another path
    folder.rename(tmp_path / "moved")
    assert load(tmp_path / "moved")[0].project == ""


def test_the_environment_names_trusted_folders(folder: Path, tmp_path: Path) -> None:
    (folder / TOML).write_text('project = "mine"\n')
    listed = os.pathsep.join(["", str(tmp_path / "other"), str(folder)])
    assert load(folder, {"UNSPOOL_TRUST": listed})[0].project == "mine"
    # a folder above does not count
    assert load(folder, {"UNSPOOL_TRUST": str(tmp_path)})[0].project == ""
    assert load(folder, flags={"trust": str(folder)})[0].project == "mine"
    for relative in (".", "folder", f"{folder}{os.pathsep}."):
        with pytest.raises(ConfigError, match="absolute"):
            load(folder, {"UNSPOOL_TRUST": relative})


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_folder_cannot_trust_itself_or_others(
    folder: Path, tmp_path: Path, is_trusted: bool
) -> None:
    (folder / DOTENV).write_text(f"UNSPOOL_TRUST={folder}\nUNSPOOL_PROJECT=theirs\n")
    (folder / TOML).write_text(f'trust = "{folder}"\n')
    settings, (line,) = load(folder, trust_folder=is_trusted)
    assert settings.trust == "" and "trust" in line
    assert settings.project == ("theirs" if is_trusted else "")


def test_the_user_overrides_a_folder_and_needs_no_trust(folder: Path) -> None:
    (folder / TOML).write_text('database = "sqlite:///theirs.db"\n')
    for layer in (
        {"environment": {"UNSPOOL_DATABASE": "sqlite:///mine.db"}},
        {"flags": {"database": "sqlite:///mine.db"}},
    ):
        assert load(folder, **layer)[0].database.address == "sqlite:///mine.db"  # type: ignore[arg-type]


BROKEN = {
    "not UTF-8": b"project = '\xff\xfe'\nUNSPOOL_PROJECT=\xff\n",
    "not TOML": b"project = = 1\n",
    "nested deeply": b"project = " + b"[" * 15_000,
    "a long number": b"limit = " + b"1" * 15_000,
    "a long dotted key": b".".join([b"a"] * 8_000) + b" = 1\n",
    "a setting with a long dotted key": b"limit." + b".".join([b"a"] * 8_000) + b" = 1\n",
    "huge": b"# " + b"x" * 300_000,
    "a wrong value": b'limit = "many"\n',
    "a table": b"[limit]\nx = 1\n",
    "an unknown name": b"limt = 5\n",
    "a NUL": b'project = "a\\u0000b"\n',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_ignored_unless_the_folder_is_trusted(
    folder: Path, content: bytes
) -> None:
    (folder / TOML).write_bytes(content)
    settings, lines = load(folder)
    assert settings == Settings() and len(lines) == 1
    with pytest.raises(ConfigError):
        load(folder, trust_folder=True)


@pytest.mark.parametrize("file", [TOML, DOTENV])
def test_a_fifo_or_a_device_blocks_nothing(folder: Path, file: str) -> None:
    os.mkfifo(folder / file)
    for target in (None, "/dev/zero", "/dev/tty"):
        if target is not None:
            (folder / file).unlink()
            (folder / file).symlink_to(target)
        settings, (line,) = load(folder)
        assert settings == Settings() and file in line
        with pytest.raises(ConfigError, match="not a regular file"):
            load(folder, trust_folder=True)


def test_a_symbolic_link_counts_only_in_a_trusted_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.toml").write_text('limit = 3\nproject = "mine"\n')
    (folder / TOML).symlink_to(tmp_path / "elsewhere.toml")
    settings, (line,) = load(folder)
    assert (settings.search.limit, settings.project) == (10, "") and "symbolic link" in line
    trust(folder)
    assert load(folder)[0].project == "mine"
    (tmp_path / "elsewhere.toml").write_text('limit = 3\nproject = "theirs"\n')
    assert load(folder)[0].project == ""


def test_a_folder_called_env_is_a_virtual_environment(folder: Path) -> None:
    (folder / DOTENV).mkdir()
    assert load(folder) == (Settings(), [])


def test_a_deleted_current_folder_has_no_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert Settings.load(environment={}) == Settings()


def test_a_message_contains_no_secret_and_no_control_character(folder: Path) -> None:
    (folder / TOML).write_text(
        '"\\u001b[2J\\u202e" = 1\nanswer_key = "hunter2"\nansver_key = "hunter2"\nlimit = '
        '"\\u001b"\ndatabase = "postgresql://me:hunter2@h/x"\n'
    )
    settings, (line,) = load(folder)
    shown = [line, *(f"{one.name} {one.value} {one.reason}" for one in settings.ignored)]
    assert all(text.isprintable() and "hunter2" not in text for text in shown)
    assert len(settings.ignored) == 5


def test_a_message_stays_short_however_many_settings_a_file_has(folder: Path) -> None:
    (folder / TOML).write_text("".join(f"unknown_{number} = 1\n" for number in range(800)))
    _, (line,) = load(folder)
    assert len(line) < 2_000 and "780 more" in line


@given(toml=st.binary(max_size=300), dotenv=st.binary(max_size=300))
@example(toml=b"\x00", dotenv=b"UNSPOOL_LIMIT='\x00'")
def test_no_content_stops_a_command_in_a_folder_that_is_not_trusted(
    tmp_path_factory: pytest.TempPathFactory, toml: bytes, dotenv: bytes
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    (folder / TOML).write_bytes(toml)
    (folder / DOTENV).write_bytes(dotenv)
    settings, _ = load(folder)
    assert all(
        settings.get(name) == Settings().get(name)
        for name, one in DEFINITIONS.items()
        if not one.from_folder
    )


files = st.none() | st.binary(max_size=20)


@given(st.tuples(files, files), st.tuples(files, files))
@example((b"", None), (None, b""))
@example((b"x.env 0\n", None), (b"x", b""))
def test_different_files_have_different_digests(
    one: tuple[bytes | None, bytes | None], other: tuple[bytes | None, bytes | None]
) -> None:
    def digest(contents: tuple[bytes | None, bytes | None]) -> str:
        return compute_digest(
            SettingsFile(name=name, content=content)
            for name, content in zip((TOML, DOTENV), contents, strict=True)
        )

    assert (digest(one) == digest(other)) == (one == other)


def test_an_unusable_file_has_no_digest_and_is_not_trusted(folder: Path) -> None:
    (folder / TOML).write_bytes(b"#" * (MAX_BYTES[TOML] + 1))
    files = read_files(folder, follow_links=True)
    assert compute_digest(files) == ""
    with pytest.raises(ConfigError, match="larger than"):
        accept_settings(folder, files)


# The list of trusted folders


def test_the_list_is_readable_by_its_owner_alone(folder: Path, data_folder: Path) -> None:
    (folder / TOML).write_text('project = "mine"\n')
    trust(folder)
    path = open_trust_store().path
    assert path.is_relative_to(data_folder)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not [
        one.name
        for one in path.parent.iterdir()
        if one.name not in (path.name, f"{path.name}.lock")
    ]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b'"x"', b"{}", b"\xff", b"[" * 50_000),
        b'{"version": 2, "folders": {}}',
        b'{"version": 1, "folders": {"/x": 1}}',
        b'{"version": 1, "folders": {"/x": {"sha256": "", "trusted_at": "2026-01-01T00:00:00+00:00"}}}',
    ],
)
def test_a_damaged_list_trusts_nobody_and_is_left_as_it_is(folder: Path, content: bytes) -> None:
    (folder / TOML).write_text('project = "theirs"\n')
    trust(folder)
    path = open_trust_store().path
    path.write_bytes(content)
    settings, (line,) = load(folder)
    assert settings.project == "" and str(path) in line
    with pytest.raises(ConfigError, match="damaged"):
        trust(folder)
    with pytest.raises(ConfigError, match="damaged"):
        open_trust_store().remove(folder)
    assert path.read_bytes() == content


@pytest.mark.parametrize("answer", ["share", RuntimeError("no home")])
def test_a_user_without_a_home_folder_trusts_no_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str | Exception
) -> None:
    """A relative data folder would be in the current folder, whose author could put a list of
    trusted folders there.
    """

    def user_data_dir(*_: object, **__: object) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer

    (folder / TOML).write_text('project = "theirs"\n')
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    trust(folder)
    (folder / "unspool").rename(folder / "share")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(platformdirs, "user_data_dir", user_data_dir)
    settings, (line,) = load(folder)
    assert settings.project == "" and "absolute" in line
    with pytest.raises(ConfigError, match="absolute"):
        settings.rows()  # a catalog in that folder would not be the user's either


def test_a_list_that_is_a_link_stays_one(folder: Path, tmp_path: Path) -> None:
    (folder / TOML).write_text('project = "mine"\n')
    path = open_trust_store().path
    path.parent.mkdir(parents=True)
    (tmp_path / "dotfiles").mkdir()
    path.symlink_to(tmp_path / "dotfiles" / "trusted.json")
    trust(folder)
    assert path.is_symlink() and load(folder)[0].project == "mine"


def test_a_folder_whose_name_is_not_utf_8_can_be_trusted(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    (folder / TOML).write_text('project = "mine"\n')
    _, (line,) = load(folder)
    assert line.isprintable()
    trust(folder)
    assert load(folder)[0].project == "mine"
    assert open_trust_store().remove(folder)
    assert load(folder)[0].project == ""
