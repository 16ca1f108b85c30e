"""What `search` and `ask` have in common: the text that is looked for, where, and under which
conditions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from unspool.errors import InputError, ServiceError
from unspool.interfaces.cli.door import note
from unspool.interfaces.cli.indexing import refresh
from unspool.interfaces.cli.places import Place, default_projects, exists, place_of

if TYPE_CHECKING:
    from unspool.corpus import Corpus

NOTHING_FOUND = 1
Function = TypeVar("Function", bound=Callable[..., Any])


def narrowed(function: Function) -> Function:
    """A command with the flags that say where to look and what to keep: `projects`, `where`,
    `whole`, `language`, `globs` and `kind`.
    """
    for option in (
        click.option(
            "--kind", multiple=True, metavar="KIND", help="Keep only code, docs, data or chat."
        ),
        click.option(
            "--path", "globs", multiple=True, metavar="GLOB", help="Keep only these paths."
        ),
        click.option("--language", multiple=True, metavar="NAME", help="Keep only this language."),
        click.option(
            "--filter", "whole", metavar="JSON", help="The whole filter as a JSON object."
        ),
        click.option(
            "--where",
            "-w",
            multiple=True,
            metavar="FIELD=VALUE",
            help="Keep only what matches; also !=, >=, <=, >, <, and a,b for any of.",
        ),
        click.option(
            "--project",
            "-p",
            "projects",
            multiple=True,
            metavar="NAME",
            help="Search this project; give it several times, or '*' for all.",
        ),
    ):
        function = option(function)
    return function


def given_text(text: str) -> str:
    """A query as it was given; '-' reads it from stdin."""
    if text == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\r\n")
    # bytes of another encoding come as surrogates
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def scope(
    corpus: Corpus, paths: Sequence[str], named: Sequence[str]
) -> tuple[list[str] | None, dict[str, Any] | None]:
    """Refresh the paths. Return the projects to search, and the filter that keeps to the paths."""
    if not paths:
        return default_projects(corpus, named), None
    if (len(paths) > 1 and named) or len(named) > 1 or "*" in named:
        raise InputError(
            "--project names the one project of one path; leave out the path to search several, "
            "or the project to search several paths"
        )
    otherwise = corpus.settings.project if len(paths) == 1 else ""
    places = [
        _refresh_path(corpus, path, project=named[0] if named else None, otherwise=otherwise)
        for path in paths
    ]
    narrow = any(place.inside for place in places)
    return list(dict.fromkeys(place.project for place in places)), {
        "any": [place.condition for place in places]
    } if narrow else None


def _refresh_path(corpus: Corpus, path: str, *, project: str | None, otherwise: str) -> Place:
    """Index what a path stands for.

    If the catalog cannot be written, a path that was indexed before is searched as it was.
    """
    try:
        return refresh(corpus, path, project=project, otherwise=otherwise)
    except ServiceError as error:
        known = place_of(corpus, path) if exists(path) else None
        if known is None or project not in (None, known.project):
            raise
        note(f"{path} is searched as it was indexed before: {error}", kind="warning")
        return known
