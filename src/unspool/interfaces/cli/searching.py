"""Commands that search: search, more, related, warm, ask."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TextIO

import click

from unspool import Answer, Corpus, Message, Page
from unspool.errors import InputError, NotFoundError, ServiceError, UnspoolError
from unspool.interfaces import pages, terminal
from unspool.interfaces.cli import conditions
from unspool.interfaces.cli.commands import (
    ADDRESSES,
    NOTHING_FOUND,
    READING,
    Flags,
    add_options,
    command,
    note,
    open_corpus,
    show_result,
)
from unspool.interfaces.cli.indexing import refresh
from unspool.interfaces.cli.places import (
    Place,
    exists,
    find_default_projects,
    find_document,
    find_place,
    split_line,
)
from unspool.interfaces.cli.progress import Bar
from unspool.settings.masking import redact_address

if TYPE_CHECKING:
    from unspool.answering.answer import AnswerStream

# returns the projects to search, and the filter
Select = Callable[[Corpus], tuple[list[str] | None, dict[str, Any] | None]]
LAST_MESSAGES = 20  # of a conversation that a question continues
_SELECTING = (
    click.argument("paths", nargs=-1, metavar="[PATH]..."),
    click.option(
        "--project",
        "-p",
        "projects",
        multiple=True,
        metavar="NAME",
        help="Search this project; give it several times, or '*' for all.",
    ),
    click.option(
        "--where",
        "-w",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Keep only what matches; also !=, >=, <=, >, <, and a,b for any of.",
    ),
    click.option("--filter", "whole", metavar="JSON", help="The whole filter as a JSON object."),
    click.option("--language", multiple=True, metavar="NAME", help="Keep only this language."),
    click.option("--path", "globs", multiple=True, metavar="GLOB", help="Keep only these paths."),
    click.option(
        "--kind", multiple=True, metavar="KIND", help="Keep only code, docs, data or chat."
    ),
)
_FULL = click.option("--full", is_flag=True, help="Show whole chunks, not only the matching lines.")


def select_chunks(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that select the chunks to search. The function gets them as `select`."""

    @wraps(function)
    def run(
        *,
        paths: Sequence[str],
        projects: Sequence[str],
        where: Sequence[str],
        whole: str | None,
        language: Sequence[str],
        globs: Sequence[str],
        kind: Sequence[str],
        **others: Any,
    ) -> int:
        given = conditions.parse_options(where, whole, language=language, path=globs, kind=kind)
        return function(select=partial(_select, paths, projects, given), **others)

    return add_options(run, _SELECTING)


def _select(
    paths: Sequence[str], named: Sequence[str], given: list[dict[str, Any]], corpus: Corpus
) -> tuple[list[str] | None, dict[str, Any] | None]:
    """Index the paths. Return the projects to search, and the filter that keeps to the paths."""
    if not paths:
        return find_default_projects(corpus, named), conditions.join(given)
    if (len(paths) > 1 and named) or len(named) > 1 or "*" in named:
        raise InputError(
            "--project names the one project of one path; leave out the path to search several, "
            "or the project to search several paths"
        )
    otherwise = corpus.settings.project if len(paths) == 1 else ""
    project = named[0] if named else None
    places = [_refresh_path(corpus, path, project, otherwise) for path in paths]
    if any(place.inside for place in places):
        given = [*given, {"any": [place.condition for place in places]}]
    return list(dict.fromkeys(place.project for place in places)), conditions.join(given)


def _refresh_path(corpus: Corpus, path: str, project: str | None, otherwise: str) -> Place:
    """Index a path and return its place.

    If the catalog cannot be written, a path that was indexed before is searched as it was.
    """
    try:
        return refresh(corpus, path, project=project, otherwise=otherwise)
    except ServiceError as error:
        known = find_place(corpus, path) if exists(path) else None
        if known is None or project not in (None, known.project):
            raise
        note(f"{path} is searched as it was indexed before: {error}", kind="warning")
        return known


def _read_query(text: str) -> str:
    """Return the text of a query. '-' reads it from stdin."""
    if text == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\r\n")
    # bytes of another encoding come as surrogates
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@command(
    "search",
    "Search by meaning and keyword",
    examples=(
        'unspool search "how are sessions opened" .',
        "unspool search parse_config --where language=python --limit 5 --json",
    ),
    takes=("limit", "max_tokens", "max_total_tokens", "alpha", *ADDRESSES, *READING),
)
@click.argument("query")
@select_chunks
@click.option(
    "--min-score", type=float, metavar="NUMBER", help="Leave out hits with a lower score."
)
@click.option("--explain", is_flag=True, help="Say of each hit why it was found.")
@_FULL
def search(
    flags: Flags,
    as_json: bool,
    query: str,
    select: Select,
    min_score: float | None,
    explain: bool,
    full: bool,
) -> int:
    """Search for the meaning and the words of a QUERY. Each PATH is indexed or refreshed first.
    '-' reads the query from stdin.
    """
    with open_corpus(flags) as corpus:
        projects, where = select(corpus)
        with Bar() as bar:
            page = corpus.search(
                _read_query(query),
                projects=projects,
                where=where,
                min_score=min_score,
                explain=explain,
                on_progress=bar,
            )
    return _show_page(page, flags, as_json=as_json, explain=explain, full=full)


@command(
    "more",
    "Show the next page of a search",
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
    help="If the continuation has expired, show the first page again, with a warning.",
)
@_FULL
def more(flags: Flags, as_json: bool, continuation: str, restart: bool, full: bool) -> int:
    """Show the next page of a search. The CONTINUATION at the end of the last page is enough, also
    in another process.
    """
    with open_corpus(flags) as corpus:
        sizes = {
            name: corpus.settings.get(name)
            for name in ("limit", "max_tokens")
            if flags[name] is not None
        }
        page = corpus.more(continuation, restart=restart, **sizes)
    explain = any(hit.reason for hit in page.hits)
    return _show_page(page, flags, as_json=as_json, explain=explain, full=full)


@command(
    "related",
    "Find code and text similar to a line of a file",
    examples=(
        "unspool related src/session.py:42",
        "unspool related docs/guide.md --project docs --limit 3 --json",
    ),
    takes=("limit", *ADDRESSES),
)
@click.argument("place", metavar="FILE:LINE")
@click.option("--project", "-p", metavar="NAME", help="The project of the file.")
@_FULL
def show_similar(flags: Flags, as_json: bool, place: str, project: str | None, full: bool) -> int:
    """Find the chunks most similar to the one at a LINE of a FILE. FILE is a path on this machine,
    or one as `documents` lists it.
    """
    text, line = split_line(place)
    with open_corpus(flags) as corpus:
        name, path = find_document(corpus, text, project)
        page = corpus.related(path, line, project=name)
    return _show_page(page, flags, as_json=as_json, explain=False, full=full)


def _show_page(page: Page, flags: Flags, *, as_json: bool, explain: bool, full: bool) -> int:
    nothing = ""
    if not page.hits:
        projects = f" in {', '.join(page.projects)}" if page.projects else ""
        nothing = (
            "there are no more hits"
            if page.number > 1 or page.remaining
            else f"nothing found{projects}; try other words, fewer filters, or `unspool status` to "
            f"list the projects"
        )
    lines = pages.render_page(page, full=full)
    code = show_result(page, lines, as_json=as_json, nothing=nothing, explain=explain)
    if page.continuation is not None:
        note(" ".join(["unspool more", page.continuation, *repeat_addresses(flags)]), kind="more")
    return code


def repeat_addresses(flags: Flags) -> list[str]:
    """Return the flags that selected the corpus. An address with a password is left out."""
    given = [(name, flags.get(name) or "") for name in ADDRESSES]
    safe = [(name, value) for name, value in given if value and redact_address(value) == value]
    return [f"--{name} {shlex.quote(value)}" for name, value in safe]


@command(
    "warm",
    "Embed common queries ahead of time",
    examples=("unspool warm queries.txt", "unspool warm - --json"),
)
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"))
def warm(flags: Flags, as_json: bool, file: TextIO) -> int:
    """Embed the queries in a FILE, one per line, so that no search has to wait for that. '-' reads
    them from stdin.
    """
    queries = list(dict.fromkeys(line.strip() for line in file if line.strip()))
    if not queries:
        raise InputError("there is no query to warm; give one per line")
    with open_corpus(flags) as corpus, Bar() as bar:
        count = corpus.warm(queries, on_progress=bar)
    text = f"{terminal.pluralize(len(queries), 'query', 'queries')} ready, {count} embedded now"
    result = {"queries": len(queries), "embedded": count}
    return show_result(result, [[(text, "")]], as_json=as_json)


@command(
    "ask",
    "Answer a question from what is indexed, with citations",
    examples=(
        'unspool ask "how are sessions opened?" .',
        'unspool ask "who may sign in?" --project docs --limit 5 --json',
    ),
    takes=(
        "limit",
        "answer_model",
        "answer_context_tokens",
        "answer_max_tokens",
        *ADDRESSES,
        *READING,
    ),
)
@click.argument("question")
@select_chunks
@click.option(
    "--conversation",
    metavar="ID",
    help="A stored conversation that the question continues. The model sees its last messages.",
)
def ask(
    flags: Flags, as_json: bool, question: str, select: Select, conversation: str | None
) -> int:
    """Answer a QUESTION from the best hits for it. Each PATH is indexed or refreshed first. '-'
    reads the question from stdin.

    If no model is set, the command shows the context for one.
    """
    with open_corpus(flags) as corpus:
        projects, where = select(corpus)
        messages = () if conversation is None else _find_messages(corpus, conversation, projects)
        with corpus.answering(
            _read_query(question), projects=projects, where=where, conversation=messages
        ) as stream:
            answer = _write_answer(stream, as_json=as_json)
    show_result(answer, pages.render_sources(answer), as_json=as_json)
    return 0 if answer.found else NOTHING_FOUND


def _find_messages(
    corpus: Corpus, conversation: str, projects: Sequence[str] | None
) -> Sequence[Message]:
    """Return the last messages of a conversation in the searched projects or the default one."""
    names = corpus.projects() if projects and "*" in projects else projects or ()
    for project in (*names, None):
        known = corpus.conversations.get(conversation, project=project, last=LAST_MESSAGES)
        if known is not None:
            return known.messages
    raise NotFoundError(
        f"no conversation {conversation!r}; `unspool documents` lists them, --project names the "
        f"project to look in"
    )


def _write_answer(stream: AnswerStream, *, as_json: bool) -> Answer:
    """Write the text of an answer piece by piece, unless it is printed as JSON; return it."""
    last = ""
    try:
        for piece in stream:
            if not as_json:
                last = piece
                terminal.write_text(piece, sys.stdout)
                sys.stdout.flush()
    except (UnspoolError, KeyboardInterrupt):
        if last and not last.endswith("\n"):
            click.echo()  # so that the error begins a line
        raise
    return stream.answer
