"""Port of models that answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """Message of a chat with a model."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFacts:
    """Facts about a complete reply; None if the provider does not report them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cut: str = ""  # why the reply is incomplete, in one sentence


class AnswerModel(Protocol):
    """Model that answers. Safe to call from several threads.

    `stream` returns an iterator over pieces of text; a generator is enough. At its end it may have
    `facts`, a `ReplyFacts`. It may have a method `close` that ends it from another thread.
    """

    @property
    def name(self) -> str:
        """Name of the model in answers."""

    def stream(
        self, system: str, messages: Sequence[ChatMessage], *, max_tokens: int
    ) -> Iterator[str]:
        """Return the reply to the last message, piece by piece. `system` has the rules."""
