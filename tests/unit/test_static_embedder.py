"""The default embedder: what its shortcuts rely on, and what it promises."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from unspool.embedders import open_embedder
from unspool.embedders.base import Embedder
from unspool.embedders.static import StaticEmbedder
from unspool.errors import ConfigError, InputError

_spec = importlib.util.find_spec("wordllama")
assert _spec is not None
assert _spec.origin is not None
TOKENIZER_FILE = Path(_spec.origin).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"

# Hypothesis shrinks each failing text through the tokenizer; the examples are small and many.
quick = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return open_embedder("static")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER_FILE))


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    """Every entry as the text that it stands for, bytes and special tokens left out."""
    entries = json.loads(TOKENIZER_FILE.read_text(encoding="utf-8"))["model"]["vocab"]
    return [
        entry.replace("\u2581", " ")
        for entry in entries
        if not re.fullmatch(r"<(0x[0-9A-F]{2}|unk|/?s)>", entry)
    ]


def is_letter(character: str) -> bool:
    return bool(re.fullmatch(r"[^\W\d_²]", character))


def test_the_vocabulary_is_the_one_that_was_looked_at(vocabulary: list[str]) -> None:
    assert len(vocabulary) == 32_000 - 259


def test_no_token_crosses_from_a_letter_to_another_kind_of_character(vocabulary: list[str]) -> None:
    assert [
        entry
        for entry in vocabulary
        if len({is_letter(character) for character in entry.lstrip(" ")}) > 1
    ] == []


def test_no_token_joins_two_digits_or_a_digit_with_anything(vocabulary: list[str]) -> None:
    assert [entry for entry in vocabulary if len(entry) > 1 and re.search(r"\d", entry)] == []


def test_no_token_has_a_space_behind_another_character_or_a_line_break_beside_one(
    vocabulary: list[str],
) -> None:
    assert [entry for entry in vocabulary if " " in entry.lstrip(" ")] == []
    assert [entry for entry in vocabulary if "\n" in entry.strip(" ") and len(entry) > 1] == []


code = st.lists(
    st.sampled_from(
        [
            "def ",
            "return x",
            "()",
            "::",
            "->",
            "  ",
            "    ",
            "\t",
            "\n",
            "x1",
            "0xFF",
            "3.14",
            "// ",
            "²",
            "_a_b",
            "é",
            "日本",
            "«»",
            "!=",
            "#",
            "$",
            "\u3000",
            "\u2003",
        ]
    ),
    max_size=25,
).map("".join)


@quick
@given(
    st.one_of(
        st.text(max_size=80).filter(lambda text: not re.search("[\r\u2581\xa0\u2009\u200a]", text)),
        code,
        st.text(alphabet=" \t\n\u2003\u3000\x0b\x0c", max_size=20),
        st.text(alphabet="aZ09_ .²³½Ⅷ٣é\u0301", max_size=30),
    )
)
@example(" ")
@example("a  b   c    d")
@example("ﬁ e\u0301 \u200b \ufeff 😀👩‍👩‍👧")
@example("x" * 3000)
def test_tokens_are_counted_exactly_as_the_tokenizer_counts_them(
    embedder: Embedder, tokenizer: Tokenizer, text: str
) -> None:
    assert embedder.count_tokens(text) == len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("text", ["a;\r\nb;\r\n", "f();\r", "0 \xa0", "so:\u2009x", "e.g.:\u200a"])
def test_windows_line_ends_and_narrow_spaces_are_counted_exactly(
    embedder: Embedder, tokenizer: Tokenizer, text: str
) -> None:
    assert embedder.count_tokens(text) == len(tokenizer.encode(text, add_special_tokens=False).ids)


@quick
@given(
    st.lists(
        st.sampled_from(
            ["\r", "\r\n", "\u2581", ";", ">", ")", " ", "  ", "x", "1", "{", "*/", "é"]
        ),
        max_size=20,
    ).map("".join)
)
def test_tokens_are_never_counted_too_few(
    embedder: Embedder, tokenizer: Tokenizer, text: str
) -> None:
    """A budget and a limit then still hold, also where the shortcut is not exact."""
    assert embedder.count_tokens(text) >= len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("text", ["<s>", "struck <s>out</s> text", "<unk>", "a</s>b", "<0x0A>"])
def test_the_names_of_special_tokens_in_a_text_are_never_counted_too_few(
    embedder: Embedder, tokenizer: Tokenizer, text: str
) -> None:
    """`<s>` is a tag of HTML."""
    assert embedder.count_tokens(text) >= len(tokenizer.encode(text, add_special_tokens=False).ids)


def test_real_files_are_counted_exactly(embedder: Embedder, tokenizer: Tokenizer) -> None:
    for module in (json, re, subprocess):
        if getattr(module, "__file__", None):
            text = Path(str(module.__file__)).read_text(encoding="utf-8")
            assert embedder.count_tokens(text) == len(
                tokenizer.encode(text, add_special_tokens=False).ids
            )


def test_nothing_has_no_tokens(embedder: Embedder) -> None:
    assert embedder.count_tokens("") == 0


visible = st.text(min_size=1, max_size=60).filter(lambda text: bool(text.split()))


@quick
@given(st.lists(visible, min_size=1, max_size=5))
def test_a_batch_gives_each_text_its_own_unit_row_in_order(
    embedder: Embedder, texts: list[str]
) -> None:
    rows = embedder.embed_passages(texts)
    assert rows.shape == (len(texts), embedder.dimension)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_array_equal(row, embedder.embed_query(text))


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed_passages([]).shape == (0, 256)


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000", "\x1c"])
def test_a_blank_text_is_refused_and_named_by_its_place(embedder: Embedder, blank: str) -> None:
    with pytest.raises(InputError, match="text 1 of 2"):
        embedder.embed_passages(["fine", blank])


def test_white_space_does_not_change_the_meaning(embedder: Embedder) -> None:
    np.testing.assert_array_equal(embedder.embed_query("a  b\n\tc "), embedder.embed_query("a b c"))


def test_what_means_the_same_is_nearer_than_what_does_not(embedder: Embedder) -> None:
    car, vehicle, tomato = embedder.embed_passages(
        ["a fast car on the road", "an automobile drives quickly", "tomatoes grow in the garden"]
    )
    assert car @ vehicle > car @ tomato


def test_a_very_long_text_is_embedded_whole(embedder: Embedder) -> None:
    assert not np.array_equal(
        embedder.embed_query("cat " * 5000 + "dog"), embedder.embed_query("cat " * 5000)
    )


def test_threads_get_the_same_vectors_as_one(embedder: Embedder) -> None:
    texts = [f"word{i} and other words {i * 7}" for i in range(200)]
    expected = embedder.embed_passages(texts)
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(embedder.embed_query, texts))
    np.testing.assert_array_equal(np.array(rows), expected)


def test_an_unknown_provider_or_model_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="static"):
        open_embedder("statc")
    with pytest.raises(ConfigError, match="UNSPOOL_EMBEDDER"):
        open_embedder("static:huge")


OFFLINE = """
import socket, sys
def refuse(*arguments, **options):
    sys.exit("a socket was opened")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
from unspool.embedders import open_embedder
embedder = open_embedder("static")
print(embedder.count_tokens("hello world"), embedder.embed_query("hello world").shape[0], "wordllama" in sys.modules)
"""


def test_embedding_opens_no_socket() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 256 False\n", "")


def test_a_long_run_without_a_space_is_not_remembered() -> None:
    """On failure: whoever sends megabytes without a space fills the memory of a service with
    them.
    """
    embedder = StaticEmbedder()
    embedder.count_tokens("a" * 5_000 + " short")
    embedder.embed_query("b" * 5_000 + " short")
    assert max(map(len, (*embedder._segments, *embedder._counts))) <= 64
    assert embedder.count_tokens("a" * 5_000) == embedder.count_tokens("a" * 5_000) > 100
