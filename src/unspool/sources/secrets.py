"""Secrets in text, masked in place: every character of one becomes `*`, so offsets and lines stay exact. Pure.

Two sorts are recognised: values with a form of their own (keys of known providers, private key blocks, tokens, passwords in URLs), here;
and literals assigned to a telling name, in `assignments.py`. Everything is found by jumping to fixed strings first, because
those searches run at memory speed and most files hold none of them. The expressions use possessive repeats: no backtracking.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from unspool.domain.reports import Masked
from unspool.sources import assignments
from unspool.sources.names import words

_ROUNDS = 5  # masking can uncover a neighbour that was glued to a secret; in practice the second round finds nothing
_MIN_DISTINCT = 6  # fewer different characters: "ghp_xxxxxxxx" in a manual
_KEY_WINDOW = 32_768  # characters; an RSA key of 16384 bits takes 13 000


class _Form(NamedTuple):
    """What one kind of secret looks like: `expression` matches where one of the `prefixes` stands."""

    kind: str
    prefixes: tuple[str, ...]
    expression: re.Pattern[str]


def _form(kind: str, prefixes: str, expression: str, *, glued: str = "A-Za-z0-9") -> _Form:
    """`glued` are characters that may not stand before it."""
    return _Form(kind, tuple(prefixes.split()), re.compile(f"(?<![{glued}]){expression}", re.ASCII))


_FORMS = (
    _form("aws access key", "AKIA ASIA", r"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _form("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,}+"),
    _form("github token", "github_pat_", r"github_pat_\w{22,}+"),
    _form("gitlab token", "glpat- gldt- glrt- glptt- glcbt- glsoat- glft-", r"gl[a-z]{2,4}-[\w-]{20,}+"),
    _form("slack token", "xox xapp-", r"x(?:ox[a-z]|app)-[A-Za-z0-9-]{15,}+"),
    _form("google api key", "AIza", r"AIza[\w-]{35}(?![\w-])", glued=r"\w-"),
    _form("google oauth secret", "GOCSPX-", r"GOCSPX-[\w-]{20,}+", glued=r"\w-"),
    _form("google oauth token", "ya29.", r"ya29\.[\w-]{20,}+", glued=r"\w-"),
    _form("stripe key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{12,}+"),
    _form("webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{20,}+"),
    _form("anthropic key", "sk-ant-", r"sk-ant-[\w-]{20,}+", glued=r"\w-"),
    _form("openai key", "sk-", r"sk-(?:(?:proj|svcacct|admin|or-v1)-[\w-]{20,}+|[A-Za-z0-9]{32,}+(?![\w-]))", glued=r"\w-"),
    _form("hugging face token", "hf_", r"hf_[A-Za-z0-9]{30,}+(?!\w)", glued=r"\w"),
    _form("npm token", "npm_", r"npm_[A-Za-z0-9]{36}(?!\w)", glued=r"\w"),
    _form("pypi token", "pypi-AgE", r"pypi-AgE[\w-]{20,}+", glued=r"\w-"),
    _form("sendgrid key", "SG.", r"SG\.[\w-]{16,32}+\.[\w-]{16,64}+", glued=r"\w."),
    _form("twilio key", "SK", r"SK[0-9a-f]{32}(?!\w)", glued=r"\w"),
    _form("digitalocean token", "doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{40,}+"),
    _form("shopify token", "shpat_ shpss_ shpca_ shppa_", r"shp[a-z]{2}_[0-9a-fA-F]{32}(?!\w)"),
    _form("atlassian token", "ATATT3x", r"ATATT3x[\w=-]{20,}+", glued=r"\w"),
    _form("vault token", "hvs. hvb.", r"hv[sb]\.[\w-]{24,}+", glued=r"\w."),
    _form("groq key", "gsk_", r"gsk_[A-Za-z0-9]{40,}+(?!\w)", glued=r"\w"),
    _form("grafana token", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}(?!\w)", glued=r"\w"),
    _form("unspool key", "unspool_", r"unspool_[0-9a-f]{12}_[A-Za-z0-9]{43}(?!\w)", glued=r"\w"),
    _form("age secret key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}+"),
    _form("jwt", "eyJ", r"eyJ[\w-]{8,}+\.ey[\w-]{8,}+\.[\w-]{8,}+", glued=r"\w-"),
)
# One alternation of plain strings: anything else (groups, sets) makes the search ten times slower.
_PREFIXES = re.compile("|".join(re.escape(prefix) for form in _FORMS for prefix in form.prefixes))
_BY_START = {
    start: [form for form in _FORMS if any(prefix.startswith(start) for prefix in form.prefixes)]
    for start in {prefix[:2] for form in _FORMS for prefix in form.prefixes}
}
# All of the above have a run of 20 such characters. With everything else made a space, runs are found at memory speed:
# 25 times faster than looking for each prefix in turn.
_RUN = b"a" * 20
_RUN_CHARACTERS = bytes(ord("a") if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_-") else ord(" ") for code in range(256))
_BEFORE_RUN = 5  # the longest prefix that ends in a dot

# Recognised by what stands before them; group 1 is the secret.
_ANCHORED = (
    ("slack webhook", "hooks.slack.com/", re.compile(r"hooks\.slack\.com/[a-z]{5,12}/([\w/+-]{20,}+)", re.ASCII)),
    ("discord webhook", "/api/webhooks/", re.compile(r"/api/webhooks/[0-9]{15,20}+/([\w-]{50,}+)", re.ASCII)),
    ("azure key", "Key=", re.compile(r"(?:(?<=Account)|(?<=SharedAccess))Key=([A-Za-z0-9+/]{30,}+={0,2})")),
)
# Behind "://" and a user: the password, up to the "@" before a host. The user may be empty, as in redis URLs.
_URL = re.compile(r"://[^\s/:@\"'`<>\\]{0,80}+:([^\s/@\"'`<>\\,]{3,200}+)@[\w\[{$%<]")
_URL_PLACEHOLDERS = words(
    "password passwd passw0rd pass pwd secret token user username key apikey api_key pw abc foo bar test mypass mypassword userpass any none"
)
_BEARER = re.compile(r"bearer[ \t]{1,4}+([\w.~+/-]{16,}+=*+)", re.IGNORECASE | re.ASCII)
_BASIC = re.compile(r"basic[ \t]{1,4}+([A-Za-z0-9+/]{8,4000}+={0,2})", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{24}")
# A block without its end: header lines, blank lines and lines of base64, also as string literals of a program.
_KEY_LINES = re.compile(r"(?:[ \t\"'+\\,nr]*+(?:[A-Za-z0-9+/=]{16,}+|[A-Z][A-Za-z-]{2,20}+: [^\n]{0,100}+)?[ \t\"'+\\,;nr]*+\r?+(?:\n|$))*+")

_Span = tuple[int, int, str]  # start, end, kind


def mask(text: str, path: str = "") -> tuple[str, tuple[Masked, ...]]:
    """The text with every secret starred out, and where they were. Masking twice changes nothing more.

    The path only decides how suspicious to be: in a `.env` file any value of a telling name is a secret, in program text it has to look like one.
    """
    masked: list[Masked] = []
    for _ in range(_ROUNDS):
        spans = _merged(sorted(_spans(text, path)))
        if not spans:
            break
        masked += _located(text, path, spans)
        text = _starred(text, spans)
    return text, tuple(sorted(masked, key=lambda item: item.line))


def _spans(text: str, path: str) -> Iterator[_Span]:
    flat = text.encode("ascii", "replace")  # one byte for each character, so positions are the same in both
    folded = flat.lower()
    yield from _private_keys(text)
    yield from _tokens(text, flat.translate(_RUN_CHARACTERS))
    for kind, anchor, expression in _ANCHORED:
        yield from ((*found.span(1), kind) for found in _at_anchors(text, flat, anchor.encode(), expression) if not _is_dull(found[1]))
    yield from _url_passwords(text, flat)
    yield from _headers(text, folded)
    yield from assignments.spans(text, folded, path)


def _is_dull(value: str) -> bool:
    return len(set(value)) < _MIN_DISTINCT


def _tokens(text: str, runs: bytes) -> Iterator[_Span]:
    at, done = runs.find(_RUN), 0
    while at >= 0:
        end = runs.find(b" ", at)
        end = end if end >= 0 else len(text)
        for prefix in _PREFIXES.finditer(text, max(at - _BEFORE_RUN, done), end):
            if prefix.start() >= done and (span := _token(text, prefix.start())):
                done = span[1]
                if not _is_dull(text[span[0] : done]):
                    yield span
        at = runs.find(_RUN, max(end, done))


def _token(text: str, at: int) -> _Span | None:
    for form in _BY_START[text[at : at + 2]]:
        if found := form.expression.match(text, at):
            return (*found.span(), form.kind)
    return None


def _at_anchors(text: str, searched: bytes, anchor: bytes, expression: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Matches that begin at an occurrence of `anchor` in `searched`, one after the other."""
    at = searched.find(anchor)
    while at >= 0:
        found = expression.match(text, at)
        if found:
            yield found
        at = searched.find(anchor, found.end() if found else at + len(anchor))


def _private_keys(text: str) -> Iterator[_Span]:
    at = text.find("-----BEGIN ")
    while at >= 0:
        following = text.find("-----BEGIN ", at + 11)
        begin = _PRIVATE_KEY.match(text, at)
        if begin:
            limit = min(begin.end() + _KEY_WINDOW, following if following >= 0 else len(text))
            end = text.find("-----END ", begin.end(), limit)
            if end < 0 and (lines := _KEY_LINES.match(text, begin.end(), limit)):
                end = lines.end()
            # Programs that handle keys name the markers without anything between them.
            if _KEY_MATERIAL.search(text, begin.end(), end):
                yield begin.end(), end, "private key"
        at = following


def _url_passwords(text: str, flat: bytes) -> Iterator[_Span]:
    for found in _at_anchors(text, flat, b"://", _URL):
        password = found[1]
        if password.lower() not in _URL_PLACEHOLDERS and not assignments.is_placeholder(password):
            yield (*found.span(1), "password in url")


def _headers(text: str, folded: bytes) -> Iterator[_Span]:
    for found in _at_anchors(text, folded, b"bearer ", _BEARER):
        if assignments.looks_random(found[1]):
            yield (*found.span(1), "bearer token")
    for found in _at_anchors(text, folded, b"basic ", _BASIC):
        if _is_basic(found[1]):
            yield (*found.span(1), "basic credentials")


def _is_basic(value: str) -> bool:
    """Whether it is the base64 of `user:password`; ordinary words are not."""
    try:
        plain = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return ":" in plain and plain.isprintable()


def _merged(spans: list[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for start, end, kind in spans:
        if merged and start < merged[-1][1]:
            first, last, known = merged[-1]
            # The more telling name: "github token" rather than "token".
            merged[-1] = (first, max(last, end), kind if known in assignments.KINDS else known)
        else:
            merged.append((start, end, kind))
    return merged


def _located(text: str, path: str, spans: list[_Span]) -> Iterator[Masked]:
    line, at = 1, 0
    for start, _, kind in spans:
        line += text.count("\n", at, start)
        at = start
        yield Masked(path=path, line=line, kind=kind)


def _starred(text: str, spans: list[_Span]) -> str:
    parts: list[str] = []
    at = 0
    for start, end, _ in spans:
        parts += text[at:start], re.sub(r"\S", "*", text[start:end])
        at = end
    return "".join(parts) + text[at:]
