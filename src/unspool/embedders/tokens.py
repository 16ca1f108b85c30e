"""Counting tokens: by a model's own `tokenizer.json`, or by the default embedder's, which comes
with unspool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.embedders.base import Tokenizer
from unspool.errors import ConfigError

if TYPE_CHECKING:
    from unspool.embedders.static import StaticEmbedder

Ruler = Callable[[str], Callable[[int, int], int]]


class FileTokenizer:
    """A model's own tokenizer, without the marks that it puts around a text and without its
    cutting and padding.
    """

    def __init__(self, file: str) -> None:
        from tokenizers import Tokenizer as Read

        try:
            self._read: Any = Read.from_file(file)
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(
                f"{file} is not a tokenizer that can be read ({error}); copy the model's folder "
                f"again"
            ) from error
        self._read.no_truncation()
        self._read.no_padding()

    @property
    def mark_count(self) -> int:
        """How many tokens of a model's limit go to the marks around a text."""
        return int(self._read.num_special_tokens_to_add(is_pair=False))

    def count(self, text: str) -> int:
        """Exactly as many as the model's tokenizer makes."""
        return len(self._encoded(text).ids)

    def cut(self, text: str, limit: int) -> str:
        """The beginning of a text; a word that is cut may have other tokens than it had as a
        whole, so it is counted again.
        """
        end, keep = len(text), limit
        while len((encoded := self._encoded(text[:end])).ids) > limit:
            end, keep = (encoded.offsets[keep - 1][1], keep - 1) if keep > 0 else (0, 0)
        return text[:end]

    def _encoded(self, text: str) -> Any:
        return self._read.encode(text, add_special_tokens=False)


class DefaultTokenizer:
    """The default embedder's tokenizer.

    It knows 32 000 pieces, fewer than hosted models do, so it rather counts too many than too few.
    """

    def __init__(self) -> None:
        from unspool.embedders import open_embedder

        self._static: StaticEmbedder = open_embedder("static")  # type: ignore[assignment]

    @property
    def ruler(self) -> Ruler:
        """For a text, the count of any part of it."""
        return self._static.ruler

    def count(self, text: str) -> int:
        """As many as the default embedder's tokenizer makes."""
        return self._static.count_tokens(text)

    def cut(self, text: str, limit: int) -> str:
        """The beginning of a text."""
        low, high, measure = 0, len(text), self._static.ruler(text)
        while low < high:  # the longest beginning that fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if measure(0, middle) <= limit else (low, middle - 1)
        return text[:low]


@lru_cache(maxsize=8)
def open_tokenizer(file: str) -> Tokenizer:
    """The tokenizer in a file, or the default's where none is named; read once per process."""
    return FileTokenizer(file) if file else DefaultTokenizer()


@dataclass(frozen=True, slots=True)
class TokenCounting:
    """What cutting a document needs to know of an embedder.

    Plain values, so that another process can count without the model.
    """

    max_tokens: int
    tokenizer_file: str = ""

    def count_tokens(self, text: str) -> int:
        """As many as the embedder counts."""
        return open_tokenizer(self.tokenizer_file).count(text)

    @property
    def ruler(self) -> Ruler | None:
        """For a text, the count of any part of it; None where each part has to be counted by
        itself.
        """
        tokenizer = open_tokenizer(self.tokenizer_file)
        return tokenizer.ruler if isinstance(tokenizer, DefaultTokenizer) else None


def marks(file: str) -> int:
    """How many tokens of a model's limit go to the marks around a text."""
    tokenizer = open_tokenizer(file)
    return tokenizer.mark_count if isinstance(tokenizer, FileTokenizer) else 0


def file_in(folder: Path) -> str:
    """The `tokenizer.json` of a model's folder, or ''."""
    file = folder / "tokenizer.json"
    return str(file) if file.is_file() else ""
