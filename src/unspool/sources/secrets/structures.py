"""Secrets whose name is elsewhere in the document: Kubernetes manifests and columns of tables.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.names import get_extension
from unspool.sources.secrets import values
from unspool.sources.secrets.scanning import ScannedText, SecretSpan, Trust, get_line

_SECRET_KIND = re.compile(
    r"[ \t]*[\"']?kind[\"']?[ \t]*:[ \t]*[\"']?Secret[\"']?[ \t]*,?[ \t]*\r?$"
)
_MANIFEST = 50_000  # characters before and behind the kind
_BORDERS = ("kind:", 'kind":', "\n---")
_BLOCK = re.compile(r"[|>][+-]?[0-9]?[ \t]*$")
_DATA = re.compile(
    r"^(?P<indent>[ \t]*)[\"']?(?:stringData|data)[\"']?[ \t]*:[ \t]*(?:\{[ \t]*)?\r?$",
    re.MULTILINE,
)
_ENTRY = re.compile(
    r"[ \t]*[\"']?[\w./-]{1,100}[\"']?[ \t]*:[ \t]*(?P<value>[^\r\n]*)\r?$",
)
_LITERAL = re.compile(r"[\"']?(?P<value>[^\"'#{}|>,\s][^\"'\r\n]{3,})")
_ROWS = 100_000
_COLUMN = re.compile(
    r"(?:.*[ _-])?(?:pass ?words?|passwort|passwd|pwd|pass|pw|pass ?phrase|secret|token|api[ "
    r"_-]?key|secret access key|access key|client secret)",
    re.IGNORECASE,
)
# the first line of separated values
_HEADER = re.compile(r"[\w \"-]{1,40}(?:[,;\t][\w \"-]{1,40}){1,30}\r?\n")
_COLUMNS = re.compile(r"\([\w\s,\"`\[\]]{1,400}\)\s{0,8}values\s{0,8}(?=\()", re.IGNORECASE)
_VALUE = re.compile(
    r"\s{0,8}(?:N?'(?P<text>(?:[^'\\]|''|\\.){0,400}+)'|[^,()']{1,100}(?:\([^()]{0,100}\))?)\s{0,8}(?P<end>[,)])"
)
_NEXT_ROW = re.compile(r"\s{0,8},\s{0,8}\(")
_MIN_CELL = 4  # characters of a password in a file of separated values
_RULE = re.compile(r"[ \t]*\|?[ \t:|-]*-{2,}[ \t:|-]*$")


def find_at_manifest(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the values of a Kubernetes secret, given the position of its kind."""
    text = scan.text
    start, end = get_line(text, at)
    kind = b"kind" in scan.folded[start:at] and _SECRET_KIND.match(text, start, end)
    if not kind:
        return []
    start, end = _get_manifest(text, kind)
    is_template = text.find("{{", start, end) >= 0
    return [
        span
        for data in _DATA.finditer(text, start, end)
        for span in _find_entries(text, data, end)
        if not is_template or values.looks_random(text[span[0] : span[1]])
    ]


def find_at_insert(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the values of a password column in an SQL `INSERT`, given the column's position."""
    text = scan.text
    start = text.rfind("(", max(0, at - 300), at)
    columns = _COLUMNS.match(text, start) if start >= 0 else None
    return (
        list(_find_in_inserts(text, columns.end(), text.count(",", start, at))) if columns else []
    )


def _find_in_inserts(text: str, row: int, wanted: int) -> Iterator[SecretSpan]:
    """Yield the values of one column in the rows of an `INSERT`."""
    for _ in range(_ROWS):
        for number, value in enumerate(_VALUE.finditer(text, row + 1, row + 2000)):
            if number == wanted and value["text"] and not values.is_placeholder(value["text"]):
                yield (*value.span("text"), "password")
            if value["end"] == ")":
                break
        else:
            return
        following = _NEXT_ROW.match(text, value.end())
        if not following:
            return
        row = following.end() - 1


def find_in_columns(scan: ScannedText) -> Iterator[SecretSpan]:
    """Yield the values of secret columns in tables of prose and in files of separated values."""
    suffix = get_extension(scan.path)
    if suffix in (".csv", ".tsv"):
        yield from _find_in_rows(scan.text, "\t" if suffix == ".tsv" else "")
    elif scan.trust is Trust.PROSE:
        if _HEADER.match(scan.text):
            yield from _find_in_rows(scan.text, "")
        if b"|" in scan.flat and b"--" in scan.flat:
            yield from _find_in_tables(scan.text)


def _get_manifest(text: str, kind: re.Match[str]) -> tuple[int, int]:
    """Return the extent of a manifest: up to the next kinds, or to the ends of its document."""
    least, most = max(0, kind.start() - _MANIFEST), min(len(text), kind.end() + _MANIFEST)
    start = max(least, *(text.rfind(mark, least, kind.start()) + 1 for mark in _BORDERS))
    ends = (text.find(mark, kind.end(), most) for mark in _BORDERS)
    return start, min((end for end in ends if end >= 0), default=most)


def _find_entries(text: str, data: re.Match[str], end: int) -> Iterator[SecretSpan]:
    """Yield the values that are indented deeper than `data:`."""
    outer, at = len(data["indent"]), data.end()
    block = 0  # indentation of the key whose block scalar is being read
    for line in text[at:end].split("\n")[1:_ROWS]:
        at = text.find("\n", at, end) + 1
        depth = len(line) - len(line.lstrip())
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if depth <= outer:
            return
        if block and depth > block:
            yield at + depth, at + len(line.rstrip()), "kubernetes secret"
            continue
        entry = _ENTRY.match(line)
        block = depth if entry and _BLOCK.match(entry["value"]) else 0
        if (
            entry
            and not block
            and (literal := _LITERAL.match(entry["value"]))
            and "{{" not in entry["value"]
            and not values.is_placeholder(literal["value"].strip())
        ):
            first = at + entry.start("value") + literal.start("value")
            yield first, first + len(literal["value"].rstrip(" \t,\"'")), "kubernetes secret"


def _find_in_tables(text: str) -> Iterator[SecretSpan]:
    """Yield the cells of secret columns in Markdown tables."""
    at = 0
    columns: set[int] = set()
    before = ""
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        if "|" not in bare:
            columns = set()
        elif _RULE.match(bare) and "|" in before:
            columns = _find_columns(before.split("|"), "*_` ")
        elif columns:
            for start, value in _get_cells(bare, "|", columns, " \t*_`\"'"):
                if values.is_prose_secret(value, "password"):
                    yield at + start, at + start + len(value), "password"
        before = bare
        at += len(line)


def _find_in_rows(text: str, separator: str) -> Iterator[SecretSpan]:
    """Yield the cells of secret columns in files of separated values.

    The first row names the columns.
    """
    head = text.split("\n", 1)[0]
    separator = separator or max(",;\t", key=head.count)
    columns = _find_columns(head.rstrip("\r").split(separator), ' "')
    at = len(head) + 1
    for line in text[at:].split("\n") if columns else ():
        if line.count(separator) == head.count(separator):
            for start, value in _get_cells(line.rstrip("\r"), separator, columns, ' "'):
                if len(value) >= _MIN_CELL and not values.is_filler(value):
                    yield at + start, at + start + len(value), "password"
        at += len(line) + 1


def _find_columns(cells: list[str], decoration: str) -> set[int]:
    """Return the numbers of the columns whose headings say secret."""
    return {
        number for number, cell in enumerate(cells) if _COLUMN.fullmatch(cell.strip(decoration))
    }


def _get_cells(
    line: str, separator: str, columns: set[int], decoration: str
) -> Iterator[tuple[int, str]]:
    """Yield the values of some columns of a row, each with its position in the row."""
    at = 0
    for number, cell in enumerate(line.split(separator)):
        if number in columns:
            value = cell.strip(decoration)
            yield at + cell.index(value), value
        at += len(cell) + len(separator)
