"""What every command shares: the group, the flags, the way in, and the one place where errors end.

Exit codes: 0 done, 1 nothing found, 2 the caller must change something, 3 a system we call failed,
70 a bug in unspool, 130 interrupted.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from unspool import __version__
from unspool.errors import ServiceError, UnspoolError
from unspool.interfaces import render
from unspool.interfaces.controls import clean, clean_lines, escape_json
from unspool.settings import Settings
from unspool.settings.definitions import DEFINITIONS

if TYPE_CHECKING:
    from unspool.corpus import Corpus

BUG = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130
ADDRESSES = ("database", "vectors", "embedder")  # what decides which corpus is opened
READING = ("chunk_tokens", "max_file_bytes", "jobs")  # how files are read and cut

_ORDER = (
    "search",
    "more",
    "ask",
    "index",
    "remember",
    "related",
    "watch",
    "warm",
    "history",
    "documents",
    "forget",
    "serve",
    "mcp",
    "key",
    "status",
    "settings",
    "trust",
    "doctor",
    "repair",
    "reembed",
    "migrate",
    "eval",
)
_SHORT = {"limit": ("-n",)}
_METAVAR = {
    "database": "ADDRESS",
    "vectors": "ADDRESS",
    "embedder": "NAME",
    "answer_model": "NAME",
    "project": "NAME",
    "alpha": "NUMBER",
}

# what became of stdout
_UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))

Function = TypeVar("Function", bound=Callable[..., Any])


class Door(click.Group):
    """The group of all commands.

    Its `main` turns whatever ends a command into a message and an exit code.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        known = super().list_commands(ctx)
        return [name for name in _ORDER if name in known] + [
            name for name in known if name not in _ORDER
        ]

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        arguments = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)
        sys.exit(
            _answer(
                lambda: super(Door, self).main(
                    args, prog_name or "unspool", standalone_mode=False, **extra
                ),
                arguments,
            )
        )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has seen enough, as with `| head`. Nothing more may be flushed into the
            # pipe when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise ServiceError(
                f"the output cannot be written ({error.strerror}); make room, or write it elsewhere"
            ) from error
        return result


def _answer(run: Callable[[], Any], arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code and says on stderr what went wrong."""
    # behind "--" nothing is a flag
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json, debug = "--json" in flags, "--debug" in flags
    try:
        result = run()
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        with io.StringIO() as shown:
            error.show(shown)
            click.echo(clean_lines(shown.getvalue()), err=True, nl=False)
        _error_object(as_json, "usage", error.format_message())
        return error.exit_code
    except UnspoolError as error:
        if debug:
            _print_traceback()
        report_error(error.code, str(error), as_json=as_json)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the one place where a bug ends; its text may hold what was indexed, so only its type is shown
        if debug:
            _print_traceback()
        message = (
            f"this is a bug in unspool: {type(error).__name__}; run again with --debug and "
            f"report it"
        )
        report_error("bug", message, as_json=as_json)
        return BUG
    return result if isinstance(result, int) else 0


def _print_traceback() -> None:
    click.echo(clean_lines(traceback.format_exc()), err=True, nl=False)


def report_error(code: str, message: str, *, as_json: bool) -> None:
    """Write an error to stderr, and with --json also as an object to stdout."""
    click.secho("error: ", fg="red", bold=True, err=True, nl=False)
    click.echo(clean(message), err=True)
    _error_object(as_json, code, message)


def _error_object(as_json: bool, code: str, message: str) -> None:
    if as_json:
        print_json(render.error(code, message))


def print_json(value: Mapping[str, Any]) -> None:
    """Write one object on one line of stdout, in UTF-8. All output of --json passes here."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    click.echo(escape_json(render.line(value)))


def note(message: str, *, kind: str = "note") -> None:
    """Write something about the result to stderr, for people."""
    click.secho(
        f"{kind}: {clean(message)}",
        fg="yellow" if kind == "warning" else None,
        dim=True if kind == "note" else None,
        err=True,
    )


_EXAMPLES = ('unspool search "how are sessions opened" .', "unspool status")


def _epilog(examples: tuple[str, str]) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)


@click.group(
    cls=Door, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_epilog(_EXAMPLES)
)
@click.version_option(__version__, prog_name="unspool")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def main() -> None:
    """Index code, documents and conversations, and find them again by meaning and by word."""


def group(
    name: str, brief: str, *, examples: tuple[str, str], takes: Sequence[str] | None = None
) -> Callable[[Function], click.Group]:
    """A command that is made of others.

    `brief` stands in the list. With `takes` it does something by itself, and has the flags of those
    settings.
    """

    def wrap(function: Function) -> click.Group:
        if takes is not None:
            function = click.option(
                "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
            )(function)
            for setting in reversed(takes):
                function = _setting_option(setting)(function)
        return main.group(
            name,
            short_help=brief,
            epilog=_epilog(examples),
            invoke_without_command=takes is not None,
        )(function)

    return wrap


def command(
    name: str,
    brief: str,
    *,
    examples: tuple[str, str],
    takes: Sequence[str] = ADDRESSES,
    within: click.Group | None = None,
) -> Callable[[Function], click.Command]:
    """A command, with the flags of the settings it takes (handed to it as `flags`), `--json`,
    `--color` and `--debug`. `brief` stands in the list; `within` is the group it belongs to, if it
    is not all commands'."""

    def wrap(function: Function) -> click.Command:
        for option in (
            click.option(
                "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
            ),
            click.option(
                "--color/--no-color",
                default=None,
                expose_value=False,
                callback=_set_color,
                help="Colour, whatever stdout is.",
            ),
            click.option(
                "--json", "as_json", is_flag=True, help="Print JSON, as docs/json.md describes it."
            ),
        ):
            function = option(function)
        for setting in reversed(takes):
            function = _setting_option(setting)(function)
        return (within or main).command(name, short_help=brief, epilog=_epilog(examples))(function)

    return wrap


def _set_color(ctx: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    ctx.color = value


def _setting_option(name: str) -> Callable[[Function], Function]:
    """The flag of a setting.

    Its text is taken as it is: `Settings.load` checks every layer's values in the same way.
    """

    def collect(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        ctx.params.setdefault("flags", {})[name] = value

    definition = DEFINITIONS[name]
    return click.option(
        "--" + name.replace("_", "-"),
        *_SHORT.get(name, ()),
        metavar=_METAVAR.get(name) or "|".join(definition.choices) or "N",
        expose_value=False,
        callback=collect,
        help=f"{definition.about[0].upper()}{definition.about[1:]}.",
    )


def color() -> bool | None:
    """What --color or --no-color said; None where stdout decides."""
    return click.get_current_context().color


@contextmanager
def opened(flags: Mapping[str, str | None]) -> Iterator[Corpus]:
    """Open the corpus that the settings name."""
    from unspool.corpus import open as open_corpus

    with open_corpus(settings=load_settings(flags)) as corpus:
        yield corpus


def load_settings(flags: Mapping[str, str | None]) -> Settings:
    """Return the settings of a command.

    Say on stderr which ones of the current folder are ignored.
    """
    return Settings.load(flags=flags, notify=lambda line: note(line, kind="warning"))
