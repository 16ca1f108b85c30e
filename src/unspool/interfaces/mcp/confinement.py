"""Which folders an agent may have indexed. What is outside of them does not exist for it.

Over stdio the client and this process belong to the same user: the client's roots say what the user
works on. Over HTTP a client's word counts for nothing, and only the roots that the operator
configured are open.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from unspool.errors import ForbiddenError


def local_roots(
    declared: Sequence[Path], configured: Sequence[Path], *, here: Path | None
) -> tuple[Path, ...]:
    """The roots of a local server: the client's, else the configured ones, else the current
    folder unless that holds everything.
    """
    if declared or configured:
        return tuple(declared or configured)
    return (
        ()
        if here is None or here == Path(here.anchor) or here == _home() or here in _home().parents
        else (here,)
    )


def paths_of(addresses: Sequence[str]) -> list[Path]:
    """The folders of `file://` addresses; others are none of ours."""
    return [path for path in map(_path_of, addresses) if path is not None]


def _path_of(address: str) -> Path | None:
    try:
        parts = urlsplit(address)
        if (
            parts.scheme != "file"
            or parts.netloc not in ("", "localhost")
            or not parts.path.startswith("/")
        ):
            return None
        path = unquote(parts.path)
        # file:///C:/work
        return Path(path[1:] if len(path) > 2 and path[2] == ":" else path).resolve()
    # a bracket that is not closed, a NUL, links that go round
    except (OSError, ValueError, RuntimeError):
        return None


def inside(text: str, roots: Sequence[Path]) -> Path:
    """The path that is meant, which lies in one of the roots; a relative one lies in the first
    that has it.
    """
    if not roots:
        raise ForbiddenError(
            "no folder may be indexed from here; start the server in the folder of a project, or "
            "name folders in UNSPOOL_ROOTS"
        )
    try:
        given = Path(text.removeprefix("file://") or ".").expanduser()
        tried = [given] if given.is_absolute() else [root / given for root in roots]
        # Symbolic links are followed first: one that leads out is outside.
        real = [root.resolve() for root in roots]
        allowed = [
            path
            for path in (one.resolve() for one in tried)
            if any(path.is_relative_to(root) for root in real)
        ]
    except (OSError, ValueError, RuntimeError):  # a NUL, an unknown ~user, links that go round
        allowed = []
    if not allowed:
        raise ForbiddenError(
            f"{text[:200]!r} lies outside of what may be indexed; give a path in "
            f"{', '.join(map(str, roots[:10]))}"
        )
    return next((path for path in allowed if path.exists()), allowed[0])


def _home() -> Path:
    try:
        return Path.home().resolve()
    except RuntimeError:
        return Path("/")
