"""The ports: `Embedder` is what the rest of unspool calls, `Model` is the little that a provider
has to bring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from unspool.embedders.options import OverLimit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a model is, as its provider states it.

    `name`, `revision` and `dimension` name the vector space: the same three always give the same
    vector for the same text. So whatever changes the vectors, prefixes and weights included, is
    part of the revision.
    """

    name: str
    revision: str = "1"
    dimension: int = 0  # 0: not known before something was embedded
    # that it reads of a text, prefix included, without the marks that its tokenizer puts around it
    max_tokens: int
    over_limit: OverLimit = OverLimit.CUT
    max_batch: int  # texts in a call
    batch_tokens: int = 0  # tokens in a call; 0: as many as the texts have
    is_padded: bool = False  # a call takes as long as if every text were as long as its longest
    query_prefix: str = ""
    passage_prefix: str = ""
    tells_queries: bool = False  # it is told whether a text is a query, beside any prefix
    is_unit: bool = False  # its vectors have length 1 already
    is_local: bool = False  # it computes in this process: one call at a time, never repeated
    # the name and revision cannot belong to another model; otherwise a known vector is compared
    # before any is used
    is_certain: bool = True
    # the name tells it from other models, so that its vectors may be shared with other catalogs
    is_shared: bool = True
    place: str = ""  # where it is asked; two servers may have the same name for different models
    # the share of meaning that serves it best in hybrid search; it belongs to the model, not to the
    # engine
    alpha: float = 0.5
    price: float | None = None  # US dollars for a million tokens, where that is known

    @property
    def is_symmetric(self) -> bool:
        """Whether a text has the same vector as a query and as a passage."""
        return self.query_prefix == self.passage_prefix and not self.tells_queries


def revision(*parts: str) -> str:
    """A short name for all that decides what a model's vectors are."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


class Tokenizer(Protocol):
    """Counts as a model does, or more carefully."""

    def count(self, text: str) -> int:
        """How many tokens a text has."""

    def cut(self, text: str, limit: int) -> str:
        """The beginning of a text, of so many tokens at most."""


class Model(Protocol):
    """One provider's model: facts and calls.

    What is common to all (checks, batches, repeated calls) is in `ModelEmbedder`.
    """

    @property
    def facts(self) -> Facts: ...

    @property
    def tokenizer_file(self) -> str:
        """Where its `tokenizer.json` is; empty where it has none that can be had."""

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """One row per text, in order, for at most `max_batch` texts that all fit."""


@runtime_checkable
class Embedder(Protocol):
    """Turns text into unit vectors. Safe to call from several threads."""

    @property
    def facts(self) -> Facts: ...

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """How long a text may be."""

    @property
    def alpha(self) -> float: ...

    @property
    def is_cheap(self) -> bool:
        """Whether embedding a text takes no longer than asking a database for it."""

    def count_tokens(self, text: str) -> int:
        """As many tokens as the model's tokenizer makes of the text; where that cannot be had,
        as the default's does.
        """

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row per text, in order."""

    def embed_query(self, text: str) -> Vectors:
        """One row, as a vector."""


def is_cut(embedder: Embedder, text: str) -> bool:
    """Whether an embedder reads only the beginning of a text.

    Most need not be counted: a token has a byte, save the first perhaps.
    """
    if (
        embedder.facts.over_limit is not OverLimit.CUT
        or len(text.encode("utf-8", "replace")) < embedder.max_tokens
    ):
        return False
    return embedder.count_tokens(text) > embedder.max_tokens
