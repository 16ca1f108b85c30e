"""Secrets whose name is elsewhere in the document: Kubernetes manifests and columns of tables.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.names import extension
from unspool.sources.secrets import values
from unspool.sources.secrets.spans import ScannedText, SecretSpan, Trust, get_line

_SECRET_KIND = re.compile(
    r"[ \t]*[\"']?kind[\"']?[ \t]*:[ \t]*[\"']?Secret[\"']?[ \t]*,?[ \t]*\r?$"
)
_MANIFEST = 50_000  # characters before and behind the kind
_KINDS = ("kind:", 'kind":')
_DATA = re.compile(
    r"^(?P<indent>[ \t]*)[\"']?(?:stringData|data)[\"']?[ \t]*:[ \t]*(?:\{[ \t]*)?\r?$",
    re.MULTILINE,
)
_ENTRY = re.compile(
    r"(?P<indent>[ \t]*)[\"']?[\w./-]{1,100}[\"']?[ \t]*:[ \t]*(?P<value>[^\r\n]*)\r?$",
    re.MULTILINE,
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
_RULE = re.compile(r"[ \t]*\|?[ \t:|-]*-{2,}[ \t:|-]*$")


def find_at_manifest(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the values of a Kubernetes secret, given the position of its kind."""
    start, end = get_line(scan.text, at)
    if b"kind" in scan.folded[start:at] and (kind := _SECRET_KIND.match(scan.text, start, end)):
        yield from _find_in_manifest(scan.text, kind)


def find_at_insert(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the values of a password column in an SQL `INSERT`, given the position of the
    column's name.
    """
    text = scan.text
    start = text.rfind("(", max(0, at - 300), at)
    columns = _COLUMNS.match(text, start) if start >= 0 else None
    if not columns:
        return
    wanted = text.count(",", start, at)
    row = columns.end()
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
    suffix = extension(scan.path)
    if suffix in (".csv", ".tsv"):
        yield from _find_in_rows(scan.text, "\t" if suffix == ".tsv" else "")
    elif scan.trust is Trust.PROSE:
        if _HEADER.match(scan.text):
            yield from _find_in_rows(scan.text, "")
        if b"|" in scan.flat and b"--" in scan.flat:
            yield from _find_in_tables(scan.text)


def _find_in_manifest(text: str, kind: re.Match[str]) -> Iterator[SecretSpan]:
    start, end = _get_manifest(text, kind)
    template = text.find("{{", start, end) >= 0
    for data in _DATA.finditer(text, start, end):
        for span in _find_entries(text, data, end):
            if not template or values.looks_random(text[span[0] : span[1]]):
                yield span


def _get_manifest(text: str, kind: re.Match[str]) -> tuple[int, int]:
    """Return the extent of a manifest: up to the kinds before and behind it, or to the ends of
    its document.
    """
    least, most = max(0, kind.start() - _MANIFEST), min(len(text), kind.end() + _MANIFEST)
    start = max(least, *(text.rfind(mark, least, kind.start()) + 1 for mark in _KINDS))
    end = min(
        (at for mark in _KINDS if (at := text.find(mark, kind.end(), most)) >= 0), default=most
    )
    start = max(start, text.rfind("\n---", start, kind.start()) + 1)
    following = text.find("\n---", kind.end(), end)
    return start, following if following >= 0 else end


def _find_entries(text: str, data: re.Match[str], end: int) -> Iterator[SecretSpan]:
    """Yield the values that are indented deeper than `data:`."""
    outer, at = len(data["indent"]), data.end()
    block = 0  # indentation of the key whose block scalar is being read
    for _ in range(_ROWS):
        at = text.find("\n", at, end) + 1
        if not at:
            return
        stop = text.find("\n", at, end)
        line = text[at : stop if stop >= 0 else end]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        depth = len(line) - len(line.lstrip())
        if depth <= outer:
            return
        entry = _ENTRY.match(text, at, stop if stop >= 0 else end)
        if block and depth > block:
            yield at + depth, at + len(line.rstrip()), "kubernetes secret"
            continue
        block = 0
        if not entry:
            continue
        if re.match(r"[|>][+-]?[0-9]?[ \t]*$", entry["value"]):
            block = depth
        elif (
            (literal := _LITERAL.match(entry["value"]))
            and "{{" not in entry["value"]
            and not values.is_placeholder(literal["value"].strip())
        ):
            first = entry.start("value") + literal.start("value")
            yield first, first + len(literal["value"].rstrip(" \t,\"'")), "kubernetes secret"


def _find_in_tables(text: str) -> Iterator[SecretSpan]:
    """Yield the cells of secret columns in Markdown tables."""
    at = 0
    columns: list[int] = []
    before = (0, "")
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        if "|" not in bare:
            columns = []
        elif _RULE.match(bare) and "|" in before[1]:
            columns = [
                number
                for number, (_, cell) in enumerate(_split_cells(before[1]))
                if _COLUMN.fullmatch(cell.strip("*_` "))
            ]
        elif columns:
            for number, (start, cell) in enumerate(_split_cells(bare)):
                if number in columns:
                    yield from _judge_cell(at + start, cell)
        before = (at, bare)
        at += len(line)


def _split_cells(line: str) -> list[tuple[int, str]]:
    cells: list[tuple[int, str]] = []
    at = 0
    for part in line.split("|"):
        cells.append((at, part))
        at += len(part) + 1
    return cells


def _judge_cell(start: int, cell: str) -> Iterator[SecretSpan]:
    value = cell.strip(" \t*_`\"'")
    if not values.is_prose_secret(value, "password"):
        return
    first = start + cell.index(value)
    yield first, first + len(value), "password"


def _find_in_rows(text: str, separator: str) -> Iterator[SecretSpan]:
    """Yield the cells of secret columns in files of separated values; the first row names the
    columns.
    """
    head = text.split("\n", 1)[0]
    separator = separator or max(",;\t", key=head.count)
    width = head.count(separator)
    columns = {
        number
        for number, cell in enumerate(head.rstrip("\r").split(separator))
        if _COLUMN.fullmatch(cell.strip(' "'))
    }
    if not columns:
        return
    at = len(head) + 1
    for line in text[at:].split("\n"):
        position = at
        if line.count(separator) != width:
            at += len(line) + 1
            continue
        for number, cell in enumerate(line.rstrip("\r").split(separator)):
            value = cell.strip(' "')
            if (
                number in columns
                and len(value) >= 4
                and not values.is_placeholder(value)
                and not values.is_ordinary(value)
            ):
                yield (
                    position + cell.index(value),
                    position + cell.index(value) + len(value),
                    "password",
                )
            position += len(cell) + 1
        at += len(line) + 1
