"""Vectors in flat files: append-only, memory-mapped, scanned from end to end.

No graph, so there is nothing to build or tune, deletes and filters are exact, and the order is deterministic. A folder holds

    state.json           what is committed: rows, generation, position; replaced in one rename
    vectors-G.f32        one row of float32 per point
    codes-G.u64          one bit per dimension: the sign
    ids-G.i64            the chunk id of each row
    documents-G.i64      the document id of each row
    dead-G-N.npy         rows that were deleted or replaced, as a boolean per row

Files only grow behind what `state.json` says is committed, so readers in other processes never see a half-written row, and what a
killed writer left behind is overwritten by the next. When a third of the rows is dead, the next generation is written without them.
"""

from __future__ import annotations

import contextlib
import json
import math
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.catalog.reading import Position
from unspool.vectors.base import Ids, Matches, Points, Vectors, best_first

FORMAT = 1
# Up to here every row is scored with float32: 2.4 ms for 50 000 x 256 on one core. Above, the signs choose candidates: 1.4 ms per
# 100 000 rows, then only those are scored (bench/flat.py).
EXACT_ROWS = 50_000
# On 77 000 real embeddings of the default model 2000 candidates give recall .998 @10 and .94 @200; 20 per wanted hit keeps it there.
MIN_CANDIDATES = 2_000
CANDIDATES_PER_HIT = 20
DEAD_SHARE = 1 / 3
_FILES = (("vectors", "f32"), ("codes", "u64"), ("ids", "i64"), ("documents", "i64"))
_BLOCK = 65_536  # rows per step of the scan over signs: the working set stays in the cache


class DamagedError(Exception):
    """The files contradict their state; the owner rebuilds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is committed. `catalog` and `space` say what the rows were made from."""

    catalog: str
    space: str
    dimension: int
    position: int = 0
    stamp: int = 0
    generation: int = 0
    rows: int = 0
    dead: int = 0
    dead_version: int = 0
    ids_checksum: int = 0
    documents_checksum: int = 0
    format: int = FORMAT

    @property
    def place(self) -> Position:
        """How far the rows have come."""
        return Position(self.position, self.stamp)


@dataclass(frozen=True, slots=True)
class View:
    """A consistent look at the committed rows. `runs` are sorted ids with their rows, newest last, to find a chunk's row."""

    state: State
    vectors: Vectors
    codes: npt.NDArray[np.uint64]
    chunk_ids: Ids
    document_ids: Ids
    alive: npt.NDArray[np.bool_] | None  # None while nothing is dead
    runs: tuple[tuple[Ids, Ids], ...]


def read_state(folder: Path) -> State | None:
    """The committed state, or None where there is none that we can read."""
    try:
        return State(**json.loads((folder / "state.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def open_view(folder: Path, state: State, previous: View | None = None) -> View:
    """Map the files as the state describes them; raises `DamagedError` when they contradict it.

    With an earlier view of the same generation only what came since is checked and sorted.
    """
    rows, dimension, generation = state.rows, state.dimension, state.generation
    if previous is not None and (previous.state.generation != generation or previous.state.rows > rows):
        previous = None
    try:
        vectors = _map(folder / f"vectors-{generation}.f32", np.dtype(np.float32), (rows, dimension))
        codes = _map(folder / f"codes-{generation}.u64", np.dtype(np.uint64), (rows, math.ceil(dimension / 64)))
        chunk_ids = _map(folder / f"ids-{generation}.i64", np.dtype(np.int64), (rows,))
        document_ids = _map(folder / f"documents-{generation}.i64", np.dtype(np.int64), (rows,))
        alive = None
        if state.dead:
            alive = np.ones(rows, dtype=np.bool_)
            dead = np.load(_dead_file(folder, state), allow_pickle=False)
            alive[: len(dead)] = ~dead
    except (OSError, ValueError, EOFError) as error:
        raise DamagedError(str(error)) from error
    view = View(state, vectors, codes, chunk_ids, document_ids, alive, ())
    _check(view, previous.state if previous else replace(state, rows=0, ids_checksum=0, documents_checksum=0))
    return replace(view, runs=_with_run(previous.runs if previous else (), chunk_ids, previous.state.rows if previous else 0))


def _check(view: View, known: State) -> None:
    """Whether the rows after those already known are what was committed."""
    state, start = view.state, known.rows
    if zlib.crc32(view.chunk_ids[start:].tobytes(), known.ids_checksum) != state.ids_checksum:
        raise DamagedError("the chunk ids do not match their checksum")
    if zlib.crc32(view.document_ids[start:].tobytes(), known.documents_checksum) != state.documents_checksum:
        raise DamagedError("the document ids do not match their checksum")
    # Spot checks, because reading every vector would cost a tenth of a second per 100 000 on each open.
    probes = slice(start, state.rows, max(1, (state.rows - start) // 16))
    vectors = np.array(view.vectors[probes])
    with np.errstate(all="ignore"):
        lengths = np.vecdot(vectors, vectors)
    if not np.allclose(lengths, 1.0, atol=1e-3):
        raise DamagedError("a vector is not of length 1")
    if not np.array_equal(signs(vectors), view.codes[probes]):
        raise DamagedError("the signs are not those of the vectors")


def _with_run(runs: tuple[tuple[Ids, Ids], ...], chunk_ids: Ids, start: int) -> tuple[tuple[Ids, Ids], ...]:
    """The runs with one more for the rows from `start`; short ones are merged, so that there are never many."""
    if start == len(chunk_ids):
        return runs
    while runs and len(runs[-1][0]) < 4 * (len(chunk_ids) - start):
        start -= len(runs[-1][0])
        runs = runs[:-1]
    order = np.argsort(chunk_ids[start:], kind="stable")
    return (*runs, (chunk_ids[start:][order], order + start))


def rows_of(view: View, ids: Ids) -> Ids:
    """The live row of each id, or -1."""
    found = np.full(len(ids), -1, dtype=np.int64)
    for sorted_ids, rows in view.runs:  # newest last, and within a run the last of equals: a replaced chunk's older row is dead
        at = np.searchsorted(sorted_ids, ids, side="right") - 1
        hit = (at >= 0) & (sorted_ids[at] == ids)
        found[hit] = rows[at[hit]]
    if view.alive is not None:
        found[(found >= 0) & ~view.alive[found]] = -1
    return found


def append(folder: Path, state: State, view: View, points: Points, *, removed: Ids, position: Position) -> State:
    """Commit points and removals in one step; returns the new state."""
    folder.mkdir(parents=True, exist_ok=True)
    replaced = np.zeros(state.rows, dtype=np.bool_) if view.alive is None else ~view.alive
    gone = rows_of(view, np.concatenate([removed, points.ids]))
    replaced[gone[gone >= 0]] = True
    dead = int(replaced.sum())
    if dead > DEAD_SHARE * (state.rows + len(points.ids)) and dead > 1000:
        return _compact(folder, state, view, points, keep=~replaced, position=position)
    new = _write_rows(folder, state, points)
    if dead != state.dead:
        new = replace(new, dead=dead, dead_version=state.dead_version + 1)
        np.save(_dead_file(folder, new), np.concatenate([replaced, np.zeros(len(points.ids), dtype=np.bool_)]))
    return _commit(folder, replace(new, position=position.seq, stamp=position.stamp), state)


def search(view: View, vector: Vectors, k: int, chosen: npt.NDArray[np.bool_] | None) -> Matches:
    """The k nearest of the rows that are alive and chosen; ties by chunk id."""
    rows = _rows(view, chosen)
    count = view.state.rows if rows is None else len(rows)
    if not count or k < 1:
        return Matches.none()
    if count > EXACT_ROWS:
        rows = _nearest_signs(view, vector, rows, max(MIN_CANDIDATES, k * CANDIDATES_PER_HIT))
    scores = cosines(view.vectors if rows is None else view.vectors[rows], vector)
    return top(view.chunk_ids if rows is None else view.chunk_ids[rows], scores, k)


def score(view: View, vector: Vectors, ids: Ids) -> Vectors:
    """The score of each id; NaN for what is not here."""
    out = np.full(len(ids), np.nan, dtype=np.float32)
    rows = rows_of(view, ids)
    here = np.flatnonzero(rows >= 0)
    out[here] = cosines(view.vectors[rows[here]], vector)
    return out


def top(ids: Ids, scores: Vectors, k: int) -> Matches:
    """The k best, best first, ties by id, whatever order they came in."""
    if len(scores) > k:
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)
        ids, scores = ids[kept], scores[kept]
    return best_first(ids, scores, k)


def signs(vectors: Vectors) -> npt.NDArray[np.uint64]:
    """One bit per dimension, in whole words."""
    packed = np.packbits(vectors > 0, axis=1)
    if odd := packed.shape[1] % 8:
        packed = np.pad(packed, ((0, 0), (0, 8 - odd)))
    words: npt.NDArray[np.uint64] = packed.view(np.uint64)
    return words


def cosines(vectors: Vectors, vector: Vectors) -> Vectors:
    """The cosine of each row. Row by row rather than as one matrix product: that would wake a second thread, which on a busy machine costs
    ten times what it saves, and may differ in the last bit from row to row, where equal texts must tie.
    """
    products: Vectors = np.asarray(np.vecdot(vectors, vector))
    return np.round(products, 6)


def _rows(view: View, chosen: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.intp] | None:
    if chosen is None:
        return None if view.alive is None else np.flatnonzero(view.alive)
    return np.flatnonzero(chosen if view.alive is None else chosen & view.alive)


def _nearest_signs(view: View, vector: Vectors, rows: npt.NDArray[np.intp] | None, wanted: int) -> npt.NDArray[np.intp]:
    query = signs(vector[None, :])[0]
    codes = view.codes if rows is None else view.codes[rows]
    distances = np.empty(len(codes), dtype=np.uint16)
    for start in range(0, len(codes), _BLOCK):
        counts = np.bitwise_count(codes[start : start + _BLOCK] ^ query)
        distances[start : start + _BLOCK] = _row_sums(counts)
    cumulative = np.cumsum(np.bincount(distances))
    chosen = np.flatnonzero(distances <= np.searchsorted(cumulative, min(wanted, len(codes))))
    return chosen if rows is None else rows[chosen]


def _row_sums(counts: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    if counts.shape[1] == 4:  # 256 dimensions: add the four bytes of a row inside one word; a sum can be 256, so the halves need nine bits
        words = counts.view(np.uint32).ravel()
        halves = (words & np.uint32(0x00FF00FF)) + ((words >> np.uint32(8)) & np.uint32(0x00FF00FF))
        sums: npt.NDArray[Any] = (halves + (halves >> np.uint32(16))) & np.uint32(0x1FF)
        return sums
    plain: npt.NDArray[Any] = counts.sum(axis=1, dtype=np.uint16)
    return plain


def _map(file: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if shape[0] == 0:
        return np.zeros(shape, dtype=dtype)
    if file.stat().st_size < math.prod(shape) * dtype.itemsize:
        raise DamagedError(f"{file.name} is shorter than committed")
    # As a plain array: np.memmap's own type costs more per slice than a small search does.
    return np.asarray(np.memmap(file, dtype=dtype, mode="r", shape=shape))


def _write_rows(folder: Path, state: State, points: Points) -> State:
    vectors = np.ascontiguousarray(points.vectors, dtype=np.float32)
    ids = np.ascontiguousarray(points.ids, dtype=np.int64)
    documents = np.ascontiguousarray(points.documents, dtype=np.int64)
    columns: dict[str, npt.NDArray[Any]] = {
        "vectors-{}.f32": vectors,
        "codes-{}.u64": signs(vectors),
        "ids-{}.i64": ids,
        "documents-{}.i64": documents,
    }
    for name, data in columns.items():
        file = folder / name.format(state.generation)
        width = data.itemsize * math.prod(data.shape[1:])
        with open(file, "r+b" if file.exists() else "w+b") as handle:
            handle.truncate(state.rows * width)
            handle.seek(state.rows * width)
            handle.write(np.ascontiguousarray(data).tobytes())
    return replace(
        state,
        rows=state.rows + len(ids),
        ids_checksum=zlib.crc32(ids.tobytes(), state.ids_checksum),
        documents_checksum=zlib.crc32(documents.tobytes(), state.documents_checksum),
    )


def _compact(folder: Path, state: State, view: View, points: Points, *, keep: npt.NDArray[np.bool_], position: Position) -> State:
    new = State(catalog=state.catalog, space=state.space, dimension=state.dimension, generation=state.generation + 1, dead_version=state.dead_version)
    kept = np.flatnonzero(keep)
    for start in range(0, len(kept), _BLOCK):
        rows = kept[start : start + _BLOCK]
        new = _write_rows(folder, new, Points(ids=view.chunk_ids[rows], documents=view.document_ids[rows], vectors=view.vectors[rows]))
    new = _write_rows(folder, new, points)
    return _commit(folder, replace(new, position=position.seq, stamp=position.stamp), state)


def _commit(folder: Path, new: State, old: State) -> State:
    temporary = folder / "state.json.new"
    temporary.write_text(json.dumps(asdict(new)), encoding="utf-8")
    temporary.replace(folder / "state.json")
    stale: list[Path] = []
    if new.generation != old.generation:
        stale += [folder / f"{name}-{old.generation}.{kind}" for name, kind in _FILES]
    if old.dead and (new.generation, new.dead_version) != (old.generation, old.dead_version):
        stale.append(_dead_file(folder, old))
    for file in stale:
        with contextlib.suppress(OSError):  # a reader on a system that forbids it still has it open; the next rebuild takes it
            file.unlink()
    return new


def _dead_file(folder: Path, state: State) -> Path:
    return folder / f"dead-{state.generation}-{state.dead_version}.npy"
