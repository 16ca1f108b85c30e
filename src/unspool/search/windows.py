"""Result windows: the frozen ranking of one search, and the state needed to extend it.

The first segment is ranked when the search runs. Pages past its end append further segments.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.catalog.statements import group_by_project
from unspool.catalog.windows import SegmentRow, WindowRow, WindowStore
from unspool.domain import continuations
from unspool.domain.continuations import Cursor
from unspool.domain.queries import Served
from unspool.errors import (
    DeniedContinuationError,
    ExpiredContinuationError,
    OutdatedContinuationError,
    ServiceError,
    SweptContinuationError,
)
from unspool.index.ports import Ids
from unspool.search.request import SearchRequest

# One row per chunk. Copies of a text follow the one that is shown. `document` and `position` find
# the chunk that replaced a deleted one.
ENTRY = np.dtype(
    [
        ("project", "<i8"),
        ("id", "<i8"),
        ("text_key", "<i8"),
        ("document", "<i8"),
        ("position", "<i4"),
        ("score", "<f4"),
        ("is_copy", "?"),
    ]
)
Entries = npt.NDArray[np.void]
NO_IDS: Ids = np.zeros(0, dtype=np.int64)
NO_ENTRIES: Entries = np.zeros(0, dtype=ENTRY)
SCORE_DIGITS = 6  # of a score that is shown or compared with a minimum


class Unranked(NamedTuple):
    """Candidates of one project that no page has needed yet, best first."""

    project: int
    by_vector: Ids
    by_words: Ids

    @property
    def total(self) -> int:
        """Number of candidates; one that both retrievers returned counts twice."""
        return len(self.by_vector) + len(self.by_words)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTail:
    """State of retrieval behind a segment, from which the window is extended."""

    depth: int  # candidates requested from each retriever in each project
    is_exhausted: bool  # the retrievers have no more
    scale: tuple[float, ...] = ()  # scale of the first segment, so that later scores compare
    majority: str = ""  # kind of most candidates: a language, or chat
    unranked: tuple[Unranked, ...] = ()
    waiting: int = 0  # different chunks among the unranked
    hints: Mapping[int, str] = field(default_factory=dict)  # of the vector index, by project
    is_hinted: bool = False  # the unranked candidates were found through hints
    versions: Mapping[int, int] = field(default_factory=dict)  # sequence numbers by project
    is_truncated: bool = False  # the vector index stopped before it had found enough

    @property
    def has_unranked(self) -> bool:
        """True if candidates are left to rank."""
        return any(one.total for one in self.unranked)

    @property
    def is_end(self) -> bool:
        """True if nothing can follow."""
        return self.is_exhausted and not self.has_unranked


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSegment:
    """A ranked stretch of a window."""

    number: int
    start: int  # position of the first entry in the window
    served: Served
    entries: Entries
    tail: WindowTail
    best: float = 0.0  # score of the first entry of the window
    low: float | None = None  # lowest score so far; later entries are capped at it
    # candidates that are not shown: copies and new versions of earlier entries
    dropped: Ids = field(default_factory=lambda: NO_IDS)
    repeats: int = 0  # copies of earlier entries, left out of this segment
    lost: int = 0  # candidates that were deleted before they could be ranked; not stored
    reasons: tuple[str, ...] = ()  # one per entry, if the request asks for them

    @property
    def stop(self) -> int:
        """Position behind the last entry."""
        return self.start + len(self.entries)

    def is_end(self, min_score: float | None) -> bool:
        """Return True if nothing can follow. Scores only fall, also below a minimum score."""
        return self.tail.is_end or (
            min_score is not None
            and self.low is not None
            and round(self.low, SCORE_DIGITS) < min_score
        )


def pack_segment(segment: WindowSegment) -> SegmentRow:
    """Return a segment as the row that a database stores."""
    tail = segment.tail
    state = {
        "served": segment.served.value,
        "best": segment.best,
        "low": segment.low,
        "dropped": len(segment.dropped),
        "repeats": segment.repeats,
        "reasons": list(segment.reasons),
        "depth": tail.depth,
        "is_exhausted": tail.is_exhausted,
        "scale": list(tail.scale),
        "majority": tail.majority,
        "waiting": tail.waiting,
        "unranked": [[one.project, len(one.by_vector), len(one.by_words)] for one in tail.unranked],
        "hints": list(tail.hints.items()),
        "is_hinted": tail.is_hinted,
        "versions": list(tail.versions.items()),
        "is_truncated": tail.is_truncated,
    }
    lists = [
        segment.dropped,
        *(ids for one in tail.unranked for ids in (one.by_vector, one.by_words)),
    ]
    return SegmentRow(
        number=segment.number,
        start=segment.start,
        stop=segment.stop,
        entries=segment.entries.tobytes(),
        ids=b"".join(ids.astype("<i8").tobytes() for ids in lists),
        state=json.dumps(state, separators=(",", ":")),
    )


def unpack_segment(row: SegmentRow) -> WindowSegment:
    """Return the segment that `pack_segment` packed."""
    state = json.loads(row.state)
    ids = np.frombuffer(row.ids, dtype="<i8").astype(np.int64)
    dropped, rest = ids[: state["dropped"]], ids[state["dropped"] :]
    unranked = []
    for project, by_vector, by_words in state["unranked"]:
        unranked.append(Unranked(project, rest[:by_vector], rest[by_vector : by_vector + by_words]))
        rest = rest[by_vector + by_words :]
    return WindowSegment(
        number=row.number,
        start=row.start,
        served=Served(state["served"]),
        entries=np.frombuffer(row.entries, dtype=ENTRY),
        best=state["best"],
        low=state["low"],
        dropped=dropped,
        repeats=state["repeats"],
        reasons=tuple(state["reasons"]),
        tail=WindowTail(
            depth=state["depth"],
            is_exhausted=state["is_exhausted"],
            scale=tuple(state["scale"]),
            majority=state["majority"],
            unranked=tuple(unranked),
            waiting=state["waiting"],
            hints=dict(state["hints"]),
            is_hinted=state["is_hinted"],
            versions=dict(state["versions"]),
            is_truncated=state["is_truncated"],
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Key, audience and lifetime of continuations."""

    key: bytes
    catalog: str
    caller: str
    lifetime_s: int
    now: int

    def sign(self, data: bytes) -> bytes:
        """Return a signature of 16 bytes that is bound to the catalog."""
        message = self.catalog.encode() + b"\0" + data
        return hmac.new(self.key, message, hashlib.sha256).digest()[:16]

    @property
    def fingerprint(self) -> str:
        """Keyed hash of the caller's name; empty for an anonymous caller."""
        caller = self.caller.encode("utf-8", "surrogatepass")
        return hmac.new(self.key, b"caller" + caller, hashlib.sha256).hexdigest() if caller else ""

    def check_caller(self, fingerprint: str) -> None:
        """Reject a continuation of another caller."""
        if not hmac.compare_digest(fingerprint, self.fingerprint):
            raise DeniedContinuationError(
                "this continuation was given to another caller; search again with your own key"
            )


class ResultWindow(ABC):
    """Frozen ranking of one search: its request and the segments that are loaded."""

    def __init__(
        self, signer: Signer, request: SearchRequest, segments: Iterable[WindowSegment]
    ) -> None:
        self.request = request
        self._signer = signer
        self._segments = list(segments)

    @property
    def last(self) -> WindowSegment:
        """Segment behind which the window is extended."""
        return self._segments[-1]

    def find_segment(self, position: int) -> WindowSegment | None:
        """Return the segment that contains a position; None behind the last one."""
        return next((one for one in self._segments if one.start <= position < one.stop), None)

    def count_repeats(self, start: int, stop: int) -> int:
        """Return the number of copies left out of the segments that start in a range."""
        return sum(one.repeats for one in self._segments if start <= one.start < stop)

    def count_hits(self, position: int) -> int:
        """Return the number of ranked hits from a position on."""
        count = 0
        while (segment := self.find_segment(position)) is not None:
            count += int((~segment.entries["is_copy"][position - segment.start :]).sum())
            position = segment.stop
        return count

    def score_before(self, position: int) -> float | None:
        """Return the score of the hit before a position; None for the first one."""
        segment = next((one for one in self._segments if one.start < position <= one.stop), None)
        return None if segment is None else last_score(segment.entries[: position - segment.start])

    def seen_entries(self) -> Entries:
        """Return the entries of all segments."""
        return np.concatenate([segment.entries for segment in self._segments])

    def seen_ids(self) -> Ids:
        """Return all chunks that may not appear again: entries, dropped ones, substitutes."""
        return np.concatenate(
            [
                self.seen_entries()["id"].astype(np.int64),
                *(segment.dropped for segment in self._segments),
                np.array(list(self.substitutes().values()), dtype=np.int64),
            ]
        )

    @abstractmethod
    def reload(self) -> None:
        """Load the segments that other processes have appended."""

    @abstractmethod
    def substitutes(self) -> dict[int, int]:
        """Return the chunk that was shown in place of a deleted one, by position."""

    @abstractmethod
    def add_substitutes(self, chosen: Mapping[int, int]) -> None:
        """Store which chunks are shown in place of deleted ones."""

    @abstractmethod
    def append(self, segment: WindowSegment) -> None:
        """Append a segment. If another caller has appended one meanwhile, that one counts."""

    @abstractmethod
    def make_continuation(self, cursor: Cursor) -> str | None:
        """Return the text that resumes at a cursor; None if it would be too long."""


class StoredWindow(ResultWindow):
    """Window in a database. A new one is stored when its first continuation is made."""

    def __init__(
        self,
        store: WindowStore,
        signer: Signer,
        request: SearchRequest,
        segments: Iterable[WindowSegment],
        *,
        name: bytes | None = None,
        query_vector: tuple[bytes, bytes] | None = None,
    ) -> None:
        super().__init__(signer, request, segments)
        self._store = store
        self._name = name
        self._query_vector = query_vector

    @classmethod
    def resume(
        cls, store: WindowStore, signer: Signer, text: str, *, space_id: int
    ) -> tuple[StoredWindow, Cursor]:
        """Return the window that a continuation names, and the position in it."""
        name, cursor = continuations.read(text, catalog=signer.catalog, key=signer.key)
        row = store.find(name, position=cursor.position)
        if row is None:
            raise SweptContinuationError("this continuation is not known any more; search again")
        signer.check_caller(row.caller)
        request = SearchRequest.decode(row.request)
        _check_row(row, request, signer)
        check_space(request, space_id)
        return cls(store, signer, request, map(unpack_segment, row.segments), name=name), cursor

    @property
    def name(self) -> bytes:
        """Name in the database. A window that is not stored yet is stored now."""
        if self._name is None:
            name = continuations.new_name()
            row = WindowRow(
                request=self.request.encode(),
                caller=self._signer.fingerprint,
                expires_at=self._signer.now + self._signer.lifetime_s,
                segments=(pack_segment(self._segments[0]),),
            )
            self._store.insert(name, row, query_vector=self._query_vector)
            self._name = name
        return self._name

    def reload(self) -> None:
        """Load the segments that other processes have appended."""
        if self._name is None:
            return
        rows = self._store.list_segments(self._name)
        if not rows:
            raise SweptContinuationError(
                "this continuation made room for newer ones; search again", request=self.request
            )
        self._segments = list(map(unpack_segment, rows))

    def substitutes(self) -> dict[int, int]:
        """Return the chunk that was shown in place of a deleted one, by position."""
        return {} if self._name is None else self._store.list_substitutes(self._name)

    def add_substitutes(self, chosen: Mapping[int, int]) -> None:
        """Store which chunks are shown in place of deleted ones."""
        # Without it a later page may choose another substitute.
        with suppress(ServiceError):
            self._store.add_substitutes(self.name, chosen)

    def append(self, segment: WindowSegment) -> None:
        """Append a segment. If another caller has appended one meanwhile, that one counts."""
        try:
            self._store.append(self.name, pack_segment(segment))
            self.reload()
        except ServiceError:  # this page has the segment; the next one ranks it again
            self._segments = [*self._segments, segment]

    def make_continuation(self, cursor: Cursor) -> str | None:
        """Return the text that resumes at a cursor; None if it would be too long."""
        return continuations.write(
            self.name, cursor, catalog=self._signer.catalog, key=self._signer.key
        )


def group_ids(entries: Entries) -> dict[int, list[int]]:
    """Return the chunk ids of entries by project."""
    return group_by_project(zip(entries["project"].tolist(), entries["id"].tolist(), strict=True))


def last_score(entries: Entries) -> float | None:
    """Return the score of the last hit; None without one."""
    shown = entries["score"][~entries["is_copy"]]
    return float(shown[-1]) if len(shown) else None


def _check_row(row: WindowRow, request: SearchRequest, signer: Signer) -> None:
    """Reject a window that has expired or was swept."""
    if signer.now >= row.expires_at:
        lifetime = signer.lifetime_s
        hours = f"{lifetime / 3600:.3g} hours" if lifetime >= 3600 else f"{lifetime} s"
        raise ExpiredContinuationError(
            f"this continuation has expired, they last {hours}; search again, or ask with restart",
            request=request,
        )
    if not row.segments:
        raise SweptContinuationError(
            "this continuation made room for newer ones; search again, or ask with restart",
            request=request,
        )


def check_space(request: SearchRequest, space_id: int) -> None:
    """Reject a window that was ranked with another embedder."""
    if request.space_id != space_id:
        raise OutdatedContinuationError(
            "this continuation was made with another embedder; search again, or ask with restart",
            request=request,
        )
