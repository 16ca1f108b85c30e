"""Kinds of files by their names, and files that contain nothing but credentials. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from unspool.sources.names import extension, words
from unspool.sources.secrets import values
from unspool.sources.secrets.spans import ScannedText, SecretSpan, Trust

_CREDENTIAL_NAMES = words(
    ".env .npmrc .netrc _netrc .pgpass .pypirc .my.cnf .mylogin.cnf credentials .git-credentials "
    ".dockercfg .s3cfg .boto .htpasswd .envrc "
    "secrets.yml secrets.yaml secrets.json secrets.toml credentials.json credentials.yml "
    "credentials.yaml credentials.toml"
)
_CREDENTIAL_EXTENSIONS = frozenset({".env", ".ini", ".tfvars", ".credentials"})
_SETTINGS_EXTENSIONS = words(
    ".yaml .yml .toml .properties .conf .cfg .cnf .config .xml .plist .hcl .tf .reg .rdp .ovpn "
    ".service"
)
_SETTINGS_NAMES = re.compile(
    r"(?:appsettings|config|settings|service[_-]?account|\.docker.?config|parameters|connection)[\w.-]*\.json$|^dockerfile|dockerfile$"
)
_PROSE_EXTENSIONS = words(
    ".md .markdown .mdx .txt .rst .adoc .org .tex .pdf .docx .html .htm .xhtml .csv .tsv .log "
    ".eml .textile .wiki"
)
_SHELL_EXTENSIONS = words(".sh .bash .zsh .fish .ksh .bat .cmd .envrc .mk")
_LONGEST_EXTENSION = 6  # a longer one is a part of an id, such as the id of a conversation
_LOCALE = re.compile(
    r"(?:^|/)(?:locales?|i18n|l10n|lang|langs|languages?|translations?|messages)(?:/|[_.-])|(?:^|/)[a-z]{2}([_-][A-Z]{2})?\.[a-z]+$"
)
_NETRC = re.compile(r"\bpassword[ \t]{1,10}+(\S+)")
_PGPASS = re.compile(
    r"^[^#\n](?:[^:\n\\]|\\.)*+:[^:\n]*+:[^:\n]*+:[^:\n]*+:([^\n]+)$", re.MULTILINE
)
_PGPASS_ENTRY = re.compile(r":5432:[\w*-]{1,60}:[\w.-]{1,60}:(\S{4,100})(?=\s|$)")
_HTPASSWD = re.compile(r"^[^#:\n]{1,100}+:([^\n:]{4,}+)", re.MULTILINE)
_CREDENTIAL_FORMATS = {
    ".netrc": _NETRC,
    "_netrc": _NETRC,
    ".pgpass": _PGPASS,
    ".htpasswd": _HTPASSWD,
    "htpasswd": _HTPASSWD,
}


def classify(path: str) -> Trust:
    """Return how likely the values in a file are real, by its name.

    A text without a file name is prose.
    """
    name = posixpath.basename(path).lower()
    suffix = extension(name)
    if name in _CREDENTIAL_NAMES or suffix in _CREDENTIAL_EXTENSIONS or name.startswith(".env."):
        return Trust.CREDENTIALS
    if suffix in _SETTINGS_EXTENSIONS or _SETTINGS_NAMES.search(name):
        return Trust.SETTINGS
    if (
        suffix in _PROSE_EXTENSIONS
        or (not suffix and name not in ("makefile",))
        or len(suffix) > _LONGEST_EXTENSION
    ):
        return Trust.PROSE
    return Trust.PROGRAM


def is_shell(path: str) -> bool:
    """Tell if a file contains shell commands."""
    name = posixpath.basename(path).lower()
    return extension(name) in _SHELL_EXTENSIONS or name == "makefile" or "dockerfile" in name


def is_locale(path: str) -> bool:
    """Tell if a file contains translations, whose values are captions."""
    return bool(_LOCALE.search(path))


def find_in_credential_file(scan: ScannedText) -> Iterator[SecretSpan]:
    """Yield the passwords of `.netrc`, `.pgpass` and `.htpasswd`, which have no names."""
    if expression := _CREDENTIAL_FORMATS.get(posixpath.basename(scan.path).lower()):
        yield from (
            (*found.span(1), "password")
            for found in expression.finditer(scan.text)
            if not values.is_placeholder(found[1])
        )


def find_at_pgpass(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the password of an entry of `.pgpass` in another text."""
    found = _PGPASS_ENTRY.match(scan.text, at)
    if found and not values.is_placeholder(found[1]) and not values.is_ordinary(found[1]):
        yield (*found.span(1), "password")
