"""Scanned texts: the trust that their file names give them, their lines and string literals. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from unspool.sources.names import get_extension, split_words

SecretSpan = tuple[int, int, str]  # start, end, kind
_CREDENTIAL_NAMES = split_words(
    ".env .npmrc .netrc _netrc .pgpass .pypirc .my.cnf .mylogin.cnf credentials .git-credentials "
    ".dockercfg .s3cfg .boto .htpasswd .envrc "
    "secrets.yml secrets.yaml secrets.json secrets.toml credentials.json credentials.yml "
    "credentials.yaml credentials.toml"
)
_CREDENTIAL_EXTENSIONS = frozenset({".env", ".ini", ".tfvars", ".credentials"})
_SETTINGS_EXTENSIONS = split_words(
    ".yaml .yml .toml .properties .conf .cfg .cnf .config .xml .plist .hcl .tf .reg .rdp .ovpn "
    ".service"
)
_SETTINGS_NAMES = re.compile(
    r"(?:appsettings|config|settings|service[_-]?account|\.docker.?config|parameters|connection)[\w.-]*\.json$|^dockerfile|dockerfile$"
)
_PROSE_EXTENSIONS = split_words(
    ".md .markdown .mdx .txt .rst .adoc .org .tex .pdf .docx .html .htm .xhtml .csv .tsv .log "
    ".eml .textile .wiki"
)
_SHELL_EXTENSIONS = split_words(".sh .bash .zsh .fish .ksh .bat .cmd .envrc .mk")
_LONGEST_EXTENSION = 6  # a longer one is a part of an id, such as the id of a conversation
_LOCALE = re.compile(
    r"(?:^|/)(?:locales?|i18n|l10n|lang|langs|languages?|translations?|messages)(?:/|[_.-])|(?:^|/)[a-z]{2}([_-][A-Z]{2})?\.[a-z]+$"
)
LITERAL = re.compile(
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
_MOST = 20  # literals of one value


class Trust(IntEnum):
    """Likelihood that a secret name has a real value, by the kind of file."""

    PROGRAM = 0
    PROSE = 1
    SETTINGS = 2
    CREDENTIALS = 3


class ScannedText(NamedTuple):
    """A text that is scanned.

    `flat` is the text in ASCII, one byte for each character, and `folded` the same in lower case.
    """

    text: str
    flat: bytes
    folded: bytes
    path: str
    trust: Trust


# returns the secrets that belong to an anchor at a position
SecretFinder = Callable[[ScannedText, int], Sequence[SecretSpan]]


class Rule(NamedTuple):
    """A form of secrets that begins at one of the `anchors`, which are in lower case.

    The last group of `pattern` that matches is the secret, if it `is_secret`.
    """

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool]

    def find(self, scan: ScannedText, at: int) -> list[SecretSpan]:
        """Return the secret of a form whose anchor is at a position."""
        found = self.pattern.match(scan.text, at)
        if not found or not self.is_secret(found[found.lastindex or 0]):
            return []
        return [(*found.span(found.lastindex or 0), self.kind)]


def match_text(pattern: re.Pattern[str], text: str, at: int) -> str:
    """Return the text that a pattern matches at a position, or an empty string."""
    found = pattern.match(text, at)
    return found[0] if found else ""


def classify(path: str) -> Trust:
    """Return how likely the values in a file are real, by its name.

    A text without a file name is prose.
    """
    name = posixpath.basename(path).lower()
    suffix = get_extension(name)
    if name in _CREDENTIAL_NAMES or suffix in _CREDENTIAL_EXTENSIONS or name.startswith(".env."):
        return Trust.CREDENTIALS
    if suffix in _SETTINGS_EXTENSIONS or _SETTINGS_NAMES.search(name):
        return Trust.SETTINGS
    is_prose = (
        suffix in _PROSE_EXTENSIONS
        or (not suffix and name != "makefile")
        or len(suffix) > _LONGEST_EXTENSION
    )
    return Trust.PROSE if is_prose else Trust.PROGRAM


def is_shell(path: str) -> bool:
    """Tell if a file contains shell commands."""
    name = posixpath.basename(path).lower()
    return get_extension(name) in _SHELL_EXTENSIONS or name == "makefile" or "dockerfile" in name


def is_locale(path: str) -> bool:
    """Tell if a file contains translations, whose values are captions."""
    return bool(_LOCALE.search(path))


def get_line(text: str, at: int, most: int = 400) -> tuple[int, int]:
    """Return the extent of the line around a position, at most `most` characters to each side."""
    least = max(0, at - most)
    start = text.rfind("\n", least, at) + 1
    end = text.find("\n", at, at + most)
    return start or least, end if end >= 0 else min(len(text), at + most)


def find_literals(text: str, first: int) -> list[re.Match[str]]:
    """Return a quoted literal and those that are joined to it."""
    literals: list[re.Match[str]] = []
    found = LITERAL.match(text, first)
    # the first of several lines in brackets
    alone = not text[get_line(text, first)[0] : first].strip()
    while found and len(literals) < _MOST:
        if literals and _NEXT_KEY.match(text, found.end()):  # not a part of the value
            break
        literals.append(found)
        joint = _JOINT.match(text, found.end()) or (
            _NEW_LINE.match(text, found.end()) if alone else None
        )
        found = LITERAL.match(text, joint.end()) if joint and joint.end() > found.end() else None
    return literals


def get_extent(found: re.Match[str]) -> tuple[int, int]:
    """Return start and end of a literal's content."""
    return found.span(found.lastindex or 0)


def is_prefixed(found: re.Match[str], letters: str) -> bool:
    """Tell if a literal has one of the prefixes: `r"..."`, `f"..."`."""
    return any(letter in (found["prefix"] or "").lower() for letter in letters)
