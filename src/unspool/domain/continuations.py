"""Continuations: short texts that name a result window and a position in it. Pure.

    | 3 bits  | kind of continuation                                                        |
    | 77 bits | random name of the window                                                   |
    | 8 bits  | fingerprint of the catalog                                                  |
    | 8 bits  | checksum, which distinguishes a typing error from an expired continuation   |
    | 8 bits  | signature with the catalog's key, so that a forged position is rarely valid |
    | rest    | position, as numbers of one or more bytes                                   |

That is 22 to 32 characters of A-Z, a-z, 0-9, '-' and '_'. The first is never '-', so that a shell
does not take it for a flag.
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
class Cursor:
    """Position in a window: the next entry, the number of its page, and the totals before it."""

    position: int = 0
    number: int = 1
    shown: int = 0
    spent: int = 0  # tokens; counted only if all pages together have a budget


def new_name() -> bytes:
    """Return a random name for a window."""
    name = bytearray(secrets.token_bytes(NAME_BYTES))
    name[0] &= 0b00011111
    return bytes(name)


def normalize(text: str) -> str:
    """Return a continuation without the spaces around it. Raise if it is malformed."""
    if not isinstance(text, str):
        raise MalformedContinuationError(
            f"a continuation is text, not a {type(text).__name__}; give page.continuation"
        )
    raw(text.strip())
    return text.strip()


def kind_of(text: str) -> int:
    """Return the kind of a continuation: `STORED` or `SIGNED`."""
    return raw(text)[0] >> 5


def write(name: bytes, at: Cursor, *, catalog: str, key: bytes) -> str | None:
    """Return a continuation for a stored window; None beyond about 16,000 pages.

    Deeper positions do not fit into its characters.
    """
    numbers = b"".join(
        _number(value)
        for value in (at.position, at.number, at.shown, *([at.spent] if at.spent else []))
    )
    text = to_text(
        name + _tag(catalog) + _digest(name + numbers) + _digest(name + numbers, key) + numbers
    )
    return text if len(text) <= MAX_CHARACTERS else None


def read(text: str, *, catalog: str, key: bytes) -> tuple[bytes, Cursor]:
    """Return the name of the window and the position in it."""
    data = raw(text)
    name, numbers = data[:NAME_BYTES], data[_HEAD:]
    tag, checksum, signature = (data[at : at + 1] for at in range(NAME_BYTES, _HEAD))
    if len(text) > MAX_CHARACTERS or data[0] >> 5 != STORED or checksum != _digest(name + numbers):
        raise _build_error(text)
    # one foreign catalog in 256 has the same tag, and another key
    if tag != _tag(catalog) or signature != _digest(name + numbers, key):
        raise ForeignContinuationError(
            "this continuation was given out by another catalog, or mistyped; open that one, or "
            "search again here"
        )
    values = _numbers(numbers)
    if not 3 <= len(values) <= 4:
        raise _build_error(text)
    return name, Cursor(
        position=values[0],
        number=values[1],
        shown=values[2],
        spent=values[3] if len(values) > 3 else 0,
    )


def to_text(data: bytes) -> str:
    """Return bytes as the characters of a continuation."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def raw(text: str) -> bytes:
    """Return the bytes of a continuation; reject any other text."""
    try:
        data = base64.b64decode(
            text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except (UnicodeEncodeError, binascii.Error):
        raise _build_error(text) from None
    if len(data) <= _HEAD or data[0] >> 5 not in (STORED, SIGNED) or to_text(data) != text:
        raise _build_error(text)
    return data


def _build_error(text: str) -> MalformedContinuationError:
    shown = repr(text) if len(text) <= 8 else f"{text[:6]!r}... of {len(text)} characters"
    return MalformedContinuationError(
        f"{shown} is no continuation; copy it whole from the page before, or search again"
    )


def _tag(catalog: str) -> bytes:
    return hashlib.blake2b(catalog.encode(), digest_size=1, person=b"unspool catalog").digest()


def _digest(data: bytes, key: bytes = b"") -> bytes:
    return hashlib.blake2b(
        data, digest_size=1, key=key[: hashlib.blake2b.MAX_KEY_SIZE], person=b"unspool check"
    ).digest()


def _number(value: int) -> bytes:
    """Encode seven bits per byte, the lowest first. The eighth bit says that more follow."""
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
