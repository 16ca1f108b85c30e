"""What a search keeps to, as models write it: globs, folders, endings and languages. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import PurePath
from typing import Any

from unspool.chunking.languages import TEXT, language_of
from unspool.errors import InputError
from unspool.interfaces.mcp import arguments, locating

MAX_GLOBS = 50
_BRACES = re.compile(r"\{([^{}]*)\}")
_BETWEEN = re.compile(r",(?![^{}]*\})")  # a comma outside of braces
_WILD = re.compile(r"[*?\[]")
_EVERYTHING = ("", ".")
_ALSO = {  # names that are neither a language's own nor an ending of its files
    "c#": "csharp",
    "f#": "fsharp",
    "golang": "go",
    "shell": "bash",
    "node": "javascript",
    "nodejs": "javascript",
    "objective-c": "objectivec",
    "plaintext": TEXT,
    "txt": TEXT,
}


def paths(text: str, roots: Callable[[], Mapping[str, str]]) -> dict[str, Any]:
    """A filter for globs between commas; `*.{ts,tsx}` is two of them. One without wildcards may
    also name a folder. `roots` tells where each of the projects lies: a path of this machine is
    meant from there, in that project alone."""
    anywhere: list[str] = []
    inside: dict[str, list[str]] = {}
    for one in _written(text):
        path = one.removeprefix("file://")
        lies_in = _lies_in(path, roots()) if PurePath(path).is_absolute() else {}
        for project, inner in lies_in.items():
            inside.setdefault(project, []).extend(_globs(inner))
        if not lies_in:
            anywhere += _globs(path)
    parts = [{"path": anywhere}] if anywhere else []
    parts += [{"project": [project], "path": globs} for project, globs in inside.items()]
    return parts[0] if len(parts) == 1 else {"any": parts} if parts else {}


def _globs(path: str) -> list[str]:
    if path.removeprefix("./").rstrip("/") in _EVERYTHING:
        return ["**"]
    plain = path.replace("[", "[[]")  # brackets stand in names, too
    if _WILD.search(plain.replace("[[]", "")):
        return [path]
    places = [path] if plain == path else [path, plain]
    return (
        places
        if path.endswith("/")
        else [spelled for place in places for spelled in (place, f"{place}/")]
    )


def _lies_in(path: str, roots: Mapping[str, str]) -> dict[str, str]:
    """The projects that hold a path of this machine, each with what it is called there: with a
    slash in front, since a glob that has none is looked for at any depth."""
    found = {project: locating.below(path, root) for project, root in roots.items()}
    return {
        project: f"/{inner}" if inner not in _EVERYTHING else inner
        for project, inner in found.items()
        if inner
    }


def _written(text: str) -> Iterator[str]:
    if len(text) > arguments.MAX_PLACE:
        raise InputError(
            f"path has {len(text)} characters; give globs of at most {arguments.MAX_PLACE} together"
        )
    count = 0
    for part in filter(None, (part.strip() for part in _BETWEEN.split(text))):
        pieces = _BRACES.split(part)
        choices = [
            piece.split(",") if number % 2 else [piece] for number, piece in enumerate(pieces)
        ]
        for combination in product(*choices):
            count += 1
            if count > MAX_GLOBS:
                raise InputError(f"path stands for more than {MAX_GLOBS} globs; give fewer")
            yield "".join(combination)


def endings(text: str) -> dict[str, Any]:
    """A filter for the endings of files: `py`, `.py` and `*.py` are the same."""
    names = [name.lstrip("*.") for name in arguments.names(text)]
    globs = [f"*.{name}" for name in names if name]
    return {"path": globs} if globs else {}


def languages(text: str) -> list[str]:
    """Languages by their names; one that is called by an ending of its files, or as people say
    it, is meant as well as what was written.
    """
    out: list[str] = []
    for name in (name.lower() for name in arguments.names(text)):
        by_ending = language_of(f"x.{name.lstrip('*.')}")
        out += dict.fromkeys((name, _ALSO.get(name) or (by_ending if by_ending != TEXT else name)))
    return out
