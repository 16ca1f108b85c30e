"""Disks that cannot be written: a read-only mount for one process, and a small disk that can be
filled.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
_CURE = "run the tests as root with CAP_SYS_ADMIN on Linux"


def read_only(folder: Path, *command: str) -> list[str]:
    """Return a command that sees a folder mounted read-only, in a mount namespace of its own."""
    made = ["unshare", "--mount", "sh", "-c", _READ_ONLY, str(folder), *command]
    try:
        tried = subprocess.run([*made[:6], "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no unshare here; install util-linux and {_CURE}")
    if tried.returncode:
        pytest.skip(f"nothing can be mounted read-only here ({tried.stderr.strip()}); {_CURE}")
    return made


@contextmanager
def small_disk(folder: Path, *, size: str = "400k") -> Iterator[Path]:
    """Mount a disk of its own that holds little."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here ({done.stderr.strip()}); {_CURE}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def fill(folder: Path) -> Path:
    """Write a file until not one more byte fits on its disk."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler
