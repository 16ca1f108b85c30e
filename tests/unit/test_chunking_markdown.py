"""Markdown and reStructuredText are cut by heading."""

from __future__ import annotations

import re

from unspool.chunking import chunk, title_of
from unspool.domain.documents import Kind, Piece


def count(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def cut(text: str, language: str = "markdown", *, limit: int = 60, target: int = 40) -> list[Piece]:
    return chunk(text, language=language, kind=Kind.DOCS, limit=limit, target=target, count=count)


def words(n: int, word: str = "word") -> str:
    return " ".join(f"{word}{i}" for i in range(n)) + "."


def paths(pieces: list[Piece]) -> list[tuple[str, ...]]:
    return [piece.headings for piece in pieces]


GUIDE = f"""# Guide

{words(20)}

## Install

{words(20)}

### Linux

{words(25)}

### Windows

{words(25)}

## Use

{words(20)}
"""


def test_a_piece_knows_the_path_and_level_of_its_heading() -> None:
    pieces = cut(GUIDE, limit=40, target=30)
    assert paths(pieces) == [
        ("Guide",),
        ("Guide", "Install"),
        ("Guide", "Install", "Linux"),
        ("Guide", "Install", "Windows"),
        ("Guide", "Use"),
    ]
    assert [piece.level for piece in pieces] == [1, 2, 3, 3, 2]


def test_a_piece_begins_with_its_heading_line() -> None:
    pieces = cut(GUIDE, limit=40, target=30)
    assert [GUIDE[piece.start : piece.end].split("\n")[0] for piece in pieces] == [
        "# Guide",
        "## Install",
        "### Linux",
        "### Windows",
        "## Use",
    ]


def test_small_sections_share_a_piece_only_under_the_same_parent() -> None:
    text = (
        f"# A\n\n## B\n\n### one\n\n{words(9)}\n\n### two\n\n{words(9)}\n\n{words(40)}\n\n## C\n"
        f"\n### three\n\n{words(9)}\n\n{words(40)}\n"
    )
    for piece in cut(text, limit=80, target=60):
        part = text[piece.start : piece.end]
        assert not ("### two" in part and "### three" in part)


def test_setext_headings_count() -> None:
    text = f"Guide\n=====\n\n{words(30)}\n\nInstall\nit now\n---\n\n{words(30)}\n"
    assert paths(cut(text, limit=50, target=38)) == [("Guide",), ("Guide", "Install it now")]


def test_a_rule_after_a_blank_line_or_a_list_is_no_heading() -> None:
    text = f"# A\n\n{words(30)}\n\n---\n\n- item\n---\n\n{words(30)}\n"
    assert {piece.headings for piece in cut(text)} == {("A",)}


def test_what_looks_like_a_heading_in_a_fence_is_none() -> None:
    text = (
        f"# A\n\n````sh\n# not one\n```\n# nor this\n~~~~\n````\n\n{words(30)}\n\n~~~\n# no\n"
        f"```\n~~~\n\n## B\n\n{words(30)}\n"
    )
    assert [path[-1] for path in paths(cut(text, limit=50, target=20))] == ["A", "A", "A", "B"] or {
        p[-1] for p in paths(cut(text))
    } == {"A", "B"}
    assert {heading for path in paths(cut(text)) for heading in path} == {"A", "B"}


def test_an_inline_code_span_of_three_backticks_opens_no_fence() -> None:
    text = f"# A\n\n``` not a fence ```\n\n{words(30)}\n\n## B\n\n{words(30)}\n"
    assert ("A", "B") in paths(cut(text))


def test_front_matter_gives_no_heading() -> None:
    text = f"---\ntitle: x\n# comment\nname: y\n---\n\n# Real\n\n{words(50)}\n"
    assert {heading for path in paths(cut(text)) for heading in path} == {"Real"}
    assert title_of(text, "markdown") == "Real"


def test_closing_hashes_and_escapes_are_read_as_markdown_does() -> None:
    assert title_of("# Title ##\n", "markdown") == "Title"
    assert title_of("# C#\n", "markdown") == "C#"
    assert title_of("#hashtag\n\n# Yes", "markdown") == "Yes"
    assert title_of("    # code\n", "markdown") == ""
    assert title_of("## Second\n", "markdown") == ""
    assert title_of("# x\n", "text") == ""


def test_windows_line_ends_change_nothing() -> None:
    crlf = GUIDE.replace("\n", "\r\n")
    assert [(p.headings, p.level, p.lines) for p in cut(crlf, limit=40, target=30)] == [
        (p.headings, p.level, p.lines) for p in cut(GUIDE, limit=40, target=30)
    ]


def test_a_long_section_is_cut_at_blank_lines_and_not_in_a_fence() -> None:
    fence = "```python\n" + "x = 1\n\ny = 2\n" * 3 + "```"
    text = "# A\n\n" + "\n\n".join([words(20), fence, words(20), fence, words(20)])
    for piece in cut(text, limit=60, target=40):
        assert text[piece.start : piece.end].count("```") % 2 == 0
        assert piece.headings == ("A",)


def test_a_table_is_not_cut_where_it_fits() -> None:
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 4
    text = "# A\n\n" + "\n".join([words(30) + "\n", table, words(30) + "\n", table])
    parts = [text[piece.start : piece.end] for piece in cut(text, limit=80, target=50)]
    assert sum(table.strip() in part for part in parts) == 2


def test_rst_levels_follow_the_order_of_the_styles() -> None:
    text = (
        f"=====\nGuide\n=====\n\n{words(30)}\n\nInstall\n=======\n\n{words(30)}\n\nLinux\n-----\n"
        f"\n{words(30)}\n\nUse\n===\n\n{words(30)}\n"
    )
    pieces = cut(text, "rst", limit=50, target=36)
    assert paths(pieces) == [
        ("Guide",),
        ("Guide", "Install"),
        ("Guide", "Install", "Linux"),
        ("Guide", "Use"),
    ]
    assert [piece.level for piece in pieces] == [1, 2, 3, 2]
    assert text[pieces[0].start :].startswith("=====\nGuide")
    assert title_of(text, "rst") == "Guide"


def test_rst_transitions_and_tables_are_no_headings() -> None:
    text = (
        f"Title\n=====\n\n{words(30)}\n\n-----\n\n====  ====\na     b\n====  ====\n\nlast line "
        f"of\na paragraph\n-----------\n\n{words(30)}\n"
    )
    assert {heading for path in paths(cut(text, "rst")) for heading in path} == {"Title"}


def test_text_before_the_first_heading_has_no_path() -> None:
    text = f"{words(40)}\n\n# A\n\n{words(30)}\n"
    assert paths(cut(text, limit=50, target=42)) == [(), ("A",)]
