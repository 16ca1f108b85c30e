"""Decoding of files: detection of the encoding, and of binary data. Pure."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress

_SNIFF_BYTES = 8192
_SAMPLE_BYTES = 65_536
_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Everything below space but backspace, tab, line ends, form feed and escape (terminal colours); and
# DEL.
_CONTROL = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b")) + b"\x7f"
_MAX_CONTROL_SHARE = 0.1
# Western text has its accents and curly quotes one by one among ASCII letters; other encodings have
# runs of high bytes.
_WESTERN_BYTES = bytes({0x80, 0x85, *range(0x91, 0x98), 0x99, *range(0xA0, 0x100)})
_RUNS = re.compile(rb"[\x80-\xff]+")


def decode(data: bytes) -> tuple[str, str] | None:
    """Return the text without its byte order mark, and the encoding; None for binary data.

    Line ends stay as they are.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace"), encoding
    head = data[:_SNIFF_BYTES]
    if b"\x00" in head:
        wide = _detect_utf16(head)
        return (data.decode(wide, "replace"), wide) if wide else None
    if len(head.translate(None, _CONTROL)) < len(head) * (1 - _MAX_CONTROL_SHARE):
        return None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError as error:
        return _decode_other(data, error.start)


def _detect_utf16(head: bytes) -> str:
    """Return the encoding of UTF-16 without a mark, or an empty string.

    The text is mostly ASCII, so that one byte of each pair is mostly NUL and the other rarely.
    """
    even, odd = head[0::2], head[1::2]
    half = len(odd)
    if half < 2:
        return ""
    low, high = even.count(0) / half, odd.count(0) / half
    encoding = "utf-16-le" if high > low else "utf-16-be"
    text = head[: half * 2].decode(encoding, "replace")
    readable = sum(char.isprintable() or char.isspace() for char in text)
    is_wide = max(low, high) > 0.5 and min(low, high) < 0.05 and readable > len(text) * 0.95
    return encoding if is_wide else ""


def _decode_other(data: bytes, bad: int) -> tuple[str, str]:
    text = data.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    # A few broken bytes in UTF-8 (a log cut in a character) do not make it another encoding.
    if sum(char > "\x7f" for char in text) - damaged > damaged * 4:
        return text, "utf-8"
    start = data.rfind(b"\n", 0, bad) + 1
    sample = data[max(start, bad - 4096) : bad + _SAMPLE_BYTES]
    if bad + _SAMPLE_BYTES < len(data) and b"\n" in sample:
        sample = sample[: sample.rfind(b"\n") + 1]  # not through the middle of a character
    for encoding in (*_guess_encodings(sample), "cp1252"):
        with suppress(UnicodeDecodeError, LookupError):
            return data.decode(encoding), encoding
    return data.decode("latin-1"), "latin-1"  # every byte is a character there


def _guess_encodings(sample: bytes) -> list[str]:
    runs = _RUNS.findall(sample)
    western = not sample.translate(None, bytes(range(0x80)) + _WESTERN_BYTES)
    if western and sum(len(run) == 1 for run in runs) >= len(runs) * 0.9:
        return ["cp1252"]  # the detector often takes short Western text for something rarer
    # late: few files need it, and it takes longer to load than all of sources
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best()
    return [best.encoding] if best else []
