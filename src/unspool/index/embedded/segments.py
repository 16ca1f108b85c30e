"""Segments of the word index on disk, each written once, and a state file that lists them.

A folder contains

- `state.json`: the committed state, replaced in one rename
- `N-keys.u64`: the terms of segment N, as keys
- `N-starts.i64`: the start of each term's postings
- `N-rows.u32`: the row of each posting
- `N-weights.f32`: the weight of each posting
- `N-ids.i64`: the chunk id of each row
- `N-documents.i64`: the document id of each row
- `N-dead-V.u8`: deleted or replaced rows, one byte per row

A commit adds segments. When there are many, the newest are merged into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.catalog.feed import Position
from unspool.index.embedded import checksums, postings
from unspool.index.embedded.checksums import Checksums, Column, Files
from unspool.index.embedded.postings import ChunkTerms, LiveSegment, TermPostings, WordSegment
from unspool.index.ports import DamagedError, Ids

FORMAT = 5
_START = Position(0, 0)
SEGMENT_CHUNKS = 8_000  # chunks of one segment, about 60 MB
# Each segment adds 60 microseconds to a search of eight terms. Merging 100 000 chunks takes .7 s
# (bench/segments.py).
MAX_SEGMENTS = 8
DEAD_SHARE = 1 / 3
_COLUMNS: Mapping[str, tuple[str, type[np.generic]]] = {
    "ids": ("i64", np.int64),
    "documents": ("i64", np.int64),
    "keys": ("u64", np.uint64),
    "starts": ("i64", np.int64),
    "rows": ("u32", np.uint32),
    "weights": ("f32", np.float32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """Committed state of one segment."""

    number: int
    rows: int
    dead: int = 0
    dead_version: int = 0
    files: Files = field(default_factory=dict)

    def name_file(self, column: str) -> str:
        """Return the name of a column's file."""
        if column == "dead":
            return f"{self.number}-dead-{self.dead_version}.u8"
        return f"{self.number}-{column}.{_COLUMNS[column][0]}"

    def list_files(self) -> Files:
        """Return the checksums of each file by its name."""
        return {self.name_file(column): sums for column, sums in self.files.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WordState:
    """Committed state of a folder of segments.

    `source` identifies the catalog and project. The segments contain every change up to `position`.
    """

    source: str
    position: Position = _START
    next_number: int = 0
    segments: tuple[SegmentState, ...] = ()
    format: int = FORMAT

    def list_files(self) -> Files:
        """Return the checksums of each file of each segment by its name."""
        return {name: sums for one in self.segments for name, sums in one.list_files().items()}


@dataclass(frozen=True, slots=True)
class WordView:
    """Consistent view of the committed segments."""

    state: WordState
    segments: tuple[LiveSegment, ...] = ()


def read_state(folder: Path) -> WordState | None:
    """Return the committed state; None if there is none, or another version wrote it.

    Raises `DamagedError`.
    """
    values = checksums.read_state(folder)
    if values is None or values.get("format") != FORMAT:
        return None
    try:
        segments = tuple(
            SegmentState(files=checksums.parse_files(one.pop("files")), **one)
            for one in values.pop("segments")
        )
        return WordState(segments=segments, position=Position(*values.pop("position")), **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedError("state.json is malformed") from error


def open_view(folder: Path, state: WordState, previous: WordView | None = None) -> WordView:
    """Map the segments of a state; raises `DamagedError` if the files contradict it.

    Segments that an earlier view has open are not read again.
    """
    known: dict[object, WordSegment] = {}
    if previous is not None:
        opened = zip(previous.state.segments, previous.segments, strict=True)
        known = {_make_key(one): part.segment for one, part in opened}
    return WordView(
        state,
        tuple(_open_segment(folder, one, known.get(_make_key(one))) for one in state.segments),
    )


def _make_key(segment: SegmentState) -> object:
    """Return a key of the files that never change. A rebuilt folder uses the numbers again."""
    return segment.number, *sorted(
        (name, sums.blocks) for name, sums in segment.files.items() if name != "dead"
    )


def _open_segment(
    folder: Path, state: SegmentState, known: WordSegment | None = None
) -> LiveSegment:
    def open_column(name: str, dtype: type[np.generic]) -> Column:
        return Column.open(
            folder / state.name_file(name), state.files.get(name, checksums.EMPTY), dtype
        )

    segment = known or WordSegment(
        **{name: open_column(name, dtype) for name, (_, dtype) in _COLUMNS.items()}
    )
    live = ~open_column("dead", np.bool_).all() if state.dead else None
    if len(segment.ids.all()) != state.rows or (live is not None and len(live) != state.rows):
        raise DamagedError("state.json contradicts the number of rows")
    return LiveSegment(segment, live)


def append(
    folder: Path,
    view: WordView,
    entries: Iterable[ChunkTerms],
    *,
    removed: Sequence[int],
    position: Position,
) -> WordState:
    """Commit entries and the removal of ids in one step; return the new state.

    An entry replaces an earlier one of the same id.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(folder, view)
    writer.remove(np.array(removed, dtype=np.int64))
    remaining = iter(entries)
    while some := list(islice(remaining, SEGMENT_CHUNKS)):
        writer.add(some)
    return writer.commit(position)


class _Writer:
    """Writer of a single commit. Readers see the earlier state until the new one is written."""

    def __init__(self, folder: Path, view: WordView) -> None:
        self._folder = folder
        self._old = view.state
        self._next = view.state.next_number
        self._parts = list(zip(view.state.segments, view.segments, strict=True))
        # files that the new state may no longer use
        self._written = set(view.state.list_files())

    def remove(self, ids: Ids) -> None:
        """Mark the rows of chunks as dead."""
        self._parts = [(state, part.hide(ids)) for state, part in self._parts]

    def add(self, entries: Sequence[ChunkTerms]) -> None:
        """Write a segment of chunks."""
        segment = postings.build_segment(entries)
        self.remove(segment.ids.all())
        self._write(segment.ids.all(), segment.documents.all(), [postings.list_terms(segment)])
        if len(self._parts) > MAX_SEGMENTS:
            self._merge()

    def commit(self, position: Position) -> WordState:
        """Write the state, then delete the files that it does not use."""
        if any(_is_wasteful(part) for _, part in self._parts):
            self._merge()
        segments = tuple(
            self._write_dead(state, part) for state, part in self._parts if part.live_count
        )
        new = replace(
            self._old,
            position=position,
            next_number=self._next,
            segments=segments,
        )
        unused = self._written - new.list_files().keys()
        checksums.write_state(self._folder, asdict(new), unused=unused)
        return new

    def _merge(self) -> None:
        parts = [part for _, part in self._parts]
        first = choose_merge(
            [part.live_count for part in parts], [_is_wasteful(part) for part in parts]
        )
        self._verify(first)
        merged = postings.merge_rows(parts[first:])
        del self._parts[first:]
        self._write(merged.ids, merged.documents, postings.merge_terms(parts[first:], merged))

    def _verify(self, first: int) -> None:
        """Read the segments to merge from disk again.

        Damage that occurred after they were opened must not get new checksums.
        """
        for state, _ in self._parts[first:]:
            for name in state.files.keys() & _COLUMNS.keys():
                file = self._folder / state.name_file(name)
                if found := checksums.find_file_damage(file, state.files[name]):
                    raise DamagedError(found)

    def _write(self, ids: Ids, documents: Ids, pieces: Iterable[TermPostings]) -> None:
        state = SegmentState(number=self._next, rows=len(ids))
        files: dict[str, Checksums] = {}

        def write(name: str, data: npt.NDArray[Any]) -> None:
            files[name] = checksums.append(
                self._folder / state.name_file(name), files.get(name, checksums.EMPTY), data
            )

        write("ids", ids)
        write("documents", documents)
        start = 0
        for piece in pieces:
            write("keys", piece.keys)
            write("starts", start + np.cumsum(piece.counts) - piece.counts)
            write("rows", piece.rows)
            write("weights", piece.weights)
            start += len(piece.rows)
        write("starts", np.array([start], dtype=np.int64))
        state = replace(state, files=files)
        self._next += 1
        self._written |= state.list_files().keys()
        self._parts.append((state, _open_segment(self._folder, state)))

    def _write_dead(self, state: SegmentState, part: LiveSegment) -> SegmentState:
        dead = state.rows - part.live_count
        if dead == state.dead or part.live is None:
            return state
        new = replace(state, dead=dead, dead_version=state.dead_version + 1)
        sums = checksums.append(self._folder / new.name_file("dead"), checksums.EMPTY, ~part.live)
        return replace(new, files={**state.files, "dead": sums})


def _is_wasteful(part: LiveSegment) -> bool:
    dead = 0 if part.live is None else len(part.live) - part.live_count
    return dead > 1000 and dead > DEAD_SHARE * (dead + part.live_count)


def choose_merge(sizes: Sequence[int], wasteful: Sequence[bool]) -> int:
    """Return the first of the segments to merge.

    Merged are the newest, those of at most twice their size, and all after a wasteful one.
    """
    first = len(sizes) - 1
    total = sizes[first]
    while first > 0 and (len(sizes) - first < 2 or sizes[first - 1] <= 2 * total):
        first -= 1
        total += sizes[first]
    return min([first, *(at for at, one in enumerate(wasteful) if one)])
