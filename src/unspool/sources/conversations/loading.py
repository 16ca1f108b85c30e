"""Import of exports to a catalog or a service: batches of conversations, and counts."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path

from unspool.domain.conversations import Conversation
from unspool.domain.documents import check_project
from unspool.domain.reports import BadRecord, Masked, OnProgress, Progress, RememberReport
from unspool.errors import InputError, NotFoundError, ServiceError
from unspool.sources.conversations.isolation import ExportReader, ReadingStoppedError

# of one batch; each message adds some to its text
BATCH_CHARACTERS = 600_000
MESSAGE_CHARACTERS = 200
MAX_LISTED = 100  # bad records in a report
_TOTALS = [one.name for one in fields(RememberReport) if isinstance(one.default, int)]
_SUFFIXES = (".jsonl", ".json", ".zip")  # of files that are examined in a folder


@dataclass(slots=True)
class ImportCounts:
    """Counts of an import so far."""

    totals: Counter[str] = field(default_factory=Counter)  # by the fields of `RememberReport`
    bad: list[BadRecord] = field(default_factory=list)
    masked: list[Masked] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def report(self, project: str) -> RememberReport:
        """Return the report of a finished import."""
        return RememberReport(
            project=project,
            **self.totals,
            bad=tuple(self.bad),
            seconds=round(time.monotonic() - self.started, 3),
            masked=tuple(self.masked),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )

    def add(self, report: RememberReport) -> None:
        """Add the counts of a batch stored by a service."""
        self.totals.update({name: getattr(report, name) for name in _TOTALS})
        self.masked += report.masked
        self.warnings += report.warnings

    def add_bad_record(self, bad: BadRecord) -> None:
        """Count a record that could not be imported."""
        self.totals["bad_count"] += 1
        if len(self.bad) < MAX_LISTED:
            self.bad.append(bad)


def read_batches(
    paths: Sequence[Path],
    *,
    project: str,
    counts: ImportCounts,
    on_progress: OnProgress | None = None,
) -> Iterator[list[Conversation]]:
    """Yield the conversations of exports in batches of bounded size, each id once in a batch.

    A record or file that cannot be read is counted, and the rest is imported. Raise `InputError`
    or `NotFoundError` before the first batch if a path is no export.
    """
    check_project(project)
    batch: dict[str, Conversation] = {}
    length = 0
    for one in _read_exports(paths, project, counts, on_progress):
        if one.id in batch or length >= BATCH_CHARACTERS:
            yield list(batch.values())
            batch, length = {}, 0
        batch[one.id] = one
        length += sum(len(message.text) + MESSAGE_CHARACTERS for message in one.messages)
    if batch:
        yield list(batch.values())


def _read_exports(
    paths: Sequence[Path], project: str, counts: ImportCounts, on_progress: OnProgress | None
) -> Iterator[Conversation]:
    with closing(ExportReader()) as reader:
        files = _expand(paths, counts, reader)
        total, done = sum(size for _, size in files), 0
        for file, size in files:

            def report(count: int, before: int = done) -> None:
                if on_progress is not None:
                    on_progress(
                        Progress(
                            task="remembering",
                            done=before + count,
                            total=total,
                            chunks=counts.totals["chunks"],
                        )
                    )

            yield from _read(file, project, reader, counts, report)
            done += size


def _read(
    file: Path,
    project: str,
    reader: ExportReader,
    counts: ImportCounts,
    on_bytes: Callable[[int], None],
) -> Iterator[Conversation]:
    """Yield the conversations of one export, and count its bad records."""
    number = 0
    try:
        for one in reader.read(file, project=project, on_bytes=on_bytes, counts=counts.totals):
            if isinstance(one, BadRecord):
                counts.add_bad_record(one)
            else:
                number += 1
                yield one
    # An `InputError` or `NotFoundError` means that the file has changed since it was measured.
    except (ReadingStoppedError, InputError, NotFoundError) as error:
        position = f"after conversation {number}" if number else "the whole file"
        counts.add_bad_record(BadRecord(source=str(file), position=position, reason=str(error)))


def _expand(
    paths: Sequence[Path], counts: ImportCounts, reader: ExportReader
) -> list[tuple[Path, int]]:
    """Return the exports at these paths, or in these folders, with their sizes."""
    files: list[tuple[Path, int]] = []
    for path in paths:
        try:
            files += _measure(path, counts, reader)
        except InputError:
            if not path.is_dir():
                raise
            bad_count = counts.totals["bad_count"]
            found, others = _search(path, counts, reader)
            if not found and counts.totals["bad_count"] == bad_count:
                raise
            files += found
            if others:
                counts.warnings.append(
                    f"{path}: files that hold no conversations and were left out: {others}"
                )
    return files


def _search(
    folder: Path, counts: ImportCounts, reader: ExportReader
) -> tuple[list[tuple[Path, int]], int]:
    """Return the exports in a folder, and the number of other files. Links are not followed."""
    found: list[tuple[Path, int]] = []
    others = 0
    for inner, _, names in sorted(os.walk(folder)):
        for file in (Path(inner, name) for name in sorted(names) if name.endswith(_SUFFIXES)):
            try:
                if not file.is_symlink():
                    found += _measure(file, counts, reader)
                    continue
            except (InputError, NotFoundError, ServiceError):
                pass
            others += 1
    return found, others


def _measure(file: Path, counts: ImportCounts, reader: ExportReader) -> list[tuple[Path, int]]:
    """Return an export with its size. Count one that exceeds the limits as a bad record."""
    try:
        return [(file, reader.measure(file))]
    except ReadingStoppedError as error:
        counts.add_bad_record(
            BadRecord(source=str(file), position="the whole file", reason=str(error))
        )
        return []
