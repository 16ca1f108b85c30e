"""The command that takes in conversations: remember."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unspool.errors import InputError
from unspool.interfaces import render, terminal
from unspool.interfaces.cli.door import color, command, note, opened, print_json
from unspool.interfaces.cli.progress import Bar

if TYPE_CHECKING:
    from unspool.domain.reports import Progress, RememberReport

NOTHING_TAKEN_IN = 1
_STDIN = "-"


@command(
    "remember",
    "Take in conversations from exports and transcripts",
    examples=(
        "unspool remember chatgpt-export.zip",
        "unspool remember ~/.claude/projects/boats/session.jsonl --project agents",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--project",
    "-p",
    metavar="NAME",
    help="The project that the conversations go to; by default `conversations`.",
)
def remember(
    flags: dict[str, str | None], as_json: bool, files: tuple[str, ...], project: str | None
) -> int:
    """Take in the conversations of each FILE; '-' reads JSON lines from stdin. Exit code 1 means
    that there were none.

    ChatGPT, Claude and Slack exports, JSON, JSON lines, and transcripts of coding agents are known
    by what is in them. Taking in a file again costs only what is new in it.
    """
    with opened(flags) as corpus, _given(files) as paths, Bar() as bar:

        def show(progress: Progress) -> None:
            bar(
                replace(
                    progress,
                    task=f"{progress.task} (kB)",
                    done=progress.done // 1000,
                    total=progress.total // 1000,
                )
            )

        report = _named(
            corpus.remember_files(paths, project=project, on_progress=show),
            dict(zip(map(str, paths), files, strict=True)),
        )
    if as_json:
        print_json(render.remember_report(report))
    else:
        terminal.Screen(sys.stdout, color=color()).write(terminal.remember_report(report))
    for message in report.warnings:
        note(message, kind="warning")
    if report.added or report.updated or report.unchanged:
        return 0
    note(f"nothing was taken in; there is no conversation with a message in {', '.join(files)}")
    return NOTHING_TAKEN_IN


@contextmanager
def _given(files: Sequence[str]) -> Iterator[list[Path]]:
    """The files as paths.

    What comes from stdin is put into a file for as long, because it is looked at before it is read.
    """
    if files.count(_STDIN) > 1:
        raise InputError("'-' was given twice; stdin can be read once")
    with tempfile.TemporaryDirectory(prefix="unspool-") as folder:
        spool = Path(folder) / "stdin"
        if _STDIN in files:
            with spool.open("wb") as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
        try:
            yield [spool if file == _STDIN else _path(file) for file in files]
        except InputError as error:
            raise InputError(str(error).replace(str(spool), "stdin")) from error


def _path(file: str) -> Path:
    try:
        return Path(file).expanduser()
    except RuntimeError:  # nobody of that name; there may be a file that is called so
        return Path(file)


def _named(report: RememberReport, names: dict[str, str]) -> RememberReport:
    """The report with the names of files as they were given."""
    return replace(
        report,
        bad=tuple(replace(one, source=names.get(one.source, one.source)) for one in report.bad),
    )
