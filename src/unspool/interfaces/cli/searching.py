"""Commands that find: search, more, related, warm."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

import click

from unspool.errors import InputError
from unspool.interfaces import pages, render, terminal
from unspool.interfaces.cli import conditions
from unspool.interfaces.cli.door import ADDRESSES, READING, color, command, note, opened, print_json
from unspool.interfaces.cli.places import split_line, stored
from unspool.interfaces.cli.progress import Bar
from unspool.interfaces.cli.scopes import NOTHING_FOUND, given_text, narrowed, scope
from unspool.settings.masking import redact_address

if TYPE_CHECKING:
    from unspool.domain.queries import Page


@command(
    "search",
    "Find by meaning and by word",
    examples=(
        'unspool search "how are sessions opened" .',
        "unspool search parse_config --where language=python --limit 5 --json",
    ),
    takes=("limit", "max_tokens", "max_total_tokens", "alpha", *ADDRESSES, *READING),
)
@click.argument("query")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@narrowed
@click.option(
    "--min-score", type=float, metavar="NUMBER", help="Leave out hits with a lower score."
)
@click.option("--explain", is_flag=True, help="Say of each hit why it was found.")
@click.option("--full", is_flag=True, help="Show whole chunks, not only the lines that match.")
def search(
    flags: dict[str, str | None],
    as_json: bool,
    query: str,
    paths: tuple[str, ...],
    projects: tuple[str, ...],
    where: tuple[str, ...],
    whole: str | None,
    language: tuple[str, ...],
    globs: tuple[str, ...],
    kind: tuple[str, ...],
    min_score: float | None,
    explain: bool,
    full: bool,
) -> int:
    """Find what a QUERY means, or the words it holds; PATHs are indexed or refreshed first, and
    '-' reads the query from stdin.
    """
    condition = conditions.combined(where, whole, languages=language, paths=globs, kinds=kind)
    with opened(flags) as corpus:
        names, inside = scope(corpus, paths, projects)
        parts = [part for part in (condition, inside) if part is not None]
        with Bar() as bar:
            page = corpus.search(
                given_text(query),
                projects=names,
                where=conditions.together(parts),
                min_score=min_score,
                explain=explain,
                on_progress=bar,
            )
    return _show(page, flags, as_json=as_json, explained=explain, full=full)


@command(
    "more",
    "Go on where a search stopped",
    examples=(
        "unspool more BjTg3LvnAmi3TFAQ28IKAgo",
        "unspool more BjTg3LvnAmi3TFAQ28IKAgo --limit 20 --json",
    ),
    takes=("limit", "max_tokens", *ADDRESSES),
)
@click.argument("continuation", metavar="CONTINUATION")
@click.option(
    "--restart",
    is_flag=True,
    help="Give the first page again, with a warning, where the continuation has expired.",
)
@click.option("--full", is_flag=True, help="Show whole chunks, not only the lines that match.")
def more(
    flags: dict[str, str | None], as_json: bool, continuation: str, restart: bool, full: bool
) -> int:
    """Show the next page of a search: the CONTINUATION that its last page ended with is all it
    needs, also in another process.
    """
    with opened(flags) as corpus:
        limit = corpus.settings.search.limit if flags.get("limit") is not None else None
        max_tokens = (
            corpus.settings.search.max_tokens if flags.get("max_tokens") is not None else None
        )
        page = corpus.more(continuation, limit=limit, max_tokens=max_tokens, restart=restart)
        explained = any(hit.reason for hit in page.hits)
        return _show(page, flags, as_json=as_json, explained=explained, full=full)


@command(
    "warm",
    "Embed common queries ahead of time",
    examples=("unspool warm queries.txt", "unspool warm - --json"),
)
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"))
def warm(flags: dict[str, str | None], as_json: bool, file: TextIO) -> None:
    """Embed the queries in a FILE, one a line, so that no search has to wait for that; '-' reads
    them from stdin.
    """
    queries = list(dict.fromkeys(line.strip() for line in file if line.strip()))
    if not queries:
        raise InputError("there is no query to warm; give one a line")
    with opened(flags) as corpus, Bar() as bar:
        computed = corpus.warm(queries, on_progress=bar)
    if as_json:
        print_json({"queries": len(queries), "embedded": computed})
        return
    terminal.Screen(sys.stdout, color=color()).write(
        [[(f"{len(queries)} queries are ready, {computed} of them embedded now", "")]]
    )


def addresses(flags: dict[str, str | None]) -> Iterator[str]:
    """The flags that say which corpus is meant, as they were given; an address with a password
    is not repeated.
    """
    for name in ADDRESSES:
        value = flags.get(name)
        if value is not None and redact_address(value) == value:
            yield f"--{name} {shlex.quote(value)}"


def _show(
    page: Page, flags: dict[str, str | None], *, as_json: bool, explained: bool, full: bool
) -> int:
    if as_json:
        print_json(render.page(page, explained=explained))
    else:
        terminal.Screen(sys.stdout, color=color()).write(pages.page(page, full=full))
        sys.stdout.flush()  # before what is said about it
    for message in page.notes:
        note(message)
    for message in page.warnings:
        note(message, kind="warning")
    if page.continuation is not None:
        note(" ".join(["unspool more", page.continuation, *addresses(flags)]), kind="more")
    if page.hits:
        return 0
    if page.number > 1 or page.remaining:
        note("there is nothing more to show")
        return NOTHING_FOUND
    where = f" in {', '.join(page.projects)}" if page.projects else ""
    note(
        f"nothing found{where}; try other words, fewer filters, or `unspool status` to see what "
        f"is indexed"
    )
    return NOTHING_FOUND


@command(
    "related",
    "Find what is like a place in a file",
    examples=(
        "unspool related src/session.py:42",
        "unspool related docs/guide.md --project docs --limit 3 --json",
    ),
    takes=("limit", *ADDRESSES),
)
@click.argument("place", metavar="FILE:LINE")
@click.option("--project", "-p", metavar="NAME", help="The project that holds the file.")
@click.option("--full", is_flag=True, help="Show whole chunks, not only their first lines.")
def related(
    flags: dict[str, str | None], as_json: bool, place: str, project: str | None, full: bool
) -> int:
    """Find what is most like the chunk at a LINE of a FILE, which is a path on this machine or
    one as `documents` lists it.
    """
    text, line = split_line(place)
    with opened(flags) as corpus:
        name, path = stored(corpus, text, project)
        page = corpus.related(path, line, project=name)
    return _show(page, flags, as_json=as_json, explained=False, full=full)
