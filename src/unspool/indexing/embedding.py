"""The vectors of documents: those that the catalog knows are not made again, those that a cache
knows neither, and each text is embedded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from unspool.catalog.statements import split_batches
from unspool.domain.prepared import PreparedDocument
from unspool.embedders.base import Embedder, is_cut
from unspool.embedders.cache import Kind, RedisCache
from unspool.errors import InputError
from unspool.indexing.preparing import Failed, Outcome, passages

CHEAP_BATCH = 64  # texts; more at once is slower for the static embedder
# of a model in this process that are made together: enough to put texts of a length together
LOCAL_BATCHES = 8
CALLS_AHEAD = 2  # of each of the calls that a server is sent at once

Known = Callable[[Iterable[bytes]], set[bytes]]
Keep = Callable[[Mapping[bytes, bytes]], None]


@dataclass(slots=True, kw_only=True)
class Maker:
    """Makes the vectors that are missing.

    `keep` is called with every portion as it is made, so that what was paid for is not paid for
    again.
    """

    embedder: Embedder
    known: Known
    cache: RedisCache | None = None
    keep: Keep | None = None
    prove: Callable[[], None] | None = None  # called before anything is embedded
    on_portion: Callable[[], None] | None = None  # called before each portion of texts is embedded
    made: int = 0  # vectors so far
    cut: int = 0  # texts of which the model did not read the end
    portion: int = field(init=False)

    def __post_init__(self) -> None:
        facts = self.embedder.facts
        times = (
            LOCAL_BATCHES
            if facts.is_local
            else CALLS_AHEAD * getattr(self.embedder, "concurrency", 1)
        )
        self.portion = (
            CHEAP_BATCH
            if self.embedder.is_cheap
            else getattr(self.embedder, "batch", facts.max_batch) * times
        )

    def gathered(self, results: Iterator[list[Outcome]]) -> Iterator[list[Outcome]]:
        """The same documents with vectors, so many together that the embedder is used well."""
        waiting: list[Outcome] = []
        chunks = 0
        for outcomes in results:
            waiting += outcomes
            chunks += sum(len(one.chunks) for one in outcomes if isinstance(one, PreparedDocument))
            if chunks >= self.portion:
                yield self.complete(waiting)
                waiting, chunks = [], 0
        if waiting:
            yield self.complete(waiting)

    def complete(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Documents with the vectors that the catalog lacks.

        One with a text that the embedder refuses has failed; the others go on.
        """
        try:
            vectors = self.vectors(passages(outcomes))
        except InputError as error:
            return self._one_by_one(outcomes, error)
        return [
            with_vectors(one, vectors) if isinstance(one, PreparedDocument) else one
            for one in outcomes
        ]

    def vectors(self, wanted: Mapping[bytes, str]) -> dict[bytes, bytes]:
        """The vectors of those texts that have none yet."""
        have = self.known(wanted) if wanted else set()
        missing = [sha for sha in wanted if sha not in have]
        if not missing:
            return {}
        if self.prove is not None:
            self.prove()
        found = self.cache.get(Kind.PASSAGE, missing) if self.cache else {}
        self.cut += sum(is_cut(self.embedder, wanted[sha]) for sha in found)
        if found and self.keep:
            self.keep(found)
        for some in split_batches([sha for sha in missing if sha not in found], self.portion):
            if self.on_portion is not None:
                self.on_portion()
            texts = [wanted[sha] for sha in some]
            rows = np.ascontiguousarray(self.embedder.embed_passages(texts), dtype="<f4")
            new = {sha: row.tobytes() for sha, row in zip(some, rows, strict=True)}
            self.made += len(new)
            self.cut += sum(is_cut(self.embedder, text) for text in texts)
            found |= new
            if self.keep:
                self.keep(new)
            if self.cache:
                self.cache.put(Kind.PASSAGE, new)
        return found

    def warning(self) -> str:
        """What should be said of texts that were too long; '' where none was."""
        if not self.cut:
            return ""
        return (
            f"{self.cut} passages are longer than the {self.embedder.max_tokens} tokens that "
            f"{self.embedder.name} reads; their ends have no vector"
        )

    def _one_by_one(self, outcomes: Sequence[Outcome], error: InputError) -> list[Outcome]:
        """Find the documents that the embedder refuses; where it refuses all of several, it is
        not the documents.
        """
        documents = [one for one in outcomes if isinstance(one, PreparedDocument)]
        if len(documents) == 1:
            return [
                Failed(path=one.path, error=str(error))
                if isinstance(one, PreparedDocument)
                else one
                for one in outcomes
            ]
        found = [
            result
            for one in outcomes
            for result in (self.complete([one]) if isinstance(one, PreparedDocument) else [one])
        ]
        if len(documents) > 2 and not any(isinstance(one, PreparedDocument) for one in found):
            raise error
        return found


def with_vectors(document: PreparedDocument, vectors: Mapping[bytes, bytes]) -> PreparedDocument:
    """The document with those of its vectors that are new."""
    return replace(
        document,
        vectors={
            chunk.text_sha: vectors[chunk.text_sha]
            for chunk in document.chunks
            if chunk.text_sha in vectors
        },
    )
