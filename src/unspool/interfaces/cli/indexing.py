"""Commands that index and import: index, watch, remember."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unspool import Corpus, IndexReport, Progress
from unspool.errors import InputError, NotFoundError, ServiceError
from unspool.interfaces import terminal
from unspool.interfaces.cli.commands import (
    ADDRESSES,
    NOTHING_FOUND,
    READING,
    Flags,
    command,
    note,
    open_corpus,
    show_result,
)
from unspool.interfaces.cli.places import Place, exists, expand, find_source
from unspool.interfaces.cli.progress import Bar

if TYPE_CHECKING:
    from watchfiles import Change

ALL_FAILED = 3
# Soon after its start `watch` looks for files that changed before the watcher listened.
GAP_MS = 500
STDIN = "-"


@command(
    "index",
    "Index a folder, a file or a git URL",
    examples=(
        "unspool index .",
        "unspool index https://github.com/pallets/click --ref main --project click",
    ),
    takes=(*ADDRESSES, *READING),
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--project",
    "-p",
    metavar="NAME",
    help="Name of the project; by default that of its folder or repository.",
)
@click.option("--ref", default="", metavar="NAME", help="The branch, tag or commit of a git URL.")
@click.option("--skipped", is_flag=True, help="List each file that was left out, and why.")
@click.option("--quiet", "-q", is_flag=True, help="Print only warnings and errors.")
def index(
    flags: Flags,
    as_json: bool,
    sources: tuple[str, ...],
    project: str | None,
    ref: str,
    skipped: bool,
    quiet: bool,
) -> int:
    """Bring projects up to date with each SOURCE: a folder, a file or a git URL. Exit code 3 means
    that every document of a source failed.
    """
    code = 0
    with open_corpus(flags) as corpus:
        otherwise = corpus.settings.project if len(sources) == 1 else ""
        for source in sources:
            origin, name, _ = find_source(corpus, source, project, otherwise=otherwise)
            with Bar(wanted=not quiet) as bar:
                report = corpus.index(origin, project=name, ref=ref, on_progress=bar)
            lines = () if quiet else terminal.render_index_report(report, with_skips=skipped)
            show_result(report, lines, as_json=as_json, skips=skipped)
            code = max(code, _judge(report))
    return code


def _judge(report: IndexReport) -> int:
    """Return the exit code of a run: an error only if every document failed."""
    if not report.failed:
        return 0
    note(
        f"{terminal.pluralize(report.failed, 'document')} of {report.project} failed; `unspool "
        f"documents --status failed` lists the errors",
        kind="warning",
    )
    return 0 if report.added or report.updated or report.unchanged else ALL_FAILED


def refresh(corpus: Corpus, path: str, *, project: str | None = None, otherwise: str = "") -> Place:
    """Index the project of a path, report the counts on stderr, and return the place."""
    source, name, known = find_source(corpus, path, project, otherwise=otherwise)
    with Bar() as bar:
        report = corpus.index(source, project=name, on_progress=bar)
    took = f"{terminal.format_counts(report)} in {report.seconds:.1f} s"
    note(f"{report.project}: {took}", kind="index")
    for message in report.warnings:
        note(message, kind="warning")
    _judge(report)
    return known or Place(project=report.project, root=Path(path), inside="", is_folder=True)


@command(
    "watch",
    "Keep folders up to date as they change",
    examples=("unspool watch .", "unspool watch src docs --debounce-ms 1000"),
    takes=("debounce_ms", *ADDRESSES, *READING),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def watch(flags: Flags, as_json: bool, paths: tuple[str, ...]) -> None:
    """Index each PATH, then keep it up to date as files change, until Ctrl-C. Each refresh prints
    one line.
    """
    with open_corpus(flags) as corpus:
        try:
            roots = [_resolve(path) for path in paths]
            otherwise = corpus.settings.project if len(roots) == 1 else ""
            for root in roots:
                refresh(corpus, str(root), otherwise=otherwise)
            note(f"watching {', '.join(map(str, roots))}; Ctrl-C ends it", kind="watch")
            _follow_changes(corpus, roots, as_json=as_json)
        except KeyboardInterrupt:
            click.echo(err=True)


def _resolve(path: str) -> Path:
    if not exists(path):
        raise NotFoundError(f"no such path: {path}; give a folder or a file that exists")
    return expand(path).resolve()


def _follow_changes(corpus: Corpus, roots: Sequence[Path], *, as_json: bool) -> None:
    from watchfiles import watch as watch_files

    pause = corpus.settings.indexing.debounce_ms
    bursts = watch_files(
        *roots,
        watch_filter=make_filter(corpus.settings.database_address),
        step=pause,
        debounce=10 * pause,
        rust_timeout=max(GAP_MS, 2 * pause),
        yield_on_timeout=True,
    )
    try:
        for number, burst in enumerate(bursts):
            for root in roots:
                # A file may have changed before the watcher listened, so the first burst
                # refreshes every folder.
                if not number or any(Path(changed).is_relative_to(root) for _, changed in burst):
                    _refresh_root(corpus, root, as_json=as_json)
    except OSError as error:
        raise ServiceError(
            f"the folders cannot be watched: {error}; watch fewer, or raise "
            f"fs.inotify.max_user_watches"
        ) from error


def _refresh_root(corpus: Corpus, root: Path, *, as_json: bool) -> None:
    if not root.exists():
        note(f"{root} was deleted; its documents are kept until they are forgotten", kind="warning")
        return
    source, project, _ = find_source(corpus, str(root), None)
    report = corpus.index(source, project=project)
    if report.added or report.updated or report.removed or report.failed:
        took = f"  {terminal.format_counts(report)} in {report.seconds:.2f} s"
        line = [(report.project, terminal.NAME), (took, "")]
        show_result(report, [line], as_json=as_json)


def make_filter(database: str) -> Callable[[Change, str], bool]:
    """Return a filter for a watcher that ignores version control, caches and the catalog.

    Every write to the catalog would wake the watcher again.
    """
    from watchfiles import DefaultFilter

    from unspool.catalog.database import describe_place, get_engine_name

    usual = DefaultFilter()
    if get_engine_name(database) != "sqlite":
        return usual
    catalog = str(Path(describe_place(database)).resolve())

    def is_wanted(change: Change, path: str) -> bool:
        is_catalog = path == catalog or path.startswith((catalog + "-", catalog + "."))
        return usual(change, path) and not is_catalog

    return is_wanted


@command(
    "remember",
    "Import conversations from exports and transcripts",
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
    help="The project of the conversations; by default `conversations`.",
)
def remember(flags: Flags, as_json: bool, files: tuple[str, ...], project: str | None) -> int:
    """Import the conversations of each FILE. '-' reads JSON lines from stdin. Exit code 1 means
    that there were none.

    ChatGPT, Claude and Slack exports, JSON, JSON lines, and transcripts of coding agents are
    recognized by their content. Importing a file again embeds only what is new in it.
    """
    with open_corpus(flags) as corpus, _copy_stdin(files) as paths, Bar() as bar:

        def show_kilobytes(progress: Progress) -> None:
            task, done, total = progress.task, progress.done // 1000, progress.total // 1000
            bar(replace(progress, task=f"{task} (kB)", done=done, total=total))

        report = corpus.remember_files(paths, project=project, on_progress=show_kilobytes)
    names = dict(zip(map(str, paths), files, strict=True))
    bad = tuple(replace(one, source=names.get(one.source, one.source)) for one in report.bad)
    report = replace(report, bad=bad)
    show_result(report, terminal.render_remember_report(report), as_json=as_json)
    if report.added or report.updated or report.unchanged:
        return 0
    note(f"nothing was imported; there is no conversation with a message in {', '.join(files)}")
    return NOTHING_FOUND


@contextmanager
def _copy_stdin(files: Sequence[str]) -> Iterator[list[Path]]:
    """Return the paths of files, with a temporary copy of stdin for '-'.

    An import reads a file twice: first to recognize its format.
    """
    if files.count(STDIN) > 1:
        raise InputError("'-' was given twice; stdin can be read once")
    with tempfile.TemporaryDirectory(prefix="unspool-") as folder:
        spool = Path(folder) / "stdin"
        if STDIN in files:
            with spool.open("wb") as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
        try:
            yield [spool if file == STDIN else expand(file) for file in files]
        except InputError as error:
            raise InputError(str(error).replace(str(spool), "stdin")) from error
