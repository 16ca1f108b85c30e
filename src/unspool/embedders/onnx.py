"""Models as ONNX files in a folder or on a hub, which onnxruntime runs without torch."""

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

PROVIDER = "onnx"
_FILES = (
    "model.onnx",
    "onnx/model.onnx",
    "model_quantized.onnx",
    "onnx/model_quantized.onnx",
    "model_optimized.onnx",
)
_WANTED = ("*.json", "1_Pooling/*.json", "model.onnx*", "onnx/model.onnx*")
# With two cores, calls of 4 to 8 texts are 1.4 times as fast as of 32, in a third of the memory
# (bench/providers.py --batches).
MAX_BATCH = 8


class OnnxModel:
    """Model that is loaded when it first embeds. Counting tokens needs the tokenizer only."""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        path, name = folders.find_folder(
            model, provider=PROVIDER, wanted=_WANTED, is_whole=lambda path: bool(_find_file(path))
        )
        self._file, *_ = files = list_weights(path)
        folder = folders.read_folder(path, name, files, options)
        folder.check_pooling()
        self._pooling = folder.pooling
        self.tokenizer_file = folder.tokenizer_file
        self.facts = folder.describe(PROVIDER, options, max_batch=MAX_BATCH)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Embed texts by the mean over the tokens of each, or by its first token."""
        encoded = self._tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in encoded], dtype=np.int64)
        mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        inputs = {one.name for one in self._session.get_inputs()}
        outputs = [one.name for one in self._session.get_outputs()]
        wanted = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
        output = self._session.run(
            [wanted], {name: value for name, value in given.items() if name in inputs}
        )[0]
        if output.ndim == 2:  # the model contains the pooling
            pooled = output
        elif self._pooling == "cls":
            pooled = output[:, 0]
        else:
            weight = mask[:, :, None].astype(np.float32)
            pooled = (output * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1)
        return np.asarray(pooled, dtype=np.float32)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(self.tokenizer_file)
        tokenizer.no_truncation()
        # its own padding, but only to the longest text of a batch
        padding = tokenizer.padding or {}
        keys = [key for key in ("pad_id", "pad_type_id", "pad_token") if key in padding]
        tokenizer.enable_padding(**{key: padding[key] for key in keys})
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
        try:
            return onnxruntime.InferenceSession(str(self._file), providers=["CPUExecutionProvider"])
        except Exception as error:  # the library has a class for each kind of damage
            raise ConfigError(
                f"{self._file} cannot be loaded ({type(error).__name__}); copy the model's "
                f"folder again"
            ) from error


def list_weights(path: Path) -> list[Path]:
    """Return the ONNX file in a model's folder, and its external data files."""
    found = _find_file(path)
    if found is None:
        raise ConfigError(
            f"{path} has no model.onnx; UNSPOOL_EMBEDDER={PROVIDER}:... names the folder that "
            f"contains a model's files"
        )
    return [found, *sorted(found.parent.glob(f"{found.name}?*"))]


def _find_file(path: Path) -> Path | None:
    files = [*(path / name for name in _FILES), *sorted(path.glob("*.onnx"))]
    return next((file for file in files if file.is_file()), None)
