"""Settings files of a folder, `unspool.toml` and `.env`: each is read once, within bounds, and
parsed.

The folder may belong to somebody else. No file in it may block the reader, fill the memory or keep
a parser busy.
"""

from __future__ import annotations

import hashlib
import io
import os
import reprlib
import stat
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TOML = "unspool.toml"
DOTENV = ".env"
NAMES = (TOML, DOTENV)
# tomllib needs time quadratic in the length of a dotted key: 16 KiB of "a.a.a" take a second.
MAX_BYTES = {TOML: 16_384, DOTENV: 262_144}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """Content of one settings file: None if it is missing, or if `fault` says why it cannot be
    used.
    """

    name: str
    content: bytes | None = None
    fault: str = ""

    def parse(self) -> dict[str, object]:
        """Return the settings of `unspool.toml` or the variables of `.env`.

        Raise ValueError with the reason.
        """
        if self.fault:
            raise ValueError(self.fault)
        if self.content is None:
            return {}
        try:
            text = self.content.decode("utf-8")
            return _parse_dotenv(text) if self.name == DOTENV else _parse_toml(text)
        except UnicodeDecodeError:
            raise ValueError("is not UTF-8") from None
        # ValueError: also a number with too many digits
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise ValueError(f"is not valid TOML: {reason}") from None


def read_files(folder: Path, *, follow_links: bool) -> tuple[SettingsFile, ...]:
    """Read both settings files. A symbolic link counts as a fault unless links are followed."""
    return tuple(_read(folder / name, follow_links=follow_links) for name in NAMES)


def compute_digest(files: Iterable[SettingsFile]) -> str:
    """Return a hash of all files, missing ones included; "" if one of them cannot be used."""
    digest = hashlib.sha256()
    for file in files:
        if file.fault:
            return ""
        size = "none" if file.content is None else len(file.content)
        digest.update(f"{file.name} {size}\n".encode())
        digest.update(file.content or b"")
    return digest.hexdigest()


def _read(path: Path, *, follow_links: bool) -> SettingsFile:
    name, limit = path.name, MAX_BYTES[path.name]
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            if not follow_links:
                return SettingsFile(name=name, fault="is a symbolic link")
            found = path.stat()
        if stat.S_ISDIR(found.st_mode):  # virtual environments are often called .env
            return SettingsFile(name=name)
        if not stat.S_ISREG(found.st_mode):
            return SettingsFile(name=name, fault="is not a regular file")
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return SettingsFile(name=name, fault="is not a regular file")
            content = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        return SettingsFile(name=name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return SettingsFile(
            name=name, fault=f"cannot be opened: {getattr(error, 'strerror', error)}"
        )
    if len(content) > limit:
        return SettingsFile(name=name, fault=f"is larger than {limit} bytes")
    return SettingsFile(name=name, content=content)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file. A FIFO that replaced it meanwhile does not block."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _parse_toml(text: str) -> dict[str, object]:
    """Return the settings. No setting is a table: those are shortened to a text.

    The text of 8,000 nested tables would exceed Python's recursion limit.
    """
    return {
        name: reprlib.repr(value) if isinstance(value, dict | list) else value
        for name, value in tomllib.loads(text).items()
    }


def _parse_dotenv(text: str) -> dict[str, object]:
    """Return the variables.

    Lines that are no assignments belong to other programs and are skipped.
    """
    from dotenv.parser import parse_stream  # dotenv_values() logs a warning for each such line

    return {one.key: one.value for one in parse_stream(io.StringIO(text)) if one.key is not None}
