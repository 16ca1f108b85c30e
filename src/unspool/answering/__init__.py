"""Models that answer, by name."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import cast

from unspool.answering.models import AnswerModel
from unspool.answering.options import AnswerOptions
from unspool.errors import InputError
from unspool.providers import Provider, create_model

PROVIDERS = {
    "openai": Provider(
        "unspool.answering.openai:OpenAIChat",
        "httpx2",
        "hosted",
        "OpenAI, and every server that speaks the same",
    ),
    "anthropic": Provider(
        "unspool.answering.anthropic:AnthropicChat", "httpx2", "hosted", "Anthropic"
    ),
}


def choose_model(given: object, options: AnswerOptions) -> AnswerModel | None:
    """Return a model given by name or as an object; by default the one that the options name.

    Return None if there is no name.
    """
    if given is None or isinstance(given, str):
        name = options.model if given is None else given
        return _load(replace(options, model=name)) if name else None
    if isinstance(getattr(given, "name", None), str) and callable(getattr(given, "stream", None)):
        return cast(AnswerModel, given)
    raise InputError(
        f"the model is a {type(given).__name__}; give its name as provider:model, or an object "
        f"with `name` and "
        "`stream(system, messages, *, max_tokens)`, as docs/answers.md describes it"
    )


@lru_cache(maxsize=8)
def _load(options: AnswerOptions) -> AnswerModel:
    """Create a model once per process."""
    made = create_model(PROVIDERS, options.model, options, setting="UNSPOOL_ANSWER_MODEL")
    return cast(AnswerModel, made)
