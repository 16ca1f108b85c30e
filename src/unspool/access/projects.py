"""Selection of projects by name, by path, or by default, within the scope of one caller.

This is the only place where names become projects. The catalog reads and writes by the rows and
names that come from here, so a caller reaches only the projects of its scope.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.engine import Connection

from unspool.access.scope import Scope
from unspool.catalog import Catalog, projects, spaces
from unspool.catalog.projects import ProjectRow
from unspool.domain.documents import MAX_NAME_LENGTH, check_project, clean_name
from unspool.domain.keys import EVERY_PROJECT, Role
from unspool.domain.reports import IndexReport, RememberReport
from unspool.errors import AmbiguousError, Hint, InputError, NotFoundError, UnknownProjectError
from unspool.sources.folders import make_storable

if TYPE_CHECKING:
    from unspool.indexing.indexer import Indexer
    from unspool.session import Resources

SHOWN = 20  # names in a message
_Report = TypeVar("_Report", IndexReport, RememberReport)


class ProjectAccess:
    """Access of one caller to projects. Projects outside its scope behave as if missing."""

    def __init__(self, resources: Resources, scope: Scope) -> None:
        self._resources = resources
        self.scope = scope

    def list_visible(self, connection: Connection) -> list[ProjectRow]:
        """Return all visible projects, by name."""
        rows = projects.list_projects(connection)
        return [row for row in rows if self.scope.contains(row.name)]

    def find(self, connection: Connection, name: str) -> ProjectRow | None:
        """Return a visible project, or None if it does not exist yet.

        A name outside the scope is an `UnknownProjectError`.
        """
        if not self.scope.contains(name):
            raise self._build_unknown_error(connection, name)
        return projects.find_project(connection, name)

    def get(self, connection: Connection, name: str) -> ProjectRow:
        """Return a project. An `UnknownProjectError` lists the visible ones."""
        row = self.find(connection, name)
        if row is None:
            raise self._build_unknown_error(connection, name)
        return row

    def select(self, connection: Connection, name: str | None) -> list[ProjectRow]:
        """Return one project, or all visible ones if none is named."""
        return self.list_visible(connection) if name is None else [self.get(connection, name)]

    def resolve(self, names: Sequence[str] | str | None) -> list[ProjectRow]:
        """Return the projects of a search, and follow the active vector space.

        None selects the project of the settings or the only one, and '*' all of them, by name.
        """
        setting = self._resources.settings.project
        if names is None and setting and self.scope.contains(setting):
            names = setting
        if isinstance(names, str):
            names = [names]
        if names is not None and not names:
            raise InputError("the list of projects is empty; name at least one, or '*' for all")
        with self._resources.search_catalog.read() as connection:
            active = spaces.find_active_id(connection)
            if names is None or EVERY_PROJECT in names:
                rows = self.list_visible(connection)
            else:
                rows = [self.get(connection, name) for name in dict.fromkeys(names)]
        if not rows and self.scope.projects is not None:
            raise NotFoundError("nothing is indexed yet in what this key can see")
        self._resources.follow(active)
        return _select_default(rows) if names is None else rows

    def resolve_one(self, name: str | None, task: str) -> ProjectRow:
        """Return the single project of a task."""
        rows = self.resolve([name] if name else None)
        if not rows:
            raise NotFoundError(f"{task} needs one project; nothing is indexed yet")
        if len(rows) > 1:
            raise AmbiguousError(f"{task} needs one project; name it")
        return rows[0]

    def name(self, given: str | None, *, default: str, task: str) -> str:
        """Return the visible project that is given or implied, which need not exist."""
        name = self._resources.settings.project or default if given is None else given
        if given is not None or self.scope.contains(name):
            self.check(name)
            return name
        visible = sorted(self.scope.projects or ())
        if len(visible) != 1:
            raise AmbiguousError(
                f"{task} needs a project; name one of: {', '.join(visible[:SHOWN])}"
            )
        return visible[0]

    def check(self, name: str) -> None:
        """Reject a name outside the scope, or one that no project can have."""
        if not self.scope.contains(name):
            with self._resources.catalog.read() as connection:
                raise self._build_unknown_error(connection, name)
        check_project(name)

    def find_by_path(self, catalog: Catalog, path: str | Path) -> ProjectRow | None:
        """Return the visible project indexed from a path or the nearest folder above it."""
        resolved = Path(path).expanduser().resolve()
        with catalog.read() as connection:
            rows = {row.root: row for row in self.list_visible(connection) if row.root}
        roots = (make_storable(str(folder)) for folder in (resolved, *resolved.parents))
        return next((rows[root] for root in roots if root in rows), None)

    def write(
        self,
        task: str,
        names: Collection[str],
        action: Callable[[Indexer], _Report],
        *,
        role: Role = Role.WRITE,
        purpose: str,
    ) -> _Report:
        """Write into visible projects, emit `IndexFinished`, and return the report.

        Equal texts of all projects are embedded once. A caller that sees only some projects gets
        `embedded` as if that were not so. Otherwise it could find out which texts others have.
        """
        self.scope.require(role, purpose)
        for name in names:
            self.check(name)
        report = self._resources.write(action)
        failed = report.failed if isinstance(report, IndexReport) else report.bad_count
        removed = report.removed if isinstance(report, IndexReport) else 0
        self._resources.emit_report(task, report, failed=failed, removed=removed)
        return report if self.scope.projects is None else replace(report, embedded=report.chunks)

    def _build_unknown_error(self, connection: Connection, name: str) -> UnknownProjectError:
        known = [row.name for row in self.list_visible(connection)]
        hint = f"there are: {', '.join(known[:SHOWN])}" if known else "nothing is indexed yet"
        return UnknownProjectError(f"no project {name[:MAX_NAME_LENGTH]!r}; {hint}", project=name)


def _select_default(rows: list[ProjectRow]) -> list[ProjectRow]:
    """Return the only project of a search that names none. No project gives an empty list."""
    if len(rows) > 1:
        # a project with nothing but responses has nothing to find
        rows = [row for row in rows if row.seq] or rows
    if len(rows) > 1:
        shown = ", ".join(row.name for row in rows[:SHOWN])
        raise AmbiguousError(
            f"there are {len(rows)} projects and none was named; name one or more of: {shown}; "
            f"or '*' for all",
            hint=Hint.NAME_PROJECT,
        )
    return rows


def describe_missing(names: Sequence[str], known: Collection[str]) -> str:
    """Return a warning about allowed projects that do not exist, or an empty text."""
    missing = [repr(name) for name in dict.fromkeys(names) if name not in known][:SHOWN]
    if not missing:
        return ""
    return (
        f"there is no project {', '.join(missing)} yet; it becomes visible as soon as it is indexed"
    )


def choose_name(catalog: Catalog, root: Path) -> str:
    """Return an unused project name for a folder.

    It is the folder's own name, if necessary with the parent's name or a number.
    """
    with catalog.read() as connection:
        used = {row.name for row in projects.list_projects(connection)}
    base = clean_name(make_storable(root.name), 150) or "root"
    parent = clean_name(make_storable(root.parent.name), 180)
    with_parent = [clean_name(f"{parent}-{base}", 180)] if parent else []
    names = (base, *with_parent, *(f"{base}-{number}" for number in range(2, 10_000)))
    return next(name for name in names if name not in used)
