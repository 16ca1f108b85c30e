"""Embedders of models: checks, cutting, batches, parallel calls and retries for every provider."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from unspool.embedders.base import Facts, Model, compute_revision
from unspool.embedders.batching import batches, run_all
from unspool.embedders.options import EmbedderOptions, OverLimit
from unspool.embedders.tokens import TokenCounting, open_tokenizer
from unspool.errors import ConfigError, ConflictError, InputError, ServiceError
from unspool.pacing import LONGEST_WAIT_S, Backoff, retry

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

    Sample = Callable[[], tuple[str, Vectors] | None]

MIN_TOKENS = 32  # a model that reads less than this cannot embed chunks
# somebody waits for a query, so it is not retried for long
QUERY_RETRIES, QUERY_PATIENCE_S = 2, 10.0
# cosine; the same model on other hardware or in other batches stays above .999, other models are
# near 0
SAME = 0.98


class ModelEmbedder:
    """Embedder of a provider's model. Its vectors have length 1."""

    is_cheap = False

    def __init__(self, model: Model, options: EmbedderOptions | None = None) -> None:
        options = options or EmbedderOptions()
        self.facts: Facts = _apply_options(model.facts, options)
        self.name, self.revision = self.facts.name, self.facts.revision
        self.alpha = self.facts.alpha
        self._model = model
        self._retries = 0 if self.facts.is_local else options.retries
        self.concurrency = 1 if self.facts.is_local else options.concurrency
        self.batch = options.batch or self.facts.max_batch
        self._backoff = Backoff(
            requests_per_minute=options.requests_per_minute,
            tokens_per_minute=options.tokens_per_minute,
        )
        self._tokenizer = open_tokenizer(model.tokenizer_file)
        prefixes = (self.facts.query_prefix, self.facts.passage_prefix)
        self.max_tokens = self.facts.max_tokens - max(map(self.count_tokens, prefixes))
        if self.max_tokens < MIN_TOKENS:
            raise ConfigError(
                f"{self.name} reads {self.max_tokens} tokens of a text; choose a model that "
                f"reads {MIN_TOKENS} or more, or raise UNSPOOL_EMBEDDER_MAX_TOKENS"
            )
        self.counter = TokenCounting(self.max_tokens, model.tokenizer_file)
        self._dimension = self.facts.dimension
        self._guard = threading.Lock()
        # for all threads; a model in this process uses all its cores by itself
        self._calls = threading.BoundedSemaphore(self.concurrency)

    @property
    def dimension(self) -> int:
        """Length of the vectors. If nobody knows it, embed a text to find out."""
        if not self._dimension:
            self.embed_query("dimension")
        return self._dimension

    def assume_dimension(self, dimension: int) -> None:
        """Set the dimension if it is unknown, to save the call that finds it out."""
        with self._guard:
            self._dimension = self._dimension or dimension

    def check(self, text: str, vector: Vectors) -> None:
        """Raise an error if a passage no longer has this vector: another model has the name."""
        if float(self._embed([text], is_query=False)[0] @ vector) < SAME:
            raise ConflictError(
                f"{self.name} no longer computes the vectors of this catalog: another model has "
                f"that name now; restore the old one, or set UNSPOOL_EMBEDDER_REVISION to a new "
                f"word and run `unspool reembed`"
            )

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens by the model's tokenizer, or by the default one."""
        return self._tokenizer.count(_replace_surrogates(text)) if text else 0

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return a unit row for each text.

        Reject a blank text. Cut or reject a text that is too long, as the facts say.
        """
        return self._embed(texts, is_query=False)

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query. Retry a call that fails, but not for long."""
        row: Vectors = self._embed([text], is_query=True)[0]
        return row

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        prefix = self.facts.query_prefix if is_query else self.facts.passage_prefix
        fitted = [self._fit(text, place, len(texts)) for place, text in enumerate(texts)]
        given = [prefix + text for text, _ in fitted]
        sizes = [size for _, size in fitted]
        plan = batches(
            sizes, most=self.batch, tokens=self.facts.batch_tokens, is_padded=self.facts.is_padded
        )
        abandoned = threading.Event()  # a call has failed for good, or the user has interrupted

        def call(places: list[int]) -> Vectors:
            return retry(
                partial(self._call, [given[place] for place in places], is_query=is_query),
                backoff=self._backoff,
                tokens=sum(sizes[place] for place in places),
                retries=min(self._retries, QUERY_RETRIES) if is_query else self._retries,
                patience_s=QUERY_PATIENCE_S if is_query else LONGEST_WAIT_S,
                abandoned=abandoned,
            )

        try:
            found = run_all([partial(call, places) for places in plan], at_once=self.concurrency)
        except BaseException:
            abandoned.set()
            raise
        rows = np.empty((len(texts), self._dimension), dtype=np.float32)
        for places, some in zip(plan, found, strict=True):
            rows[places] = some
        return rows

    def _fit(self, text: str, place: int, total: int) -> tuple[str, int]:
        """Return a text, cut to the model's limit, and its size in tokens."""
        if not text.strip():
            raise InputError(
                f"text {place} of {total} is blank; leave blank texts out before embedding"
            )
        text = _replace_surrogates(text)
        size = self._tokenizer.count(text)
        if size <= self.max_tokens or self.facts.over_limit is OverLimit.WHOLE:
            return text, size
        if self.facts.over_limit is OverLimit.REFUSE:
            raise InputError(
                f"text {place} of {total} has {size} tokens, {self.name} reads {self.max_tokens}; "
                "shorten it, or set UNSPOOL_EMBEDDER_OVER_LIMIT to cut"
            )
        cut = self._tokenizer.cut(text, self.max_tokens)
        if not cut.strip():
            cut = self._tokenizer.cut(text.lstrip(), self.max_tokens)
        return cut, self.max_tokens

    def _call(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Return valid rows of length 1 from one call of the model."""
        with self._calls:
            rows = np.asarray(self._model.encode(texts, is_query=is_query), dtype=np.float32)
        if rows.ndim != 2 or len(rows) != len(texts):
            raise ServiceError(
                f"{self.name} gave {len(rows) if rows.ndim else 0} vectors for {len(texts)} texts; "
                f"nothing of it was kept, check that server"
            )
        self.assume_dimension(rows.shape[1])
        if rows.shape[1] != self._dimension:
            raise ServiceError(
                f"{self.name} gave vectors of {rows.shape[1]} numbers, not {self._dimension}; "
                "correct UNSPOOL_EMBEDDER_DIMENSION or use the model of this catalog"
            )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise ServiceError(
                f"{self.name} gave a vector with an invalid number (NaN or infinite); nothing of "
                f"it was kept"
            )
        if not lengths.all():
            raise ServiceError(
                f"{self.name} gave a vector of zeros, which has no direction; nothing of it was "
                f"kept"
            )
        return rows if self.facts.is_unit and np.allclose(lengths, 1, atol=1e-3) else rows / lengths


class Proof:
    """Check of an embedder whose name does not identify its model.

    The first call embeds a known passage again and raises an error if its vector differs.
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


def _apply_options(facts: Facts, options: EmbedderOptions) -> Facts:
    """Return facts with the options of the user. The revision changes with the vectors."""
    prefixes = (
        options.query_prefix or facts.query_prefix,
        options.passage_prefix or facts.passage_prefix,
    )
    revision = facts.revision
    if prefixes != (facts.query_prefix, facts.passage_prefix):
        revision = compute_revision(revision, *prefixes)
    if options.revision:
        revision = f"{revision}+{options.revision}"[:100]
    return replace(
        facts,
        query_prefix=prefixes[0],
        passage_prefix=prefixes[1],
        revision=revision,
        dimension=facts.dimension or options.dimension,
    )


def _replace_surrogates(text: str) -> str:
    """Return a text without lone surrogates, which no tokenizer and no JSON accepts."""
    return text.encode("utf-8", "replace").decode()
