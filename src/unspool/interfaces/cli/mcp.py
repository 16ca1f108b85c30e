"""The command that serves agents: mcp."""

from __future__ import annotations

import click

from unspool.interfaces.cli.door import ADDRESSES, group, load_settings, note


@group(
    "mcp",
    "Serve agents over MCP",
    examples=("unspool mcp", "unspool mcp --read-only --project notes"),
    takes=("mcp_max_tokens", *ADDRESSES),
)
@click.option(
    "--project",
    "-p",
    "projects",
    multiple=True,
    metavar="NAME",
    help="Let it see only this project; give it several times.",
)
@click.option("--read-only", is_flag=True, help="Leave out the tools that store something.")
@click.pass_context
def mcp(
    context: click.Context, flags: dict[str, str | None], projects: tuple[str, ...], read_only: bool
) -> None:
    """Answer an agent's MCP client over stdin and stdout, until it closes them.

    The client starts this by itself.
    """
    if context.invoked_subcommand is None:
        from unspool.interfaces.mcp import stdio

        stdio.serve(
            load_settings(flags),
            projects=projects,
            read_only=read_only,
            warn=lambda text: note(text, kind="warning"),
        )
