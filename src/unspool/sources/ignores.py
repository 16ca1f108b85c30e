"""Rules of `.gitignore` and `.unspoolignore` files, applied as git applies them.

The patterns are translated here and not by `pathspec` 1.1. Measured against git 2.39, `pathspec`
misreads `[[:digit:]]`, escapes in brackets and trailing tabs. It raises on the valid `[a-\\]]`, and
needs 1.5 s for `*a*a*a*a*a*a*b` on a name of 60 characters. The expressions built here are linear in
the name for every ignore file.

One difference is on purpose. Git lets `a**` and `a**/b` match across folders by accident, because it
cuts the plain `a` off first. Its manual says that such stars are plain stars, and here they are.

Git compares bytes (`?` is one byte), so patterns and names are compared as latin-1 text (`key`).
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
    """Return the form of a file name that is compared with patterns."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


class _Rule(NamedTuple):
    pattern: str  # without "!", a leading and a trailing slash
    excludes: bool
    only_folders: bool
    by_name: bool  # no slash inside: compared with the name at any depth


class _Table:
    """Rules for files or for folders, arranged so that the usual ones cost a dictionary lookup."""

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
                    regex = (
                        _translate_segment(rule.pattern)
                        if rule.by_name
                        else _translate_path(rule.pattern)
                    )
                except _InvalidGlobError:
                    continue
                (name_globs if rule.by_name else path_globs).append((index, regex))
        self.any_ending = tuple(self.endings)
        self.name_globs = _Globs(name_globs)
        self.path_globs = _Globs(path_globs)

    def find_last(self, name: str, path: str) -> int:
        """Return the number of the last rule that matches, or -1."""
        best = max(self.names.get(name, -1), self.paths.get(path, -1))
        if self.any_ending and name.endswith(self.any_ending):
            best = max(
                best, max(index for ending, index in self.endings.items() if name.endswith(ending))
            )
        return max(best, self.name_globs.find_last(name), self.path_globs.find_last(path))


class Rules:
    """Rules of an ignore file.

    `ours` marks unspool's own file, which may also include files that are left out by default.
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
        """Return True to leave an entry out, False to include it, None if no rule matches."""
        index = (self._folders if folder else self._files).find_last(name, path)
        return None if index < 0 else self._excludes[index]


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """Rules, and their place relative to the scanned root."""

    rules: Rules
    above: str = ""  # put before the path: the rules stand above the root
    below: int = 0  # characters to cut off: the rules stand below the root


def verdict(
    scopes: tuple[IgnoreFile, ...], name: str, path: str, *, folder: bool
) -> tuple[bool | None, bool]:
    """Return the decision of the nearest rule (None: no rule), and if the rule is unspool's own.

    Scopes are in the order of precedence, nearest first. Git's rule that nothing below an excluded
    folder can be included applies because the caller does not enter such a folder.
    """
    for scope in scopes:
        excluded = scope.rules.excludes(name, scope.above + path[scope.below :], folder=folder)
        if excluded is not None:
            return excluded, scope.rules.ours
    return None, False


def _parse(data: bytes) -> list[_Rule]:
    rules: list[_Rule] = []
    for raw in data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n"):
        line = _trim(raw.removesuffix("\r"))
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


def _trim(line: str) -> str:
    """Remove trailing spaces, except those behind a backslash."""
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if kept != line and backslashes % 2 else kept


class _Globs:
    """Expressions with the numbers of their rules, and one expression for all of them."""

    def __init__(self, globs: list[tuple[int, str]]) -> None:
        self._each = [(index, re.compile(regex, re.DOTALL)) for index, regex in globs]
        # without globs: an expression that never matches
        joined = "|".join(f"(?:{regex})" for _, regex in globs) or "(?!)"
        self._any = re.compile(joined, re.DOTALL)

    def find_last(self, text: str) -> int:
        """Return the number of the last rule that matches, or -1."""
        if not self._any.fullmatch(text):
            return -1
        return max(index for index, regex in self._each if regex.fullmatch(text))


def _translate_path(pattern: str) -> str:
    """Translate a pattern with slashes; `**` between them means any number of folders."""
    groups: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if len(part) > 1 and not part.strip("*"):  # to git more stars mean no more than two
            groups.append([])
        else:
            groups[-1].append(_translate_segment(part))
    first, *others = ["/".join(group) for group in groups]
    if not others:
        return first
    regex = first + "/" if groups[0] else ""
    # Atomic groups: what stands between two `**` has a fixed number of parts, so its first place is
    # as good as any later one.
    for index, other in enumerate(others[:-1], 1):
        regex += rf"(?>(?:[^/]+/)*?{other}/)" if groups[index] else ""
    return regex + (f"(?:[^/]+/)*{others[-1]}" if groups[-1] else ".+")


def _translate_segment(glob: str) -> str:
    """Translate a part of a path. Runs of `*` are one; see `_translate_path` for the atomic groups."""
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
            regex, at = _translate_bracket(glob, at)
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


def _translate_bracket(glob: str, at: int) -> tuple[str, int]:
    """Translate the set that begins behind `[`, and return the expression and its end."""
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
            last, at = _read_set_character(glob, at + 1)
            if previous <= last:
                items.append(f"{re.escape(previous)}-{re.escape(last)}")
            previous = ""
            continue
        previous, at = _read_set_character(glob, at)
        items.append(re.escape(previous))
    if negated:
        return f"[^/{''.join(items)}]", at + 1
    return (f"(?!/)[{''.join(items)}]" if items else "(?!)"), at + 1


def _read_set_character(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "\\":
        at += 1
        if at >= len(glob):
            raise _InvalidGlobError(glob)
    return glob[at], at + 1
