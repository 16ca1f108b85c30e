"""One set of metrics for all processes of a service.

Imports nothing of Prometheus: its library looks for the folder while it is imported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_ENVIRONMENT = os.environ  # noqa: TID251 - no setting: the folder is handed to the processes that follow, as the library wants it


def folder() -> Path:
    """Where the processes of this service share what they count."""
    return Path(_ENVIRONMENT[_VARIABLE])


@contextmanager
def shared_metrics(workers: int) -> Iterator[None]:
    """What processes that are started meanwhile count is counted together, in a folder that goes
    afterwards. One worker needs none.
    """
    if workers < 2:
        yield
        return
    before = _ENVIRONMENT.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="unspool-metrics-") as made:
        _ENVIRONMENT[_VARIABLE] = made
        try:
            yield
        finally:
            if before is None:
                _ENVIRONMENT.pop(_VARIABLE, None)
            else:
                _ENVIRONMENT[_VARIABLE] = before
