"""An embedder of the user's own: any object that has a name, a dimension, a limit and the two
methods. The rest has defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.embedders.base import Facts
from unspool.embedders.options import EmbedderOptions
from unspool.errors import ServiceError, ServiceTimeoutError, UnreachableError, UnspoolError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

NEEDED = ("name", "dimension", "max_tokens", "embed_passages", "embed_query")
MAX_BATCH = 64


class OwnModel:
    """The object as a model.

    It may state its `facts`, or some of them by themselves: `revision`, `alpha`.
    """

    tokenizer_file = ""

    def __init__(self, embedder: Any, options: EmbedderOptions) -> None:
        self._embedder = embedder
        stated = getattr(embedder, "facts", None)
        self.facts = stated if isinstance(stated, Facts) else _facts(embedder, options)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """One call."""
        given = self._embedder
        with translated(self.facts.name):
            rows = (
                [given.embed_query(text) for text in texts]
                if is_query
                else given.embed_passages(list(texts))
            )
        return as_rows(self.facts.name, rows)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Whatever an object raises, told with its name; what may go by is repeated."""
    try:
        yield
    except UnspoolError:
        raise
    except TimeoutError as error:
        raise ServiceTimeoutError(
            f"{name} did not answer in time; try again, or see to that object"
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"{name} cannot be reached ({type(error).__name__}); try again, or see to that object"
        ) from error
    except Exception as error:  # it may raise anything
        raise ServiceError(
            f"{name} failed with {type(error).__name__}; see to that object"
        ) from error


def as_rows(name: str, rows: Any) -> Vectors:
    """What an object gave, as rows."""
    try:
        return np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise ServiceError(
            f"{name} gave vectors that cannot be read, or of different lengths; nothing of it "
            f"was kept"
        ) from error


def is_own(given: object) -> bool:
    """Whether an object embeds as unspool's embedders do.

    Asked of its class as far as possible: a property may have to embed something.
    """
    return all(
        hasattr(type(given), name) or name in getattr(given, "__dict__", ()) for name in NEEDED
    )


def _facts(embedder: Any, options: EmbedderOptions) -> Facts:
    return Facts(
        name=str(embedder.name)[:200],
        revision=str(getattr(embedder, "revision", "1"))[:100],
        dimension=int(embedder.dimension),
        max_tokens=options.max_tokens or int(embedder.max_tokens),
        over_limit=options.over_limit,
        max_batch=MAX_BATCH,
        tells_queries=True,
        is_certain=False,
        alpha=float(getattr(embedder, "alpha", 0.5)),
    )
