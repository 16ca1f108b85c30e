"""Foundation of the commands: their group, common options, output, and exit codes.

Exit codes: 0 done, 1 nothing found, 2 the caller must change something, 3 a system that unspool
calls failed, 70 a bug in unspool, 130 interrupted.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TextIO, TypeVar

import click

from unspool import Corpus, Settings, __version__, wire
from unspool.errors import ServiceError, UnspoolError
from unspool.interfaces.controls import clean, clean_lines, escape_json
from unspool.interfaces.terminal import Line, write_lines
from unspool.settings.definitions import DEFINITIONS

NOTHING_FOUND = 1
BUG = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130
ADDRESSES = ("database", "vectors", "embedder")  # settings that select the corpus
READING = ("chunk_tokens", "max_file_bytes", "jobs")  # settings for reading and cutting files

_ORDER = """
    search more ask index remember related watch warm history documents forget serve mcp key status
    stores settings trust doctor repair reembed move migrate eval
""".split()
_SHORT = {"limit": ("-n",)}
_METAVAR = {
    "database": "ADDRESS",
    "vectors": "ADDRESS",
    "embedder": "NAME",
    "answer_model": "NAME",
    "project": "NAME",
    "alpha": "NUMBER",
    "serve_host": "ADDRESS",
}
# errors of a stdout that cannot be written
_UNWRITABLE = frozenset((errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))

Function = TypeVar("Function", bound=Callable[..., Any])
Flags = dict[str, str | None]  # the settings that were given as flags


class CommandGroup(click.Group):
    """Group of all commands. Its `main` turns every error into a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        extra["standalone_mode"] = False
        run = partial(super().main, args, prog_name or "unspool", **extra)
        sys.exit(_run(run, sys.argv[1:] if args is None else args))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            # Nothing more may be flushed into it when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                return 0  # the reader has seen enough, as with `| head`
            raise ServiceError(
                f"the output cannot be written ({error.strerror}); make room, or write it elsewhere"
            ) from error
        return result


def _run(run: Callable[[], Any], arguments: Sequence[str]) -> int:
    """Run a command, report its error, and return its exit code."""
    # behind "--" nothing is a flag
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in flags
    try:
        result = run()
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        with io.StringIO() as usage:
            error.show(usage)
            click.echo(clean_lines(usage.getvalue()), err=True, nl=False)
        if as_json:
            _print_error_object("usage", error.format_message())
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - every bug ends here
        if "--debug" in flags:
            click.echo(clean_lines(traceback.format_exc()), err=True, nl=False)
        if isinstance(error, UnspoolError):
            report_error(error.code, str(error), as_json=as_json)
            return error.exit_code
        # The text of the error may contain indexed text, so only its type is shown.
        bug = f"this is a bug in unspool: {type(error).__name__}"
        report_error("bug", f"{bug}; run again with --debug and report it", as_json=as_json)
        return BUG
    return result if isinstance(result, int) else 0


def report_error(code: str, message: str, *, as_json: bool) -> None:
    """Write an error to stderr, and with --json also as an object to stdout."""
    click.secho("error: ", fg="red", bold=True, err=True, nl=False)
    click.echo(clean(message), err=True)
    if as_json:
        _print_error_object(code, message)


def _print_error_object(code: str, message: str) -> None:
    print_json({"error": {"code": code, "message": message}})


def print_json(value: object, *, explain: bool = False, skips: bool = False) -> None:
    """Write one object on one line of stdout, in UTF-8. All output of --json passes here."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    data = wire.encode(value, explain=explain, skips=skips)
    click.echo(escape_json(wire.write_line(data)))


def show(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Write lines for people, by default to stdout."""
    write_lines(lines, stream or sys.stdout, color=click.get_current_context().color)


def show_result(
    value: object,
    lines: Iterable[Line],
    *,
    as_json: bool,
    nothing: str = "",
    report: object = None,
    explain: bool = False,
    skips: bool = False,
) -> int:
    """Write a result to stdout, then its notes and warnings to stderr. Return the exit code.

    `nothing` is the note for an empty result. `report` has the notes and warnings if `value` is an
    object around it.
    """
    if as_json:
        print_json(value, explain=explain, skips=skips)
    elif not nothing:
        show(lines)
    sys.stdout.flush()  # before the messages about it
    for kind in ("note", "warning"):
        for message in getattr(report or value, f"{kind}s", ()):
            note(message, kind=kind)
    if nothing:
        note(nothing)
    return NOTHING_FOUND if nothing else 0


def note(message: str, *, kind: str = "note") -> None:
    """Write a message about the result to stderr, for people."""
    click.secho(
        f"{kind}: {clean(message)}",
        fg="yellow" if kind == "warning" else None,
        dim=True if kind == "note" else None,
        err=True,
    )


def _set_color(ctx: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    ctx.color = value


_DEBUG = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)
_COLOR = click.option(
    "--color/--no-color",
    default=None,
    expose_value=False,
    callback=_set_color,
    help="Always or never use colour.",
)
_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, as docs/json.md describes it."
)


def _format_examples(examples: Sequence[str]) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_format_examples(('unspool search "how are sessions opened" .', "unspool status")),
)
@click.version_option(__version__, prog_name="unspool")
@_DEBUG
def main() -> None:
    """Index code, documents and conversations, and search them by meaning and keyword."""


def group(
    name: str, brief: str, *, examples: tuple[str, str], takes: Sequence[str] | None = None
) -> Callable[[Function], click.Group]:
    """Return a decorator for a command that consists of others.

    `brief` appears in the list of commands. With `takes` the group also runs by itself, and has the
    flags of those settings.
    """
    options = [] if takes is None else [*map(build_setting_option, takes), _DEBUG]
    build = main.group(
        name,
        short_help=brief,
        epilog=_format_examples(examples),
        invoke_without_command=takes is not None,
    )
    return lambda function: build(add_options(function, options))


def command(
    name: str,
    brief: str,
    *,
    examples: tuple[str, str],
    takes: Sequence[str] = ADDRESSES,
    within: click.Group = main,
) -> Callable[[Function], click.Command]:
    """Return a decorator for a command with `--json`, `--color`, `--debug` and flags of settings.

    `brief` appears in the list of commands. The function gets the flags of the settings in `takes`
    as `flags`, and `--json` as `as_json`.
    """
    options = [*map(build_setting_option, takes), _JSON, _COLOR, _DEBUG]
    build = within.command(name, short_help=brief, epilog=_format_examples(examples))
    return lambda function: build(add_options(function, options))


def add_options(function: Function, options: Sequence[Callable[[Function], Function]]) -> Function:
    """Return a function with options in this order."""
    for option in reversed(options):
        function = option(function)
    return function


def build_setting_option(name: str, flag: str = "") -> Callable[[Function], Function]:
    """Return the option of a setting, by default with the name of the setting.

    Its text is passed on as it is: `Settings.load` checks the values of every layer alike.
    """

    def collect(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        ctx.params.setdefault("flags", {})[name] = value

    definition = DEFINITIONS[name]
    return click.option(
        "--" + (flag or name).replace("_", "-"),
        *_SHORT.get(name, ()),
        metavar=_METAVAR.get(name) or "|".join(definition.choices) or "N",
        expose_value=False,
        callback=collect,
        help=f"{definition.about[0].upper()}{definition.about[1:]}.",
    )


def open_corpus(flags: Mapping[str, str | None]) -> Corpus:
    """Open the corpus that the settings name."""
    return Corpus(load_settings(flags))


def load_settings(flags: Mapping[str, str | None]) -> Settings:
    """Return the settings of a command. Warn about ignored settings of the current folder."""
    return Settings.load(flags=flags, notify=partial(note, kind="warning"))
