"""Models that sentence-transformers runs, with torch: from a folder, or from a hub where there
is a network.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.embedders import folders
from unspool.embedders.options import EmbedderOptions
from unspool.embedders.tokens import marks
from unspool.errors import ConfigError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "sentence-transformers"
_WANTED = ("*.json", "*.txt", "*.model", "*.safetensors", "*/*.json", "*/*.safetensors")
# on two cores 4 to 16 texts a call are about as fast, 32 slower (bench/providers.py --batches)
MAX_BATCH = 16


class SentenceTransformersModel:
    """Loaded when something is first embedded; counting tokens needs the tokenizer only."""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._path, name = folders.find(
            model, provider=PROVIDER, wanted=_WANTED, is_whole=lambda path: bool(_found(path))
        )
        folder = folders.describe(self._path, name, _weights(self._path), options)
        self._limit = folder.max_tokens + marks(folder.tokenizer_file)
        self._loaded: Any = None
        self._guard = threading.Lock()
        self.tokenizer_file = folder.tokenizer_file
        self.facts = folder.facts(PROVIDER, options, max_batch=MAX_BATCH)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """The prefixes are in the texts already, so the model's own prompts are switched off."""
        rows: Vectors = self._model().encode(
            list(texts),
            batch_size=len(texts),
            prompt="",
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return rows.astype(np.float32, copy=False)

    def _model(self) -> Any:
        with self._guard:
            if self._loaded is None:
                from sentence_transformers import SentenceTransformer
                from transformers.utils import logging

                logging.disable_progress_bar()  # one of its own for every file of weights
                try:
                    self._loaded = SentenceTransformer(str(self._path), local_files_only=True)
                except Exception as error:  # whatever torch and transformers make of a damaged file
                    raise ConfigError(
                        f"{self._path} cannot be loaded ({type(error).__name__}); copy the "
                        f"model's folder again"
                    ) from error
                self._loaded.max_seq_length = self._limit
            return self._loaded


def _weights(path: Path) -> list[Path]:
    found = _found(path)
    if not found:
        raise ConfigError(
            f"{path} has no weights (model.safetensors); UNSPOOL_EMBEDDER={PROVIDER}:... names "
            f"the folder that holds a model's files"
        )
    return found


def _found(path: Path) -> list[Path]:
    return sorted([*path.glob("*.safetensors"), *path.glob("*/*.safetensors")]) or sorted(
        path.glob("pytorch_model*.bin")
    )
