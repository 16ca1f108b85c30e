"""Search conditions as models write them: globs, folders, file extensions and languages. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import PurePath
from typing import Any

from unspool.chunking.languages import TEXT, language_of
from unspool.errors import InputError
from unspool.interfaces.mcp.arguments import split_names
from unspool.interfaces.mcp.places import MAX_LENGTH, strip_root

NAMES = ("path", "extensions", "kind", "language")
MAX_GLOBS = 50
_BRACES = re.compile(r"\{([^{}]*)\}")
_SEPARATOR = re.compile(r",(?![^{}]*\})")  # a comma outside of braces
_ROOT = ("", ".")
_LANGUAGES = {  # common names that are neither a language's own nor an extension of its files
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


def build_filter(
    conditions: Mapping[str, str], list_roots: Callable[[], Mapping[str, str]]
) -> dict[str, Any]:
    """Return the filter for the conditions of `NAMES`.

    `list_roots` returns the folder of each project. An absolute path is taken relative to it.
    """
    extensions = [name.lstrip("*.") for name in split_names(conditions.get("extensions", ""))]
    globs = [f"*.{name}" for name in extensions if name]
    paths = _filter_paths(conditions.get("path", ""), list_roots)
    found = {
        "all": [part for part in (paths, {"path": globs} if globs else {}) if part],
        "kind": [name.lower() for name in split_names(conditions.get("kind", ""))],
        "language": resolve_languages(conditions.get("language", "")),
    }
    return {field: values for field, values in found.items() if values}


def resolve_languages(text: str) -> list[str]:
    """Return each language as written, and the one that it is another name or extension of."""
    found: list[str] = []
    for name in split_names(text.lower()):
        by_extension = language_of(f"x.{name.lstrip('*.')}")
        default = by_extension if by_extension != TEXT else name
        found += dict.fromkeys((name, _LANGUAGES.get(name, default)))
    return found


def _filter_paths(text: str, list_roots: Callable[[], Mapping[str, str]]) -> dict[str, Any]:
    """Return a filter for globs and folders between commas.

    An absolute path is looked for in the projects whose folders contain it.
    """
    anywhere: list[str] = []
    by_project: dict[str, list[str]] = {}
    for written in _expand_braces(text):
        path = written.removeprefix("file://")
        roots = list_roots() if PurePath(path).is_absolute() else {}
        inner = {project: strip_root(path, root) for project, root in roots.items()}
        if not any(inner.values()):
            anywhere += _list_globs(path)
        for project, relative in inner.items():
            if relative:
                # Without a slash in front, a glob matches at any depth.
                anchored = relative if relative in _ROOT else f"/{relative}"
                by_project.setdefault(project, []).extend(_list_globs(anchored))
    parts = [{"path": anywhere}] if anywhere else []
    parts += [{"project": [project], "path": globs} for project, globs in by_project.items()]
    return {"any": parts} if len(parts) > 1 else parts[0] if parts else {}


def _list_globs(path: str) -> list[str]:
    """Return the globs for a path, which may be a glob, a file or a folder."""
    if path.removeprefix("./").rstrip("/") in _ROOT:
        return ["**"]
    if "*" in path or "?" in path:
        return [path]
    names = dict.fromkeys((path, path.replace("[", "[[]")))  # names may contain brackets
    return (
        list(names)
        if path.endswith("/")
        else [f"{name}{end}" for name in names for end in ("", "/")]
    )


def _expand_braces(text: str) -> Iterator[str]:
    """Yield the globs between commas. `*.{ts,tsx}` is two of them."""
    if len(text) > MAX_LENGTH:
        raise InputError(
            f"path has {len(text)} characters; give globs of at most {MAX_LENGTH} together"
        )
    count = 0
    for part in filter(None, map(str.strip, _SEPARATOR.split(text))):
        pieces = _BRACES.split(part)  # every second piece was in braces
        choices = [piece.split(",") if i % 2 else [piece] for i, piece in enumerate(pieces)]
        for combination in product(*choices):
            count += 1
            if count > MAX_GLOBS:
                raise InputError(f"path contains more than {MAX_GLOBS} globs; give fewer")
            yield "".join(combination)
