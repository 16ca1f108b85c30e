"""Models that fastembed runs, without torch: by the names it knows, or from a folder."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
    """A folder is given to fastembed as a model of one's own; a name is looked for on this
    machine before any network.
    """

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._guard = threading.Lock()
        self._opened: Any = None
        if Path(model).expanduser().is_dir() or not model:
            self._path, name = folders.find(
                model, provider=PROVIDER, wanted=(), is_whole=lambda path: True
            )
            self._name, self._is_own = name, True
        else:
            name = self._name = _known(model)
            self._is_own = False
            self._path = self._fetched(name)
        folder = folders.describe(self._path, name, onnx.weights(self._path), options)
        self._folder = folder
        if self._is_own:
            folder.check_pooling()
        self.tokenizer_file = folder.tokenizer_file
        self.facts = folder.facts(PROVIDER, options, max_batch=onnx.MAX_BATCH)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Queries and passages differ by their prefix alone, which is in the texts already."""
        return np.stack(list(self._model().embed(list(texts), batch_size=len(texts)))).astype(
            np.float32, copy=False
        )

    def _model(self) -> Any:
        with self._guard:
            if self._opened is None:
                from fastembed import TextEmbedding

                name = self._registered() if self._is_own else self._name
                try:
                    self._opened = TextEmbedding(name, specific_model_path=str(self._path))
                # it says with a ValueError which file it misses, and with anything else what is
                # wrong with one
                except Exception as error:
                    raise ConfigError(
                        f"fastembed cannot load {self._path} ({error}); copy the model's whole "
                        f"folder, as a hub has it"
                    ) from error
                # it cuts where tokenizer_config.json says, which may be before the declared limit
                self._opened.model.tokenizer.no_truncation()
            return self._opened

    def _registered(self) -> str:
        """The folder under a name that fastembed does not know yet."""
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        name = f"unspool/{self._folder.name}-{self._folder.revision}"
        if name not in {one["model"] for one in TextEmbedding.list_supported_models()}:
            TextEmbedding.add_custom_model(
                model=name,
                pooling=PoolingType.CLS if self._folder.pooling == "cls" else PoolingType.MEAN,
                normalization=True,
                sources=ModelSource(url="file://none"),
                dim=self._folder.dimension,
                model_file=onnx.weights(self._path)[0].relative_to(self._path).as_posix(),
            )
        return name

    def _fetched(self, name: str) -> Path:
        """The folder of a model that fastembed knows; from this machine if it is there."""
        from fastembed import TextEmbedding
        from loguru import logger

        logger.disable("fastembed")  # what it cannot find is said once, by us
        try:
            return _folder_of(TextEmbedding(name, local_files_only=True, lazy_load=True))
        except Exception:  # noqa: BLE001, S110 - it raises whatever its download does; that it is not here is all that matters
            pass
        folders.check_reachable(name, PROVIDER)
        try:
            return _folder_of(TextEmbedding(name, lazy_load=True))
        except Exception as error:
            raise ConfigError(
                f"{name} cannot be had ({type(error).__name__}); {folders.offline_ways(PROVIDER)}"
            ) from error


def _known(model: str) -> str:
    from fastembed import TextEmbedding

    names: dict[str, str] = {
        one["model"].lower(): one["model"] for one in TextEmbedding.list_supported_models()
    }
    if model.lower() not in names:
        import difflib

        near = difflib.get_close_matches(model.lower(), names, n=1, cutoff=0.5)
        hint = f"did you mean {names[near[0]]}? " if near else ""
        raise ConfigError(
            f"fastembed knows no model {model!r}; {hint}a folder works too: "
            f"UNSPOOL_EMBEDDER={PROVIDER}:/path/of/a/folder"
        )
    return names[model.lower()]


def _folder_of(opened: Any) -> Path:
    return Path(opened.model._model_dir)
