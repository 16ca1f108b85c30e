"""Models in folders, as sentence-transformers and the model hubs lay them out."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool.embedders.base import Facts, compute_revision
from unspool.embedders.families import find_family
from unspool.embedders.options import EmbedderOptions
from unspool.embedders.tokens import open_tokenizer
from unspool.errors import ConfigError, UnreachableError

MAX_TOKENS = 512  # of models like BERT; used if a folder does not say
HUB_S = 5.0  # time limit of a hub's response
_NO_LIMIT = 10_000_000  # tokens; higher limits mean that the limit is unknown
# Reading 100 MB takes a tenth of a second. Of larger models, 128 blocks of a megabyte are read.
_BLOCK, _READ_WHOLE, _BLOCKS = 1 << 20, 256 << 20, 128
_POOLING = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """Folder of a model. `limit` counts the tokenizer's special tokens, too."""

    path: Path
    name: str
    revision: str
    dimension: int
    limit: int
    query_prefix: str
    passage_prefix: str
    pooling: str  # mean, cls or other
    tokenizer_file: str

    @property
    def max_tokens(self) -> int:
        """Most tokens of a text, without special tokens."""
        return self.limit - open_tokenizer(self.tokenizer_file).special_count

    def describe(self, provider: str, options: EmbedderOptions, *, max_batch: int) -> Facts:
        """Return the facts of a model that runs in this process."""
        return Facts(
            name=f"{provider}:{self.name}",
            revision=self.revision,
            dimension=self.dimension,
            max_tokens=self.max_tokens,
            over_limit=options.over_limit,
            max_batch=max_batch,
            is_padded=True,
            query_prefix=self.query_prefix,
            passage_prefix=self.passage_prefix,
            is_local=True,
        )

    def check_pooling(self) -> None:
        """Reject a pooling that only sentence-transformers supports."""
        if self.pooling == "other":
            raise ConfigError(
                f"{self.path} pools its tokens neither by mean nor by first token; use it as "
                f"UNSPOOL_EMBEDDER=sentence-transformers:{self.path}"
            )


def read_folder(
    path: Path, name: str, weights: Sequence[Path], options: EmbedderOptions
) -> ModelFolder:
    """Read the configuration in a folder. Options take precedence.

    `weights` are the files that identify the model.
    """
    tokenizer_file = path / "tokenizer.json"
    if not tokenizer_file.is_file():
        raise ConfigError(
            f"{path} has no tokenizer.json; copy the model's whole folder, as a hub has it"
        )
    config = _read_json(path / "config.json")
    family = find_family(name)
    prompts = _read_json(path / "config_sentence_transformers.json").get("prompts") or {}
    # sentence-transformers 5 and later write empty prompts into every folder
    query = prompts.get("query") or family.query
    passage = prompts.get("document") or prompts.get("passage") or family.passage
    pooling = _read_pooling(path, family.pooling)
    return ModelFolder(
        path=path,
        name=name,
        revision=compute_revision(_hash_files([*weights, tokenizer_file]), query, passage, pooling),
        dimension=_read_dimension(path, config),
        limit=options.max_tokens or _read_limit(path, config),
        query_prefix=query,
        passage_prefix=passage,
        pooling=pooling,
        tokenizer_file=str(tokenizer_file),
    )


def find_folder(
    model: str, *, provider: str, wanted: tuple[str, ...], is_whole: Callable[[Path], bool]
) -> tuple[Path, str]:
    """Return the folder and the name of a model: a folder on this machine, or a hub's name.

    A complete copy of the hub on this machine is used without a network. `wanted` are the patterns
    of the necessary files.
    """
    if not model:
        raise ConfigError(
            f"{provider} needs a model; set UNSPOOL_EMBEDDER={provider}:/path/of/a/folder, or "
            f"{provider}:name for one of a hub"
        )
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve(), path.resolve().name
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ConfigError(
            f"there is no folder {model}; UNSPOOL_EMBEDDER={provider}:... names the folder that "
            f"contains a model's files"
        )
    name = model if "/" in model else f"sentence-transformers/{model}"
    return _download(name, provider, wanted, is_whole), model


def _download(
    name: str, provider: str, wanted: tuple[str, ...], is_whole: Callable[[Path], bool]
) -> Path:
    """Return the folder of a hub's model, downloaded unless it is on this machine."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        kept = Path(snapshot_download(name, local_files_only=True, allow_patterns=list(wanted)))
        if is_whole(kept):  # another program may have downloaded other files of it
            return kept
    except HFValidationError as error:
        raise ConfigError(
            f"{name!r} is no name that a hub has; UNSPOOL_EMBEDDER={provider}:/path/of/a/folder "
            f"takes one from disk"
        ) from error
    except LocalEntryNotFoundError:
        pass
    if constants.HF_HUB_OFFLINE:
        raise ConfigError(
            f"{name} is not on this machine and HF_HUB_OFFLINE is set; {advise_offline(provider)}"
        )
    check_reachable(name, provider)
    try:
        return Path(snapshot_download(name, allow_patterns=list(wanted), etag_timeout=HUB_S))
    except HfHubHTTPError as error:
        raise ConfigError(
            f"{name} cannot be downloaded from its hub ({type(error).__name__}); check the name, "
            f"or {advise_offline(provider)}"
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"{name} could not be downloaded ({type(error).__name__}); try again, or "
            f"{advise_offline(provider)}"
        ) from error


def check_reachable(name: str, provider: str) -> None:
    """Raise an error at once if a hub does not respond. A download would retry for minutes."""
    from huggingface_hub import constants, get_session

    responses: list[object] = []

    def ask() -> None:
        with suppress(Exception):  # of any kind: the hub did not respond
            responses.append(get_session().head(constants.ENDPOINT, timeout=HUB_S))

    # a thread, because the lookup of a host name has no time limit of its own
    thread = threading.Thread(target=ask, name="unspool-hub", daemon=True)
    thread.start()
    thread.join(HUB_S + 0.1)
    if not responses:
        raise UnreachableError(
            f"{name} is not on this machine and its hub does not answer; {advise_offline(provider)}"
        )


def advise_offline(provider: str) -> str:
    """Return the advice for a machine without a network."""
    return (
        f"copy its folder from a machine that has it and set "
        f"UNSPOOL_EMBEDDER={provider}:/path/of/the/folder, "
        "or leave UNSPOOL_EMBEDDER at static, which needs no download"
    )


def _read_pooling(path: Path, default: str) -> str:
    """Return the pooling. Older folders have a flag for each kind, newer ones its name."""
    pooling = _read_json(path / "1_Pooling" / "config.json")
    if not pooling:
        return default
    flags = [
        name.removeprefix("pooling_mode_")
        for name in pooling
        if name.startswith("pooling_mode_") and pooling[name] is True
    ]
    named = pooling.get("pooling_mode", flags)
    modes = [named] if isinstance(named, str) else list(named)
    return _POOLING.get(modes[0], "other") if len(modes) == 1 else "other"


def _read_limit(path: Path, config: dict[str, Any]) -> int:
    """Return the most tokens of a text.

    Newer folders have the limit at the tokenizer, as 1e30 if it is unknown.
    """
    limits = (
        config.get("max_position_embeddings"),
        _read_json(path / "tokenizer_config.json").get("model_max_length"),
    )
    return int(
        _read_json(path / "sentence_bert_config.json").get("max_seq_length")
        or min((one for one in limits if one and one < _NO_LIMIT), default=MAX_TOKENS)
    )


def _read_dimension(path: Path, config: dict[str, Any]) -> int:
    """Return the length of the vectors, or 0. A layer after the pooling may change it."""
    for layer in _read_json(path / "modules.json").get("", []):
        if str(layer.get("type", "")).endswith("Dense"):
            dense = _read_json(path / str(layer.get("path")) / "config.json")
            return int(dense.get("out_features") or 0)
    pooling = _read_json(path / "1_Pooling" / "config.json")
    return int(
        pooling.get("word_embedding_dimension")
        or pooling.get("embedding_dimension")
        or config.get("hidden_size")
        or 0
    )


def _hash_files(files: Sequence[Path]) -> str:
    """Return a hash of files; of very large ones, of blocks all over them."""
    digest = hashlib.sha256()
    sizes = [file.stat().st_size for file in files]
    is_small = sum(sizes) <= _READ_WHOLE
    for file, size in zip(files, sizes, strict=True):
        digest.update(f"{size}\0".encode())
        step = _BLOCK if is_small else max(_BLOCK, size // _BLOCKS)
        with file.open("rb") as opened:
            for start in range(0, size, step):
                opened.seek(start)
                digest.update(opened.read(_BLOCK))
    return digest.hexdigest()


def _read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file; a list, as in modules.json, under the key ''."""
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file} cannot be read ({error}); copy the model's folder again"
        ) from error
    return found if isinstance(found, dict) else {"": found}
