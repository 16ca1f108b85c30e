"""Token budgets of answers.

An answer that is too large gets fewer rows, and the next call returns the others. A single row
that is too large gets a shorter text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from unspool.domain.queries import Page
from unspool.errors import InputError
from unspool.interfaces.mcp.answers import ToolAnswer
from unspool.interfaces.mcp.excerpts import CHARACTERS_PER_TOKEN, Count, Hits, shorten_hits

Build = Callable[[int], ToolAnswer]  # an answer from a number of rows, or from a length of text


@dataclass(frozen=True, slots=True)
class AnswerBudget:
    """Maximum tokens of an answer, in each of its two forms."""

    max_tokens: int
    count: Count

    def fit(self, take: Build, size: int, shorten: Build | None = None) -> ToolAnswer:
        """Return the answer with the most rows that fit, up to `size`.

        If not even the first row fits, return it with the longest text that does.
        """
        answer = take(size)  # most answers fit as a whole
        if self._measure(answer) > self.max_tokens:
            answer = self._find_largest(take, range(1, size)) or answer
        if self._measure(answer) > self.max_tokens and shorten is not None:
            lengths = range(self.max_tokens * CHARACTERS_PER_TOKEN)
            answer = self._find_largest(shorten, lengths) or shorten(0)
        if self._measure(answer) > self.max_tokens:
            raise InputError(
                f"the answer needs {self._measure(answer)} tokens and max_tokens is "
                f"{self.max_tokens}; give a larger max_tokens"
            )
        return answer

    def fit_page(
        self, ask: Callable[[int], Page], limit: int, build: Callable[[Page, Hits], ToolAnswer]
    ) -> ToolAnswer:
        """Return a page of up to `limit` hits.

        If some have no room, ask for fewer, so that the next page starts with the others.
        """
        page = ask(limit)
        hits = shorten_hits(page, self.count)
        answer = self.fit(
            lambda size: build(page, hits[:size]),
            len(hits),
            lambda room: build(page, shorten_hits(page, self.count, max_tokens=room)[:1]),
        )
        size = len(answer.values["hits"])
        return answer if size == len(hits) else self.fit_page(ask, size, build)

    def _find_largest(self, build: Build, sizes: range) -> ToolAnswer | None:
        """Return the answer for the largest size that fits, or None."""
        count = bisect_right(sizes, self.max_tokens, key=lambda size: self._measure(build(size)))
        return build(sizes[count - 1]) if count else None

    def _measure(self, answer: ToolAnswer) -> int:
        return answer.tokens(self.count)
