"""Paths on this machine, and the projects and documents that were indexed from them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool import Corpus
from unspool.errors import InputError

_PLACE = re.compile(r"(.+?)(?::(\d{1,9})(?:-\d+)?)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Path in a project. `inside` is the stored path, empty for the root of the project."""

    project: str
    root: Path
    inside: str
    is_folder: bool

    @property
    def condition(self) -> dict[str, Any]:
        """Filter that keeps the chunks at this place."""
        if not self.inside:
            return {"project": self.project}
        if not self.is_folder:
            return {"project": self.project, "document": self.inside}
        return {"project": self.project, "path": re.sub(r"([\[*?])", r"[\1]", self.inside) + "/**"}


def find_place(corpus: Corpus, path: str | Path) -> Place | None:
    """Return the place of an existing path in an indexed project; None if it is in none."""
    wanted = Path(path).expanduser().resolve()
    name = corpus.project_of(wanted)
    if name is None:
        return None
    root = Path(corpus.root_of(name))
    inside = "" if wanted == root else wanted.relative_to(root).as_posix()
    return Place(project=name, root=root, inside=inside, is_folder=wanted.is_dir())


def find_source(
    corpus: Corpus, text: str, project: str | None, *, otherwise: str = ""
) -> tuple[str | Path, str | None, Place | None]:
    """Return the source to index for a path or URL, its project, and its place if it is known.

    A path in an indexed project means that project: another project for a part of it would
    duplicate the documents. `otherwise` names a new project.
    """
    known = find_place(corpus, text) if exists(text) else None
    if known is not None and project in (None, known.project):
        return known.root, known.project, known
    return text, project or otherwise or None, None


def find_default_projects(corpus: Corpus, named: Sequence[str]) -> list[str] | None:
    """Return the projects named, else that of the settings, else that of the current folder.

    None lets the corpus decide.
    """
    if named:
        return list(named)
    if corpus.settings.project:
        return [corpus.settings.project]
    here = corpus.project_of(Path.cwd())
    return [here] if here else None


def find_document(corpus: Corpus, text: str, project: str | None) -> tuple[str | None, str]:
    """Return the project and the stored path of a file on this machine, or of a stored path."""
    _, _, place = find_source(corpus, text, project)
    if place is not None:
        # A project made of a single file stores it under its name.
        return place.project, place.inside or place.root.name
    names = find_default_projects(corpus, [] if project is None else [project])
    return names[0] if names else None, text


def split_line(text: str) -> tuple[str, int]:
    """Return the file and the line of `file:12` or `file:12-20`; line 1 by default."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise InputError("the place is empty; give FILE:LINE")
    return match.group(1), int(match.group(2) or 1)


def exists(text: str) -> bool:
    """Return True if there is such a path on this machine."""
    return os.path.exists(expand(text))  # noqa: PTH110 - a path may raise for a long text


def expand(text: str) -> Path:
    """Return a path without its tilde. An unknown user stays: a file may have such a name."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - a path raises for an unknown user
