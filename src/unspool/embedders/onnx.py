"""Models as ONNX files, run by onnxruntime without torch: from a folder, or from a hub where
there is a network.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
# With two cores 4 and 8 texts a call are 1.4 times as fast as 32, when busy more, and take a third
# of its memory (bench/providers.py --batches).
MAX_BATCH = 8


class OnnxModel:
    """Loaded when something is first embedded; counting tokens needs the tokenizer only."""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        path, name = folders.find(
            model, provider=PROVIDER, wanted=_WANTED, is_whole=lambda path: _file(path) is not None
        )
        self._file, *_ = files = weights(path)
        folder = folders.describe(path, name, files, options)
        folder.check_pooling()
        self._pooling = folder.pooling
        self._session: Any = None
        self._tokenizer: Any = None
        self._guard = threading.Lock()
        self.tokenizer_file = folder.tokenizer_file
        self.facts = folder.facts(PROVIDER, options, max_batch=MAX_BATCH)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Tokens, the network, then the mean over each text's own tokens, or its first."""
        session = self._load()
        encoded = self._tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in encoded], dtype=np.int64)
        mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        inputs = {one.name for one in session.get_inputs()}
        outputs = [one.name for one in session.get_outputs()]
        wanted = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
        output = session.run(
            [wanted], {name: value for name, value in given.items() if name in inputs}
        )[0]
        if output.ndim == 2:  # the file does the pooling itself
            pooled = output
        elif self._pooling == "cls":
            pooled = output[:, 0]
        else:
            weight = mask[:, :, None].astype(np.float32)
            pooled = (output * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1)
        return np.asarray(pooled, dtype=np.float32)

    def _load(self) -> Any:
        with self._guard:
            if self._session is None:
                import onnxruntime
                from tokenizers import Tokenizer

                tokenizer = Tokenizer.from_file(self.tokenizer_file)
                tokenizer.no_truncation()
                tokenizer.enable_padding(**_padding(tokenizer.padding))
                self._tokenizer = tokenizer
                onnxruntime.set_default_logger_severity(3)
                try:
                    self._session = onnxruntime.InferenceSession(
                        str(self._file), providers=["CPUExecutionProvider"]
                    )
                # the library has a class of its own for each way a file can be wrong
                except Exception as error:
                    raise ConfigError(
                        f"{self._file} cannot be loaded ({type(error).__name__}); copy the "
                        f"model's folder again"
                    ) from error
            return self._session


def weights(path: Path) -> list[Path]:
    """The ONNX file in a model's folder, and those beside it that hold what did not fit."""
    found = _file(path)
    if found is None:
        raise ConfigError(
            f"{path} has no model.onnx; UNSPOOL_EMBEDDER={PROVIDER}:... names the folder that "
            f"holds a model's files"
        )
    return [found, *sorted(found.parent.glob(f"{found.name}?*"))]


def _file(path: Path) -> Path | None:
    return next((path / name for name in _FILES if (path / name).is_file()), None) or next(
        iter(sorted(path.glob("*.onnx"))), None
    )


def _padding(own: dict[str, Any] | None) -> dict[str, Any]:
    """The tokenizer's own way to pad, but to the longest of a batch."""
    return {
        key: value
        for key, value in (own or {}).items()
        if key in ("pad_id", "pad_type_id", "pad_token")
    }
