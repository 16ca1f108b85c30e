"""Masking: every character of a secret becomes `*`, so that offsets and lines stay exact. Pure.

Secrets are found by jumping to fixed strings first. Those searches run at memory speed, and most
files contain few of the strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from unspool.domain.reports import Masked
from unspool.sources.secrets import assignments, commands, names, rules, structures, tokens
from unspool.sources.secrets.scanning import (
    ScannedText,
    SecretFinder,
    SecretSpan,
    Trust,
    classify,
)

# masking can uncover a neighbour of a secret; in practice the second round finds nothing
_ROUNDS = 5
_LISTED = 20
_SHOWN = 120  # characters of an address

# Finders, and the strings at which they begin, in lower case.
_ANCHORED: tuple[tuple[SecretFinder, tuple[str, ...]], ...] = (
    (
        assignments.find_at_name,
        ("pass", "pw", "psk", "secret", "token", "key", "auth", "cred", "salt", "mnemonic"),
    ),
    (structures.find_at_insert, ("pass",)),
    (structures.find_at_manifest, ("secret",)),
    (commands.find_at_password, ("pass",)),
    (commands.find_at_option, (" -",)),
    (
        commands.find_at_statement,
        ("identified", "securestring", "net use", "sqlplus", "freerdp"),
    ),
    (rules.find_at_authorization, ("auth",)),
    (rules.find_at_cookie, ("cookie",)),
    (rules.find_at_scheme, ("://",)),
    (rules.find_at_go_dsn, ("@tcp(",)),
    (tokens.find_at_begin, ("begin ",)),
    *((rule.find, rule.anchors) for rule in rules.RULES),
)
_PROSE_ANCHORED: tuple[tuple[SecretFinder, tuple[str, ...]], ...] = (
    *_ANCHORED,
    (assignments.find_at_name, ("kennwort", "senha", "wachtwoord")),
    *((rule.find, rule.anchors) for rule in rules.PROSE_RULES),
)


def _group(
    anchored: Sequence[tuple[SecretFinder, tuple[str, ...]]],
) -> dict[bytes, list[SecretFinder]]:
    """Group finders by their anchors. A text is searched once for each anchor."""
    distinct = dict.fromkeys(anchor for _, anchors in anchored for anchor in anchors)
    return {
        anchor.encode(): [find for find, anchors in anchored if anchor in anchors]
        for anchor in distinct
    }


_FINDERS, _PROSE_FINDERS = _group(_ANCHORED), _group(_PROSE_ANCHORED)


def mask_secrets(text: str, path: str = "") -> tuple[str, tuple[Masked, ...]]:
    """Mask the secrets of a text, and return their places. Masking twice changes nothing more.

    The path only decides how suspicious to be. In a `.env` file any value of a secret name counts.
    In program text it has to look like one.
    """
    masked: list[Masked] = []
    for _ in range(_ROUNDS):
        # a span of stars and white space is masked already
        spans = _merge(
            sorted(
                span
                for span in _find_spans(text, path)
                if text[span[0] : span[1]].strip("* \t\r\n")
            )
        )
        if not spans:
            break
        masked += _locate(text, path, spans)
        text = _replace(text, spans)
    return text, tuple(sorted(masked, key=lambda item: item.line))


def mask_field(name: str, value: str) -> tuple[str, tuple[Masked, ...]]:
    """Mask the secrets of a value that has a name, and the whole value if the name says secret."""
    if names.is_named_secret(name, value):
        return re.sub(r"\S", "*", value), (Masked(path="", line=1, kind="secret"),)
    return mask_secrets(value)


def _find_spans(text: str, path: str) -> Iterator[SecretSpan]:
    # one byte for each character, so positions are the same in both
    flat = text.encode("ascii", "replace")
    scan = ScannedText(text, flat, flat.lower(), path, classify(path))
    yield from tokens.find_tokens(scan)
    for anchor, finders in (_FINDERS if scan.trust is Trust.PROGRAM else _PROSE_FINDERS).items():
        at = scan.folded.find(anchor)
        while at >= 0:
            end = at + len(anchor)
            for find in finders:
                for span in find(scan, at):
                    yield span
                    end = max(end, span[1])
            at = scan.folded.find(anchor, end)
    yield from rules.find_in_credential_file(scan)
    yield from assignments.find_foreign(scan)
    yield from structures.find_in_columns(scan)


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


def warn_about_secrets(noun: str, addresses: Iterable[str]) -> list[str]:
    """Return a warning for each address that contains a secret.

    The secret is masked in the warning.
    """
    distinct = list(dict.fromkeys(addresses))
    if not mask_secrets("\n".join(distinct))[1]:  # one scan instead of many
        return []
    return [
        f"the {noun} {shown[:_SHOWN]!r} contains a secret ({masked[0].kind}), and a {noun} is never "
        f"masked; choose another {noun}"
        for shown, masked in map(mask_secrets, distinct)
        if masked
    ]


def limit_warnings(warnings: Sequence[str]) -> list[str]:
    """Return the first warnings, and the number of the others."""
    rest = len(warnings) - _LISTED
    return (
        [*warnings[:_LISTED], f"{rest} more paths, ids or metadata keys contain a secret"]
        if rest > 0
        else list(warnings)
    )
