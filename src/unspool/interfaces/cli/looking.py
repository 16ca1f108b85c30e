"""Commands that show what is stored: documents, status, stores, history."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from unspool import Corpus, History, HistoryPage, Status
from unspool.domain.history import MAX_PAGE, PAGE
from unspool.errors import InputError, NotFoundError
from unspool.interfaces import terminal
from unspool.interfaces.cli.commands import (
    NOTHING_FOUND,
    Flags,
    command,
    load_settings,
    note,
    open_corpus,
    print_json,
    show,
    show_result,
)
from unspool.interfaces.cli.searching import repeat_addresses
from unspool.settings.masking import redact_address


@command(
    "documents",
    "List the documents",
    examples=("unspool documents --project click", "unspool documents --status failed --json"),
)
@click.option(
    "--project", "-p", metavar="NAME", help="Only documents of this project; by default of all."
)
@click.option(
    "--status",
    type=click.Choice([one.value for one in Status]),
    help="Only documents with this status.",
)
def list_documents(flags: Flags, as_json: bool, project: str | None, status: str | None) -> int:
    """List the record of each document. With --json, print one object per line."""
    with open_corpus(flags) as corpus:
        name = project or corpus.settings.project or None
        records = corpus.documents(project=name, status=status)
    if as_json:
        for record in records:
            print_json(record)
    elif records:
        show(terminal.render_documents(records))
    if not records:
        note("no such documents; `unspool status` lists the projects")
    return 0 if records else NOTHING_FOUND


@command(
    "status",
    "Show the projects and the catalog",
    examples=("unspool status", "unspool status --json"),
)
def show_status(flags: Flags, as_json: bool) -> None:
    """Show every project with its counts, and the place of the catalog."""
    with open_corpus(flags) as corpus:
        projects = corpus.status()
        catalog, size = redact_address(corpus.settings.database_address), corpus.size_bytes()
    totals = {
        "projects": len(projects),
        "documents": sum(sum(one.documents.values()) for one in projects),
        "chunks": sum(one.chunks for one in projects),
        "waiting": sum(one.waiting for one in projects),
    }
    show_result(
        {"catalog": catalog, "size_bytes": size, "projects": projects, "totals": totals},
        terminal.render_status(projects, catalog=catalog, size_bytes=size),
        as_json=as_json,
    )
    if not projects:
        note("nothing is indexed yet; `unspool index PATH` begins")


@command(
    "stores",
    "List the stores of vectors",
    examples=("unspool stores", "unspool stores --json"),
)
def show_stores(flags: Flags, as_json: bool) -> None:
    """List all stores of vectors with their capabilities, the installed driver, and what is missing
    to use each: a package to install, or settings to change. Nothing is opened.
    """
    from unspool.index.stores import list_stores

    settings = load_settings(flags)
    stores = list_stores(settings.vectors, settings.database_address)
    show_result({"stores": stores}, terminal.render_stores(stores), as_json=as_json)


@command(
    "history",
    "Store and show responses, newest first",
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
    help=f"Number of records to show, 1 to {MAX_PAGE}; {PAGE} by default.",
)
@click.option(
    "--offset", type=int, metavar="N", help="Number of newer records to leave out; 0 by default."
)
@click.option(
    "--append",
    "source",
    metavar="FILE",
    help="Add the content of this file as a record; '-' reads stdin.",
)
@click.option("--full", is_flag=True, help="Show whole bodies, also repeated ones.")
@click.option(
    "--project",
    "-p",
    metavar="NAME",
    help="The project of the stream; by default that of the settings, else `default`.",
)
def show_history(
    flags: Flags,
    as_json: bool,
    stream: str | None,
    limit: int | None,
    offset: int | None,
    source: str | None,
    full: bool,
    project: str | None,
) -> int:
    """Show the responses of a STREAM (an endpoint, a job, a tool), newest first, or add one.
    Without STREAM, list all streams.
    """
    is_paged = limit is not None or offset is not None or full
    if stream is None and (is_paged or source is not None):
        raise InputError("no stream was named; `unspool history` by itself lists them")
    if source is not None and is_paged:
        raise InputError(
            "--append stores one record and shows none; leave out --limit, --offset and --full"
        )
    with open_corpus(flags) as corpus:
        if stream is None:
            return _list_streams(corpus, project, as_json=as_json)
        history = corpus.history(stream, project=project)
        if source is not None:
            return _append(history, source, as_json=as_json)
        page = history.page(PAGE if limit is None else limit, offset or 0, full=full)
        count = 0 if page.records else history.count()
    nothing = (
        f"no records with that offset; the stream has {count}"
        if count
        else "no such records; `unspool history` lists the streams"
    )
    code = show_result(
        page,
        terminal.render_history_page(page),
        as_json=as_json,
        nothing="" if page.records else nothing,
    )
    if page.has_more:
        note(_build_next(page, flags, project, full=full), kind="more")
    return code


def _list_streams(corpus: Corpus, project: str | None, *, as_json: bool) -> int:
    found = corpus.streams(project=project or corpus.settings.project or None)
    nothing = "" if found else "no streams yet; `unspool history STREAM --append FILE` begins one"
    lines = terminal.render_streams(found)
    return show_result({"streams": found}, lines, as_json=as_json, nothing=nothing)


def _append(history: History, source: str, *, as_json: bool) -> int:
    record = history.append(_read_bytes(source).decode("utf-8", "replace"))
    text = f"  record {record.number}, {terminal.pluralize(len(record.body), 'character')}"
    line = [(record.stream, terminal.PATH), (text, "")]
    return show_result({"appended": record}, [line], as_json=as_json, report=record)


def _read_bytes(source: str) -> bytes:
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


def _build_next(page: HistoryPage, flags: Flags, project: str | None, *, full: bool) -> str:
    """Return the command that shows the next page."""
    words = ["unspool history", f"--limit {page.limit}", f"--offset {page.next_offset}"]
    words += ["--full"] if full else []
    words += [f"--project {shlex.quote(project)}"] if project is not None else []
    words += repeat_addresses(flags)
    words += ["--"] if page.stream.startswith("-") else []
    return " ".join([*words, shlex.quote(page.stream)])
