"""Tasks for tests of jobs: such as end at once, such as wait to be let on, and a clock that can
be moved on.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from unspool.domain.jobs import Job
from unspool.domain.reports import IndexReport, Progress
from unspool.jobs import JobQueue

Tell = Callable[[Progress], None]
DEADLINE_S = 20.0
REPORT = IndexReport(project="a", added=1)


class Clock:
    """The time, which can be moved on."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Steps:
    """A task that waits to be let on from one report of progress to the next."""

    def __init__(self, *, silent: bool = False) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.is_silent = silent
        self.told = 0

    def __call__(self, tell: Tell) -> IndexReport:
        self.begun.set()
        for number in itertools.count(1):
            if self.may_end.is_set():
                return REPORT
            if not self.is_silent:
                tell(Progress(task="indexing", done=number, total=0))
            self.told = number
            time.sleep(0.002)
        raise AssertionError("unreachable")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def over(jobs: JobQueue, job: Job) -> Job:
    """The job, once nothing more happens to it."""
    until(lambda: jobs.get(job.id).state.is_over)
    return jobs.get(job.id)


def quick(tell: Tell) -> IndexReport:
    return REPORT


def at_work() -> list[threading.Thread]:
    """The threads that do jobs, or look after them."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("unspool-job")]


def has_ended(process: int) -> bool:
    """Whether a process that was killed is gone, in a moment at the latest, or waits only for
    somebody to collect it.
    """
    for _ in range(500):
        state = subprocess.run(
            ["ps", "-o", "state=", "-p", str(process)], capture_output=True, text=True, check=False
        ).stdout.strip()
        if not state or state.startswith("Z"):
            return True
        time.sleep(0.01)
    return False
