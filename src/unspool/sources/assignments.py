"""Literals assigned to a name that says secret: `password = "..."`, `"api_key": "..."`, `DB_PASSWORD=...`. Pure.

How much a value must look like a secret depends on the file. A `.env` file holds little else, a YAML file holds settings,
and in program text most such values are words, paths and names of other things.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum

from unspool.sources.names import extension, words

KINDS = frozenset({"password", "secret"})
_MIN_LENGTH = 6
_MIN_RANDOM = 16

# Where to look, in lower-cased text: the ends of names such as those in _NAME begin so.
_ANCHORS = (b"pass", b"pwd", b"secret", b"token", b"key", b"auth", b"credential")
_NAME = re.compile(
    r"(?P<public>public[_-]?(?:key)?[_-]?|(?:next|page|paging|pagination|continuation|change|update|lock|sync|request|cancel\w*)[_-]?)?"
    r"(?:(?P<password>passw(?:or)?d|passwort|passphrase|pwd|(?<=_)pass)"
    r"|secret|token|(?:^|[_.-])auth|credentials?"
    r"|(?:api|access|private|secret|encryption|signing|auth|account|master|shared|storage|admin)[_-]?key)"
    r"(?:[_-]?base)?[0-9]{0,2}$"
)
_WORD = r"(?:passw(?:or)?d|passwort|passphrase|pwd|(?<=_)pass|secret|token|(?<=[_\-ise])key|auth|credentials?)(?:[_-]?base)?[0-9]{0,2}(?![\w-])"
_QUOTED = (
    r"""(?P<prefix>[rbuf@$]{0,2})(?:"(?P<double>(?:[^"\\\r\n]|\\.){0,4000}+)"|'(?P<single>(?:[^'\\\r\n]|\\.){0,4000}+)'|`(?P<tick>(?:[^`\\\r\n]|\\.){0,4000}+)`"""
    r"""|[\u201c-\u201e](?P<curly>[^\u201c-\u201e\r\n]{0,4000}+)[\u201c-\u201e]"""  # word processors turn quotes round
    r"""|[\u2018-\u201a](?P<curl>[^\u2018-\u201a\r\n]{0,4000}+)[\u2018-\u201a])"""
)
_ASSIGNED = re.compile(
    _WORD + r"""(?P<close>["'`]?\]?)(?:"""
    r"(?:[ \t]{0,4}+:[ \t]{0,4}+[a-z_][\w.\[\]|, ?]{0,40})?"  # an annotation: `password: str = ...`
    r"(?P<operator>[ \t]{0,30}(?:=>|:=|={1,3}|:)[ \t]{0,30}+)"
    rf"(?:{_QUOTED}|(?P<bare>[^\s\"'`\u2018-\u201e]\S{{0,511}}+))"
    r"|>(?P<element>[^<>\s]{1,200}+)</)",
    re.IGNORECASE,
)
_NETRC = re.compile(r"\bpassword[ \t]{1,10}+(\S+)")
_PGPASS = re.compile(r"^[^#\n](?:[^:\n\\]|\\.)*+:[^:\n]*+:[^:\n]*+:[^:\n]*+:([^\n]+)$", re.MULTILINE)


class _Trust(IntEnum):
    """How likely a telling name has a real value, by the kind of file."""

    PROGRAM = 0
    SETTINGS = 1
    CREDENTIALS = 2


_CREDENTIAL_NAMES = words(
    ".env .npmrc .netrc _netrc .pgpass .pypirc .my.cnf .mylogin.cnf credentials .git-credentials .dockercfg .s3cfg .boto .htpasswd "
    "secrets.yml secrets.yaml secrets.json secrets.toml credentials.json credentials.yml credentials.yaml credentials.toml"
)
_CREDENTIAL_EXTENSIONS = frozenset({".env", ".ini", ".tfvars", ".credentials"})
_SETTINGS_EXTENSIONS = frozenset({".yaml", ".yml", ".toml", ".properties", ".conf", ".cfg", ".cnf", ".config", ".xml", ".plist"})
_SETTINGS_NAMES = re.compile(r"(?:appsettings|config|settings|service[_-]?account|\.docker.?config)[\w.-]*\.json$")
_LOCALE = re.compile(r"(?:^|/)(?:locales?|i18n|l10n|lang|langs|languages?|translations?|messages)(?:/|[_.-])|(?:^|/)[a-z]{2}([_-][A-Z]{2})?\.[a-z]+$")

# Not a value but its place: templates, variables, look-ups, and what manuals write.
_TEMPLATE = re.compile(r"\$[{(A-Za-z_]|\{\{|\}\}|\{[\w.:!]*\}|<[\w %.:/-]*>|<%|%\(|%[sdrv]\b|%[A-Z_]{3,}%|\.\.\.|\u2026|\*\*|@@|#\{|\x00")
_LOOKUP = re.compile(
    r"(?:os\.|env[.(\[]|process\.|system\.|secrets?\.|vars?\.|var\.|config\.|vault:|ssm:|arn:|op://|enc\[|data\.|local\.|module\.|\$|&|!\w|~/|\./|/\w+/)"
)
_DUMMY = re.compile(
    r"x{3,}|your|my[_-]?(?:pass|secret|token|api)|change[_-]?(?:me|it|this)|place[_-]?holder|redacted|example|dummy|insert|replace|todo|fixme|undefined"
    r"|not[_-]?set|masked|hidden|removed|sample|omitted|enter[_-]"
)
_FAKE = re.compile(
    r"passw|pwd|secret|token|test|foo|fake|mock|invalid|wrong|default|apikey|api[_-]key|user|admin|auth|login|abc|qwerty|asdf|temp|demo|sha[0-9]|md5|base64"
)
_ORDINARY = words(
    "string integer number boolean object required optional enabled disabled default password passwd secret private public hidden return returns "
    "digest bearer simple native prompt system manual always unless before during kerberos negotiate github google oauth inherit environment"
)
_DOTTED = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|->|::)[A-Za-z_$][\w$]*)+\(?\)?;?$")
_WORDY = re.compile(r"(?:[A-Za-z]+|[0-9]{1,4}|[A-Za-z]+[0-9]{1,2}|v[0-9]+)(?:[_.:/@-](?:[A-Za-z]+|[0-9]{1,4}|[A-Za-z]+[0-9]{1,2}))*$")
_PLAIN = re.compile(r"[\w!@#$%^&*+=?~.,-]+$")
_SPACE = re.compile(r"\s")
_LETTER = re.compile(r"[^\W\d_]")
_MARK = re.compile(r"[\d!@#$%^&*+=?~]")
_TOKEN = re.compile(r"[\w+/=.~!@#$%^&*:-]+$", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9+=]+")


def spans(text: str, folded: bytes, path: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of each value. `folded` is `text` in lower-case ASCII, one byte for each character."""
    trust = _trust(path)
    name = posixpath.basename(path).lower()
    if name in (".netrc", "_netrc"):
        yield from ((*found.span(1), "password") for found in _NETRC.finditer(text) if not is_placeholder(found[1]))
    if name == ".pgpass":
        yield from ((*found.span(1), "password") for found in _PGPASS.finditer(text) if not is_placeholder(found[1]))
    for anchor in _ANCHORS:
        at = folded.find(anchor)
        while at >= 0:
            found = _ASSIGNED.match(text, at)
            value = _judge(text, found, trust, path) if found else None
            if value:
                yield value
            at = folded.find(anchor, value[1] if value else at + len(anchor))


def _judge(text: str, found: re.Match[str], trust: _Trust, path: str) -> tuple[int, int, str] | None:
    start = found.start()
    while start > 0 and found.start() - start < 60 and (text[start - 1].isalnum() or text[start - 1] in "_-."):
        start -= 1
    named = _NAME.search(text[start : found.start("close")].lower())
    if not named or named["public"] or text[start - 2 : start] == "::":  # the name of a type: "AWS::IAM::AccessKey"
        return None
    kind = "password" if named["password"] else "secret"
    group = next((name for name in ("double", "single", "tick", "curly", "curl", "element") if found[name] is not None), "")
    if group:
        first, last = found.span(group)
        if "f" in (found["prefix"] or "").lower() and "{" in text[first:last]:
            return None
    elif bare := _bare(text, start, found, trust):
        first, last = bare
    else:
        return None
    value = text[first:last]
    if group and "r" not in (found["prefix"] or "").lower():
        value = value.replace("\\", "")  # an escape hides nothing; a raw string is a pattern more often than a password
    return (first, last, kind) if _is_secret(value, kind, trust, path) else None


def _bare(text: str, name_start: int, found: re.Match[str], trust: _Trust) -> tuple[int, int] | None:
    """The extent of a value without quotes, where such a value can be a literal at all."""
    first, last = found.span("bare")
    if trust is _Trust.CREDENTIALS:
        return first, last
    if trust is _Trust.SETTINGS and not found["close"]:
        value = re.match(r"[^\s,;}\])&<]*+", text[first:last])
        return (first, first + value.end()) if value else None
    before = text[name_start - 1 : name_start]
    name = text[name_start : found.start("close")]
    shell = (name.isupper() and before in ("", " ", "\t", "\n", "'", '"', "`")) or before in ("?", "&", ";") or name.startswith("--")
    if found["operator"] != "=" or found["close"] or not shell:
        return None
    value = re.match(r"[^\s,;&|<>(){}\[\]\"'`]*+", text[first:last])
    length = value.end() if value else 0
    following = text[first + length : first + length + 1]
    literal = text[first : first + length].rstrip(".:\\")
    # A call, an index or an attribute of something: program text, not a value.
    return None if (following and following in "([{") or _DOTTED.match(literal) else (first, first + len(literal))


def _trust(path: str) -> _Trust:
    name = posixpath.basename(path).lower()
    suffix = extension(name)
    if name in _CREDENTIAL_NAMES or suffix in _CREDENTIAL_EXTENSIONS or name.startswith(".env."):
        return _Trust.CREDENTIALS
    if suffix in _SETTINGS_EXTENSIONS or _SETTINGS_NAMES.search(name):
        return _Trust.SETTINGS
    return _Trust.PROGRAM


def is_placeholder(value: str) -> bool:
    """Whether a value only marks where a secret goes."""
    if len(set(value)) < 3 or _TEMPLATE.search(value) or _LOOKUP.match(value.lower()):
        return True
    return bool(_DUMMY.search(value.lower())) and not _varied(value)


def looks_random(value: str) -> bool:
    """Whether a value is long and mixed enough that nobody typed it as a word."""
    if len(value) < _MIN_RANDOM or not _TOKEN.match(value) or is_placeholder(value):
        return False
    if _varied(value) and _bits(value) >= 4.2:
        return True
    longest = max(_PART.findall(value), key=len, default="")
    digits = sum(char.isdigit() for char in longest)
    return len(longest) >= 12 and 2 <= digits < len(longest) and _bits(longest) >= 3.0


def _is_secret(value: str, kind: str, trust: _Trust, path: str) -> bool:
    if len(value) < _MIN_LENGTH or is_placeholder(value) or "://" in value:
        return False
    lower = value.lower()
    if trust is _Trust.CREDENTIALS:
        return lower not in _ORDINARY and not value.isdigit()
    if lower in _ORDINARY or _SPACE.search(value):
        return False
    if trust is _Trust.SETTINGS and kind == "password":
        # One capitalised or foreign word is a caption, not a password.
        return not value.isalpha() or (value.isascii() and value.islower() and not _LOCALE.search(path))
    if looks_random(value):
        return True
    if kind != "password" and not (trust is _Trust.SETTINGS or _long_enough(lower)):
        return False
    # "hunter2" may be a password, but "auth-v2" is a name of something.
    wordy = _WORDY.match(value) and not (kind == "password" and value.isalnum())
    return bool(_PLAIN.match(value)) and _mixed(value) and not wordy and not _FAKE.search(lower)


def _long_enough(lower: str) -> bool:
    """Room for short secrets in program text: at least ten characters, three of them digits."""
    return len(lower) >= 10 and sum(char.isdigit() for char in lower) >= 3


def _mixed(value: str) -> bool:
    return bool(_MARK.search(value) and _LETTER.search(value))


def _varied(value: str) -> bool:
    """Long, with digits and both cases: the word "example" in it may be chance, or a real key's tail."""
    return len(value) >= 32 and any(map(str.isdigit, value)) and any(map(str.isupper, value)) and any(map(str.islower, value))


def _bits(value: str) -> float:
    """Shannon entropy in bits per character."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())
