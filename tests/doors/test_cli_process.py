"""The command as a process of its own: what it loads, what it prints where, how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from watchfiles import Change

import unspool
from unspool.domain.reports import Progress
from unspool.interfaces.cli import indexing, progress

UNSPOOL = [sys.executable, "-m", "unspool"]
HEAVY = (
    "numpy",
    "sqlalchemy",
    "alembic",
    "tokenizers",
    "rich",
    "watchfiles",
    "anyio",
    "tree_sitter",
    "platformdirs",
)
DEADLINE_S = 30.0


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UNSPOOL, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, **options
    )  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("arguments", [None, ["--help"], ["--version"], ["search", "--help"]])
def test_importing_and_asking_for_help_load_nothing_heavy(
    database: Path, arguments: list[str] | None
) -> None:
    act = (
        "import unspool"
        if arguments is None
        else (
            f"import runpy; sys.argv[1:] = {arguments!r}; runpy.run_module('unspool', "
            f"run_name='__main__')"
        )
    )
    code = (
        f"import sys, atexit; atexit.register(lambda: print([m for m in {HEAVY!r} if m in "
        f"sys.modules], file=sys.stderr)); {act}"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (result.returncode, result.stderr) == (0, "[]\n")


def test_a_piped_search_does_not_load_rich(small: Path) -> None:
    code = (
        "import sys, runpy, atexit; atexit.register(lambda: print('rich' in sys.modules, "
        "file=sys.stderr));"
        "sys.argv[1:] = ['search', 'open_session']; runpy.run_module('unspool', "
        "run_name='__main__')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (result.returncode, result.stderr) == (0, "False\n")


def test_the_version_is_the_package_s(database: Path) -> None:
    assert run("--version").stdout == f"unspool, version {unspool.__version__}\n"


def test_a_process_prints_hits_on_stdout_without_colour_and_the_rest_on_stderr(
    folder: Path, database: Path
) -> None:
    result = run("search", "open_session", str(folder))
    assert result.returncode == 0
    assert (
        result.stdout.startswith("session.py:1-6  open_session  ") and "\x1b" not in result.stdout
    )
    assert result.stderr.startswith("index: mine: 4 added") and "\x1b" not in result.stderr
    assert run("search", "xylophone", "--alpha", "0").returncode == 1


def test_json_is_the_same_twice_and_utf8_whatever_the_terminal_speaks(
    tmp_path: Path, database: Path
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "größe.md").write_text("# Größe 日本 😀\n", encoding="utf-8")
    run("index", str(tmp_path / "words"))
    command = [*UNSPOOL, "search", "Größe", "--json"]
    first = subprocess.run(command, capture_output=True, timeout=DEADLINE_S)
    latin = subprocess.run(
        command,
        capture_output=True,
        timeout=DEADLINE_S,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert first.stdout == latin.stdout
    assert first.stdout.count(b"\n") == 1
    assert json.loads(first.stdout.decode("utf-8"))["hits"][0]["text"] == "# Größe 日本 😀"
    plain = subprocess.run(
        command[:-1],
        capture_output=True,
        timeout=DEADLINE_S,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert plain.returncode == 0 and "größe.md".encode("latin-1") in plain.stdout


def test_a_terminal_gets_colour_and_no_color_is_obeyed(small: Path) -> None:
    def on_terminal(**environment: str) -> str:
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*UNSPOOL, "search", "open_session"],
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(slave)
        parts = []
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(master)
        assert process.wait(DEADLINE_S) == 0
        return b"".join(parts).decode()

    assert "\x1b[1;33mopen_session\x1b[0m" in on_terminal()
    assert "33m" not in on_terminal(NO_COLOR="1")


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(small: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [*UNSPOOL, "documents"], stdout=writer, stderr=subprocess.PIPE, timeout=DEADLINE_S
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, b"")


def lines_of(stream: IO[str]) -> queue.Queue[str]:
    lines: queue.Queue[str] = queue.Queue()

    def pump() -> None:
        for line in stream:
            lines.put(line)

    threading.Thread(target=pump, daemon=True).start()
    return lines


def wait_for(lines: queue.Queue[str], wanted: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        line = lines.get(timeout=max(0.01, deadline - time.monotonic()))
        if wanted in line:
            return line


@contextmanager
def watching(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], queue.Queue[str]]]:
    process = subprocess.Popen(
        [*UNSPOOL, "watch", *arguments, "--debounce-ms", "50"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        wait_for(lines_of(process.stderr), "watching")
        yield process, lines_of(process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_watch_notices_changes_and_ends_with_0_on_ctrl_c(folder: Path, database: Path) -> None:
    with watching(str(folder)) as (process, lines):
        (folder / "new.md").write_text("# Walrus\n\nIt sleeps.\n")
        assert "mine  1 added, 0 updated, 4 unchanged" in wait_for(lines, "mine")
        (folder / "new.md").unlink()
        assert "1 removed" in wait_for(lines, "mine")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
        assert lines.empty()


def test_watch_prints_no_line_for_what_makes_no_difference(folder: Path, database: Path) -> None:
    with watching(str(folder), "--json") as (process, lines):
        (folder / "guide.md").touch()
        (folder / "new.md").write_text("# Walrus\n")
        assert json.loads(wait_for(lines, "mine"))["added"] == 1
        (folder / "guide.md").touch()
        with pytest.raises(queue.Empty):
            lines.get(timeout=1.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0


def test_watch_is_not_woken_by_its_own_catalog_nor_by_version_control(database: Path) -> None:
    wanted = indexing.make_filter(f"sqlite:///{database}")
    assert wanted(Change.modified, str(database.with_name("notes.md")))
    for name in (
        "unspool.db",
        "unspool.db-wal",
        "unspool.db.derived/p1/lock",
        "unspool.db.clones/x/a.md",
        ".git/index",
    ):
        assert not wanted(Change.modified, str(database.parent / name))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar_waits_a_second_and_shows_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = Progress(task="indexing", done=3, total=10, chunks=40)
    for patience, stream, shown in (
        (60.0, Terminal(), False),
        (0.0, io.StringIO(), False),
        (0.0, Terminal(), True),
    ):
        monkeypatch.setattr(progress, "PATIENCE_S", patience)
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.Bar() as bar:
            bar(Progress(task="scanning", done=1, total=0))
            bar(step)
        assert ("indexing" in stream.getvalue()) is shown


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="there is no /dev/full here; run it on Linux"
)
def test_an_output_that_cannot_be_written_is_no_bug(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "unspool", "settings"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
        )
    assert done.returncode == 3
    assert "the output cannot be written" in done.stderr
