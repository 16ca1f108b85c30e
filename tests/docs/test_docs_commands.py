"""Every command line on a page is one that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from documentation import FENCE, PAGES, ROOT, name

from unspool.interfaces.cli import main

_INLINE = re.compile(r"`(unspool [^`\n]+)`")
_PLACEHOLDERS = {"COMMAND", "[OPTIONS]", "NAME", "DIR", "QUERY", "PATH"}


def command_lines(page: Path) -> list[str]:
    """Command lines in blocks and in running text."""
    text = page.read_text(encoding="utf-8")
    found: list[str] = []
    for language, body in FENCE.findall(text):
        if language in ("sh", "console"):
            lines = [
                line.removeprefix("$ ")
                for line in body.splitlines()
                if language == "sh" or line.startswith("$ ")
            ]
            parts = [part.strip() for line in lines for part in re.split(r" && | \| ", line)]
            found += [part for part in parts if re.match(r"(\S*/)?unspool ", part)]
    return found + _INLINE.findall(FENCE.sub("", text))


def check(line: str) -> None:
    """Fails unless the program knows the command and each of its flags, and takes that many
    arguments.
    """
    words = shlex.split(line, comments=True)[1:]
    if words[0] in ("COMMAND", "--help"):
        return
    command: click.Command = main
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert command is not main, f"no command {words[0]!r}"
    known = {
        flag for option in command.params for flag in (*option.opts, *option.secondary_opts)
    } | {"--help", "-h"}
    for word in words:
        assert not word.startswith("-") or word == "-" or word.split("=")[0] in known, (
            f"{command.name} has no flag {word!r}"
        )
    if "[OPTIONS]" in words or "--help" in words:
        return
    arguments = [word.strip("[]").removesuffix("...") or "PATH" for word in words]
    # named in running text, or takes a folder that has to exist
    if not words or command.name in ("eval", "warm"):
        return
    command.make_context(str(command.name), arguments, resilient_parsing=False)


def every_command(group: click.Group = main) -> Iterator[click.Command]:
    """Every command, those of groups too."""
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from every_command(command)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_line_parses(page: Path) -> None:
    for line in command_lines(page):
        try:
            check(line)
        except click.ClickException as error:
            pytest.fail(f"{name(page)}: {line!r}: {error.format_message()}")
        except AssertionError as error:
            pytest.fail(f"{name(page)}: {line!r}: {error}")


def test_command_lines_are_found_at_all() -> None:
    assert len(command_lines(ROOT / "docs" / "searching.md")) > 15


def test_a_wrong_command_line_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no flag"):
        check("unspool search backup --colour")
    with pytest.raises(AssertionError, match="no command"):
        check("unspool find backup")
    with pytest.raises(click.ClickException):
        check("unspool status backup")


def test_every_command_stands_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [command for command in main.commands if f"| `unspool {command}" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_flag_in_running_text_exists(page: Path) -> None:
    known = {
        flag
        for command in every_command()
        for option in command.params
        for flag in (*option.opts, *option.secondary_opts)
    }
    theirs = {"--check", "--outputs"}  # of docs/generate.py
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert [
        flag
        for flag in re.findall(r"`(--[a-z-]+)", text)
        if flag not in known | theirs | {"--help", "--version"}
    ] == []
