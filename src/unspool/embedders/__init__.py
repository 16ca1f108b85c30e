"""Embedders by name."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import cast

from unspool.embedders.base import Embedder
from unspool.embedders.options import EmbedderOptions
from unspool.providers import Provider, create_model

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
        "unspool.embedders.objects:reject_setting",
        "",
        "",
        "any LangChain Embeddings object, given in Python",
    ),
}
_IN_FOLDERS = ("sentence-transformers", "onnx", "fastembed")
_DEFAULTS = EmbedderOptions()


def open_embedder(name: str, options: EmbedderOptions = _DEFAULTS) -> Embedder:
    """Return the embedder called `provider[:model]`, loaded once per process."""
    return _load(replace(options, name=name))


@lru_cache(maxsize=8)
def _load(options: EmbedderOptions) -> Embedder:
    made = create_model(PROVIDERS, options.name, options, setting="UNSPOOL_EMBEDDER")
    if hasattr(made, "embed_passages"):  # a complete embedder, not only a model
        return cast(Embedder, made)
    from unspool.embedders.model import ModelEmbedder

    return ModelEmbedder(made, options)


def resolve_name(name: str) -> str:
    """Return the name of an embedder with the absolute path of its folder."""
    provider, _, model = name.partition(":")
    folder = Path(model.strip()).expanduser()
    return (
        f"{provider}:{folder.resolve()}"
        if model.strip() and provider in _IN_FOLDERS and folder.is_dir()
        else name
    )


def as_embedder(given: object, options: EmbedderOptions = _DEFAULTS) -> Embedder:
    """Return an embedder for an object of the user, or for a LangChain `Embeddings` object."""
    from unspool.embedders.model import ModelEmbedder
    from unspool.embedders.objects import ObjectModel
    from unspool.embedders.static import StaticEmbedder

    if isinstance(given, (ModelEmbedder, StaticEmbedder)):
        return given
    return ModelEmbedder(ObjectModel(given, options), options)
