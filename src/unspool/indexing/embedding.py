"""Vectors of passages. Passages that the catalog or the cache contains are not embedded again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unspool.catalog.statements import split_batches
from unspool.domain.prepared import PreparedDocument
from unspool.embedders.base import Embedder, is_cut
from unspool.embedders.cache import RedisCache, TextRole
from unspool.errors import InputError
from unspool.indexing.preparing import FailedFile, Outcome, collect_passages

CHEAP_BATCH = 64  # texts; larger batches are slower with the static embedder
# batches of a model in this process that are embedded together, to sort texts by length
LOCAL_BATCHES = 8
CALLS_AHEAD = 2  # batches for each concurrent call to a server

LookUp = Callable[[Iterable[bytes]], set[bytes]]
SaveVectors = Callable[[Mapping[bytes, bytes]], None]


@dataclass(slots=True, kw_only=True)
class PassageEmbedder:
    """Embedder of the passages that have no vector yet.

    `save` receives every batch as soon as it is embedded, so that an interrupted run does not pay
    for it twice.
    """

    embedder: Embedder
    look_up: LookUp | None = None  # None: no passage has a vector
    cache: RedisCache | None = None
    save: SaveVectors | None = None
    prove: Callable[[], None] | None = None  # called before the first embedding
    on_batch: Callable[[], None] | None = None  # called before each batch
    embedded_count: int = 0
    truncated_count: int = 0  # passages longer than the embedder's limit

    @property
    def batch_size(self) -> int:
        """Passages in a batch."""
        embedder = self.embedder
        if embedder.is_cheap:
            return CHEAP_BATCH
        batch: int = getattr(embedder, "batch", embedder.facts.max_batch)
        if embedder.facts.is_local:
            return batch * LOCAL_BATCHES
        return batch * CALLS_AHEAD * int(getattr(embedder, "concurrency", 1))

    def embed_results(self, results: Iterable[list[Outcome]]) -> Iterator[list[Outcome]]:
        """Group results into full batches, and add the vectors of their documents."""
        for outcomes in group_outcomes(results, chunks=self.batch_size):
            yield self.embed_documents(outcomes)

    def embed_documents(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Add the missing vectors to documents.

        If the embedder rejects a passage, only its document fails.
        """
        try:
            vectors = self.embed_missing(collect_passages(outcomes))
        except InputError as error:
            return self._embed_separately(outcomes, error)
        return [
            add_vectors(one, vectors) if isinstance(one, PreparedDocument) else one
            for one in outcomes
        ]

    def embed_missing(self, passages: Mapping[bytes, str]) -> dict[bytes, bytes]:
        """Return vectors of the passages that have none yet."""
        known = self.look_up(passages) if passages and self.look_up else set()
        missing = [sha for sha in passages if sha not in known]
        if not missing:
            return {}
        if self.prove is not None:
            self.prove()
        vectors = self.cache.get(TextRole.PASSAGE, missing) if self.cache else {}
        self.truncated_count += sum(is_cut(self.embedder, passages[sha]) for sha in vectors)
        if vectors and self.save:
            self.save(vectors)
        for shas in split_batches([sha for sha in missing if sha not in vectors], self.batch_size):
            if self.on_batch is not None:
                self.on_batch()
            texts = [passages[sha] for sha in shas]
            rows = np.ascontiguousarray(self.embedder.embed_passages(texts), dtype="<f4")
            new = {sha: row.tobytes() for sha, row in zip(shas, rows, strict=True)}
            vectors |= new
            self.embedded_count += len(new)
            self.truncated_count += sum(is_cut(self.embedder, text) for text in texts)
            if self.save:
                self.save(new)
            if self.cache:
                self.cache.put(TextRole.PASSAGE, new)
        return vectors

    def _embed_separately(self, outcomes: Sequence[Outcome], error: InputError) -> list[Outcome]:
        """Embed documents one by one to find those that the embedder rejects.

        If it rejects all of several documents, the cause is not a document.
        """
        count = sum(isinstance(one, PreparedDocument) for one in outcomes)
        results: list[Outcome] = []
        for one in outcomes:
            if not isinstance(one, PreparedDocument):
                results.append(one)
            elif count == 1:
                results.append(FailedFile(path=one.path, error=str(error)))
            else:
                results += self.embed_documents([one])
        if count > 2 and not any(isinstance(one, PreparedDocument) for one in results):
            raise error
        return results

    @property
    def saved_count(self) -> int:
        """Embedded passages that were saved before their documents."""
        return self.embedded_count if self.save else 0

    @property
    def warnings(self) -> list[str]:
        """Warning about passages that were too long, if there are any."""
        if not self.truncated_count:
            return []
        limit = f"the {self.embedder.max_tokens} tokens that {self.embedder.name} reads"
        count = self.truncated_count
        return [f"{count} passages are longer than {limit}; their ends have no vector"]


def group_outcomes(
    results: Iterable[list[Outcome]],
    *,
    chunks: float,
    documents: float = math.inf,
    seconds: float = math.inf,
) -> Iterator[list[Outcome]]:
    """Merge results into groups. A group ends at one of the limits."""
    group: list[Outcome] = []
    chunk_count, started = 0, time.monotonic()
    for outcomes in results:
        group += outcomes
        chunk_count += sum(len(one.chunks) for one in outcomes if isinstance(one, PreparedDocument))
        if chunk_count >= chunks or len(group) >= documents or time.monotonic() - started > seconds:
            yield group
            group, chunk_count, started = [], 0, time.monotonic()
    if group:
        yield group


def add_vectors(document: PreparedDocument, vectors: Mapping[bytes, bytes]) -> PreparedDocument:
    """Return a document with its own vectors out of several."""
    shas = (chunk.text_sha for chunk in document.chunks)
    return replace(document, vectors={sha: vectors[sha] for sha in shas if sha in vectors})
