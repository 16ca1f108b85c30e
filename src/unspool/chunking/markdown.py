"""Markdown and reStructuredText, cut by heading: a piece begins with its heading and knows the
path to it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from unspool.chunking.measure import SourceText
from unspool.chunking.packing import Cut, pack
from unspool.domain.documents import Piece

MARKDOWN = "markdown"
RST = "rst"

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_NOT_A_PARAGRAPH = re.compile(r"\s*(?:[-*+>|]|\d{1,9}[.)]\s)|    |\t")
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+$")
_LONGEST_HEADING = 1000  # a longer line is not one, and would be carried by every piece below it
_SHORTEST_ADORNMENT = 4  # docutils takes an underline shorter than its title from this length on


class Heading(NamedTuple):
    """Heading with the offset of its first line, its level from 1, and its text."""

    at: int
    level: int
    title: str


class _Depth(IntEnum):
    """Depths of cuts below the headings, best first. Heading levels are smaller."""

    PARAGRAPH = 100
    INDENTED_PARAGRAPH = 101
    ITEM = 102
    LINE = 103
    BLANK_IN_BLOCK = 104
    IN_BLOCK = 105


class _Line(NamedTuple):
    """A line without its newline. A block is fenced code, a table or front matter."""

    at: int
    text: str
    in_block: bool


def cut(page: SourceText, language: str) -> list[Piece]:
    """Return the pieces, each with the path of headings above its first line."""
    lines = list(_read_lines(page.text, language))
    found = find_headings(lines, language)
    starts = [heading.at for heading in found]
    paths = list(_build_paths(found))
    pieces = []
    for piece in pack(page, list(_find_cuts(lines, found)), starts):
        path, level = paths[bisect_right(starts, piece.start)]
        inside = found[bisect_left(starts, piece.start) : bisect_left(starts, piece.end)]
        titles = tuple(heading.title for heading in inside)
        pieces.append(piece._replace(headings=path, level=level, defines=titles))
    return pieces


def title_of(text: str, language: str) -> str:
    """Return the first heading of level 1, or an empty string if the text has none."""
    if language not in (MARKDOWN, RST):
        return ""
    found = find_headings(list(_read_lines(text, language)), language)
    return next((heading.title for heading in found if heading.level == 1), "")


def find_headings(lines: list[_Line], language: str) -> list[Heading]:
    """Return the headings in order."""
    return list(_find_rst_headings(lines) if language == RST else _find_markdown_headings(lines))


def _read_lines(text: str, language: str) -> Iterator[_Line]:
    at = 0
    fence = ""
    front_matter = language == MARKDOWN and re.match(r"---[ \t]*\r?\n", text) is not None
    for number, line in enumerate(text.split("\n")):
        stripped = line.rstrip()
        in_block = bool(fence) or front_matter or stripped.lstrip().startswith("|")
        yield _Line(at, stripped, in_block)
        at += len(line) + 1
        if front_matter:
            front_matter = number == 0 or stripped not in ("---", "...")
        elif language == MARKDOWN:
            fence = _update_fence(fence, stripped)


def _update_fence(fence: str, line: str) -> str:
    """Return the marks of the fence that is open after the line, or an empty string."""
    found = _FENCE.match(line)
    if not found:
        return fence
    marks, rest = found.groups()
    if not fence:
        return "" if marks[0] == "`" and "`" in rest else marks
    closes = marks[0] == fence[0] and len(marks) >= len(fence) and not rest.strip()
    return "" if closes else fence


def _find_markdown_headings(lines: list[_Line]) -> Iterator[Heading]:
    paragraph: list[_Line] = []
    for line in lines:
        text = line.text
        if line.in_block or not text or len(text) > _LONGEST_HEADING or _FENCE.match(text):
            paragraph = []
        elif found := _ATX.match(text):
            paragraph = []
            yield Heading(line.at, len(found[1]), _read_atx_title(text))
        elif paragraph and (found := _SETEXT.match(text)):
            title = " ".join(part.text.strip() for part in paragraph)
            if len(title) <= _LONGEST_HEADING:
                yield Heading(paragraph[0].at, 1 if found[1][0] == "=" else 2, title)
            paragraph = []
        elif paragraph or not _NOT_A_PARAGRAPH.match(text):
            paragraph = [*paragraph, line][-_LONGEST_HEADING:]


def _read_atx_title(line: str) -> str:
    title = line.strip().lstrip("#").strip()
    bare = title.rstrip("#")
    return bare.rstrip() if bare != title and (not bare or bare[-1] in " \t") else title


def _find_rst_headings(lines: list[_Line]) -> Iterator[Heading]:
    """Yield the headings. Levels are in the order in which the styles first appear.

    A title with lines above and below is a style of its own.
    """
    levels: dict[tuple[str, bool], int] = {}
    for above, title, line in zip([_Line(0, "", False), *lines], lines, lines[1:], strict=False):
        adornment, text = _ADORNMENT.match(line.text), title.text
        is_over = above.text == line.text
        if (
            not adornment
            or not text
            or len(text) > _LONGEST_HEADING
            or _ADORNMENT.match(text)
            or len(line.text) < min(len(text.strip()), _SHORTEST_ADORNMENT)
            # the last line of a paragraph or an indented block, not a title
            or (not is_over and (above.text or text[0].isspace()))
        ):
            continue
        level = levels.setdefault((adornment[1], is_over), len(levels) + 1)
        yield Heading((above if is_over else title).at, level, text.strip())


def _find_cuts(lines: list[_Line], found: list[Heading]) -> Iterator[Cut]:
    levels = {heading.at: heading.level for heading in found}
    after_blank = False
    under_heading = False  # a heading stays with the text below it
    for line in lines[1:] if lines and lines[0].at not in levels else lines:
        if line.at in levels:
            if line.at:
                yield Cut(line.at, levels[line.at])
            under_heading = True
        elif not line.text:
            after_blank = True
            continue
        elif not under_heading or (after_blank and not _ADORNMENT.match(line.text)):
            if not under_heading:
                yield Cut(line.at, _get_depth(line, after_blank=after_blank))
            under_heading = False
        after_blank = False


def _get_depth(line: _Line, *, after_blank: bool) -> int:
    if line.in_block:
        return _Depth.BLANK_IN_BLOCK if after_blank else _Depth.IN_BLOCK
    if after_blank:
        return _Depth.INDENTED_PARAGRAPH if line.text[0].isspace() else _Depth.PARAGRAPH
    return _Depth.ITEM if _ITEM.match(line.text) else _Depth.LINE


def _build_paths(found: list[Heading]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield path and level after each heading. The first entry is for text before any."""
    yield (), 0
    open_headings: list[Heading] = []
    for heading in found:
        while open_headings and open_headings[-1].level >= heading.level:
            open_headings.pop()
        open_headings.append(heading)
        yield tuple(one.title for one in open_headings if one.title), heading.level
