"""Copies of repositories, made from bare ones beside them; and that passwords stay out of
everything.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repositories import PASSWORD, commit, git, leading_to, url
from tasks import has_ended
from unspool.domain.documents import check_project
from unspool.domain.reports import Progress
from unspool.errors import (
    ConflictError,
    InputError,
    MissingDependencyError,
    NotFoundError,
    RejectedError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)
from unspool.sources.git import clone, host_of, is_git_url, project_name, redact


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/a/b",
        "http://h/a.git",
        "ssh://git@h/a",
        "git://h/a",
        "git@github.com:a/b.git",
        "file:///srv/a",
        "file:///srv/a.git",
        "HTTPS://h/a",
        "me@h.example:a",
    ],
)
def test_addresses_of_repositories_are_recognised(text: str) -> None:
    assert is_git_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "src/a",
        "/srv/a.git",
        "C:\\code\\a",
        "C:/code/a",
        "a.git",
        "~/a",
        "-oProxy=x",
        "ext::sh -c x",
        "ftp://h/a",
        "host:path",
        "a@b/c:d",
        "https://",
        "notes 12:30",
    ],
)
def test_paths_and_other_things_are_not(text: str) -> None:
    assert not is_git_url(text)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://u:pw@h/a.git", "https://***@h/a.git"),
        ("https://token@h/a.git", "https://***@h/a.git"),
        ("https://u:p@ss@h/a", "https://***@h/a"),
        ("https://u:p/ss@h/a", "https://***@h/a"),
        ("https://h/a?private_token=x", "https://h/a"),
        ("https://h:8443/@scope/a", "https://h:8443/@scope/a"),
        ("ssh://git@h:22/a", "ssh://git@h:22/a"),
        ("ssh://git:pw@h/a", "ssh://***@h/a"),
        ("git@h:a/b.git", "git@h:a/b.git"),
        ("file:///srv/a", "file:///srv/a"),
    ],
)
def test_addresses_are_shown_without_what_is_secret(address: str, shown: str) -> None:
    assert redact(address) == shown


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("https://github.com/a/b.git", "b"),
        ("https://github.com/a/b/", "b"),
        ("git@h:a/b.git", "b"),
        ("git@h:b", "b"),
        ("https://u:pw@h/a?x=y", "a"),
        ("/srv/project/", "project"),
        ("/srv/x.git", "x"),
        ("/", "default"),
        ("/srv/a*b,c", "a-b-c"),
    ],
)
def test_projects_are_named_after_the_last_part(text: str, name: str) -> None:
    assert project_name(text) == name
    check_project(name)


def test_a_path_relative_to_here_is_named_after_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_name(".") == tmp_path.name


def test_a_copy_holds_one_commit_and_follows_its_origin(origin: Path, tmp_path: Path) -> None:
    into = tmp_path / "deep" / "copy"
    assert clone(url(origin), into=into) == into
    assert (into / "a.py").read_text() == "one"
    commit(origin, "b.py", "two", push="HEAD:main")
    (into / "a.py").write_text("changed here")
    (into / "left.txt").write_text("over")
    clone(url(origin), into=into)
    assert ((into / "a.py").read_text(), (into / "b.py").read_text()) == ("one", "two")
    assert not (into / "left.txt").exists()
    assert git(into, "rev-list", "--count", "HEAD") == "1"


def test_rewritten_history_and_removed_files_are_followed(origin: Path, tmp_path: Path) -> None:
    clone(url(origin), into=tmp_path / "copy")
    (origin / "a.py").rename(origin / "c.py")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "--amend", "-m", "other")
    git(origin, "push", "-q", "--force", "../origin.git", "HEAD:main")
    clone(url(origin), into=tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [".git", "c.py"]


def test_branches_tags_and_commits_can_be_asked_for(origin: Path, tmp_path: Path) -> None:
    first = git(origin, "rev-parse", "HEAD")
    git(origin, "tag", "v1")
    git(origin, "checkout", "-q", "-b", "next")
    commit(origin, "b.py", "two")
    git(origin, "push", "-q", "../origin.git", "next", "v1")
    for ref, names in (
        ("next", {"a.py", "b.py"}),
        ("v1", {"a.py"}),
        (first, {"a.py"}),
        ("", {"a.py"}),
    ):
        copy = clone(url(origin), into=tmp_path / "copy", ref=ref)
        assert {path.name for path in copy.iterdir()} - {".git"} == names


@pytest.mark.parametrize("ref", ["-x", "--upload-pack=touch x", "a:b", "a b", "a..b", "a\n"])
def test_what_cannot_be_a_ref_is_refused(origin: Path, tmp_path: Path, ref: str) -> None:
    with pytest.raises(InputError, match="branch, tag or commit"):
        clone(url(origin), into=tmp_path / "copy", ref=ref)


@pytest.mark.parametrize(
    "address", ["-x", "--upload-pack=x", "ext::sh -c touch% x", "/srv/a", "ext::https://h/a"]
)
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError, match="no git address"):
        clone(address, into=tmp_path / "copy")


def test_a_missing_branch_or_repository_is_not_found(origin: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such branch"):
        clone(url(origin), into=tmp_path / "one", ref="nope")
    with pytest.raises(NotFoundError, match="check the address"):
        clone(f"file://{tmp_path}/nowhere.git", into=tmp_path / "two")


def test_a_failed_first_copy_leaves_its_place_to_any_other(origin: Path, tmp_path: Path) -> None:
    for into in (tmp_path / "copy", tmp_path / "made"):
        with pytest.raises(NotFoundError):
            clone(f"file://{tmp_path}/nowhere.git", into=into)
        with pytest.raises(NotFoundError):
            clone(url(origin), into=into, ref="nope")
        assert not into.exists()
        into.mkdir()
        with pytest.raises(NotFoundError):
            clone(url(origin), into=into, ref="nope")
        assert list(into.iterdir()) == []  # it was there before
        clone(url(origin), into=into)
        assert (into / "a.py").exists()


def test_a_later_failure_leaves_the_copy_as_it_was(origin: Path, tmp_path: Path) -> None:
    clone(url(origin), into=tmp_path / "copy")
    with pytest.raises(NotFoundError):
        clone(url(origin), into=tmp_path / "copy", ref="nope")
    assert (tmp_path / "copy" / "a.py").read_text() == "one"


def test_a_folder_with_something_else_is_left_alone(origin: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(ConflictError, match="something else"):
        clone(url(origin), into=mine)
    assert (mine / "thesis.txt").read_text() == "years of work"
    clone(url(origin), into=tmp_path / "copy")
    with pytest.raises(ConflictError):
        clone(f"file://{tmp_path}/other.git", into=tmp_path / "copy")
    with pytest.raises(InputError, match="cannot hold"):
        clone(url(origin), into=mine / "thesis.txt")


def test_an_unreachable_host_is_told_without_the_password(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound but not listening: refused at once
        with pytest.raises(UnreachableError) as caught:
            clone(f"http://alice:{PASSWORD}@127.0.0.1:{port}/a.git", into=tmp_path / "copy")
    assert PASSWORD not in str(caught.value)
    assert "alice" not in str(caught.value)
    assert f"http://***@127.0.0.1:{port}/a.git" in str(caught.value)


@pytest.fixture
def command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with every argument that the git program was given; the git in front of it does
    what it does.
    """
    real, log = shutil.which("git"), tmp_path / "arguments"
    (tmp_path / "bin").mkdir()
    front = tmp_path / "bin" / "git"
    front.write_text(f'#!/bin/sh\nprintf \'%s\\n\' "$@" >> {log}\nexec {real} "$@"\n')
    front.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return log


def test_a_password_is_sent_but_stands_neither_in_the_copy_nor_on_a_command_line(
    password_server: tuple[str, list[str | None]], command_lines: Path, tmp_path: Path
) -> None:
    address, _ = password_server
    copy = clone(f"http://alice:{PASSWORD}@{address}", into=tmp_path / "copy")
    assert (copy / "a.py").read_text() == "one"
    kept = b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file())
    assert b"***@127.0.0.1" in kept
    for secret in (PASSWORD, base64.b64encode(f"alice:{PASSWORD}".encode()).decode()):
        assert secret.encode() not in kept
        assert secret not in command_lines.read_text()
    assert f"http://{address}" in command_lines.read_text()


def test_a_wrong_password_and_none_are_refused(
    password_server: tuple[str, list[str | None]], tmp_path: Path
) -> None:
    address, seen = password_server
    for user in ("alice:wrong" + PASSWORD + "@", "alice@", ""):
        with pytest.raises(RejectedError) as caught:
            clone(f"http://{user}{address}", into=tmp_path / "copy")
        assert PASSWORD not in str(caught.value)
    assert set(seen) == {
        None,
        "Basic " + base64.b64encode(f"alice:wrong{PASSWORD}".encode()).decode(),
    }


def test_a_password_goes_to_no_other_host(
    password_server: tuple[str, list[str | None]], tmp_path: Path
) -> None:
    address, seen = password_server
    with leading_to(address) as elsewhere, pytest.raises(RejectedError):
        clone(f"http://alice:{PASSWORD}@{elsewhere}", into=tmp_path / "copy")
    assert set(seen) == {None}


def test_nothing_is_asked_of_another_host_where_that_is_not_wanted(
    password_server: tuple[str, list[str | None]], tmp_path: Path
) -> None:
    address, seen = password_server
    with leading_to(address) as elsewhere, pytest.raises(UnspoolError):
        clone(f"http://{elsewhere}", into=tmp_path / "copy", redirects=False)
    assert seen == []


def test_a_silent_host_runs_into_the_time_limit(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        start = time.monotonic()
        with pytest.raises(ServiceTimeoutError, match=r"within 0\.5 s"):
            clone(
                f"git://127.0.0.1:{server.getsockname()[1]}/a.git",
                into=tmp_path / "copy",
                timeout_s=0.5,
            )
    assert time.monotonic() - start < 5


class LeftError(BaseException):
    """What leads a job out of its work is no `Exception` either."""


def test_whoever_does_not_wait_any_more_ends_a_fetch_that_hangs_and_its_helpers(
    tmp_path: Path, command_lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "git").write_text(
        f"#!/bin/sh\nsleep 600 & echo $! >> {tmp_path}/helpers; echo $$ >> {tmp_path}/helpers; "
        f"wait\n"
    )
    told = []

    def tell(progress: Progress) -> None:
        told.append(progress.task)
        if (tmp_path / "helpers").exists() and len((tmp_path / "helpers").read_text().split()) == 2:
            raise LeftError

    with pytest.raises(LeftError):
        clone("https://h.invalid/a.git", into=tmp_path / "copy", on_progress=tell)
    assert set(told) == {"fetching"}
    assert not (tmp_path / "copy").exists()
    for process in (tmp_path / "helpers").read_text().split():
        assert has_ended(int(process))


def test_git_does_not_outlive_a_process_that_ends_while_it_fetches(
    tmp_path: Path, command_lines: Path
) -> None:
    (tmp_path / "bin" / "git").write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600\n"
    )
    program = (
        "import threading, time, pathlib\n"
        "from unspool.sources.git import clone\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "threading.Thread(target=clone, args=('https://h.invalid/a.git',), kwargs={'into': "
        "folder / 'copy'}, daemon=True).start()\n"
        "while not (folder / 'pid').exists(): time.sleep(0.01)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, stderr=subprocess.DEVNULL
    )
    assert has_ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://GitHub.com/a/b", "github.com"),
        ("https://u:p@h.example:8443/a", "h.example"),
        ("https://good.example@evil.example/a", "evil.example"),
        ("https://u:p/good.example@evil.example/a", "evil.example"),
        ("https://h.example./a", "h.example"),
        ("http://[::1]:80/a", "::1"),
        ("ssh://git@h:22/a", "h"),
        ("git@h.example:a/b.git", "h.example"),
        ("git@h:a@good.example:b", "h"),
        ("file:///srv/a", ""),
    ],
)
def test_the_host_of_an_address_is_the_one_that_git_asks(address: str, host: str) -> None:
    assert host_of(address) == host


def test_without_git_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="install"):
        clone("https://h/a.git", into=tmp_path / "copy")


def test_hooks_and_settings_of_the_caller_do_not_run(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    (tmp_path / "config").write_text(
        f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {tmp_path}\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_DIR", str(origin / ".git"))  # as inside a git hook
    clone(url(origin), into=tmp_path / "copy")
    assert (tmp_path / "copy" / "a.py").exists()
    assert not (tmp_path / "ran").exists()
    assert os.environ["GIT_DIR"] == str(origin / ".git")
