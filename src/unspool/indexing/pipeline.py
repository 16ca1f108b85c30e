"""Indexing of a folder: scan, compare, prepare in workers, embed in batches, write, settle.

A run can be killed at any time and repeated.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.engine import Connection

from unspool.catalog import content, documents, projects, spaces
from unspool.catalog.feed import Changes
from unspool.catalog.statements import split_batches
from unspool.domain.prepared import PreparedDocument, SkippedFile
from unspool.domain.reports import Failure, IndexReport, OnProgress, Progress
from unspool.embedders.tokens import TokenCounting
from unspool.errors import ServiceError
from unspool.indexing import workers
from unspool.indexing.changes import PendingFile, RunPlan, plan_run
from unspool.indexing.embedding import group_outcomes
from unspool.indexing.indexer import Indexer, report_secrets
from unspool.indexing.preparing import (
    FailedFile,
    Outcome,
    UnchangedFile,
    chunk_readings,
    prepare_small_files,
)
from unspool.sources.folders import Scan, scan
from unspool.sources.secrets.masking import limit_warnings

# Below this, starting worker processes (half a second each) costs more than they save.
INLINE_FILES, INLINE_BYTES = 64, 1_500_000
BATCH_FILES, BATCH_BYTES = 32, 400_000  # one task of a worker
COMMIT_CHUNKS, COMMIT_DOCUMENTS, COMMIT_SECONDS = 2_000, 400, 2.0  # one transaction
# Two runs of a project share its files in groups of this size (bench/writers.py).
CLAIM_FILES = 128

NEEDS_EXTRA = "needs extra"
_COUNTS = ("added", "updated", "unchanged", "removed", "failed", "busy", "chunks", "embedded")
_LISTS = ("skips", "masked", "failures", "warnings")
_T = TypeVar("_T")


def index_folder(
    indexer: Indexer,
    *,
    project: str,
    root: Path,
    source: str = "",
    on_progress: OnProgress | None = None,
) -> IndexReport:
    """Bring a project up to date with a folder.

    `source` is the root that the project records, the folder itself if empty.
    """
    started = time.monotonic()
    emit = on_progress or (lambda progress: None)
    with projects.issue_run_token() as token:
        scanned_at = datetime.now(UTC)
        scanned = scan(
            root,
            max_bytes=indexer.max_file_bytes,
            on_progress=lambda count: emit(Progress(task="scanning", done=count, total=0)),
        )
        run = FolderRun(indexer, emit)
        run.begin(project, source or str(root), token)
        try:
            run.compare(scanned, scanned_at)
            run.index_files()
        except BaseException:
            with suppress(ServiceError):  # the first error is the one to report
                run.finish()
            raise
        run.finish()
        warnings = run.settle(unread=len(scanned.unread))
    report = _merge(run.reports)
    return replace(
        report,
        seconds=round(time.monotonic() - started, 3),
        skipped=dict(Counter(skip.reason for skip in report.skips)),
        warnings=(*warnings, *limit_warnings(report.warnings)),
    )


class FolderRun:
    """State of one run over a folder. The methods are in the order of execution."""

    project: projects.ProjectRow
    run_id: int
    plan: RunPlan

    def __init__(self, indexer: Indexer, emit: OnProgress) -> None:
        self.indexer = indexer
        self.indexes = indexer.indexes
        self.emit = emit
        self.passages = indexer.create_passage_embedder(save=self._save_vectors)
        self.reports: list[IndexReport] = []  # of parts of the run
        self.processed = 0  # files
        self.chunks = 0
        self.flushed = 0  # chunks

    def begin(self, project: str, root: str, token: str) -> None:
        """Register the run."""

        def begin(connection: Connection) -> tuple[projects.ProjectRow, int]:
            row = projects.ensure_project(connection, project, root=root)
            return row, projects.begin_run(connection, row.id, token)

        self.project, self.run_id = self.indexer.catalog.transact(begin)

    def compare(self, scanned: Scan, scanned_at: datetime) -> None:
        """Compare the folder with the catalog, and store the plan."""
        catalog, project_id = self.indexer.catalog, self.project.id
        recipe = self.indexer.chunker.recipe
        with catalog.read() as connection:
            self.plan = plan_run(
                scanned.found,
                documents.stream_states(connection, project_id),
                recipe=recipe,
                live_runs=projects.list_live_runs(connection, project_id) - {self.run_id},
                unread=scanned.unread,
                scanned_at=scanned_at,
                known_skips=documents.stream_skips(connection, project_id, recipe=recipe),
            )
        removed = catalog.transact(self._apply_plan)
        for paths in split_batches(file.found.path for file in self.plan.new):
            queue = partial(documents.ensure_documents, project_id=project_id, paths=paths)
            catalog.transact(queue)
        self._report(
            removed=removed,
            unchanged=self.plan.unchanged,
            busy=self.plan.busy,
            skips=(*scanned.skips, *self.plan.skips),
        )

    def _apply_plan(self, connection: Connection) -> int:
        """Mark suspect documents, delete those of missing files, and return their number.

        Documents that other writers have changed since they were compared stay.
        """
        project_id, changes = self.project.id, Changes(self.project.id)
        projects.share_project(connection, project_id)
        spaces.check_active(connection, self.indexes.space_id)
        documents.delete_skips(connection, project_id, self.plan.outdated)
        suspect = documents.lock_unchanged(connection, project_id, {*self.plan.known.values()})
        documents.mark_stale(connection, suspect)
        missing = documents.lock_unchanged(connection, project_id, self.plan.removed)
        removed = content.delete_documents(connection, missing, changes)
        self.indexes.publish(connection, changes)
        return removed

    def index_files(self) -> None:
        """Prepare, embed and write every file of the plan.

        A few small text files are prepared in this process, all others in workers.
        """
        files = [*self.plan.new, *self.plan.suspect]
        tasks = self._claim(files)
        size_bytes = sum(file.found.size_bytes for file in files)
        if len(files) <= INLINE_FILES and size_bytes <= INLINE_BYTES:
            deferred: list[PendingFile] = []
            self._write_all(self.passages.embed_results(self._prepare_inline(tasks, deferred)))
            tasks = _split(deferred)
        config = self._configure_workers()
        with closing(workers.WorkerPool(config, self.indexer.jobs or os.cpu_count() or 1)) as pool:
            results = pool.map(tasks)
            if not config.embedder:
                chunk = partial(chunk_readings, chunker=self.indexer.chunker)
                results = self.passages.embed_results(map(chunk, results))
            self._write_all(results)

    def _claim(self, files: Sequence[PendingFile]) -> Iterator[list[PendingFile]]:
        """Claim files, and yield them in tasks of about the same size."""
        for group in split_batches(files, CLAIM_FILES):
            paths = [file.found.path for file in group]
            claimed = self.indexer.catalog.transact(partial(self._claim_paths, paths))
            self._report(busy=len(group) - len(claimed))
            yield from _split([file for file in group if file.found.path in claimed])

    def _claim_paths(self, paths: Sequence[str], connection: Connection) -> dict[str, int]:
        projects.share_project(connection, self.project.id)
        live = projects.list_live_runs(connection, self.project.id)
        claimed = documents.claim_documents(connection, self.project.id, self.run_id, paths, live)
        projects.renew_run(connection, self.run_id)
        return claimed

    def _prepare_inline(
        self, tasks: Iterable[list[PendingFile]], deferred: list[PendingFile]
    ) -> Iterator[list[Outcome]]:
        """Prepare short plain text, and collect the files that need a worker."""
        for task in tasks:
            outcomes, others = prepare_small_files(
                task, chunker=self.indexer.chunker, max_bytes=self.indexer.max_file_bytes
            )
            deferred += others
            yield outcomes

    def _configure_workers(self) -> workers.WorkerConfig:
        indexer = self.indexer
        can_embed = indexer.embedder.is_cheap and bool(indexer.opened_as)
        counter: TokenCounting | None = getattr(indexer.embedder, "counter", None)
        return workers.WorkerConfig(
            database=indexer.catalog.address,
            options=indexer.catalog.options,
            space_id=self.indexes.space_id,
            embedder=indexer.opened_as if can_embed else "",
            counts=can_embed or counter is not None,
            max_tokens=indexer.embedder.max_tokens,
            tokenizer_file="" if counter is None else counter.tokenizer_file,
            chunk_tokens=indexer.chunk_tokens,
            max_bytes=indexer.max_file_bytes,
            seconds=workers.LIMITS.seconds,
            memory_bytes=workers.LIMITS.memory_bytes,
        )

    def _save_vectors(self, vectors: Mapping[bytes, bytes]) -> None:
        """Save a batch of vectors, and renew the run: a large document can take minutes."""
        self.indexer.save_vectors(vectors)
        self.indexer.catalog.transact(partial(projects.renew_run, run_id=self.run_id))
        self._emit_progress(unwritten=len(vectors))

    def _write_all(self, results: Iterable[list[Outcome]]) -> None:
        """Write results in transactions of bounded size and age."""
        for outcomes in group_outcomes(
            results, chunks=COMMIT_CHUNKS, documents=COMMIT_DOCUMENTS, seconds=COMMIT_SECONDS
        ):
            owned, stored = self.indexer.catalog.transact(partial(self._write, outcomes))
            self._report_batch(owned, stored, lost=len(outcomes) - len(owned))
            self.chunks += stored.chunks
            self.processed += len(outcomes)
            self._emit_progress()
            self.flushed = self.indexer.flush_chunks(
                self.project.id, written=self.chunks, flushed=self.flushed
            )

    def _write(
        self, outcomes: Sequence[Outcome], connection: Connection
    ) -> tuple[list[Outcome], content.StoredDocuments]:
        """Write the outcomes of documents that this run still owns.

        Another process may have removed or replaced the others since they were claimed.
        """
        project_id = self.project.id
        projects.share_project(connection, project_id)
        spaces.check_active(connection, self.indexes.space_id)
        ids = documents.lock_claims(connection, project_id, [o.path for o in outcomes], self.run_id)
        changes = Changes(project_id)
        owned = [outcome for outcome in outcomes if outcome.path in ids]
        stored = content.store_documents(
            connection,
            self.project,
            _select(owned, PreparedDocument),
            changes,
            ids=ids,
            space_id=self.indexes.space_id,
        )
        unchanged = _select(owned, UnchangedFile)
        documents.refresh_documents(
            connection, [(ids[one.path], one.modified_ns, one.size_bytes) for one in unchanged]
        )
        # filters may compare the modification times, which have changed
        changes.has_documents |= bool(unchanged)
        self._skip(connection, ids, _select(owned, SkippedFile), changes)
        failed = _select(owned, FailedFile)
        documents.record_failures(connection, [(ids[one.path], one.error) for one in failed])
        projects.renew_run(connection, self.run_id)
        self.indexes.publish(connection, changes)
        return owned, stored

    def _skip(
        self,
        connection: Connection,
        ids: Mapping[str, int],
        skipped: Sequence[SkippedFile],
        changes: Changes,
    ) -> None:
        # The next run reads a file again that needs an extra, because it may be installed by then.
        lasting = [one for one in skipped if one.skip.reason != NEEDS_EXTRA]
        documents.record_skips(
            connection, self.project.id, lasting, recipe=self.indexer.chunker.recipe
        )
        content.delete_documents(connection, [ids[one.path] for one in skipped], changes)

    def _report_batch(
        self, owned: Sequence[Outcome], stored: content.StoredDocuments, *, lost: int
    ) -> None:
        prepared = _select(owned, PreparedDocument)
        skips = [one.skip for one in _select(owned, SkippedFile)]
        failures = [Failure(path=one.path, error=one.error) for one in _select(owned, FailedFile)]
        known = self.plan.known
        updated = sum(one.path in known and bool(known[one.path].sha256) for one in prepared)
        masked, exposed = report_secrets("path", prepared)
        self._report(
            added=stored.documents - updated,
            updated=updated,
            unchanged=len(_select(owned, UnchangedFile)),
            removed=sum(skip.path in known for skip in skips),
            failed=len(failures),
            busy=lost,
            chunks=stored.chunks,
            embedded=stored.embedded,
            skips=tuple(skips),
            masked=tuple(masked),
            failures=tuple(failures),
            warnings=tuple(exposed),
        )

    def _report(self, **values: Any) -> None:
        self.reports.append(IndexReport(project=self.project.name, **values))

    def _emit_progress(self, *, unwritten: int = 0) -> None:
        self.emit(
            Progress(
                task="indexing",
                done=self.processed,
                total=len(self.plan.new) + len(self.plan.suspect),
                chunks=self.chunks + unwritten,
            )
        )

    def finish(self) -> None:
        """Record the end of the run."""
        self.indexer.catalog.transact(
            partial(projects.renew_run, run_id=self.run_id, finished=True)
        )

    def settle(self, *, unread: int) -> list[str]:
        """Let the indexes catch up, and return warnings. `unread` counts folders."""
        self._report(embedded=self.passages.saved_count)
        warning = self.indexes.finish_run(self.project.id, on_progress=self.emit)
        warnings = [*self.passages.warnings, *([warning] if warning else [])]
        if unread:
            noun = "folder" if unread == 1 else "folders"
            kept = "their indexed documents are kept"
            warnings.insert(0, f"{unread} {noun} could not be listed; {kept}")
        return warnings


def _merge(reports: Sequence[IndexReport]) -> IndexReport:
    """Add up the counts and lists of reports."""
    values: dict[str, Any] = {
        name: sum(getattr(report, name) for report in reports) for name in _COUNTS
    }
    for name in _LISTS:
        values[name] = tuple(chain.from_iterable(getattr(report, name) for report in reports))
    return replace(reports[0], **values)


def _select(outcomes: Iterable[Outcome], kind: type[_T]) -> list[_T]:
    return [outcome for outcome in outcomes if isinstance(outcome, kind)]


def _split(files: Sequence[PendingFile]) -> Iterator[list[PendingFile]]:
    """Split files into tasks for one worker each."""
    task: list[PendingFile] = []
    size_bytes = 0
    for file in files:
        task.append(file)
        size_bytes += file.found.size_bytes
        if len(task) >= BATCH_FILES or size_bytes >= BATCH_BYTES:
            yield task
            task, size_bytes = [], 0
    if task:
        yield task
