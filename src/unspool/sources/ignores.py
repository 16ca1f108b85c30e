"""Which names a `.gitignore` or `.unspoolignore` leaves out, as git itself would decide.

The patterns are translated here and not by `pathspec` 1.1: measured against git 2.39 that one
misreads `[[:digit:]]`, escapes in brackets and trailing tabs, raises on the valid `[a-\\]]`, and
needs 1.5 s for `*a*a*a*a*a*a*b` on a name of 60 characters. What is built here is linear in the
name, whatever a cloned repository puts into its ignore files.

One difference is on purpose: git lets `a**` and `a**/b` reach through folders by accident (it cuts the plain
`a` off first), although its manual says that such stars are plain ones; here they are.

Git compares bytes (`?` is one byte), so patterns and names meet as latin-1 text; `key` makes it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import NamedTuple

_GLOB = frozenset("*?[\\")
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


class _InvalidGlobError(ValueError):
    """Git drops such a pattern: it matches nothing."""


def key(name: str) -> str:
    """The form in which a file name is compared with patterns."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


class _Rule(NamedTuple):
    pattern: str  # without "!", a leading and a trailing slash
    excludes: bool
    only_folders: bool
    by_name: bool  # no slash inside: compared with the name at any depth


class _Table:
    """The rules that apply to one sort of entry, arranged so that the usual ones cost a
    dictionary look-up.
    """

    def __init__(self, rules: list[tuple[int, _Rule]]) -> None:
        self.names: dict[str, int] = {}
        self.paths: dict[str, int] = {}
        self.endings: dict[str, int] = {}
        name_globs: list[tuple[int, str]] = []
        path_globs: list[tuple[int, str]] = []
        for index, rule in rules:
            if not _GLOB.intersection(rule.pattern):
                (self.names if rule.by_name else self.paths)[rule.pattern] = index
            elif (
                rule.by_name and rule.pattern[0] == "*" and not _GLOB.intersection(rule.pattern[1:])
            ):
                self.endings[rule.pattern[1:]] = index
            else:
                try:
                    regex = _segment(rule.pattern) if rule.by_name else _path(rule.pattern)
                except _InvalidGlobError:
                    continue
                (name_globs if rule.by_name else path_globs).append((index, regex))
        self.any_ending = tuple(self.endings)
        self.name_globs = _compiled(name_globs)
        self.path_globs = _compiled(path_globs)
        self.any_name = _any(name_globs)
        self.any_path = _any(path_globs)

    def last(self, name: str, path: str) -> int:
        """The number of the last rule that fits, or -1."""
        best = max(self.names.get(name, -1), self.paths.get(path, -1))
        if self.any_ending and name.endswith(self.any_ending):
            best = max(
                best, max(index for ending, index in self.endings.items() if name.endswith(ending))
            )
        if self.any_name and self.any_name.fullmatch(name):
            best = max(
                best, max(index for index, regex in self.name_globs if regex.fullmatch(name))
            )
        if self.any_path and self.any_path.fullmatch(path):
            best = max(
                best, max(index for index, regex in self.path_globs if regex.fullmatch(path))
            )
        return best


class Rules:
    """One ignore file.

    `ours` says that it is unspool's own, which may also bring back what is left out by default.
    """

    def __init__(self, data: bytes, *, ours: bool = False) -> None:
        rules = list(enumerate(_parse(data)))
        self.ours = ours
        self._excludes = [rule.excludes for _, rule in rules]
        self._folders = _Table(rules)
        self._files = _Table([(index, rule) for index, rule in rules if not rule.only_folders])

    def __bool__(self) -> bool:
        return bool(self._excludes)

    def excludes(self, name: str, path: str, *, folder: bool) -> bool | None:
        """True to leave it out, False to keep it on purpose, None where no rule fits."""
        index = (self._folders if folder else self._files).last(name, path)
        return None if index < 0 else self._excludes[index]


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """Rules, and how a path below the scanned root becomes a path below the folder that holds
    them.
    """

    rules: Rules
    above: str = ""  # put before the path: the rules stand above the root
    below: int = 0  # characters to cut off: the rules stand below the root


def verdict(
    scopes: tuple[IgnoreFile, ...], name: str, path: str, *, folder: bool
) -> tuple[bool | None, bool]:
    """Whether the nearest rule leaves the entry out (None: no rule), and whether that rule is
    unspool's own.

    Scopes stand in the order of precedence, nearest first. Git's rule that nothing below an
    excluded folder can come back holds because the caller does not walk into one.
    """
    for scope in scopes:
        excluded = scope.rules.excludes(name, scope.above + path[scope.below :], folder=folder)
        if excluded is not None:
            return excluded, scope.rules.ours
    return None, False


def _parse(data: bytes) -> list[_Rule]:
    rules: list[_Rule] = []
    for raw in data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n"):
        line = _trimmed(raw.removesuffix("\r"))
        if not line or line[0] == "#":
            continue
        excludes = line[0] != "!"
        pattern = line if excludes else line[1:]
        only_folders = pattern.endswith("/")
        pattern = pattern.removesuffix("/")
        by_name = "/" not in pattern
        pattern = pattern.removeprefix("/")
        if pattern:
            rules.append(_Rule(pattern, excludes, only_folders, by_name))
    return rules


def _trimmed(line: str) -> str:
    """Without trailing spaces, except those behind a backslash."""
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if kept != line and backslashes % 2 else kept


def _compiled(globs: list[tuple[int, str]]) -> list[tuple[int, re.Pattern[str]]]:
    return [(index, re.compile(regex, re.DOTALL)) for index, regex in globs]


def _any(globs: list[tuple[int, str]]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{regex})" for _, regex in globs), re.DOTALL) if globs else None


def _path(pattern: str) -> str:
    """A pattern with slashes; `**` alone between them stands for any number of folders."""
    groups: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if len(part) > 1 and not part.strip("*"):  # to git more stars mean no more than two
            groups.append([])
        else:
            groups[-1].append(_segment(part))
    first, *others = ["/".join(group) for group in groups]
    if not others:
        return first
    regex = first + "/" if groups[0] else ""
    # Atomic groups: what stands between two `**` has a fixed number of parts, so its first place is
    # as good as any later one.
    for index, other in enumerate(others[:-1], 1):
        regex += rf"(?>(?:[^/]+/)*?{other}/)" if groups[index] else ""
    return regex + (f"(?:[^/]+/)*{others[-1]}" if groups[-1] else ".+")


def _segment(glob: str) -> str:
    """One part of a path. Runs of `*` are one; see `_path` for the atomic groups."""
    pieces = [""]
    at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[":
            regex, at = _bracket(glob, at)
            pieces[-1] += regex
        elif char == "\\":
            if at == len(glob):
                raise _InvalidGlobError(glob)
            pieces[-1] += re.escape(glob[at])
            at += 1
        else:
            pieces[-1] += re.escape(char)
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


def _bracket(glob: str, at: int) -> tuple[str, int]:
    """The set that begins behind `[` at `at`, and where it ends."""
    negated = glob[at : at + 1] in ("!", "^")
    at += negated
    start = at
    items: list[str] = []
    previous = ""  # the character that a following "-" would begin a range with
    while True:
        char = glob[at : at + 1]
        if not char:
            raise _InvalidGlobError(glob)
        if char == "]" and at > start:
            break
        if char == "[" and glob[at + 1 : at + 2] == ":":
            end = glob.find("]", at + 2)
            if end > 0 and glob[end - 1] == ":" and end - 1 > at + 1:
                name = glob[at + 2 : end - 1]
                if name not in _CLASSES:
                    raise _InvalidGlobError(glob)
                items.append(_CLASSES[name])
                at, previous = end + 1, ""
                continue
        if char == "-" and previous and glob[at + 1 : at + 2] not in ("", "]"):
            last, at = _set_character(glob, at + 1)
            if previous <= last:
                items.append(f"{re.escape(previous)}-{re.escape(last)}")
            previous = ""
            continue
        previous, at = _set_character(glob, at)
        items.append(re.escape(previous))
    if negated:
        return f"[^/{''.join(items)}]", at + 1
    return (f"(?!/)[{''.join(items)}]" if items else "(?!)"), at + 1


def _set_character(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "\\":
        at += 1
        if at >= len(glob):
            raise _InvalidGlobError(glob)
    return glob[at], at + 1
