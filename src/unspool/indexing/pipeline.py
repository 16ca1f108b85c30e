"""An indexing run: scan, decide, prepare in parallel, store in split_batches, absorb.

Safe to kill at any instant and to repeat.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, content, documents, projects, spaces
from unspool.catalog.projects import ProjectRow
from unspool.catalog.schema import embeddings
from unspool.catalog.statements import lock_table, split_batches
from unspool.domain.documents import Document
from unspool.domain.prepared import PreparedDocument
from unspool.domain.reports import Failure, IndexReport, Masked, Progress, Skip
from unspool.embedders.base import Embedder
from unspool.embedders.cache import RedisCache
from unspool.embedders.tokens import TokenCounting
from unspool.errors import ServiceError
from unspool.index.stores import Store
from unspool.indexing import changes, embedding, preparing, workers
from unspool.indexing.changes import Changes, Work
from unspool.indexing.embedding import Keep, Maker
from unspool.indexing.preparing import Failed, Outcome, Same, Skipped
from unspool.indexing.workers import Pool, Recipe
from unspool.sources.folders import scan
from unspool.sources.secrets.addresses import describe_exposed, limit_warnings, redact_address

# Below this, starting worker processes (half a second each) costs more than they save.
INLINE_FILES, INLINE_BYTES = 64, 1_500_000
BATCH_FILES, BATCH_BYTES = 32, 400_000  # one task of a worker
COMMIT_CHUNKS, COMMIT_DOCUMENTS, COMMIT_SECONDS = 2_000, 400, 2.0  # one transaction
# between commits to the index: each leaves a segment that has to be merged later
ABSORB_CHUNKS = 8_000
CLAIM_FILES = 512
# documents; for fewer, asking whether their vectors are known takes longer than making them, with
# an embedder that is cheap
LOOKED_UP = 16

NEEDS_EXTRA = "needs extra"
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """What a run works with."""

    catalog: Catalog
    store: Store
    embedder: Embedder
    opened_as: str  # how another process opens the same embedder; empty where it cannot
    cache: RedisCache | None
    prove: Callable[[], None] | None
    chunk_tokens: int
    max_file_bytes: int
    jobs: int

    def known(self, shas: Iterable[bytes]) -> set[bytes]:
        """Which of these texts have a vector already."""
        with self.catalog.read() as connection:
            return spaces.find_known_texts(connection, self.store.space_id, shas)

    def keep(self, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors as soon as they are made, ahead of the documents that they are for."""

        def keep(connection: Connection) -> None:
            lock_table(connection, embeddings, exclusive=False)
            # otherwise it may be dropped already
            spaces.check_active(connection, self.store.space_id)
            spaces.insert_embeddings(connection, self.store.space_id, vectors)

        self.catalog.transact(keep)


@dataclass(slots=True)
class _Tally:
    """What a run has done so far."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    chunks: int = 0
    embedded: int = 0
    busy: int = 0
    looked_at: int = 0
    absorbed: int = 0
    skips: list[Skip] = field(default_factory=list)
    masked: list[Masked] = field(default_factory=list)
    # warnings of secrets in paths and metadata keys
    exposed: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def index_folder(
    indexer: Indexer,
    *,
    project: str,
    root: Path,
    source: str = "",
    on_progress: OnProgress | None = None,
) -> IndexReport:
    """Bring a project up to date with a folder.

    `source` is what the project's root is called, the folder itself if empty.
    """
    with projects.issue_run_token() as token:
        return _index_folder(indexer, project, root, source, on_progress, token)


def _index_folder(
    indexer: Indexer,
    project: str,
    root: Path,
    source: str,
    on_progress: OnProgress | None,
    token: str,
) -> IndexReport:
    started = time.monotonic()
    scanned_at = datetime.now(UTC)
    tell = on_progress or (lambda progress: None)
    recipe = preparing.recipe(indexer.embedder, indexer.chunk_tokens)
    found = scan(
        root,
        max_bytes=indexer.max_file_bytes,
        on_progress=lambda count: tell(Progress(task="scanning", done=count, total=0)),
    )
    tally = _Tally(skips=list(found.skips))

    def begin(
        connection: Connection,
    ) -> tuple[ProjectRow, int, dict[str, documents.DocumentState], Changes, int]:
        row = projects.ensure_project(connection, project, root=source or str(root))
        spaces.check_active(connection, indexer.store.space_id)
        run_id = projects.begin_run(connection, row.id, token)
        live = projects.list_live_runs(connection, row.id) - {run_id}
        known = documents.load_states(connection, row.id)
        skips = documents.load_skips(connection, row.id, recipe=recipe)
        documents.delete_skips(
            connection, row.id, list(skips.keys() - {file.path for file in found.found})
        )
        plan = changes.plan(
            found.found,
            known,
            recipe=recipe,
            live_runs=live,
            unread=found.unread,
            scanned_at=scanned_at,
            known_skips=skips,
        )
        stale = [known[work.found.path].id for work in plan.suspect]
        documents.queue_documents(
            connection, row.id, new=[work.found.path for work in plan.new], stale=stale
        )
        removed = content.delete_documents(
            connection,
            row.id,
            [state.id for state in plan.removed],
            log_changes=indexer.store.catches_up,
        )
        indexer.store.follow(connection, row.id, removed.changes)
        return row, run_id, known, plan, removed.documents

    row, run_id, known, plan, tally.removed = indexer.catalog.transact(begin)
    tally.unchanged, tally.busy = plan.unchanged, len(plan.busy)
    tally.skips += plan.skips
    run = _Run(indexer, row, run_id, known, tally, tell, total=len(plan.new) + len(plan.suspect))
    try:
        run.work(plan)
    except BaseException:
        with suppress(ServiceError):  # what went wrong matters, not that it could not be noted
            indexer.catalog.transact(
                lambda connection: projects.renew_run(connection, run_id, finished=True)
            )
        raise
    indexer.catalog.transact(
        lambda connection: projects.renew_run(connection, run_id, finished=True)
    )
    if run.maker.keep is not None:
        tally.embedded = run.maker.made  # they were stored as they were made
    warnings = (
        [f"{len(found.unread)} folders could not be listed; what was indexed from them is kept"]
        if found.unread
        else []
    )
    warnings += filter(None, [run.maker.warning(), indexer.store.settle(row.id, on_progress=tell)])
    if indexer.store.catches_up:
        indexer.catalog.transact(
            lambda connection: projects.prune_removals(
                connection, row.id, upto=indexer.store.position(row.id)
            )
        )
    return _report(project, tally, warnings, time.monotonic() - started)


class _Written(NamedTuple):
    """What a batch came to, once it is committed."""

    prepared: Sequence[PreparedDocument]
    stored: content.StoredDocuments
    same: Sequence[Same]
    skipped: Sequence[Skipped]
    failed: Sequence[Failed]
    busy: int


class _Run:
    def __init__(
        self,
        indexer: Indexer,
        project: ProjectRow,
        run_id: int,
        known: dict[str, documents.DocumentState],
        tally: _Tally,
        tell: OnProgress,
        *,
        total: int,
    ) -> None:
        self.indexer = indexer
        self.project = project
        self.run_id = run_id
        self.known = known
        self.tally = tally
        self.tell = tell
        self.total = total
        self.maker = maker_of(indexer, self._keep)

    def work(self, plan: Changes) -> None:
        """Prepare everything and store it as it comes.

        Only small plain text is read in this process.
        """
        work = [*plan.new, *plan.suspect]
        tasks = self._tasks(work)
        if len(work) <= INLINE_FILES and sum(one.found.size_bytes for one in work) <= INLINE_BYTES:
            deferred: list[Work] = []
            self._store(self.maker.gathered(self._prepare_inline(tasks, deferred)))
            tasks = _divide(deferred)
        recipe = self._make_recipe()
        with closing(Pool(recipe, self.indexer.jobs or os.cpu_count() or 1)) as pool:
            results = pool.map(tasks)
            self._store(
                results if recipe.embedder else self.maker.gathered(map(self._chunk, results))
            )

    def _make_recipe(self) -> Recipe:
        indexer = self.indexer
        embeds = indexer.embedder.is_cheap and bool(indexer.opened_as)
        counter: TokenCounting | None = getattr(indexer.embedder, "counter", None)
        return Recipe(
            database=indexer.catalog.address,
            connecting=asdict(indexer.catalog.options),
            space_id=indexer.store.space_id,
            embedder=indexer.opened_as if embeds else "",
            counts=embeds or counter is not None,
            max_tokens=indexer.embedder.max_tokens,
            tokenizer_file="" if counter is None else counter.tokenizer_file,
            chunk_tokens=indexer.chunk_tokens,
            max_bytes=indexer.max_file_bytes,
            seconds=workers.LIMITS.seconds,
            memory_bytes=workers.LIMITS.memory_bytes,
        )

    def _prepare_inline(
        self, tasks: Iterator[list[Work]], deferred: list[Work]
    ) -> Iterator[list[Outcome]]:
        """Prepare small plain text in this process, and note the files that need a worker."""
        for task in tasks:
            outcomes, others = preparing.prepare_small_files(
                task,
                counter=self.indexer.embedder,
                chunk_tokens=self.indexer.chunk_tokens,
                max_bytes=self.indexer.max_file_bytes,
            )
            deferred += others
            yield outcomes

    def _chunk(self, outcomes: list[Outcome]) -> list[Outcome]:
        return preparing.chunk_readings(
            outcomes, counter=self.indexer.embedder, chunk_tokens=self.indexer.chunk_tokens
        )

    def _keep(self, vectors: Mapping[bytes, bytes]) -> None:
        """Keep what was made, and say that the run lives: a large document can take minutes to
        embed.
        """
        self.indexer.keep(vectors)
        self.indexer.catalog.transact(
            lambda connection: projects.renew_run(connection, self.run_id)
        )
        self.tell(
            Progress(
                task="indexing",
                done=self.tally.looked_at,
                total=self.total,
                chunks=self.tally.chunks + len(vectors),
            )
        )

    def _tasks(self, work: Sequence[Work]) -> Iterator[list[Work]]:
        """Claim work, and yield it in portions of about the same size."""
        for group in split_batches(work, CLAIM_FILES):
            paths = [one.found.path for one in group]
            taken = self.indexer.catalog.transact(partial(self._claim, paths))
            self.tally.busy += len(group) - len(taken)
            yield from _divide([one for one in group if one.found.path in taken])

    def _claim(self, paths: Sequence[str], connection: Connection) -> dict[str, int]:
        projects.lock_project(connection, self.project.id)
        live = projects.list_live_runs(connection, self.project.id)
        taken = documents.claim_documents(connection, self.project.id, self.run_id, paths, live)
        projects.renew_run(connection, self.run_id)
        return taken

    def _store(self, results: Iterator[list[Outcome]]) -> None:
        waiting: list[Outcome] = []
        chunks, since = 0, time.monotonic()
        for outcomes in results:
            waiting += outcomes
            chunks += sum(len(one.chunks) for one in outcomes if isinstance(one, PreparedDocument))
            if (
                chunks >= COMMIT_CHUNKS
                or len(waiting) >= COMMIT_DOCUMENTS
                or time.monotonic() - since > COMMIT_SECONDS
            ):
                self._commit(waiting)
                waiting, chunks, since = [], 0, time.monotonic()
        if waiting:
            self._commit(waiting)

    def _commit(self, outcomes: Sequence[Outcome]) -> None:
        self._count(
            self.indexer.catalog.transact(lambda connection: self._write(connection, outcomes))
        )
        self.tally.looked_at += len(outcomes)
        self.tell(
            Progress(
                task="indexing",
                done=self.tally.looked_at,
                total=self.total,
                chunks=self.tally.chunks,
            )
        )
        if self.tally.chunks - self.tally.absorbed >= ABSORB_CHUNKS:
            self.indexer.store.keep_up(self.project.id)
            self.tally.absorbed = self.tally.chunks

    def _write(self, connection: Connection, outcomes: Sequence[Outcome]) -> _Written:
        """Everything that a batch came to, as far as the run still holds the documents: they may
        have been forgotten or put anew meanwhile.
        """
        projects.lock_project(connection, self.project.id)
        spaces.check_active(connection, self.indexer.store.space_id)
        prepared = [one for one in outcomes if isinstance(one, PreparedDocument)]
        feeds = self.indexer.store.catches_up
        held = documents.find_claims(
            connection, self.project.id, [one.path for one in outcomes], self.run_id
        )
        stored = content.store_documents(
            connection,
            self.project,
            prepared,
            claimed=held,
            space_id=self.indexer.store.space_id,
            log_changes=feeds,
        )
        self.indexer.store.follow(connection, self.project.id, stored.changes)
        others = [one for one in outcomes if not isinstance(one, PreparedDocument)]
        same = [one for one in others if isinstance(one, Same) and one.path in held]
        skipped = [one for one in others if isinstance(one, Skipped) and one.path in held]
        failed = [one for one in others if isinstance(one, Failed) and one.path in held]
        if same:
            # their times have changed, which filters may look at
            projects.advance_seq(connection, self.project.id, log_changes=feeds)
        documents.refresh_documents(
            connection, [(held[one.path], one.modified_ns, one.size_bytes) for one in same]
        )
        # An extra may be installed any time; that file is looked at again.
        lasting = [
            (o.skip, o.work.found.size_bytes, o.work.found.modified_ns)
            for o in skipped
            if o.skip.reason != NEEDS_EXTRA
        ]
        documents.record_skips(
            connection,
            self.project.id,
            lasting,
            recipe=preparing.recipe(self.indexer.embedder, self.indexer.chunk_tokens),
        )
        removed = content.delete_documents(
            connection, self.project.id, [held[one.path] for one in skipped], log_changes=feeds
        )
        self.indexer.store.follow(connection, self.project.id, removed.changes)
        documents.record_failures(connection, [(held[one.path], one.error) for one in failed])
        projects.renew_run(connection, self.run_id)
        return _Written(
            prepared,
            stored,
            same,
            skipped,
            failed,
            busy=sum(one.path not in held for one in others),
        )

    def _count(self, written: _Written) -> None:
        tally, stored, lost = self.tally, written.stored, frozenset(written.stored.lost)
        old = sum(
            one.path in self.known and bool(self.known[one.path].sha256)
            for one in written.prepared
            if one.path not in lost
        )
        tally.added += stored.documents - old
        tally.updated += old
        tally.unchanged += len(written.same)
        tally.chunks += stored.chunks
        tally.embedded += stored.embedded
        tally.busy += len(lost) + written.busy
        tally.removed += sum(one.skip.path in self.known for one in written.skipped)
        tally.skips += [one.skip for one in written.skipped]
        tally.failures += [Failure(path=one.path, error=one.error) for one in written.failed]
        _count_secrets(tally, written.prepared)


def _divide(work: Sequence[Work]) -> Iterator[list[Work]]:
    """Divide work into portions for one worker each."""
    portion: list[Work] = []
    size = 0
    for one in work:
        portion.append(one)
        size += one.found.size_bytes
        if len(portion) >= BATCH_FILES or size >= BATCH_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def put(indexer: Indexer, given: Sequence[Document]) -> IndexReport:
    """Store documents given as text, all of one project, in one transaction; findable when this
    returns.
    """
    started = time.monotonic()
    outcomes = [
        preparing.prepare_document(one, counter=indexer.embedder, chunk_tokens=indexer.chunk_tokens)
        for one in given
    ]
    maker = maker_of(indexer, indexer.keep)
    if indexer.embedder.is_cheap and len(given) <= LOOKED_UP:
        maker.known = lambda shas: set()
    vectors = maker.vectors(preparing.passages(outcomes))
    prepared = [embedding.with_vectors(one, vectors) for one in outcomes]
    expected = {one.path: one.version for one in given if one.version is not None}

    def write(connection: Connection) -> tuple[ProjectRow, int, content.StoredDocuments]:
        row = projects.ensure_project(connection, given[0].project)
        documents.check_versions(connection, row.id, expected)
        documents.check_not_conversations(connection, row.id, [document.path for document in given])
        held, new = documents.ensure_documents(
            connection, row.id, [document.path for document in given]
        )
        feeds = indexer.store.catches_up
        stored = content.store_documents(
            connection,
            row,
            prepared,
            claimed=held,
            new=new,
            space_id=indexer.store.space_id,
            log_changes=feeds,
        )
        indexer.store.follow(connection, row.id, stored.changes)
        if indexer.store.catches_up:
            projects.prune_removals(connection, row.id, upto=indexer.store.position(row.id))
        return row, len(new), stored

    row, new, stored = indexer.catalog.transact(write)
    indexer.store.settle(row.id, put=stored.chunks)
    tally = _Tally(
        added=new,
        updated=len(given) - new,
        chunks=stored.chunks,
        embedded=stored.embedded if maker.keep is None else maker.made,
    )
    _count_secrets(tally, prepared)
    return _report(
        row.name, tally, list(filter(None, [maker.warning()])), time.monotonic() - started
    )


def maker_of(indexer: Indexer, keep: Keep) -> Maker:
    """What makes the vectors of a run.

    An embedder that is cheap is asked again rather than anybody else.
    """
    if indexer.embedder.is_cheap:
        return Maker(embedder=indexer.embedder, known=indexer.known)
    return Maker(
        embedder=indexer.embedder,
        known=indexer.known,
        cache=indexer.cache,
        keep=keep,
        prove=indexer.prove,
    )


def _count_secrets(tally: _Tally, prepared: Sequence[PreparedDocument]) -> None:
    """Count the masked secrets, and describe those in addresses."""
    exposed = describe_exposed("path", (one.path for one in prepared))
    tally.masked += (
        replace(one, path=redact_address(one.path)) if exposed else one
        for document in prepared
        for one in document.masked
    )
    tally.exposed += exposed + describe_exposed(
        "metadata key", chain.from_iterable(one.metadata for one in prepared)
    )


def _report(project: str, tally: _Tally, warnings: Sequence[str], seconds: float) -> IndexReport:
    return IndexReport(
        project=project,
        added=tally.added,
        updated=tally.updated,
        unchanged=tally.unchanged,
        removed=tally.removed,
        failed=len(tally.failures),
        busy=tally.busy,
        chunks=tally.chunks,
        embedded=tally.embedded,
        seconds=round(seconds, 3),
        skipped=dict(Counter(skip.reason for skip in tally.skips)),
        skips=tuple(tally.skips),
        masked=tuple(tally.masked),
        failures=tuple(tally.failures),
        warnings=(*warnings, *limit_warnings(tally.exposed)),
    )
