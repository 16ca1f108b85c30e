"""The default embedder: static token vectors that come inside the `wordllama` wheel. No network, no
key, no server.

Only the weights and the tokenizer's table are read from the wheel; its Python package takes a
second to import and looks for its tokenizer in the wrong folder when offline.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unspool.embedders.base import Facts
from unspool.embedders.options import OverLimit
from unspool.errors import ConfigError, InputError, MissingDependencyError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors
    from unspool.embedders.options import EmbedderOptions

# No entry of the tokenizer's vocabulary crosses from a letter to another kind of character, joins
# two digits, or holds a line break (tests/unit/test_static_embedder.py checks the vocabulary). So a
# text's tokens are exactly the tokens of these segments, and each distinct segment is tokenized
# once. Tokenizing whole texts runs at 780 texts/s of 1250 characters. A carriage return and three
# narrow spaces do join with signs in it (';\r'), so they count as signs.
_SEGMENT = re.compile(
    r" *(?:[^\W\d_²]+|(?:[^\w\s]+|[_²\r\xa0\u2009\u200a]+)+)| +|\d|[^\S \r\xa0\u2009\u200a]+"
)
# the same, in half the time
_SEGMENT_ASCII = re.compile(r" *(?:[A-Za-z]+|[^A-Za-z0-9 \t\n\f\v]+)| +|[0-9]|[\t\n\f\v]+")
_MAX_REMEMBERED = 300_000  # segments; about 60 MB at worst, since
# characters has the longest that is remembered: no word, and not worth the memory of a megabyte
# without a space
_MAX_LENGTH = 64

_MODEL = "l2_supercat_256"
_TOKENIZER = "l2_supercat_tokenizer_config.json"


class _Segments(dict[str, tuple[int, ...]]):
    """Segment -> its token ids, filled on demand."""

    def __init__(self, tokenizer_file: Path) -> None:
        super().__init__()
        from tokenizers import Tokenizer

        self._model = Tokenizer.from_file(str(tokenizer_file)).model

    def __missing__(self, segment: str) -> tuple[int, ...]:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        # The model by itself: a tokenizer's `encode` takes four times as long for offsets and masks
        # that nobody reads.
        ids = tuple([token.id for token in self._model.tokenize(segment.replace(" ", "\u2581"))])
        if len(segment) <= _MAX_LENGTH:
            self[segment] = ids
        return ids


class _Counts(dict[str, int]):
    """Segment -> how many tokens it has.

    Apart from the ids, so that adding up a text's counts never leaves C.
    """

    def __init__(self, segments: _Segments) -> None:
        super().__init__()
        self._segments = segments

    def __missing__(self, segment: str) -> int:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        count = len(self._segments[segment])
        if len(segment) <= _MAX_LENGTH:
            self[segment] = count
        return count


class StaticEmbedder:
    """A text's vector is the sum of its tokens' vectors, each weighted by the logarithm of its
    count, scaled to length 1.
    """

    name = "static:wordllama-256"
    # The recipe is part of the revision: white space folded, weights by log(1 + count). Against
    # plain averaging it gains .07 nDCG@10 on cosqa and .02 on scifact, by meaning alone
    # (bench/embedding.py).
    revision = "1"
    dimension = 256
    max_tokens = 512
    is_cheap = True
    alpha = 0.4  # .3 to .5 differ by less than .01 on code-repos, cosqa and scifact

    @property
    def facts(self) -> Facts:
        """Its limit is how long chunks should be: a longer text is summed up to its end."""
        return Facts(
            name=self.name,
            revision=self.revision,
            dimension=self.dimension,
            max_tokens=self.max_tokens,
            over_limit=OverLimit.WHOLE,
            max_batch=64,
            is_unit=True,
            is_local=True,
            alpha=self.alpha,
            price=0,
        )

    def __init__(self, model: str = "", options: EmbedderOptions | None = None) -> None:
        if model not in ("", "wordllama-256"):
            raise ConfigError(
                f"static model {model!r} is not known; UNSPOOL_EMBEDDER=static is the only one"
            )
        spec = importlib.util.find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise MissingDependencyError(
                "the default embedder needs the package wordllama; pip install wordllama"
            )
        folder = Path(spec.origin).parent
        self._weights_file = folder / "weights" / f"{_MODEL}.safetensors"
        self._segments = _Segments(folder / "tokenizers" / _TOKENIZER)
        self._counts = _Counts(self._segments)
        self._weights: Vectors | None = None
        self._lock = threading.Lock()

    def count_tokens(self, text: str) -> int:
        """Exactly what the whole tokenizer would count."""
        return sum(map(self._counts.__getitem__, _segments_of(text))) if text else 0

    def ruler(self, text: str) -> Callable[[int, int], int]:
        """A function that gives `count_tokens(text[start:end])` for any part of a text, by
        looking it up.
        """
        segments = _segments_of(text)
        ends = list(accumulate(map(len, segments)))  # counted in the text with a space in front
        sums = [0, *accumulate(map(self._counts.__getitem__, segments))]

        def measure(start: int, end: int) -> int:
            first, last = bisect_right(ends, start + 1), bisect_right(ends, end + 1)
            if first == last:
                return self.count_tokens(text[start:end])
            # The first segment is counted as the beginning of a text, the last as far as it goes;
            # those between are known.
            whole = self.count_tokens(text[start : ends[first] - 1]) + sums[last] - sums[first + 1]
            rest = text[ends[last - 1] - 1 : end]
            return whole + (sum(map(self._counts.__getitem__, _cut(rest))) if rest else 0)

        return measure

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text. A blank text is refused: it has no direction."""
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        weights = self._load()
        look_up = self._segments.__getitem__
        for index, text in enumerate(texts):
            folded = " ".join(text.split())
            if not folded:
                raise InputError(
                    f"text {index} of {len(texts)} is blank; leave blank texts out before embedding"
                )
            counts = Counter(chain.from_iterable(map(look_up, _segments_of(folded))))
            tokens = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
            scales = np.log1p(np.fromiter(counts.values(), dtype=np.float32, count=len(counts)))
            rows[index] = scales @ weights[tokens]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def embed_query(self, text: str) -> Vectors:
        """The same space and recipe as passages."""
        row: Vectors = self.embed_passages([text])[0]
        return row

    def _load(self) -> Vectors:
        with self._lock:
            if self._weights is None:
                from safetensors.numpy import load_file

                self._weights = load_file(self._weights_file)["embedding.weight"].astype(np.float32)
            return self._weights


def _segments_of(text: str) -> list[str]:
    return _cut(" " + text)


def _cut(text: str) -> list[str]:
    """The segments of a text.

    The sign that stands for a space inside the tokenizer is one for it in a text, too.
    """
    if text.isascii():
        return _SEGMENT_ASCII.findall(text)
    return _SEGMENT.findall(text.replace("\u2581", " "))
