"""Code, cut along its syntax tree: definitions whole where they fit, each with the comments and
decorators that belong to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from unspool.chunking.measure import Page, Span
from unspool.chunking.packing import pack
from unspool.chunking.prose import Cut
from unspool.chunking.syntax import Definition, Role, Tree, definitions, parse
from unspool.domain.documents import Piece

# Only nodes that may exceed the limit are opened. Code has 3 to 4 characters per token; other
# scripts have fewer.
_OPENED_FROM = 2.0
_OPENED_FROM_WIDE = 0.75
# Deeper than this, lines cut as well as syntax does, and the work stays linear however deep the
# nesting.
_DEEPEST = 40
_INDENT_AT_MOST = 400

# Belongs to what follows it, whatever lies between.
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
# Belongs to what stands before it: the body to its signature, the end to its beginning.
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


def cut(page: Page, language: str) -> list[Piece] | None:
    """The pieces with their symbols; None where no grammar reads the language."""
    tree = parse(page.text, language)
    if tree is None:
        return None
    found = definitions(tree, language)
    marks = sorted(definition.at for definition in found if definition.role is not Role.CONSTANT)
    return _described(page, pack(page, _cuts(page, tree), marks), found)


def _cuts(page: Page, tree: Tree) -> list[Cut]:
    """Boundaries between sibling nodes at line starts; inside a line only where the line by
    itself is too long.
    """
    smallest = int(page.limit * (_OPENED_FROM if page.text.isascii() else _OPENED_FROM_WIDE))
    depths: dict[int, int] = {}
    opened = [(tree.root, 0)]
    while opened:
        node, depth = opened.pop()
        first = True
        # where the last leading comment or decorator ends, and whether blank lines part it
        glue: tuple[int, bool] | None = None
        for child in node.children:
            if not child.is_named:
                continue
            start, end, kind = child.start_byte, child.end_byte, child.type
            if end - start > smallest and depth < _DEEPEST:
                opened.append((child, depth + 1))
            at = _place(page, tree.characters[start])
            if not (first or at is None or kind in _TRAILING or _glued(page, tree, glue, start)):
                depths[at] = min(depth, depths.get(at, depth))
            first = False
            glue = _glue(kind, end, starts_line=at is not None)
    return [Cut(at, depth) for at, depth in sorted(depths.items())]


def _place(page: Page, at: int) -> int | None:
    """Where to cut before a node: the start of its line, the node itself in an overlong line,
    otherwise nowhere.
    """
    starts = page.line_starts
    line = bisect_right(starts, at)
    begin = starts[line - 1]
    if begin == at or (at - begin < _INDENT_AT_MOST and page.text[begin:at].isspace()):
        return begin
    line_end = starts[line] if line < len(starts) else len(page.text)
    return at if line_end - begin > page.limit * _OPENED_FROM else None


def _glue(kind: str, end: int, *, starts_line: bool) -> tuple[int, bool] | None:
    if kind in _LEADING:
        return end, False
    return (end, True) if starts_line and kind.endswith("comment") else None


def _glued(page: Page, tree: Tree, glue: tuple[int, bool] | None, start: int) -> bool:
    if glue is None:
        return False
    end, parted_by_blank = glue
    last = tree.characters[end]
    # Some grammars count the newline to the comment.
    return not parted_by_blank or page.text.count("\n", last - 1, tree.characters[start]) < 2


def _described(page: Page, spans: list[Span], found: list[Definition]) -> list[Piece]:
    """The pieces with what is defined in each; both lists are in order, so one walk over them
    does.
    """
    scopes = [definition for definition in found if definition.role is not Role.CONSTANT]
    named = sorted(
        (definition for definition in found if definition.role is not Role.SCOPE),
        key=lambda one: one.at,
    )
    enclosing: list[Definition] = []
    pieces = []
    scope = name = 0
    for span in spans:
        first = span.end - len(page.text[span.start : span.end].lstrip())
        while scope < len(scopes) and scopes[scope].start <= first:
            while enclosing and enclosing[-1].end <= scopes[scope].start:
                enclosing.pop()
            enclosing.append(scopes[scope])
            scope += 1
        while enclosing and enclosing[-1].end <= first:
            enclosing.pop()
        after = name
        while after < len(named) and named[after].at < span.end:
            after += 1
        inside = named[name:after]
        name = after
        pieces.append(
            Piece(
                start=span.start,
                end=span.end,
                lines=page.lines(span.start, span.end),
                token_count=span.token_count,
                symbol=_symbol(enclosing[-1] if enclosing else None, inside),
                defines=tuple(dict.fromkeys(definition.name for definition in inside)),
            )
        )
    return pieces


def _symbol(enclosing: Definition | None, inside: Sequence[Definition]) -> str:
    """What the piece begins in, unless that only holds other things: then the first that is
    defined in the piece.
    """
    if enclosing is not None and (enclosing.role is Role.FUNCTION or enclosing in inside):
        return enclosing.symbol
    for definition in inside:
        if definition.role is not Role.CONSTANT:
            return definition.symbol
    if enclosing is not None:
        return enclosing.symbol
    return inside[0].symbol if inside else ""
