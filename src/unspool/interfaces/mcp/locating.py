"""Which stored document a model means by a path, and which part of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from unspool.domain.keys import Role
from unspool.errors import InputError, NotFoundError, UnknownProjectError
from unspool.interfaces.mcp import addresses
from unspool.interfaces.mcp.arguments import Place, place
from unspool.views import View

MAX_PROJECTS = 50  # that are looked through for a path


def located(view: View, text: str, *, project: str, home: str) -> tuple[str, Place]:
    """The project and the place that are meant.

    With no project named, the one that is usually meant goes first, then any other that holds the path, if it is the only one. A path is taken as
    it is written, then as one of this machine that lies in a project; `path:10-20` as lines, then as a path that ends so.
    """
    address = addresses.parse(text)
    if address is not None:
        return address.project, Place(path=address.path)
    given = place(text)
    readings = [given, Place(path=text.strip())] if given.first else [given]
    first = [project] if project else [name for name in dict.fromkeys((home, view.settings.project)) if name and view.scope.holds(name)]
    for name in first:
        found = _found(view, name, readings, is_named=bool(project))
        if found is not None:
            return name, found
    others = [] if project else [name for name in view.projects()[:MAX_PROJECTS] if name not in first]
    holders = [(name, found) for name in others if (found := _found(view, name, readings)) is not None]
    if len(holders) > 1:
        raise InputError(f"{given.path[:200]!r} is in several projects; name one of: {', '.join(name for name, _ in holders)}")
    if not holders:
        where = f"project {first[0]!r}" if first else "what is indexed"
        raise NotFoundError(f"no document {given.path[:200]!r} in {where}; give a path as search names it, and its project")
    return holders[0]


def _found(view: View, project: str, readings: list[Place], *, is_named: bool = False) -> Place | None:
    for reading in readings:
        for path in _spellings(view, reading.path, project):
            try:
                view.document(path, project=project)
            except UnknownProjectError:
                if is_named:
                    raise
                return None
            except NotFoundError:
                continue
            return Place(path=path, first=reading.first, last=reading.last)
    return None


def _spellings(view: View, path: str, project: str) -> Iterator[str]:
    """A path as it was given, and as documents are called."""
    yield path
    slashed = path.replace("\\", "/")
    others = [slashed, slashed.lstrip("/")]
    if PurePath(path).is_absolute() and view.scope.role.allows(Role.ADMIN):
        roots = [one.root for one in view.status(project=project) if one.root]
        others += [PurePath(path).relative_to(root).as_posix() for root in roots if PurePath(path).is_relative_to(root)]
    yield from (one for one in dict.fromkeys(others) if one and one != path)
