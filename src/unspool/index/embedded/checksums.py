"""Checksums of the derived folder: an XXH3 hash of each block of a file's committed bytes.

Files of up to `EAGER_BYTES` are verified when they are opened. Larger files are verified block by
block when they are first read.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_intdigest

from unspool.index.ports import DamagedError

BLOCK_BYTES = 1 << 20
EAGER_BYTES = 64_000_000  # 15 ms on one core, most of it reading (bench/corruption.py)
_READ_BYTES = 1 << 17


@dataclass(frozen=True, slots=True)
class Checksums:
    """Size of a file's committed bytes, and the hash of each block of them."""

    size: int = 0
    blocks: tuple[int, ...] = ()

    def get_block_range(self, block: int) -> tuple[int, int]:
        """Return the byte range of a block."""
        return block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, self.size)

    def verify(self, block: int, digest: int, file: Path) -> None:
        """Raise `DamagedError` if the digest differs from that of the committed block."""
        if digest != self.blocks[block]:
            raise DamagedError(f"{file.name} differs from its checksum in block {block}")

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Parse checksums of a state file; raises `ValueError` or `TypeError` if malformed."""
        size, blocks = int(value["size"]), tuple(map(int, value["blocks"]))
        if size < 0 or len(blocks) != math.ceil(size / BLOCK_BYTES):
            raise ValueError("the number of blocks does not fit the size")
        return cls(size, blocks)


EMPTY = Checksums()  # of no bytes
Files = Mapping[str, Checksums]  # by the name of a column or file


def parse_files(values: Mapping[str, Any]) -> Files:
    """Parse the checksums of several files."""
    return {name: Checksums.from_json(one) for name, one in values.items()}


def append(file: Path, sums: Checksums, data: npt.NDArray[Any]) -> Checksums:
    """Write an array behind a file's committed bytes, over the remains of a killed writer.

    Raises `DamagedError` if the last block, which is extended, differs from its checksum.
    """
    octets = _view_bytes(np.ascontiguousarray(data))
    full, filled = divmod(sums.size, BLOCK_BYTES)
    with open(file, "r+b" if file.exists() else "w+b") as handle:
        last = _verify_block(handle, sums, full, file) if filled else xxh3_64()
        handle.truncate(sums.size)
        handle.seek(sums.size)
        handle.write(octets)
    blocks = list(sums.blocks[:full])
    added = octets[: BLOCK_BYTES - filled]
    if filled or len(added):
        last.update(added)
        blocks.append(last.intdigest())
    blocks += (
        xxh3_64_intdigest(octets[at : at + BLOCK_BYTES])
        for at in range(len(added), len(octets), BLOCK_BYTES)
    )
    return Checksums(sums.size + len(octets), tuple(blocks))


def _verify_block(
    handle: io.BufferedIOBase | io.RawIOBase, sums: Checksums, block: int, file: Path
) -> xxh3_64:
    """Verify a block and return its hash.

    The block is read through a small buffer, so that the file does not count as memory of this
    process.
    """
    start, stop = sums.get_block_range(block)
    digest, left = xxh3_64(), stop - start
    buffer = memoryview(bytearray(min(left, _READ_BYTES)))  # stays in the processor's cache
    handle.seek(start)
    while left and (count := handle.readinto(buffer[:left])):
        digest.update(buffer[:count])
        left -= count
    sums.verify(block, digest.intdigest(), file)
    return digest


class Column:
    """Memory-mapped array that is verified before it is read. Only committed rows are visible."""

    def __init__(
        self,
        array: npt.NDArray[Any],
        file: Path = Path(),
        sums: Checksums = EMPTY,
        pending: Iterable[int] = (),
    ) -> None:
        self._array = array
        self._file = file
        self._sums = sums
        self._pending = set(pending)  # blocks that are not verified yet

    @classmethod
    def open(
        cls,
        file: Path,
        sums: Checksums,
        dtype: type[np.generic],
        *,
        width: int | None = None,
        previous: Column | None = None,
    ) -> Self:
        """Map a file's committed bytes, as rows of `width` values if that is given.

        Blocks that `previous` has verified are not read again.
        Raises `DamagedError` if the file is missing, too short, or differs from its checksums.
        """
        row_bytes = np.dtype(dtype).itemsize * (width or 1)
        if sums.size % row_bytes:
            raise DamagedError(f"{file.name} does not have whole rows")
        row_count = sums.size // row_bytes
        shape = (row_count,) if width is None else (row_count, width)
        if not sums.size:
            return cls(np.zeros(shape, dtype=dtype))
        blocks = range(len(sums.blocks))
        pending = [one for one in blocks if not (previous and previous._knows(one, file, sums))]
        try:
            with open(file, "rb", buffering=0) as handle:
                if file.stat().st_size < sums.size:
                    raise DamagedError(f"{file.name} is shorter than committed")
                mapped = mmap.mmap(handle.fileno(), sums.size, access=mmap.ACCESS_READ)
                if sums.size <= EAGER_BYTES:
                    for block in pending:
                        _verify_block(handle, sums, block, file)
                    pending = []
        except (OSError, ValueError) as error:
            raise DamagedError(f"{file.name} cannot be read ({error})") from error
        return cls(np.frombuffer(mapped, dtype=dtype).reshape(shape), file, sums, pending)

    def all(self) -> npt.NDArray[Any]:
        """Return every row."""
        self._verify(range(len(self._sums.blocks)))
        return self._array

    def slice(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the rows from `start` to before `stop`."""
        if self._pending and start < stop:
            last = (stop * self._row_bytes - 1) // BLOCK_BYTES
            self._verify(range(start * self._row_bytes // BLOCK_BYTES, last + 1))
        return self._array[start:stop]

    def take(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """Return the rows with these numbers."""
        if self._pending:
            first = rows * self._row_bytes // BLOCK_BYTES
            last = ((rows + 1) * self._row_bytes - 1) // BLOCK_BYTES
            # a row is far shorter than a block, so it is in two at most
            self._verify(np.union1d(first, last).tolist())
        return self._array[rows]

    @property
    def _row_bytes(self) -> int:
        return self._array.itemsize * math.prod(self._array.shape[1:])

    def _knows(self, block: int, file: Path, sums: Checksums) -> bool:
        """Return whether the same block of the same file was verified here."""
        return (
            file == self._file
            and block < len(self._sums.blocks)
            and block not in self._pending
            and sums.blocks[block] == self._sums.blocks[block]
            and sums.get_block_range(block) == self._sums.get_block_range(block)
        )

    def _verify(self, blocks: Iterable[int]) -> None:
        """Verify blocks in memory, because they are about to be read."""
        for block in self._pending and self._pending.intersection(blocks):
            octets = _view_bytes(self._array)[slice(*self._sums.get_block_range(block))]
            self._sums.verify(block, xxh3_64_intdigest(octets), self._file)
            self._pending.discard(block)


def _view_bytes(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def find_damage(folder: Path, read: Callable[[Path], Any]) -> list[str]:
    """Describe how the files on disk differ from the state that `read` returns.

    The state lists its files by `list_files`.
    """
    try:
        state = read(folder)
    except DamagedError as error:
        return [str(error)]
    files = {} if state is None else state.list_files()
    return [found for name in files if (found := find_file_damage(folder / name, files[name]))]


def find_file_damage(file: Path, sums: Checksums) -> str:
    """Describe how a file on disk differs from its checksums; empty if it does not.

    Every block is read again, even if it was verified before.
    """
    try:
        with open(file, "rb") as handle:
            for block in range(len(sums.blocks)):
                _verify_block(handle, sums, block, file)
    except DamagedError as error:
        return str(error)
    except FileNotFoundError:
        return f"{file.name} is missing" if sums.size else ""
    except OSError as error:
        return f"{file.name} cannot be read ({error.strerror})"
    return ""


def write_state(folder: Path, state: Mapping[str, Any], *, unused: Iterable[str] = ()) -> None:
    """Replace a folder's state file in one rename, then delete the files it no longer uses."""
    body = json.dumps(state, sort_keys=True)
    temporary = folder / "state.json.new"
    temporary.write_text(
        json.dumps({"checksum": xxh3_64_intdigest(body.encode()), "state": body}), encoding="utf-8"
    )
    temporary.replace(folder / "state.json")
    for name in unused:
        # Windows does not delete a file that a reader has open; the next rebuild deletes it
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def read_state(folder: Path) -> dict[str, Any] | None:
    """Return the committed state; None if nothing was committed.

    Raises `DamagedError` if the file is not as it was written.
    """
    try:
        outer = json.loads((folder / "state.json").read_bytes())
        body = outer["state"]
        if xxh3_64_intdigest(body.encode()) != outer["checksum"] or outer.keys() != {
            "checksum",
            "state",
        }:
            raise DamagedError("state.json differs from its checksum")
        state: dict[str, Any] = json.loads(body)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(f"state.json cannot be read ({type(error).__name__})") from error
    return state
