"""Generated code is what its generator writes now."""

from __future__ import annotations

import subprocess
import sys

from documentation import ROOT


def test_the_async_api_is_what_the_generator_writes_now() -> None:
    """On failure: run python tools/generate_async.py."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_async.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
