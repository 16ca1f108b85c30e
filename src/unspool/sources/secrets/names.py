"""Names that say secret: `password`, `api_key`, `DB_CHOSEN`, `client-secret`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from unspool.sources.secrets import values
from unspool.sources.secrets.scanning import (
    ScannedText,
    SecretSpan,
    Trust,
    get_line,
    is_locale,
)

KINDS = frozenset({"password", "secret"})
_LONGEST = 60
_FOREIGN = re.compile(
    "|".join(
        (
            "\u5bc6\u7801",
            "\u5bc6\u78bc",
            "\u30d1\u30b9\u30ef\u30fc\u30c9",
            "\u043f\u0430\u0440\u043e\u043b\u044c",
            "\u041f\u0430\u0440\u043e\u043b\u044c",
            "contrase\u00f1a",
            "Contrase\u00f1a",
            "has\u0142o",
            "Has\u0142o",
            "l\u00f6senord",
        )
    )
)
_SUFFIX = (
    r"(?:[_-]?(?:base|value|string|text|plain|plaintext|raw|b64|base64|hex|phrase))?s?[0-9]{0,2}"
)
_CHOSEN = (
    r"passw(?:or)?d|passwort|pass[ _-]?phrase|pass[ _-]?code|(?<=de "
    r")passe|kennwort|senha|wachtwoord|requirepass|(?<=master)auth"
)
_WORD = re.compile(
    rf"(?:{_CHOSEN}|pass|pwd|pw|psk|secret|token|key|auth|credential|creds?|salt|mnemonic){_SUFFIX}(?![\w-])",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?P<public>public[_-]?(?:key)?[_-]?|(?:next|page|paging|pagination|continuation|change|update|lock|sync|request|cancel\w*|proxy|fastcgi|uwsgi|scgi|grpc|memcached)[_-]?)?"
    rf"(?:(?P<password>{_CHOSEN}|passe|pwd"
    r"|(?:^|[_.\-/:]|bind|rpc|db|sql|smtp|imap|mail|user|usr|admin|ftp|root|ssh|auth|login|wifi|store|key|trust|redis|mongo|pg|http)"
    r"(?:pass|pw|psk))"
    r"|secret|token|(?:^|[_.-])auth|credential|creds|mnemonic|(?:auth|secure|logged[_-]?in|nonce|password|secret|crypt|hash)[_-]?salt"
    r"|(?:api|access|private|secret|encrypt(?:ion)?|decryption|signing|auth|account|master|shared|storage|admin|app(?:lication)?|licen[sc]e|jwt|hmac"
    r"|cipher|crypto|aes|subscription|integration|routing|write|server|role|deploy|webhook|session|client|consumer|function|instrumentation"
    r"|pre-?shared|x-api|nonce|logged[_-]?in|secure|recovery|ingest(?:ion)?|developer|provisioning|registration|bot|cookie|hash|host|validation)"
    r"[ _.-]?key)"
    rf"{_SUFFIX}$"
)
_PHRASE = re.compile(
    r"(?:api|access|private|secret|encryption|signing|license|account|subscription|recovery|shared|client|master)[ ]$",
    re.IGNORECASE,
)
_KEY_VALUE = re.compile(r"[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?([\w+/=-]{32,200})")
_SHORT = frozenset({"pass", "auth", "salt", "key"})
_COMMENT = re.compile(r"[ \t]*(?:#|//|/?\*|--|;|%|<!--|\"\"\"|'''|>|rem\b|\.\.|!)", re.IGNORECASE)


class SecretName(NamedTuple):
    """A secret name in a text: its start and end, and the kind of its value."""

    text: str
    path: str
    trust: Trust
    start: int
    end: int
    kind: str

    @property
    def name(self) -> str:
        return self.text[self.start : self.end]

    @property
    def before(self) -> str:
        return self.text[self.start - 1] if self.start else ""

    @property
    def is_short(self) -> bool:
        """A name that is also an ordinary word: only an assignment makes it a name."""
        return self.name.lower() in _SHORT

    def get_line_before(self) -> str:
        """Return the text of the line before the name."""
        return self.text[get_line(self.text, self.start)[0] : self.start]

    def get_line_after(self, first: int) -> str:
        """Return the rest of the line at a position, without a comment."""
        return self.text[first : get_line(self.text, first)[1]].split(" #")[0].rstrip()

    def is_commented(self) -> bool:
        """Tell if the name is in a comment."""
        return bool(_COMMENT.match(self.get_line_before()))

    def accepts(self, value: str, trust: Trust) -> bool:
        """Tell if a value of this name is a secret, as far as the file is trusted."""
        return values.is_secret(value, self.kind, trust, captions=is_locale(self.path))

    def mark(self, first: int, value: str, *, when: bool = True) -> list[SecretSpan]:
        """Return the span of a value that is a secret."""
        return [(first, first + len(value), self.kind)] if when and value else []


def identify(scan: ScannedText, at: int) -> SecretName | None:
    """Return the name whose last word begins at a position, if the whole name says secret."""
    text = scan.text
    word = _WORD.match(text, at)
    if not word:
        return None
    start = at
    least = max(0, at - _LONGEST)
    while start > least and (text[start - 1].isalnum() or text[start - 1] in "_-."):
        start -= 1
    # "API key"
    if (
        start == at
        and text[at - 1 : at] == " "
        and (phrase := _PHRASE.search(text[max(0, at - 14) : at]))
    ):
        start -= len(phrase[0])
    name = SecretName(text, scan.path, scan.trust, start, word.end(), "secret")
    kind = _classify(name.name)
    if not kind:
        is_key = word[0].lower() == "key" and start == at and _is_random_key(text, word.end())
        return name if is_key else None
    two_before = text[max(0, start - 2) : start]
    is_other = (
        two_before == "::"  # the name of a type: "AWS::IAM::AccessKey"
        or (name.before in ("$", "(", "{") and name.name.lower() == "pwd")  # the working folder
        # a part of an ARN
        or (name.before == ":" and text[name.end : name.end + 1] == ":" and two_before[0].isalnum())
    )
    return None if is_other else name._replace(kind=kind)


def _classify(name: str) -> str:
    """Return the kind of the value of a name, or an empty string if the name says no secret."""
    named = _NAME.search(name.lower())
    if not named or named["public"]:
        return ""
    return "password" if named["password"] else "secret"


def _is_random_key(text: str, end: int) -> bool:
    """Tell if a name that is only `key` has a long random value.

    Public keys of SSH begin with AAAA.
    """
    value = _KEY_VALUE.match(text, end)
    return (
        value is not None
        and not value[1].startswith("AAAA")
        and values.looks_random(value[1])
        and (values.has_all_classes(value[1]) or text[end - 4 : end - 3] in ("?", "&"))
    )


def identify_foreign(scan: ScannedText) -> Iterator[SecretName]:
    """Yield the words for a password in other scripts and languages."""
    trust = max(scan.trust, Trust.PROSE)
    for found in () if scan.text.isascii() else _FOREIGN.finditer(scan.text):
        yield SecretName(scan.text, scan.path, trust, *found.span(), "password")


def is_named_secret(name: str, value: str) -> bool:
    """Tell if the name of a value alone makes the value a secret."""
    kind = _classify(name)
    return bool(kind) and values.is_secret(value, kind, Trust.CREDENTIALS)
