"""Answers of a model, with citations of the hits that support them."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.domain.documents import Lines
from unspool.domain.queries import Hit


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Hit that the model was shown under a number.

    The text of an answer cites it as `[number]`.
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
    """Usage of an answer.

    Tokens are those that the provider reports; None if it reports none.
    """

    searches: int = 0
    hits: int = 0  # found
    shown: int = 0  # hits that the model was shown
    context_tokens: int = 0  # of the prompt, as the embedder counts
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer to a question.

    Every number in brackets in `text`, outside of code, is one of `citations`.
    """

    question: str
    text: str  # empty without a model
    # in the order of their first use; without a model, all hits that would be shown
    citations: tuple[Citation, ...] = ()
    model: str = ""  # empty if none was called
    found: bool = True  # False: the search found nothing, and no model was called
    context: str = ""  # the hits that were shown, with their numbers
    # citations that were removed from the text, because no hit has their number
    dropped_citations: int = 0
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()  # facts about the answer
    warnings: tuple[str, ...] = ()  # problems for the caller to solve
