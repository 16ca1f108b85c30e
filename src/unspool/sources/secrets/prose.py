"""Secrets that sentences, labels and comments give: "the password for bob is ...",
`**Password:** ...`. Pure.
"""

from __future__ import annotations

import re

from unspool.sources.secrets import values
from unspool.sources.secrets.names import SecretName
from unspool.sources.secrets.scanning import (
    LITERAL,
    SecretSpan,
    Trust,
    get_extent,
    get_line,
    is_locale,
)

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


def find_in_prose(place: SecretName, end: int) -> list[SecretSpan]:
    """Return the value that a sentence gives behind a name."""
    if following := _NEXT_LINE.match(place.text, end):
        value = following["value"].rstrip(".,;")
        is_secret = values.is_prose_secret(value, place.kind)
        return place.mark(following.start("value"), value, when=is_secret)
    link = _LINK.match(place.text, end)
    if not link:
        return _find_around(place, end)
    literal = LITERAL.match(place.text, link.end())
    if not literal:
        return judge_label(place, link.end(), plain=link["sign"] in (":", "=", "->"))
    first, last = get_extent(literal)
    value = place.text[first:last]
    is_secret = (
        values.is_prose_secret(value, place.kind)
        or (place.kind == "password" and values.looks_like_passphrase(value))
        or (link["sign"].lower() != "to" and _is_plain_word(value, place))
    )
    return place.mark(first, value, when=is_secret)


def _find_around(place: SecretName, end: int) -> list[SecretSpan]:
    """Return striking words near a name: behind a few words and a colon, or before the name.

    An example of the second form is "use x as the password".
    """
    spans: list[SecretSpan] = []
    if distant := _DISTANT.match(place.text, end):
        value = _TRAILING.sub("", distant["value"])
        spans += place.mark(distant.start("value"), value, when=is_striking(value))
    start = get_line(place.text, place.start, 120)[0]
    before = _BEFORE.search(place.text[start : place.start])
    if before and place.kind == "password":
        value = before["value"]
        spans += place.mark(start + before.start("value"), value, when=is_striking(value))
    return spans


def judge_label(
    place: SecretName, first: int, *, stops: str = "\n", plain: bool = True
) -> list[SecretSpan]:
    """Return the value of a label: at the end of a line, of a sentence or of a cell.

    `plain` words count if nothing follows them.
    """
    rest = place.text[first : get_line(place.text, first)[1]].partition(stops)[0].rstrip()
    if "}}" in rest or "{{" in place.get_line_before():  # a template
        return []
    token = rest.split(None, 1)[0] if rest else ""
    value = NEXT_SETTING.split(token.lstrip("*_`\"'"), maxsplit=1)[0]
    value = _TRAILING.sub("", value)
    is_alone = plain and len(rest) - len(value) <= 4 and rest == token
    if values.is_prose_secret(value, place.kind) or (is_alone and _is_plain_word(value, place)):
        return place.mark(first + token.find(value), value)
    if place.kind == "password" and len(rest.split()) >= 4 and values.looks_like_passphrase(rest):
        return place.mark(first, rest)
    if (pair := _PAIR.match(rest)) and "cred" in place.name.lower():
        value = _TRAILING.sub("", pair[1])
        is_secret = values.is_prose_secret(value, "password")
        password = place._replace(kind="password")
        return password.mark(first + pair.start(1), value, when=is_secret)
    return []


def _is_plain_word(value: str, place: SecretName) -> bool:
    """Judge the only word behind a label.

    A plain word counts, because people choose such passwords.
    """
    return (
        place.kind == "password"
        and place.trust is not Trust.PROGRAM
        and len(value) >= values.MIN_LENGTH
        and not is_locale(place.path)
        and not values.is_filler(value)
        and not values.is_fake(value)
        and value.isascii()
        and value.islower()
        and value.replace("-", "").isalnum()
    )


def is_striking(value: str) -> bool:
    """Tell if a word behind "password" in a sentence can be nothing else: "with password x"."""
    return (
        len(value) >= _MIN_STRIKING
        and values.is_prose_secret(value, "password")
        and (value.isalnum() or not values.is_wordy(value))
        and any(map(str.isdigit, value))
        and not values.is_fake(value)
        and not value.isupper()
        and not values.is_reference(value)
    )
