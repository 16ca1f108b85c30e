"""Exports on their way in, to a catalog or to a service: their conversations in batches, and the count of what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unspool.domain.conversations import Conversation
from unspool.domain.reports import BadRecord, Masked, Progress, RememberReport
from unspool.errors import InputError, NotFoundError
from unspool.sources import conversations as exports

BATCH_CHARACTERS = 600_000  # of an import that are stored at once; beside its text a message counts for so many
MESSAGE_CHARACTERS = 200
LISTED = 100  # bad records


@dataclass(slots=True)
class Intake:
    """What was taken in so far."""

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
        for name in ("added", "updated", "unchanged", "messages", "chunks", "embedded", "duplicates"):
            setattr(self, name, getattr(self, name) + getattr(report, name))
        self.masked += report.masked
        self.warnings += report.warnings

    def refuse(self, bad: BadRecord) -> None:
        """Note something that could not be taken in."""
        self.bad_count += 1
        if len(self.bad) < LISTED:
            self.bad.append(bad)


def batches(
    paths: Sequence[Path], *, project: str, intake: Intake, on_progress: Callable[[Progress], None] | None = None
) -> Iterator[list[Conversation]]:
    """The conversations of exports, so many messages at a time, each id once in a batch. What cannot be read is noted, the rest goes on.

    What is no export is refused before the first batch.
    """
    files = _expanded(paths, intake)
    sizes = [exports.size(file) for file in files]
    total, done = sum(sizes), 0
    waiting: dict[str, Conversation] = {}
    length = 0
    for file, size in zip(files, sizes, strict=True):
        counts = exports.Tally()

        def tell(count: int, before: int = done) -> None:
            if on_progress is not None:
                on_progress(Progress(task="remembering", done=before + count, total=total, chunks=intake.chunks))

        try:
            found = exports.read(file, project=project, on_bytes=tell, tally=counts)
        except (InputError, NotFoundError) as error:  # it was an export before the files in front of it were read
            intake.refuse(BadRecord(source=str(file), position="the whole file", reason=str(error)))
            continue
        for one in found:
            if isinstance(one, BadRecord):
                intake.refuse(one)
                continue
            if one.id in waiting:
                yield list(waiting.values())
                waiting, length = {}, 0
            waiting[one.id] = one
            length += sum(len(message.text) + MESSAGE_CHARACTERS for message in one.messages)
            if length >= BATCH_CHARACTERS:
                yield list(waiting.values())
                waiting, length = {}, 0
        intake.duplicates += counts.duplicates
        done += size
    if waiting:
        yield list(waiting.values())


def _expanded(paths: Sequence[Path], intake: Intake) -> list[Path]:
    """The exports that paths stand for."""
    files: list[Path] = []
    for path in paths:
        found, others = exports.sources(path)
        files += found
        if others:
            intake.warnings.append(f"{path}: files that hold no conversations and were left out: {others}")
    return files
