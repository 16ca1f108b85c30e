"""A progress bar on stderr, for what takes more than a moment."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from unspool.domain.reports import Progress
from unspool.interfaces.controls import clean

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

PATIENCE_S = 1.0  # what is done sooner needs no bar


class Bar:
    """Call it with each `Progress`.

    It shows nothing unless stderr is a terminal and a second has passed.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._wanted = wanted and sys.stderr.isatty()
        self._started = time.monotonic()
        self._display: Display | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._display is not None:
            self._display.stop()

    def __call__(self, progress: Progress) -> None:
        if not self._wanted or time.monotonic() - self._started < PATIENCE_S:
            return
        display = self._open_display()
        if progress.task not in self._tasks:
            for task in self._tasks.values():
                display.remove_task(task)  # one step at a time: the one before is over
            self._tasks = {
                progress.task: display.add_task(clean(progress.task), total=None, chunks="")
            }
        chunks = f"{progress.chunks} chunks" if progress.chunks else ""
        display.update(
            self._tasks[progress.task],
            completed=progress.done,
            total=progress.total or None,
            chunks=chunks,
        )

    def _open_display(self) -> Display:
        if self._display is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Display

            name = TextColumn("{task.description}", markup=False)
            chunks = TextColumn("{task.fields[chunks]}", markup=False)
            columns = (name, BarColumn(), MofNCompleteColumn(), chunks, TimeElapsedColumn())
            self._display = Display(*columns, console=Console(stderr=True), transient=True)
            self._display.start()
        return self._display
