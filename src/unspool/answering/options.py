"""Options of the model that answers."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.domain.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """Name, server and limits of the model that answers."""

    model: str = option(
        "",
        "model that answers questions, as provider:model, such as openai:gpt-5-mini; empty means "
        "none",
    )
    url: str = option(
        "",
        "address of the model's server, such as http://localhost:11434/v1; empty means the "
        "provider's own",
    )
    key: str = option("", "API key for that server", secret=True)
    context_tokens: int = option(
        6_000,
        "tokens of the prompt for an answer, instructions included",
        low=1_000,
        high=2_000_000,
    )
    max_tokens: int = option(1_024, "most tokens of an answer", low=1, high=1_000_000)
    timeout_s: int = option(
        120,
        "time limit of an answer, from the call to its last word, in seconds",
        low=1,
        high=3_600,
    )
    retries: int = option(
        2,
        "retries of a call that failed before the answer began",
        low=0,
        high=100,
    )
