"""String literals of programs, settings and prose. Pure."""

from __future__ import annotations

import re

from unspool.sources.secrets.spans import get_line

_LITERAL = re.compile(
    r"(?P<prefix>(?-i:N)|[rbuf@$]{0,2})(?:\"{3}(?P<triple>[^\"]{1,4000}+)\"{3}"
    r"|\\\"(?P<escaped>[^\"\\\r\n]{0,4000}+)\\{1,3}\"|\\'(?P<slashed>[^'\\\r\n]{0,4000}+)\\'"
    r"|\"(?P<double>(?:[^\"\\\r\n]|\\.){0,4000}+)\"|'(?P<single>(?:[^'\\\r\n]|\\.|''){0,4000}+)'|`{1,2}(?P<tick>(?:[^`\\\r\n]|\\.){0,4000}+)`"
    # word processors turn quotes round
    r"|[\u201c-\u201e](?P<curly>[^\u201c-\u201e\r\n]{0,4000}+)[\u201c-\u201e]"
    r"|[\u2018-\u201a](?P<curl>[^\u2018-\u201a\r\n]{0,4000}+)[\u2018-\u201a]"
    r"|&(?:quot|#34|#39|apos);(?P<entity>[^&<>\r\n]{1,400}+)&)",
    re.IGNORECASE,
)
_JOINT = re.compile(
    r"[ \t]{0,8}+(?:[+.&\\][ \t]{0,8}+(?:\r?\n[ \t]{0,60}+)?|\r?\n[ \t]{0,60}+[+.&][ "
    r"\t]{0,8}+|(?<=[ \t]))(?=[rbuf@$]{0,2}[\"'`])"
)
_NEW_LINE = re.compile(r"[ \t]{0,8}+\r?\n[ \t]{0,60}+(?=[rbuf@$]{0,2}[\"'`])")
_NEXT_KEY = re.compile(r"[ \t]{0,8}(?:[:=]|,?[ \t]{0,8}\w+=)")
_LINE_END = re.compile(r"(?:\\[nr])+$")
_MOST = 20  # literals of one value
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|[abfnrtv])")


def match_literal(text: str, first: int) -> re.Match[str] | None:
    """Match a quoted literal."""
    return _LITERAL.match(text, first)


def find_literals(text: str, first: int) -> list[re.Match[str]]:
    """Return a quoted literal and those that are joined to it."""
    literals: list[re.Match[str]] = []
    found = _LITERAL.match(text, first)
    # the first of several lines in brackets
    alone = not text[get_line(text, first)[0] : first].strip()
    while found and len(literals) < _MOST:
        if literals and _NEXT_KEY.match(text, found.end()):  # not a part of the value
            break
        literals.append(found)
        joint = _JOINT.match(text, found.end()) or (
            _NEW_LINE.match(text, found.end()) if alone else None
        )
        found = _LITERAL.match(text, joint.end()) if joint and joint.end() > found.end() else None
    return literals


def get_extent(found: re.Match[str]) -> tuple[int, int]:
    """Return start and end of a literal's content."""
    return found.span(
        next(
            name
            for name, value in found.groupdict().items()
            if name != "prefix" and value is not None
        )
    )


def is_prefixed(found: re.Match[str], letters: str) -> bool:
    """Tell if a literal has one of the prefixes: `r"..."`, `f"..."`."""
    return any(letter in (found["prefix"] or "").lower() for letter in letters)


def has_escapes(raw: str) -> bool:
    """Tell if a literal contains escapes of bytes or control characters."""
    return bool(_ESCAPE.search(_LINE_END.sub("", raw.replace("\\\\", "/"))))
