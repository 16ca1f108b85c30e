"""A model in a folder, laid out as sentence-transformers and the model hubs do, and how such a
folder is come by without waiting for a network.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool.embedders.base import Facts, revision
from unspool.embedders.families import family_of
from unspool.embedders.options import EmbedderOptions
from unspool.embedders.tokens import file_in, marks
from unspool.errors import ConfigError, UnreachableError

MAX_TOKENS = 512  # where a folder does not say: what models of the BERT kind read
HUB_S = 5.0  # a hub that has not answered by then is taken for unreachable
_NO_LIMIT = 10_000_000  # tokens; what is above stands for a limit that is not known
# Reading 100 MB takes a tenth of a second; larger models are read a megabyte at a time, at so many
# places.
_BLOCK, _READ_WHOLE, _BLOCKS = 1 << 20, 256 << 20, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """What a folder says of its model."""

    path: Path
    name: str
    revision: str
    dimension: int
    max_tokens: int
    query_prefix: str
    passage_prefix: str
    pooling: str  # mean or cls
    tokenizer_file: str

    def facts(self, provider: str, options: EmbedderOptions, *, max_batch: int) -> Facts:
        """What a model that computes in this process states."""
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
        """Refuse a model whose tokens become one vector in a way that only sentence-transformers
        knows.
        """
        if self.pooling == "other":
            raise ConfigError(
                f"{self.path} pools its tokens neither by mean nor by first token; use it as "
                f"UNSPOOL_EMBEDDER=sentence-transformers:{self.path}"
            )


def describe(
    path: Path, name: str, weights: Sequence[Path], options: EmbedderOptions
) -> ModelFolder:
    """Read what a folder says; what is set goes before it.

    `weights` are the files that tell this model from another.
    """
    config = _json(path / "config.json")
    own = _json(path / "sentence_bert_config.json")
    tokenizer_file = file_in(path)
    if not tokenizer_file:
        raise ConfigError(
            f"{path} has no tokenizer.json; copy the model's whole folder, as a hub has it"
        )
    family = family_of(name)
    prompts = _json(path / "config_sentence_transformers.json").get("prompts") or {}
    # An empty prompt is no statement: sentence-transformers 5 and later write one into every
    # folder.
    query = prompts.get("query") or family.query
    passage = prompts.get("document") or prompts.get("passage") or family.passage
    pooling = _pooling(path, family.pooling)
    limit = options.max_tokens or int(
        own.get("max_seq_length") or _limit(config, _json(path / "tokenizer_config.json"))
    )
    return ModelFolder(
        path=path,
        name=name,
        revision=revision(_fingerprint([*weights, Path(tokenizer_file)]), query, passage, pooling),
        dimension=_dimension(path, config),
        max_tokens=limit - marks(tokenizer_file),
        query_prefix=query,
        passage_prefix=passage,
        pooling=pooling,
        tokenizer_file=tokenizer_file,
    )


def find(
    model: str, *, provider: str, wanted: tuple[str, ...], is_whole: Callable[[Path], bool]
) -> tuple[Path, str]:
    """The folder of a model and its name: a folder on this machine, or a hub's name. A hub's copy
    on this machine is taken first if it is whole, and a hub is asked only where it answers at once.
    `wanted` are the files of it that are needed."""
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
            f"holds a model's files"
        )
    return _from_hub(
        model if "/" in model else f"sentence-transformers/{model}", provider, wanted, is_whole
    ), model


def _from_hub(
    name: str, provider: str, wanted: tuple[str, ...], is_whole: Callable[[Path], bool]
) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        kept = Path(snapshot_download(name, local_files_only=True, allow_patterns=list(wanted)))
        if is_whole(kept):  # another program may have fetched other files of it
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
            f"{name} is not on this machine and HF_HUB_OFFLINE is set; {offline_ways(provider)}"
        )
    check_reachable(name, provider)
    try:
        return Path(snapshot_download(name, allow_patterns=list(wanted), etag_timeout=HUB_S))
    except HfHubHTTPError as error:
        raise ConfigError(
            f"{name} cannot be had from its hub ({type(error).__name__}); check the name, or "
            f"{offline_ways(provider)}"
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"{name} could not be downloaded ({type(error).__name__}); try again, or "
            f"{offline_ways(provider)}"
        ) from error


def check_reachable(name: str, provider: str) -> None:
    """Fail at once where a hub does not answer, instead of after all that a download tries."""
    from huggingface_hub import constants, get_session

    answered = threading.Event()

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=HUB_S)
        except Exception:  # noqa: BLE001 - whatever it is, the hub did not answer
            return
        finally:
            done.set()
        answered.set()

    done = threading.Event()
    # looking up a name has no time limit of its own
    threading.Thread(target=ask, name="unspool-hub", daemon=True).start()
    done.wait(HUB_S)
    if not answered.wait(0.1):
        raise UnreachableError(
            f"{name} is not on this machine and its hub does not answer; {offline_ways(provider)}"
        )


def offline_ways(provider: str) -> str:
    """What to do where there is no network."""
    return (
        f"copy its folder from a machine that has it and set "
        f"UNSPOOL_EMBEDDER={provider}:/path/of/the/folder, "
        "or leave UNSPOOL_EMBEDDER at static, which needs no download"
    )


def _pooling(path: Path, otherwise: str) -> str:
    """How tokens become one vector; the older folders have a flag for each way, the newer ones a
    name.
    """
    pooling = _json(path / "1_Pooling" / "config.json")
    if not pooling:
        return otherwise
    flags = [
        name.removeprefix("pooling_mode_")
        for name in pooling
        if name.startswith("pooling_mode_") and pooling[name] is True
    ]
    named = pooling.get("pooling_mode", flags)
    modes = [named] if isinstance(named, str) else list(named)
    return _POOLING.get(modes[0], "other") if len(modes) == 1 else "other"


def _limit(config: dict[str, Any], tokenizer: dict[str, Any]) -> int:
    """What a model reads where its folder has no `max_seq_length`: newer ones have it at the
    tokenizer, which has 1e30 where nobody knows.
    """
    stated = (config.get("max_position_embeddings"), tokenizer.get("model_max_length"))
    return int(min((one for one in stated if one and one < _NO_LIMIT), default=MAX_TOKENS))


_POOLING = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}


def _dimension(path: Path, config: dict[str, Any]) -> int:
    """How long the vectors are, if the folder says so; a layer behind the pooling may change it."""
    layers = _json(path / "modules.json").get("", [])
    for layer in layers:
        if str(layer.get("type", "")).endswith("Dense"):
            return int(
                _json(path / str(layer.get("path")) / "config.json").get("out_features") or 0
            )
    pooling = _json(path / "1_Pooling" / "config.json")
    return int(
        pooling.get("word_embedding_dimension")
        or pooling.get("embedding_dimension")
        or config.get("hidden_size")
        or 0
    )


def _fingerprint(files: Sequence[Path]) -> str:
    """What tells these files from all others.

    Of very large ones only a part is read, from all over them.
    """
    digest = hashlib.sha256()
    sizes = [file.stat().st_size for file in files]
    whole = sum(sizes) <= _READ_WHOLE
    for file, size in zip(files, sizes, strict=True):
        digest.update(f"{size}\0".encode())
        step = _BLOCK if whole else max(_BLOCK, size // _BLOCKS)
        with file.open("rb") as opened:
            for start in range(0, size, step):
                opened.seek(start)
                digest.update(opened.read(_BLOCK))
    return digest.hexdigest()


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file} cannot be read ({error}); copy the model's folder again"
        ) from error
    return found if isinstance(found, dict) else {"": found}  # a list, as in modules.json
