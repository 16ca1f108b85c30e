"""Secrets in addresses: user information of URLs, webhooks, signatures, connection strings.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.names import words
from unspool.sources.secrets import values
from unspool.sources.secrets.spans import ScannedText, SecretSpan, is_monotonous

# Matched at "hook"; group 1 is the secret.
_WEBHOOKS = (
    (
        "slack webhook",
        re.compile(r"hooks\.slack(?:-gov)?\.com/[a-z]{5,12}/([\w/+-]{20,}+)", re.ASCII),
    ),
    ("discord webhook", re.compile(r"(?<=/api/web)hooks/[0-9]{15,20}+/([\w-]{50,}+)", re.ASCII)),
    (
        "teams webhook",
        re.compile(r"(?<=/web)hookb2/([\w@-]{36,}+(?:/[\w-]{10,}+){1,4}+)", re.ASCII),
    ),
    ("teams webhook", re.compile(r"(?<=/IncomingWeb)hook/([\w-]{30,}+/[\w-]{30,}+)", re.ASCII)),
    (
        "zapier webhook",
        re.compile(
            r"(?:(?<=/)hooks/catch/|hooks\.zapier\.com/hooks/catch/)([\w/-]{8,}+)", re.ASCII
        ),
    ),
)
_SIGNATURE = re.compile(r"sig(?:nature)?=([A-Za-z0-9%+/_~-]{20,}+={0,2})", re.IGNORECASE)
# The extent of an authority with user information. The user may be empty, as in redis URLs.
_USER = re.compile(r"://([^\s/:@\"'`<>\\?#,;()\[\]{}|*]{0,200}+)([:@])")
_REST = re.compile(r"[^\s\"'`<>\\,]{1,300}+")
_HOST = re.compile(
    r"(?:\[[0-9a-fA-F:.]+\]|[\w{$%<][\w.${}%<>*-]*+)(?::[\w${}%<>]+)?(?=[/?#,;)\s\"'`]|$|\.(?:\s|$))"
)
_REAL_HOST = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+|[\w.-]+:[0-9]{2,5})(?=[/?#,;)]|$)")
_PORT = re.compile(r"[0-9]{1,5}(?:[/?#\s\"'`<>),;]|$)")
_ORACLE = re.compile(r"jdbc:oracle:(?:thin|oci8?):([^\s/@\"']{1,40}+)/([^\s@\"']{3,100}+)@")
_PLACEHOLDERS = words(
    "password passwd passw0rd pass pwd secret token user username key apikey api_key pw abc foo "
    "bar test mypass mypassword userpass any none xxx "
    "pass1 pass2 password1 passwort x-oauth-basic x-access-token"
)


def find_at_webhook(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the secret part of a webhook's address."""
    for kind, expression in _WEBHOOKS:
        if (
            (found := expression.match(scan.text, at))
            and not is_monotonous(found[1])
            and not values.is_placeholder(found[1])
        ):
            yield (*found.span(1), kind)


def find_at_signature(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the signature of a signed address."""
    found = _SIGNATURE.match(scan.text, at)
    if (
        found
        and any(map(str.isdigit, found[1]))
        and not is_monotonous(found[1])
        and not values.is_identifier(found[1])
    ):
        yield (*found.span(1), "signature")


def find_at_go_dsn(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the password of a DSN of Go: `user:password@tcp(host)/database`."""
    text = scan.text
    least = max(0, at - 120)
    start = max(
        least - 1, *(text.rfind(mark, least, at) for mark in ('"', "'", "`", " ", "=", "\n", ">"))
    )
    user, sign, password = text[start + 1 : at].partition(":")
    if (
        sign
        and user
        and password.lower() not in _PLACEHOLDERS
        and len(password) >= 3
        and not values.is_placeholder(password)
    ):
        yield at - len(password), at, "password in url"


def find_at_oracle(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the password of an Oracle address: `jdbc:oracle:thin:user/password@host`."""
    found = _ORACLE.match(scan.text, at)
    if found and not values.is_placeholder(found[2]) and found[2].lower() not in _PLACEHOLDERS:
        yield (*found.span(2), "password in url")


def find_at_scheme(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the password and the token in the user information of a URL."""
    text = scan.text
    user = _USER.match(text, at)
    if not user:
        return
    password = _match_password(text, user.end()) if user[2] == ":" else None
    if password:
        value = text[slice(*password)]
        if value.lower() not in _PLACEHOLDERS and not values.is_placeholder(value):
            yield (*password, "password in url")
    if (password or user[2] == "@" or text[user.end() : user.end() + 1] == "@") and _is_token(
        user[1]
    ):
        yield (*user.span(1), "token in url")


def _is_token(user: str) -> bool:
    return values.looks_random(user) and not is_monotonous(user)


def _match_password(text: str, start: int) -> tuple[int, int] | None:
    """Return the extent of a password: up to the last `@` that a host follows.

    A password may contain `@` and `/`, though a URL should encode them. A host that looks like one
    ends the search.
    """
    if _PORT.match(text, start):
        return None
    rest = _REST.match(text, start)
    if not rest:
        return None
    limit = rest.end()
    scheme = text.find("://", start, limit)
    if scheme >= 0:  # another address follows; its scheme is no part of this one
        limit = scheme
    best = None
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
    if best is None:
        return None
    password = text[start:best]
    # "host:port/path@version" has no password.
    is_path = "/" in password and not re.search(r"[0-9!#$%^&*+@]", password)
    return None if is_path or re.match(r"[0-9]{1,5}/", password) else (start, best)
