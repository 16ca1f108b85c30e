"""Signed windows: the continuation itself carries the window, for catalogs that cannot be written.

It carries the entries of the next pages and the ids of the earlier ones. The rest is ranked again.
"""

from __future__ import annotations

import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from unspool.catalog.windows import SegmentRow
from unspool.domain import continuations
from unspool.domain.continuations import SIGNED, Cursor
from unspool.errors import (
    ExpiredContinuationError,
    ForeignContinuationError,
    MalformedContinuationError,
    OutdatedContinuationError,
)
from unspool.index.ports import Ids
from unspool.search.request import SearchRequest
from unspool.search.windows import (
    ENTRY,
    NO_ENTRIES,
    NO_IDS,
    Entries,
    ResultWindow,
    Signer,
    WindowSegment,
    check_space,
    last_score,
    pack_segment,
    unpack_segment,
)

FORMAT = 3
CARRIED = 60  # entries ahead, 3.3 KB
_MAX_CHARACTERS = 100_000  # about 1,800 hits
_SIGNATURE_BYTES = 16


class SignedWindow(ResultWindow):
    """Window that the caller carries."""

    def __init__(
        self,
        signer: Signer,
        request: SearchRequest,
        segment: WindowSegment,
        *,
        passed: Entries = NO_ENTRIES,
        others: Ids = NO_IDS,
    ) -> None:
        super().__init__(signer, request, [segment])
        self._passed = passed  # entries of earlier pages
        self._others = others  # substitutes and dropped chunks of earlier pages
        self._substitutes: dict[int, int] = {}

    @classmethod
    def resume(cls, signer: Signer, text: str, *, space_id: int) -> tuple[SignedWindow, Cursor]:
        """Return the window that a continuation carries, after its signature is verified."""
        body = _verify(signer, text)
        head_size = int.from_bytes(body[:4], "big")
        head = json.loads(zlib.decompress(body[4 : 4 + head_size]))
        if head.get("format") != FORMAT:
            raise OutdatedContinuationError(
                "this continuation was made by another version of unspool; search again"
            )
        request = SearchRequest.decode(head["request"])
        signer.check_caller(head["caller"])
        if signer.now >= head["expires_at"]:
            raise ExpiredContinuationError(
                "this continuation has expired; search again, or ask with restart", request=request
            )
        check_space(request, space_id)
        ahead_size, passed_size = head["sizes"]
        blobs = body[4 + head_size :]
        number, start, stop, state = head["segment"]
        row = SegmentRow(number, start, stop, blobs[:ahead_size], b"", state)
        passed = np.frombuffer(blobs[ahead_size : ahead_size + passed_size], dtype=ENTRY)
        others = np.frombuffer(blobs[ahead_size + passed_size :], dtype="<i8").astype(np.int64)
        window = cls(signer, request, unpack_segment(row), passed=passed, others=others)
        return window, Cursor(**head["cursor"])

    def score_before(self, position: int) -> float | None:
        """Return the score of the hit before a position; None for the first one."""
        score = super().score_before(position)
        return last_score(self._passed) if score is None else score

    def seen_entries(self) -> Entries:
        """Return the entries of earlier pages and of all segments."""
        return np.concatenate([self._passed, super().seen_entries()])

    def seen_ids(self) -> Ids:
        """Return all chunks that may not appear again: entries, dropped ones, substitutes."""
        return np.concatenate([super().seen_ids(), self._others])

    def reload(self) -> None:
        """Do nothing: no other process has this window."""

    def substitutes(self) -> dict[int, int]:
        """Return the chunk that was shown in place of a deleted one, by position."""
        return dict(self._substitutes)

    def add_substitutes(self, chosen: Mapping[int, int]) -> None:
        """Remember which chunks are shown in place of deleted ones."""
        self._substitutes.update(chosen)

    def append(self, segment: WindowSegment) -> None:
        """Append a segment."""
        self._segments = [*self._segments, segment]

    def make_continuation(self, cursor: Cursor) -> str | None:
        """Return the window from a cursor on; None if it would be too long."""
        entries = super().seen_entries()
        split = cursor.position - self._segments[0].start
        dropped = np.concatenate([segment.dropped for segment in self._segments])
        substitutes = np.array(list(self._substitutes.values()), dtype=np.int64)
        text = self._encode(
            self._cut_segment(cursor.position),
            cursor,
            passed=np.concatenate([self._passed, entries[:split]]),
            others=np.concatenate([self._others, dropped, substitutes]),
        )
        return text if len(text) <= _MAX_CHARACTERS else None

    def _cut_segment(self, position: int) -> WindowSegment:
        """Return one segment with the next entries, and a tail that finds the others again."""
        entries = super().seen_entries()
        reasons = [reason for segment in self._segments for reason in segment.reasons]
        split = position - self._segments[0].start
        ahead = _cut_at_hit(entries[split:], CARRIED)
        here, tail = self.find_segment(position) or self.last, self.last.tail
        known = entries[: split + len(ahead)]
        lowest = last_score(known)
        # Unranked candidates are not carried. Half the depth requests the same depth again.
        is_whole = len(known) == len(entries) and not tail.has_unranked
        return replace(
            here,
            start=position,
            entries=ahead,
            low=self.last.low if is_whole else here.low if lowest is None else lowest,
            dropped=NO_IDS,
            repeats=here.repeats if position == here.start else 0,
            reasons=tuple(reasons[split : split + len(ahead)]),
            tail=replace(
                tail,
                depth=tail.depth if is_whole else max(tail.depth // 2, 1),
                is_exhausted=is_whole and tail.is_exhausted,
                unranked=(),
                waiting=0,
                hints=tail.hints if is_whole else {},
            ),
        )

    def _encode(
        self, segment: WindowSegment, cursor: Cursor, *, passed: Entries, others: Ids
    ) -> str:
        row = pack_segment(segment)
        signer = self._signer
        head = {
            "format": FORMAT,
            "request": self.request.encode(),
            "cursor": asdict(cursor),
            "caller": signer.fingerprint,
            "expires_at": signer.now + signer.lifetime_s,
            "segment": [row.number, row.start, row.stop, row.state],
            "sizes": [len(row.entries), passed.nbytes],
        }
        compressed = zlib.compress(json.dumps(head, separators=(",", ":")).encode(), 9)
        body = (
            len(compressed).to_bytes(4, "big")
            + compressed
            + row.entries
            + passed.tobytes()
            + others.astype("<i8").tobytes()
        )
        kind = bytes([SIGNED << 5])
        return continuations.to_text(kind + signer.sign(kind + body) + body)


def _verify(signer: Signer, text: str) -> bytes:
    """Return the signed bytes of a continuation; reject one that is too long or not ours."""
    if len(text) > _MAX_CHARACTERS:
        raise MalformedContinuationError(
            f"a continuation of {len(text)} characters is none of ours; search again"
        )
    data = continuations.raw(text)
    kind, signature = data[:1], data[1 : 1 + _SIGNATURE_BYTES]
    body = data[1 + _SIGNATURE_BYTES :]
    if not hmac.compare_digest(signature, signer.sign(kind + body)):
        raise ForeignContinuationError(
            "this continuation was signed by another catalog, or changed on its way; search "
            "again here"
        )
    return body


def _cut_at_hit(entries: Entries, count: int) -> Entries:
    """Return the first entries. A text and its copies stay together."""
    while 0 < count < len(entries) and entries["is_copy"][count]:
        count += 1
    return entries[:count]
