"""Git on repositories that nobody has reviewed: no configured program runs, and the user's
authentication still works.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from repositories import PASSWORD, commit, git, leading_to, url
from support import open_corpus
from unspool.errors import ConflictError, RejectedError, UnspoolError
from unspool.sources.git import clone


class Trap:
    """A program that leaves a mark when it runs."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "ran"
        self.program = folder / "trap"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.mark}\ncat\n')
        self.program.chmod(0o755)

    @property
    def has_run(self) -> bool:
        return self.mark.exists()


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def user_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's git configuration, which is empty at first."""
    path = tmp_path / "gitconfig"
    path.touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(path))
    return path


def hook_folder(folder: Path, trap: Trap) -> Path:
    """Make a folder with a hook for every event."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-auto-gc",
        "fsmonitor-watchman",
    ):
        shutil.copy(trap.program, folder / name)
    return folder


PROGRAMS = {
    "a smudge filter": '[filter "x"]\n\tsmudge = {0}\n\tclean = {0}\n\trequired\n',
    "a filter process": '[filter "x"]\n\tprocess = {0}\n\trequired = true\n',
    "large files": '[filter "lfs"]\n\tsmudge = {0}\n\tclean = {0}\n\tprocess = {0}\n\trequired = true\n',
    "a file system monitor": "[core]\n\tfsmonitor = {0}\n",
    "hooks": "[core]\n\thooksPath = {1}\n",
    "a template with hooks": "[init]\n\ttemplateDir = {1}\n",
    "diff drivers": (
        '[diff]\n\texternal = {0}\n[diff "x"]\n\ttextconv = {0}\n\tcommand = {0}\n[merge "x"]\n'
        "\tdriver = {0}\n"
    ),
    "an editor and a pager": "[core]\n\tpager = {0}\n\teditor = {0}\n[pager]\n\tfetch = true\n\tconfig = true\n",
    "aliases": '[alias]\n\tfetch = "!{0}"\n\treset = "!{0}"\n\tconfig = "!{0}"\n',
    "a hook for packs": "[uploadpack]\n\tpackObjectsHook = {0}\n",
    "alternate references": "[core]\n\talternateRefsCommand = {0}\n",
    "a proxy program": "[core]\n\tgitProxy = {0}\n",
}


def attack_files(work: Path) -> None:
    """Publish a commit whose attributes ask for every driver."""
    commit(
        work,
        ".gitattributes",
        "* filter=x diff=x merge=x\n*.bin filter=lfs diff=lfs merge=lfs -text\n",
    )
    commit(work, "a.bin", "version https://git-lfs.github.com/spec/v1\n", push="HEAD:main")


@pytest.mark.parametrize("content", PROGRAMS.values(), ids=PROGRAMS)
def test_no_program_of_the_users_configuration_runs(
    origin: Path, tmp_path: Path, trap: Trap, user_config: Path, content: str
) -> None:
    attack_files(origin)
    user_config.write_text(content.format(trap.program, hook_folder(tmp_path / "hooks", trap)))
    for _ in range(2):  # a new copy, and one that exists
        copy = clone(url(origin), into=tmp_path / "copy")
        assert (copy / "a.py").read_text() == "one" and "git-lfs" in (copy / "a.bin").read_text()
        (copy / "a.py").write_text("changed")
    assert not trap.has_run


LOCAL = PROGRAMS | {
    "an ssh command": "[core]\n\tsshCommand = {0}\n",
    "a credential helper": "[credential]\n\thelper = {0}\n",
    "another address": (
        '[url "ext::{0} "]\n\tinsteadOf = file://\n[protocol]\n\tallow = always\n[protocol '
        '"ext"]\n\tallow = always\n'
    ),
    "an included file": "[include]\n\tpath = {2}\n",
    "the worktree's settings": "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n",
    "a remote": '[remote "{3}"]\n\turl = ext::{0}\n\tuploadpack = {0}\n\tvcs = ext\n',
    "a promisor": (
        '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = x\n[remote "x"]\n'
        "\turl = ext::{0}\n\tpromisor = true\n"
    ),
}


@pytest.mark.parametrize("content", LOCAL.values(), ids=LOCAL)
def test_no_program_of_a_copys_own_configuration_runs(
    origin: Path, tmp_path: Path, trap: Trap, user_config: Path, content: str
) -> None:
    """Somebody else may have written the folder: it lies beside a catalog that came with a
    repository.
    """
    copy = clone(url(origin), into=tmp_path / "copy")
    attack_files(origin)
    (tmp_path / "included").write_text(f"[core]\n\tfsmonitor = {trap.program}\n")
    (copy / ".git" / "config.worktree").write_text(f"[core]\n\tfsmonitor = {trap.program}\n")
    (copy / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (copy / ".git" / "objects" / "info" / "alternates").write_text(f"{origin}/.git/objects\n")
    hooks = hook_folder(copy / ".git" / "hooks", trap)
    with (copy / ".git" / "config").open("a") as file:
        file.write(content.format(trap.program, hooks, tmp_path / "included", url(origin)))
    (copy / "a.py").write_text("changed")
    clone(url(origin), into=copy)
    assert (copy / "a.py").read_text() == "one" and (copy / "a.bin").exists()
    assert not trap.has_run


@pytest.mark.parametrize("content", LOCAL.values(), ids=LOCAL)
def test_no_program_of_a_local_repositorys_configuration_runs(
    origin: Path, tmp_path: Path, trap: Trap, user_config: Path, content: str
) -> None:
    """A `file://` address leads to a repository whose `.git/config` anybody may have written."""
    attack_files(origin)
    hooks = hook_folder(origin / ".git" / "hooks", trap)
    with (origin / ".git" / "config").open("a") as file:
        file.write(content.format(trap.program, hooks, tmp_path / "nowhere", url(origin)))
    clone(f"file://{origin}", into=tmp_path / "copy")
    assert not trap.has_run


@pytest.mark.parametrize("redirect", ["core.worktree", "commondir"])
def test_a_copy_cannot_lead_git_to_another_folder(
    origin: Path, tmp_path: Path, redirect: str, user_config: Path
) -> None:
    copy = clone(url(origin), into=tmp_path / "copy")
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", "other")
    (other / "thesis.txt").write_text("years of work")
    (other / "a.py").write_text("mine")
    before = (other / ".git" / "config").read_bytes()
    if redirect == "commondir":
        (copy / ".git" / "commondir").write_text(f"{other}/.git\n")
    else:
        git(copy, "config", "core.worktree", str(other))
    clone(url(origin), into=copy)
    assert ((other / "thesis.txt").read_text(), (other / "a.py").read_text()) == (
        "years of work",
        "mine",
    )
    assert (other / ".git" / "config").read_bytes() == before
    assert not (other / ".git" / "FETCH_HEAD").exists()


@pytest.mark.parametrize("name", [".git", ".git/FETCH_HEAD", ".git/objects"])
def test_a_copy_with_links_to_other_folders_is_left_alone(
    origin: Path, tmp_path: Path, name: str, user_config: Path
) -> None:
    copy = clone(url(origin), into=tmp_path / "copy")
    (copy / name).rename(tmp_path / "moved")
    (copy / name).symlink_to(tmp_path / "moved")
    with pytest.raises(ConflictError):
        clone(url(origin), into=copy)


@pytest.mark.parametrize(
    "variables",
    [
        {
            "GIT_EXTERNAL_DIFF": "{0}",
            "GIT_EDITOR": "{0}",
            "GIT_PAGER": "{0}",
            "GIT_SEQUENCE_EDITOR": "{0}",
        },
        {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.fsmonitor",
            "GIT_CONFIG_VALUE_0": "{0}",
        },
        {"GIT_CONFIG_PARAMETERS": "'core.fsmonitor'='{0}'"},
        {"GIT_TEMPLATE_DIR": "{1}"},
        {
            "GIT_DIR": "{2}/.git",
            "GIT_WORK_TREE": "{2}",
            "GIT_INDEX_FILE": "{2}/index",
            "GIT_OBJECT_DIRECTORY": "{2}/.git/objects",
        },
        {"GIT_DEFAULT_HASH": "sha256", "GIT_DEFAULT_REF_FORMAT": "reftable"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_variables_of_the_caller_do_not_change_what_runs(
    origin: Path,
    tmp_path: Path,
    trap: Trap,
    user_config: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
) -> None:
    hooks = hook_folder(tmp_path / "template" / "hooks", trap).parent
    (tmp_path / "mine").mkdir()
    git(tmp_path / "mine", "init", "-q")
    (tmp_path / "mine" / "a.py").write_text("mine")
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(trap.program, hooks, tmp_path / "mine"))
    for _ in range(2):
        assert (clone(url(origin), into=tmp_path / "copy") / "a.py").read_text() == "one"
    assert not trap.has_run
    assert (tmp_path / "mine" / "a.py").read_text() == "mine"


def test_indexing_a_folder_runs_no_git_at_all(
    tmp_path: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f"[core]\n\tfsmonitor = {trap.program}\n")
    (folder / "a.md").write_text("# Walrus\n")
    (tmp_path / "bin").mkdir()
    shutil.copy(trap.program, tmp_path / "bin" / "git")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with open_corpus(tmp_path / "catalog.db") as corpus:
        assert corpus.index(folder).added == 1
    assert not trap.has_run


# Authentication


@pytest.fixture
def helper(tmp_path: Path) -> Path:
    """A credential helper that knows the password."""
    path = tmp_path / "helper"
    path.write_text(
        f'#!/bin/sh\n[ "$1" = get ] && printf "username=alice\\npassword={PASSWORD}\\n"\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("variable", ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"])
def test_a_credential_helper_of_the_user_or_the_machine_is_asked(
    password_server: tuple[str, list[str | None]],
    tmp_path: Path,
    user_config: Path,
    helper: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    (tmp_path / "included").write_text(f"[credential]\n\thelper = {helper}\n")
    (tmp_path / "config").write_text(f"[include]\n\tpath = {tmp_path}/included\n")
    monkeypatch.setenv(variable, str(tmp_path / "config"))
    assert (clone(f"http://{password_server[0]}", into=tmp_path / "copy") / "a.py").exists()


def test_headers_and_rewritten_addresses_of_the_user_are_used(
    password_server: tuple[str, list[str | None]],
    tmp_path: Path,
    user_config: Path,
) -> None:
    host, name = password_server[0].split("/")
    header = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    user_config.write_text(
        f'[http "http://{host}/"]\n\textraHeader = Authorization: Basic {header}\n[url '
        f'"http://{host}/"]\n\tinsteadOf = https://git.invalid/\n'
    )
    assert (clone(f"https://git.invalid/{name}", into=tmp_path / "copy") / "a.py").exists()
    assert header.encode() not in b"".join(
        path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()
    )


def test_nobody_is_asked_for_a_password(
    password_server: tuple[str, list[str | None]],
    tmp_path: Path,
    trap: Trap,
    user_config: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user_config.write_text(f"[core]\n\taskPass = {trap.program}\n")
    monkeypatch.setenv("GIT_ASKPASS", str(trap.program))
    monkeypatch.setenv("SSH_ASKPASS", str(trap.program))
    monkeypatch.setenv("DISPLAY", ":0")
    with pytest.raises(RejectedError):
        clone(f"http://{password_server[0]}", into=tmp_path / "copy")
    assert not trap.has_run


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[Path]:
    """A program called ssh that runs the command on this machine, and writes its arguments to a
    file beside it.
    """
    folder = tmp_path / "ssh-bin"
    folder.mkdir()
    program = folder / "ssh"
    program.write_text('#!/bin/sh\necho "$*" >> "$0.log"\nfor last; do :; done\neval "$last"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("way", ["path", "configuration", "variable"])
def test_the_users_own_ssh_is_used_without_questions(
    origin: Path,
    tmp_path: Path,
    ssh: Path,
    user_config: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    if way == "path":
        monkeypatch.setenv("PATH", f"{ssh.parent}{os.pathsep}{os.environ['PATH']}")
    elif way == "configuration":
        user_config.write_text(f"[core]\n\tsshCommand = {ssh} -i mine\n")
    else:
        monkeypatch.setenv("GIT_SSH_COMMAND", f"{ssh} -i mine")
    copy = clone(f"ssh://git@h.invalid{origin.parent}/origin.git", into=tmp_path / "copy")
    assert (copy / "a.py").exists()
    assert ("BatchMode=yes" if way == "path" else "-i mine") in Path(f"{ssh}.log").read_text()


def test_a_copys_own_ssh_command_and_credential_helper_do_not_run(
    origin: Path,
    password_server: tuple[str, list[str | None]],
    tmp_path: Path,
    trap: Trap,
    ssh: Path,
    helper: Path,
    user_config: Path,
) -> None:
    user_config.write_text(f"[core]\n\tsshCommand = {ssh}\n[credential]\n\thelper = {helper}\n")
    by_ssh, by_http = (
        f"ssh://git@h.invalid{origin.parent}/origin.git",
        f"http://{password_server[0]}",
    )
    for number, address in enumerate((by_ssh, by_http)):
        copy = clone(address, into=tmp_path / f"copy{number}")
        with (copy / ".git" / "config").open("a") as file:
            file.write(
                f"[core]\n\tsshCommand = {trap.program}\n[credential]\n\thelper =\n\thelper = "
                f"{trap.program}\n"
            )
        clone(address, into=copy)
    assert not trap.has_run


def test_a_protocol_that_the_user_forbids_stays_forbidden(
    password_server: tuple[str, list[str | None]],
    tmp_path: Path,
    user_config: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = f"http://alice:{PASSWORD}@{password_server[0]}"
    user_config.write_text('[protocol "http"]\n\tallow = never\n')
    with pytest.raises(UnspoolError, match="not allowed"):
        clone(address, into=tmp_path / "copy")
    user_config.write_text("")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "https:ext")
    with pytest.raises(UnspoolError, match="not allowed"):
        clone(address, into=tmp_path / "copy")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "http:https")
    assert (clone(address, into=tmp_path / "copy") / "a.py").exists()


def test_a_redirect_that_is_forbidden_stays_forbidden_whatever_the_user_configured(
    password_server: tuple[str, list[str | None]],
    tmp_path: Path,
    user_config: Path,
) -> None:
    with leading_to(password_server[0]) as elsewhere:
        user_config.write_text(f'[http "http://{elsewhere}"]\n\tfollowRedirects = true\n')
        with pytest.raises(UnspoolError):
            clone(f"http://{elsewhere}", into=tmp_path / "copy", redirects=False)
    assert password_server[1] == []


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can give a folder to another user; run as root",
)
def test_a_repository_of_another_user_needs_the_users_own_exception(
    origin: Path, tmp_path: Path, user_config: Path
) -> None:
    subprocess.run(["chown", "-R", "12345", str(origin.parent / "origin.git")], check=True)
    with pytest.raises(UnspoolError):
        clone(url(origin), into=tmp_path / "copy")
    user_config.write_text(f"[safe]\n\tdirectory = {origin.parent}/origin.git\n")
    assert (clone(url(origin), into=tmp_path / "copy") / "a.py").exists()
