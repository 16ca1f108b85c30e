"""Exports on their way in, to a catalog or to a service: their conversations in batches, and the
count of what became of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from unspool.domain.conversations import Conversation
from unspool.domain.documents import check_project
from unspool.domain.reports import BadRecord, Masked, OnProgress, Progress, RememberReport
from unspool.errors import InputError, NotFoundError, ServiceError
from unspool.sources import conversations as exports
from unspool.sources.conversations.isolation import ExportReader, ReadingStoppedError

# of an import that are stored at once; beside its text a message counts for so many
BATCH_CHARACTERS = 600_000
MESSAGE_CHARACTERS = 200
LISTED = 100  # bad records
_SUFFIXES = (".jsonl", ".json", ".zip")  # of files that are examined in a folder


@dataclass(slots=True)
class Intake:
    """Counts of an import so far."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    messages: int = 0
    chunks: int = 0
    embedded: int = 0
    duplicates: int = 0
    bad_count: int = 0
    bad: list[BadRecord] = field(default_factory=list)
    masked: list[Masked] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def report(self, project: str, seconds: float) -> RememberReport:
        """All of it."""
        return RememberReport(
            project=project,
            added=self.added,
            updated=self.updated,
            unchanged=self.unchanged,
            messages=self.messages,
            chunks=self.chunks,
            embedded=self.embedded,
            duplicates=self.duplicates,
            bad_count=self.bad_count,
            bad=tuple(self.bad),
            seconds=round(seconds, 3),
            masked=tuple(self.masked),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )

    def add(self, report: RememberReport) -> None:
        """Count what somebody else has stored of it."""
        for name in (
            "added",
            "updated",
            "unchanged",
            "messages",
            "chunks",
            "embedded",
            "duplicates",
        ):
            setattr(self, name, getattr(self, name) + getattr(report, name))
        self.masked += report.masked
        self.warnings += report.warnings

    def refuse(self, bad: BadRecord) -> None:
        """Note a record that could not be imported."""
        self.bad_count += 1
        if len(self.bad) < LISTED:
            self.bad.append(bad)


def batches(
    paths: Sequence[Path],
    *,
    project: str,
    intake: Intake,
    on_progress: OnProgress | None = None,
) -> Iterator[list[Conversation]]:
    """Yield the conversations of exports, a bounded number of messages at a time, each id once in a
    batch.

    A record or file that cannot be read is noted, and the rest is imported. A path that is no
    export is refused before the first batch.
    """
    check_project(project)
    with closing(ExportReader()) as reader:
        files = _expand(paths, intake, reader)
        total, done = sum(size for _, size in files), 0
        waiting: dict[str, Conversation] = {}
        length = 0
        for file, size in files:

            def report(count: int, before: int = done) -> None:
                if on_progress is not None:
                    on_progress(
                        Progress(
                            task="remembering",
                            done=before + count,
                            total=total,
                            chunks=intake.chunks,
                        )
                    )

            for one in _read(file, project, reader, intake, report):
                if one.id in waiting:
                    yield list(waiting.values())
                    waiting, length = {}, 0
                waiting[one.id] = one
                length += sum(len(message.text) + MESSAGE_CHARACTERS for message in one.messages)
                if length >= BATCH_CHARACTERS:
                    yield list(waiting.values())
                    waiting, length = {}, 0
            done += size
        if waiting:
            yield list(waiting.values())


def _read(
    file: Path, project: str, reader: ExportReader, intake: Intake, on_bytes: Callable[[int], None]
) -> Iterator[Conversation]:
    """Yield the conversations of one export, and note everything else."""
    counts = exports.Tally()
    number = 0
    try:
        for one in reader.read(file, project=project, on_bytes=on_bytes, tally=counts):
            if isinstance(one, BadRecord):
                intake.refuse(one)
            else:
                number += 1
                yield one
    except ReadingStoppedError as error:
        position = f"after conversation {number}" if number else "the whole file"
        intake.refuse(BadRecord(source=str(file), position=position, reason=str(error)))
    # it was an export before the files in front of it were read
    except (InputError, NotFoundError) as error:
        intake.refuse(BadRecord(source=str(file), position="the whole file", reason=str(error)))
    intake.duplicates += counts.duplicates


def _expand(paths: Sequence[Path], intake: Intake, reader: ExportReader) -> list[tuple[Path, int]]:
    """Return the exports at these paths with their sizes: a path itself, or the exports in a
    folder that is none.
    """
    files: list[tuple[Path, int]] = []
    for path in paths:
        try:
            files += _measure(path, intake, reader)
        except InputError:
            if not path.is_dir():
                raise
            noted = intake.bad_count
            found, others = _search(path, intake, reader)
            if not found and intake.bad_count == noted:
                raise
            files += found
            if others:
                intake.warnings.append(
                    f"{path}: files that hold no conversations and were left out: {others}"
                )
    return files


def _search(
    folder: Path, intake: Intake, reader: ExportReader
) -> tuple[list[tuple[Path, int]], int]:
    """Return the exports in a folder, and the number of other files. Links are not followed."""
    found: list[tuple[Path, int]] = []
    others = 0
    for inner, _, names in sorted(os.walk(folder)):
        for file in (Path(inner, name) for name in sorted(names) if name.endswith(_SUFFIXES)):
            try:
                if not file.is_symlink():
                    found += _measure(file, intake, reader)
                    continue
            except (InputError, NotFoundError, ServiceError):
                pass
            others += 1
    return found, others


def _measure(file: Path, intake: Intake, reader: ExportReader) -> list[tuple[Path, int]]:
    """Return an export with its size. Note one that exceeds the limits, and return nothing."""
    try:
        return [(file, reader.measure(file))]
    except ReadingStoppedError as error:
        intake.refuse(BadRecord(source=str(file), position="the whole file", reason=str(error)))
        return []
