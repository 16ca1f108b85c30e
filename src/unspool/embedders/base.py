"""The Embedder port: text in, float32 rows out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Turns text into unit vectors. Safe to call from several threads.

    `name` and `revision` together name the vector space: the same pair always gives the same vector for the same text.
    `alpha` is the share of meaning that serves this model best in hybrid search; it belongs to the model, not to the engine.
    """

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def alpha(self) -> float: ...

    @property
    def is_cheap(self) -> bool:
        """Whether embedding a text takes no longer than asking a database for it."""

    def count_tokens(self, text: str) -> int:
        """Exactly as many tokens as the model's tokenizer makes of the text."""

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row per text, in order."""

    def embed_query(self, text: str) -> Vectors:
        """One row, as a vector."""
