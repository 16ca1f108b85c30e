"""Scan of a folder: the files that are worth indexing, and the reasons to skip the others.

Nothing is opened but ignore files and cache markers: what to skip is decided by names, sizes and
file types. Links are never followed, so a scan stays inside its root and loops cannot trap it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from unspool.domain.reports import Skip
from unspool.errors import InputError, NotFoundError, ServiceError, UnspoolError
from unspool.sources import names
from unspool.sources.ignores import Rules, decide, encode_name

MAX_BYTES = 2_000_000
EXTRACTED_FACTOR = 20  # a PDF or DOCX holds far less text than bytes
# nearest first: the own file wins in the same folder
_IGNORE_FILES = ((".unspoolignore", True), (".gitignore", False))
_MARKERS = (".git", ".unspoolignore", ".gitignore")
# git's own limit is 100 MB; the longest seen in practice are a few kilobytes
_MAX_IGNORE_BYTES = 1_000_000
_CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"
_PROGRESS_STEP = 500
_SURROGATE = re.compile("[\ud800-\udfff]")
_VANISHED = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file worth reading.

    `path` can be stored and shown; `file` opens it, even where its name is not valid UTF-8.
    """

    path: str  # relative to the root, with "/"
    file: str
    size_bytes: int
    modified_ns: int


@dataclass(slots=True, kw_only=True)
class Scan:
    """Result of a scan.

    `unread` names folders ("" is the root) whose files are unknown, not gone.
    """

    found: list[Found] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def add(self, path: str, file: str, status: os.stat_result, max_bytes: int) -> None:
        """Add a file, or skip it if it is empty or too large."""
        size, limit = status.st_size, get_max_bytes(path, max_bytes)
        if not size:
            self.skip(path, "empty", "")
        elif size > limit:
            self.skip(path, "huge", f"{size} bytes; the limit is {limit}")
        else:
            self.found.append(
                Found(path=path, file=file, size_bytes=size, modified_ns=status.st_mtime_ns)
            )

    def skip(self, path: str, reason: str, detail: str) -> None:
        """Add the reason to leave out a path."""
        self.skips.append(Skip(path=path, reason=reason, detail=detail))


@dataclass(frozen=True, slots=True)
class _Folder:
    real: str
    path: str  # storable, "" or ending in "/"
    key: str  # for the rules, "" or ending in "/"
    scopes: tuple[Rules, ...]
    kept: bool = False  # brought back by unspool's own ignore file


def get_max_bytes(name: str, max_bytes: int) -> int:
    """Return the largest allowed size of a file with this name."""
    return (
        max_bytes * EXTRACTED_FACTOR if names.get_extension(name) in names.EXTRACTED else max_bytes
    )


def scan(
    root: Path, *, max_bytes: int = MAX_BYTES, on_progress: Callable[[int], None] | None = None
) -> Scan:
    """Return the indexable files below `root` in a fixed order.

    If `root` is a file, ignore files do not apply to it. `on_progress` receives the number of
    files found so far. Files that vanish meanwhile are left out.
    """
    try:
        real = os.path.realpath(root, strict=True)
        status = os.stat(real)
    except _VANISHED:
        raise NotFoundError(
            f"{str(root)!r} does not exist; check the path and the folder you are in"
        ) from None
    except OSError as error:
        raise translate_os_error(str(root), error) from error
    result = Scan()
    if stat.S_ISDIR(status.st_mode):
        _Traversal(real, max_bytes, result).run(on_progress)
    elif stat.S_ISREG(status.st_mode):
        name = os.path.basename(os.path.abspath(root))
        reason = names.find_skip_reason(name)
        # The caller asked for this file, so only a binary one is refused.
        if reason and reason[0] == "binary":
            result.skip(make_storable(name), *reason)
        else:
            result.add(make_storable(name), real, status, max_bytes)
    else:
        raise InputError(
            f"{str(root)!r} is a device, pipe or socket; give a folder or a regular file"
        )
    if on_progress:
        on_progress(len(result.found))
    return result


def translate_os_error(path: str, error: OSError) -> UnspoolError:
    """Return the error for a file or folder that cannot be opened or read."""
    if isinstance(error, PermissionError):
        return InputError(
            f"{path!r} may not be read by this user; change its permissions or leave it out"
        )
    if error.errno == errno.ELOOP:
        return InputError(
            f"{path!r} is a link that leads to itself; give the folder it should lead to"
        )
    return ServiceError(f"{path!r} cannot be read: {error.strerror}; check the disk or the mount")


@dataclass(frozen=True, slots=True)
class _Traversal:
    """Traversal of a folder with an explicit stack, so that only memory limits the depth."""

    root: str
    max_bytes: int
    result: Scan

    def run(self, on_progress: Callable[[int], None] | None) -> None:
        stack = [_Folder(self.root, "", "", _load_scopes_above(self.root))]
        reported = 0
        while stack:
            folders = self._enter(stack.pop())
            stack.extend(reversed(folders))  # so that they are entered in the order of their names
            if on_progress and len(self.result.found) - reported >= _PROGRESS_STEP:
                reported = len(self.result.found)
                on_progress(reported)

    def _enter(self, folder: _Folder) -> list[_Folder]:
        try:
            return self._visit_entries(folder)
        except _VANISHED:  # removed or replaced since its parent was listed
            return []
        except OSError as error:
            detail = error.strerror or "cannot be listed"
            self.result.skip(folder.path or "./", "unreadable", detail)
            self.result.unread.append(folder.path.rstrip("/"))
            return []

    def _visit_entries(self, folder: _Folder) -> list[_Folder]:
        """Add the files of a folder to the result, and return the folders to enter."""
        with os.scandir(folder.real) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        present = {entry.name for entry in entries}
        if folder.path and not folder.kept and (marker := _find_marker(folder.real, present)):
            self.result.skip(folder.path, *marker)
            return []
        scopes = _load_scopes(folder.real, present, below=len(folder.key)) + folder.scopes
        folders = []
        for entry in entries:
            # Any other error ends the folder: if it is listable but not searchable (mode r--),
            # every entry fails alike.
            with suppress(*_VANISHED):
                folders.append(self._visit(entry, folder, scopes))
        return [below for below in folders if below is not None]

    def _visit(
        self, entry: os.DirEntry[str], folder: _Folder, scopes: tuple[Rules, ...]
    ) -> _Folder | None:
        name = entry.name
        path, name_key = folder.path + make_storable(name), encode_name(name)
        is_folder = entry.is_dir(follow_symlinks=False) and not _is_junction(entry)
        excluded, ours = decide(scopes, name_key, folder.key + name_key, folder=is_folder)
        kept = excluded is False and ours
        is_control = name in names.VERSION_CONTROL
        # in a linked work tree or a submodule .git is a file
        if is_control or (is_folder and name in names.FOLDERS and not kept):
            reason: tuple[str, str] | None = names.FOLDERS[name]
        elif excluded:
            reason = ("ignored", "by an ignore file")
        elif is_folder:
            return _Folder(entry.path, path + "/", f"{folder.key}{name_key}/", scopes, kept)
        elif entry.is_symlink() or entry.is_dir(follow_symlinks=False):
            reason = ("symlink", self._describe_link(entry.path))
        elif not entry.is_file(follow_symlinks=False):
            reason = ("special", "a pipe, socket or device")
        else:
            reason = None if kept else names.find_skip_reason(name)
        if reason:
            self.result.skip(path + "/" * is_folder, *reason)
        else:
            status = entry.stat(follow_symlinks=False)
            self.result.add(path, entry.path, status, self.max_bytes)
        return None

    def _describe_link(self, link: str) -> str:
        target = os.path.realpath(link)
        inside = target == self.root or target.startswith(os.path.join(self.root, ""))
        return (
            "links are not followed; it leads to another place in the folder"
            if inside
            else "leads out of the folder"
        )


def make_storable(name: str) -> str:
    """Return a name as text that every database accepts.

    Bytes that are not UTF-8 become U+FFFD. Because two such names could then be equal, a
    fingerprint of the real name is inserted before the suffix.
    """
    if not _SURROGATE.search(name):
        return name
    stem, suffix = os.path.splitext(name)
    mark = hashlib.blake2b(os.fsencode(name), digest_size=4).hexdigest()
    return _SURROGATE.sub("\ufffd", f"{stem}~{mark}{suffix}")


def _is_junction(entry: os.DirEntry[str]) -> bool:
    """Tell if an entry is a Windows junction, which Python 3.11 does not report as a symlink."""
    if os.name != "nt":
        return False
    attributes = getattr(entry.stat(follow_symlinks=False), "st_file_attributes", 0)
    return bool(attributes & stat.FILE_ATTRIBUTE_REPARSE_POINT)


def _find_marker(folder: str, present: set[str]) -> tuple[str, str] | None:
    """Return the reason to skip a virtual environment or a cache, by a file inside it."""
    if "pyvenv.cfg" in present or "conda-meta" in present:
        return "vendored", "a Python environment"
    if "CACHEDIR.TAG" in present and _read_small(os.path.join(folder, "CACHEDIR.TAG")).startswith(
        _CACHE_TAG
    ):
        return "ignored", "marked as a cache by CACHEDIR.TAG"
    return None


def _load_scopes(
    folder: str, present: Collection[str], *, above: str = "", below: int = 0
) -> tuple[Rules, ...]:
    """Return the ignore files of one folder, nearest first."""
    files = [(os.path.join(folder, name), ours) for name, ours in _IGNORE_FILES if name in present]
    if ".git" in present:
        files.append((_find_exclude_file(folder), False))
    scopes = (Rules(_read_small(file), ours=ours, above=above, below=below) for file, ours in files)
    return tuple(filter(None, scopes))


def _load_scopes_above(root: str) -> tuple[Rules, ...]:
    """Return the ignore files between the root and the top of its work tree, nearest first."""
    scopes: tuple[Rules, ...] = ()
    folder, above = root, ""
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent, name = os.path.split(folder)
        if parent == folder:
            return ()  # in no work tree, so nothing above the root applies
        folder, above = parent, f"{encode_name(name)}/{above}"
        present = [one for one in _MARKERS if os.path.lexists(os.path.join(folder, one))]
        scopes += _load_scopes(folder, present, above=above)
    return scopes


def _find_exclude_file(top: str) -> str:
    """Return the path of `info/exclude` of a work tree.

    In a linked work tree `.git` is a file that contains the path of the repository.
    """
    git = os.path.join(top, ".git")
    if os.path.isdir(git):
        return os.path.join(git, "info", "exclude")
    git = os.path.join(top, os.fsdecode(_read_small(git).removeprefix(b"gitdir:").strip()))
    common = os.fsdecode(_read_small(os.path.join(git, "commondir")).strip())
    return os.path.join(git, common, "info", "exclude")


def _read_small(file: str) -> bytes:
    """Return the bytes of a regular file; a link or a missing file is empty, as for git."""
    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            return b""
        with open(file, "rb") as opened:
            return opened.read(_MAX_IGNORE_BYTES)
    except (OSError, ValueError):  # ValueError: a NUL in a path that was read from a file
        return b""
