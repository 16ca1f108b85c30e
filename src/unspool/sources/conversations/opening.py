"""Files of an export as texts. Archives are never unpacked to disk."""

from __future__ import annotations

import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, TextIO

from unspool.errors import InputError, NotFoundError
from unspool.sources.conversations.records import RecordError

# Text of chats becomes 3 to 30 times as large when it is unpacked; a bomb 1000 times.
MAX_RATIO = 200
FREE_BYTES = 64 * 2**20  # allowed for every archive
MAX_MEMBERS = 1_000_000
_BUFFER_BYTES = 65_536
_DAMAGE = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
)


_Readable = IO[bytes] | io.FileIO


class StreamError(RecordError):
    """The rest of a stream cannot be read. The message says why."""


class Export:
    """Files of an export: a folder, an archive, or a single file with the name ""."""

    def __init__(
        self,
        sizes: dict[str, int],
        open_file: Callable[[str], _Readable],
        *,
        links: tuple[str, ...] = (),
        max_bytes: int = 0,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self.sizes = sizes  # in bytes, by names with "/"
        self.links = links  # symbolic links, which are not followed
        self._open_file = open_file
        self._max_bytes = max_bytes
        self._on_bytes = on_bytes
        self._byte_count = 0

    def open_text(self, name: str) -> TextIO:
        """Open one of the files. Bytes that are not UTF-8 become lone surrogates."""
        try:
            file = self._open_file(name)
        except _DAMAGE as error:
            raise StreamError(f"it cannot be opened ({error})") from error
        stream = io.BufferedReader(_CheckedFile(file, self._count), _BUFFER_BYTES)
        encoding = json.detect_encoding(stream.peek(4)[:4])
        errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
        return io.TextIOWrapper(stream, encoding, errors, newline="\n")

    def _count(self, size: int) -> None:
        self._byte_count += size
        if size and self._on_bytes is not None:
            self._on_bytes(self._byte_count)
        if self._max_bytes and self._byte_count > self._max_bytes:
            raise StreamError(
                f"the archive unpacks to more than {MAX_RATIO} times its size, as no export does"
            )


class _CheckedFile(io.RawIOBase):
    """File that counts the bytes that are read, and raises `StreamError` if it is damaged."""

    def __init__(self, file: _Readable, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._file.read(len(buffer)) or b""
        except _DAMAGE as error:
            raise StreamError(f"the file is damaged here ({error})") from error
        self._count(len(data))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def open_export(path: Path, on_bytes: Callable[[int], None] | None = None) -> Iterator[Export]:
    """Open a file, folder or archive.

    `on_bytes` gets the number of bytes read so far. Raise `NotFoundError` or `InputError` if it
    cannot be opened.
    """
    if os.path.isdir(path):  # unlike Path.is_dir, without errors: opening reports them
        sizes, links = _list_folder(path)
        yield Export(sizes, lambda name: io.FileIO(path / name), links=links, on_bytes=on_bytes)
        return
    with _open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        is_archive = file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    if not is_archive:
        yield Export({"": size}, lambda _: io.FileIO(path), on_bytes=on_bytes)
        return
    with _open_archive(path) as archive:
        members = {one.filename: one for one in archive.infolist() if not one.is_dir()}
        yield Export(
            {name: member.file_size for name, member in members.items()},
            lambda name: archive.open(members[name]),
            max_bytes=max(FREE_BYTES, MAX_RATIO * size),
            on_bytes=on_bytes,
        )


def _list_folder(path: Path) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the files of a folder and of its subfolders with their sizes, and the links."""
    sizes: dict[str, int] = {}
    links: list[str] = []
    try:
        for entry in _scan(path):
            is_folder = entry.is_dir(follow_symlinks=False)
            for inner in _scan(entry) if is_folder else [entry]:
                name = f"{entry.name}/{inner.name}" if is_folder else entry.name
                if inner.is_symlink():
                    links.append(name)
                elif inner.is_file(follow_symlinks=False):
                    sizes[name] = inner.stat(follow_symlinks=False).st_size
    except OSError as error:
        raise InputError(
            f"{path} cannot be listed: {error.strerror}; check who may read it"
        ) from error
    return sizes, tuple(links)


def _scan(path: os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _open_archive(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise InputError(
            f"{path} is a damaged zip file ({error}); download or copy it again"
        ) from error
    count = len(archive.infolist())
    if count > MAX_MEMBERS:
        archive.close()
        raise InputError(
            f"{path} contains {count} files; give an archive of at most {MAX_MEMBERS} files"
        )
    return archive


def _open_file(path: Path) -> BinaryIO:
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path} is neither a file nor a folder; give an export of conversations")
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no such file: {path}; give an export of conversations that exists"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}; check the "
            f"name and who may read it"
        ) from error
