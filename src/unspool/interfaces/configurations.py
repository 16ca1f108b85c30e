"""Servers in the configuration files of other programs: put in, replaced and taken out as text, so
that all else stays as it is.

Every function is pure: text in, text out. What a function made is read again and compared with what
was there; a file whose other content would not be the same afterwards, or that cannot be read at
all, is an `UnclearError` and never a guess.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from unspool.errors import MissingDependencyError

Entry = Mapping[str, Any]

_BOM = "\ufeff"
_WHITE = re.compile(r"[ \t\r\n]*")
_UNIT = "  "
# what the first line of a table in TOML looks like
_HEAD = re.compile(r"\s*\[\[?[^\[\]]+\]\]?\s*(?:#.*)?")
# the strings that come first hide a '#' that is in them
_COMMENT = re.compile(r"""\"(?:\\.|[^"\\\n])*"|'[^'\n]*'|(#[^\n]*)""")


class UnclearError(ValueError):
    """A file that is not changed, because what it says cannot be kept for certain; the message
    says why, without the file's text.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Where a program looks for its servers: under a key at the top of a file in a language."""

    key: str
    language: Literal["json", "toml"]


def entry_in(text: str | None, table: Table, name: str) -> Entry | None:
    """The server of that name, or None."""
    servers = _servers(_parsed(text or "", table), table)
    found = servers.get(name)
    if found is not None and not isinstance(found, dict):
        raise UnclearError(f"{table.key}.{name} is not a table of values")
    return found


def with_entry(text: str | None, table: Table, name: str, entry: Entry) -> str:
    """The text with the server in it; one of the same name is replaced.

    The same text if it is there already.
    """
    if text is None or not text.removeprefix(_BOM).strip():
        return _fresh(table, name, entry)
    if entry_in(text, table, name) == entry:
        return text
    ways = _json_with if table.language == "json" else _toml_with
    return _kept(text, ways(text, table.key, name, entry), table, name, entry)


def without_entry(text: str, table: Table, name: str, *, prune: bool) -> str:
    """The text without the server. With `prune` a table of servers that is empty then goes, too."""
    if entry_in(text, table, name) is None:
        return text
    ways = _json_without if table.language == "json" else _toml_without
    return _kept(text, ways(text, table.key, name, prune), table, name, None)


def undone(
    text: str, before: str | None, table: Table, name: str, *, ours: Callable[[Entry], bool]
) -> str | None:
    """The text as it would be had the server never been put in; None: there would be no file.

    `before` is what was in the file at that time, None if there was none or nobody knows. Where
    nothing else has changed since, it comes back byte for byte. What had the same name before comes
    back as well, unless it is `ours`, too. A file goes only if all of it was made here.
    """
    entry = entry_in(text, table, name)
    if entry is None:
        return text
    earlier = _earlier(before, table, name)
    previous = earlier.get(name) if earlier is not None else None
    foreign = previous if isinstance(previous, dict) and not ours(previous) else None
    if (
        before is not None
        and earlier is not None
        and (previous is None or foreign is not None)
        and with_entry(before, table, name, entry) == text
    ):
        return before
    if foreign is not None:
        return with_entry(text, table, name, foreign)
    made_here = before is None or (previous is not None and before == _fresh(table, name, previous))
    prune = made_here or earlier is None or table.key not in _parsed(before or "", table)
    rest = without_entry(text, table, name, prune=prune)
    return None if made_here and text == _fresh(table, name, entry) else rest


def drops_comments(before: str, after: str | None) -> bool:
    """Whether somebody's remarks are not there any more."""
    return bool(_comments(before) - _comments(after or ""))


def _earlier(before: str | None, table: Table, name: str) -> Mapping[str, Any] | None:
    """The servers that were there; None where that cannot be told."""
    if before is None:
        return None
    try:
        return _servers(_parsed(before, table), table)
    except UnclearError:
        return None


def _kept(before: str, ways: Iterator[str], table: Table, name: str, entry: Entry | None) -> str:
    """The first text that says of the one server what it should, and of all else what `before`
    says.
    """
    rest, remarks = _others(before, table, name), _remarks(before, table, name)
    for after in ways:
        try:
            if (
                entry_in(after, table, name) == entry
                and _others(after, table, name) == rest
                and not remarks - _comments(after)
            ):
                return after
        except UnclearError:  # this way leads nowhere; perhaps the next one does
            continue
    raise UnclearError("it is written in a way in which it cannot be changed without changing more")


def _others(text: str, table: Table, name: str) -> dict[str, Any]:
    everything = _parsed(text, table)
    rest = {key: value for key, value in _servers(everything, table).items() if key != name}
    return {
        **{key: value for key, value in everything.items() if key != table.key},
        **({table.key: rest} if rest else {}),
    }


def _remarks(text: str, table: Table, name: str) -> Counter[str]:
    """The comments that are not about the one server."""
    if table.language == "json":
        return Counter()
    return _comments(next(_toml_cut(text, table.key, name, "")))


def _comments(text: str) -> Counter[str]:
    """What stands behind a '#' that is in no string; JSON has none."""
    return Counter(found[1].strip() for found in _COMMENT.finditer(text) if found[1])


def _servers(everything: Mapping[str, Any], table: Table) -> Mapping[str, Any]:
    servers = everything.get(table.key, {})
    if not isinstance(servers, dict):
        raise UnclearError(f"{table.key} is not a table of servers")
    return servers


def _parsed(text: str, table: Table) -> dict[str, Any]:
    text = text.removeprefix(_BOM)
    if not text.strip():
        return {}
    try:
        # Numbers stay text: what is compared is what is written, whatever its size.
        everything = (
            _DECODER.decode(text)
            if table.language == "json"
            else tomllib.loads(text, parse_float=str)
        )
    except RecursionError:
        raise UnclearError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UnclearError(
            f"line {error.lineno} is not plain JSON: a comment, a trailing comma or a mistake"
        ) from None
    except ValueError as error:  # TOMLDecodeError, and what a number can be guilty of
        where = re.search(r"line \d+", str(error))
        raise UnclearError(
            f"{where[0] if where else 'something in it'} is not {table.language.upper()}"
        ) from None
    if not isinstance(everything, dict):
        raise UnclearError("it holds no object")
    return everything


def _fresh(table: Table, name: str, entry: Entry) -> str:
    """A file with that server and nothing else."""
    if table.language == "toml":
        return _toml_block(table.key, name, entry)
    return json.dumps({table.key: {name: entry}}, indent=_UNIT, ensure_ascii=False) + "\n"


# JSON


class _Member(NamedTuple):
    key: str
    at: int  # of the key's first quote
    colon: int  # right behind the key's last
    value: int
    end: int


class _Object(NamedTuple):
    at: int  # of its opening brace
    members: list[_Member]
    end: int  # of its closing brace


def _refuse(constant: str) -> object:
    raise json.JSONDecodeError(f"{constant} is no JSON", "", 0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnclearError("a key stands twice in one object")
    return found


_DECODER = json.JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=_refuse, object_pairs_hook=_unique
)


def _white(text: str, at: int) -> int:
    found = _WHITE.match(text, at)
    return found.end() if found else at


def _object(text: str, at: int) -> _Object:
    """The object that begins there, in a text that is known to be JSON."""
    members = []
    here = _white(text, at + 1)
    while text[here] != "}":
        key, colon = _DECODER.raw_decode(text, here)
        value = _white(text, _white(text, colon) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_Member(key, here, colon, value, end))
        here = _white(text, end)
        if text[here] == ",":
            here = _white(text, here + 1)
    return _Object(at, members, here)


def _top(text: str) -> _Object:
    return _object(text, _white(text, len(_BOM) if text.startswith(_BOM) else 0))


def _member(found: _Object, key: str) -> _Member | None:
    return next((one for one in found.members if one.key == key), None)


def _json_with(text: str, key: str, name: str, entry: Entry) -> Iterator[str]:
    top = _top(text)
    servers = _member(top, key)
    inside = _object(text, servers.value) if servers else None
    there = _member(inside, name) if inside else None
    if there is not None:
        yield (
            text[: there.value] + _json_value(text, entry, _gap(text, there.at)) + text[there.end :]
        )
    elif inside is not None:
        yield _json_put(text, inside, name, entry)
    else:
        yield _json_put(text, top, key, {name: entry})


def _json_without(text: str, key: str, name: str, prune: bool) -> Iterator[str]:
    top = _top(text)
    servers = _member(top, key)
    assert servers is not None
    inside = _object(text, servers.value)
    yield (
        _json_drop(text, top, key)
        if prune and len(inside.members) == 1
        else _json_drop(text, inside, name)
    )


def _json_put(text: str, there: _Object, key: str, value: Any) -> str:
    """The text with one more member at the end of an object, written as those before it are."""
    quoted = json.dumps(key, ensure_ascii=False)
    if there.members:
        last = there.members[-1]
        gap, colon = _gap(text, last.at), text[last.colon : last.value]
        return (
            text[: last.end]
            + ","
            + gap
            + quoted
            + colon
            + _json_value(text, value, gap)
            + text[last.end :]
        )
    line = text[text.rfind("\n", 0, there.at) + 1 : there.at].removeprefix(_BOM)
    base = line[: len(line) - len(line.lstrip())]
    whole = text.removeprefix(_BOM).strip()
    # an object with nothing in it does not show how the file is written
    broken = "\n" in whole or not whole[1:-1].strip()
    newline = _newline(text)
    gap = f"{newline}{base}{_unit(text)}" if broken else ""
    close = f"{newline}{base}" if broken else ""
    return (
        text[: there.at + 1]
        + gap
        + quoted
        + ": "
        + _json_value(text, value, gap)
        + close
        + text[there.end :]
    )


def _json_drop(text: str, there: _Object, key: str) -> str:
    """The text without one member of an object: the inverse of `_json_put` for the last."""
    position = next(n for n, one in enumerate(there.members) if one.key == key)
    if position:
        return text[: there.members[position - 1].end] + text[there.members[position].end :]
    if len(there.members) > 1:
        return text[: there.members[0].at] + text[there.members[1].at :]
    return text[: there.at + 1] + text[there.end :]


def _json_value(text: str, value: Any, gap: str) -> str:
    """A value as JSON: on lines of its own if what it stands beside is."""
    if "\n" not in gap:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_newline(text) + gap.rsplit("\n", 1)[1]).join(lines)


def _gap(text: str, at: int) -> str:
    """The white space before a position."""
    begin = at
    while begin and text[begin - 1] in " \t\r\n":
        begin -= 1
    white = text[begin:at]
    newline = _newline(text)
    return newline + white.rsplit("\n", 1)[1] if "\n" in white else white


def _unit(text: str) -> str:
    """One step of indentation, as the file's first member shows it."""
    found = re.match(r"\s*\{[ \t]*\r?\n([ \t]+)\"", text.removeprefix(_BOM))
    return found[1] if found else _UNIT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# TOML


def _toml_block(key: str, name: str, entry: Entry) -> str:
    tomlkit = _tomlkit()
    return (
        "\n".join(
            [
                f"[{key}.{name}]",
                *(f"{field} = {tomlkit.item(value).as_string()}" for field, value in entry.items()),
            ]
        )
        + "\n"
    )


def _toml_with(text: str, key: str, name: str, entry: Entry) -> Iterator[str]:
    newline = _newline(text)
    block = _toml_block(key, name, entry).replace("\n", newline)

    def change(servers: Any) -> None:
        if name not in servers:
            servers[name] = _tomlkit().inline_table()
        for field in [field for field in servers[name] if field not in entry]:
            del servers[name][field]
        for field, value in entry.items():
            if servers[name].get(field) != value:
                servers[name][field] = value

    yield (
        text + ("" if text.endswith("\n") else newline) + newline + block
    )  # does not parse where there is one already, or where no table can be added
    yield from _toml_changed(text, key, change)
    yield from _toml_cut(text, key, name, block)


def _toml_without(text: str, key: str, name: str, prune: bool) -> Iterator[str]:
    def change(servers: Any) -> None:
        del servers[name]

    yield from _toml_cut(text, key, name, "")
    yield from _toml_changed(text, key, change, prune=prune)
    if prune:
        # what is empty then may have a remark behind it
        yield from _toml_changed(text, key, change)


def _toml_cut(text: str, key: str, name: str, block: str) -> Iterator[str]:
    """The text with another block in the place of a server's tables."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    heads = [
        n
        for n, line in enumerate(lines)
        if _HEAD.fullmatch(line.rstrip()) and _is_whole("".join(lines[:n]))
    ]
    own = re.compile(rf"\s*\[\s*(['\"]?){key}\1\s*\.\s*(['\"]?){name}\2\s*[.\]].*")
    spans = []
    for begin, end in pairwise([*heads, len(lines)]):
        if own.fullmatch(lines[begin].rstrip()):
            # those are about what comes next
            while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
                end -= 1
            spans.append((begin, end))
    for begin, end in reversed(spans):
        if block and begin == spans[0][0]:
            lines[begin:end] = [block]
            continue
        alone = (
            begin and not lines[begin - 1].strip() and (end == len(lines) or not lines[end].strip())
        )
        del lines[begin - 1 if alone else begin : end]
    yield "".join(lines)


def _is_whole(text: str) -> bool:
    """Whether no string and no list goes on after the text."""
    try:
        tomllib.loads(text.removeprefix(_BOM))
    except tomllib.TOMLDecodeError:
        return False
    return True


def _toml_changed(
    text: str, key: str, change: Callable[[Any], None], *, prune: bool = False
) -> Iterator[str]:
    """The text after a change to its table of servers, comments and all; nothing where tomlkit
    cannot write the text back as it is.
    """
    tomlkit = _tomlkit()
    mark = _BOM if text.startswith(_BOM) else ""
    try:
        document = tomlkit.parse(text.removeprefix(_BOM))
        if mark + tomlkit.dumps(document) != text:
            return
        change(document[key])
        if prune and not document[key]:
            del document[key]
        changed = mark + tomlkit.dumps(document)
    # what it says of tables that it cannot edit
    except (tomlkit.exceptions.TOMLKitError, ValueError, KeyError, TypeError, AttributeError):
        return
    yield changed


def _tomlkit() -> Any:
    try:
        import tomlkit
    except ModuleNotFoundError as error:
        if error.name != "tomlkit":
            raise
        raise MissingDependencyError(
            "changing a TOML file needs the package tomlkit; pip install 'unspool[mcp]'"
        ) from error
    return tomlkit
