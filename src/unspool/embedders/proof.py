"""That an embedder whose name proves little still makes the vectors that a catalog was made
with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors
    from unspool.embedders.model import ModelEmbedder

Sample = Callable[[], "tuple[str, Vectors] | None"]


class Proof:
    """Called before an embedder's vectors are used.

    The first time a known passage is embedded again; a difference is an error.
    """

    def __init__(self, embedder: ModelEmbedder, sample: Sample) -> None:
        self._embedder = embedder
        self._sample = sample
        self._guard = threading.Lock()
        self.is_given = False

    def __call__(self) -> None:
        with self._guard:
            if self.is_given:
                return
            known = self._sample()
            if known is not None:
                self._embedder.check(*known)
            self.is_given = True
