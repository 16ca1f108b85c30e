"""What every model needs and no provider should have to write: checks, cutting, batches, several calls at once, calls that are repeated."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from unspool.embedders.base import Facts, Model, OverLimit
from unspool.embedders.batching import batches
from unspool.embedders.options import EmbedderOptions
from unspool.embedders.pacing import Pace, pause_after
from unspool.embedders.tokens import TokenCounting, open_tokenizer
from unspool.errors import ConfigError, ConflictError, InputError, ServiceError, UnspoolError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

MIN_TOKENS = 32  # a model that reads less than this cannot be given chunks
SAME = 0.98  # cosine; the same model on other hardware or in other batches stays above .999, other models are near 0


class ModelEmbedder:
    """A provider's model as an `Embedder`. Vectors come out with length 1, whatever the model gives."""

    is_cheap = False

    def __init__(self, model: Model, options: EmbedderOptions | None = None) -> None:
        options = options or EmbedderOptions()
        self.facts: Facts = model.facts
        if options.dimension and not self.facts.dimension:
            self.facts = replace(self.facts, dimension=options.dimension)
        self._model = model
        self._retries = 0 if self.facts.is_local else options.retries
        self.concurrency = 1 if self.facts.is_local else options.concurrency
        self._most = options.batch or self.facts.max_batch
        self._pace = Pace(requests_per_minute=options.requests_per_minute, tokens_per_minute=options.tokens_per_minute)
        self._tokenizer = open_tokenizer(model.tokenizer_file)
        prefixes = [self._tokenizer.count(prefix) if prefix else 0 for prefix in (self.facts.query_prefix, self.facts.passage_prefix)]
        self.max_tokens = self.facts.max_tokens - max(prefixes)
        if self.max_tokens < MIN_TOKENS:
            raise ConfigError(
                f"{self.name} reads {self.max_tokens} tokens of a text; choose a model that reads {MIN_TOKENS} or more, "
                "or raise UNSPOOL_EMBEDDER_MAX_TOKENS"
            )
        self.counter = TokenCounting(self.max_tokens, model.tokenizer_file)
        self._dimension = self.facts.dimension
        self._guard = threading.Lock()
        self._turns = threading.BoundedSemaphore(self.concurrency)  # for all threads; what computes in this process uses all its cores by itself
        self._expected: tuple[str, Vectors] | None = None

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def revision(self) -> str:
        return self.facts.revision

    @property
    def alpha(self) -> float:
        return self.facts.alpha

    @property
    def dimension(self) -> int:
        """How many numbers its vectors have; where nobody knows, a text is embedded to see."""
        if not self._dimension:
            self.embed_query("dimension")
        return self._dimension

    def assume_dimension(self, dimension: int) -> None:
        """Spare the text that finds out the dimension: vectors of this model are known already."""
        with self._guard:
            self._dimension = self._dimension or dimension

    def expect(self, text: str, vector: Vectors) -> None:
        """Look, when something is next embedded, whether this passage still has the vector that it had: a name alone does not prove the model."""
        with self._guard:
            self._expected = text, vector

    def count_tokens(self, text: str) -> int:
        """As the model's tokenizer counts, or the default's where that cannot be had."""
        return self._tokenizer.count(_encodable(text)) if text else 0

    def is_too_long(self, text: str) -> bool:
        """Whether the model reads less than all of a text."""
        return self.facts.over_limit is not OverLimit.WHOLE and self.count_tokens(text) > self.max_tokens

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text. A blank text is refused, one that is too long is cut or refused, as the facts say."""
        with self._guard:
            expected, self._expected = self._expected, None
        if expected is None:
            return self._embed(texts, is_query=False)
        try:
            rows = self._embed([*texts, expected[0]], is_query=False)
        except BaseException:
            self.expect(*expected)
            raise
        if float(rows[-1] @ expected[1]) < SAME:
            self.expect(*expected)
            raise ConflictError(
                f"{self.name} does not give the vectors any more that this catalog was made with: another model answers to that name; "
                "put the old one back, or run `unspool reembed` under a new name"
            )
        return rows[:-1]

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question."""
        if self._expected is not None:
            self.embed_passages([])
        row: Vectors = self._embed([text], is_query=True)[0]
        return row

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        prefix = self.facts.query_prefix if is_query else self.facts.passage_prefix
        fitted = [self._fitted(text, place, len(texts)) for place, text in enumerate(texts)]
        given = [prefix + text for text, _ in fitted]
        sizes = [size for _, size in fitted]
        plan = batches(sizes, most=self._most, tokens=self.facts.batch_tokens, is_padded=self.facts.is_padded)

        abandoned = threading.Event()  # nobody waits any more: one call has failed for good, or the user has had enough

        def call(places: list[int]) -> Vectors:
            return self._call([given[place] for place in places], sum(sizes[place] for place in places), abandoned, is_query=is_query)

        if len(plan) <= 1 or self.concurrency == 1:
            found = [call(places) for places in plan]
        else:
            with ThreadPoolExecutor(min(self.concurrency, len(plan)), thread_name_prefix="unspool-embed") as threads:
                calls = [threads.submit(call, places) for places in plan]
                try:
                    for one in as_completed(calls):
                        one.result()  # the first that fails ends them all, also those before it that wait for their turn
                    found = [one.result() for one in calls]
                except BaseException:
                    abandoned.set()
                    threads.shutdown(wait=False, cancel_futures=True)
                    raise
        rows = np.empty((len(texts), self._dimension), dtype=np.float32)
        for places, some in zip(plan, found, strict=True):
            rows[places] = some
        return rows

    def _fitted(self, text: str, place: int, total: int) -> tuple[str, int]:
        """A text as the model reads it, and its size in tokens."""
        if not text.strip():
            raise InputError(f"text {place} of {total} is blank; leave blank texts out before embedding")
        text = _encodable(text)
        size = self._tokenizer.count(text)
        if size <= self.max_tokens or self.facts.over_limit is OverLimit.WHOLE:
            return text, size
        if self.facts.over_limit is OverLimit.REFUSE:
            raise InputError(
                f"text {place} of {total} has {size} tokens, {self.name} reads {self.max_tokens}; "
                "shorten it, or set UNSPOOL_EMBEDDER_OVER_LIMIT to cut"
            )
        cut = self._tokenizer.cut(text, self.max_tokens)
        return cut if cut.strip() else self._tokenizer.cut(text.lstrip(), self.max_tokens), self.max_tokens

    def _call(self, texts: Sequence[str], tokens: int, abandoned: threading.Event, *, is_query: bool) -> Vectors:
        """One call, repeated as long as that may help."""
        if self.facts.is_local:
            with self._turns:
                return self._checked(self._model.encode(texts, is_query=is_query), len(texts))
        for attempt in count(1):
            self._pace.wait(tokens, sleep=abandoned.wait)
            if abandoned.is_set():
                raise CancelledError
            try:
                with self._turns:
                    return self._checked(self._model.encode(texts, is_query=is_query), len(texts))
            except UnspoolError as error:
                pause = pause_after(error, attempt)
                if pause is None or attempt > self._retries or abandoned.is_set():
                    raise
            self._pace.pause(pause)
        raise AssertionError("unreachable")

    def _checked(self, rows: Vectors, wanted: int) -> Vectors:
        """The rows with length 1, if they are what was asked for."""
        rows = np.asarray(rows, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != wanted:
            raise ServiceError(
                f"{self.name} gave {len(rows) if rows.ndim else 0} vectors for {wanted} texts; nothing of it was kept, see to that server"
            )
        with self._guard:
            self._dimension = self._dimension or rows.shape[1]
        if rows.shape[1] != self._dimension:
            raise ServiceError(
                f"{self.name} gave vectors of {rows.shape[1]} numbers, not {self._dimension}; "
                "mend UNSPOOL_EMBEDDER_DIMENSION or use the model that this catalog was made with"
            )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise ServiceError(f"{self.name} gave a vector with a number that is none (NaN or infinite); nothing of it was kept")
        if not lengths.all():
            raise ServiceError(f"{self.name} gave a vector of zeros, which has no direction; nothing of it was kept")
        return rows if self.facts.is_unit and np.allclose(lengths, 1, atol=1e-3) else rows / lengths


def _encodable(text: str) -> str:
    """The text, lone surrogates replaced: no tokenizer and no JSON takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
