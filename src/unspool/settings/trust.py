"""List of trusted folders: whose settings files the user has reviewed, by path and content hash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unspool.errors import ConfigError, ServiceError

_VERSION = 1
_MAX_BYTES = 16_000_000
_LOCK_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedFolder:
    """Folder whose settings files were trusted, with the hash of their content at that time."""

    folder: str
    digest: str
    trusted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedSetting:
    """Setting of a folder's file, as shown to the user who trusts the folder."""

    file: str
    name: str
    value: str  # secrets masked
    state: str  # "applies", or by which layer it is overridden


class FolderState(StrEnum):
    """State of a trusted folder."""

    TRUSTED = "trusted"
    CHANGED = "changed"
    MISSING = "missing"


class TrustStore:
    """File with the trusted folders.

    A missing file means none; a damaged file is an error and is never overwritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, folder: Path) -> TrustedFolder | None:
        """Return the entry of a folder."""
        return self.entries().get(str(folder))

    def entries(self) -> Mapping[str, TrustedFolder]:
        """Return every trusted folder by its path. Raise ConfigError if the file is damaged."""
        try:
            with self.path.open("rb") as file:
                content = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(
                f"the list of trusted folders {self.path} cannot be read ({error.strerror}), so "
                f"no folder is trusted; "
                "make the file readable or remove it"
            ) from error
        try:
            return MappingProxyType(
                {
                    folder: _decode_entry(folder, entry)
                    for folder, entry in _decode_folders(content).items()
                }
            )
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ConfigError(
                f"the list of trusted folders {self.path} is damaged, so no folder is trusted; "
                "correct or remove the file, then run `unspool trust` in each folder again"
            ) from error

    def add(self, folder: Path, digest: str) -> TrustedFolder:
        """Trust a folder while its settings files have this hash."""
        entry = TrustedFolder(
            folder=str(folder), digest=digest, trusted_at=datetime.now(UTC).replace(microsecond=0)
        )
        with self._lock():
            self._write({**self.entries(), entry.folder: entry})
        return entry

    def remove(self, folder: Path) -> bool:
        """Stop trusting a folder. Return False if it was not trusted."""
        with self._lock():
            entries = dict(self.entries())
            if entries.pop(str(folder), None) is None:
                return False
            self._write(entries)
        return True

    @contextmanager
    def _lock(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(
                self.path.with_name(self.path.name + ".lock"), timeout=_LOCK_S, mode=0o600
            ):
                yield
        except Timeout as error:
            raise ServiceError(f"{self.path} is in use by another process; try again") from error
        except OSError as error:
            raise ServiceError(
                f"{self.path} cannot be written ({error.strerror}); check the folder's permissions"
            ) from error

    def _write(self, entries: Mapping[str, TrustedFolder]) -> None:
        """Replace the file atomically. Only its owner can read the new one."""
        import tempfile  # not at the top: every program that opens a corpus would wait for it

        target = self.path.resolve()  # the file may be a link into a folder of configuration files
        folders = {
            one.folder: {"sha256": one.digest, "trusted_at": one.trusted_at.isoformat()}
            for one in entries.values()
        }
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                json.dump({"version": _VERSION, "folders": folders}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise


def _decode_folders(content: bytes) -> dict[str, Any]:
    document = json.loads(content)
    if document["version"] != _VERSION:
        raise ValueError("unknown version")
    return dict(document["folders"])


def _decode_entry(folder: str, entry: Any) -> TrustedFolder:
    digest, moment = entry["sha256"], datetime.fromisoformat(entry["trusted_at"])
    if not isinstance(digest, str) or not digest:
        raise ValueError("no hash")
    return TrustedFolder(folder=folder, digest=digest, trusted_at=moment)
