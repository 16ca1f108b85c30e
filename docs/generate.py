"""Writes docs/reference/ from the code, and the output of the commands that the pages show.

python docs/generate.py              write the reference pages
python docs/generate.py --check      list the pages that are out of date, and exit with 1 if any
python docs/generate.py --outputs    also run every marked command and paste its output
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import io
import re
import shlex
import shutil
import sys
import tempfile
import unittest.mock
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import click
import http_reference
from tables import cell, table

import unspool
import unspool.aio
import unspool.client
from unspool import embedders, errors
from unspool.domain import continuations, filters
from unspool.domain.continuations import Cursor
from unspool.embedders import cohere, families, openai, voyage
from unspool.interfaces.cli import main
from unspool.interfaces.http import errors as http_errors
from unspool.settings import Settings
from unspool.settings.definitions import DEFINITIONS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
HOME = "/home/you"  # what the temporary folder is called on a page
SERVED = "postgresql.md"  # the page whose catalog is on a server
SERVER = "localhost:5432/unspool"  # what server and database are called there
_NOTE = (
    "<!-- Written by docs/generate.py from the code. Change the code or the generator, not this "
    "page. -->"
)
_CONTINUATION = re.compile(r'(?<=unspool more )[\w-]+|(?<="continuation": ")[\w-]+')
_RUN = re.compile(r"(?<=<!-- run -->\n)```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

WHAT_TO_DO = {
    "error": (
        "This is the root of the tree and is never raised by itself. Catch it to catch all the "
        "others."
    ),
    "config": (
        "Correct the setting that the message names. `unspool settings` shows every value and "
        "where it came from."
    ),
    "address": (
        "Give an address such as `sqlite:///notes.db` (relative), `sqlite:////var/lib/notes.db` "
        "(absolute) or "
        "`postgresql://user:password@host:port/database`; see "
        "[PostgreSQL](../postgresql.md#the-address)."
    ),
    "missing_dependency": "Run the install command that the message holds, or install the program that it names.",
    "access": "This is the parent of the three that follow and is never raised by itself.",
    "unauthenticated": (
        "Send a key that is in use: `Authorization: Bearer unspool_...`, or `UNSPOOL_KEY` for a "
        "client. `unspool key list` shows which there are."
    ),
    "forbidden": (
        "Use a key with the role that the message names; see [keys](../keys.md). A folder has to "
        "lie under one of `UNSPOOL_ROOTS`."
    ),
    "throttled": (
        "Wait `retry_after` seconds, then try again. `UNSPOOL_RATE_LIMIT` bounds the requests of "
        "a key, `UNSPOOL_SERVE_QUEUE` those of a process."
    ),
    "input": "Correct the value that the message names; it also says which values are allowed.",
    "ambiguous": (
        "Name the project. The message lists those that there are; `*` means all of them where "
        "several can be meant."
    ),
    "filter": (
        "Correct the field or the operator. The message lists those that exist; see "
        "[filters](filters.md)."
    ),
    "continuation": (
        "This is the parent of the six that follow and is never raised by itself. Search again "
        "from the first page."
    ),
    "continuation_malformed": "Copy the continuation whole from the page before. Asking with restart does not help.",
    "continuation_foreign": (
        "Open the catalog that gave it out (`UNSPOOL_DATABASE`), or search again here. Asking "
        "with restart does not help."
    ),
    "continuation_swept": (
        "Search again, or ask with restart, which helps where the catalog still knows what was "
        "asked."
    ),
    "continuation_expired": (
        "Search again, or ask with restart. `UNSPOOL_CONTINUATION_S` says how long continuations "
        "can be used."
    ),
    "continuation_outdated": "Search again, or ask with restart.",
    "continuation_denied": "Give the `caller` that searched, or search again. Asking with restart does not help.",
    "dimension": "Embed the vector with the corpus itself: `corpus.embed(text)`.",
    "too_large": "Send it in parts; `UNSPOOL_SERVE_MAX_BODY_BYTES` bounds what a request may send.",
    "not_found": "Check the name. `unspool status` lists the projects, `unspool documents` the documents.",
    "conflict": (
        "Read which two things contradict each other: another program's file or schema, a newer "
        "version, another embedder, another folder under "
        "the same project name, or a document at another version than the one that was read. "
        "Nothing was changed."
    ),
    "switched": (
        "Try again: the next attempt follows the catalog to the embedder whose vectors are in "
        "use now."
    ),
    "unsupported": "Use another way to ask; the message names the capability that the store lacks.",
    "service": "Look at the disk, the database or the program that the message names, then try again.",
    "unreachable": "Check the address and the network, then try again.",
    "timeout": "Try again when the other side is less busy, or raise the limit that the message names.",
    "overdue": "Ask for less, or later; `UNSPOOL_SERVE_TIMEOUT_S` bounds how long a request may take.",
    "rate_limited": "Wait `retry_after` seconds if the error has them, then try again.",
    "rejected": (
        "Check the key, the password, the quota or the rights of the user. Trying again does not "
        "help."
    ),
}

FIELDS = {
    "project": ("equal, one of, not", "the project's name", '{"project": "docs"}'),
    "document": (
        "equal, one of, not",
        "the document's whole path, exactly as stored",
        '{"document": "src/app.py"}',
    ),
    "path": (
        "glob, one of, not",
        "the document's path; a pattern without a slash matches the file name in any folder",
        '{"path": "src/**/*.py"}',
    ),
    "language": (
        "equal, one of, not",
        "the document's language in lower case",
        '{"language": ["python", "go"]}',
    ),
    "kind": ("equal, one of, not", "`code`, `docs`, `data` or `chat`", '{"kind": "code"}'),
    "heading": (
        "contains, one of, not",
        (
            "part of a heading above the chunk's first line, or of the one it begins with; case "
            "does "
            "not matter"
        ),
        '{"heading": "install"}',
    ),
    "modified": (
        "equal, one of, not, ranges",
        "when the document was last changed; a time without a zone is UTC",
        '{"modified": {"ge": "2026-01-01"}}',
    ),
    "conversation": (
        "equal, one of, not",
        "the conversation's whole id; documents have none",
        '{"conversation": "stand-up"}',
    ),
    "speaker": (
        "equal, one of, not",
        (
            "who said a message, by name in any case, or by kind: `user`, `assistant`, `system`, "
            "`tool`"
        ),
        '{"speaker": ["ann", "assistant"]}',
    ),
    "time": (
        "equal, one of, not, ranges",
        "when a message was said; a time without a zone is UTC",
        '{"time": {"ge": "2026-01-01"}}',
    ),
}

OPERATORS = (
    (
        "equal",
        "`field=value`",
        '`{"field": "value"}` or `{"field": {"eq": "value"}}`',
        "the value; for `path` a glob, for `heading` a part of it",
    ),
    (
        "one of",
        "`field=a,b`",
        '`{"field": ["a", "b"]}` or `{"field": {"in": ["a", "b"]}}`',
        "any of the values, at most 1000; of `path`, `heading`, `speaker` and times at most 100",
    ),
    (
        "not",
        "`field!=value`",
        '`{"field": {"not": "value"}}`',
        "everything else, also what has no such field; a list means none of them",
    ),
    (
        "less",
        "`field<value`",
        '`{"field": {"lt": 3}}`',
        "`modified`, `time` and `metadata.<key>` only",
    ),
    ("at most", "`field<=value`", '`{"field": {"le": 3}}`', "the same"),
    ("greater", "`field>value`", '`{"field": {"gt": 3}}`', "the same"),
    ("at least", "`field>=value`", '`{"field": {"ge": 3}}`', "the same"),
    (
        "and",
        "several `--where`",
        '`{"a": 1, "b": 2}` or `{"all": [{...}, {...}]}`',
        "every part must hold",
    ),
    ("or", "`--filter`", '`{"any": [{...}, {...}]}`', "at least one part must hold"),
    (
        "not (a whole filter)",
        "`--filter`",
        '`{"not": {...}}`',
        "true where the inner filter is not",
    ),
)


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    made = {
        "commands": commands(),
        "settings": settings_page(),
        "errors": errors_page(),
        "python": python(),
        "filters": filters_page(),
    }
    made |= {"embedders": embedders_page(), "http": http_reference.page(_NOTE)}
    return {REFERENCE / f"{name}.md": text.rstrip() + "\n" for name, text in made.items()}


def embedders_page() -> str:
    """Every provider, what is known of hosted models, and the prefixes of well-known families."""
    out = [
        "# Embedders",
        "",
        _NOTE,
        "",
        "How to choose and use them is told in [embedders](../embedders.md).",
        "",
    ]
    rows = [
        [
            f"`{name}`",
            one.about,
            f"`unspool[{one.extra}]`" if one.extra else "",
            f"`{one.driver}`" if one.driver else "",
        ]
        for name, one in embedders.PROVIDERS.items()
    ]
    out += table(["provider", "what it is", "install", "package"], rows)
    out += [
        "",
        "## Hosted models",
        "",
        (
            "As their makers published it in November 2026. Other models work, too; what is not "
            "known is found out or can be set."
        ),
    ]
    out += [
        (
            "Prices are in US dollars for a million tokens; `unspool reembed` shows what a catalog "
            "would cost."
        ),
        "",
    ]
    known = [
        *(
            (f"openai:{name}", one.dimension, openai.MAX_TOKENS, one.price)
            for name, one in openai.KNOWN.items()
        ),
        *(
            (f"cohere:{name}", cohere.DIMENSIONS[name], cohere.MAX_TOKENS.get(name, 512), price)
            for name, price in cohere.PRICES.items()
        ),
        *(
            (f"voyage:{name}", voyage.DIMENSION, voyage.MAX_TOKENS, price)
            for name, price in voyage.PRICES.items()
        ),
    ]
    rows = [
        [f"`{name}`", str(dimension), str(tokens), f"{price:.2f}"]
        for name, dimension, tokens, price in known
    ]
    out += table(["setting", "dimensions", "tokens of a text", "price"], rows)
    out += [
        "",
        "## Prefixes",
        "",
        (
            "A folder's own prompts go first. Otherwise the first of these parts that is in a "
            "model's name decides."
        ),
        "",
    ]
    rows = [
        [
            f"`{one.part}`",
            f"`{one.query}`" if one.query else "none",
            f"`{one.passage}`" if one.passage else "none",
        ]
        for one in families.FAMILIES
    ]
    return "\n".join(out + table(["in the name", "before a query", "before a passage"], rows))


# Commands


def commands() -> str:
    """Every command with its arguments, flags and examples."""
    group = click.Context(main, info_name="unspool")
    names = main.list_commands(group)
    out = ["# Commands", "", _NOTE, ""]
    out += [
        (
            "Results go to stdout, everything else to stderr. `--json` is described in "
            "[JSON](../json.md)."
        ),
        "",
    ]
    out += table(
        ["command", "what it does"],
        [
            [f"[`unspool {name}`](#{name})", main.commands[name].get_short_help_str(200)]
            for name in names
        ],
    )
    out += [
        "",
        "| exit code | means |",
        "| --- | --- |",
        "| 0 | done |",
        "| 1 | nothing found, or no such path, project or document |",
    ]
    out += [
        (
            "| 2 | something must be changed: a flag, a setting, a filter; for `doctor`, a check "
            "is "
            "not ok |"
        )
    ]
    out += [
        "| 3 | a system that unspool calls failed; for `index`, every document of a source did |",
        "| 70 | a bug in unspool |",
    ]
    out += ["| 130 | interrupted |"]
    for name in names:
        out += ["", *_command(name, main.commands[name])]
        command = main.commands[name]
        if isinstance(command, click.Group):
            for part in command.list_commands(group):
                out += ["", *_command(f"{name} {part}", command.commands[part])]
    return "\n".join(out)


def _command(name: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join(["unspool", name, *command.collect_usage_pieces(context)])
    # The help flag is not asked for: click makes it when it is first needed, and remembers under
    # which names that was.
    rows = [_option(option) for option in command.params if isinstance(option, click.Option)]
    rows.append(["`-h`, `--help`", "", "Show the help and exit."])
    examples = [
        line.strip()
        for line in (command.epilog or "").splitlines()
        if line.strip().startswith("unspool ")
    ]
    flags = table(["flag", "value", "meaning"], rows)
    return [
        f"## {name}",
        "",
        f"`{usage}`",
        "",
        inspect.cleandoc(command.help or ""),
        "",
        *flags,
        "",
        "```sh",
        *examples,
        "```",
    ]


def _option(option: click.Option) -> list[str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    choices = "&#124;".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
    value = "" if option.is_flag else f"`{option.metavar}`" if option.metavar else choices
    about = option.help or "Show the help and exit."
    variable = (
        DEFINITIONS[option.name].variable if option.name in DEFINITIONS and option.name else ""
    )
    often = (
        " Can be given several times." if option.multiple and "several times" not in about else ""
    )
    return [
        names,
        value,
        cell(about)
        + often
        + (f" Also `{variable}`." if variable and option.name != "project" else ""),
    ]


# Settings


def settings_page() -> str:
    """Every setting with its flag, variable, default and range."""
    rows = []
    defaults = Settings()
    for name, one in DEFINITIONS.items():
        span = (
            f"{one.low} to {one.high}"
            if one.low is not None
            else ", ".join(f"`{choice}`" for choice in one.choices)
        )
        default = one.format(defaults.get(name))
        rows.append(
            [
                f"`{name}`",
                f"`{one.variable}`",
                f"`{default}`" if default else "",
                span,
                "yes" if one.from_folder else "",
                cell(one.about),
            ]
        )
    out = ["# Settings", "", _NOTE, ""]
    out += ["A value is looked for in this order; the first one found wins:", ""]
    out += [
        "1. an argument in Python: `unspool.open(database)`",
        "2. a flag: `--max-tokens 4000`",
        "3. a variable: `UNSPOOL_MAX_TOKENS=4000`",
    ]
    out += [
        "4. a line in `.env` in the current folder: `UNSPOOL_MAX_TOKENS=4000`",
        "5. a line in `unspool.toml` in the current folder: `max_tokens = 4000`",
    ]
    out += [
        "6. the default",
        "",
        "`unspool settings` shows every value and where it came from.",
        "",
    ]
    out += [
        (
            "In a folder that you do not [trust](../security.md#trusted-folders), the two files "
            "can only set harmless settings. "
            "Everything else in them is ignored."
        ),
        "",
    ]
    out += table(["setting", "variable", "default", "range", "harmless", "meaning"], rows)
    out += [
        "",
        (
            "A setting's flag is its name with hyphens. Which flags a command takes is listed in "
            "[commands](commands.md)."
        ),
    ]
    out += [
        (
            "An unknown name in `unspool.toml` of a trusted folder, or a value out of range "
            "anywhere else, is an error. "
            "Other `UNSPOOL_*` variables are left alone."
        )
    ]
    return "\n".join(out)


# Errors


def error_classes() -> list[type[errors.UnspoolError]]:
    """The whole tree, parents first."""

    def below(one: type[errors.UnspoolError]) -> Iterator[type[errors.UnspoolError]]:
        yield one
        for child in one.__subclasses__():
            yield from below(child)

    return [
        one
        for one in below(errors.UnspoolError)
        if one.__module__ == errors.__name__ and "code" in vars(one)
    ]


def errors_page() -> str:
    """Every error with its codes and what to do about it."""
    drawing = [line[4:] for line in (errors.__doc__ or "").splitlines() if line.startswith("    ")]
    out = ["# Errors", "", _NOTE, ""]
    out += [
        "Everything that unspool raises on purpose is an `UnspoolError`. Anything else is a bug."
    ]
    out += [
        "A message says what happened, with which value, and what to do next.",
        "",
        "```text",
        *drawing,
        "```",
        "",
    ]
    rows = []
    for one in error_classes():
        retry = "yes" if one.retryable else "no"
        rows.append(
            [
                f"[`{one.code}`](#{one.code})",
                f"`{one.__name__}`",
                str(one.exit_code),
                str(one.http_status),
                retry,
            ]
        )
    out += table(["code", "class", "exit code", "HTTP status", "worth retrying"], rows)
    out += [
        "",
        (
            "`unspool` prints `error: ...` on stderr and leaves with the exit code; `--debug` adds "
            "the traceback, `--json` an object with the code."
        ),
    ]
    out += [
        (
            "Two more codes appear in JSON only: `usage` for a wrong command line (exit code 2), "
            "`bug` for a fault of unspool (exit code 70, HTTP 500)."
        )
    ]
    out += ["", "The HTTP service has a few more, about requests themselves:", ""]
    own = [
        one
        for one in vars(http_errors).values()
        if inspect.isclass(one) and one.__module__ == http_errors.__name__ and "code" in vars(one)
    ]
    out += table(
        ["code", "HTTP status", "meaning"],
        [[f"`{one.code}`", str(one.http_status), _first(one)] for one in own if one.code != "bug"],
    )
    for one in error_classes():
        parents = [
            base.__name__
            for base in one.__bases__
            if base.__module__ == "builtins" and base is not Exception
        ]
        also = f" It is also a `{'`, `'.join(parents)}`." if parents else ""
        out += [
            "",
            f"## {one.code}",
            "",
            f"`unspool.errors.{one.__name__}`: {_first(one)}{also}",
            "",
            f"What to do: {WHAT_TO_DO[one.code]}",
        ]
    return "\n".join(out)


def _first(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


# Python


def python() -> str:
    """Every public name with its signature and docstring."""
    out = [
        "# Python",
        "",
        _NOTE,
        "",
        (
            "Everything here is imported from `unspool`. Errors are in `unspool.errors`; see "
            "[errors](errors.md)."
        ),
        "",
    ]
    names = sorted(
        unspool.__all__,
        key=lambda name: (name not in ("open", "Corpus"), name == "Corpus", name.lower()),
    )
    out += [
        ", ".join(f"[`{name}`](#{name.lower()})" for name in names)
        + ", [`unspool.aio`](#unspoolaio), [`unspool.client`](#unspoolclient)"
    ]
    for name in names:
        out += ["", *_public(name, getattr(unspool, name))]
    out += ["", "## unspool.aio", "", inspect.getdoc(unspool.aio) or "", ""]
    asynchronous, remote = unspool.aio.AsyncCorpus, unspool.client.RemoteCorpus
    out += [
        (
            f"`AsyncCorpus` has the methods of [`Corpus`](#corpus) as coroutines: "
            f"{', '.join(_methods(asynchronous))}."
        )
    ]
    out += ["", "## unspool.client", "", inspect.getdoc(unspool.client) or "", ""]
    out += [
        (
            f"`RemoteCorpus` has these methods of [`Corpus`](#corpus), `AsyncRemoteCorpus` the "
            f"same "
            f"as coroutines: {', '.join(_methods(remote))}."
        )
    ]
    return "\n".join(out)


def _public(name: str, thing: Any) -> list[str]:
    out = [f"## {name}", ""]
    if inspect.isfunction(thing):
        return [
            *out,
            "```python",
            f"unspool.{name}{_signature(thing)}",
            "```",
            "",
            inspect.getdoc(thing) or "",
        ]
    out += [inspect.getdoc(thing) or ""]
    if issubclass(thing, Enum):
        return [
            *out,
            "",
            "Values: " + ", ".join(f"`{one.name}` (`{one.value}`)" for one in thing) + ".",
        ]
    rows = _rows(thing)
    if rows:
        out += ["", *table(["field", "type", "default"], rows)]
    for method in _methods(thing):
        out += [
            "",
            *_member(name, method.strip("`"), inspect.getattr_static(thing, method.strip("`"))),
        ]
    return out


def _rows(thing: type) -> list[list[str]]:
    if dataclasses.is_dataclass(thing):
        shown = [one for one in dataclasses.fields(thing) if one.name != "origins"]
        return [[f"`{one.name}`", f"`{cell(str(one.type))}`", _default(one)] for one in shown]
    if hasattr(thing, "_fields"):
        notes = inspect.get_annotations(thing)
        return [
            [f"`{one}`", f"`{getattr(notes[one], '__forward_arg__', notes[one])}`", ""]
            for one in thing._fields
        ]
    return []


def _default(one: dataclasses.Field[Any]) -> str:
    if one.default is not dataclasses.MISSING:
        return f"`{_literal(one.default)}`"
    if one.default_factory is not dataclasses.MISSING:
        return "`{}`" if one.default_factory is dict else f"`{one.default_factory.__name__}()`"
    return ""


def _literal(value: object) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return f"{type(value).__name__}()" if dataclasses.is_dataclass(value) else repr(value)


def _methods(thing: type) -> list[str]:
    kinds = (classmethod, property)
    return [
        f"`{name}`"
        for name, one in vars(thing).items()
        if not name.startswith("_") and (inspect.isfunction(one) or isinstance(one, kinds))
    ]


def _member(owner: str, name: str, member: Any) -> list[str]:
    if isinstance(member, property):
        result = inspect.get_annotations(member.fget).get("return", "") if member.fget else ""
        return [
            f"### {owner}.{name}",
            "",
            "```python",
            f"{owner.lower()}.{name}  # {result}",
            "```",
            "",
            inspect.getdoc(member) or "",
        ]
    function: Callable[..., Any] = member.__func__ if isinstance(member, classmethod) else member
    called = owner if isinstance(member, classmethod) else owner.lower()
    return [
        f"### {owner}.{name}",
        "",
        "```python",
        f"{called}.{name}{_signature(function)}",
        "```",
        "",
        inspect.getdoc(function) or "",
    ]


def _signature(function: Callable[..., Any]) -> str:
    parts: list[str] = []
    starred = False
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        star = "*" if one.kind is inspect.Parameter.VAR_POSITIONAL else ""
        starred = starred or bool(star)
        parts.append(
            f"{star}{one.name}: {one.annotation}"
            + ("" if one.default is inspect.Parameter.empty else f" = {_literal(one.default)}")
        )
    returned = inspect.signature(function).return_annotation
    line = f"({', '.join(parts)}) -> {returned}"
    return line if len(line) < 100 else "(\n    " + ",\n    ".join(parts) + f",\n) -> {returned}"


# Filters


def filters_page() -> str:
    """Every field and operator of a filter."""
    out = ["# Filters", "", _NOTE, ""]
    out += [
        (
            "A filter says what a hit must be. On the command line it is `--where FIELD=VALUE`, "
            "given as often as needed, or `--filter JSON` for the"
        )
    ]
    out += ["whole of it; in Python it is the argument `where`, a mapping.", "", "## Fields", ""]
    rows = [
        [f"`{name}`", FIELDS[name][0], FIELDS[name][1], f"`{FIELDS[name][2]}`"]
        for name in filters.FIELDS
    ]
    rows.append(
        [
            "`metadata.<key>`",
            "equal, one of, not, ranges",
            "a value from the document's own metadata",
            '`{"metadata.year": {"ge": 2024}}`',
        ]
    )
    out += table(["field", "operators", "meaning", "example"], rows)
    out += [
        "",
        "## Operators",
        "",
        *table(
            ["operator", "on the command line", "in Python and JSON", "meaning"],
            [list(row) for row in OPERATORS],
        ),
    ]
    out += [
        "",
        (
            "The signs `=`, `==`, `!=`, `<`, `<=`, `>` and `>=` may also stand in a mapping in "
            "place "
            "of the words."
        ),
    ]
    out += [
        (
            "A filter may be nested 20 deep. An unknown field or operator is a "
            "[`filter`](errors.md#filter) error that lists the known ones."
        )
    ]
    out += ["", "## Globs", "", *table(["pattern", "matches"], [
        ["`*`", "any characters inside one folder or file name"],
        ["`?`", "one such character"],
        ["`[abc]`, `[!abc]`", "one of these characters, or none of them"],
        ["`**`", "any characters, across folders: `src/**/*.py`"],
        ["`docs/`", "everything below that folder"],
        ["`*.md`", "no slash: the file name, in any folder"],
    ])]  # fmt: skip
    out += ["", "## Values on the command line", ""]
    out += [
        (
            "For `metadata.<key>`, `true` and `false` become booleans and numbers become numbers. "
            "Quotes keep a value as one string:"
        )
    ]
    out += ["`--where 'metadata.version=\"2.0\"'`. Commas part several values."]
    return "\n".join(out)


# Outputs of commands


class Shown(NamedTuple):
    """A command on a page and what the page says that it prints."""

    command: str
    output: str


def shown(block: str) -> list[Shown]:
    """The commands of a console block."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [
        Shown(command.rstrip("\n"), output.rstrip("\n"))
        for command, _, output in (part.partition("\n") for part in parts)
    ]


def blocks(text: str) -> list[list[Shown]]:
    """The blocks of a page that are run."""
    return [shown(found.group(1)) for found in _RUN.finditer(text)]


@contextlib.contextmanager
def place(page: Path, server: str = "") -> Iterator[Callable[[str], str]]:
    """A way to run the commands of a page, in order; each call returns what the command printed.

    `server` is an empty database's address.
    """
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        home = Path(made).resolve()
        shutil.copytree(DOCS / "sample", home / "docs" / "sample")
        address = f"sqlite:///{(home / '.local' / 'share' / 'unspool' / 'unspool.db').as_posix()}"
        called = {str(home): HOME}
        if page.name == SERVED:
            address = server or stack.enter_context(served())
            called[address.rpartition("@")[2]] = SERVER
        with contextlib.chdir(ROOT if page.name == "README.md" else home):
            real: dict[str, str] = {}  # continuations by what the page shows in their place

            def execute(command: str) -> str:
                printed = run(
                    _CONTINUATION.sub(
                        lambda found: real.get(found.group(), found.group()), command
                    ),
                    address,
                )
                printed = _CONTINUATION.sub(lambda found: _stand_in(found.group(), real), printed)
                for meant, stand_in in called.items():
                    printed = printed.replace(meant, stand_in)
                return printed

            yield execute


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of an empty database on a server that is started for it, as for the tests."""
    sys.path.insert(0, str(ROOT / "tests"))
    import servers

    with servers.PostgresServer.start(settings={"max_connections": "100"}) as server:
        yield server.create_database()


def _stand_in(continuation: str, real: dict[str, str]) -> str:
    """What a page shows for a continuation: the first, second, third one of a page are the same
    whatever the run.
    """
    known = next((shown for shown, meant in real.items() if meant == continuation), None)
    if known is None:
        count = len(real) + 1
        name = hashlib.sha256(str(count).encode()).digest()[: continuations.NAME_BYTES]
        known = continuations.write(
            bytes([name[0] & 0b00011111]) + name[1:],
            Cursor(position=count, number=count, shown=count),
            catalog="docs",
            key=b"",
        )
        assert known is not None
        real[known] = continuation
    return known


def run(command: str, address: str) -> str:
    """What a command line prints on stdout and stderr together.

    Of `a && b` only the part that is unspool's is run.
    """
    words = next(
        words
        for part in command.split(" && ")
        if Path((words := shlex.split(part))[0]).name == "unspool"
    )[1:]
    printed = io.StringIO()
    # By the environment, as a reader has it: what a flag names is repeated in what is printed.
    named = unittest.mock.patch.dict("os.environ", {DEFINITIONS["database"].variable: address})
    with (
        named,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        contextlib.suppress(SystemExit),
    ):
        main(words)
    return printed.getvalue().rstrip()


def with_outputs(page: Path) -> str:
    """The page with the output of every command that is run."""
    text = page.read_text(encoding="utf-8")
    if not blocks(text):
        return text
    with place(page) as execute:

        def renewed(found: re.Match[str]) -> str:
            parts = [f"$ {one.command}\n{execute(one.command)}" for one in shown(found.group(1))]
            return "```console\n" + "\n\n".join(part.rstrip() for part in parts) + "\n```"

        return _RUN.sub(renewed, text)


def everything() -> int:
    """What the command line asks for; returns the exit code."""
    arguments = sys.argv[1:]
    wanted = pages()
    if "--outputs" in arguments:
        wanted |= {
            page: with_outputs(page) for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
        }
    changed = [
        page
        for page, text in wanted.items()
        if not page.exists() or page.read_text(encoding="utf-8") != text
    ]
    for page in changed:
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")
        if "--check" not in arguments:
            page.parent.mkdir(exist_ok=True)
            page.write_text(wanted[page], encoding="utf-8")
    return int("--check" in arguments and bool(changed))


if __name__ == "__main__":
    sys.exit(everything())
