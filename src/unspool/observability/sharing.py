"""Metrics that all processes of a service share.

This module imports nothing of Prometheus, whose library looks for the folder during its import.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unspool.processes import set_variables

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def shared_folder() -> Path:
    """Return the folder in which the processes of this service share their metrics."""
    return Path(os.environ[_VARIABLE])  # noqa: TID251 - the library reads it, too


@contextmanager
def shared_metrics(workers: int) -> Iterator[None]:
    """Let processes that are started meanwhile share their metrics in a temporary folder.

    A single worker needs none.
    """
    if workers < 2:
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="unspool-metrics-") as folder,
        set_variables({_VARIABLE: folder}),
    ):
        yield
