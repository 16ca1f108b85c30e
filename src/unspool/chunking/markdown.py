"""Markdown and reStructuredText, cut by heading: a piece begins with its heading and knows the
path to it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from unspool.chunking.measure import Page
from unspool.chunking.packing import pack
from unspool.chunking.prose import Cut
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
    """A heading: where its first line starts, its level from 1, its text."""

    at: int
    level: int
    title: str


class _Depth(IntEnum):
    """Where to cut below the headings, best first; heading levels come before all of these."""

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


def cut(page: Page, language: str) -> list[Piece]:
    """The pieces, each with the path of headings above its first line."""
    lines = list(_lines(page.text, language))
    found = headings(lines, language)
    starts = [heading.at for heading in found]
    spans = pack(page, _cuts(lines, found), starts)
    paths = _paths(found)
    pieces = []
    for span in spans:
        path, level = paths[bisect_right(starts, span.start)]
        pieces.append(
            Piece(
                start=span.start,
                end=span.end,
                lines=page.lines(span.start, span.end),
                token_count=span.token_count,
                headings=path,
                level=level,
                defines=tuple(
                    heading.title
                    for heading in found[
                        bisect_left(starts, span.start) : bisect_left(starts, span.end)
                    ]
                ),
            )
        )
    return pieces


def title_of(text: str, language: str) -> str:
    """The first heading of level 1; an empty string if there is none or the language has no
    headings.
    """
    if language not in (MARKDOWN, RST):
        return ""
    found = headings(list(_lines(text, language)), language)
    return next((heading.title for heading in found if heading.level == 1), "")


def headings(lines: list[_Line], language: str) -> list[Heading]:
    """The headings in order."""
    return list(_rst_headings(lines) if language == RST else _markdown_headings(lines))


def _lines(text: str, language: str) -> Iterator[_Line]:
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
            fence = _fence(fence, stripped)


def _fence(fence: str, line: str) -> str:
    """The fence that is open after the line: the marks that opened it, or nothing."""
    found = _FENCE.match(line)
    if not found:
        return fence
    marks, rest = found.groups()
    if not fence:
        return "" if marks[0] == "`" and "`" in rest else marks
    closes = marks[0] == fence[0] and len(marks) >= len(fence) and not rest.strip()
    return "" if closes else fence


def _markdown_headings(lines: list[_Line]) -> Iterator[Heading]:
    paragraph: list[_Line] = []
    for line in lines:
        if line.in_block or not line.text or len(line.text) > _LONGEST_HEADING:
            paragraph = []
        elif found := _ATX.match(line.text):
            paragraph = []
            yield Heading(line.at, len(found[1]), _atx_title(line.text))
        elif paragraph and (found := _SETEXT.match(line.text)):
            title = " ".join(part.text.strip() for part in paragraph)
            if len(title) <= _LONGEST_HEADING:
                yield Heading(paragraph[0].at, 1 if found[1][0] == "=" else 2, title)
            paragraph = []
        elif paragraph or not (_NOT_A_PARAGRAPH.match(line.text) or _FENCE.match(line.text)):
            paragraph = [] if _FENCE.match(line.text) else [*paragraph, line][-_LONGEST_HEADING:]


def _atx_title(line: str) -> str:
    title = line.strip().lstrip("#").strip()
    bare = title.rstrip("#")
    return bare.rstrip() if bare != title and (not bare or bare[-1] in " \t") else title


def _rst_headings(lines: list[_Line]) -> Iterator[Heading]:
    """Levels are in the order in which the styles first appear, over- and underlined being a
    style of its own.
    """
    styles: list[tuple[str, bool]] = []
    for index in range(1, len(lines)):
        mark = _ADORNMENT.match(lines[index].text)
        title = lines[index - 1].text
        if not mark or not title or len(title) > _LONGEST_HEADING or _ADORNMENT.match(title):
            continue
        if len(lines[index].text) < min(len(title.strip()), _SHORTEST_ADORNMENT):
            continue
        above = lines[index - 2].text if index >= 2 else ""
        over = above == lines[index].text
        if not over and (above or title[0].isspace()):
            continue  # the last line of a paragraph or an indented block, not a title
        style = (mark[1], over)
        if style not in styles:
            styles.append(style)
        yield Heading(
            lines[index - 2 if over else index - 1].at, styles.index(style) + 1, title.strip()
        )


def _cuts(lines: list[_Line], found: list[Heading]) -> list[Cut]:
    levels = {heading.at: heading.level for heading in found}
    cuts = []
    after_blank = False
    under_heading = False  # nothing parts a heading from what stands under it
    for line in lines[1:] if lines and lines[0].at not in levels else lines:
        if line.at in levels:
            if line.at:
                cuts.append(Cut(line.at, levels[line.at]))
            under_heading = True
        elif not line.text:
            after_blank = True
            continue
        elif not under_heading or (after_blank and not _is_underline(line)):
            if not under_heading:
                cuts.append(Cut(line.at, _depth(line, after_blank=after_blank)))
            under_heading = False
        after_blank = False
    return cuts


def _is_underline(line: _Line) -> bool:
    return _ADORNMENT.match(line.text) is not None


def _depth(line: _Line, *, after_blank: bool) -> int:
    if line.in_block:
        return _Depth.BLANK_IN_BLOCK if after_blank else _Depth.IN_BLOCK
    if after_blank:
        return _Depth.INDENTED_PARAGRAPH if line.text[0].isspace() else _Depth.PARAGRAPH
    return _Depth.ITEM if _ITEM.match(line.text) else _Depth.LINE


def _paths(found: list[Heading]) -> list[tuple[tuple[str, ...], int]]:
    """The path and level after each heading, the first entry being that before any."""
    paths: list[tuple[tuple[str, ...], int]] = [((), 0)]
    open_headings: list[Heading] = []
    for heading in found:
        while open_headings and open_headings[-1].level >= heading.level:
            open_headings.pop()
        open_headings.append(heading)
        paths.append((tuple(one.title for one in open_headings if one.title), heading.level))
    return paths
