"""Tokenizers: a model's own `tokenizer.json`, or the default embedder's, which unspool contains."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unspool.embedders.base import Tokenizer
from unspool.errors import ConfigError

if TYPE_CHECKING:
    from unspool.embedders.static import StaticEmbedder

Ruler = Callable[[str], Callable[[int, int], int]]


class FileTokenizer:
    """Tokenizer of a model, without its special tokens, truncation and padding."""

    ruler = None

    def __init__(self, file: str) -> None:
        from tokenizers import Tokenizer as Library

        try:
            self._tokenizer: Any = Library.from_file(file)
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(
                f"{file} is not a tokenizer that can be read ({error}); copy the model's folder "
                f"again"
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.special_count = int(self._tokenizer.num_special_tokens_to_add(is_pair=False))

    def count(self, text: str) -> int:
        """Return the number of tokens, exactly as the model counts them."""
        return len(self._encode(text).ids)

    def cut(self, text: str, limit: int) -> str:
        """Return the beginning of a text.

        A word that is cut may have other tokens than the whole word, so it is counted again.
        """
        end, keep = len(text), limit
        while len((encoded := self._encode(text[:end])).ids) > limit:
            end, keep = (encoded.offsets[keep - 1][1], keep - 1) if keep > 0 else (0, 0)
        return text[:end]

    def _encode(self, text: str) -> Any:
        return self._tokenizer.encode(text, add_special_tokens=False)


class DefaultTokenizer:
    """Tokenizer of the default embedder.

    Its vocabulary of 32 000 tokens is smaller than those of hosted models, so that it counts
    rather too many tokens than too few.
    """

    special_count = 0

    def __init__(self) -> None:
        from unspool.embedders import open_embedder

        static: StaticEmbedder = open_embedder("static")  # type: ignore[assignment]
        self.ruler, self.count = static.ruler, static.count_tokens

    def cut(self, text: str, limit: int) -> str:
        """Return the beginning of a text."""
        measure, ends = self.ruler(text), range(len(text) + 1)
        return text[: bisect_right(ends, limit, key=lambda end: measure(0, end)) - 1]


@lru_cache(maxsize=8)
def open_tokenizer(file: str) -> Tokenizer:
    """Return the tokenizer of a file, or the default one for ''; read once per process."""
    return FileTokenizer(file) if file else DefaultTokenizer()


@dataclass(frozen=True, slots=True)
class TokenCounting:
    """Limit and tokenizer of an embedder for chunking.

    Plain values, so that another process can count without the model.
    """

    max_tokens: int
    tokenizer_file: str = ""

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens, as the embedder counts them."""
        return open_tokenizer(self.tokenizer_file).count(text)

    @property
    def ruler(self) -> Ruler | None:
        """Function of a text that returns a counter for parts of it, if the tokenizer has one."""
        return open_tokenizer(self.tokenizer_file).ruler
