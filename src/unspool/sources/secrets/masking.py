"""Masking: every character of a secret becomes `*`, so that offsets and lines stay exact. Pure.

Secrets are found by jumping to fixed strings first. Those searches run at memory speed, and most
files contain few of the strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.domain.reports import Masked
from unspool.sources.secrets import (
    assignments,
    commands,
    files,
    headers,
    names,
    private_keys,
    structures,
    tokens,
    urls,
)
from unspool.sources.secrets.spans import ScannedText, SecretFinder, SecretSpan, Trust

# masking can uncover a neighbour of a secret; in practice the second round finds nothing
_ROUNDS = 5

# Finders by the string at which they begin, in lower case. A text is searched once for each string.
_FINDERS: dict[bytes, tuple[SecretFinder, ...]] = {
    b"pass": (
        assignments.find_at_name,
        structures.find_at_insert,
        commands.find_at_password,
        commands.find_at_call,
    ),
    b"pw": (assignments.find_at_name,),
    b"psk": (assignments.find_at_name,),
    b"secret": (assignments.find_at_name, structures.find_at_manifest),
    b"token": (assignments.find_at_name, commands.find_at_call),
    b"key": (assignments.find_at_name, private_keys.find_at_putty),
    b"auth": (headers.find_at_authorization, assignments.find_at_name, commands.find_at_call),
    b"cred": (assignments.find_at_name, commands.find_at_call),
    b"salt": (assignments.find_at_name,),
    b"mnemonic": (assignments.find_at_name,),
    b"bearer": (headers.find_at_bearer,),
    b"basic": (headers.find_at_basic, commands.find_at_call),
    b"cookie": (headers.find_at_cookie,),
    b"hook": (urls.find_at_webhook,),
    b"sig": (urls.find_at_signature,),
    b"://": (urls.find_at_scheme,),
    b"jdbc:oracle:": (urls.find_at_oracle,),
    b"@tcp(": (urls.find_at_go_dsn,),
    b" -": (commands.find_at_option,),
    b"identified": (commands.find_at_statement,),
    b"securestring": (commands.find_at_statement,),
    b"connect": (commands.find_at_call,),
    b"mysqli(": (commands.find_at_call,),
    b"pdo(": (commands.find_at_call,),
    b"jwt.": (commands.find_at_signing,),
    b"login": (commands.find_at_call,),
    b"net use": (commands.find_at_statement,),
    b"sqlplus": (commands.find_at_statement,),
    b"freerdp": (commands.find_at_statement,),
}
_PROSE_FINDERS: dict[bytes, tuple[SecretFinder, ...]] = {
    **_FINDERS,
    b":5432:": (files.find_at_pgpass,),
    b"kennwort": (assignments.find_at_name,),
    b"senha": (assignments.find_at_name,),
    b"wachtwoord": (assignments.find_at_name,),
}


def mask_secrets(text: str, path: str = "") -> tuple[str, tuple[Masked, ...]]:
    """Mask the secrets of a text, and return their places. Masking twice changes nothing more.

    The path only decides how suspicious to be. In a `.env` file any value of a secret name counts.
    In program text it has to look like one.
    """
    masked: list[Masked] = []
    for _ in range(_ROUNDS):
        spans = _merge(sorted(span for span in _find_spans(text, path) if _is_readable(text, span)))
        if not spans:
            break
        masked += _locate(text, path, spans)
        text = _replace(text, spans)
    return text, tuple(sorted(masked, key=lambda item: item.line))


def mask_named(name: str, value: str) -> tuple[str, tuple[Masked, ...]]:
    """Mask the secrets of a value that has a name, and the whole value if the name says secret."""
    if names.is_named_secret(name, value):
        return re.sub(r"\S", "*", value), (Masked(path="", line=1, kind="secret"),)
    return mask_secrets(value)


def _find_spans(text: str, path: str) -> Iterator[SecretSpan]:
    # one byte for each character, so positions are the same in both
    flat = text.encode("ascii", "replace")
    scan = ScannedText(text, flat, flat.lower(), path, files.classify(path))
    yield from private_keys.find_blocks(scan)
    yield from tokens.find_tokens(scan)
    yield from tokens.find_hashes(scan)
    folded = scan.folded
    for anchor, finders in (_FINDERS if scan.trust is Trust.PROGRAM else _PROSE_FINDERS).items():
        at = folded.find(anchor)
        while at >= 0:
            end = at + len(anchor)
            for find in finders:
                for span in find(scan, at):
                    yield span
                    end = max(end, span[1])
            at = folded.find(anchor, end)
    yield from files.find_in_credential_file(scan)
    yield from assignments.find_foreign(scan)
    yield from structures.find_in_columns(scan)


def _is_readable(text: str, span: SecretSpan) -> bool:
    """Tell if a span contains anything but stars and white space."""
    return bool(text[span[0] : span[1]].strip("* \t\r\n"))


def _merge(spans: list[SecretSpan]) -> list[SecretSpan]:
    """Join overlapping spans under the more precise kind: "github token" rather than "secret"."""
    merged: list[SecretSpan] = []
    for start, end, kind in spans:
        if merged and start < merged[-1][1]:
            first, last, known = merged[-1]
            merged[-1] = (first, max(last, end), kind if known in names.KINDS else known)
        else:
            merged.append((start, end, kind))
    return merged


def _locate(text: str, path: str, spans: list[SecretSpan]) -> Iterator[Masked]:
    line, at = 1, 0
    for start, _, kind in spans:
        line += text.count("\n", at, start)
        at = start
        yield Masked(path=path, line=line, kind=kind)


def _replace(text: str, spans: list[SecretSpan]) -> str:
    """Replace the spans by stars; white space stays."""
    parts: list[str] = []
    at = 0
    for start, end, _ in spans:
        parts += text[at:start], re.sub(r"\S", "*", text[start:end])
        at = end
    return "".join(parts) + text[at:]
