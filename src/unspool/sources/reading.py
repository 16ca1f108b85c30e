"""Text of a file: read whole, decoded, and with its secrets masked."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from dataclasses import dataclass

from unspool.domain.documents import Metadata, sha256
from unspool.domain.reports import Masked, Skip
from unspool.errors import MissingDependencyError, NotFoundError, ServiceError
from unspool.sources import decoding
from unspool.sources.extraction import Extracted, extract, is_document, read_html_title
from unspool.sources.folders import MAX_BYTES, Found, get_max_bytes, translate_os_error
from unspool.sources.names import get_extension
from unspool.sources.pages import extract_page
from unspool.sources.secrets.masking import mask_field, mask_secrets

_TRIES = 3
_PAUSE_S = 0.02
# NOFOLLOW and NONBLOCK: the file may have become a link or a pipe since it was scanned.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)

_REPLACED = {
    errno.ELOOP: ("symlink", "became a link since it was listed"),
    errno.ENXIO: ("special", "a socket or device"),
}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # databases refuse NUL and lone surrogates
_HTML = frozenset({".html", ".htm", ".xhtml"})
_PARSED = _HTML | {".ipynb"}
SMALL_BYTES = 100_000  # of text that is read and chunked within 2 seconds, whatever is in it
_MINIFIABLE = frozenset({".js", ".mjs", ".cjs", ".css", ".json", *_HTML})
_LONGEST_LINE = 5_000
_AVERAGE_LINE = 500
# Prose may well speak of generated code in its first lines.
_PROSE = frozenset(
    {"", ".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".org", ".tex", ".pdf", ".docx"}
)
_COMMENT = r"^[ \t]*(?:/[/*]|\*|#|--|<!--|;|%|'''|\"\"\")[^\n]*?"
_GENERATED = re.compile(
    _COMMENT + r"(?:(?<![\w`'\"])@generated\b(?![`'\"])"
    r"|[Cc]ode generated [^\n]*DO NOT EDIT"
    r"|(?:(?i:auto(?:matically)?[- ]?generated))(?s:.){0,200}?(?i:do not (?:edit|modify|change)))",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file at one instant: the hash of its bytes, and its masked text.

    If the text was extracted, offsets and lines count in the text and not in the file, and
    `language` is the language of the text.
    """

    text: str
    sha256: str
    size_bytes: int
    modified_ns: int
    encoding: str  # "" where the text was extracted
    masked: tuple[Masked, ...] = ()
    title: str = ""
    language: str = ""  # "" to decide by the path


def read(found: Found, *, max_bytes: int = MAX_BYTES) -> Reading | Skip:
    """Return the text of a file, or the reason to skip it.

    Line ends stay as they are, so offsets into `text` count characters of the decoded file behind
    its byte order mark. For PDF, DOCX and HTML pages of prose they count in the extracted text.
    Raise `NotFoundError` if the file was deleted, `InputError` if it may not be read or is damaged,
    and `ServiceError` if the disk fails or the file keeps changing.
    """
    content = _read_stable(found, get_max_bytes(found.path, max_bytes))
    return content if isinstance(content, Skip) else _read_content(found, *content)


def read_small_text(found: Found, *, max_bytes: int = MAX_BYTES) -> Reading | Skip | None:
    """Read a file as `read` does, or return None if the file is large or needs a parser.

    Such files are read in a process with limits.
    """
    content = _read_stable(found, get_max_bytes(found.path, max_bytes))
    if isinstance(content, Skip):
        return content
    data, path = content[0], found.path
    if len(data) > SMALL_BYTES or get_extension(path) in _PARSED or is_document(data, path):
        return None
    return _read_content(found, *content)


def _read_content(found: Found, data: bytes, status: os.stat_result) -> Reading | Skip:
    extracted = _extract_text(data, found.path)
    if isinstance(extracted, Skip):
        return extracted
    text, masked = mask_text(extracted.text, found.path)
    return Reading(
        text=text,
        sha256=sha256(data),
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
        encoding=extracted.encoding,
        masked=masked,
        title=mask_value(extracted.title, found.path),
        language=extracted.language,
    )


def mask_text(text: str, path: str = "") -> tuple[str, tuple[Masked, ...]]:
    """Mask the secrets of a text, and replace the characters that a database refuses.

    The length stays the same.
    """
    return mask_secrets(_UNSTORABLE.sub("\ufffd", text), path)


def mask_value(text: str, path: str = "") -> str:
    """Mask the secrets of a title or another short text."""
    return mask_text(text, path)[0]


def mask_metadata(metadata: Metadata) -> Metadata:
    """Mask the secrets in metadata values. A value whose key says secret is masked as a whole."""
    return {key: _mask_metadata_value(key, value) for key, value in metadata.items()}


def _mask_metadata_value(key: str, value: str | int | float | bool) -> str | int | float | bool:
    if isinstance(value, bool):
        return value
    masked = mask_field(key, str(value))[0]
    return value if masked == str(value) else masked


def _read_stable(found: Found, limit: int) -> tuple[bytes, os.stat_result] | Skip:
    """Return the whole content at one instant, and the status that belongs to it."""
    for _ in range(_TRIES):
        try:
            content = _read_once(found, limit)
        except FileNotFoundError:
            raise NotFoundError(
                f"{found.path!r} vanished before it could be read; the next run takes note"
            ) from None
        except OSError as error:
            if error.errno in _REPLACED:
                reason, detail = _REPLACED[error.errno]
                return Skip(path=found.path, reason=reason, detail=detail)
            raise translate_os_error(found.path, error) from error
        if content is not None:
            return content
        time.sleep(_PAUSE_S)
    raise ServiceError(f"{found.path!r} kept changing while it was read; the next run takes it")


def _read_once(found: Found, limit: int) -> tuple[bytes, os.stat_result] | Skip | None:
    descriptor = os.open(found.file, _FLAGS)
    with open(descriptor, "rb", buffering=0) as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return Skip(path=found.path, reason="special", detail="no regular file any more")
        if before.st_size > limit:
            detail = f"{before.st_size} bytes; the limit is {limit}"
            return Skip(path=found.path, reason="huge", detail=detail)
        data = bytearray()
        # One byte more than expected: a longer read shows that it grew.
        while len(data) <= before.st_size and (block := file.read(before.st_size + 1 - len(data))):
            data += block
        after = os.fstat(descriptor)
    unchanged = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns) and len(
        data
    ) == before.st_size
    return (bytes(data), before) if unchanged else None


def _extract_text(data: bytes, path: str) -> Extracted | Skip:
    """Return the text in the bytes, or the reason to skip the file."""
    try:
        extracted = extract(data, path)
    except MissingDependencyError as error:
        return Skip(path=path, reason="needs extra", detail=str(error).rpartition("; ")[2])
    if extracted is not None:
        return (
            extracted
            if extracted.text.strip()
            else Skip(path=path, reason="empty", detail="it contains no text, only images perhaps")
        )
    decoded = decoding.decode(data)
    if decoded is None:
        return Skip(path=path, reason="binary", detail="by its content")
    text, encoding = decoded
    if not text.strip():
        return Skip(path=path, reason="empty", detail="only blank")
    if get_extension(path) not in _PROSE and _GENERATED.search(
        "\n".join(text[:2048].split("\n", 5)[:5])
    ):
        return Skip(path=path, reason="generated", detail="its header says so")
    is_html = get_extension(path) in _HTML
    if is_html and (prose := extract_page(text)):
        return prose
    # A page of prose was returned above: only its markup would be minified.
    if _is_minified(text, path):
        return Skip(path=path, reason="minified", detail="lines too long for a reader")
    title = read_html_title(text) if is_html else ""
    return Extracted(text=text, title=title, encoding=encoding)


def _is_minified(text: str, path: str) -> bool:
    if get_extension(path) not in _MINIFIABLE or len(text) <= _LONGEST_LINE:
        return False
    lines = text.split("\n")
    # Both: a readable page may contain one long inlined image, and a small script only short lines.
    return max(map(len, lines)) > _LONGEST_LINE and len(text) / len(lines) > _AVERAGE_LINE
