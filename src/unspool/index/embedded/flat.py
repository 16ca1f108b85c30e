"""Vectors in flat files: append-only, memory-mapped, scanned from end to end.

Without a graph there is nothing to build or tune. Deletes and filters are exact, and the order is
deterministic. A folder contains

- `state.json`: the committed state, replaced in one rename
- `vectors-G.f32`: one row of float32 per chunk
- `codes-G.u64`: the sign of each dimension, one bit each
- `ids-G.i64`: the chunk id of each row
- `documents-G.i64`: the document id of each row
- `dead-G-N.u8`: deleted or replaced rows, one byte per row

Files only grow behind the rows that `state.json` commits. So readers in other processes never see a
half-written row, and the next writer overwrites the remains of a killed writer. When a third of
the rows is dead, the next generation is written without them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.catalog.feed import Position
from unspool.index.embedded import checksums
from unspool.index.embedded.checksums import Checksums, Column, Files
from unspool.index.options import Metric
from unspool.index.ports import Candidates, DamagedError, Ids, Vectors, rank_candidates
from unspool.index.tail import compute_scores

FORMAT = 5
_START = Position(0, 0)
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
    """Committed state of a folder of vectors.

    `source` identifies the catalog, project and vector space. The rows contain every change up to
    `position`.
    """

    source: str
    dimension: int
    position: Position = _START
    generation: int = 0
    rows: int = 0
    dead: int = 0
    dead_version: int = 0
    files: Files = field(default_factory=dict)
    format: int = FORMAT

    def name_file(self, column: str) -> str:
        """Return the name of a column's file."""
        if column == "dead":
            return f"dead-{self.generation}-{self.dead_version}.u8"
        return f"{column}-{self.generation}.{_COLUMNS[column]}"

    def get_sums(self, column: str) -> Checksums:
        """Return the checksums of a column's file; empty ones if it is not written yet."""
        return self.files.get(column, checksums.EMPTY)

    def list_files(self) -> Files:
        """Return the checksums of each file by its name."""
        return {self.name_file(column): sums for column, sums in self.files.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRows:
    """Vectors to write, with the chunk and document of each."""

    ids: Ids
    documents: Ids
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class VectorView:
    """Consistent view of the committed rows.

    `runs` contain sorted ids with their rows, newest last, to find a chunk's row.
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
    """Return the committed state; None if there is none, or another version wrote it.

    Raises `DamagedError`.
    """
    values = checksums.read_state(folder)
    if values is None or values.get("format") != FORMAT:
        return None
    try:
        files = checksums.parse_files(values.pop("files"))
        return VectorState(files=files, position=Position(*values.pop("position")), **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedError("state.json is malformed") from error


def open_view(folder: Path, state: VectorState, previous: VectorView | None = None) -> VectorView:
    """Map the files of a state; raises `DamagedError` if they contradict it.

    Rows of an earlier view of the same generation are not verified and sorted again.
    """
    if previous is not None and (
        previous.state.generation != state.generation or previous.state.rows > state.rows
    ):
        previous = None

    def open_column(name: str, dtype: type[np.generic], width: int | None = None) -> Column:
        known: Column | None = getattr(previous, name, None)
        return Column.open(
            folder / state.name_file(name), state.get_sums(name), dtype, width=width, previous=known
        )

    ids = open_column("ids", np.int64)
    view = VectorView(
        state=state,
        vectors=open_column("vectors", np.float32, state.dimension),
        codes=open_column("codes", np.uint64, math.ceil(state.dimension / 64)),
        ids=ids,
        documents=open_column("documents", np.int64),
        alive=~_pad(open_column("dead", np.bool_).all(), state.rows) if state.dead else None,
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
    """Add a run for the rows from `start`; merge short runs, so that there are always few."""
    if start == len(chunk_ids):
        return runs
    while runs and len(runs[-1][0]) < 4 * (len(chunk_ids) - start):
        start -= len(runs[-1][0])
        runs = runs[:-1]
    order = np.argsort(chunk_ids[start:], kind="stable")
    return (*runs, (chunk_ids[start:][order], order + start))


def find_rows(view: VectorView, ids: Ids) -> Ids:
    """Return the live row of each id, or -1."""
    found = np.full(len(ids), -1, dtype=np.int64)
    # the newest run is last, and within a run the newest of equal ids: older rows are dead
    for sorted_ids, rows in view.runs:
        at = np.searchsorted(sorted_ids, ids, side="right") - 1
        hit = (at >= 0) & (sorted_ids[at] == ids)
        found[hit] = rows[at[hit]]
    if view.alive is not None:
        found[(found >= 0) & ~view.alive[found]] = -1
    return found


def append(
    folder: Path, view: VectorView, added: VectorRows, *, removed: Ids, position: Position
) -> VectorState:
    """Commit new rows and the removal of ids in one step; return the new state."""
    folder.mkdir(parents=True, exist_ok=True)
    state = view.state
    is_dead = np.zeros(state.rows, dtype=np.bool_) if view.alive is None else ~view.alive
    replaced = find_rows(view, np.concatenate([removed, added.ids]))
    is_dead[replaced[replaced >= 0]] = True
    dead = int(is_dead.sum())
    if dead > DEAD_SHARE * (state.rows + len(added.ids)) and dead > 1000:
        new = _write_rows(folder, _compact(folder, view, ~is_dead), added)
    else:
        new = _write_rows(folder, state, added)
        if dead != state.dead:
            new = replace(new, dead=dead, dead_version=state.dead_version + 1)
            sums = checksums.append(folder / new.name_file("dead"), checksums.EMPTY, is_dead)
            new = replace(new, files={**new.files, "dead": sums})
    new = replace(new, position=position)
    unused = state.list_files().keys() - new.list_files().keys()
    checksums.write_state(folder, asdict(new), unused=unused)
    return new


def search(
    view: VectorView, vector: Vectors, k: int, chosen: npt.NDArray[np.bool_] | None
) -> Candidates:
    """Return the k nearest of the rows that are alive and chosen; ties by chunk id."""
    rows = _select_rows(view, chosen)
    count = view.state.rows if rows is None else len(rows)
    if not count or k < 1:
        return Candidates.empty()
    if count > EXACT_ROWS:
        rows = _find_nearest_signs(view, vector, rows, max(MIN_CANDIDATES, k * CANDIDATES_PER_HIT))
    scores = compute_scores(
        view.vectors.all() if rows is None else view.vectors.take(rows), vector, Metric.COSINE
    )
    return rank_candidates(view.chunk_ids if rows is None else view.chunk_ids[rows], scores, k)


def score(view: VectorView, vector: Vectors, ids: Ids) -> Vectors:
    """Return the score of each id; NaN for an absent one."""
    out = np.full(len(ids), np.nan, dtype=np.float32)
    rows = find_rows(view, ids)
    here = np.flatnonzero(rows >= 0)
    out[here] = compute_scores(view.vectors.take(rows[here]), vector, Metric.COSINE)
    return out


def pack_signs(vectors: Vectors) -> npt.NDArray[np.uint64]:
    """Return the sign of each dimension as one bit, in whole words of 64 bits."""
    packed = np.packbits(vectors > 0, axis=1)
    if odd := packed.shape[1] % 8:
        packed = np.pad(packed, ((0, 0), (0, 8 - odd)))
    words: npt.NDArray[np.uint64] = packed.view(np.uint64)
    return words


def _select_rows(
    view: VectorView, chosen: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.intp] | None:
    if chosen is None:
        return None if view.alive is None else np.flatnonzero(view.alive)
    return np.flatnonzero(chosen if view.alive is None else chosen & view.alive)


def _find_nearest_signs(
    view: VectorView, vector: Vectors, rows: npt.NDArray[np.intp] | None, wanted: int
) -> npt.NDArray[np.intp]:
    query = pack_signs(vector[None, :])[0]
    codes = view.codes.all() if rows is None else view.codes.take(rows)
    distances = np.empty(len(codes), dtype=np.uint16)
    for start in range(0, len(codes), _BLOCK):
        counts = np.bitwise_count(codes[start : start + _BLOCK] ^ query)
        distances[start : start + _BLOCK] = _sum_rows(counts)
    cumulative = np.cumsum(np.bincount(distances))
    chosen = np.flatnonzero(distances <= np.searchsorted(cumulative, min(wanted, len(codes))))
    return chosen if rows is None else rows[chosen]


def _sum_rows(counts: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    # 256 dimensions: add the four bytes of a row inside one word. A sum can be 256, so each half
    # needs nine bits.
    if counts.shape[1] == 4:
        words = counts.view(np.uint32).ravel()
        halves = (words & np.uint32(0x00FF00FF)) + ((words >> np.uint32(8)) & np.uint32(0x00FF00FF))
        sums: npt.NDArray[Any] = (halves + (halves >> np.uint32(16))) & np.uint32(0x1FF)
        return sums
    plain: npt.NDArray[Any] = counts.sum(axis=1, dtype=np.uint16)
    return plain


def _write_rows(folder: Path, state: VectorState, added: VectorRows) -> VectorState:
    vectors = np.ascontiguousarray(added.vectors, dtype=np.float32)
    columns: Mapping[str, npt.NDArray[Any]] = {
        "vectors": vectors,
        "codes": pack_signs(vectors),
        "ids": np.asarray(added.ids, dtype=np.int64),
        "documents": np.asarray(added.documents, dtype=np.int64),
    }
    written = {
        name: checksums.append(folder / state.name_file(name), state.get_sums(name), data)
        for name, data in columns.items()
    }
    return replace(state, rows=state.rows + len(added.ids), files={**state.files, **written})


def _compact(folder: Path, view: VectorView, alive: npt.NDArray[np.bool_]) -> VectorState:
    """Write the rows that are alive as the next generation; return its uncommitted state."""
    # damage that occurred after the files were opened must not get new checksums
    if damage := checksums.find_damage(folder, read_state):
        raise DamagedError(damage[0])
    state = replace(view.state, generation=view.state.generation + 1, rows=0, dead=0, files={})
    kept = np.flatnonzero(alive)
    for start in range(0, len(kept), _BLOCK):
        rows = kept[start : start + _BLOCK]
        block = VectorRows(
            ids=view.chunk_ids[rows],
            documents=view.document_ids[rows],
            vectors=view.vectors.take(rows),
        )
        state = _write_rows(folder, state, block)
    return state
