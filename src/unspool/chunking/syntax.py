"""Parsing: grammars loaded when first needed, offsets turned from bytes to characters, definitions found by pattern."""

from __future__ import annotations

import importlib
import re
import threading
from array import array
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from unspool.chunking.languages import GRAMMARS
from unspool.chunking.patterns import DEPTH, DEPTHS, PATTERNS

_LONGEST_NAME = 200  # what is longer comes from a syntax error
_FIRST_BYTES = bytes(0 if 0x80 <= byte < 0xC0 else 1 for byte in range(256))
_TEMPLATE_ARGUMENTS = re.compile(r"<[^<>]*>(?=::)")
_SEPARATORS = re.compile(r"::|->|[:.\\]")
_QUOTES = "'\"`[]#@"


class Role(StrEnum):
    """What a definition is; the values are the captures in `patterns.py`."""

    CONSTANT = "constant"
    SCOPE = "scope"
    FUNCTION = "function"
    TYPE = "type"


class Definition(NamedTuple):
    """Something with a name, in characters: `at` is where the name stands."""

    start: int
    end: int
    at: int
    role: Role
    name: str
    symbol: str


class Tree(NamedTuple):
    """A parsed text. `characters[byte]` is the character offset of a byte offset; a range where both are the same."""

    root: Node
    characters: Sequence[int]


class _Parsers(threading.local):
    """A parser holds state while it works, so each thread has its own."""

    def __init__(self) -> None:
        self.by_language: dict[str, Parser] = {}


_parsers = _Parsers()


def parse(text: str, language: str) -> Tree | None:
    """The syntax tree; None where the language has no grammar that can be used."""
    grammar = _grammar(language)
    if grammar is None:
        return None
    parser = _parsers.by_language.get(language)
    if parser is None:
        parser = _parsers.by_language[language] = Parser(grammar)
    data = text.encode()
    tree = parser.parse(data)
    return Tree(tree.root_node, _characters(data, is_ascii=len(data) == len(text)))


def definitions(tree: Tree, language: str) -> list[Definition]:
    """What is defined, by position, with qualified names."""
    query = _query(language)
    if query is None:
        return []
    cursor = QueryCursor(query)
    cursor.set_max_start_depth(DEPTHS.get(language, DEPTH))
    found: dict[int, Definition] = {}
    roles: dict[int, Role] = {}
    for pattern, captures in cursor.matches(tree.root):
        role = roles.get(pattern)
        if role is None:
            role = roles[pattern] = next(role for role in Role if role in captures)
        definition = _definition(captures, role, tree.characters)
        if definition is None:
            continue
        known = found.get(definition.at)
        if known is None or known.role is Role.CONSTANT:  # `const f = () => 1` is a constant and a function
            found[definition.at] = definition
    return _qualified(sorted(found.values(), key=lambda one: (one.start, -one.end)))


def _definition(captures: Mapping[str, list[Node]], role: Role, characters: Sequence[int]) -> Definition | None:
    node, name_node = captures[role][0], captures["name"][0]
    written = _text(name_node)
    if not written or len(written) > _LONGEST_NAME:
        return None
    parts = [written] if written.isidentifier() else _parts(written)
    symbol = ".".join(parts)
    if "owner" in captures:
        symbol = f"{_text(captures['owner'][0])}.{symbol}"
    return Definition(characters[node.start_byte], characters[node.end_byte], characters[name_node.start_byte], role, parts[-1], symbol)


def _parts(written: str) -> list[str]:
    if "operator" in written:  # its own signs look like separators
        return written.rsplit("::", 1)
    return [part for part in _SEPARATORS.split(_TEMPLATE_ARGUMENTS.sub("", written)) if part] or [written]


def _text(node: Node) -> str:
    text = (node.text or b"").decode("utf-8", "replace")
    return text if text.isidentifier() else " ".join(text.strip(_QUOTES).split())


def _qualified(found: list[Definition]) -> list[Definition]:
    """The same with the names of what encloses each written before it."""
    enclosing: list[Definition] = []
    done = []
    for definition in found:
        while enclosing and enclosing[-1].end <= definition.start:
            enclosing.pop()
        if enclosing:
            definition = definition._replace(symbol=f"{enclosing[-1].symbol}.{definition.symbol}")
        if definition.role is not Role.CONSTANT and len(definition.symbol) <= _LONGEST_NAME:
            enclosing.append(definition)
        done.append(definition)
    return done


def _characters(data: bytes, *, is_ascii: bool) -> Sequence[int]:
    if is_ascii:
        return range(len(data) + 1)
    return array("L", accumulate(data.translate(_FIRST_BYTES), initial=0))


@cache
def _grammar(language: str) -> Language | None:
    if language not in GRAMMARS:
        return None
    module, function = GRAMMARS[language]
    try:
        return Language(getattr(importlib.import_module(module), function)())
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
    except ValueError:  # built for another version of tree-sitter; lines still cut well
        pass
    return None


@cache
def _query(language: str) -> Query | None:
    grammar = _grammar(language)
    return Query(grammar, PATTERNS[language]) if grammar is not None and language in PATTERNS else None
