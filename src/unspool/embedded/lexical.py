"""The embedded word index: one tantivy index per project, made from the catalog and caught up by sequence number."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tantivy

from unspool.catalog.reading import Position
from unspool.vectors.base import Ids, Matches
from unspool.words.base import rarity

FORMAT = 1
# Enough for 20 000 chunks between commits; below 15 MB per thread tantivy refuses.
_HEAP_BYTES = 64_000_000
# A set of ids becomes an automaton: 100 000 cost 60 ms. Beyond that the matches are asked for in plenty and sieved instead.
_MAX_FILTER_IDS = 100_000
# A few ids are found faster one by one: 1.5 ms for 100 in an index of 100 000 chunks, as a set 5 ms.
_MAX_UNION_IDS = 500


class DamagedError(Exception):
    """The files cannot be read; the owner rebuilds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is committed, and the totals that give the average length of a chunk."""

    catalog: str
    position: int = 0
    stamp: int = 0
    added_chunks: int = 0
    added_terms: int = 0
    format: int = FORMAT

    @property
    def place(self) -> Position:
        """How far the words have come."""
        return Position(self.position, self.stamp)


class Entry(NamedTuple):
    """A chunk as the word index takes it in."""

    id: int
    document_id: int
    terms: list[str]


class WordFolder:
    """One project's index on disk. One process writes at a time (the caller sees to that), any number read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index: tantivy.Index | None = None
        self._schema = _schema()
        self._seen: State | None = None
        self._searcher: tantivy.Searcher | None = None
        self._writer: tantivy.IndexWriter | None = None

    def state(self) -> State | None:
        """The committed state, or None where there is none that we can read."""
        try:
            return State(**json.loads((self.folder / "state.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def reset(self, state: State) -> None:
        """Begin anew, with nothing in it."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._index = tantivy.Index(self._schema, path=str(self.folder))
        self._commit_state(state)

    def apply(self, state: State, entries: Iterable[Entry], replaced: Sequence[int], *, position: Position) -> State:
        """Commit entries, and the removal of ids: those that are gone and those that the entries bring again.

        Taking in the same chunk twice thus leaves it there once.
        """
        added = terms = 0
        try:
            writer = self._writer or self._open().writer(_HEAP_BYTES, 1)
            self._writer = writer
            for some in range(0, len(replaced), _MAX_FILTER_IDS):
                # By query: deleting by term takes numbers for signed ones and finds nothing.
                gone = tantivy.Query.term_set_query(self._schema, "id", list(replaced[some : some + _MAX_FILTER_IDS]))
                writer.delete_documents_by_query(gone)
            for entry in entries:
                document = tantivy.Document()
                document.add_unsigned("id", entry.id)
                document.add_unsigned("document", entry.document_id)
                document.add_text("body", " ".join(entry.terms))
                writer.add_document(document)
                added, terms = added + 1, terms + len(entry.terms)
            writer.commit()
        except (ValueError, OSError) as error:
            self._writer = None
            raise DamagedError(str(error)) from error
        new = replace(
            state,
            position=position.seq,
            stamp=position.stamp,
            added_chunks=state.added_chunks + added,
            added_terms=state.added_terms + terms,
        )
        self._commit_state(new)
        return new

    def release(self) -> None:
        """Let go of the writer, after it has finished merging."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.wait_merging_threads()

    def searcher(self, state: State) -> tantivy.Searcher:
        """A searcher over what is committed."""
        if self._searcher is None or self._seen != state:
            self._searcher = _patiently(self._reload)
            self._seen = state
        return self._searcher

    def search(self, searcher: tantivy.Searcher, weights: Mapping[str, float], k: int, among: tuple[str, Ids] | None) -> Matches:
        """The k best; `among` restricts a field to a set of ids."""
        query = self._query(weights)
        if among is None:
            return self._matches(searcher, query, k)
        field, ids = among
        if len(ids) > _MAX_FILTER_IDS:
            with _translated():
                return self._sieved(searcher, query, k, field, ids)
        return self._matches(searcher, self._restricted(query, field, ids), k)

    def score(self, searcher: tantivy.Searcher, weights: Mapping[str, float], ids: Ids) -> dict[int, float]:
        """The scores of those ids that hold a term."""
        if not len(ids) or not weights:
            return {}
        found = self._matches(searcher, self._restricted(self._query(weights), "id", ids), len(ids))
        return dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True))

    def close(self) -> None:
        self.release()
        self._index = self._searcher = self._seen = None

    def _reload(self) -> tantivy.Searcher:
        index = self._open()
        index.reload()
        return index.searcher()

    def _open(self) -> tantivy.Index:
        if self._index is None:
            try:
                self._index = tantivy.Index.open(str(self.folder))
                self._index.config_reader("manual")
            except (ValueError, OSError) as error:
                raise DamagedError(str(error)) from error
        return self._index

    def _query(self, weights: Mapping[str, float]) -> tantivy.Query:
        parts = []
        for term, weight in weights.items():
            query = tantivy.Query.term_query(self._schema, "body", term, "freq")
            parts.append((tantivy.Occur.Should, query if weight == 1 else tantivy.Query.boost_query(query, weight)))
        return tantivy.Query.boolean_query(parts)

    def _restricted(self, query: tantivy.Query, field: str, ids: Ids) -> tantivy.Query:
        if len(ids) <= _MAX_UNION_IDS:
            terms = [(tantivy.Occur.Should, tantivy.Query.term_query(self._schema, field, id_, "basic")) for id_ in ids.tolist()]
            allowed = tantivy.Query.boolean_query(terms)
        else:
            allowed = tantivy.Query.term_set_query(self._schema, field, ids.tolist())
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, tantivy.Query.const_score_query(allowed, 0.0)), (tantivy.Occur.Must, query)])

    def _matches(self, searcher: tantivy.Searcher, query: tantivy.Query, k: int) -> Matches:
        with _translated():
            hits = searcher.search(query, limit=k, count=False).hits
            ids = searcher.fast_field_values("id", [address for _, address in hits])
        scores = np.array([score for score, _ in hits], dtype=np.float32)
        found = np.array(ids, dtype=np.int64)
        order = np.lexsort((found, -scores))
        return Matches(ids=found[order], scores=scores[order])

    def _sieved(self, searcher: tantivy.Searcher, query: tantivy.Query, k: int, field: str, ids: Ids) -> Matches:
        limit = 10 * k
        while True:
            hits = searcher.search(query, limit=limit, count=False).hits
            addresses = [address for _, address in hits]
            keys = np.array(searcher.fast_field_values(field, addresses), dtype=np.int64)
            kept = np.flatnonzero(np.isin(keys, ids))
            if len(kept) >= k or len(hits) < limit:
                break
            limit *= 4
        found = np.array(searcher.fast_field_values("id", [addresses[i] for i in kept]), dtype=np.int64)
        scores = np.array([hits[i][0] for i in kept], dtype=np.float32)
        order = np.lexsort((found, -scores))[:k]
        return Matches(ids=found[order], scores=scores[order])

    def _commit_state(self, state: State) -> None:
        temporary = self.folder / "state.json.new"
        temporary.write_text(json.dumps(asdict(state)), encoding="utf-8")
        temporary.replace(self.folder / "state.json")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:
        raise DamagedError(str(error)) from error


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("id", indexed=True, fast=True)
    builder.add_unsigned_field("document", indexed=True, fast=True)
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def _patiently(attempt: Callable[[], tantivy.Searcher]) -> tantivy.Searcher:
    """A writer in another process may tidy up between our reading the list of files and opening them; then look again."""
    for pause in (0.01, 0.05, 0.2, 0.5):
        try:
            return attempt()
        except (ValueError, OSError):
            time.sleep(pause)
    try:
        return attempt()
    except (ValueError, OSError) as error:
        raise DamagedError(str(error)) from error


def bm25(counts: Counter[str], length: int, weights: Mapping[str, float], frequencies: Mapping[str, int], chunks: int, average: float) -> float:
    """The score tantivy would give a chunk that it does not hold yet: its k1 is 1.2 and its b .75."""
    total = 0.0
    for term, weight in weights.items():
        count = counts.get(term, 0)
        if count:
            # tantivy counts what was removed until it merges, so a term may be in more chunks than there are
            total += weight * rarity(frequencies[term], chunks) * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / max(average, 1.0)))
    return total
