"""Plain text is cut by paragraph, sentence, word; data by line."""

from __future__ import annotations

import re

from unspool.chunking import chunk
from unspool.domain.documents import Kind


def count(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def parts(
    text: str, *, language: str = "text", kind: Kind = Kind.DOCS, limit: int = 60, target: int = 40
) -> list[str]:
    return [
        text[piece.start : piece.end]
        for piece in chunk(
            text, language=language, kind=kind, limit=limit, target=target, count=count
        )
    ]


def test_paragraphs_are_packed_whole() -> None:
    paragraph = "One two three four five six seven eight nine ten."
    text = "\n\n".join([paragraph] * 9)
    assert all(part.endswith(".") and part.startswith("One") for part in parts(text))
    assert max(part.count(paragraph) for part in parts(text)) in (3, 4)


def test_a_long_paragraph_is_cut_at_sentences() -> None:
    text = " ".join(f"Sentence number {i} has a few words." for i in range(60))
    assert all(part.startswith("Sentence") and part.endswith(".") for part in parts(text))


def test_without_sentences_words_stay_whole() -> None:
    text = " ".join(f"word{i}" for i in range(500))
    assert " ".join(parts(text)).split() == text.split()


def test_without_spaces_combining_marks_and_joined_emoji_stay_whole() -> None:
    def characters(part: str) -> int:
        return len(part)

    text = "e\u0301" * 300 + "👩\u200d💻" * 300
    pieces = chunk(text, language="text", kind=Kind.DOCS, limit=40, count=characters)
    assert all(text[piece.start] in "e👩" for piece in pieces)


def test_data_is_cut_at_top_level_lines() -> None:
    text = "".join(f"key_{i}:\n  name: value\n  list:\n    - one\n    - two\n" for i in range(30))
    assert all(part.startswith("key_") for part in parts(text, language="yaml", kind=Kind.DATA))


def test_json_is_not_cut_before_a_closing_bracket() -> None:
    text = (
        "{\n"
        + "".join(f'  "k{i}": {{\n    "a": [\n      1\n    ]\n  }},\n' for i in range(30))
        + '  "end": 1\n}\n'
    )
    assert not any(
        part.lstrip().startswith(("}", "]"))
        for part in parts(text, language="json", kind=Kind.DATA)
    )


def test_rows_stay_whole() -> None:
    text = "id,name,size\n" + "".join(f"{i},name {i},{i * 2}\n" for i in range(200))
    assert "\n".join(parts(text, language="csv", kind=Kind.DATA)) == text.strip()


def test_code_without_a_grammar_is_cut_at_unindented_lines_after_blank_ones() -> None:
    text = "".join(f"sub f{i} {{\n  my $x = {i};\n\n  return $x;\n}}\n\n" for i in range(30))
    assert all(
        part.startswith("sub") and part.endswith("}")
        for part in parts(text, language="perl", kind=Kind.CODE)
    )


def test_indentation_longer_than_the_limit_is_left_out() -> None:
    text = " " * 5000 + "x"
    assert parts(text, limit=10, target=8) == [text]
    pieces = chunk(text, language="text", kind=Kind.DOCS, limit=10, count=len)
    assert [text[piece.start : piece.end] for piece in pieces] == ["x"]
