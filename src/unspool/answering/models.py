"""The port for models that answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message as models take it."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFacts:
    """What is known of a reply when it has ended; None where the provider does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cut: str = ""  # why it ended before it was done, in one sentence; empty where it was done


class AnswerModel(Protocol):
    """Somebody who answers. Safe to call from several threads.

    `stream` returns an iterator over pieces of text. It may have `facts`, a `ReplyFacts`, once it
    has ended, and `close()`, which ends it at once and may be called from another thread; a plain
    generator is enough.
    """

    @property
    def name(self) -> str:
        """What the answer says who wrote it."""
        ...

    def stream(
        self, system: str, messages: Sequence[ChatMessage], *, max_tokens: int
    ) -> Iterator[str]:
        """The reply to the last message, piece by piece. `system` says how to go about it."""
        ...
