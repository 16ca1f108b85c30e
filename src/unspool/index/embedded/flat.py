"""Vectors in flat files: append-only, memory-mapped, scanned from end to end.

No graph, so there is nothing to build or tune, deletes and filters are exact, and the order is
deterministic. A folder contains

    state.json           the committed state: rows, generation, position, checksums; replaced in one
    rename vectors-G.f32        one row of float32 per point codes-G.u64          one bit per
    dimension: the sign ids-G.i64            the chunk id of each row documents-G.i64      the
    document id of each row dead-G-N.u8          rows that were deleted or replaced, as one byte per
    row

Files only grow behind the rows that `state.json` commits. So readers in other processes never see a
half-written row, and the next writer overwrites the remains of a killed one. When a third of the
rows is dead, the next generation is written without them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.catalog.feed import Position
from unspool.index.embedded import checksums
from unspool.index.embedded.checksums import Checksums, Column, DamagedError, Files
from unspool.index.ports import Ids, Matches, Points, Vectors, best_matches

FORMAT = 3
# Up to here every row is scored with float32: 2.4 ms for 50 000 x 256 on one core. Above, the signs
# choose candidates: 1.4 ms per 100 000 rows, then only those are scored (bench/flat.py).
EXACT_ROWS = 50_000
# On 77 000 real embeddings of the default model 2000 candidates give recall .998 @10 and .94 @200;
# 20 per wanted hit keeps it there.
MIN_CANDIDATES = 2_000
CANDIDATES_PER_HIT = 20
DEAD_SHARE = 1 / 3
_COLUMNS = {"vectors": "f32", "codes": "u64", "ids": "i64", "documents": "i64"}
_BLOCK = 65_536  # rows per step of the scan over signs: the working set stays in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorState:
    """Committed state of a folder.

    `catalog`, `project` and `space` identify the source of the rows.
    """

    catalog: str
    project: int
    space: str
    dimension: int
    position: int = 0
    stamp: int = 0
    generation: int = 0
    rows: int = 0
    dead: int = 0
    dead_version: int = 0
    files: Files = field(default_factory=dict)
    format: int = FORMAT

    @property
    def place(self) -> Position:
        """Position in the catalog's changes up to which the rows are current."""
        return Position(self.position, self.stamp)

    def name(self, column: str) -> str:
        """Return the name of a column's file."""
        if column == "dead":
            return f"dead-{self.generation}-{self.dead_version}.u8"
        return f"{column}-{self.generation}.{_COLUMNS[column]}"

    def sums(self, column: str) -> Checksums:
        """Return the checksums of a column's file; of no bytes where the file is not written
        yet.
        """
        return self.files.get(column, Checksums())


@dataclass(frozen=True, slots=True)
class VectorView:
    """A consistent view of the committed rows.

    `runs` are sorted ids with their rows, newest last, to find a chunk's row.
    """

    state: VectorState
    vectors: Column
    codes: Column
    ids: Column
    documents: Column
    alive: npt.NDArray[np.bool_] | None  # None while nothing is dead
    runs: tuple[tuple[Ids, Ids], ...]

    @property
    def chunk_ids(self) -> Ids:
        """Chunk id of each row."""
        return self.ids.all()

    @property
    def document_ids(self) -> Ids:
        """Document id of each row."""
        return self.documents.all()


def read_state(folder: Path) -> VectorState | None:
    """Return the committed state, or None where nothing is committed or another version wrote it.

    Raises `DamagedError`.
    """
    values = checksums.read_state(folder)
    if values is None or values.get("format") != FORMAT:
        return None
    try:
        files = {name: Checksums.from_json(one) for name, one in values.pop("files").items()}
        return VectorState(files=files, **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedError("state.json is malformed") from error


def open_view(folder: Path, state: VectorState, previous: VectorView | None = None) -> VectorView:
    """Map the files as the state describes them; raises `DamagedError` when they contradict it.

    With an earlier view of the same generation only the rows since are verified and sorted.
    """
    if previous is not None and (
        previous.state.generation != state.generation or previous.state.rows > state.rows
    ):
        previous = None

    def column(name: str, dtype: type[np.generic], width: int | None = None) -> Column:
        known: Column | None = getattr(previous, name, None)
        return Column.open(
            folder / state.name(name), state.sums(name), dtype, width=width, previous=known
        )

    ids = column("ids", np.int64)
    view = VectorView(
        state=state,
        vectors=column("vectors", np.float32, state.dimension),
        codes=column("codes", np.uint64, math.ceil(state.dimension / 64)),
        ids=ids,
        documents=column("documents", np.int64),
        alive=~_pad(column("dead", np.bool_).all(), state.rows) if state.dead else None,
        runs=_add_run(
            previous.runs if previous else (), ids.all(), previous.state.rows if previous else 0
        ),
    )
    if not len(view.chunk_ids) == len(view.document_ids) == state.rows:
        raise DamagedError("state.json contradicts the number of rows")
    return view


def _pad(dead: npt.NDArray[np.bool_], rows: int) -> npt.NDArray[np.bool_]:
    return (
        np.concatenate([dead, np.zeros(rows - len(dead), dtype=np.bool_)])
        if len(dead) < rows
        else dead
    )


def _add_run(
    runs: tuple[tuple[Ids, Ids], ...], chunk_ids: Ids, start: int
) -> tuple[tuple[Ids, Ids], ...]:
    """Return the runs with one more for the rows from `start`; short ones are merged, so that
    there are never many.
    """
    if start == len(chunk_ids):
        return runs
    while runs and len(runs[-1][0]) < 4 * (len(chunk_ids) - start):
        start -= len(runs[-1][0])
        runs = runs[:-1]
    order = np.argsort(chunk_ids[start:], kind="stable")
    return (*runs, (chunk_ids[start:][order], order + start))


def rows_of(view: VectorView, ids: Ids) -> Ids:
    """Return the live row of each id, or -1."""
    found = np.full(len(ids), -1, dtype=np.int64)
    # newest last, and within a run the last of equals: a replaced chunk's older row is dead
    for sorted_ids, rows in view.runs:
        at = np.searchsorted(sorted_ids, ids, side="right") - 1
        hit = (at >= 0) & (sorted_ids[at] == ids)
        found[hit] = rows[at[hit]]
    if view.alive is not None:
        found[(found >= 0) & ~view.alive[found]] = -1
    return found


def append(
    folder: Path, view: VectorView, points: Points, *, removed: Ids, position: Position
) -> VectorState:
    """Commit points and removals in one step; returns the new state."""
    folder.mkdir(parents=True, exist_ok=True)
    state = view.state
    replaced = np.zeros(state.rows, dtype=np.bool_) if view.alive is None else ~view.alive
    gone = rows_of(view, np.concatenate([removed, points.ids]))
    replaced[gone[gone >= 0]] = True
    dead = int(replaced.sum())
    if dead > DEAD_SHARE * (state.rows + len(points.ids)) and dead > 1000:
        return _compact(folder, view, points, keep=~replaced, position=position)
    new = _write_rows(folder, state, points)
    if dead != state.dead:
        new = replace(new, dead=dead, dead_version=state.dead_version + 1)
        sums = checksums.append(folder / new.name("dead"), Checksums(), replaced)
        new = replace(new, files={**new.files, "dead": sums})
    return _commit(folder, replace(new, position=position.seq, stamp=position.stamp), state)


def search(
    view: VectorView, vector: Vectors, k: int, chosen: npt.NDArray[np.bool_] | None
) -> Matches:
    """Return the k nearest of the rows that are alive and chosen; ties by chunk id."""
    rows = _select_rows(view, chosen)
    count = view.state.rows if rows is None else len(rows)
    if not count or k < 1:
        return Matches.none()
    if count > EXACT_ROWS:
        rows = _nearest_signs(view, vector, rows, max(MIN_CANDIDATES, k * CANDIDATES_PER_HIT))
    scores = cosines(view.vectors.all() if rows is None else view.vectors.take(rows), vector)
    return best_matches(view.chunk_ids if rows is None else view.chunk_ids[rows], scores, k)


def score(view: VectorView, vector: Vectors, ids: Ids) -> Vectors:
    """Return the score of each id; NaN for an absent one."""
    out = np.full(len(ids), np.nan, dtype=np.float32)
    rows = rows_of(view, ids)
    here = np.flatnonzero(rows >= 0)
    out[here] = cosines(view.vectors.take(rows[here]), vector)
    return out


def signs(vectors: Vectors) -> npt.NDArray[np.uint64]:
    """Return one bit per dimension, in whole words."""
    packed = np.packbits(vectors > 0, axis=1)
    if odd := packed.shape[1] % 8:
        packed = np.pad(packed, ((0, 0), (0, 8 - odd)))
    words: npt.NDArray[np.uint64] = packed.view(np.uint64)
    return words


def cosines(vectors: Vectors, vector: Vectors) -> Vectors:
    """Return the cosine of each row.

    The products are computed row by row. One matrix product would wake a second thread, which costs
    ten times its gain on a busy machine. It may also differ in the last bit from row to row, where
    equal texts must tie.
    """
    products: Vectors = np.asarray(np.vecdot(vectors, vector))
    return np.round(products, 6)


def _select_rows(
    view: VectorView, chosen: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.intp] | None:
    if chosen is None:
        return None if view.alive is None else np.flatnonzero(view.alive)
    return np.flatnonzero(chosen if view.alive is None else chosen & view.alive)


def _nearest_signs(
    view: VectorView, vector: Vectors, rows: npt.NDArray[np.intp] | None, wanted: int
) -> npt.NDArray[np.intp]:
    query = signs(vector[None, :])[0]
    codes = view.codes.all() if rows is None else view.codes.take(rows)
    distances = np.empty(len(codes), dtype=np.uint16)
    for start in range(0, len(codes), _BLOCK):
        counts = np.bitwise_count(codes[start : start + _BLOCK] ^ query)
        distances[start : start + _BLOCK] = _row_sums(counts)
    cumulative = np.cumsum(np.bincount(distances))
    chosen = np.flatnonzero(distances <= np.searchsorted(cumulative, min(wanted, len(codes))))
    return chosen if rows is None else rows[chosen]


def _row_sums(counts: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    # 256 dimensions: add the four bytes of a row inside one word; a sum can be 256, so the halves
    # need nine bits
    if counts.shape[1] == 4:
        words = counts.view(np.uint32).ravel()
        halves = (words & np.uint32(0x00FF00FF)) + ((words >> np.uint32(8)) & np.uint32(0x00FF00FF))
        sums: npt.NDArray[Any] = (halves + (halves >> np.uint32(16))) & np.uint32(0x1FF)
        return sums
    plain: npt.NDArray[Any] = counts.sum(axis=1, dtype=np.uint16)
    return plain


def _write_rows(folder: Path, state: VectorState, points: Points) -> VectorState:
    vectors = np.ascontiguousarray(points.vectors, dtype=np.float32)
    columns: Mapping[str, npt.NDArray[Any]] = {
        "vectors": vectors,
        "codes": signs(vectors),
        "ids": np.asarray(points.ids, dtype=np.int64),
        "documents": np.asarray(points.documents, dtype=np.int64),
    }
    written = {
        name: checksums.append(folder / state.name(name), state.sums(name), data)
        for name, data in columns.items()
    }
    return replace(state, rows=state.rows + len(points.ids), files={**state.files, **written})


def _compact(
    folder: Path,
    view: VectorView,
    points: Points,
    *,
    keep: npt.NDArray[np.bool_],
    position: Position,
) -> VectorState:
    state = view.state
    # a fault that came after the files were opened must not get new checksums
    if damage := find_damage(folder):
        raise DamagedError(damage[0])
    new = replace(state, generation=state.generation + 1, rows=0, dead=0, files={})
    kept = np.flatnonzero(keep)
    for start in range(0, len(kept), _BLOCK):
        rows = kept[start : start + _BLOCK]
        new = _write_rows(
            folder,
            new,
            Points(
                ids=view.chunk_ids[rows],
                documents=view.document_ids[rows],
                vectors=view.vectors.take(rows),
            ),
        )
    new = _write_rows(folder, new, points)
    return _commit(folder, replace(new, position=position.seq, stamp=position.stamp), state)


def _commit(folder: Path, new: VectorState, old: VectorState) -> VectorState:
    checksums.write_state(folder, asdict(new))
    kept = {new.name(name) for name in new.files}
    for name in {old.name(name) for name in old.files} - kept:
        # a reader on a system that forbids it still has it open; the next rebuild removes it
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    return new


def find_damage(folder: Path) -> list[str]:
    """Return how the files on disk differ from what was committed."""
    try:
        state = read_state(folder)
    except DamagedError as error:
        return [str(error)]
    files = (
        [] if state is None else [(state.name(name), sums) for name, sums in state.files.items()]
    )
    return [found for name, sums in files if (found := checksums.find_damage(folder / name, sums))]
