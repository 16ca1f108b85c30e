"""The command line.

`main` is the command `unspool`; the modules beside it hold the commands by theme.
"""

from __future__ import annotations

from unspool.interfaces.cli import (
    asking,
    history,
    indexing,
    installing,
    keys,
    looking,
    maintenance,
    remembering,
    searching,
    serving,
    trusting,
)
from unspool.interfaces.cli.door import main

__all__ = ["main"]
