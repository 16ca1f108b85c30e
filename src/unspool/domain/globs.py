"""Path globs as regular expressions: `*` and `?` stay inside a folder, `**` crosses them. Pure.

Anybody may send a glob, so none may take long. A database server's matcher takes the plain
expression and does not backtrack; Python's takes the steady one, whose parts are atomic: each gap
ends at the first place where what follows it fits. That place is as good as any later one, because
`*` reaches from it everywhere in the folder and `**` everywhere behind it. It takes a time that
grows with the square of the path's length at most.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"(?:^|(?<=/))\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]", re.DOTALL)
_IN_FOLDER, _ANYWHERE, _FOLDERS = "[^/]*", ".*", "(?:.*/)?"
_NOTHING = "(?!/)/"  # fits nowhere


@dataclass(slots=True)
class _Part:
    """What a gap is followed by: single characters, each as an expression."""

    gap: str
    run: str = ""


def plain(pattern: str) -> str:
    """The expression for a database server."""
    return "^" + "".join(part.gap + part.run for part in _parts(pattern)) + "$"


def steady(pattern: str) -> str:
    """The expression for Python."""
    *before, last = _blocks(_parts(pattern))
    return (
        r"(?s)\A"
        + "".join(f"(?>{_lazy(block)})" for block in before)
        + _lazy(last, to_the_end=True)
        + r"\Z"
    )


def _lazy(block: list[_Part], *, to_the_end: bool = False) -> str:
    """A gap that crosses folders, and the parts behind it that lie in one folder each."""
    first, *rest = block
    texts = [{_ANYWHERE: ".*?", _FOLDERS: "(?:.*?/)??"}.get(first.gap, "") + first.run]
    for number, part in enumerate(rest, 1):
        texts.append(
            f"[^/]*{part.run}" if to_the_end and number == len(rest) else f"(?>[^/]*?{part.run})"
        )
    return "".join(texts)


def _blocks(parts: list[_Part]) -> list[list[_Part]]:
    blocks: list[list[_Part]] = []
    for part in parts:
        if part.gap == _IN_FOLDER:
            blocks[-1].append(part)
        else:
            blocks.append([part])
    return blocks


def _parts(pattern: str) -> list[_Part]:
    pattern = pattern.removeprefix("./")
    is_anchored = "/" in pattern.rstrip("/")
    pattern = pattern.removeprefix("/")
    if pattern.endswith("/"):
        pattern += "**"
    parts = [_Part("" if is_anchored else _FOLDERS)]
    position = 0
    for match in _TOKEN.finditer(pattern):
        parts[-1].run += re.escape(pattern[position : match.start()])
        position = match.end()
        gap = {"**/": _FOLDERS, "**": _ANYWHERE, "*": _IN_FOLDER}.get(match.group())
        if gap is None:
            parts[-1].run += "[^/]" if match.group() == "?" else _characters(match.group())
        else:
            parts.append(_Part(gap))
    parts[-1].run += re.escape(pattern[position:])
    return parts


def _characters(text: str) -> str:
    """A choice of characters, in brackets; one that is empty is meant as it is written."""
    if text in ("[]", "[!]"):
        return re.escape(text)
    inner, is_negated = text[1:-1], False
    if inner.startswith("!"):
        inner, is_negated = inner[1:], True
    items: list[str] = []
    while inner:
        if len(inner) > 2 and inner[1] == "-":
            if inner[0] <= inner[2]:
                items.append(f"{_escaped(inner[0])}-{_escaped(inner[2])}")
            inner = inner[3:]
        else:
            items.append(_escaped(inner[0]))
            inner = inner[1:]
    if not items:
        return "[^/]" if is_negated else _NOTHING
    return f"[{'^' if is_negated else ''}{''.join(items)}]"


def _escaped(character: str) -> str:
    return (
        character
        if character.isalnum() or character.isspace() or character > "\x7f"
        else "\\" + character
    )
