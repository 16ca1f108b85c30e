"""Rules for secrets behind a fixed string: HTTP headers, URLs, calls, hashes, files. Pure.

Each rule is a row of a table. A function finds the forms that one expression cannot describe.
"""

from __future__ import annotations

import posixpath
import re
from itertools import islice

from unspool.sources.names import split_words
from unspool.sources.secrets import values
from unspool.sources.secrets.scanning import Rule, ScannedText, SecretSpan, Trust, get_line

_AUTHORIZATION = re.compile(
    r"(?<![A-Za-z])authorization[\"'`]?\]?[ \t]{0,4}+(?:=>|[:=,])[ \t]{0,4}+[\"'`]?"
    r"(?:(?P<scheme>[A-Za-z][\w-]{1,30}+)[ "
    r"\t=]{1,4}+)?[\"']?(?P<value>[A-Za-z0-9][^\s\"'`,;<>()]{5,4000}+)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(
    r"(?:response|cnonce|signature|mac|password)=\"?([\w+/=.-]{16,}+)", re.IGNORECASE | re.ASCII
)
_COOKIE = re.compile(
    r"cookie2?[\"'`]?\]?[ \t]{0,4}+(?:=>|[:=,])[ \t]{0,4}+[\"'`]?(?P<pairs>[^\r\n\"'`]{3,4000}+)",
    re.IGNORECASE,
)
_COOKIE_PAIR = re.compile(r"([\w.$-]{1,80}+)=([^;\s\"'`,]{6,4000}+)", re.ASCII)
_COOKIE_PAIRS = 50
_COOKIE_LENGTH = 4000
_COOKIE_ATTRIBUTES = frozenset(
    {"path", "domain", "expires", "max-age", "samesite", "version", "priority", "comment"}
)
_SESSION = re.compile(
    r"sess|sid$|token|auth|csrf|xsrf|jwt|login|remember|connect\.|secret|user|credential|key$",
    re.IGNORECASE,
)
_PARAMETER_SCHEMES = frozenset(
    {"digest", "hmac", "signature", "oauth", "aws4-hmac-sha256", "hawk", "mac"}
)
_AUTHORIZATION_LINE = 600
# The extent of an authority with user information. The user may be empty, as in redis URLs.
_USER = re.compile(r"://([^\s/:@\"'`<>\\?#,;()\[\]{}|*]{0,200}+)([:@])")
_REST = re.compile(r"[^\s\"'`<>\\,]{1,300}+")
_HOST = re.compile(
    r"(?:\[[0-9a-fA-F:.]+\]|[\w{$%<][\w.${}%<>*-]*+)(?::[\w${}%<>]+)?(?=[/?#,;)\s\"'`]|$|\.(?:\s|$))"
)
_REAL_HOST = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+|[\w.-]+:[0-9]{2,5})(?=[/?#,;)]|$)")
_PORT = re.compile(r"[0-9]{1,5}(?:[/?#\s\"'`<>),;]|$)")
_PLACEHOLDERS = split_words(
    "password passwd passw0rd pass pwd secret token user username key apikey api_key pw abc foo "
    "bar test mypass mypassword userpass any none xxx "
    "pass1 pass2 password1 passwort x-oauth-basic x-access-token"
)
_NETRC = re.compile(r"\bpassword[ \t]{1,10}+(\S+)")
_PGPASS = re.compile(
    r"^[^#\n](?:[^:\n\\]|\\.)*+:[^:\n]*+:[^:\n]*+:[^:\n]*+:([^\n]+)$", re.MULTILINE
)
_HTPASSWD = re.compile(r"^[^#:\n]{1,100}+:([^\n:]{4,}+)", re.MULTILINE)
_CREDENTIAL_FORMATS = {
    ".netrc": _NETRC,
    "_netrc": _NETRC,
    ".pgpass": _PGPASS,
    ".htpasswd": _HTPASSWD,
    "htpasswd": _HTPASSWD,
}
_MIN_HASH = 24


def _is_webhook(value: str) -> bool:
    return values.is_varied(value) and not values.is_placeholder(value)


def _is_signature(value: str) -> bool:
    return (
        any(map(str.isdigit, value)) and values.is_varied(value) and not values.is_identifier(value)
    )


def _is_url_password(value: str) -> bool:
    return value.lower() not in _PLACEHOLDERS and not values.is_placeholder(value)


def _is_hash(value: str) -> bool:
    return len(value) >= _MIN_HASH and values.is_varied(value)


def _is_argument(value: str) -> bool:
    return not values.is_secret_name(value) and (
        values.looks_random(value) or values.looks_like_password(value)
    )


def _is_signing_key(value: str) -> bool:
    return values.is_secret(value, "secret", Trust.SETTINGS)


def _is_pgpass(value: str) -> bool:
    return not values.is_filler(value)


RULES = (
    Rule(
        "bearer token",
        ("bearer",),
        re.compile(r"bearer[ \t:=]{1,4}+[\"']?([\w.~+/-]{16,}+=*+)", re.IGNORECASE | re.ASCII),
        values.looks_random,
    ),
    Rule(
        "basic credentials",
        ("basic",),
        re.compile(r"basic[ \t]{1,4}+([A-Za-z0-9+/]{8,4000}+={0,2})", re.IGNORECASE),
        values.is_basic,
    ),
    Rule(
        "slack webhook",
        ("hook",),
        re.compile(r"hooks\.slack(?:-gov)?\.com/[a-z]{5,12}/([\w/+-]{20,}+)", re.ASCII),
        _is_webhook,
    ),
    Rule(
        "discord webhook",
        ("hook",),
        re.compile(r"(?<=/api/web)hooks/[0-9]{15,20}+/([\w-]{50,}+)", re.ASCII),
        _is_webhook,
    ),
    Rule(
        "teams webhook",
        ("hook",),
        re.compile(r"(?<=/web)hookb2/([\w@-]{36,}+(?:/[\w-]{10,}+){1,4}+)", re.ASCII),
        _is_webhook,
    ),
    Rule(
        "teams webhook",
        ("hook",),
        re.compile(r"(?<=/IncomingWeb)hook/([\w-]{30,}+/[\w-]{30,}+)", re.ASCII),
        _is_webhook,
    ),
    Rule(
        "zapier webhook",
        ("hook",),
        re.compile(
            r"(?:(?<=/)hooks/catch/|hooks\.zapier\.com/hooks/catch/)([\w/-]{8,}+)", re.ASCII
        ),
        _is_webhook,
    ),
    Rule(
        "signature",
        ("sig",),
        re.compile(r"sig(?:nature)?=([A-Za-z0-9%+/_~-]{20,}+={0,2})", re.IGNORECASE),
        _is_signature,
    ),
    Rule(
        "password in url",
        ("jdbc:oracle:",),
        re.compile(r"jdbc:oracle:(?:thin|oci8?):([^\s/@\"']{1,40}+)/([^\s@\"']{3,100}+)@"),
        _is_url_password,
    ),
    Rule(
        "password",
        ("pass", "token", "auth", "cred", "basic", "connect", "mysqli(", "pdo(", "login"),
        re.compile(
            r"(?:basic_?auth\w{0,20}|credentials?|(?<=password)token|mysqli|pdo|login|connect(?:ion)?|auth(?:[ \t]{0,4}=)?|passwordauthentication)"
            r"[ \t]{0,4}[(\[ ][ \t]{0,4}"
            r"(?:(?:[\w.]{1,60}|N?[\"'][^\"'\r\n]{0,80}[\"'])[ \t]{0,4},[ "
            r"\t]{0,4}){1,3}N?[\"'](?P<password>[^\"'\r\n]{6,200})[\"'][ \t]{0,4}[,)\]\r\n;]",
            re.IGNORECASE,
        ),
        _is_argument,
    ),
    Rule(
        "secret",
        ("jwt.",),
        re.compile(
            r"jwt\.(?:encode|decode|sign|verify)\([ \t]{0,8}[^,\r\n]{1,80},[ "
            r"\t]{0,8}b?[\"'](?P<key>[^\"'\r\n]{6,200})[\"']",
            re.IGNORECASE,
        ),
        _is_signing_key,
    ),
    Rule(
        "private key",
        ("private-",),
        re.compile(
            r"Private-Lines: [0-9]{1,4}[ \t]*\r?\n((?:[ \t>#*]*+[A-Za-z0-9+/=]{4,}+[ \t]*+(?:\r?\n|$))++)"
        ),
        bool,
    ),
    Rule("private key", ("private-",), re.compile(r"Private-MAC: ([0-9a-f]{40,64}+)"), bool),
    Rule(
        "password hash",
        ("{s",),
        re.compile(
            r"\{(?:S?SHA(?:256|384|512)?|SMD5)\}([\w./+=$,-]{16,}+)", re.IGNORECASE | re.ASCII
        ),
        values.is_varied,
    ),
    Rule(
        "password hash",
        ("$",),
        re.compile(
            r"\$(?:2[abxy]?\$[0-9]{2}\$[./A-Za-z0-9]{53}|(?:1|5|6|7|y|gy|apr1|md5)\$(?:rounds=[0-9]{1,9}+\$)?[./A-Za-z0-9]{1,40}+\$[./A-Za-z0-9]{16,}+"
            r"|argon2(?:id?|d)\$[\w=,$+/.-]{30,}+|scrypt\$[\w=,$+/.-]{30,}+|pbkdf2[\w-]*+\$[\w=,$+/.-]{30,}+)",
            re.ASCII,
        ),
        _is_hash,
    ),
    Rule(
        "password hash",
        ("pbkdf2", "scrypt:"),
        re.compile(
            r"(?:pbkdf2_sha[0-9]{1,3}+|pbkdf2:sha[0-9]{1,3}+:|scrypt:[0-9:]{3,20})[$0-9]{2,12}+\$?[\w.$+/=-]{24,}+",
            re.ASCII,
        ),
        values.is_varied,
    ),
)
# rules for all texts but programs
PROSE_RULES = (
    Rule(
        "password",
        (":5432:",),
        re.compile(r":5432:[\w*-]{1,60}:[\w.-]{1,60}:(\S{4,100})(?=\s|$)"),
        _is_pgpass,
    ),
)


def find_at_authorization(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the credentials of an `Authorization` header with any scheme."""
    text, kind = scan.text, "credentials in a header"
    found = _AUTHORIZATION.match(text, at)
    if not found:
        return []
    if (found["scheme"] or "").lower() in _PARAMETER_SCHEMES:
        return [
            (*part.span(1), kind)
            for part in _PARAMETER.finditer(text, at, get_line(text, at, _AUTHORIZATION_LINE)[1])
            if not values.is_identifier(part[1]) and not values.is_placeholder(part[1])
        ]
    value = found["value"]
    is_secret = values.looks_random(value) or (
        values.count_digits(value) >= 2
        and values.looks_like_password(value)
        and not values.is_identifier(value)
    )
    return [(*found.span("value"), kind)] if is_secret else []


def find_at_cookie(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the values of a `Cookie` or `Set-Cookie` header."""
    header = _COOKIE.match(scan.text, at)
    if not header:
        return []
    earlier = scan.folded.rfind(b"cookie", max(0, at - _COOKIE_LENGTH), at)
    inside = _COOKIE.match(scan.text, earlier) if earlier >= 0 else None
    if inside and inside.end() > at:  # the earlier header contains this one
        return []
    pairs = _COOKIE_PAIR.finditer(scan.text, *header.span("pairs"))
    return [
        (*pair.span(2), "cookie")
        for pair in islice(pairs, _COOKIE_PAIRS)
        if _is_cookie(pair[1], pair[2])
    ]


def _is_cookie(name: str, value: str) -> bool:
    is_session = (
        bool(_SESSION.search(name))
        and len(value) >= 8
        and values.count_digits(value) >= 2
        and not values.is_identifier(value)
        and not values.is_wordy(value)
    )
    return (
        (is_session or values.looks_random(value))
        and name.lower() not in _COOKIE_ATTRIBUTES
        and not values.is_placeholder(value)
        and not values.is_reference(value)
    )


def find_at_go_dsn(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the password of a DSN of Go: `user:password@tcp(host)/database`."""
    text = scan.text
    least = max(0, at - 120)
    start = max(least - 1, *(text.rfind(mark, least, at) for mark in "\"'` =\n>"))
    user, _, password = text[start + 1 : at].partition(":")
    is_secret = user and len(password) >= 3 and _is_url_password(password)
    return [(at - len(password), at, "password in url")] if is_secret else []


def find_at_scheme(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the password and the token in the user information of a URL."""
    text = scan.text
    user = _USER.match(text, at)
    if not user:
        return []
    first = user.end()
    last = _find_password_end(text, first) if user[2] == ":" else 0
    is_password = last and _is_url_password(text[first:last])
    spans = [(first, last, "password in url")] if is_password else []
    has_host = last or user[2] == "@" or text[first : first + 1] == "@"
    if has_host and values.looks_random(user[1]) and values.is_varied(user[1]):
        spans.append((*user.span(1), "token in url"))
    return spans


def _find_password_end(text: str, start: int) -> int:
    """Return the end of a password: the last `@` that a host follows; 0 if there is none.

    A password may contain `@` and `/`, though a URL should encode them. A host that looks like one
    ends the search.
    """
    rest = None if _PORT.match(text, start) else _REST.match(text, start)
    if not rest:
        return 0
    # another address may follow; its scheme is no part of this one
    limit = start + len(rest[0].partition("://")[0])
    best = 0
    at = text.find("@", start, limit)
    while at >= 0:
        if at - start >= 3 and _HOST.match(text, at + 1):
            best = at
            if _REAL_HOST.match(text, at + 1):
                break
        following = text.find("@", at + 1, limit)
        if following >= 0 and (
            text[following - 1] == "/" or any(char in text[at:following] for char in "?#&=")
        ):
            break
        at = following
    password = text[start:best]
    # "host:port/path@version" has no password.
    is_path = "/" in password and not re.search(r"[0-9!#$%^&*+@]", password)
    return 0 if is_path or re.match(r"[0-9]{1,5}/", password) else best


def find_in_credential_file(scan: ScannedText) -> list[SecretSpan]:
    """Return the passwords of `.netrc`, `.pgpass` and `.htpasswd`, which have no names."""
    expression = _CREDENTIAL_FORMATS.get(posixpath.basename(scan.path).lower())
    return [
        (*found.span(1), "password")
        for found in (expression.finditer(scan.text) if expression else ())
        if not values.is_placeholder(found[1])
    ]
