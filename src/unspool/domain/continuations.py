"""What a caller holds to get the next page: a short text that names a frozen ranking and a place in
it. Pure.

    3 bits   what kind of continuation it is 77 bits  the window's name, which nobody can guess 8
    bits   whose it is: a fingerprint of the catalog 8 bits   a checksum, so that a mistyped one is
    told from one that is gone 8 bits   a signature with the catalog's key, so that a place that was
    never given out is hardly ever followed rest     the place, as numbers of one or more bytes

That is 22 to 32 characters of A-Z, a-z, 0-9, '-' and '_', and the first is never '-', so that a
shell takes it as it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from dataclasses import dataclass

from unspool.errors import ForeignContinuationError, MalformedContinuationError

NAME_BYTES = 10
MAX_CHARACTERS = 32
STORED, SIGNED = 0, 1
_HEAD = NAME_BYTES + 1 + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """A place in a walk: the next entry to show, the number of the page that shows it, and what
    earlier pages came to.
    """

    position: int = 0
    number: int = 1
    shown: int = 0
    spent: int = 0  # tokens; counted only where the whole walk has a limit


def new_name() -> bytes:
    """A name for a window."""
    name = bytearray(secrets.token_bytes(NAME_BYTES))
    name[0] &= 0b00011111
    return bytes(name)


def kind_of(text: str) -> int:
    """Whether a continuation names a stored window or carries its own."""
    return raw(text)[0] >> 5


def write(name: bytes, at: Bookmark, *, catalog: str, key: bytes) -> str | None:
    """A continuation for a place in a stored window; None for one so deep that its numbers do
    not fit, after 16 000 pages.
    """
    numbers = b"".join(
        _number(value)
        for value in (at.position, at.number, at.shown, *([at.spent] if at.spent else []))
    )
    text = to_text(
        name + _tag(catalog) + _digest(name + numbers) + _digest(name + numbers, key) + numbers
    )
    return text if len(text) <= MAX_CHARACTERS else None


def read(text: str, *, catalog: str, key: bytes) -> tuple[bytes, Bookmark]:
    """The window's name and the place in it."""
    data = raw(text)
    name, numbers = data[:NAME_BYTES], data[_HEAD:]
    tag, checksum, signature = (data[at : at + 1] for at in range(NAME_BYTES, _HEAD))
    if len(text) > MAX_CHARACTERS or data[0] >> 5 != STORED or checksum != _digest(name + numbers):
        raise MalformedContinuationError(_malformed(text))
    # one foreign catalog in 256 has the same tag, and another key
    if tag != _tag(catalog) or signature != _digest(name + numbers, key):
        raise ForeignContinuationError(
            "this continuation was given out by another catalog, or mistyped; open that one, or "
            "search again here"
        )
    values = _numbers(numbers)
    if not 3 <= len(values) <= 4:
        raise MalformedContinuationError(_malformed(text))
    return name, Bookmark(
        position=values[0],
        number=values[1],
        shown=values[2],
        spent=values[3] if len(values) > 3 else 0,
    )


def to_text(data: bytes) -> str:
    """Bytes as the characters of a continuation."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def raw(text: str) -> bytes:
    """A continuation's bytes; anything else is refused."""
    try:
        data = base64.b64decode(
            text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except (UnicodeEncodeError, binascii.Error):
        raise MalformedContinuationError(_malformed(text)) from None
    if len(data) <= _HEAD or data[0] >> 5 not in (STORED, SIGNED) or to_text(data) != text:
        raise MalformedContinuationError(_malformed(text))
    return data


def _malformed(text: str) -> str:
    shown = repr(text) if len(text) <= 8 else f"{text[:6]!r}... of {len(text)} characters"
    return f"{shown} is no continuation; copy it whole from the page before, or search again"


def _tag(catalog: str) -> bytes:
    return hashlib.blake2b(catalog.encode(), digest_size=1, person=b"unspool catalog").digest()


def _digest(data: bytes, key: bytes = b"") -> bytes:
    return hashlib.blake2b(
        data, digest_size=1, key=key[: hashlib.blake2b.MAX_KEY_SIZE], person=b"unspool check"
    ).digest()


def _number(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _numbers(data: bytes) -> list[int]:
    values: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            values.append(value)
            value = shift = 0
    return values if shift == 0 else []
