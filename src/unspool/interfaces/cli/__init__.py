"""The command line. `main` is the command `unspool`; the modules contain the commands by theme."""

from __future__ import annotations

from unspool.interfaces.cli import (
    indexing,
    installing,
    looking,
    maintenance,
    searching,
    serving,
    trusting,
)
from unspool.interfaces.cli.commands import main

__all__ = ["main"]
