"""From boundaries to pieces: cut where the depth is lowest, keep what fits whole, pack small
neighbours together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unspool.chunking.measure import Page, Span
from unspool.chunking.prose import Cut, split

# Shares of the target. A crumb is not worth a piece of its own; two large definitions in one piece
# hide each other in a search.
_CRUMB = 1 / 4
_LARGE = 1 / 3
_JOINT = 2  # tokens: the line ends between two units, which are in neither's count


class _Part(NamedTuple):
    """A stretch of the text and the cuts inside it, `cuts[low:high]`.

    Oversized ones are still to be cut, the others are finished.
    """

    start: int
    end: int
    low: int
    high: int
    span: Span
    is_oversized: bool
    is_crumb: bool = False


def pack(page: Page, cuts: Sequence[Cut], marks: Sequence[int] = ()) -> list[Span]:
    """The pieces in order. `cuts` are sorted; `marks` are the sorted offsets where something with a
    name begins.

    A section or definition is packed only with its siblings, never with its parent's.
    """
    whole = page.measure(0, len(page.text))
    if whole is None:
        return []
    if whole.token_count <= page.target:
        return [whole]
    done: list[Span] = []
    parts = [_Part(0, len(page.text), 0, len(cuts), whole, is_oversized=True)]
    while parts:
        part = parts.pop()
        if not part.is_oversized:
            _append(page, done, part)
        elif part.low == part.high:
            done.extend(split(page, part.start, part.end))
        else:
            parts.extend(reversed(_Level(page, cuts, marks, part).parts()))
    return done


def _append(page: Page, done: list[Span], part: _Part) -> None:
    if part.is_crumb and done and done[-1].token_count + part.span.token_count <= page.limit:
        joined = page.measure(done[-1].start, part.end)
        if joined is not None and joined.token_count <= page.limit:
            done[-1] = joined
            return
    done.append(part.span)


class _Level:
    """One part being cut at its lowest depth. Holds the pack that is being filled."""

    def __init__(self, page: Page, cuts: Sequence[Cut], marks: Sequence[int], part: _Part) -> None:
        self.page = page
        self.cuts = cuts
        self.marks = marks
        self.part = part
        self.done: list[_Part] = []
        self.units: list[_Part] = []
        self.token_count = 0
        self.has_large = False

    def parts(self) -> list[_Part]:
        """The part's packs and its still oversized units, in order."""
        for unit in self._units():
            if unit.is_oversized:
                self._oversized(unit)
            else:
                self._add(unit)
        self._close()
        return self.done

    def _units(self) -> Iterator[_Part]:
        """The stretches between the cuts of the lowest depth, without the blank ones."""
        low, high = self.part.low, self.part.high
        depth = min([cut.depth for cut in self.cuts[low:high]])
        begin = self.part.start
        for index in range(low, high + 1):
            if index < high and self.cuts[index].depth != depth:
                continue
            stop = self.cuts[index].at if index < high else self.part.end
            span = self.page.weigh(begin, stop)
            if span is not None:
                yield _Part(begin, stop, low, index, span, span.token_count > self.page.limit)
            begin, low = stop, index + 1

    def _add(self, unit: _Part) -> None:
        tokens = unit.span.token_count
        large = tokens >= _LARGE * self.page.target and self._is_named(unit, unit)
        if self.units and (
            (large and self.has_large) or self.token_count + _JOINT + tokens > self.page.target
        ):
            self._close()
        self.units.append(unit)
        self.token_count += tokens + (_JOINT if len(self.units) > 1 else 0)
        self.has_large = self.has_large or large

    def _oversized(self, unit: _Part) -> None:
        # What leads up to an oversized unit goes with it if it is short: a class's signature with
        # its first method, a constant with its user.
        if self.units and self.token_count < _CRUMB * self.page.target:
            at_head = not self.done and len(self.units) == 1
            if at_head or not self._is_named(self.units[0], self.units[-1]):
                unit = unit._replace(start=self.units[0].start)
                self.units.clear()
        self._close()
        self.done.append(unit)

    def _close(self) -> None:
        if self.units:
            self._finish(self.units)
        self.units = []
        self.token_count = 0
        self.has_large = False

    def _finish(self, units: list[_Part]) -> None:
        """Count the units together; halve them where the estimate was too low."""
        first, last = units[0], units[-1]
        span: Span | None = first.span
        if len(units) > 1 or not first.span.is_exact:
            span = self.page.measure(first.start, last.end)
        if span is None:
            return
        if span.token_count <= self.page.limit:
            crumb = span.token_count < _CRUMB * self.page.target and not self._is_named(first, last)
            self.done.append(
                _Part(first.start, last.end, 0, 0, span, is_oversized=False, is_crumb=crumb)
            )
        elif len(units) == 1:
            self.done.append(first._replace(is_oversized=True))
        else:
            middle = len(units) // 2
            self._finish(units[:middle])
            self._finish(units[middle:])

    def _is_named(self, first: _Part, last: _Part) -> bool:
        at = bisect_left(self.marks, first.start)
        return at < len(self.marks) and self.marks[at] < last.end
