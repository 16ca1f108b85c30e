"""Default embedder: static token vectors of the `wordllama` wheel, without network, key or server.

Only the weights and the tokenizer's table are read from the wheel. Its Python package takes a
second to import, and offline looks for its tokenizer in the wrong folder.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from unspool.embedders.base import Facts
from unspool.embedders.options import OverLimit
from unspool.errors import ConfigError, InputError, MissingDependencyError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors
    from unspool.embedders.options import EmbedderOptions

# No entry of the tokenizer's vocabulary joins a letter with another kind of character, joins two
# digits, or contains a line break (tests/unit/test_static_embedder.py checks the vocabulary). So
# the tokens of a text are the tokens of these segments, and each distinct segment is tokenized
# once. Tokenizing whole texts runs at 780 texts/s of 1250 characters. Some entries join a carriage
# return or one of three narrow spaces with signs (';\r'), so these count as signs.
_SEGMENT = re.compile(
    r" *(?:[^\W\d_²]+|(?:[^\w\s]+|[_²\r\xa0\u2009\u200a]+)+)| +|\d|[^\S \r\xa0\u2009\u200a]+"
)
# the same, in half the time
_SEGMENT_ASCII = re.compile(r" *(?:[A-Za-z]+|[^A-Za-z0-9 \t\n\f\v]+)| +|[0-9]|[\t\n\f\v]+")
_MAX_REMEMBERED = 300_000  # segments; about 60 MB at worst
_MAX_LENGTH = 64  # of a segment that is remembered, in characters; longer ones are no words

_MODEL = "l2_supercat_256"
_TOKENIZER = "l2_supercat_tokenizer_config.json"
_T = TypeVar("_T")


class _Memo(dict[str, _T]):
    """Values of segments, computed on demand.

    Looking up all segments of a text never leaves C once they are known.
    """

    def __init__(self, compute: Callable[[str], _T]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, segment: str) -> _T:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        value = self._compute(segment)
        if len(segment) <= _MAX_LENGTH:
            self[segment] = value
        return value


class StaticEmbedder:
    """Embedder that sums the vectors of a text's tokens, each weighted by the logarithm of its
    count, and scales the sum to length 1.

    Its limit is advice for the length of chunks: of a longer text every token counts.
    """

    # The recipe is part of the revision: white space folded, weights by log(1 + count). Against
    # plain averaging it gains .07 nDCG@10 on cosqa and .02 on scifact in semantic search
    # (bench/embedding.py).
    facts = Facts(
        name="static:wordllama-256",
        revision="1",
        dimension=256,
        max_tokens=512,
        over_limit=OverLimit.WHOLE,
        max_batch=64,
        is_unit=True,
        is_local=True,
        alpha=0.4,  # .3 to .5 differ by less than .01 on code-repos, cosqa and scifact
        price=0,
    )
    name, revision = facts.name, facts.revision
    dimension, max_tokens, alpha = facts.dimension, facts.max_tokens, facts.alpha
    is_cheap = True

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
        from tokenizers import Tokenizer

        self._folder = Path(spec.origin).parent
        tokenizer = Tokenizer.from_file(str(self._folder / "tokenizers" / _TOKENIZER)).model

        # the model by itself: `encode` of the tokenizer takes four times as long
        def tokenize(segment: str) -> tuple[int, ...]:
            return tuple([one.id for one in tokenizer.tokenize(segment.replace(" ", "\u2581"))])

        self._segments = _Memo(tokenize)
        self._counts = _Memo(lambda segment: len(self._segments[segment]))
        self._lock = threading.Lock()

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens, exactly as the tokenizer counts them."""
        return sum(map(self._counts.__getitem__, _split(" " + text))) if text else 0

    def ruler(self, text: str) -> Callable[[int, int], int]:
        """Return a function with the value of `count_tokens(text[start:end])` for any part of a
        text, which looks up most of it.
        """
        segments = _split(" " + text)
        ends = list(accumulate(map(len, segments)))  # in the text with a space in front
        sums = [0, *accumulate(map(self._counts.__getitem__, segments))]

        def measure(start: int, end: int) -> int:
            first, last = bisect_right(ends, start + 1), bisect_right(ends, end + 1)
            if first == last:
                return self.count_tokens(text[start:end])
            # The first segment is counted as the beginning of a text, and of the last its part.
            # The counts of those between are known.
            whole = self.count_tokens(text[start : ends[first] - 1]) + sums[last] - sums[first + 1]
            rest = text[ends[last - 1] - 1 : end]
            return whole + sum(map(self._counts.__getitem__, _split(rest)))

        return measure

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return a unit row for each text. Reject a blank text, which has no direction."""
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        with self._lock:
            weights = self._weights
        look_up = self._segments.__getitem__
        for index, text in enumerate(texts):
            folded = " ".join(text.split())
            if not folded:
                raise InputError(
                    f"text {index} of {len(texts)} is blank; leave blank texts out before embedding"
                )
            counts = Counter(chain.from_iterable(map(look_up, _split(" " + folded))))
            tokens = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
            scales = np.log1p(np.fromiter(counts.values(), dtype=np.float32, count=len(counts)))
            rows[index] = scales @ weights[tokens]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query, which is that of a passage."""
        row: Vectors = self.embed_passages([text])[0]
        return row

    @cached_property
    def _weights(self) -> Vectors:
        from safetensors.numpy import load_file

        file = self._folder / "weights" / f"{_MODEL}.safetensors"
        weights: Vectors = load_file(file)["embedding.weight"].astype(np.float32)
        return weights


def _split(text: str) -> list[str]:
    """Return the segments of a text.

    The tokenizer's sign for a space means a space in a text, too.
    """
    if text.isascii():
        return _SEGMENT_ASCII.findall(text)
    return _SEGMENT.findall(text.replace("\u2581", " "))
