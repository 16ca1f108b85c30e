"""Jobs: long tasks that a service does for somebody who does not wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from unspool.domain.reports import Progress


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # somebody asked for it
    # the process that ran it ended; started again, it goes on where it stood
    INTERRUPTED = "interrupted"

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run over a source, as every process of a service sees it.

    `report` is what `IndexReport` holds, as plain values.
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
