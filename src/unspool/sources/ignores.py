r"""Rules of `.gitignore` and `.unspoolignore` files, applied as git applies them.

The patterns are translated here and not by `pathspec` 1.1. Measured against git 2.39, `pathspec`
misreads `[[:digit:]]`, escapes in brackets and trailing tabs. It raises on the valid `[a-\\]]`, and
needs 1.5 s for `*a*a*a*a*a*a*b` on a name of 60 characters. The expressions built here are linear in
the name for every ignore file.

One difference is on purpose. Git lets `a**` and `a**/b` match across folders by accident, because it
cuts the plain `a` off first. Its manual says that such stars are plain stars, and here they are.

Git compares bytes (`?` is one byte), so patterns and names are compared as latin-1 text (`encode_name`).
"""

from __future__ import annotations

import os
import re
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
# An invalid glob: git drops such a pattern.
_NOTHING = "(?!)"
_LINE = re.compile(r"(?!#)(?P<includes>!?)(?P<anchor>/?)(?P<pattern>.*?)(?P<folder>/?)", re.DOTALL)
# Sets in brackets. Possessive, so that a part of a class is never read as single characters.
_CHARACTER = r"(?:\\.|[^\]\\])"
_CLASS = rf"\[:(?:{'|'.join(_CLASSES)}):\]"
_ITEM = rf"(?:{_CLASS}|(?!\[:[^\[\]]*:\]){_CHARACTER}(?:-{_CHARACTER})?)"
_TOKEN = re.compile(
    rf"\[(?P<negation>[!^]?)(?P<set>(?>\](?:-{_CHARACTER})?|{_ITEM}){_ITEM}*+)\]|\\.|.", re.DOTALL
)
_SET_ITEM = re.compile(
    rf"\[:(?P<class>\w+):\]|(?P<first>\\.|[^\\])(?:-(?P<last>{_CHARACTER}))?", re.DOTALL
)


def encode_name(name: str) -> str:
    """Return the form of a file name that is compared with patterns."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


class _Rule(NamedTuple):
    number: int
    pattern: str  # without "!", a leading and a trailing slash
    excludes: bool
    only_folders: bool
    by_name: bool  # no slash inside: compared with the name at any depth


class _Patterns:
    """Patterns of rules that are compared with the same text: the name of an entry or its path."""

    def __init__(self, rules: list[_Rule], *, by_name: bool) -> None:
        rules = [rule for rule in rules if rule.by_name is by_name]
        self._literals = {
            rule.pattern: rule.number for rule in rules if _GLOB.isdisjoint(rule.pattern)
        }
        # The last rule comes first, because the first alternative that matches wins.
        globs = [rule for rule in reversed(rules) if rule.pattern not in self._literals]
        self._glob_numbers = [rule.number for rule in globs]
        alternatives = [f"({_translate_path(rule.pattern)})" for rule in globs]
        self._globs = re.compile("|".join(alternatives) or _NOTHING, re.DOTALL)

    def find_last(self, text: str) -> int:
        """Return the number of the last rule that matches, or -1."""
        found = self._globs.fullmatch(text)
        by_glob = self._glob_numbers[found.lastindex - 1] if found and found.lastindex else -1
        return max(by_glob, self._literals.get(text, -1))


class Rules:
    """Rules of an ignore file, and its place relative to the scanned root.

    `ours` marks unspool's own file, which may also include files that are left out by default.
    `above` is put before a path if the file is above the root. `below` characters are cut off a
    path if the file is below the root.
    """

    def __init__(self, data: bytes, *, ours: bool = False, above: str = "", below: int = 0) -> None:
        self.ours = ours
        self._above = above
        self._below = below
        self._rules = _parse(data)
        for_files = [rule for rule in self._rules if not rule.only_folders]
        # by name and by path
        self._folders = [_Patterns(self._rules, by_name=by_name) for by_name in (True, False)]
        self._files = [_Patterns(for_files, by_name=by_name) for by_name in (True, False)]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def excludes(self, name: str, path: str, *, folder: bool) -> bool | None:
        """Return True to leave an entry out, False to include it, None if no rule matches."""
        by_name, by_path = self._folders if folder else self._files
        place = self._above + path[self._below :]
        number = max(by_name.find_last(name), by_path.find_last(place))
        return None if number < 0 else self._rules[number].excludes


def decide(
    files: tuple[Rules, ...], name: str, path: str, *, folder: bool
) -> tuple[bool | None, bool]:
    """Return the decision of the nearest rule (None: no rule), and if the rule is unspool's own.

    Files are in the order of precedence, nearest first. Git's rule that nothing below an excluded
    folder can be included applies because the caller does not enter such a folder.
    """
    for rules in files:
        excluded = rules.excludes(name, path, folder=folder)
        if excluded is not None:
            return excluded, rules.ours
    return None, False


def _parse(data: bytes) -> list[_Rule]:
    rules: list[_Rule] = []
    for raw in data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n"):
        line = _LINE.fullmatch(_trim(raw.removesuffix("\r")))
        if line and (pattern := line["pattern"]):
            by_name = not line["anchor"] and "/" not in pattern
            rule = _Rule(len(rules), pattern, not line["includes"], bool(line["folder"]), by_name)
            rules.append(rule)
    return rules


def _trim(line: str) -> str:
    """Remove trailing spaces, except those behind a backslash."""
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if kept != line and backslashes % 2 else kept


def _translate_path(pattern: str) -> str:
    """Translate a pattern with slashes; `**` between them means any number of folders."""
    groups: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if len(part) > 1 and not part.strip("*"):  # to git more stars mean no more than two
            groups.append([])
        else:
            groups[-1].append(_translate_segment(part))
    if len(groups) == 1:
        return "/".join(groups[0])
    first, *middle, last = groups
    # Atomic groups: the text between two `**` has a fixed number of parts, so its first place is
    # as good as any later one.
    inner = (rf"(?>(?:[^/]+/)*?{'/'.join(group)}/)" for group in middle if group)
    end = f"(?:[^/]+/)*{'/'.join(last)}" if last else ".+"
    return "".join(["/".join([*first, ""]), *inner, end])


def _translate_segment(glob: str) -> str:
    """Translate a part of a path. Runs of `*` are one; see `_translate_path` for the atomic groups."""
    pieces = [""]
    for token in _TOKEN.finditer(glob):
        if token[0] in ("[", "\\"):  # without an end
            return _NOTHING
        if token[0] == "*":
            pieces.append("")
        else:
            pieces[-1] += _translate_token(token)
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


def _translate_token(token: re.Match[str]) -> str:
    if token["set"]:
        items = "".join(map(_translate_item, _SET_ITEM.finditer(token["set"])))
        return f"[^/{items}]" if token["negation"] else f"(?!/)[{items}]"
    return "[^/]" if token[0] == "?" else re.escape(token[0][-1])


def _translate_item(item: re.Match[str]) -> str:
    """Translate a class, a character or a range. A range without characters is its first one."""
    if item["class"]:
        return _CLASSES[item["class"]]
    first, last = item["first"][-1], (item["last"] or "")[-1:]
    return f"{re.escape(first)}-{re.escape(last)}" if first <= last else re.escape(first)
