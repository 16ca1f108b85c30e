"""Commands that take in: index, watch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unspool.errors import NotFoundError, ServiceError
from unspool.interfaces import render, terminal
from unspool.interfaces.cli.door import ADDRESSES, READING, color, command, note, opened, print_json
from unspool.interfaces.cli.places import Place, exists, source_of
from unspool.interfaces.cli.progress import Bar

if TYPE_CHECKING:
    from watchfiles import Change

    from unspool.corpus import Corpus
    from unspool.domain.reports import IndexReport

ALL_FAILED = 3
# how soon after its start `watch` looks again for what changed before the watcher listened
GAP_MS = 500


@command(
    "index",
    "Take in a folder, a file or a git URL",
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
    help="What the project is called; by default after its folder or repository.",
)
@click.option("--ref", default="", metavar="NAME", help="The branch, tag or commit of a git URL.")
@click.option("--skipped", is_flag=True, help="List each file that was left out, and why.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing unless something went wrong.")
def index(
    flags: dict[str, str | None],
    as_json: bool,
    sources: tuple[str, ...],
    project: str | None,
    ref: str,
    skipped: bool,
    quiet: bool,
) -> int:
    """Bring projects up to date with each SOURCE: a folder, a file or a git URL. Exit code 3
    means that every document of a source failed.
    """
    code = 0
    with opened(flags) as corpus:
        for source in sources:
            origin, name, _ = source_of(
                corpus,
                source,
                project,
                otherwise=corpus.settings.project if len(sources) == 1 else "",
            )
            with Bar(wanted=not quiet) as bar:
                report = corpus.index(origin, project=name, ref=ref, on_progress=bar)
            if as_json:
                print_json(render.index_report(report, with_skips=skipped))
            elif not quiet:
                terminal.Screen(sys.stdout, color=color()).write(
                    terminal.index_report(report, with_skips=skipped)
                )
                sys.stdout.flush()
            code = max(code, _judge(report))
    return code


def _judge(report: IndexReport) -> int:
    """The exit code of a run: some documents may fail, all of them may not."""
    for message in report.warnings:
        note(message, kind="warning")
    if not report.failed:
        return 0
    note(
        f"{report.failed} documents of {report.project} failed; `unspool documents --status "
        f"failed` says why",
        kind="warning",
    )
    return 0 if report.added or report.updated or report.unchanged else ALL_FAILED


def refresh(corpus: Corpus, path: str, *, project: str | None = None, otherwise: str = "") -> Place:
    """Index what a path stands for, say so in one line on stderr, and tell where the path lies."""
    source, name, known = source_of(corpus, path, project, otherwise=otherwise)
    with Bar() as bar:
        report = corpus.index(source, project=name, on_progress=bar)
    note(f"{report.project}: {terminal.counts(report)} in {report.seconds:.1f} s", kind="index")
    _judge(report)
    return known or Place(project=report.project, root=Path(path), inside="", is_folder=True)


@command(
    "watch",
    "Keep folders up to date as they change",
    examples=("unspool watch .", "unspool watch src docs --debounce-ms 1000"),
    takes=("debounce_ms", *ADDRESSES, *READING),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def watch(flags: dict[str, str | None], as_json: bool, paths: tuple[str, ...]) -> int:
    """Index each PATH, then keep it up to date as files change, one line per refresh, until
    Ctrl-C.
    """
    with opened(flags) as corpus:
        try:
            roots = [_existing(path) for path in paths]
            for root in roots:
                refresh(
                    corpus, str(root), otherwise=corpus.settings.project if len(roots) == 1 else ""
                )
            note(f"watching {', '.join(str(root) for root in roots)}; Ctrl-C ends it", kind="watch")
            _follow(corpus, roots, as_json=as_json)
        except KeyboardInterrupt:
            click.echo(err=True)
    return 0


def _existing(path: str) -> Path:
    if not exists(path):
        raise NotFoundError(f"no such path: {path}; give a folder or a file that exists")
    return Path(path).expanduser().resolve()


def _follow(corpus: Corpus, roots: Sequence[Path], *, as_json: bool) -> None:
    from watchfiles import watch as changes_of

    pause = corpus.settings.indexing.debounce_ms
    bursts = changes_of(
        *roots,
        watch_filter=worth_a_look(corpus.settings.database_address),
        step=pause,
        debounce=10 * pause,
        rust_timeout=max(GAP_MS, 2 * pause),
        yield_on_timeout=True,
    )
    first = True
    try:
        for burst in bursts:
            for root in roots:
                # A file may have changed between the first index and the moment the watcher
                # listened, so the first turn looks everywhere.
                if first or any(Path(changed).is_relative_to(root) for _, changed in burst):
                    _again(corpus, root, as_json=as_json)
            first = False
    except OSError as error:
        raise ServiceError(
            f"the folders cannot be watched: {error}; watch fewer, or raise "
            f"fs.inotify.max_user_watches"
        ) from error


def _again(corpus: Corpus, root: Path, *, as_json: bool) -> None:
    if not root.exists():
        note(
            f"{root} is gone; what was indexed from it is kept until it is forgotten",
            kind="warning",
        )
        return
    source, project, _ = source_of(corpus, str(root), None)
    report = corpus.index(source, project=project)
    if not (report.added or report.updated or report.removed or report.failed):
        return
    if as_json:
        print_json(render.index_report(report))
    else:
        line = [
            (report.project, terminal.NAME),
            (f"  {terminal.counts(report)} in {report.seconds:.2f} s", ""),
        ]
        terminal.Screen(sys.stdout, color=color()).write([line])
    sys.stdout.flush()


def worth_a_look(database: str) -> Callable[[Change, str], bool]:
    """What a watcher cares for: not version control and caches, and not the catalog's own files,
    whose every write would wake it again.
    """
    from watchfiles import DefaultFilter

    from unspool.catalog.database import describe_place, get_engine_name

    usual = DefaultFilter()
    if get_engine_name(database) != "sqlite":
        return usual
    catalog = str(Path(describe_place(database)).resolve())

    def wanted(change: Change, path: str) -> bool:
        return (
            usual(change, path)
            and path != catalog
            and not path.startswith((catalog + "-", catalog + "."))
        )

    return wanted
