"""Which stored document a model means by a path, and which part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath

from unspool.errors import InputError, NotFoundError, UnknownProjectError
from unspool.interfaces.mcp import addresses, arguments
from unspool.interfaces.mcp.arguments import Place
from unspool.views import View

MAX_PROJECTS = 50  # that are looked through for a path
SHOWN = 20  # names in a message


def located(
    view: View, text: str, *, project: str, home: str, root: Callable[[str], str]
) -> tuple[str, Place]:
    """The project and the place that are meant. `root` tells where a project lies on this machine,
    or nothing.

    With no project named, the one that is usually meant goes first, then any other that holds the
    path, if it is the only one. A path is taken as it is written, then as one of this machine that
    lies in a project; `path:10-20` as lines, then as a path that ends so.
    """
    readings = arguments.readings(text)
    if addresses.parse(text) is not None:
        return _addressed(view, readings)
    first = (
        [project]
        if project
        else [
            name
            for name in dict.fromkeys((home, view.settings.project))
            if name and view.scope.contains(name)
        ]
    )
    for name in first:
        found = _found(view, name, readings, root, is_named=bool(project))
        if found is not None:
            return name, found
    others = (
        [] if project else [name for name in view.projects()[:MAX_PROJECTS] if name not in first]
    )
    holders = [
        (name, found)
        for name in others
        if (found := _found(view, name, readings, root)) is not None
    ]
    if len(holders) > 1:
        raise InputError(
            f"{readings[0].path[:200]!r} is in several projects; name one of: "
            f"{', '.join(name for name, _ in holders[:SHOWN])}"
        )
    if not holders:
        where = f"project {first[0]!r}" if first else "what is indexed"
        raise NotFoundError(
            f"no document {readings[0].path[:200]!r} in {where}; give a path as search names it, "
            f"and its project"
        )
    return holders[0]


def _addressed(view: View, readings: list[Place]) -> tuple[str, Place]:
    """What the address of a resource names, with lines behind it or without. In an address the
    signs before lines are encoded where they are part of a path."""
    parsed = [(addresses.parse(one.path), one) for one in readings]
    named = [
        (address.project, replace(one, path=address.path))
        for address, one in parsed
        if address is not None
    ]
    for project, place in named:
        with suppress(NotFoundError):
            view.document(place.path, project=project)
            return project, place
    return named[0]


def _found(
    view: View,
    project: str,
    readings: list[Place],
    root: Callable[[str], str],
    *,
    is_named: bool = False,
) -> Place | None:
    for reading in readings:
        for path in _spellings(reading.path, project, root):
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


def _spellings(path: str, project: str, root: Callable[[str], str]) -> Iterator[str]:
    """A path as it was given, and as documents are called."""
    yield path
    slashed = path.replace("\\", "/")
    others = [slashed, slashed.lstrip("/")]
    if PurePath(path).is_absolute() and (inner := below(path, root(project))):
        others.append(inner)
    yield from (one for one in dict.fromkeys(others) if one and one != path)


def below(path: str, root: str) -> str:
    """A path of this machine as it is called in what was indexed from `root`; empty where it
    does not lie there.
    """
    return (
        PurePath(path).relative_to(root).as_posix()
        if root and PurePath(path).is_relative_to(root)
        else ""
    )
