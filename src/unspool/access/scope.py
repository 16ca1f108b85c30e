"""Who is let in, and what they may see and do."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from unspool.domain.documents import check_project
from unspool.domain.keys import Role
from unspool.errors import ForbiddenError, UnauthenticatedError
from unspool.sources import git

if TYPE_CHECKING:
    from unspool.corpus import Corpus
    from unspool.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a caller may see and do. `caller` binds the continuations it is given; `roots` are the
    folders it may have indexed, `git_hosts` the hosts that it may have repositories fetched
    from."""

    projects: frozenset[str] | None  # None: all of them
    role: Role
    caller: str = ""
    roots: tuple[Path, ...] = ()
    git_hosts: frozenset[str] | None = frozenset()  # None: any

    @classmethod
    def everything(
        cls,
        *,
        role: Role = Role.ADMIN,
        roots: Sequence[Path] = (),
        git_hosts: frozenset[str] | None = None,
    ) -> Scope:
        """The scope of whoever owns the corpus."""
        return cls(projects=None, role=role, roots=tuple(roots), git_hosts=git_hosts)

    def narrowed(self, projects: Sequence[str]) -> Scope:
        """The same for some of the projects alone. Its continuations are its own."""
        for name in projects:
            check_project(name)
        names = (
            frozenset(projects) if self.projects is None else self.projects & frozenset(projects)
        )
        digest = hashlib.sha256("\n".join([self.caller, *sorted(names)]).encode()).hexdigest()
        return replace(self, projects=names, caller=f"some-{digest[:32]}")

    def holds(self, project: str) -> bool:
        """Whether a project exists for it."""
        return self.projects is None or project in self.projects

    def reaches(self, source: str) -> bool:
        """Whether a path, or a `file://` address, lies under its roots, links followed. Git takes
        `%2e` in an address for a dot, so that an address has to lie there in both readings."""
        path = source.removeprefix("file://")
        readings = {path} if path == source else {path, os.fsdecode(unquote_to_bytes(path))}
        return all(map(self._is_inside, readings))

    def _is_inside(self, path: str) -> bool:
        try:
            meant = Path(path).expanduser()
            return meant.is_absolute() and any(
                meant.resolve().is_relative_to(root.resolve()) for root in self.roots
            )
        except (OSError, RuntimeError, ValueError):  # an unknown ~user, links that go round, a NUL
            return False

    def fetches(self, url: str) -> bool:
        """Whether a repository may be fetched from the host of an address."""
        return self.git_hosts is None or git.host_of(url) in self.git_hosts

    def need(self, role: Role, task: str) -> None:
        """Refuse what its role does not allow."""
        if not self.role.allows(role):
            raise ForbiddenError(
                f"{task} needs a key with the role {role}; this one has the role {self.role}"
            )

    def need_everything(self, task: str) -> None:
        """Refuse what is about every project to whoever is no admin of all of them."""
        if self.projects is not None or not self.role.allows(Role.ADMIN):
            raise ForbiddenError(
                f"{task} are about every project; they need a key for all projects with the role "
                f"admin"
            )


def admit(corpus: Corpus, key: str | None) -> Scope:
    """The scope of whoever shows a key, or none.

    Without one everybody is let in as long as there has never been any.
    """
    roots, git_hosts = roots_of(corpus.settings), git_hosts_of(corpus.settings)
    if key is None:
        if corpus.keys.are_used():
            raise UnauthenticatedError(
                "a key is needed here; send it as `Authorization: Bearer unspool_...`, `unspool "
                "key create` makes one"
            )
        return Scope.everything(roots=roots, git_hosts=git_hosts)
    known = corpus.keys.find(key)
    if known is None:
        raise UnauthenticatedError(
            "this key is not known here, has expired or was revoked; `unspool key list` shows "
            "which there are"
        )
    scope = Scope(projects=known.visible, role=known.role, caller=known.id)
    return (
        replace(scope, roots=roots, git_hosts=git_hosts) if known.role.allows(Role.ADMIN) else scope
    )


def roots_of(settings: Settings) -> tuple[Path, ...]:
    """The folders that the settings let the doors index."""
    # By their names alone: every request asks, and a folder may be on a disk that does not answer.
    return tuple(
        Path(root).expanduser().absolute()
        for root in settings.serve.roots.split(os.pathsep)
        if root.strip()
    )


def git_hosts_of(settings: Settings) -> frozenset[str] | None:
    """The hosts that the settings let a service fetch repositories from; None for any."""
    names = frozenset(
        name.strip().lower().rstrip(".")
        for name in settings.serve.git_hosts.split(",")
        if name.strip()
    )
    return None if "*" in names else names
