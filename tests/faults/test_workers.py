"""The processes that prepare files, and what may happen to them on the way."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from support import write
from unspool.indexing.changes import Work
from unspool.indexing.workers import _START, Recipe, _receive, _send
from unspool.sources.folders import scan

PIPE_BYTES = 60_000  # nearly all that a pipe holds


@pytest.mark.skipif(sys.platform != "linux", reason="how much a pipe holds is Linux's own; run it there")
def test_a_worker_that_is_stopped_in_the_middle_of_an_answer_gives_all_of_it(tmp_path: Path) -> None:
    """Also where Python's output is unbuffered, as images of containers have it: a write that a signal meets may end halfway."""
    tree = write(tmp_path / "tree", {"long.md": "\n\n".join(f"Paragraph {number} about walruses and fish." for number in range(5_000))})
    recipe = Recipe(database="", connecting={}, space_id=1, embedder="", max_tokens=512, tokenizer_file="", chunk_tokens=400, max_bytes=10_000_000)
    worker = subprocess.Popen(
        [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(json.dumps({"path": sys.path, **asdict(recipe)}).encode() + b"\n")
        _send(worker.stdin, [Work(found=found) for found in scan(tree).found])
        waiting = array.array("i", [0])
        deadline = time.monotonic() + 60
        while waiting[0] < PIPE_BYTES and time.monotonic() < deadline:
            time.sleep(0.01)
            fcntl.ioctl(worker.stdout, termios.FIONREAD, waiting)
        worker.send_signal(signal.SIGSTOP)
        worker.send_signal(signal.SIGCONT)
        with ThreadPoolExecutor(1) as reader:
            answer = reader.submit(_receive, worker.stdout)
            try:
                (prepared,) = answer.result(timeout=20)  # type: ignore[misc]
            finally:
                worker.kill()
        assert sum(len(chunk.text) for chunk in prepared.chunks) > PIPE_BYTES
    finally:
        worker.kill()
        worker.communicate()
