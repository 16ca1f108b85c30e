"""Files, folders and archives as streams of bytes in UTF-8. Nothing is ever unpacked to disk."""

from __future__ import annotations

import codecs
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Protocol

from unspool.errors import InputError, NotFoundError

# text of chats becomes 3 to 30 times as large when it is unpacked; a bomb 1000 times
MAX_RATIO = 200
FREE_BYTES = 64 * 2**20  # so much may come out of an archive in any case
MAX_MEMBERS = 1_000_000
_BUFFER_BYTES = 65_536
_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DAMAGE = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
)


class StreamError(Exception):
    """A stream cannot be read on; the message says why."""


class Meter:
    """Counts bytes as they are read, and tells whoever wants to know."""

    def __init__(self, on_bytes: Callable[[int], None] | None = None) -> None:
        self.total = 0
        self._on_bytes = on_bytes

    def add(self, count: int) -> None:
        """So many bytes more have been read."""
        self.total += count
        if count and self._on_bytes is not None:
            self._on_bytes(self.total)


class Export(Protocol):
    """Named files together: a folder or an archive."""

    def names(self) -> dict[str, int]:
        """The files and their sizes in bytes, by names with '/'."""

    def links(self) -> list[str]:
        """What was left out because it leads elsewhere."""

    def stream(self, name: str, meter: Meter) -> BinaryIO:
        """One of the files, to be read once."""


class Folder:
    """A folder and the folders in it. Links are not followed, so there are no loops."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[str, int] = {}
        self._links: list[str] = []
        try:
            for entry in self._entries(path):
                if entry.is_dir(follow_symlinks=False):
                    for inner in self._entries(entry.path):
                        self._note(inner, f"{entry.name}/{inner.name}")
                else:
                    self._note(entry, entry.name)
        except OSError as error:
            raise InputError(
                f"{path} cannot be listed: {error.strerror}; check who may read it"
            ) from error

    @staticmethod
    def _entries(path: str | Path) -> list[os.DirEntry[str]]:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def _note(self, entry: os.DirEntry[str], name: str) -> None:
        if entry.is_symlink():
            self._links.append(name)
        elif entry.is_file(follow_symlinks=False):
            self._names[name] = entry.stat(follow_symlinks=False).st_size

    def names(self) -> dict[str, int]:
        return self._names

    def links(self) -> list[str]:
        return self._links

    def stream(self, name: str, meter: Meter) -> BinaryIO:
        try:
            return utf8(_Counted(open(self._path / name, "rb", buffering=0), meter))
        except OSError as error:
            raise StreamError(f"it cannot be opened: {error.strerror}") from error


class Archive:
    """A zip file, read in place."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE as error:
            raise InputError(
                f"{path} is a damaged zip file ({error}); download or copy it again"
            ) from error
        self._most = max(FREE_BYTES, MAX_RATIO * path.stat().st_size)
        self._members = {info.filename: info for info in self._zip.infolist() if not info.is_dir()}
        if len(self._members) > MAX_MEMBERS:
            self._zip.close()
            raise InputError(
                f"{path} holds {len(self._members)} files; that is no export of conversations"
            )

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def names(self) -> dict[str, int]:
        return {name: info.file_size for name, info in self._members.items()}

    def links(self) -> list[str]:
        return []

    def stream(self, name: str, meter: Meter) -> BinaryIO:
        try:
            raw = self._zip.open(self._members[name])
        except _DAMAGE as error:
            raise StreamError(f"it cannot be unpacked ({error})") from error
        return utf8(_Counted(raw, meter, most=self._most))


@contextmanager
def container(path: Path) -> Iterator[Export | None]:
    """The folder or archive at a path; None for another file."""
    if _is_folder(path):
        yield Folder(path)
    elif is_archive(path):
        with closing(Archive(path)) as archive:
            yield archive
    else:
        yield None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    # a name that is too long, a folder above it that may not be entered: opening it says which
    except OSError:
        return False


def is_archive(path: Path) -> bool:
    """Whether a file begins as zip files do."""
    with opened(path) as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def opened(path: Path) -> BinaryIO:
    """A regular file, as it is; errors are ours."""
    try:
        is_other = path.exists() and not path.is_file()
        if not is_other:
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
    raise InputError(f"{path} is neither a file nor a folder; give an export of conversations")


def file_stream(path: Path, meter: Meter) -> BinaryIO:
    """A file as a stream in UTF-8."""
    return utf8(_Counted(opened(path), meter))


class _Counted(io.RawIOBase):
    """Another stream, counted and bounded; whatever damages it becomes a `StreamError`."""

    def __init__(self, raw: IO[bytes] | io.RawIOBase, meter: Meter, *, most: int = 0) -> None:
        self._raw = raw
        self._meter = meter
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._raw.read(len(buffer)) or b""
        except _DAMAGE as error:
            raise StreamError(f"the file is damaged here ({error})") from error
        self._meter.add(len(data))
        if self._most and self._meter.total > self._most:
            raise StreamError(
                f"the archive unpacks to more than {MAX_RATIO} times its size, as no export does"
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


def utf8(raw: io.RawIOBase) -> BinaryIO:
    """A stream of UTF-8 without a mark, from UTF-8, UTF-16 or UTF-32.

    JSON begins with ASCII, so its first bytes tell.
    """
    stream = io.BufferedReader(raw, _BUFFER_BYTES)
    head = stream.peek(4)[:4]
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            stream.read(len(mark))
            return stream if encoding == "utf-8" else _recoded(stream, encoding)
    if len(head) == 4 and head[1] == head[3] == 0 and head[0]:
        return _recoded(stream, "utf-16-le")
    if len(head) == 4 and head[0] == head[2] == 0 and head[1]:
        return _recoded(stream, "utf-16-be")
    return stream


def _recoded(stream: IO[bytes], encoding: str) -> BinaryIO:
    return io.BufferedReader(
        _Recoded(io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")),
        _BUFFER_BYTES,
    )


class _Recoded(io.RawIOBase):
    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        # a character has at most four bytes
        data = self._text.read(max(1, len(buffer) // 4)).encode("utf-8", "replace")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._text.close()
        super().close()
