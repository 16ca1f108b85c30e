"""Scopes: permissions of a caller, and the keys that grant them."""

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
from unspool.errors import ForbiddenError, InputError, UnauthenticatedError
from unspool.sources import git

if TYPE_CHECKING:
    from unspool.corpus import Corpus
    from unspool.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Permissions of a caller: its projects, its role and the sources that it may index."""

    projects: frozenset[str] | None  # None: all of them
    role: Role
    caller: str = ""  # only this caller can use its continuations
    roots: tuple[Path, ...] | None = ()  # folders; None: any, only for the owner of the corpus
    git_hosts: frozenset[str] | None = frozenset()  # None: any

    @classmethod
    def everything(
        cls,
        *,
        role: Role = Role.ADMIN,
        roots: Sequence[Path] = (),
        git_hosts: frozenset[str] | None = None,
    ) -> Scope:
        """Return a scope with all projects."""
        return cls(projects=None, role=role, roots=tuple(roots), git_hosts=git_hosts)

    def narrow(self, projects: Sequence[str]) -> Scope:
        """Return this scope for some of the projects, with continuations of its own."""
        for name in projects:
            check_project(name)
        names = (
            frozenset(projects) if self.projects is None else self.projects & frozenset(projects)
        )
        digest = hashlib.sha256("\n".join([self.caller, *sorted(names)]).encode()).hexdigest()
        return replace(self, projects=names, caller=f"some-{digest[:32]}")

    @property
    def is_owner(self) -> bool:
        """Return True for the process that has opened the corpus."""
        return self.roots is None

    def contains(self, project: str) -> bool:
        """Return True if the caller can see a project."""
        return self.projects is None or project in self.projects

    def check_source(self, source: str) -> None:
        """Reject a source that the caller may not index.

        Only admins index. Paths must be below the roots, and git URLs on an allowed host.
        """
        self.require(Role.ADMIN, "indexing")
        if git.is_git_url(source) and not source.lower().startswith("file:"):
            if not self.allows_url(source):
                named = ", ".join(sorted(self.git_hosts or ())) or "none"
                raise ForbiddenError(
                    f"nothing may be fetched from {git.host_of(source)[:200]!r}; "
                    f"UNSPOOL_GIT_HOSTS names the hosts that may be: {named}"
                )
        elif "\x00" in source or not source.strip():
            raise InputError("the path is empty; give a folder, a file or a git URL")
        elif not self.allows_path(source):
            is_absolute = Path(source).is_absolute() or source.startswith(("~", "file:"))
            cure = (
                f"it may be one under {', '.join(map(str, self.roots))}"
                if self.roots
                else "UNSPOOL_ROOTS names those that may, and there are none"
            )
            raise ForbiddenError(
                f"{source[:200]!r} is no "
                f"{'folder that may be indexed' if is_absolute else 'absolute path'}; {cure}"
            )

    def allows_path(self, source: str) -> bool:
        """Return True if a path or `file://` address is below the roots, after links are resolved.

        Git reads `%2e` in an address as a dot, so an address must be below them in both readings.
        """
        if self.roots is None:
            return True
        path = source.removeprefix("file://")
        readings = {path} if path == source else {path, os.fsdecode(unquote_to_bytes(path))}
        return all(map(self._is_inside, readings))

    def _is_inside(self, path: str) -> bool:
        try:
            expanded = Path(path).expanduser()
            return expanded.is_absolute() and any(
                expanded.resolve().is_relative_to(root.resolve()) for root in self.roots or ()
            )
        except (OSError, RuntimeError, ValueError):  # an unknown ~user, a loop of links, a NUL
            return False

    def allows_url(self, url: str) -> bool:
        """Return True if a repository may be fetched from the host of an address."""
        return self.git_hosts is None or git.host_of(url) in self.git_hosts

    def require(self, role: Role, task: str) -> None:
        """Reject a task that the role does not allow."""
        if not self.role.allows(role):
            raise ForbiddenError(
                f"{task} needs a key with the role {role}; this one has the role {self.role}"
            )

    def require_owner(self, task: str) -> None:
        """Reject a task, unless the caller is the process that has opened the corpus."""
        if not self.is_owner:
            raise ForbiddenError(
                f"{task} is not possible with a key; it is for the process that opened the corpus"
            )

    def require_everything(self, task: str) -> None:
        """Reject a task for all projects, unless the caller is an admin of all projects."""
        if self.projects is not None or not self.role.allows(Role.ADMIN):
            raise ForbiddenError(
                f"{task} are about every project; they need a key for all projects with the role "
                f"admin"
            )


OWNER = Scope(projects=None, role=Role.ADMIN, roots=None, git_hosts=None)


def admit(corpus: Corpus, key: str | None) -> Scope:
    """Return the scope of a key. As long as no key was ever created, none is needed."""
    roots, git_hosts = parse_roots(corpus.settings), parse_git_hosts(corpus.settings)
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
            "this key is unknown, has expired or was revoked; `unspool key list` shows the valid "
            "ones"
        )
    scope = Scope(projects=known.visible, role=known.role, caller=known.id)
    return (
        replace(scope, roots=roots, git_hosts=git_hosts) if known.role.allows(Role.ADMIN) else scope
    )


def parse_roots(settings: Settings) -> tuple[Path, ...]:
    """Return the folders that callers of a service may index."""
    # Links are not resolved: every request comes here, and a disk may not answer.
    return tuple(
        Path(root).expanduser().absolute()
        for root in settings.serve.roots.split(os.pathsep)
        if root.strip()
    )


def parse_git_hosts(settings: Settings) -> frozenset[str] | None:
    """Return the hosts that a service may fetch repositories from, None for any."""
    names = frozenset(
        name.strip().lower().rstrip(".")
        for name in settings.serve.git_hosts.split(",")
        if name.strip()
    )
    return None if "*" in names else names
