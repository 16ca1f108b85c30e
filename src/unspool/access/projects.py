"""Selection of projects by name, by path, or by default."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, projects, spaces
from unspool.domain.documents import MAX_NAME_LENGTH, usable_name
from unspool.domain.keys import EVERY_PROJECT
from unspool.errors import AmbiguousError, InputError, NotFoundError, UnknownProjectError
from unspool.sources.folders import storable

SHOWN = 20  # names in a message


def find_project(connection: Connection, name: str) -> projects.ProjectRow:
    """Return the project of that name. An `UnknownProjectError` lists the existing ones."""
    row = projects.find_project(connection, name)
    if row is None:
        raise build_unknown_error(name, [row.name for row in projects.list_projects(connection)])
    return row


def build_unknown_error(name: str, known: Sequence[str]) -> UnknownProjectError:
    """Return the error for a project that does not exist for the caller."""
    hint = f"there are: {', '.join(known[:SHOWN])}" if known else "nothing is indexed yet"
    return UnknownProjectError(f"no project {name[:MAX_NAME_LENGTH]!r}; {hint}", project=name)


def describe_missing(names: Sequence[str], known: Collection[str]) -> str:
    """Return a warning about allowed projects that do not exist, or an empty text."""
    missing = [repr(name) for name in dict.fromkeys(names) if name not in known][:SHOWN]
    if not missing:
        return ""
    return (
        f"there is no project {', '.join(missing)} yet; it becomes visible as soon as it is indexed"
    )


def resolve_projects(
    catalog: Catalog, names: Sequence[str] | str | None
) -> tuple[list[projects.ProjectRow], int | None]:
    """Return the projects of a search, and the id of the active vector space.

    None selects the only project, and '*' all of them, by name.
    """
    if isinstance(names, str):
        names = [names]
    if names is not None and not names:
        raise InputError("the list of projects is empty; name at least one, or '*' for all")
    with catalog.read() as connection:
        active = spaces.find_active_id(connection)
        if names is None or EVERY_PROJECT in names:
            rows = projects.list_projects(connection)
        else:
            rows = [find_project(connection, name) for name in dict.fromkeys(names)]
    return select_default(rows) if names is None else rows, active


def select_default(rows: list[projects.ProjectRow]) -> list[projects.ProjectRow]:
    """Return the only project of a search that names none. No project gives an empty list."""
    if len(rows) > 1:
        # a project with nothing but responses has nothing to find
        rows = [row for row in rows if row.seq] or rows
    if len(rows) > 1:
        shown = ", ".join(row.name for row in rows[:SHOWN])
        raise AmbiguousError(
            f"there are {len(rows)} projects and none was named; name one or more of: {shown}; "
            f"or '*' for all (--project on the command line)"
        )
    return rows


def require_one(rows: list[projects.ProjectRow], task: str) -> projects.ProjectRow:
    """Return the single project of a task."""
    if not rows:
        raise NotFoundError(f"{task} needs one project; nothing is indexed yet")
    if len(rows) > 1:
        raise AmbiguousError(f"{task} needs one project; name it")
    return rows[0]


def find_by_path(catalog: Catalog, path: str | Path) -> str | None:
    """Return the project that was indexed from a path or the nearest folder above it."""
    resolved = Path(path).expanduser().resolve()
    with catalog.read() as connection:
        names = {row.root: row.name for row in projects.list_projects(connection) if row.root}
    roots = (storable(str(folder)) for folder in (resolved, *resolved.parents))
    return next((names[root] for root in roots if root in names), None)


def choose_name(catalog: Catalog, root: Path) -> str:
    """Return an unused project name for a folder.

    It is the folder's own name, if necessary with the parent's name or a number.
    """
    with catalog.read() as connection:
        used = {row.name for row in projects.list_projects(connection)}
    base = usable_name(storable(root.name), 150) or "root"
    parent = usable_name(storable(root.parent.name), 180)
    with_parent = [usable_name(f"{parent}-{base}", 180)] if parent else []
    names = (base, *with_parent, *(f"{base}-{number}" for number in range(2, 10_000)))
    return next(name for name in names if name not in used)
