"""Models that answer, by name.

Providers are strings here, so that none is imported before it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, cast

from unspool.answering.models import AnswerModel
from unspool.answering.options import AnswerOptions
from unspool.errors import ConfigError, InputError, MissingDependencyError


class Provider(NamedTuple):
    """Where a provider's model is defined, which package it needs, the extra that brings it, and
    what it is for.
    """

    model: str
    driver: str
    extra: str
    about: str


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
_DEFAULTS = AnswerOptions()


def open_model(name: str, options: AnswerOptions = _DEFAULTS) -> AnswerModel:
    """The model called `provider:model`; made once per process."""
    provider = name.partition(":")[0]
    if provider not in PROVIDERS:
        near = difflib.get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"the provider {provider!r} of a model for answers is not known; {hint}"
            f"UNSPOOL_ANSWER_MODEL is one of {', '.join(PROVIDERS)}, a colon, and the model's name"
        )
    return _load(replace(options, model=name))


def choose_model(given: object, options: AnswerOptions) -> AnswerModel | None:
    """Return the given model, or the one that the options name; None if they name none."""
    if given is not None and not isinstance(given, str):
        return as_model(given)
    name = options.model if given is None else given
    return open_model(name, options) if name else None


@lru_cache(maxsize=8)
def _load(options: AnswerOptions) -> AnswerModel:
    provider, _, model = options.model.partition(":")
    known = PROVIDERS[provider]
    if importlib.util.find_spec(known.driver) is None:
        raise MissingDependencyError(
            f"answers of {provider} need the package {known.driver}; pip install "
            f"'unspool[{known.extra}]'"
        )
    module, _, attribute = known.model.partition(":")
    made = getattr(importlib.import_module(module), attribute)(model.strip(), options)
    return cast(AnswerModel, made)


def as_model(given: object) -> AnswerModel:
    """What was given instead of a name: a model of one's own."""
    if isinstance(getattr(given, "name", None), str) and callable(getattr(given, "stream", None)):
        return cast(AnswerModel, given)
    raise InputError(
        f"the model is a {type(given).__name__}; give its name as provider:model, or an object "
        f"with `name` and "
        "`stream(system, messages, *, max_tokens)`, as docs/answers.md describes it"
    )
