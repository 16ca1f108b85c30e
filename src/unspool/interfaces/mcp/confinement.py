"""Folders that an agent may index. Paths outside of them behave as if they did not exist.

Over stdio, client and server belong to the same user, and the roots of the client are trusted. Over
HTTP, only the roots in the server's settings count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from unspool.errors import ForbiddenError

# Path.resolve raises these for a NUL, an unknown ~user, or links in a circle.
_INVALID = (OSError, ValueError, RuntimeError)


def choose_roots(
    declared: Sequence[Path], configured: Sequence[Path], *, here: Path | None
) -> tuple[Path, ...]:
    """Return the roots of a local server: the client's, else those of the settings.

    Without either, it is the current folder, unless that contains the home folder.
    """
    if declared or configured or here is None:
        return tuple(declared or configured)
    try:
        home = Path.home().resolve()
    except RuntimeError:
        home = Path("/")
    return () if here == Path(here.anchor) or home.is_relative_to(here) else (here,)


def parse_uris(uris: Sequence[str]) -> list[Path]:
    """Return the folders of `file://` addresses on this machine. Others are left out."""
    paths = []
    for uri in uris:
        try:
            parts = urlsplit(uri)
            path = unquote(parts.path)
            is_local = parts.scheme == "file" and parts.netloc in ("", "localhost")
            if is_local and path.startswith("/"):
                has_drive = path[2:3] == ":"  # file:///C:/work
                paths.append(Path(path[1:] if has_drive else path).resolve())
        except _INVALID:
            continue
    return paths


def resolve_path(text: str, roots: Sequence[Path]) -> Path:
    """Return a path inside of a root. A relative path belongs to the first root that has it."""
    if not roots:
        raise ForbiddenError(
            "no folder may be indexed from here; start the server in the folder of a project, or "
            "name folders in UNSPOOL_ROOTS"
        )
    try:
        given = Path(text.removeprefix("file://") or ".").expanduser()
        # Symbolic links are resolved first: one that leads out is outside.
        real = [root.resolve() for root in roots]
        candidates = [(root / given).resolve() for root in roots]  # an absolute path replaces root
        allowed = [path for path in candidates if any(map(path.is_relative_to, real))]
    except _INVALID:
        allowed = []
    if not allowed:
        raise ForbiddenError(
            f"{text[:200]!r} lies outside of what may be indexed; give a path in "
            f"{', '.join(map(str, roots[:10]))}"
        )
    return next((path for path in allowed if path.exists()), allowed[0])
