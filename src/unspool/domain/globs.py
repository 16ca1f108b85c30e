"""Path globs as regular expressions: `*` and `?` stay inside a folder, `**` crosses them. Pure.

Callers may send any glob, so none may take long. A database server matches the plain expression
without backtracking. Python matches an expression with atomic parts: each gap ends at the first
position where the text after it matches. A later position is never better, because `*` reaches any
position in the folder and `**` any position after it. The time grows at most with the square of the
path's length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"(?:^|(?<=/))\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]", re.DOTALL)
_IN_FOLDER, _ANYWHERE, _FOLDERS = "[^/]*", ".*", "(?:.*/)?"
_NOTHING = "(?!/)/"  # matches nothing


@dataclass(slots=True)
class _GlobPart:
    """Gap, and the expressions of the characters after it."""

    gap: str
    run: str = ""


def translate_plain(pattern: str) -> str:
    """Return the expression for a database server."""
    return "^" + "".join(part.gap + part.run for part in _split(pattern)) + "$"


def translate_atomic(pattern: str) -> str:
    """Return the expression for Python."""
    *before, last = _group_parts(_split(pattern))
    return (
        r"(?s)\A"
        + "".join(f"(?>{_translate_block(block)})" for block in before)
        + _translate_block(last, to_the_end=True)
        + r"\Z"
    )


def _translate_block(block: list[_GlobPart], *, to_the_end: bool = False) -> str:
    """Return the expression of a gap across folders and of the parts after it inside folders."""
    first, *rest = block
    texts = [{_ANYWHERE: ".*?", _FOLDERS: "(?:.*?/)??"}.get(first.gap, "") + first.run]
    for number, part in enumerate(rest, 1):
        texts.append(
            f"[^/]*{part.run}" if to_the_end and number == len(rest) else f"(?>[^/]*?{part.run})"
        )
    return "".join(texts)


def _group_parts(parts: list[_GlobPart]) -> list[list[_GlobPart]]:
    blocks: list[list[_GlobPart]] = []
    for part in parts:
        if part.gap == _IN_FOLDER:
            blocks[-1].append(part)
        else:
            blocks.append([part])
    return blocks


def _split(pattern: str) -> list[_GlobPart]:
    pattern = pattern.removeprefix("./")
    is_anchored = "/" in pattern.rstrip("/")
    pattern = pattern.removeprefix("/")
    if pattern.endswith("/"):
        pattern += "**"
    parts = [_GlobPart("" if is_anchored else _FOLDERS)]
    position = 0
    for match in _TOKEN.finditer(pattern):
        parts[-1].run += re.escape(pattern[position : match.start()])
        position = match.end()
        gap = {"**/": _FOLDERS, "**": _ANYWHERE, "*": _IN_FOLDER}.get(match.group())
        if gap is None:
            parts[-1].run += "[^/]" if match.group() == "?" else _translate_set(match.group())
        else:
            parts.append(_GlobPart(gap))
    parts[-1].run += re.escape(pattern[position:])
    return parts


def _translate_set(text: str) -> str:
    """Return the expression of a set of characters in brackets. An empty set is plain text."""
    if text in ("[]", "[!]"):
        return re.escape(text)
    inner, is_negated = text[1:-1], False
    if inner.startswith("!"):
        inner, is_negated = inner[1:], True
    items: list[str] = []
    while inner:
        if len(inner) > 2 and inner[1] == "-":
            if inner[0] <= inner[2]:
                items.append(f"{_escape(inner[0])}-{_escape(inner[2])}")
            inner = inner[3:]
        else:
            items.append(_escape(inner[0]))
            inner = inner[1:]
    if not items:
        return "[^/]" if is_negated else _NOTHING
    return f"[{'^' if is_negated else ''}{''.join(items)}]"


def _escape(character: str) -> str:
    return (
        character
        if character.isalnum() or character.isspace() or character > "\x7f"
        else "\\" + character
    )
