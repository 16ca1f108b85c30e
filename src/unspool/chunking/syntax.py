"""Parsing: grammars loaded when first needed, offsets turned from bytes to characters,
definitions found by pattern.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import accumulate, islice
from typing import NamedTuple

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from unspool.chunking.languages import GRAMMARS
from unspool.chunking.patterns import DEPTH, DEPTHS, PATTERNS

# Some grammars loop for ever on a syntax error: tsx on `<a {{b:>c:d(e f)` (tree-sitter-typescript
# issue 323). A parse can't be stopped from Python 3.11 (the binding's progress callback crashes
# below 3.14), but a parser asks for its text piece by piece, and ends when it is told that there is
# none. Of 500 ordinary files none asked for more than a fifth of these reads. The grammars known to
# loop inside a text get it byte by byte, so that they have to ask: five times slower, but never
# stuck.
_READS = 1_000
_READS_PER_BYTE = 1 / 64
_READS_PER_BYTE_SINGLY = 8
_READ_SIZE = 2_048  # between two reads other threads have their turn
_READ_SINGLY = frozenset({"kotlin", "tsx"})
# Others take time that is quadratic (`<div>` without end in HTML), or kilobytes for each byte
# (`a<a<a<` in C++). The parser's memory is counted in Python's blocks: ordinary code needs up to
# 0.6 for a byte, the densest table 3.4, that C++ 16. Other threads' blocks are counted with them,
# hence the large allowance. TypeScript needs few, but large: unclosed `<` are counted before the
# parse. The processor's time is the last resort: ordinary code takes 0.3 s for a megabyte, the
# slowest real file found, Cython read as Python, 5 s.
_BLOCKS = 1_000_000
_BLOCKS_PER_BYTE = 4
_COUNTED_EVERY = 16  # reads
_UNCLOSED_AT_MOST = 10_000
_STATEMENT_ENDS = re.compile(rb"[;{}]")
_SECONDS = 2.0
_SECONDS_PER_BYTE = 6e-6
# Elsewhere the recovery from errors is quadratic on text that isn't in the language at all (200 KB
# took minutes). So a long text is first tried on three samples, and cut by lines if they don't
# parse. Garbage has a share of 0 to 0.2 in whole nodes; one sample of real code may have as little,
# as when it lies inside a table.
_TRIED_FROM = 32_768
_DOUBTED_FROM = 262_144
_WINDOW = 8_192
_CODE_SHARE = 0.25
_LONG_LEAF = 20  # a comment or a string, not a stray word
_UNINDENTED = re.compile(rb"\n(?=[^\s})\]])")
_LONGEST_NAME = 200  # what is longer comes from a syntax error
_FIRST_BYTES = bytes(0 if 0x80 <= byte < 0xC0 else 1 for byte in range(256))
_TEMPLATE_ARGUMENTS = re.compile(r"<[^<>]*>(?=::)")
_SEPARATORS = re.compile(r"::|->|[:.\\]")
_EXPORTERS = ("exports", "module.exports")
_QUOTES = "'\"`[]#@"


class DefinitionRole(StrEnum):
    """Role of a definition. The values are the captures in `patterns.py`."""

    CONSTANT = "constant"
    SCOPE = "scope"
    FUNCTION = "function"
    TYPE = "type"


class Definition(NamedTuple):
    """Named part of a program. Offsets count characters, and `at` is the offset of the name."""

    start: int
    end: int
    at: int
    role: DefinitionRole
    name: str
    symbol: str


class Tree(NamedTuple):
    """A parsed text.

    `characters[byte]` is the character offset of a byte offset; a range where both are the same.
    """

    root: Node
    data: bytes
    characters: Sequence[int]


_parsers = threading.local()  # by language; a parser has state while it works


def parse(text: str, language: str) -> Tree | None:
    """Return the syntax tree, or None.

    There is none if no grammar can be used, the text is in another language, or the parse costs
    too much.
    """
    grammar = _load_grammar(language)
    if grammar is None:
        return None
    data = text.encode()
    if len(data) > _TRIED_FROM and (_is_unclosed(data) or not _seems_code(data, language, grammar)):
        return None
    root = _parse_root(data, language, grammar)
    if root is None:
        return None
    is_ascii = len(data) == len(text)
    starts = accumulate(data.translate(_FIRST_BYTES), initial=0)
    return Tree(root, data, range(len(data) + 1) if is_ascii else array("L", starts))


def _is_unclosed(data: bytes) -> bool:
    """Return True if a single statement opens more `<` than any code does.

    Shifts and comparisons with `=` open none.
    """
    return data.count(b"<") > _UNCLOSED_AT_MOST and any(
        part.count(b"<") - 2 * part.count(b"<<") - part.count(b"<=") - part.count(b">")
        > _UNCLOSED_AT_MOST
        for part in _STATEMENT_ENDS.split(data)
    )


class _Reader:
    """Reader that the parser asks for text.

    It returns nothing more after too many reads, or too much time or memory.
    """

    def __init__(self, data: bytes, language: str) -> None:
        self._data = data
        self._is_single = language in _READ_SINGLY
        self.left = _READS + int(
            len(data) * (_READS_PER_BYTE_SINGLY if self._is_single else _READS_PER_BYTE)
        )
        self._blocks = sys.getallocatedblocks() + _BLOCKS
        self._stops_at = time.thread_time() + _SECONDS + len(data) * _SECONDS_PER_BYTE

    def __call__(self, at: int, _point: object) -> bytes:
        self.left -= 1
        if self.left < 0 or self._is_spent(at):
            self.left = -1
            return b""
        if self._is_single:
            byte = self._data[at : at + 1]
            # a character has to come whole
            return byte if byte.isascii() else self._data[at : at + 4]
        return self._data[at : at + _READ_SIZE]

    def _is_spent(self, at: int) -> bool:
        is_checked = not (self._is_single and self.left % _READ_SIZE)
        return is_checked and (
            time.thread_time() > self._stops_at
            or (
                not self.left % _COUNTED_EVERY
                and sys.getallocatedblocks() > self._blocks + at * _BLOCKS_PER_BYTE
            )
        )


def _parse_root(data: bytes, language: str, grammar: Language) -> Node | None:
    parsers: dict[str, Parser] = vars(_parsers)
    if language not in parsers:
        parsers[language] = Parser(grammar)
    reader = _Reader(data, language)
    tree = parsers[language].parse(reader)
    return tree.root_node if reader.left >= 0 else None


def _iterate_samples(data: bytes) -> Iterator[bytes]:
    """Yield samples of the beginning, the middle and the end.

    A sample starts at an unindented line if one is near.
    """
    for at in (0, len(data) // 2 - _WINDOW, len(data) - 2 * _WINDOW):
        found = _UNINDENTED.search(data, at, at + _WINDOW) if at else None
        start = found.end() if found else at
        yield data[start : start + _WINDOW]


def _seems_code(data: bytes, language: str, grammar: Language) -> bool:
    """Tell if enough samples parse. Further samples are not parsed."""
    wanted = 1 if len(data) < _DOUBTED_FROM else 2
    good = (
        window
        for window in _iterate_samples(data)
        if _is_code(_parse_root(window, language, grammar), len(window))
    )
    return len(list(islice(good, wanted))) == wanted


def _is_code(root: Node | None, size: int) -> bool:
    """Return True if enough of a sample forms whole syntax nodes."""
    nodes = [] if root is None else [root]
    good = 0
    while nodes:
        node = nodes.pop()
        if not node.has_error:
            length = node.end_byte - node.start_byte
            good += length if node.child_count or length >= _LONG_LEAF else 0
        elif node.child_count:
            nodes.extend(node.children)
    return good > _CODE_SHARE * size


def find_definitions(tree: Tree, language: str) -> list[Definition]:
    """Return the definitions by position, with qualified names."""
    query = _load_query(language)
    if query is None:
        return []
    cursor = QueryCursor(query)
    cursor.set_max_start_depth(DEPTHS.get(language, DEPTH))
    found: dict[int, Definition] = {}
    for _, captures in cursor.matches(tree.root):
        definition = _read_definition(captures, tree)
        # `const f = () => 1` is a constant and a function
        if definition and (
            definition.at not in found or found[definition.at].role is DefinitionRole.CONSTANT
        ):
            found[definition.at] = definition
    return list(_qualify(sorted(found.values(), key=lambda one: (one.start, -one.end))))


def _read_definition(captures: Mapping[str, list[Node]], tree: Tree) -> Definition | None:
    role = next(role for role in DefinitionRole if role in captures)
    node, name_node = captures[role][0], captures["name"][0]
    written = _read_text(name_node, tree.data)
    if (
        not written
        or len(written) > _LONGEST_NAME
        or (
            "exporter" in captures
            and _read_text(captures["exporter"][0], tree.data) not in _EXPORTERS
        )
    ):
        return None
    parts = [written] if written.isidentifier() else _split_name(written)
    symbol = ".".join(parts)
    if "owner" in captures:
        symbol = f"{_read_text(captures['owner'][0], tree.data)}.{symbol}"
    place = tree.characters
    return Definition(
        place[node.start_byte],
        place[node.end_byte],
        place[name_node.start_byte],
        role,
        parts[-1],
        symbol,
    )


def _split_name(written: str) -> list[str]:
    if "operator" in written:  # its own signs look like separators
        return written.rsplit("::", 1)
    return [part for part in _SEPARATORS.split(_TEMPLATE_ARGUMENTS.sub("", written)) if part] or [
        written
    ]


def _read_text(node: Node, data: bytes) -> str:
    text = data[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return text if text.isidentifier() else " ".join(text.strip(_QUOTES).split())


def _qualify(found: list[Definition]) -> Iterator[Definition]:
    """Put the names of the enclosing definitions before each name."""
    enclosing: list[Definition] = []
    for definition in found:
        while enclosing and enclosing[-1].end <= definition.start:
            enclosing.pop()
        if enclosing:
            definition = definition._replace(symbol=f"{enclosing[-1].symbol}.{definition.symbol}")
        if (
            definition.role is not DefinitionRole.CONSTANT
            and len(definition.symbol) <= _LONGEST_NAME
        ):
            enclosing.append(definition)
        yield definition


@cache
def _load_grammar(language: str) -> Language | None:
    if language not in GRAMMARS:
        return None
    module, function = GRAMMARS[language]
    try:
        return Language(getattr(importlib.import_module(module), function)())
    # ValueError: built for another version of tree-sitter; lines still cut well
    except (ModuleNotFoundError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != module:
            raise
        return None


@cache
def _load_query(language: str) -> Query | None:
    grammar = _load_grammar(language)
    return (
        Query(grammar, PATTERNS[language]) if grammar is not None and language in PATTERNS else None
    )
