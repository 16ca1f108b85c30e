"""Embedders by name.

Providers are strings here, so that none is imported before it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from unspool.embedders.base import Embedder
from unspool.embedders.options import EmbedderOptions
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
    "static": Provider(
        "unspool.embedders.static:StaticEmbedder",
        "wordllama",
        "",
        "the default: inside this process, no download",
    ),
    "sentence-transformers": Provider(
        "unspool.embedders.sentence_transformers:SentenceTransformersModel",
        "sentence_transformers",
        "sentence-transformers",
        "a folder or a hub's name, with torch",
    ),
    "onnx": Provider(
        "unspool.embedders.onnx:OnnxModel",
        "onnxruntime",
        "onnx",
        "a folder or a hub's name, without torch",
    ),
    "fastembed": Provider(
        "unspool.embedders.fastembed:FastembedModel",
        "fastembed",
        "fastembed",
        "a name that fastembed knows, or a folder",
    ),
    "openai": Provider(
        "unspool.embedders.openai:OpenAIModel",
        "httpx2",
        "hosted",
        "OpenAI, and every server that speaks the same",
    ),
    "cohere": Provider("unspool.embedders.cohere:CohereModel", "httpx2", "hosted", "Cohere"),
    "voyage": Provider("unspool.embedders.voyage:VoyageModel", "httpx2", "hosted", "Voyage"),
    "langchain": Provider(
        "unspool.embedders.langchain:from_setting",
        "",
        "",
        "any LangChain Embeddings object, given in Python",
    ),
}
_IN_FOLDERS = ("sentence-transformers", "onnx", "fastembed")
_DEFAULTS = EmbedderOptions()


def open_embedder(name: str, options: EmbedderOptions = _DEFAULTS) -> Embedder:
    """The embedder called `provider[:model]`; loaded once per process."""
    provider = name.partition(":")[0]
    if provider not in PROVIDERS:
        near = difflib.get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"embedder {name!r} is not known; {hint}UNSPOOL_EMBEDDER can be one of: "
            f"{', '.join(PROVIDERS)}"
        )
    return _load(replace(options, name=name))


@lru_cache(maxsize=8)
def _load(options: EmbedderOptions) -> Embedder:
    provider, _, model = options.name.partition(":")
    known = PROVIDERS[provider]
    if known.driver and importlib.util.find_spec(known.driver) is None:
        install = f"unspool[{known.extra}]" if known.extra else known.driver
        raise MissingDependencyError(
            f"the embedder {provider} needs the package {known.driver}; pip install '{install}'"
        )
    module, _, attribute = known.model.partition(":")
    made: Any = getattr(importlib.import_module(module), attribute)(model.strip(), options)
    if hasattr(made, "embed_passages"):  # it does by itself what the others have done for them
        return cast(Embedder, made)
    from unspool.embedders.model import ModelEmbedder

    return ModelEmbedder(made, options)


def setting_of(name: str) -> str:
    """How an embedder is opened from wherever: a folder by its whole path."""
    provider, _, model = name.partition(":")
    folder = Path(model.strip()).expanduser()
    return (
        f"{provider}:{folder.resolve()}"
        if model.strip() and provider in _IN_FOLDERS and folder.is_dir()
        else name
    )


def as_embedder(given: object, options: EmbedderOptions = _DEFAULTS) -> Embedder:
    """What was given instead of a name: an embedder of one's own, or a LangChain `Embeddings`
    object.
    """
    from unspool.embedders import langchain, own
    from unspool.embedders.model import ModelEmbedder
    from unspool.embedders.static import StaticEmbedder

    if isinstance(given, (ModelEmbedder, StaticEmbedder)):
        return given
    if own.is_own(given):
        return ModelEmbedder(own.OwnModel(given, options), options)
    if langchain.is_embeddings(given):
        return ModelEmbedder(langchain.LangChainModel(given, options), options)
    raise InputError(
        f"the embedder is a {type(given).__name__}; give its name as text, a LangChain "
        f"Embeddings object, or one with: {', '.join(own.NEEDED)}"
    )
