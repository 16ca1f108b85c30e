"""What every model needs and no provider should have to write: checks, cutting, batches, several
calls at once, calls that are repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from unspool.embedders.base import Facts, Model, revision
from unspool.embedders.batching import batches
from unspool.embedders.options import EmbedderOptions, OverLimit
from unspool.embedders.parallel import run_all
from unspool.embedders.tokens import TokenCounting, open_tokenizer
from unspool.errors import ConfigError, ConflictError, InputError, ServiceError
from unspool.pacing import LONGEST_WAIT_S, Pace, repeated

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

MIN_TOKENS = 32  # a model that reads less than this cannot be given chunks
# A query is waited for: it is repeated for what goes by in a moment, and not while a server asks
# for long.
QUERY_RETRIES, QUERY_PATIENCE_S = 2, 10.0
# cosine; the same model on other hardware or in other batches stays above .999, other models are
# near 0
SAME = 0.98


class ModelEmbedder:
    """A provider's model as an `Embedder`.

    Vectors come out with length 1, whatever the model gives.
    """

    is_cheap = False

    def __init__(self, model: Model, options: EmbedderOptions | None = None) -> None:
        options = options or EmbedderOptions()
        self.facts: Facts = _stated(model.facts, options)
        self._model = model
        self._retries = 0 if self.facts.is_local else options.retries
        self.concurrency = 1 if self.facts.is_local else options.concurrency
        self.batch = options.batch or self.facts.max_batch
        self._pace = Pace(
            requests_per_minute=options.requests_per_minute,
            tokens_per_minute=options.tokens_per_minute,
        )
        self._tokenizer = open_tokenizer(model.tokenizer_file)
        prefixes = [
            self._tokenizer.count(prefix) if prefix else 0
            for prefix in (self.facts.query_prefix, self.facts.passage_prefix)
        ]
        self.max_tokens = self.facts.max_tokens - max(prefixes)
        if self.max_tokens < MIN_TOKENS:
            raise ConfigError(
                f"{self.name} reads {self.max_tokens} tokens of a text; choose a model that "
                f"reads {MIN_TOKENS} or more, "
                "or raise UNSPOOL_EMBEDDER_MAX_TOKENS"
            )
        self.counter = TokenCounting(self.max_tokens, model.tokenizer_file)
        self._dimension = self.facts.dimension
        self._guard = threading.Lock()
        # for all threads; what computes in this process uses all its cores by itself
        self._turns = threading.BoundedSemaphore(self.concurrency)

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

    def check(self, text: str, vector: Vectors) -> None:
        """See whether a passage still has the vector that it had: a name alone does not prove
        the model.
        """
        if float(self._embed([text], is_query=False)[0] @ vector) < SAME:
            raise ConflictError(
                f"{self.name} does not give the vectors any more that this catalog was made "
                f"with: another model answers to that name; "
                "put the old one back, or set UNSPOOL_EMBEDDER_REVISION to a new word and run "
                "`unspool reembed`"
            )

    def count_tokens(self, text: str) -> int:
        """As the model's tokenizer counts, or the default's where that cannot be had."""
        return self._tokenizer.count(_encodable(text)) if text else 0

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text.

        A blank text is refused, one that is too long is cut or refused, as the facts say.
        """
        return self._embed(texts, is_query=False)

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question.

        Somebody waits for it, so a call that fails is not repeated for long.
        """
        row: Vectors = self._embed([text], is_query=True)[0]
        return row

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        prefix = self.facts.query_prefix if is_query else self.facts.passage_prefix
        fitted = [self._fitted(text, place, len(texts)) for place, text in enumerate(texts)]
        given = [prefix + text for text, _ in fitted]
        sizes = [size for _, size in fitted]
        plan = batches(
            sizes, most=self.batch, tokens=self.facts.batch_tokens, is_padded=self.facts.is_padded
        )

        # nobody waits any more: one call has failed for good, or the user has had enough
        abandoned = threading.Event()

        def call(places: list[int]) -> Vectors:
            return self._call(
                [given[place] for place in places],
                sum(sizes[place] for place in places),
                abandoned,
                is_query=is_query,
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

    def _fitted(self, text: str, place: int, total: int) -> tuple[str, int]:
        """A text as the model reads it, and its size in tokens."""
        if not text.strip():
            raise InputError(
                f"text {place} of {total} is blank; leave blank texts out before embedding"
            )
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
        return cut if cut.strip() else self._tokenizer.cut(
            text.lstrip(), self.max_tokens
        ), self.max_tokens

    def _call(
        self, texts: Sequence[str], tokens: int, abandoned: threading.Event, *, is_query: bool
    ) -> Vectors:
        """One call, repeated as long as that may help."""
        if self.facts.is_local:
            with self._turns:
                return self._checked(self._model.encode(texts, is_query=is_query), len(texts))
        retries, patience_s = (
            (min(self._retries, QUERY_RETRIES), QUERY_PATIENCE_S)
            if is_query
            else (self._retries, LONGEST_WAIT_S)
        )

        def once() -> Vectors:
            with self._turns:
                return self._checked(self._model.encode(texts, is_query=is_query), len(texts))

        return repeated(
            once,
            pace=self._pace,
            tokens=tokens,
            retries=retries,
            patience_s=patience_s,
            abandoned=abandoned,
        )

    def _checked(self, rows: Vectors, wanted: int) -> Vectors:
        """The rows with length 1, if they are what was asked for."""
        rows = np.asarray(rows, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != wanted:
            raise ServiceError(
                f"{self.name} gave {len(rows) if rows.ndim else 0} vectors for {wanted} texts; "
                f"nothing of it was kept, see to that server"
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
            raise ServiceError(
                f"{self.name} gave a vector with a number that is none (NaN or infinite); "
                f"nothing of it was kept"
            )
        if not lengths.all():
            raise ServiceError(
                f"{self.name} gave a vector of zeros, which has no direction; nothing of it was "
                f"kept"
            )
        return rows if self.facts.is_unit and np.allclose(lengths, 1, atol=1e-3) else rows / lengths


def _stated(facts: Facts, options: EmbedderOptions) -> Facts:
    """A model's facts with what was set. Whatever changes the vectors is part of the revision."""
    query, passage = (
        options.query_prefix or facts.query_prefix,
        options.passage_prefix or facts.passage_prefix,
    )
    if (query, passage) != (facts.query_prefix, facts.passage_prefix):
        facts = replace(
            facts,
            query_prefix=query,
            passage_prefix=passage,
            revision=revision(facts.revision, query, passage),
        )
    if options.revision:
        facts = replace(facts, revision=f"{facts.revision}+{options.revision}"[:100])
    return replace(facts, dimension=facts.dimension or options.dimension)


def _encodable(text: str) -> str:
    """The text, lone surrogates replaced: no tokenizer and no JSON takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
