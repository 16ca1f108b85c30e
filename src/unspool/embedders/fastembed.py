"""Models that fastembed runs without torch, by the names it knows or from a folder."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.embedders import folders, onnx
from unspool.embedders.options import EmbedderOptions
from unspool.errors import ConfigError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "fastembed"


class FastembedModel:
    """Model that fastembed knows by name, or that is registered with it from a folder.

    A name is searched on this machine before any network.
    """

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._is_folder = Path(model).expanduser().is_dir() or not model
        if self._is_folder:
            path, name = folders.find_folder(
                model, provider=PROVIDER, wanted=(), is_whole=lambda path: True
            )
        else:
            name = _check_name(model)
            path = _download(name)
        self._folder = folders.read_folder(path, name, onnx.list_weights(path), options)
        if self._is_folder:
            self._folder.check_pooling()
        self.tokenizer_file = self._folder.tokenizer_file
        self.facts = self._folder.describe(PROVIDER, options, max_batch=onnx.MAX_BATCH)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Embed texts, which contain their prefix."""
        rows = self._model.embed(list(texts), batch_size=len(texts))
        return np.stack(list(rows)).astype(np.float32, copy=False)

    @cached_property
    def _model(self) -> Any:
        from fastembed import TextEmbedding

        name = self._register() if self._is_folder else self._folder.name
        try:
            model = TextEmbedding(name, specific_model_path=str(self._folder.path))
        except Exception as error:  # a ValueError for a missing file, anything for a damaged one
            raise ConfigError(
                f"fastembed cannot load {self._folder.path} ({error}); copy the model's whole "
                f"folder, as a hub has it"
            ) from error
        # it cuts at the limit of tokenizer_config.json, which may be below the stated one
        model.model.tokenizer.no_truncation()
        return model

    def _register(self) -> str:
        """Register the folder with fastembed, and return its name there."""
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        path = self._folder.path
        name = f"unspool/{self._folder.name}-{self._folder.revision}"
        if name not in {one["model"] for one in TextEmbedding.list_supported_models()}:
            TextEmbedding.add_custom_model(
                model=name,
                pooling=PoolingType.CLS if self._folder.pooling == "cls" else PoolingType.MEAN,
                normalization=True,
                sources=ModelSource(url="file://none"),
                dim=self._folder.dimension,
                model_file=onnx.list_weights(path)[0].relative_to(path).as_posix(),
            )
        return name


def _download(name: str) -> Path:
    """Return the folder of a model that fastembed knows, downloaded unless it is here."""
    from fastembed import TextEmbedding
    from loguru import logger

    logger.disable("fastembed")  # its errors are raised below
    with suppress(Exception):  # it raises anything; the model is not on this machine
        return _get_folder(TextEmbedding(name, local_files_only=True, lazy_load=True))
    folders.check_reachable(name, PROVIDER)
    try:
        return _get_folder(TextEmbedding(name, lazy_load=True))
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be downloaded ({type(error).__name__}); "
            f"{folders.advise_offline(PROVIDER)}"
        ) from error


def _get_folder(opened: Any) -> Path:
    return Path(opened.model._model_dir)


def _check_name(model: str) -> str:
    """Return the name of a model in fastembed's spelling. Reject one that it does not know."""
    from fastembed import TextEmbedding

    names: dict[str, str] = {
        one["model"].lower(): one["model"] for one in TextEmbedding.list_supported_models()
    }
    if model.lower() not in names:
        near = difflib.get_close_matches(model.lower(), names, n=1, cutoff=0.5)
        hint = f"did you mean {names[near[0]]}? " if near else ""
        raise ConfigError(
            f"fastembed knows no model {model!r}; {hint}a folder works too: "
            f"UNSPOOL_EMBEDDER={PROVIDER}:/path/of/a/folder"
        )
    return names[model.lower()]
