"""Code, cut along its syntax tree: definitions whole where they fit, each with the comments and
decorators that belong to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unspool.chunking.measure import SourceText
from unspool.chunking.packing import Cut, pack
from unspool.chunking.syntax import Definition, DefinitionRole, Tree, find_definitions, parse
from unspool.domain.documents import Piece

# Only nodes that may exceed the limit are opened. Code has 3 to 4 characters per token; other
# scripts have fewer.
_OPENED_FROM = 2.0
_OPENED_FROM_WIDE = 0.75
# Deeper than this, lines cut as well as syntax does, and the work stays linear however deep the
# nesting.
_DEEPEST = 40
_INDENT_AT_MOST = 400

# Nodes that belong to the next node, even behind blank lines.
_LEADING = frozenset(
    {
        "decorator",
        "attribute_item",
        "inner_attribute_item",
        "attribute_list",
        "annotation",
        "marker_annotation",
        "modifiers",
        "php_tag",
    }
)
# Nodes that belong to the node before: the body to its signature, the end to its beginning.
_TRAILING = frozenset(
    [
        "block",
        "compound_statement",
        "statement_block",
        "class_body",
        "declaration_list",
        "field_declaration_list",
        "enumerator_list",
        "enum_body",
        "interface_body",
        "body_statement",
        "template_body",
        "with_template_body",
        "function_body",
        "object_type",
        "do_group",
        "do_block",
        "then",
        "switch_body",
        "switch_block",
        "protocol_body",
        "enum_class_body",
        "enum_member_declaration_list",
        "enum_declaration_list",
        "enum_variant_list",
        "accessor_list",
        "match_block",
        "constructor_body",
        "colon_argument",
        "indented_block",
        "column_definitions",
        "property_declaration_list",
        "annotation_type_body",
        "string_end",
        "heredoc_end",
        "end_tag",
        "statements",
        "string_content",
    ]
)


class _Sibling(NamedTuple):
    """Node before another one in the same parent."""

    kind: str
    end: int  # in bytes
    starts_line: bool


def cut(page: SourceText, language: str) -> list[Piece]:
    """Return the pieces with their symbols. There are none if no grammar reads the language."""
    tree = parse(page.text, language)
    if tree is None:
        return []
    found = find_definitions(tree, language)
    scopes = [definition for definition in found if definition.role is not DefinitionRole.CONSTANT]
    pieces = pack(page, _find_cuts(page, tree), sorted(scope.at for scope in scopes))
    named = sorted(
        (definition for definition in found if definition.role is not DefinitionRole.SCOPE),
        key=lambda definition: definition.at,
    )
    return list(_add_symbols(page, pieces, scopes, named))


def _find_cuts(page: SourceText, tree: Tree) -> list[Cut]:
    """Return the boundaries between sibling nodes at line starts.

    Inside a line there are boundaries only if the line alone is too long.
    """
    smallest = int(page.limit * (_OPENED_FROM if page.text.isascii() else _OPENED_FROM_WIDE))
    depths: dict[int, int] = {}
    opened = [(tree.root, 0)]
    while opened:
        node, depth = opened.pop()
        before: _Sibling | None = None
        for child in node.named_children:
            start, end, kind = child.start_byte, child.end_byte, child.type
            if end - start > smallest and depth < _DEEPEST:
                opened.append((child, depth + 1))
            at = _find_cut(page, tree.characters[start])
            if before and at is not None and kind not in _TRAILING:
                between = page.text[tree.characters[before.end] - 1 : tree.characters[start]]
                if not _is_attached(before, between):
                    depths[at] = min(depth, depths.get(at, depth))
            before = _Sibling(kind, end, at is not None)
    return [Cut(at, depth) for at, depth in sorted(depths.items())]


def _find_cut(page: SourceText, at: int) -> int | None:
    """Return the offset to cut at before a node, or None if the node may not be cut off.

    A node is cut at the start of its line. In an overlong line it is cut where it begins.
    """
    starts = page.line_starts
    line = bisect_right(starts, at)
    begin = starts[line - 1]
    if begin == at or (at - begin < _INDENT_AT_MOST and page.text[begin:at].isspace()):
        return begin
    line_end = starts[line] if line < len(starts) else len(page.text)
    return at if line_end - begin > page.limit * _OPENED_FROM else None


def _is_attached(before: _Sibling, between: str) -> bool:
    """Tell if a node belongs to the comment or decorator before it.

    `between` begins one character early, because some grammars count the newline to the comment.
    """
    is_comment = before.starts_line and before.kind.endswith("comment")
    return before.kind in _LEADING or (is_comment and between.count("\n") < 2)


def _add_symbols(
    page: SourceText, pieces: list[Piece], scopes: list[Definition], named: list[Definition]
) -> Iterator[Piece]:
    """Yield the pieces with their definitions. All three lists are in order and are read once."""
    offsets = [definition.at for definition in named]
    ahead = scopes[::-1]
    enclosing: list[Definition] = []
    done = 0
    for piece in pieces:
        first = piece.end - len(page.text[piece.start : piece.end].lstrip())
        while ahead and ahead[-1].start <= first:
            enclosing.append(ahead.pop())
        while enclosing and enclosing[-1].end <= first:
            enclosing.pop()
        stop = bisect_left(offsets, piece.end)
        inside = named[done:stop]
        done = stop
        yield piece._replace(
            symbol=_choose_symbol(enclosing[-1:], inside),
            defines=tuple(dict.fromkeys(definition.name for definition in inside)),
        )


def _choose_symbol(enclosing: Sequence[Definition], inside: Sequence[Definition]) -> str:
    """Return the symbol of a piece. `enclosing` has at most one definition.

    A piece belongs to the function that it begins in. Otherwise the first definition inside the
    piece names it.
    """
    if any(outer.role is DefinitionRole.FUNCTION or outer in inside for outer in enclosing):
        return enclosing[0].symbol
    scopes = (definition for definition in inside if definition.role is not DefinitionRole.CONSTANT)
    return next((best.symbol for best in (*scopes, *enclosing, *inside)), "")
