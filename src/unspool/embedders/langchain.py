"""Any LangChain `Embeddings` object, or one with the same methods.

Nothing of LangChain is imported.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool.embedders.base import Facts
from unspool.embedders.options import EmbedderOptions
from unspool.embedders.own import as_rows, translated
from unspool.errors import ConfigError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "langchain"
MAX_TOKENS = 512  # nobody says; UNSPOOL_EMBEDDER_MAX_TOKENS does
MAX_BATCH = 64
# where the integrations keep the model's name
_NAMES = ("model", "model_name", "model_id", "deployment")


class LangChainModel:
    """An object that embeds, with methods that wait or with coroutines."""

    tokenizer_file = ""

    def __init__(self, embeddings: Any, options: EmbedderOptions) -> None:
        self._embeddings = embeddings
        self._waits = True  # until the object says that it only has coroutines
        self._running: asyncio.AbstractEventLoop | None = None
        self._guard = threading.Lock()
        kind = type(embeddings).__name__
        named = next(
            (
                value
                for name in _NAMES
                if isinstance(value := getattr(embeddings, name, None), str) and value
            ),
            "",
        )
        self._name = f"{PROVIDER}:{kind}:{named}" if named else f"{PROVIDER}:{kind}"
        self.facts = Facts(
            name=self._name[:200],
            dimension=options.dimension,
            max_tokens=options.max_tokens or MAX_TOKENS,
            over_limit=options.over_limit,
            max_batch=MAX_BATCH,
            tells_queries=True,
            is_certain=False,
            is_shared=bool(named or options.revision),
        )

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """One call; whatever the object raises is told with its name."""
        with translated(self._name):
            rows = (
                [self._either("embed_query", text) for text in texts]
                if is_query
                else self._either("embed_documents", list(texts))
            )
        return as_rows(self._name, rows)

    def _either(self, method: str, given: Any) -> Any:
        if self._waits:
            try:
                return getattr(self._embeddings, method)(given)
            except NotImplementedError:
                self._waits = False
        return asyncio.run_coroutine_threadsafe(
            getattr(self._embeddings, f"a{method}")(given), self._loop()
        ).result()

    def _loop(self) -> asyncio.AbstractEventLoop:
        """One event loop for all calls: what an object holds open belongs to the loop that it was
        opened in. It ends with this model, and a process does not wait for it at its end, as it
        would for a portal of anyio's."""
        with self._guard:
            if self._running is None:
                loop = self._running = asyncio.new_event_loop()
                threading.Thread(
                    target=_run, args=(loop,), name="unspool-langchain", daemon=True
                ).start()
                weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)
            return self._running


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def is_embeddings(given: object) -> bool:
    """Whether an object embeds as LangChain's do."""
    return all(callable(getattr(given, name, None)) for name in ("embed_documents", "embed_query"))


def from_setting(model: str, options: EmbedderOptions) -> LangChainModel:
    """Refused: a setting holds no object."""
    raise ConfigError(
        "langchain takes an object, which no setting can hold; give it to "
        "unspool.open(embedder=...)"
    )
