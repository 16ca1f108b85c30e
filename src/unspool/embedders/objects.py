"""Objects of the user that embed: with the methods of `Embedder`, or of LangChain's `Embeddings`.

Nothing of LangChain is imported.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.embedders.base import Facts
from unspool.embedders.options import EmbedderOptions
from unspool.errors import (
    ConfigError,
    InputError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

NEEDED = ("name", "dimension", "max_tokens", "embed_passages", "embed_query")
_LANGCHAIN = ("embed_documents", "embed_query")
MAX_TOKENS = 512  # of LangChain's objects, which do not say; UNSPOOL_EMBEDDER_MAX_TOKENS does
MAX_BATCH = 64
# attributes in which LangChain's integrations keep the name of the model
_NAMES = ("model", "model_name", "model_id", "deployment")


class ObjectModel:
    """Object of the user as a model. Its methods may be coroutines."""

    tokenizer_file = ""

    def __init__(self, embedder: Any, options: EmbedderOptions) -> None:
        self._embedder = embedder
        self._is_synchronous = True  # until the object says that it only has coroutines
        self._loop: asyncio.AbstractEventLoop | None = None
        self._guard = threading.Lock()
        if _is_embedder(embedder):
            self._passages = "embed_passages"
            self.facts = _describe_embedder(embedder, options)
        elif all(callable(getattr(embedder, one, None)) for one in _LANGCHAIN):
            self._passages = "embed_documents"
            self.facts = _describe_langchain(embedder, options)
        else:
            raise InputError(
                f"the embedder is a {type(embedder).__name__}; give its name as text, a LangChain "
                f"Embeddings object, or one with: {', '.join(NEEDED)}"
            )

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Embed texts with one call; queries with one call each."""
        name = self.facts.name
        with _translate_errors(name):
            rows = (
                [self._call("embed_query", text) for text in texts]
                if is_query
                else self._call(self._passages, list(texts))
            )
        try:
            return np.asarray(rows, dtype=np.float32)
        except (ValueError, TypeError, OverflowError) as error:
            raise ServiceError(
                f"{name} gave vectors that cannot be read, or of different lengths; nothing of it "
                f"was kept"
            ) from error

    def _call(self, method: str, given: Any) -> Any:
        if self._is_synchronous:
            try:
                return getattr(self._embedder, method)(given)
            except NotImplementedError:
                if not hasattr(self._embedder, f"a{method}"):
                    raise
                self._is_synchronous = False
        coroutine = getattr(self._embedder, f"a{method}")(given)
        return asyncio.run_coroutine_threadsafe(coroutine, self._start_loop()).result()

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of all calls.

        Connections of an object belong to the loop that opened them. The loop ends with this
        model. A process does not wait for it at exit, as it would for a portal of anyio.
        """
        with self._guard:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run_loop, args=(loop,), name="unspool-langchain", daemon=True
                ).start()
                weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)
            return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Translate any error of an object. Time-outs and network errors are retried."""
    try:
        yield
    except UnspoolError:
        raise
    except TimeoutError as error:
        raise ServiceTimeoutError(
            f"{name} did not answer in time; try again, or check that object"
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"{name} cannot be reached ({type(error).__name__}); try again, or check that object"
        ) from error
    except Exception as error:  # it may raise anything
        raise ServiceError(
            f"{name} failed with {type(error).__name__}; check that object"
        ) from error


def _is_embedder(given: object) -> bool:
    """Return True for an object with the methods of `Embedder`.

    Look at its class first: a property may have to embed something.
    """
    return all(
        hasattr(type(given), name) or name in getattr(given, "__dict__", ()) for name in NEEDED
    )


def _describe_embedder(embedder: Any, options: EmbedderOptions) -> Facts:
    """Return the facts of an object, or those that can be told from its attributes."""
    facts = getattr(embedder, "facts", None)
    if isinstance(facts, Facts):
        return facts
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


def _describe_langchain(embeddings: Any, options: EmbedderOptions) -> Facts:
    values = (getattr(embeddings, name, None) for name in _NAMES)
    model = next((value for value in values if isinstance(value, str) and value), "")
    return Facts(
        name=":".join(filter(None, ("langchain", type(embeddings).__name__, model)))[:200],
        dimension=options.dimension,
        max_tokens=options.max_tokens or MAX_TOKENS,
        over_limit=options.over_limit,
        max_batch=MAX_BATCH,
        tells_queries=True,
        is_certain=False,
        is_shared=bool(model or options.revision),
    )


def reject_setting(model: str, options: EmbedderOptions) -> ObjectModel:
    """Reject `langchain` as a setting, which cannot contain an object."""
    raise ConfigError(
        "langchain takes an object, which no setting can hold; give it to "
        "unspool.open(embedder=...)"
    )
