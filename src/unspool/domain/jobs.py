"""Jobs: long tasks that a service runs in the background."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from unspool.domain.reports import Progress


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # by a caller
    INTERRUPTED = "interrupted"  # its process ended; started again, it resumes

    @property
    def is_over(self) -> bool:
        """True in a final state."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Indexing run of a source, as every process of a service sees it.

    `report` has the fields of `IndexReport` as plain values.
    """

    id: str
    project: str
    source: str
    state: JobState
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    error_code: str = ""
    error: str = ""
