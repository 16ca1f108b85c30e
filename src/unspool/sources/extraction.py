"""Text of PDF and DOCX files. HTML is in `pages`.

Offsets and lines of such a document count in the extracted text, not in the file.
"""

from __future__ import annotations

import io
import logging
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from unspool.errors import InputError, MissingDependencyError
from unspool.sources.names import get_extension

if TYPE_CHECKING:
    from docx.document import Document as DocxDocument
    from docx.table import Table

_MAX_PAGES = 5_000
_MAX_CHARS = 20_000_000
_MAX_UNPACKED_BYTES = 150_000_000  # of all parts together: the parser keeps them in memory
_MAX_XML_BYTES = 25_000_000  # of the parts that are parsed: a tree takes up to ten times that
_MAX_ENTRIES = 10_000
_MAX_RATIO = 500  # XML packs at most about 1:100; bombs lie above 1:1000

# What the parsers let through on damaged files besides their own errors, seen with files cut or
# altered at random.
_DAMAGE: tuple[type[Exception], ...] = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    OSError,
    zlib.error,
    struct.error,
)
_LXML_NO_MEMORY = 2

_LITERAL = re.compile(r"^(?=#{1,6}(?:[ \t]|$)|=+[ \t]*$|-+[ \t]*$|`{3}|~{3})", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """Text and title of a document. The text of a scanned PDF is empty."""

    text: str
    title: str = ""
    language: str = ""  # of `text`, whatever the file was
    encoding: str = ""  # of source text, which is not extracted


def extract(data: bytes, path: str) -> Extracted | None:
    """Return the text of a PDF or DOCX, or None if the file is neither.

    Raise `MissingDependencyError` with the install command, and `InputError` for a file that is
    encrypted, damaged or too large.
    """
    if not is_document(data, path):
        return None
    form = "docx" if get_extension(path) == ".docx" else "pdf"
    try:
        return _extract_docx(data, path) if form == "docx" else _extract_pdf(data, path)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pypdf", "docx", "lxml"):
            raise
        raise MissingDependencyError(
            f"{path!r} needs the {form!r} extra; pip install 'unspool[{form}]'"
        ) from error


def is_document(data: bytes, path: str) -> bool:
    """Return whether a file is a PDF or DOCX, by its name or, for PDF, its first bytes."""
    return get_extension(path) in (".pdf", ".docx") or data.startswith(b"%PDF-")


def read_html_title(text: str) -> str:
    """Return the content of `<title>` in the first 4 KB."""
    found = re.search(r"<title[^>]{0,200}>([^<]{1,300})</title", text[:4096], re.IGNORECASE)
    return " ".join(found[1].split()) if found else ""


def escape_markdown(text: str) -> str:
    """Put a backslash before text that Markdown would read as a heading or a fence."""
    return _LITERAL.sub(r"\\", text)


def _extract_pdf(data: bytes, path: str) -> Extracted:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    # it warns about every flaw of a file on the user's terminal
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    with _translate_damage(path, "PDF", (PyPdfError,)):
        try:
            reader = PdfReader(io.BytesIO(data), strict=False)
            if reader.is_encrypted and not reader.decrypt(""):
                raise InputError(f"{path!r} is encrypted; index a copy without a password")
            if (count := len(reader.pages)) > _MAX_PAGES:
                raise InputError(
                    f"{path!r} has {count} pages; split it into files of at most {_MAX_PAGES}"
                )
            pages = (page.extract_text().strip() for page in reader.pages)
            title = reader.metadata.title if reader.metadata else ""
            return _build(pages, str(title or ""), "text", path)
        except DependencyError as error:
            raise InputError(
                f"{path!r} is encrypted in a way that needs another package; index a copy without "
                f"a password"
            ) from error


def _extract_docx(data: bytes, path: str) -> Extracted:
    import docx
    from docx.opc.exceptions import OpcError

    # SyntaxError: lxml's, of damaged XML
    damage = (OpcError, SyntaxError, zipfile.BadZipFile, NotImplementedError)
    with _translate_damage(path, "DOCX", damage):
        _check_archive(data, path)
        document = docx.Document(io.BytesIO(data))
        title = document.core_properties.title or ""
        return _build(_iterate_blocks(document, path), title, "markdown", path)


@contextmanager
def _translate_damage(path: str, form: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn the errors of a parser into one that names the file."""
    try:
        yield
    except InputError:
        raise  # it is a ValueError too
    except errors + _DAMAGE as error:
        if getattr(error, "code", 0) == _LXML_NO_MEMORY:
            raise MemoryError from error
        raise InputError(
            f"{path!r} is not a readable {form} ({type(error).__name__}); repair it or leave it "
            f"out in .unspoolignore"
        ) from error


def _check_archive(data: bytes, path: str) -> None:
    """Reject archives that would unpack to more than any document needs.

    zipfile never unpacks more than is declared.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    parsed = sum(entry.file_size for entry in entries if entry.filename.endswith((".xml", ".rels")))
    if (
        len(entries) > _MAX_ENTRIES
        or unpacked > _MAX_UNPACKED_BYTES
        or unpacked > 1_000_000 + packed * _MAX_RATIO
    ):
        raise InputError(
            f"{path!r} would unpack to {unpacked} bytes in {len(entries)} parts; save it again "
            f"from a word processor"
        )
    if parsed > _MAX_XML_BYTES:
        raise InputError(
            f"{path!r} contains {parsed} bytes of XML; split it into documents of at most "
            f"{_MAX_XML_BYTES}"
        )


def _iterate_blocks(document: DocxDocument, path: str) -> Iterator[str]:
    from docx.enum.style import WD_STYLE_TYPE
    from docx.text.paragraph import Paragraph

    @cache  # a lookup searches all styles
    def get_level(style_id: str | None) -> int:
        return _get_heading_level(document.styles.get_by_id(style_id, WD_STYLE_TYPE.PARAGRAPH))

    for block in document.iter_inner_content():
        if not isinstance(block, Paragraph):
            yield escape_markdown("\n".join(_limit_size(_render_rows(block), path)))
            continue
        text = block.text.strip()
        level = get_level(block._p.style) if text else 0
        yield f"{'#' * level} {' '.join(text.split())}" if level else escape_markdown(text)


def _get_heading_level(style: Any) -> int:
    """Return the level of `Heading 2` or of a style based on it, 0 for body text.

    Word stores these names in English in every language.
    """
    for _ in range(10):  # a damaged file may name a style as its own base
        name = str(getattr(style, "name", "") or "")
        if found := re.fullmatch(r"Title|Heading ([1-9])", name):
            return min(6, int(found[1] or 1))
        style = getattr(style, "base_style", None)
    return 0


def _render_rows(table: Table) -> Iterator[str]:
    """Yield the rows as lines.

    Each cell is read once: `row.cells` has one for every column that it spans, a million if the
    file says so.
    """
    from docx.table import _Cell

    above: dict[int, str] = {}
    for row in table._tbl.tr_lst:
        texts: dict[int, str] = {}
        column = 0
        for cell in row.tc_lst:
            # A cell that continues the one above it is empty.
            texts[column] = (
                above.get(column, "")
                if cell.vMerge == "continue"
                else _Cell(cell, table).text.strip()
            )
            column += cell.grid_span
        yield " | ".join(texts.values())
        above = texts


def _build(parts: Iterator[str], title: str, language: str, path: str) -> Extracted:
    text = "\n\n".join(part for part in _limit_size(parts, path) if part)
    return Extracted(text=text, title=" ".join(title.split()), language=language)


def _limit_size(parts: Iterator[str], path: str) -> Iterator[str]:
    size = 0
    for part in parts:
        size += len(part)
        if size > _MAX_CHARS:
            raise InputError(f"{path!r} contains more than {_MAX_CHARS} characters; split it")
        yield part
