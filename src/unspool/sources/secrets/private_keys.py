"""Blocks of private keys: PEM, OpenSSH, PGP, PuTTY, SSH2, OpenVPN, and PEM inside base64. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from unspool.sources.secrets.spans import ScannedText, SecretSpan

_KEY_WINDOW = 32_768  # characters; an RSA key of 16384 bits takes 13 000
_BEGIN = re.compile(
    r"-----BEGIN (?:[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V[0-9]|[A-Z]{0,10} "
    r"?PARAMETERS AND KEY)-----"
    r"|---- BEGIN (?:SSH2 )?[A-Z ]{0,20}PRIVATE KEY ----"
)
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{24}")
# A block without its end: header lines, blank lines and lines of base64, also as string literals of
# a program.
_KEY_LINES = re.compile(
    r"(?:[ \t\"'+\\,nr]*+(?:[A-Za-z0-9+/=]{16,}+|[A-Z][A-Za-z-]{2,20}+: [^\n]{0,100}+)?[ "
    r"\t\"'+\\,;nr]*+\r?+(?:\n|$))*+"
)
_PUTTY = re.compile(
    r"Private-Lines: [0-9]{1,4}[ \t]*\r?\n((?:[ \t>#*]*+[A-Za-z0-9+/=]{4,}+[ \t]*+(?:\r?\n|$))++)"
)
_PUTTY_MAC = re.compile(r"Private-MAC: ([0-9a-f]{40,64}+)")
# base64 of "-----BEGIN "; wrapped lines included.
ENCODED_KEY = re.compile(
    r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{10,}+(?:(?:\\n|[ \t]*+\r?\n[ \t]*+)?[A-Za-z0-9+/]{16,}+)*+={0,2}"
)
_ENCODED_HEAD = 120


def find_blocks(scan: ScannedText) -> Iterator[SecretSpan]:
    """Yield the bodies of private key blocks."""
    text = scan.text
    at = text.find("BEGIN ")
    while at >= 0:
        following = text.find("BEGIN ", at + 6)
        opening = next(
            (dashes for dashes in ("-----", "---- ") if text.endswith(dashes, 0, at)), ""
        )
        begin = _BEGIN.match(text, at - len(opening)) if opening else None
        if begin:
            limit = min(
                begin.end() + _KEY_WINDOW, following - len(opening) if following >= 0 else len(text)
            )
            end = text.find(f"{opening}END ", begin.end(), limit)
            if end < 0 and (lines := _KEY_LINES.match(text, begin.end(), limit)):
                end = lines.end()
            # Programs that handle keys name the markers without anything between them.
            if _KEY_MATERIAL.search(text, begin.end(), end):
                yield begin.end(), end, "private key"
        at = following


def find_at_putty(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the private lines of a PuTTY key file, given the position of its header."""
    if scan.folded.startswith(b"key-file-", at):
        for expression in (_PUTTY, _PUTTY_MAC):
            if found := expression.search(scan.text, at, at + _KEY_WINDOW):
                yield (*found.span(1), "private key")


def is_encoded_key(encoded: str) -> bool:
    """Tell if base64 begins with the header of a private key, not of a certificate."""
    head = re.sub(r"\\n|\s", "", encoded[:_ENCODED_HEAD])
    try:
        return b"PRIVATE" in base64.b64decode(head[: len(head) // 4 * 4])
    except ValueError:
        return False
