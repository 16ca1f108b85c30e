"""Models in a folder or on a hub, which sentence-transformers runs with torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.embedders import folders
from unspool.embedders.options import EmbedderOptions
from unspool.errors import ConfigError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "sentence-transformers"
_WANTED = ("*.json", "*.txt", "*.model", "*.safetensors", "*/*.json", "*/*.safetensors")
# with two cores, calls of 4 to 16 texts are fastest (bench/providers.py --batches)
MAX_BATCH = 16


class SentenceTransformersModel:
    """Model that is loaded when it first embeds. Counting tokens needs the tokenizer only."""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        path, name = folders.find_folder(
            model, provider=PROVIDER, wanted=_WANTED, is_whole=lambda path: bool(_find_files(path))
        )
        weights = _find_files(path)
        if not weights:
            raise ConfigError(
                f"{path} has no weights (model.safetensors); UNSPOOL_EMBEDDER={PROVIDER}:... names "
                f"the folder that contains a model's files"
            )
        self._folder = folders.read_folder(path, name, weights, options)
        self.tokenizer_file = self._folder.tokenizer_file
        self.facts = self._folder.describe(PROVIDER, options, max_batch=MAX_BATCH)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Embed texts. They contain their prefix, so the model's own prompts are switched off."""
        rows: Vectors = self._model.encode(
            list(texts),
            batch_size=len(texts),
            prompt="",
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return rows.astype(np.float32, copy=False)

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # it has one for every file of weights
        try:
            model = SentenceTransformer(str(self._folder.path), local_files_only=True)
        except Exception as error:  # torch and transformers raise anything for a damaged file
            raise ConfigError(
                f"{self._folder.path} cannot be loaded ({type(error).__name__}); copy the model's "
                f"folder again"
            ) from error
        model.max_seq_length = self._folder.limit
        return model


def _find_files(path: Path) -> list[Path]:
    return sorted([*path.glob("*.safetensors"), *path.glob("*/*.safetensors")]) or sorted(
        path.glob("pytorch_model*.bin")
    )
