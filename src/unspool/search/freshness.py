"""Comparison of hits with the files that they were cut from.

Only files inside of the indexed folder are looked at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from unspool.catalog.chunks import IndexedFile


def find_stale(files: Sequence[IndexedFile | None]) -> list[bool | None]:
    """Return for each file whether it has changed or is missing since it was indexed; None if that
    is unknown.

    It is unknown for text that was given, and if the project's root is no folder of this machine.
    """
    folders: dict[str, bool] = {}
    known = {file: _is_stale(file, folders) for file in set(files) if file is not None}
    return [None if file is None else known[file] for file in files]


def _is_stale(file: IndexedFile, folders: dict[str, bool]) -> bool | None:
    parts = file.path.split("/")
    if not os.path.isabs(file.root) or ".." in parts or "\ufffd" in file.path:  # noqa: PTH117 - ten times faster than a path
        return None  # a git address, or a name that is not UTF-8 and stored in another form
    root = file.root.rstrip(os.sep)
    if not _is_folder(root or os.sep, folders):
        parent, _, name = root.rpartition(os.sep)
        is_single = parts == [name] and _is_folder(parent or os.sep, folders)
        return _differs(root, file) if is_single else None
    place = root
    for name in parts[:-1]:
        place = f"{place}{os.sep}{name}"
        if not _is_folder(place, folders):
            return True
    return _differs(f"{place}{os.sep}{parts[-1]}", file)


def _is_folder(path: str, folders: dict[str, bool]) -> bool:
    """Return whether a path is a folder and no link to one: indexing does not follow links
    either.
    """
    if path not in folders:
        try:
            folders[path] = stat.S_ISDIR(os.lstat(path).st_mode)
        except (OSError, ValueError):
            folders[path] = False
    return folders[path]


def _differs(path: str, file: IndexedFile) -> bool | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return None
    same = (found.st_size, found.st_mtime_ns) == (file.size_bytes, file.modified_ns)
    return not (same and stat.S_ISREG(found.st_mode))
