"""Which projects are meant: by name, by the path they were indexed from, or because there is no
other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, projects, spaces
from unspool.catalog.projects import ProjectRow
from unspool.domain.documents import MAX_NAME_LENGTH, usable_name
from unspool.domain.keys import EVERY_PROJECT
from unspool.errors import AmbiguousError, InputError, NotFoundError, UnknownProjectError
from unspool.sources.folders import storable

SHOWN = 20  # names in a message


def found(connection: Connection, name: str) -> ProjectRow:
    """The project of that name; an `UnknownProjectError` names those that there are."""
    row = projects.find_project(connection, name)
    if row is None:
        raise unknown(name, [other.name for other in projects.list_projects(connection)])
    return row


def unknown(name: str, known: Sequence[str]) -> UnknownProjectError:
    """What is said of a project that does not exist for whoever asks."""
    those = f"there are: {', '.join(known[:SHOWN])}" if known else "nothing is indexed yet"
    return UnknownProjectError(f"no project {name[:MAX_NAME_LENGTH]!r}; {those}", project=name)


def missing(names: Sequence[str], known: Collection[str]) -> str:
    """What is said to somebody who allows only some projects, of those that there are none of;
    nothing where there are all.
    """
    absent = [name for name in dict.fromkeys(names) if name not in known]
    return (
        (
            f"there is no project {', '.join(map(repr, absent[:SHOWN]))} yet; nothing is seen of "
            f"it "
            f"until there is"
        )
        if absent
        else ""
    )


def named(
    catalog: Catalog, names: Sequence[str] | str | None
) -> tuple[list[ProjectRow], int | None]:
    """The projects that a search is about, and the vector space in use.

    None means the only one there is; '*' means all, by name.
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
            rows = [found(connection, name) for name in dict.fromkeys(names)]
    return only_one(rows) if names is None else rows, active


def only_one(rows: list[ProjectRow]) -> list[ProjectRow]:
    """Those of the projects that are meant where none is named: one, or none where there is
    none.
    """
    if len(rows) > 1:
        # one that keeps only responses has nothing to find
        rows = [row for row in rows if row.seq] or rows
    if len(rows) > 1:
        shown = ", ".join(row.name for row in rows[:SHOWN])
        raise AmbiguousError(
            f"there are {len(rows)} projects and none was named; name one or more of: {shown}; "
            f"or '*' for all (--project on the command line)"
        )
    return rows


def only(rows: list[ProjectRow], task: str) -> ProjectRow:
    """The one project that a task is about."""
    if not rows:
        raise NotFoundError(f"{task} needs one project; nothing is indexed yet")
    if len(rows) > 1:
        raise AmbiguousError(f"{task} needs one project; name it")
    return rows[0]


def at(catalog: Catalog, path: str | Path) -> str | None:
    """The project that was indexed from a path or a folder above it; the nearest one."""
    wanted = Path(path).expanduser().resolve()
    with catalog.read() as connection:
        roots = {row.root: row.name for row in projects.list_projects(connection) if row.root}
    among = (
        roots[root] for root in map(storable, map(str, (wanted, *wanted.parents))) if root in roots
    )
    return next(among, None)


def free(catalog: Catalog, root: Path) -> str:
    """A name for a folder that has none yet: its own, told apart from others by its parent's or
    a number.
    """
    with catalog.read() as connection:
        taken = {row.name for row in projects.list_projects(connection)}
    base = usable_name(storable(root.name), 150) or "root"
    parent = usable_name(storable(root.parent.name), 180)
    told_apart = [usable_name(f"{parent}-{base}", 180)] if parent else []
    names: Iterable[str] = (base, *told_apart, *(f"{base}-{number}" for number in range(2, 10_000)))
    return next(name for name in names if name not in taken)
