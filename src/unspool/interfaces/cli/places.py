"""Which project, and which stored document, a path on this machine stands for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.errors import InputError

if TYPE_CHECKING:
    from unspool.corpus import Corpus

_PLACE = re.compile(r"(.+?)(?::(\d{1,9})(?:-\d+)?)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path inside a project: the project's root, and the stored path under it ('' for the root
    itself).
    """

    project: str
    root: Path
    inside: str
    is_folder: bool

    @property
    def condition(self) -> dict[str, Any]:
        """A filter that keeps what lies at the place."""
        if not self.inside:
            return {"project": self.project}
        if not self.is_folder:
            return {"project": self.project, "document": self.inside}
        return {"project": self.project, "path": re.sub(r"([\[*?])", r"[\1]", self.inside) + "/**"}


def place_of(corpus: Corpus, path: str | Path) -> Place | None:
    """Where an existing path lies in an indexed project; None if it lies in none."""
    wanted = Path(path).expanduser().resolve()
    name = corpus.project_of(wanted)
    if name is None:
        return None
    root = Path(corpus.root_of(name))
    inside = "" if wanted == root else wanted.relative_to(root).as_posix()
    return Place(project=name, root=root, inside=inside, is_folder=wanted.is_dir())


def source_of(
    corpus: Corpus, text: str, project: str | None, *, otherwise: str = ""
) -> tuple[str | Path, str | None, Place | None]:
    """What to index for a path or URL, under which name, and where it lies if it is known.
    `otherwise` names a project that is new.

    A path inside an indexed project stands for that project: a second one for its part would hold
    everything twice.
    """
    known = place_of(corpus, text) if exists(text) else None
    if known is not None and project in (None, known.project):
        return known.root, known.project, known
    return text, project or otherwise or None, None


def default_projects(corpus: Corpus, named: Sequence[str]) -> list[str] | None:
    """The projects a command is about: those named, else the setting's, else that of the current
    folder; None lets the corpus decide.
    """
    if named:
        return list(named)
    if corpus.settings.project:
        return [corpus.settings.project]
    here = corpus.project_of(Path.cwd())
    return [here] if here else None


def stored(corpus: Corpus, text: str, project: str | None) -> tuple[str | None, str]:
    """The project and the stored path that a path means: a file on this machine if it lies in a
    project, else a stored path as it is.
    """
    if exists(text):
        place = place_of(corpus, text)
        if place is not None and project in (None, place.project):
            # A project made of a single file holds it under its name.
            return place.project, place.inside or place.root.name
    if project is None:
        names = default_projects(corpus, ())
        project = names[0] if names else None
    return project, text


def split_line(text: str) -> tuple[str, int]:
    """`file:12` or `file:12-20`, as hits and compilers write it; without a line, the first."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise InputError("the place is empty; give FILE:LINE")
    return match.group(1), int(match.group(2) or 1)


def exists(text: str) -> bool:
    """Whether there is such a path on this machine."""
    try:
        return Path(text).expanduser().exists()
    # too long, a NUL, an unknown ~user: not a path here, perhaps a stored one
    except (OSError, ValueError, RuntimeError):
        return False
