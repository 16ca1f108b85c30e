"""Scan of a folder: the files that are worth indexing, and the reasons to skip the others.

Nothing is opened but ignore files and cache markers: what to skip is decided by names, sizes and
file types. Links are never followed, so a scan stays inside its root and loops cannot trap it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from unspool.domain.reports import Skip
from unspool.errors import InputError, NotFoundError, ServiceError
from unspool.sources import names
from unspool.sources.ignores import IgnoreFile, Rules, key, verdict

MAX_BYTES = 2_000_000
EXTRACTED_FACTOR = 20  # a PDF or DOCX holds far less text than bytes
# nearest first: the own file wins in the same folder
_IGNORE_FILES = ((".unspoolignore", True), (".gitignore", False))
# git's own limit is 100 MB; the longest seen in practice are a few kilobytes
_MAX_IGNORE_BYTES = 1_000_000
_CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"
_PROGRESS_STEP = 500


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


@dataclass(frozen=True, slots=True)
class _Folder:
    real: str
    path: str  # storable, "" or ending in "/"
    key: str  # for the rules, "" or ending in "/"
    scopes: tuple[IgnoreFile, ...]
    kept: bool = False  # brought back by unspool's own ignore file


def max_bytes_of(name: str, max_bytes: int) -> int:
    """Return the largest allowed size of a file with this name."""
    return max_bytes * EXTRACTED_FACTOR if names.extension(name) in names.EXTRACTED else max_bytes


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
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"{str(root)!r} does not exist; check the path and the folder you are in"
        ) from None
    except OSError as error:
        raise _translate(root, error) from error
    if stat.S_ISDIR(status.st_mode):
        result = _Traversal(real, max_bytes, on_progress).run()
    elif stat.S_ISREG(status.st_mode):
        result = _scan_file(root, real, status, max_bytes)
    else:
        raise InputError(
            f"{str(root)!r} is a device, pipe or socket; give a folder or a regular file"
        )
    if on_progress is not None:
        on_progress(len(result.found))
    return result


def _translate(root: Path, error: OSError) -> Exception:
    if isinstance(error, PermissionError):
        return InputError(
            f"{str(root)!r} may not be read by this user; change its permissions or give another "
            f"path"
        )
    if error.errno == errno.ELOOP:
        return InputError(
            f"{str(root)!r} is a link that leads to itself; give the folder it should lead to"
        )
    return ServiceError(
        f"{str(root)!r} cannot be opened: {error.strerror}; check the disk or the mount"
    )


def _scan_file(root: Path, real: str, status: os.stat_result, max_bytes: int) -> Scan:
    result = Scan()
    name = os.path.basename(os.path.abspath(root))
    reason = names.verdict(name)
    # Asked for by name: only what cannot be read as text is refused.
    _add(
        result,
        storable(name),
        real,
        status,
        max_bytes,
        reason if reason and reason[0] == "binary" else None,
    )
    return result


class _Traversal:
    """Traversal of a folder with an explicit stack, so that only memory limits the depth."""

    def __init__(
        self, root: str, max_bytes: int, on_progress: Callable[[int], None] | None
    ) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.on_progress = on_progress
        self.result = Scan()
        self.reported = 0

    def run(self) -> Scan:
        stack = [_Folder(self.root, "", "", _load_scopes_above(self.root))]
        while stack:
            folders = self._enter(stack.pop())
            stack.extend(reversed(folders))  # so that they are walked in the order of their names
            count = len(self.result.found)
            if self.on_progress is not None and count - self.reported >= _PROGRESS_STEP:
                self.reported = count
                self.on_progress(count)
        return self.result

    def _enter(self, folder: _Folder) -> list[_Folder]:
        try:
            with os.scandir(folder.real) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []  # removed or replaced since its parent was listed
        except OSError as error:
            self._skip_folder(folder, error)
            return []
        present = {entry.name for entry in entries}
        if folder.path and not folder.kept and (marker := _find_marker(folder.real, present)):
            self.result.skips.append(Skip(path=folder.path, reason=marker[0], detail=marker[1]))
            return []
        scopes = _load_scopes(folder.real, present, len(folder.key)) + folder.scopes
        folders = []
        for entry in entries:
            try:
                below = self._visit(entry, folder, scopes)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                # Listable but not searchable (mode r--): every entry fails alike.
                self._skip_folder(folder, error)
                return []
            if below is not None:
                folders.append(below)
        return folders

    def _skip_folder(self, folder: _Folder, error: OSError) -> None:
        self.result.skips.append(
            Skip(
                path=folder.path or "./",
                reason="unreadable",
                detail=error.strerror or "cannot be listed",
            )
        )
        self.result.unread.append(folder.path.rstrip("/"))

    def _visit(
        self, entry: os.DirEntry[str], folder: _Folder, scopes: tuple[IgnoreFile, ...]
    ) -> _Folder | None:
        name = entry.name
        path, name_key = folder.path + storable(name), key(name)
        is_folder = entry.is_dir(follow_symlinks=False) and not _is_junction(entry)
        excluded, ours = (
            verdict(scopes, name_key, folder.key + name_key, folder=is_folder)
            if scopes
            else (None, False)
        )
        kept = excluded is False and ours
        if is_folder:
            reason = names.FOLDERS.get(name)
            if reason and not (kept and name not in names.VERSION_CONTROL):
                self.result.skips.append(Skip(path=path + "/", reason=reason[0], detail=reason[1]))
            elif excluded:
                self.result.skips.append(
                    Skip(path=path + "/", reason="ignored", detail="by an ignore file")
                )
            else:
                return _Folder(entry.path, path + "/", f"{folder.key}{name_key}/", scopes, kept)
        # in a linked work tree or a submodule .git is a file
        elif excluded or name in names.VERSION_CONTROL:
            self.result.skips.append(
                Skip(
                    path=path,
                    reason="ignored",
                    detail="by an ignore file" if excluded else "version control",
                )
            )
        elif entry.is_symlink() or entry.is_dir(follow_symlinks=False):
            self.result.skips.append(
                Skip(path=path, reason="symlink", detail=self._describe_link(entry.path))
            )
        elif not entry.is_file(follow_symlinks=False):
            self.result.skips.append(
                Skip(path=path, reason="special", detail="a pipe, socket or device")
            )
        else:
            _add(
                self.result,
                path,
                entry.path,
                entry.stat(follow_symlinks=False),
                self.max_bytes,
                None if kept else names.verdict(name),
            )
        return None

    def _describe_link(self, link: str) -> str:
        target = os.path.realpath(link)
        inside = target == self.root or target.startswith(os.path.join(self.root, ""))
        return (
            "links are not followed; it leads to another place in the folder"
            if inside
            else "leads out of the folder"
        )


def _add(
    result: Scan,
    path: str,
    file: str,
    status: os.stat_result,
    max_bytes: int,
    reason: tuple[str, str] | None,
) -> None:
    """Add a regular file to the result, or the reason to skip it."""
    limit = max_bytes_of(path, max_bytes)
    if reason is None and status.st_size == 0:
        reason = ("empty", "")
    if reason is None and status.st_size > limit:
        reason = ("huge", f"{status.st_size} bytes; the limit is {limit}")
    if reason is None:
        result.found.append(
            Found(path=path, file=file, size_bytes=status.st_size, modified_ns=status.st_mtime_ns)
        )
    else:
        result.skips.append(Skip(path=path, reason=reason[0], detail=reason[1]))


def storable(name: str) -> str:
    """Return a name as text that every database accepts.

    Bytes that are not UTF-8 become U+FFFD. Because two such names could then be equal, a
    fingerprint of the real name is inserted before the suffix.
    """
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        stem, suffix = os.path.splitext(name)
        mark = hashlib.blake2b(os.fsencode(name), digest_size=4).hexdigest()
        return "".join(
            "\ufffd" if "\ud800" <= char <= "\udfff" else char for char in f"{stem}~{mark}{suffix}"
        )
    return name


def _is_junction(entry: os.DirEntry[str]) -> bool:
    """Tell if an entry is a Windows junction, which Python 3.11 does not report as a symlink."""
    attributes = (
        getattr(entry.stat(follow_symlinks=False), "st_file_attributes", 0)
        if os.name == "nt"
        else 0
    )
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


def _load_scopes(folder: str, present: set[str], below: int) -> tuple[IgnoreFile, ...]:
    scopes = [
        IgnoreFile(Rules(_read_small(os.path.join(folder, name)), ours=ours), below=below)
        for name, ours in _IGNORE_FILES
        if name in present
    ]
    if ".git" in present:
        scopes.append(IgnoreFile(Rules(_read_small(_find_exclude_file(folder))), below=below))
    return tuple(scope for scope in scopes if scope.rules)


def _load_scopes_above(root: str) -> tuple[IgnoreFile, ...]:
    """Return the ignore files between the root and the top of its work tree, nearest first."""
    scopes: list[IgnoreFile] = []
    folder, above = root, ""
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent, name = os.path.split(folder)
        if parent == folder:
            return ()  # in no work tree, so nothing above the root applies
        folder, above = parent, f"{key(name)}/{above}"
        scopes += [
            IgnoreFile(Rules(_read_small(os.path.join(folder, name)), ours=ours), above=above)
            for name, ours in _IGNORE_FILES
        ]
    if folder != root:
        scopes.append(IgnoreFile(Rules(_read_small(_find_exclude_file(folder))), above=above))
    return tuple(scope for scope in scopes if scope.rules)


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
