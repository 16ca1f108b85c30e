"""Answers: what a model said about hits, and which of them it said it from."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.domain.documents import Lines
from unspool.domain.queries import Hit


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A hit that the model was shown under a number.

    The text of an answer names it as `[number]`.
    """

    number: int
    hit: Hit

    @property
    def project(self) -> str:
        return self.hit.chunk.project

    @property
    def path(self) -> str:
        return self.hit.chunk.path

    @property
    def lines(self) -> Lines:
        return self.hit.chunk.lines

    @property
    def score(self) -> float:
        return self.hit.score


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an answer took.

    Tokens are those that the provider reports; None where it reports none.
    """

    searches: int = 0
    hits: int = 0  # found
    shown: int = 0  # of them, shown to the model
    context_tokens: int = 0  # of all that was shown, as the embedder counts
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question was answered with.

    Every number in brackets in `text`, outside of code, is one of `citations`.
    """

    question: str
    text: str  # empty where there is no model
    # in the order of their first use; where there is no model, all that would be shown
    citations: tuple[Citation, ...] = ()
    model: str = ""  # empty where none was called
    found: bool = True  # whether the search found anything; if not, no model was called
    context: str = ""  # the hits that were shown, with their numbers
    # numbers that the model cited and nothing shown to it has; they are not in the text
    dropped_citations: int = 0
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()  # what happened on the way
    warnings: tuple[str, ...] = ()  # what the caller should act on
