"""What holds for every text whatsoever."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unspool.chunking import chunk, kind_of
from unspool.chunking.languages import GRAMMARS
from unspool.domain.documents import Kind, Piece
from unspool.errors import InputError

LANGUAGES = [*sorted(GRAMMARS), "markdown", "rst", "text", "json", "yaml", "csv", "perl"]

quick = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def bytes_of(text: str) -> int:
    return len(text.encode())


def characters(text: str) -> int:
    return len(text)


def check(text: str, pieces: list[Piece], *, limit: int, count: Callable[[str], int]) -> None:
    covered = [False] * len(text)
    at = 0
    for piece in pieces:
        assert at <= piece.start < piece.end <= len(text)
        at = piece.end
        part = text[piece.start : piece.end]
        clean = re.sub("[\ud800-\udfff]", "\ufffd", part)
        assert piece.token_count == count(clean)
        assert piece.token_count <= limit or len(part) == 1
        assert part.strip()
        assert not part[-1].isspace()
        assert "\n" not in part[: len(part) - len(part.lstrip())], (
            "a piece starts on its first line that is not blank"
        )
        assert piece.lines == (
            text.count("\n", 0, piece.start) + 1,
            text.count("\n", 0, piece.end) + 1,
        )
        covered[piece.start : piece.end] = [True] * (piece.end - piece.start)
    missed = [
        index
        for index, is_covered in enumerate(covered)
        if not is_covered and not text[index].isspace()
    ]
    assert not missed


def run(
    text: str,
    language: str,
    *,
    limit: int,
    target: int | None = None,
    count: Callable[[str], int] = words,
) -> list[Piece]:
    pieces = chunk(
        text, language=language, kind=kind_of(language), limit=limit, target=target, count=count
    )
    check(text, pieces, limit=limit, count=count)
    return pieces


# lone surrogates and NULs included
any_text = st.text(st.characters(exclude_categories=()), max_size=400)
tricky = st.text(
    st.sampled_from(
        list("ab1 .,;:#=-~`|*{}[]()<>\"'\\\n\r\t\f\x00\u2028\u0301\u200d\ufe0f🙂漢é\ud800\ufeff")
    ),
    max_size=600,
)
codeish = st.lists(
    st.sampled_from(
        [
            "def f(x):",
            "class A:",
            "    return x",
            "  }",
            "{",
            "function g() {",
            "}",
            "if (a) {",
            "# note",
            "// note",
            "/* a",
            "*/",
            '"""',
            "@wraps",
            "const a = 1;",
            "",
            "\t",
            "fn h() -> i32 { 1 }",
            "SELECT * FROM t;",
            "<div>",
            "</div>",
            "```",
            "~~~~",
            "# Title",
            "Title",
            "=====",
            "-----",
            "| a | b |",
            "- item",
            "---",
            "x = 'é🙂漢'",
            "end",
            "\x0c",
            "a\rb",
            "very " * 30,
            "long(" * 20,
            "z" * 300,
            "🙂" * 40,
        ]
    ),
    max_size=60,
)
limits = st.integers(4, 60)


@quick
@given(any_text, st.sampled_from(LANGUAGES), limits)
def test_any_text_is_covered_once_in_order_within_the_limit(
    text: str, language: str, limit: int
) -> None:
    run(text, language, limit=limit)


@quick
@given(tricky, st.sampled_from(LANGUAGES), limits, st.sampled_from([words, bytes_of, characters]))
def test_tricky_characters_are_covered_whatever_a_token_is(
    text: str, language: str, limit: int, count: Callable[[str], int]
) -> None:
    run(text, language, limit=limit, count=count)


@settings(quick, max_examples=300)
@given(
    codeish,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(LANGUAGES),
    limits,
    st.one_of(st.none(), st.integers(1, 80)),
)
def test_broken_code_is_covered_whatever_its_line_ends(
    lines: list[str], newline: str, language: str, limit: int, target: int | None
) -> None:
    run(newline.join(lines), language, limit=limit, target=target)


@quick
@given(
    st.text(st.sampled_from(" \t\n\r\f\x0b\u2028\u00a0"), max_size=50), st.sampled_from(LANGUAGES)
)
def test_white_space_alone_gives_nothing(text: str, language: str) -> None:
    assert run(text, language, limit=10) == []


@quick
@given(codeish, st.sampled_from(LANGUAGES))
def test_cutting_twice_gives_the_same(lines: list[str], language: str) -> None:
    text = "\n".join(lines)
    assert run(text, language, limit=20) == run(text, language, limit=20)


@quick
@given(codeish, st.sampled_from(LANGUAGES))
def test_a_text_within_the_target_is_one_piece(lines: list[str], language: str) -> None:
    text = "\n".join(lines)
    assert len(run(text, language, limit=100_000, target=100_000)) == bool(text.strip())


def test_only_a_newline_ends_a_line() -> None:
    text = "one\rtwo\x0cthree\u2028four\x85five\nsix"
    assert [piece.lines for piece in run(text, "text", limit=3, target=3)][-1] == (2, 2)
    assert [piece.lines for piece in run(text, "text", limit=100)] == [(1, 2)]


@pytest.mark.parametrize("language", ["python", "json", "text", "markdown"])
@pytest.mark.parametrize(
    "text",
    [
        "x" * 300_000,
        "x " * 150_000,
        "é🙂" * 100_000,
        " " * 300_000 + "x",
        "x\n" * 100_000,
        ",".join("0123456789" * 20_000),
    ],
)
def test_enormous_texts_take_a_linear_number_of_counts(text: str, language: str) -> None:
    counted = 0

    def count(part: str) -> int:
        nonlocal counted
        counted += len(part)
        return len(part)

    pieces = chunk(text, language=language, kind=kind_of(language), limit=512, count=count)
    assert max(piece.token_count for piece in pieces) <= 512
    assert "".join("".join(text[piece.start : piece.end] for piece in pieces).split()) == "".join(
        text.split()
    )
    assert counted < 8 * len(text) + 10_000


def test_a_character_that_alone_exceeds_the_limit_is_a_piece_by_itself() -> None:
    pieces = chunk("a🙂b", language="text", kind=Kind.DOCS, limit=2, count=bytes_of)
    assert [piece.token_count for piece in pieces] == [1, 4, 1]


def test_a_limit_below_one_token_is_refused() -> None:
    with pytest.raises(InputError, match="limit is 0"):
        chunk("a", language="text", kind=Kind.DOCS, limit=0, count=words)


def test_with_the_real_tokenizer_no_piece_exceeds_the_limit() -> None:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        pytest.skip("wordllama is not installed; pip install wordllama")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(
        str(Path(spec.origin).parent / "tokenizers" / "l2_supercat_tokenizer_config.json")
    )

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    source = Path(re.__file__).with_name("_parser.py").read_text(encoding="utf-8")[:24_000]
    pieces = run(source, "python", limit=512, count=count)
    sizes = [piece.token_count for piece in pieces]
    assert len(pieces) > 10
    assert sum(sizes) / len(sizes) > 150, "pieces are packed, not crumbs"
    assert any("SubPattern" in piece.defines for piece in pieces)
