"""Secrets that sentences, labels and comments give: "the password for bob is ...",
`**Password:** ...`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.secrets import values
from unspool.sources.secrets.files import is_locale
from unspool.sources.secrets.literals import get_extent, match_literal
from unspool.sources.secrets.names import SecretName
from unspool.sources.secrets.spans import SecretSpan, Trust, get_line

_LINK = re.compile(
    r"(?:[ \t]{1,8}(?:for|of|to|on|at|in|used|by|f\u00fcr)[ \t]{1,8}[\w@.'/\"`-]{1,40}(?:[ "
    r"\t]{1,8}[\w@.'/-]{1,30}){0,4}?)?"
    r"(?:[ \t]{0,8}\([^()\n]{1,40}\))?\*{0,2}"
    r"[ \t]{0,8}(?P<sign>(?<=[ \t])-(?=[ "
    r"\t])|\b(?:is|was|are|be|lautet|ist|est|es)\b|=|:|->|\u2192|\u2013|\u2014|\bset "
    r"to\b|\bto\b)"
    r"[ \t]{0,8}(?:now|still|set to|currently|just)?[ \t]{0,8}:?[ \t]{0,8}\*{0,2}[ \t]{0,8}(?=\S)",
    re.IGNORECASE,
)
_NEXT_LINE = re.compile(
    r"\*{0,2}:\*{0,2}[ \t]{0,8}\r?\n(?:[ \t]{0,40}\r?\n)?[ \t]{0,40}(?:[-*>][ "
    r"\t]{1,8})?(?P<value>[^\s`\"']{6,200})[ \t]{0,8}(?:\r?\n|$)"
)
_DISTANT = re.compile(
    r"(?:[ \t]{1,8}[\w'-]{1,20}){1,5}:[ \t]{1,8}[`'\"*]{0,2}(?P<value>[^\s`'\"]{6,100})"
)
_BEFORE = re.compile(
    r"(?:use|using|with|enter|try|type|set)[ \t]{1,8}[`'\"]?(?P<value>[^\s`'\"]{6,60})[`'\"]?[ "
    r"\t]{1,8}as[ \t]{1,8}(?:\w{1,12}[ \t]{1,8}){0,2}$",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"(?:[.,;:)\]}>|*_`\"'?]|</?\w*>?|\\[nr].*)+$")
NEXT_SETTING = re.compile(r"[;,][\w.\[\]-]+=")  # the end of a value in a connection string
_MIN_STRIKING = 7
_PAIR = re.compile(r"[\w.@-]{2,40}(?: ?[:/] ?)(\S{6,100})")


def find_in_prose(place: SecretName, end: int) -> Iterator[SecretSpan]:
    """Yield the value that a sentence gives behind a name."""
    text = place.text
    if following := _NEXT_LINE.match(text, end):
        value = following["value"].rstrip(".,;")
        if values.is_prose_secret(value, place.kind):
            yield following.start("value"), following.start("value") + len(value), place.kind
        return
    link = _LINK.match(text, end)
    if not link:
        yield from _find_around(place, end)
        return
    literal = match_literal(text, link.end())
    if not literal:
        yield from judge_label(place, link.end(), plain=link["sign"] in (":", "=", "->"))
        return
    first, last = get_extent(literal)
    value = text[first:last]
    phrase = place.kind == "password" and values.looks_like_passphrase(value)
    if (
        values.is_prose_secret(value, place.kind)
        or phrase
        or (link["sign"].lower() != "to" and _is_plain_word(value, place))
    ):
        yield first, last, place.kind


def _find_around(place: SecretName, end: int) -> Iterator[SecretSpan]:
    """Yield a striking word behind a few other words and a colon, or before the name: "use x as
    the password".
    """
    text = place.text
    distant = _DISTANT.match(text, end)
    if distant and is_striking(value := _TRAILING.sub("", distant["value"])):
        yield distant.start("value"), distant.start("value") + len(value), place.kind
    start = get_line(text, place.start, 120)[0]
    before = _BEFORE.search(text[start : place.start])
    if before and place.kind == "password" and is_striking(before["value"]):
        yield start + before.start("value"), start + before.end("value"), place.kind


def judge_label(
    place: SecretName, first: int, *, stops: str = "", plain: bool = True
) -> Iterator[SecretSpan]:
    """Yield the value of a label: at the end of a line, of a sentence or of a cell.

    `plain` words count if nothing follows them.
    """
    text = place.text
    end = get_line(text, first)[1]
    if stops and (stop := text.find(stops, first, end)) >= 0:
        end = stop
    rest = text[first:end].rstrip()
    if "}}" in rest or "{{" in place.get_line_before():  # a template
        return
    token = rest.split(None, 1)[0] if rest else ""
    value = NEXT_SETTING.split(token.lstrip("*_`\"'"), maxsplit=1)[0]
    value = _TRAILING.sub("", value)
    start = first + token.find(value)
    alone = plain and len(rest) - len(value) <= 4 and rest == token
    if values.is_prose_secret(value, place.kind) or (alone and _is_plain_word(value, place)):
        yield start, start + len(value), place.kind
    elif place.kind == "password" and len(rest.split()) >= 4 and values.looks_like_passphrase(rest):
        yield first, first + len(rest), place.kind
    elif (pair := _PAIR.match(rest)) and "cred" in place.name.lower():
        value = _TRAILING.sub("", pair[1])
        if values.is_prose_secret(value, "password"):
            yield first + pair.start(1), first + pair.start(1) + len(value), "password"


def _is_plain_word(value: str, place: SecretName) -> bool:
    """Judge the only word behind a label.

    A plain word counts, because people choose such passwords.
    """
    if (
        place.kind != "password"
        or place.trust is Trust.PROGRAM
        or len(value) < values.MIN_LENGTH
        or is_locale(place.path)
    ):
        return False
    if values.is_ordinary(value) or values.is_placeholder(value) or values.is_fake(value):
        return False
    return value.isascii() and value.islower() and value.replace("-", "").isalnum()


def is_striking(value: str) -> bool:
    """Tell if a word that follows "password" in a sentence can be nothing else: "with password
    x".
    """
    if (
        len(value) < _MIN_STRIKING
        or not values.is_prose_secret(value, "password")
        or (values.is_wordy(value) and not value.isalnum())
    ):
        return False
    return (
        any(map(str.isdigit, value))
        and not values.is_fake(value)
        and not value.isupper()
        and not values.is_reference(value)
    )
