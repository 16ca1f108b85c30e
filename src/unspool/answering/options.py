"""Options of the model that answers."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.domain.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """Name, server and limits of the model that answers."""

    model: str = option(
        "",
        "who answers questions, as provider:model, such as openai:gpt-5-mini; empty means nobody",
    )
    url: str = option(
        "",
        "address of the server that answers, such as http://localhost:11434/v1; empty means the "
        "provider's own",
    )
    key: str = option("", "the key for that server", secret=True)
    context_tokens: int = option(
        6_000,
        "tokens of all that the model is shown for an answer, instructions included",
        low=1_000,
        high=2_000_000,
    )
    max_tokens: int = option(1_024, "tokens that an answer may have", low=1, high=1_000_000)
    timeout_s: int = option(
        120,
        "how long an answer may take from the call to its last word, in seconds",
        low=1,
        high=3_600,
    )
    retries: int = option(
        2,
        "how often a call is repeated that failed before anything of the answer came",
        low=0,
        high=100,
    )
