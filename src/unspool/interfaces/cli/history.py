"""The command that keeps and shows responses: history."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unspool.domain.history import MAX_PAGE, PAGE
from unspool.errors import InputError, NotFoundError
from unspool.interfaces import render, terminal
from unspool.interfaces.cli.door import command, note, opened, print_json
from unspool.interfaces.cli.looking import NOTHING_FOUND, show
from unspool.interfaces.cli.searching import addresses

if TYPE_CHECKING:
    from unspool.corpus import Corpus
    from unspool.domain.history import HistoryPage
    from unspool.memory.history import History


@command(
    "history",
    "Keep and show responses, newest first",
    examples=(
        "unspool history 'GET /orders' --limit 3 --offset 2",
        "unspool history 'GET /orders' --append response.json --json",
    ),
)
@click.argument("stream", required=False)
@click.option(
    "--limit",
    "-n",
    type=int,
    metavar="N",
    help=f"How many records to show, 1 to {MAX_PAGE}; {PAGE} by default.",
)
@click.option(
    "--offset", type=int, metavar="N", help="How many newer ones to leave out; none by default."
)
@click.option(
    "--append",
    "source",
    metavar="FILE",
    help="Add what this file holds as a record; '-' reads stdin.",
)
@click.option("--full", is_flag=True, help="Show whole bodies, also those that repeat.")
@click.option(
    "--project",
    "-p",
    metavar="NAME",
    help="The project of the stream; by default the setting's, else `default`.",
)
def history(
    flags: dict[str, str | None],
    as_json: bool,
    stream: str | None,
    limit: int | None,
    offset: int | None,
    source: str | None,
    full: bool,
    project: str | None,
) -> int:
    """Show the responses of a STREAM (an endpoint, a job, a tool), newest first, or add one;
    with no STREAM, list them all.
    """
    paged = limit is not None or offset is not None or full
    if stream is None and (paged or source is not None):
        raise InputError("no stream was named; `unspool history` by itself lists them")
    if source is not None and paged:
        raise InputError(
            "--append stores one record and shows none; leave out --limit, --offset and --full"
        )
    with opened(flags) as corpus:
        if stream is None:
            return _list(corpus, project, as_json=as_json)
        found = corpus.history(stream, project=project)
        if source is not None:
            return _append(found, source, as_json=as_json)
        page = found.page(PAGE if limit is None else limit, offset or 0, full=full)
        kept = found.count() if not page.records else 0
    if as_json:
        print_json(render.history_page(page))
    elif page.records:
        show(terminal.history_page(page))
    sys.stdout.flush()  # before what is said about it
    if page.has_more:
        note(_next(page, flags, project, full=full), kind="more")
    if not page.records:
        note(
            f"nothing that far back; the stream has {kept} records"
            if kept
            else "no such records; `unspool history` lists the streams"
        )
    return 0 if page.records else NOTHING_FOUND


def _list(corpus: Corpus, project: str | None, *, as_json: bool) -> int:
    found = corpus.streams(project=project or corpus.settings.project or None)
    if as_json:
        print_json(render.streams(found))
    elif found:
        show(terminal.streams(found))
    if not found:
        note("no streams yet; `unspool history STREAM --append FILE` begins one")
    return 0 if found else NOTHING_FOUND


def _append(stream: History, source: str, *, as_json: bool) -> int:
    record = stream.append(_bytes(source).decode("utf-8", "replace"))
    if as_json:
        print_json(render.appended(record))
    else:
        show(
            [
                [
                    (record.stream, terminal.PATH),
                    (f"  record {record.number}, {len(record.body)} characters", ""),
                ]
            ]
        )
        for warning in record.warnings:
            note(warning)
    return 0


def _bytes(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except FileNotFoundError:
        raise NotFoundError(
            f"no such file: {source}; give one that exists, or '-' for stdin"
        ) from None
    except (OSError, ValueError) as error:  # a folder, no permission, a NUL in the name
        raise InputError(
            f"{source} cannot be read ({getattr(error, 'strerror', None) or error}); give "
            f"another file, or '-' for stdin"
        ) from None


def _next(
    page: HistoryPage, flags: dict[str, str | None], project: str | None, *, full: bool
) -> str:
    """The command that shows the next page."""
    words = ["unspool history", f"--limit {page.limit}", f"--offset {page.next_offset}"]
    words += ["--full"] if full else []
    words += [f"--project {shlex.quote(project)}"] if project is not None else []
    words += addresses(flags)
    words += ["--"] if page.stream.startswith("-") else []
    return " ".join([*words, shlex.quote(page.stream)])
