"""The default embedder: static token vectors that come inside the `wordllama` wheel. No network, no key, no server.

Only the weights and the tokenizer's table are read from the wheel; its Python package takes a second to import and looks for
its tokenizer in the wrong folder when offline.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unspool.errors import ConfigError, InputError, MissingDependencyError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

# No entry of the tokenizer's vocabulary crosses from a letter to another kind of character, joins two digits, or holds a
# line break (tests/unit/test_static_embedder.py checks the vocabulary). So a text's tokens are exactly the tokens of these
# segments, and each distinct segment is tokenized once. Tokenizing whole texts runs at 780 texts/s of 1250 characters.
_SEGMENT = re.compile(r" *[^\W\d_²]+| *(?:[^\w\s]|[_²])+| +|\d|[^\S ]+")
_SPACES = re.compile(r"\s+")
_MAX_REMEMBERED = 400_000  # segments; about 100 MB at worst

_MODEL = "l2_supercat_256"
_TOKENIZER = "l2_supercat_tokenizer_config.json"


class _Segments(dict[str, tuple[int, ...]]):
    """Segment -> its token ids, filled on demand."""

    def __init__(self, tokenizer_file: Path) -> None:
        super().__init__()
        from tokenizers import Tokenizer, normalizers

        self._tokenizer = Tokenizer.from_file(str(tokenizer_file))
        # The stock normalizer also puts a space in front of each text; here that is done once per text, not per segment.
        self._tokenizer.normalizer = normalizers.Replace(" ", "\u2581")

    def __missing__(self, segment: str) -> tuple[int, ...]:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        ids = self[segment] = tuple(self._tokenizer.encode(segment, add_special_tokens=False).ids)
        return ids


class StaticEmbedder:
    """A text's vector is the sum of its tokens' vectors, each weighted by the logarithm of its count, scaled to length 1."""

    name = "static:wordllama-256"
    # The recipe is part of the revision: white space folded, weights by log(1 + count). Against plain averaging it gains .07
    # nDCG@10 on cosqa and .02 on scifact, by meaning alone (bench/embedding.py).
    revision = "1"
    dimension = 256
    max_tokens = 512
    alpha = 0.3

    def __init__(self, model: str = "") -> None:
        if model not in ("", "wordllama-256"):
            raise ConfigError(f"static model {model!r} is not known; UNSPOOL_EMBEDDER=static is the only one")
        spec = importlib.util.find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise MissingDependencyError("the default embedder needs the package wordllama; pip install wordllama")
        folder = Path(spec.origin).parent
        self._weights_file = folder / "weights" / f"{_MODEL}.safetensors"
        self._segments = _Segments(folder / "tokenizers" / _TOKENIZER)
        self._weights: Vectors | None = None
        self._lock = threading.Lock()

    def count_tokens(self, text: str) -> int:
        """Exactly what the whole tokenizer would count."""
        if not text:
            return 0
        segments = self._segments
        return sum([len(segments[segment]) for segment in _SEGMENT.findall(" " + text)])

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text. A text without a single letter, digit or sign is refused: it has no direction."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        ids = [self._ids(text) for text in texts]
        lengths = [len(row) for row in ids]
        if 0 in lengths:
            raise InputError(f"text {lengths.index(0)} of {len(texts)} is blank; leave blank texts out before embedding")
        weights = self._load()
        # One sort for the whole batch: key = text * vocabulary + token.
        keys = np.repeat(np.arange(len(ids), dtype=np.int64) * len(weights), lengths)
        keys += np.fromiter((token for row in ids for token in row), dtype=np.int64, count=len(keys))
        distinct, counts = np.unique(keys, return_counts=True)
        rows = weights[distinct % len(weights)].astype(np.float32) * np.log1p(counts).astype(np.float32)[:, None]
        starts = np.searchsorted(distinct, np.arange(len(ids), dtype=np.int64) * len(weights))
        sums = np.add.reduceat(rows, starts, axis=0)
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)
        return sums

    def embed_query(self, text: str) -> Vectors:
        """The same space and recipe as passages."""
        row: Vectors = self.embed_passages([text])[0]
        return row

    def _ids(self, text: str) -> list[int]:
        folded = _SPACES.sub(" ", text).strip()
        if not folded:
            return []
        segments = self._segments
        return [token for segment in _SEGMENT.findall(" " + folded) for token in segments[segment]]

    def _load(self) -> Vectors:
        with self._lock:
            if self._weights is None:
                from safetensors.numpy import load_file

                self._weights = load_file(self._weights_file)["embedding.weight"]
            return self._weights
