"""A walk through a frozen ranking, kept in a database or carried by the caller.

`StoredWalk` is the usual one: the continuation is a name. `SignedWalk` is for catalogs that cannot
be written: its continuation carries the walk itself, signed, and is longer for that.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import numpy as np

from unspool.catalog.windows import Windows
from unspool.domain import continuations
from unspool.domain.continuations import SIGNED, Bookmark
from unspool.errors import (
    DeniedContinuationError,
    ExpiredContinuationError,
    ForeignContinuationError,
    MalformedContinuationError,
    OutdatedContinuationError,
    ServiceError,
    SweptContinuationError,
)
from unspool.search.engine import Given
from unspool.windows import (
    ENTRY,
    NO_ENTRIES,
    NO_IDS,
    Entries,
    Ids,
    PackedSegment,
    Question,
    Segment,
)

FORMAT = 1  # of a continuation that carries its walk
# entries that a signed continuation carries ahead: 2.7 KB; the rest is searched for again
CARRIED = 60
_MAX_SIGNED = 100_000  # characters: after about 2200 hits it has to end
_MAC_BYTES = 16


class Walk(Protocol):
    """Where the entries of a walk come from and how its next continuation is made."""

    @property
    def question(self) -> Question: ...

    def segment(self, position: int) -> Segment | None:
        """The segment that holds a position; None past the last one."""

    def last(self) -> Segment:
        """The segment behind which it goes on."""

    def repeats(self, start: int, stop: int) -> int:
        """How many copies of earlier texts were left out of the segments that begin between two
        positions.
        """

    def score_before(self, position: int) -> float | None:
        """The score of the hit before a position; None at the beginning."""

    def given(self) -> Given:
        """Everything that is in the walk so far."""

    def substitutes(self) -> dict[int, int]:
        """Which chunk was shown in place of the one at a position that was gone by then."""

    def substitute(self, chosen: Mapping[int, int]) -> None:
        """Remember what is shown in place of what is gone."""

    def append(self, segment: Segment) -> None:
        """Add a segment; if another caller has added one meanwhile, that one counts."""

    def continuation(self, at: Bookmark) -> str | None:
        """What the caller gets to go on from there; None where that would be too long."""


class _Segments:
    """The segments of a walk that are known here, by number."""

    def __init__(self, question: Question, segments: list[Segment]) -> None:
        self._question = question
        self._segments = segments

    @property
    def question(self) -> Question:
        return self._question

    def segment(self, position: int) -> Segment | None:
        return next((one for one in self._segments if one.start <= position < one.stop), None)

    def last(self) -> Segment:
        return self._segments[-1]

    def repeats(self, start: int, stop: int) -> int:
        return sum(one.repeats for one in self._segments if start <= one.start < stop)

    def score_before(self, position: int) -> float | None:
        segment = next((one for one in self._segments if one.start < position <= one.stop), None)
        return None if segment is None else _last_score(segment.entries[: position - segment.start])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What continuations are signed with, for whom, and for how long."""

    key: bytes
    catalog: str
    caller: str
    lifetime_s: int
    now: int


class StoredWalk(_Segments):
    """A walk whose segments are in the database.

    A new one is written when its first continuation is asked for.
    """

    def __init__(
        self,
        windows: Windows,
        seal: Seal,
        question: Question,
        segments: list[Segment],
        *,
        name: bytes | None = None,
        query: tuple[bytes, bytes] | None = None,
    ) -> None:
        super().__init__(question, segments)
        self._windows = windows
        self._seal = seal
        self._name = name
        self._query = query

    @classmethod
    def new(
        cls,
        windows: Windows,
        seal: Seal,
        question: Question,
        first: Segment,
        query: tuple[bytes, bytes] | None,
    ) -> StoredWalk:
        """A walk that begins. `query` is the key of the query and its vector."""
        return cls(windows, seal, question, [first], query=query)

    @classmethod
    def resumed(
        cls, windows: Windows, seal: Seal, text: str, *, space_id: int
    ) -> tuple[StoredWalk, Bookmark]:
        """The walk that a continuation names, and the place in it."""
        name, at = continuations.read(text, catalog=seal.catalog, key=seal.key)
        kept = windows.find(name, position=at.position)
        if kept is None:
            raise SweptContinuationError("this continuation is not known any more; search again")
        _check_caller(kept.caller, seal)
        question = kept.question
        if windows.is_expired(kept):
            hours = (
                f"{seal.lifetime_s / 3600:.3g} hours"
                if seal.lifetime_s >= 3600
                else f"{seal.lifetime_s} s"
            )
            raise ExpiredContinuationError(
                f"this continuation has expired, they last {hours}; search again, or ask with "
                f"restart",
                question=question,
            )
        if not kept.segments:
            raise SweptContinuationError(
                "this continuation made room for newer ones; search again, or ask with restart",
                question=question,
            )
        _check_space(question, space_id)
        return cls(windows, seal, question, list(kept.segments), name=name), at

    def given(self) -> Given:
        if self._name is not None:
            self._reload(self._name)
        return _given(self._segments, self.substitutes().values())

    def substitutes(self) -> dict[int, int]:
        return {} if self._name is None else self._windows.substitutes(self._name)

    def substitute(self, chosen: Mapping[int, int]) -> None:
        # it can be looked up again; only a later rewriting could then choose otherwise
        with suppress(ServiceError):
            self._windows.substitute(self.name, chosen)

    def append(self, segment: Segment) -> None:
        try:
            self._windows.append(self.name, segment)
            self._reload(self.name)
        except ServiceError:  # this page has it; the next one looks for it again
            self._segments = [*self._segments, segment]

    def _reload(self, name: bytes) -> None:
        """All segments, also those that another caller has added."""
        found = self._windows.segments(name)
        if not found:
            raise SweptContinuationError(
                "this continuation made room for newer ones; search again", question=self._question
            )
        self._segments = found

    def continuation(self, at: Bookmark) -> str | None:
        return continuations.write(self.name, at, catalog=self._seal.catalog, key=self._seal.key)

    @property
    def name(self) -> bytes:
        """What the walk is kept under; one that was not kept yet is kept now."""
        if self._name is None:
            name, seal = continuations.new_name(), self._seal
            self._windows.keep(
                name,
                question=self._question,
                caller=_fingerprint(seal),
                first=self._segments[0],
                lifetime_s=seal.lifetime_s,
                query=self._query,
            )
            self._name = name
        return self._name


class SignedWalk(_Segments):
    """A walk that the caller carries: the entries that come next, and the ids of those that were
    given.
    """

    def __init__(
        self,
        seal: Seal,
        question: Question,
        segments: list[Segment],
        *,
        passed: Entries,
        others: Ids,
    ) -> None:
        super().__init__(question, segments)
        self._seal = seal
        self._passed = passed
        self._others = others  # what was shown in place of others, or found and no news
        self._substitutes: dict[int, int] = {}

    @classmethod
    def new(cls, seal: Seal, question: Question, first: Segment) -> SignedWalk:
        """A walk that begins."""
        return cls(seal, question, [first], passed=NO_ENTRIES, others=NO_IDS)

    @classmethod
    def resumed(cls, seal: Seal, text: str, *, space_id: int) -> tuple[SignedWalk, Bookmark]:
        """The walk that a continuation carries, once its signature is found to be ours."""
        if len(text) > _MAX_SIGNED:
            raise MalformedContinuationError(
                f"a continuation of {len(text)} characters is none of ours; search again"
            )
        data = continuations.raw(text)
        kind, mac, body = data[:1], data[1 : 1 + _MAC_BYTES], data[1 + _MAC_BYTES :]
        if not hmac.compare_digest(mac, _mac(seal, kind + body)):
            raise ForeignContinuationError(
                "this continuation was signed by another catalog, or changed on its way; search "
                "again here"
            )
        head_size = int.from_bytes(body[:4], "big")
        head = json.loads(zlib.decompress(body[4 : 4 + head_size]))
        if head.get("format") != FORMAT:
            raise OutdatedContinuationError(
                "this continuation was made by another version of unspool; search again"
            )
        question = Question.from_json(head["question"])
        _check_caller(head["caller"], seal)
        if seal.now >= head["expires_at"]:
            raise ExpiredContinuationError(
                "this continuation has expired; search again, or ask with restart",
                question=question,
            )
        _check_space(question, space_id)
        ahead_size, passed_size = head["sizes"]
        blobs = body[4 + head_size :]
        number, start, stop, state = head["segment"]
        segment = PackedSegment(number, start, stop, blobs[:ahead_size], b"", state).unpack()
        passed = np.frombuffer(blobs[ahead_size : ahead_size + passed_size], dtype=ENTRY)
        others = np.frombuffer(blobs[ahead_size + passed_size :], dtype="<i8").astype(np.int64)
        return cls(seal, question, [segment], passed=passed, others=others), Bookmark(**head["at"])

    def score_before(self, position: int) -> float | None:
        known = super().score_before(position)
        return _last_score(self._passed) if known is None else known

    def given(self) -> Given:
        return _given(
            self._segments, [*self._others.tolist(), *self._substitutes.values()], self._passed
        )

    def substitutes(self) -> dict[int, int]:
        return dict(self._substitutes)

    def substitute(self, chosen: Mapping[int, int]) -> None:
        self._substitutes.update(chosen)

    def append(self, segment: Segment) -> None:
        self._segments = [*self._segments, segment]

    def continuation(self, at: Bookmark) -> str | None:
        """The walk from there on.

        What it does not carry is found again by a deeper search, which is told what was given.
        """
        entries = np.concatenate([segment.entries for segment in self._segments])
        reasons = [reason for segment in self._segments for reason in segment.reasons]
        split = at.position - self._segments[0].start
        ahead = _whole_groups(entries[split:], CARRIED)
        here, last = self.segment(at.position) or self.last(), self.last()
        frontier = last.frontier
        known = entries[: split + len(ahead)]
        lowest = _last_score(known)
        # What is in reserve is not carried. Half the depth makes going on ask for the same depth
        # again.
        is_whole = len(known) == len(entries) and not any(map(len, frontier.reserve))
        carried = replace(
            here,
            start=at.position,
            entries=ahead,
            low=last.low if is_whole else here.low if lowest is None else lowest,
            dropped=NO_IDS,
            repeats=here.repeats if at.position == here.start else 0,
            reasons=tuple(reasons[split : split + len(ahead)]),
            frontier=replace(
                frontier,
                depth=frontier.depth if is_whole else max(frontier.depth // 2, 1),
                exhausted=is_whole and frontier.exhausted,
                reserve=(),
                waiting=0,
                hints=frontier.hints if is_whole else {},
            ),
        )
        dropped = np.concatenate([segment.dropped for segment in self._segments])
        others = np.concatenate(
            [self._others, dropped, np.array(list(self._substitutes.values()), dtype=np.int64)]
        )
        text = self._signed(carried, at, np.concatenate([self._passed, entries[:split]]), others)
        return text if len(text) <= _MAX_SIGNED else None

    def _signed(self, carried: Segment, at: Bookmark, passed: Entries, others: Ids) -> str:
        packed = carried.pack()
        seal = self._seal
        head = {
            "format": FORMAT,
            "question": self._question.as_json(),
            "at": asdict(at),
            "caller": _fingerprint(seal),
            "expires_at": seal.now + seal.lifetime_s,
            "segment": [packed.number, packed.start, packed.stop, packed.state],
            "sizes": [len(packed.entries), passed.nbytes],
        }
        compressed = zlib.compress(json.dumps(head, separators=(",", ":")).encode(), 9)
        body = (
            len(compressed).to_bytes(4, "big")
            + compressed
            + packed.entries
            + passed.tobytes()
            + others.astype("<i8").tobytes()
        )
        kind = bytes([SIGNED << 5])
        return continuations.to_text(kind + _mac(seal, kind + body) + body)


def _given(
    segments: Sequence[Segment], others: Iterable[int], passed: Entries = NO_ENTRIES
) -> Given:
    """All that is in a walk, with what was shown in place of others or found and no news."""
    entries = np.concatenate([passed, *(segment.entries for segment in segments)])
    ids = [
        entries["id"].astype(np.int64),
        *(segment.dropped for segment in segments),
        np.array(list(others), dtype=np.int64),
    ]
    return Given(
        ids=np.concatenate(ids),
        text_keys=frozenset(entries["text_key"].tolist()),
        places=_places(entries),
    )


def _last_score(entries: Entries) -> float | None:
    shown = entries["score"][~entries["is_copy"]]
    return float(shown[-1]) if len(shown) else None


def _places(entries: Entries) -> dict[tuple[int, int], int]:
    """Where each entry stood when it was ranked."""
    return dict(
        zip(
            zip(entries["document"].tolist(), entries["position"].tolist(), strict=True),
            entries["id"].tolist(),
            strict=True,
        )
    )


def _whole_groups(entries: Entries, most: int) -> Entries:
    """The first entries, cut so that a text and its copies stay together."""
    while 0 < most < len(entries) and entries["is_copy"][most]:
        most += 1
    return entries[:most]


def _check_caller(fingerprint: str, seal: Seal) -> None:
    if not hmac.compare_digest(fingerprint, _fingerprint(seal)):
        raise DeniedContinuationError(
            "this continuation was given to another caller; search again with your own key"
        )


def _check_space(question: Question, space_id: int) -> None:
    if question.space_id != space_id:
        raise OutdatedContinuationError(
            "this continuation was made with another embedder; search again, or ask with restart",
            question=question,
        )


def _mac(seal: Seal, data: bytes) -> bytes:
    return hmac.new(seal.key, seal.catalog.encode() + b"\0" + data, hashlib.sha256).digest()[
        :_MAC_BYTES
    ]


def _fingerprint(seal: Seal) -> str:
    """Who asks, so that nobody can read or guess the name; nobody in particular is an empty
    string.
    """
    caller = seal.caller.encode("utf-8", "surrogatepass")
    return hmac.new(seal.key, b"caller" + caller, hashlib.sha256).hexdigest() if caller else ""
