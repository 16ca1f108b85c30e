"""`python -m unspool` is the command `unspool`."""

from unspool.interfaces.cli import main

main()
