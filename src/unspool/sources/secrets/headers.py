"""Credentials in HTTP headers: `Authorization`, `Cookie`, `Bearer` and `Basic`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from unspool.sources.secrets import values
from unspool.sources.secrets.spans import ScannedText, SecretSpan

_BEARER = re.compile(r"bearer[ \t:=]{1,4}+[\"']?([\w.~+/-]{16,}+=*+)", re.IGNORECASE | re.ASCII)
_BASIC = re.compile(r"basic[ \t]{1,4}+([A-Za-z0-9+/]{8,4000}+={0,2})", re.IGNORECASE)
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


def find_at_bearer(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield a token behind `Bearer`."""
    found = _BEARER.match(scan.text, at)
    if found and values.looks_random(found[1]):
        yield (*found.span(1), "bearer token")


def find_at_basic(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the encoded user and password behind `Basic`."""
    found = _BASIC.match(scan.text, at)
    if found and values.is_basic(found[1]):
        yield (*found.span(1), "basic credentials")


def find_at_authorization(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the credentials of an `Authorization` header with any scheme."""
    text = scan.text
    found = _AUTHORIZATION.match(text, at)
    if not found:
        return
    value = found["value"]
    if (found["scheme"] or "").lower() in _PARAMETER_SCHEMES:
        line = text.find("\n", at, at + _AUTHORIZATION_LINE)
        for part in _PARAMETER.finditer(text, at, line if line >= 0 else at + _AUTHORIZATION_LINE):
            if not values.is_identifier(part[1]) and not values.is_placeholder(part[1]):
                yield (*part.span(1), "credentials in a header")
    elif values.looks_random(value) or (
        values.count_digits(value) >= 2
        and values.looks_like_password(value)
        and not values.is_identifier(value)
    ):
        yield (*found.span("value"), "credentials in a header")


def find_at_cookie(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the values of a `Cookie` or `Set-Cookie` header."""
    header = _COOKIE.match(scan.text, at)
    if not header:
        return
    earlier = scan.folded.rfind(b"cookie", max(0, at - _COOKIE_LENGTH), at)
    inside = _COOKIE.match(scan.text, earlier) if earlier >= 0 else None
    if not inside or inside.end() <= at:  # else the earlier header contains this one
        yield from _find_cookies(scan.text, header)


def _find_cookies(text: str, header: re.Match[str]) -> Iterator[SecretSpan]:
    for pair in islice(_COOKIE_PAIR.finditer(text, *header.span("pairs")), _COOKIE_PAIRS):
        name, value = pair[1], pair[2]
        if (
            name.lower() in _COOKIE_ATTRIBUTES
            or values.is_placeholder(value)
            or values.is_reference(value)
        ):
            continue
        telling = _SESSION.search(name) and len(value) >= 8 and values.count_digits(value) >= 2
        if values.looks_random(value) or (
            telling and not values.is_identifier(value) and not values.is_wordy(value)
        ):
            yield (*pair.span(2), "cookie")
