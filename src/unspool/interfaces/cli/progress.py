"""A progress bar on stderr, for work that takes more than a second."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from unspool import Progress
from unspool.interfaces.controls import clean

if TYPE_CHECKING:
    from rich.progress import Progress as Display

PATIENCE_S = 1.0  # shorter work needs no bar


class Bar(ExitStack):
    """Progress bar. Call it with each `Progress`.

    It appears only on a terminal, after a second.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        super().__init__()
        self._is_wanted = wanted and sys.stderr.isatty()
        self._started = time.monotonic()
        self._display: Display | None = None
        self._task = ""

    def __call__(self, progress: Progress) -> None:
        if not self._is_wanted or time.monotonic() - self._started < PATIENCE_S:
            return
        if self._display is None:
            self._display = self.enter_context(_build_display())
        if progress.task != self._task:
            for task in self._display.task_ids:
                self._display.remove_task(task)  # the step before is over
            self._task = progress.task
            self._display.add_task(clean(self._task), total=None, chunks="")
        self._display.update(
            self._display.task_ids[0],
            completed=progress.done,
            total=progress.total or None,
            chunks=f"{progress.chunks} chunks" if progress.chunks else "",
        )


def _build_display() -> Display:
    # not at the top: every other command would wait for it
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    name = TextColumn("{task.description}", markup=False)
    chunks = TextColumn("{task.fields[chunks]}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), chunks, TimeElapsedColumn())
    return Display(*columns, console=Console(stderr=True), transient=True)
