"""The parts that embedders are made of: batches, pace, counting and cutting, folders of models,
opening by name, the checks common to all.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import wire
from models import MINILM, needed, onnx_folder, tokenizer_file, torch_folder
from unspool import pacing
from unspool.embedders import PROVIDERS, as_embedder, folders, open_embedder, resolve_name
from unspool.embedders.base import Facts, Tokenizer, is_cut
from unspool.embedders.batching import batches, run_all
from unspool.embedders.families import find_family
from unspool.embedders.model import MIN_TOKENS, ModelEmbedder, Proof
from unspool.embedders.onnx import list_weights as onnx_weights
from unspool.embedders.options import EmbedderOptions, OverLimit
from unspool.embedders.tokens import DefaultTokenizer, FileTokenizer, TokenCounting, open_tokenizer
from unspool.errors import (
    ConfigError,
    ConflictError,
    InputError,
    MissingDependencyError,
    RateLimitedError,
    RejectedError,
    ServiceError,
    UnreachableError,
)

quick = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Batches

sizes_of_texts = st.lists(st.integers(0, 300), max_size=60)


@quick
@given(
    sizes=sizes_of_texts,
    most=st.integers(1, 20),
    tokens=st.integers(0, 400),
    is_padded=st.booleans(),
)
def test_every_text_is_in_one_batch_and_no_batch_is_too_large(
    sizes: list[int], most: int, tokens: int, is_padded: bool
) -> None:
    made = batches(sizes, most=most, tokens=tokens, is_padded=is_padded)
    assert sorted(place for batch in made for place in batch) == list(range(len(sizes)))
    for batch in made:
        assert 1 <= len(batch) <= most
        counted = [sizes[place] for place in batch]
        cost = max(counted) * len(batch) if is_padded else sum(counted)
        assert not tokens or len(batch) == 1 or cost <= tokens


@quick
@given(sizes=sizes_of_texts, most=st.integers(1, 20), tokens=st.integers(0, 400))
def test_texts_that_are_not_padded_keep_their_order(
    sizes: list[int], most: int, tokens: int
) -> None:
    made = batches(sizes, most=most, tokens=tokens, is_padded=False)
    assert [place for batch in made for place in batch] == list(range(len(sizes)))


@quick
@given(sizes=sizes_of_texts, most=st.integers(1, 20), is_padded=st.booleans())
def test_without_a_bound_on_tokens_batches_are_as_full_as_they_may_be(
    sizes: list[int], most: int, is_padded: bool
) -> None:
    assert len(batches(sizes, most=most, tokens=0, is_padded=is_padded)) == -(-len(sizes) // most)


def test_texts_that_are_padded_go_together_by_length_longest_first() -> None:
    assert batches([1, 9, 2, 8, 3], most=2, tokens=0, is_padded=True) == [[1, 3], [4, 2], [0]]
    assert batches([5, 1, 1, 1], most=9, tokens=9, is_padded=True) == [[0], [1, 2, 3]]


# Pace


@quick
@given(
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=40),
    requests=st.integers(0, 1_000),
    tokens=st.integers(0, 100_000),
    pauses=st.lists(st.floats(0, 5), max_size=40),
)
def test_neither_calls_nor_tokens_exceed_their_rate(
    sizes: list[int], requests: int, tokens: int, pauses: list[float]
) -> None:
    """Whenever the caller comes, a call begins only when the one before it has used up its time."""
    clock = wire.Clock()
    pace = pacing.Backoff(
        requests_per_minute=requests, tokens_per_minute=tokens, clock=clock, sleep=clock.sleep
    )
    began = []
    for number, size in enumerate(sizes):
        clock.now += pauses[number] if number < len(pauses) else 0.0
        pace.wait(size)
        began.append(clock.now)
    for before, after, size in zip(began, began[1:], sizes, strict=False):
        assert after - before >= (60 / requests if requests else 0) - 1e-6
        assert after - before >= (size * 60 / tokens if tokens else 0) - 1e-6


def test_without_rates_nobody_waits() -> None:
    clock = wire.Clock()
    pace = pacing.Backoff(clock=clock, sleep=clock.sleep)
    for _ in range(100):
        pace.wait(10**9)
    assert clock.waits == []


def test_a_pause_holds_for_the_next_call_and_is_over_afterwards() -> None:
    clock = wire.Clock()
    pace = pacing.Backoff(clock=clock, sleep=clock.sleep)
    pace.pause(3)
    pace.pause(1)  # a shorter one does not end it
    pace.wait(1)
    pace.wait(1)
    assert clock.waits == [pytest.approx(3)]


def test_a_pause_that_begins_while_others_wait_holds_for_them_too() -> None:
    clock = wire.Clock()
    pace = pacing.Backoff(requests_per_minute=60, clock=clock, sleep=clock.sleep)
    pace.wait(1)
    interrupted = iter([True])

    def sleep(seconds: float) -> None:
        if next(interrupted, False):
            pace.pause(10)  # another thread was told so in the meantime
        clock.sleep(seconds)

    pace._sleep = sleep
    pace.wait(1)
    assert clock.now == pytest.approx(60.0)


def test_a_wait_ends_early_where_nobody_needs_its_call_any_more() -> None:
    clock = wire.Clock()
    pace = pacing.Backoff(clock=clock, sleep=clock.sleep)
    pace.pause(60)
    asked: list[float] = []
    pace.wait(1, sleep=lambda seconds: asked.append(seconds) or True)
    assert asked == [pytest.approx(60)]
    assert clock.waits == []


@given(attempt=st.integers(1, 200))
def test_pauses_double_up_to_a_bound_and_are_never_less_than_half(attempt: int) -> None:
    pause = pacing.compute_pause(UnreachableError("away"), attempt)
    most = min(pacing.LONGEST_PAUSE_S, pacing.FIRST_PAUSE_S * 2 ** min(attempt - 1, 60))
    assert pause is not None
    assert most / 2 <= pause <= most


@pytest.mark.parametrize(
    "error", [RejectedError("no"), ServiceError("no"), InputError("no"), ConfigError("no")]
)
def test_what_will_fail_again_is_not_repeated(error: Any) -> None:
    assert pacing.compute_pause(error, 1) is None


def test_what_a_server_asks_for_counts_unless_it_is_too_much() -> None:
    assert pacing.compute_pause(RateLimitedError("slow", retry_after=7.5), 1) == 7.5
    assert pacing.compute_pause(RateLimitedError("slow", retry_after=0), 9) == 0
    assert (
        pacing.compute_pause(RateLimitedError("slow", retry_after=pacing.LONGEST_WAIT_S), 1)
        == pacing.LONGEST_WAIT_S
    )
    assert (
        pacing.compute_pause(RateLimitedError("slow", retry_after=pacing.LONGEST_WAIT_S + 1), 1)
        is None
    )
    assert pacing.compute_pause(RateLimitedError("slow"), 1) is not None


# Retry-After


@pytest.fixture
def retry_after() -> Any:
    needed("httpx2", "pip install 'unspool[hosted]'")
    from unspool.calling import retry_after

    return retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250.5", "retry-after": "9"}, 0.2505),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "²"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "."}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 +999999999999999999"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_how_long_a_server_wants_to_be_left_alone(
    retry_after: Any, headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


def test_a_date_to_come_is_so_many_seconds_away(retry_after: Any) -> None:
    assert (
        80
        < retry_after(
            {"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)}
        )
        <= 90
    )


@quick
@given(
    text=st.one_of(st.text(max_size=40), st.datetimes().map(format_datetime)),
    name=st.sampled_from(["retry-after", "retry-after-ms"]),
)
@example(text="Mon, 01 Jan 0001 00:00:00 +2359", name="retry-after")
@example(text="Fri, 31 Dec 9999 23:59:59 -2359", name="retry-after")
def test_whatever_a_server_writes_there_is_a_time_or_nothing(text: str, name: str) -> None:
    needed("httpx2", "pip install 'unspool[hosted]'")
    from unspool.calling import retry_after

    found = retry_after({name: text})
    assert found is None or found >= 0


# Counting and cutting


@pytest.fixture(scope="module", params=["file", "default"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return FileTokenizer(str(tokenizer_file())) if request.param == "file" else DefaultTokenizer()


words = st.lists(
    st.sampled_from(
        [
            "tide",
            " ",
            "unbelievable",
            "\n",
            "antidisestablishmentarianism",
            "日本",
            "😀",
            "e\u0301",
            "x1",
            "->",
            "{}",
        ]
    ),
    max_size=60,
)


@quick
@given(text=st.one_of(st.text(max_size=120), words.map("".join)), limit=st.integers(0, 40))
@example(text="unbelievable", limit=1)
@example(text="a", limit=0)
@example(text="ﷺ" * 30, limit=3)
def test_what_is_cut_is_a_beginning_that_fits(tokenizer: Tokenizer, text: str, limit: int) -> None:
    cut = tokenizer.cut(text, limit)
    assert text.startswith(cut)
    assert tokenizer.count(cut) <= limit
    assert cut == text or tokenizer.count(text) > limit


def test_as_much_is_kept_as_fits(tokenizer: Tokenizer) -> None:
    text = "the man and his dog go out in time"
    assert tokenizer.cut(text, 5) == "the man and his dog"
    assert tokenizer.cut(text, 9) == text


def test_a_long_text_is_cut_to_exactly_the_limit(tokenizer: Tokenizer) -> None:
    assert tokenizer.count(tokenizer.cut("the tide " * 2_000, 254)) == 254


def test_the_marks_around_a_text_are_not_counted_as_its_tokens() -> None:
    file = str(tokenizer_file())
    assert FileTokenizer(file).count("tide") == 1
    # nor are those that padding adds, or cutting takes away
    assert FileTokenizer(file).count("tide " * 1000) == 1000
    assert open_tokenizer(file).special_count == 2
    assert open_tokenizer("").special_count == 0


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        FileTokenizer(str(tmp_path / "tokenizer.json"))


def test_counting_in_another_process_agrees_with_the_embedder(tmp_path: Path) -> None:
    embedder = open_embedder(f"onnx:{onnx_folder(tmp_path)}")
    assert isinstance(embedder, ModelEmbedder)
    text = "an unbelievable tide of antidisestablishmentarianism"
    assert embedder.counter.count_tokens(text) == embedder.count_tokens(text)
    assert embedder.counter.ruler is None
    measure = TokenCounting(100).ruler
    assert measure is not None
    assert measure(text)(3, 20) == open_embedder("static").count_tokens(text[3:20])


# Families


@pytest.mark.parametrize(
    ("model", "query", "passage", "pooling"),
    [
        ("intfloat/e5-small-v2", "query: ", "passage: ", "mean"),
        ("intfloat/multilingual-e5-large", "query: ", "passage: ", "mean"),
        ("intfloat/multilingual-e5-large-instruct", "", "", "mean"),
        ("intfloat/e5-mistral-7b-instruct", "", "", "mean"),
        (
            "BAAI/bge-small-en-v1.5",
            "Represent this sentence for searching relevant passages: ",
            "",
            "cls",
        ),
        ("BAAI/bge-m3", "", "", "cls"),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: ", "mean"),
        (
            "mixedbread-ai/mxbai-embed-large-v1",
            "Represent this sentence for searching relevant passages: ",
            "",
            "cls",
        ),
        (
            "Snowflake/snowflake-arctic-embed-m",
            "Represent this sentence for searching relevant passages: ",
            "",
            "cls",
        ),
        ("Snowflake/snowflake-arctic-embed-m-v2.0", "query: ", "", "cls"),
        ("snowflake-arctic-embed2", "query: ", "", "cls"),
        (
            "google/embeddinggemma-300m",
            "task: search result | query: ",
            "title: none | text: ",
            "mean",
        ),
        ("thenlper/gte-small", "", "", "cls"),
        ("sentence-transformers/all-MiniLM-L6-v2", "", "", "mean"),
        ("text-embedding-3-small", "", "", "mean"),
        ("", "", "", "mean"),
    ],
)
def test_a_family_is_known_by_a_models_name(
    model: str, query: str, passage: str, pooling: str
) -> None:
    family = find_family(model)
    assert (family.query, family.passage, family.pooling) == (query, passage, pooling)


# Folders


class Folder:
    """A folder as a hub has it, with what a test writes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        (path / "tokenizer.json").symlink_to(tokenizer_file())
        (path / "model.onnx").write_bytes(b"weights")
        self.write("config.json", {"hidden_size": 384, "max_position_embeddings": 512})

    def write(self, name: str, content: object) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(json.dumps(content))

    def described(self, **options: Any) -> folders.ModelFolder:
        return folders.read_folder(
            self.path, self.path.name, onnx_weights(self.path), EmbedderOptions(**options)
        )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "some-model")


def test_a_folder_that_says_little_gets_the_usual(folder: Folder) -> None:
    found = folder.described()
    assert (
        found.dimension,
        found.max_tokens,
        found.pooling,
        found.query_prefix,
        found.passage_prefix,
    ) == (384, 510, "mean", "", "")
    (folder.path / "config.json").unlink()
    assert (folder.described().dimension, folder.described().max_tokens) == (0, 510)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 256}}, 254),
        (
            {
                "sentence_bert_config.json": {"max_seq_length": 128},
                "tokenizer_config.json": {"model_max_length": 512},
            },
            126,
        ),
        (
            {
                "sentence_bert_config.json": {"transformer_task": "feature-extraction"},
                "tokenizer_config.json": {"model_max_length": 256},
            },
            254,
        ),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, 510),
        ({"tokenizer_config.json": {"model_max_length": 1000000000000000019884624838656}}, 510),
        (
            {
                "config.json": {"max_position_embeddings": 514},
                "tokenizer_config.json": {"model_max_length": 512},
            },
            510,
        ),
        ({"config.json": {"max_position_embeddings": 8194}}, 8192),
    ],
    ids=["older", "older-wins", "newer", "unsaid", "unknown", "roberta", "long"],
)
def test_the_limit_is_read_where_older_and_newer_folders_have_it(
    folder: Folder, files: dict[str, object], limit: int
) -> None:
    for name, content in files.items():
        folder.write(name, content)
    assert folder.described().max_tokens == limit
    assert folder.described(max_tokens=100).max_tokens == 98


@pytest.mark.parametrize(
    ("content", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "other"),
        ({"pooling_mode_lasttoken": True}, "other"),
        ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({"pooling_mode": ["mean", "max"]}, "other"),
        ({"pooling_mode": "lasttoken"}, "other"),
    ],
)
def test_pooling_is_read_in_the_older_and_the_newer_form(
    folder: Folder, content: dict[str, object], pooling: str
) -> None:
    folder.write("1_Pooling/config.json", {"word_embedding_dimension": 64, **content})
    assert folder.described().pooling == pooling
    assert folder.described().dimension == 64


def test_the_dimension_is_read_in_the_newer_form_and_behind_a_further_layer(folder: Folder) -> None:
    folder.write("1_Pooling/config.json", {"embedding_dimension": 96, "pooling_mode": "mean"})
    assert folder.described().dimension == 96
    folder.write(
        "modules.json",
        [
            {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
            {"type": "x.Dense", "path": "2_Dense"},
        ],
    )
    folder.write("2_Dense/config.json", {"in_features": 96, "out_features": 32})
    assert folder.described().dimension == 32


def test_prompts_of_the_folder_go_before_the_familys(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "e5-small")
    assert (folder.described().query_prefix, folder.described().passage_prefix) == (
        "query: ",
        "passage: ",
    )
    folder.write(
        "config_sentence_transformers.json", {"prompts": {"query": "ask: ", "passage": "tell: "}}
    )
    assert (folder.described().query_prefix, folder.described().passage_prefix) == (
        "ask: ",
        "tell: ",
    )
    folder.write(
        "config_sentence_transformers.json", {"prompts": {"query": "ask: ", "document": "say: "}}
    )
    assert (folder.described().query_prefix, folder.described().passage_prefix) == (
        "ask: ",
        "say: ",
    )


def test_empty_prompts_which_a_library_writes_into_every_folder_say_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "e5-small")
    folder.write("config_sentence_transformers.json", {"prompts": {"query": "", "document": ""}})
    assert (folder.described().query_prefix, folder.described().passage_prefix) == (
        "query: ",
        "passage: ",
    )


def test_the_revision_changes_with_all_that_changes_vectors(folder: Folder) -> None:
    seen = {folder.described().revision}
    folder.write("1_Pooling/config.json", {"pooling_mode": "cls"})
    seen.add(folder.described().revision)
    (folder.path / "model.onnx").write_bytes(b"weighty")
    seen.add(folder.described().revision)
    (folder.path / "tokenizer.json").unlink()
    (folder.path / "tokenizer.json").write_bytes(
        tokenizer_file().read_bytes().replace(b'"max_length":128', b'"max_length":129')
    )
    seen.add(folder.described().revision)
    (folder.path / "model.onnx_data").write_bytes(b"more weights")
    seen.add(folder.described().revision)
    assert len(seen) == 5


def test_the_revision_does_not_change_with_what_does_not(folder: Folder, tmp_path: Path) -> None:
    before = folder.described().revision
    folder.write("README.json", {"about": "a model"})
    assert folder.described(max_tokens=64, batch=3).revision == before
    folder.path.rename(tmp_path / "elsewhere")
    folder.path = tmp_path / "elsewhere"
    assert folder.described().revision == before


@pytest.mark.parametrize("place", [0, 1_234_567, -1], ids=["beginning", "middle", "end"])
def test_weights_are_told_apart_wherever_they_differ(folder: Folder, place: int) -> None:
    content = bytearray(3 << 20)
    (folder.path / "model.onnx").write_bytes(content)
    before = folder.described().revision
    content[place] = 1
    (folder.path / "model.onnx").write_bytes(content)
    assert folder.described().revision != before


def test_weights_that_are_too_large_to_read_are_told_apart_by_parts_from_all_over(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_READ_WHOLE", 1000)
    monkeypatch.setattr(folders, "_BLOCK", 100)
    monkeypatch.setattr(folders, "_BLOCKS", 10)
    seen = set()
    for place in range(-1, 10):
        content = bytearray(10_000)
        if place >= 0:
            content[1000 * place] = 1
        (folder.path / "model.onnx").write_bytes(content)
        seen.add(folder.described().revision)
    assert len(seen) == 11


def test_a_file_that_is_damaged_is_named(folder: Folder) -> None:
    (folder.path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json"):
        folder.described()


IN_FOLDERS = ("onnx", "fastembed", "sentence-transformers")


def has(provider: str) -> None:
    needed(PROVIDERS[provider].driver, f"pip install 'unspool[{PROVIDERS[provider].extra}]'")


@pytest.mark.parametrize("provider", IN_FOLDERS)
def test_a_folder_without_a_tokenizer_or_weights_is_named(provider: str, folder: Folder) -> None:
    has(provider)
    (folder.path / "model.safetensors").write_bytes(b"weights")
    (folder.path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"some-model has no tokenizer\.json"):
        open_embedder(f"{provider}:{folder.path}")
    for name in ("model.onnx", "model.safetensors"):
        (folder.path / name).unlink()
    with pytest.raises(ConfigError, match=r"some-model has no .*model"):
        open_embedder(f"{provider}:{folder.path}")


@pytest.mark.parametrize("provider", ["onnx", "fastembed"])
def test_weights_that_cannot_be_read_are_named_when_something_is_embedded(
    provider: str, folder: Folder
) -> None:
    has(provider)
    folder.write("tokenizer_config.json", {"model_max_length": 512, "pad_token": "[PAD]"})
    embedder = open_embedder(f"{provider}:{folder.path}")
    with pytest.raises(ConfigError, match="copy the model's"):
        embedder.embed_query("walrus")


def test_weights_that_torch_cannot_read_are_named_when_something_is_embedded(
    folder: Folder,
) -> None:
    torch_folder()
    (folder.path / "model.safetensors").write_bytes(b"weights")
    embedder = open_embedder(f"sentence-transformers:{folder.path}")
    with pytest.raises(ConfigError, match="copy the model's folder again"):
        embedder.embed_query("walrus")


@pytest.mark.parametrize("provider", ["onnx", "sentence-transformers"])
@pytest.mark.parametrize("model", ["/no/such/folder", "./none", "~/none-such", "a/b/c"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_a_hub(provider: str, model: str) -> None:
    has(provider)
    with pytest.raises(ConfigError, match="there is no folder"):
        open_embedder(f"{provider}:{model}")


@pytest.mark.parametrize("provider", IN_FOLDERS)
def test_without_a_model_it_says_what_to_set(provider: str) -> None:
    has(provider)
    with pytest.raises(ConfigError, match=f"UNSPOOL_EMBEDDER={provider}:"):
        open_embedder(provider)


def test_pooling_that_onnx_cannot_do_is_refused(folder: Folder) -> None:
    has("onnx")
    folder.write("1_Pooling/config.json", {"pooling_mode": "lasttoken"})
    with pytest.raises(ConfigError, match="sentence-transformers"):
        open_embedder(f"onnx:{folder.path}")


def test_a_folder_is_named_by_its_last_part_and_set_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = onnx_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert open_embedder(f"onnx:./{MINILM}").name == f"onnx:{MINILM}"
    assert resolve_name(f"onnx:./{MINILM}") == f"onnx:{path}"
    assert resolve_name("onnx:no-such-folder") == "onnx:no-such-folder"
    assert resolve_name("openai:tests") == "openai:tests"


def test_a_newer_folder_is_read_to_its_declared_limit_by_fastembed(tmp_path: Path) -> None:
    """fastembed cuts by `tokenizer_config.json`, where newer folders also have the `max_length`
    of some call long ago.
    """
    has("fastembed")
    path = onnx_folder(tmp_path)
    (path / "tokenizer_config.json").unlink()
    (path / "tokenizer_config.json").write_text(
        json.dumps({"model_max_length": 512, "max_length": 40, "pad_token": "[PAD]"})
    )
    embedder = open_embedder(f"fastembed:{path}")
    cat, dog = (
        embedder.embed_query("the " * (embedder.max_tokens - 1) + last) for last in ("cat", "dog")
    )
    assert float(np.abs(cat - dog).max()) > 1e-4


# Hubs


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[wire.WireServer]:
    """A hub on this machine that has nothing, and no copies of anything."""
    import huggingface_hub
    from huggingface_hub import constants

    with wire.WireServer() as opened:
        monkeypatch.setattr(constants, "ENDPOINT", opened.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield opened
        huggingface_hub.close_session()


def test_a_name_of_a_hub_that_does_not_answer_fails_with_the_ways_without_one(
    hub: wire.WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    has("onnx")
    from huggingface_hub import constants

    with wire.WireServer() as gone:
        monkeypatch.setattr(constants, "ENDPOINT", gone.address)
    with pytest.raises(
        UnreachableError, match=r"UNSPOOL_EMBEDDER=onnx:/path/of/the/folder.* static"
    ):
        open_embedder("onnx:nobody/nothing-of-the-kind")


def test_a_hub_that_takes_too_long_is_taken_for_one_that_does_not_answer(
    hub: wire.WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    has("onnx")
    never = threading.Event()
    hub.always = hub.later(never)
    monkeypatch.setattr(folders, "HUB_S", 0.1)
    with pytest.raises(UnreachableError, match="does not answer"):
        open_embedder("onnx:nobody/nothing-of-the-kind")
    never.set()


def test_where_hubs_are_switched_off_none_is_asked(
    hub: wire.WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    has("onnx")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE"):
        open_embedder("onnx:nobody/nothing-of-the-kind")
    assert hub.asked == []


def test_a_name_that_no_hub_can_have_is_refused_without_asking(hub: wire.WireServer) -> None:
    has("onnx")
    with pytest.raises(ConfigError, match="no name that a hub has"):
        open_embedder("onnx:what is this?")
    assert hub.asked == []


def test_a_copy_that_a_hub_left_on_this_machine_is_taken_without_asking(
    hub: wire.WireServer, tmp_path: Path
) -> None:
    has("onnx")
    kept = tmp_path / "hub" / f"models--sentence-transformers--{MINILM}"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    (kept / "snapshots").mkdir()
    onnx_folder(tmp_path).rename(kept / "snapshots" / ("0" * 40))
    assert open_embedder(f"onnx:{MINILM}").embed_query("walrus").shape == (384,)
    assert hub.asked == []


def test_fastembed_knows_which_names_it_knows() -> None:
    has("fastembed")
    with pytest.raises(ConfigError, match="did you mean BAAI/bge-small-en"):
        open_embedder("fastembed:BAAI/bge-smal-en")


# Opening by name


def test_an_unknown_provider_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(
        ConfigError, match=r"did you mean 'openai'\?.*sentence-transformers.*voyage"
    ):
        open_embedder("opnai:text-embedding-3-small")
    with pytest.raises(ConfigError, match="static, sentence-transformers"):
        open_embedder("")


@pytest.mark.parametrize("provider", [name for name, known in PROVIDERS.items() if known.driver])
def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, find = PROVIDERS[provider], importlib.util.find_spec
    monkeypatch.setattr(
        "unspool.providers.importlib.util.find_spec",
        lambda name, *more: None if name == known.driver else find(name, *more),
    )
    install = f"unspool[{known.extra}]" if known.extra else known.driver
    with pytest.raises(MissingDependencyError) as raised:
        # options that nobody else has, for nothing that was opened before
        open_embedder(provider, EmbedderOptions(batch=977))
    assert f"pip install '{install}'" in str(raised.value)
    assert known.driver in str(raised.value)


def test_a_langchain_object_cannot_be_given_by_name() -> None:
    with pytest.raises(ConfigError, match=r"unspool\.open\(embedder="):
        open_embedder("langchain:OpenAIEmbeddings")


def test_an_embedder_is_loaded_once() -> None:
    assert open_embedder("static") is open_embedder("static")


@pytest.mark.parametrize(
    "given",
    [
        "static",
        None,
        7,
        object(),
        type("Half", (), {"embed_query": None, "embed_passages": None})(),
    ],
)
def test_what_is_no_embedder_is_refused_with_what_one_needs(given: object) -> None:
    with pytest.raises(
        InputError, match="name, dimension, max_tokens, embed_passages, embed_query"
    ):
        as_embedder(given)


def test_an_embedder_that_was_opened_is_taken_as_it_is() -> None:
    static = open_embedder("static")
    assert as_embedder(static) is static
    made = ModelEmbedder(Words())
    assert as_embedder(made) is made


# What is common to all models


class Words:
    """A model that sums up words, and does what a test has it do instead."""

    tokenizer_file = ""

    def __init__(self, **facts: Any) -> None:
        self.facts = Facts(
            **{"name": "mine:words", "max_tokens": 64, "max_batch": 4, "is_local": True, **facts}
        )
        self.asked: list[list[str]] = []
        self.gives: Any = None
        self.model = ""  # another model under the same name puts this before each text

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Any:
        self.asked.append(list(texts))
        return (
            wire.vectors([f"{self.model} {text}" for text in texts])
            if self.gives is None
            else self.gives
        )


LONG = "tide " * 200


def test_a_text_over_the_limit_is_cut() -> None:
    model = Words()
    embedder = ModelEmbedder(model)
    embedder.embed_passages(["short", LONG])
    assert model.asked[0][0] == "short"
    assert LONG.startswith(model.asked[0][1])
    assert embedder.count_tokens(model.asked[0][1]) == 64
    assert is_cut(embedder, LONG)
    assert not is_cut(embedder, "short")


def test_a_text_over_the_limit_is_refused_with_its_place_and_size() -> None:
    model = Words(over_limit=OverLimit.REFUSE)
    size = ModelEmbedder(model).count_tokens(LONG)
    with pytest.raises(
        InputError, match=f"text 1 of 2 has {size} tokens, mine:words reads 64"
    ) as raised:
        ModelEmbedder(model).embed_passages(["short", LONG])
    assert "tide" not in str(raised.value)
    assert model.asked == []


def test_a_text_over_a_limit_that_is_advice_goes_whole() -> None:
    model = Words(over_limit=OverLimit.WHOLE)
    ModelEmbedder(model).embed_query(LONG)
    assert model.asked == [[LONG]]
    assert not is_cut(ModelEmbedder(model), LONG)


def test_a_prefix_takes_its_share_of_the_limit() -> None:
    model = Words(query_prefix="a question about: ", passage_prefix="p: ")
    embedder = ModelEmbedder(model)
    assert embedder.max_tokens == 64 - embedder.count_tokens("a question about: ")
    embedder.embed_query(LONG)
    assert model.asked[0][0].startswith("a question about: tide")
    assert embedder.count_tokens(model.asked[0][0]) <= 64


def test_a_model_that_reads_next_to_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"mine:words reads {MIN_TOKENS - 1} tokens"):
        ModelEmbedder(Words(max_tokens=MIN_TOKENS - 1))
    assert ModelEmbedder(Words(max_tokens=MIN_TOKENS)).max_tokens == MIN_TOKENS


REFUSED: dict[str, tuple[Any, str]] = {
    "nan": ([[1.0, np.nan]], "NaN"),
    "infinite": ([[1.0, np.inf]], "NaN or infinite"),
    "zeros": ([[0.0, 0.0]], "zeros"),
    "no numbers": (np.empty((1, 0)), "zeros"),
    "too many": ([[1.0, 0.0], [0.0, 1.0]], "2 vectors for 1 texts"),
    "none": (np.empty((0, 2)), "0 vectors for 1 texts"),
    "flat": ([1.0], "1 vectors for 1 texts"),
    "one number": (1.0, "0 vectors for 1 texts"),
    "deep": ([[[1.0]]], "1 vectors for 1 texts"),
}


@pytest.mark.parametrize(("gives", "said"), REFUSED.values(), ids=REFUSED)
def test_vectors_that_cannot_be_right_are_refused_with_the_models_name(
    gives: Any, said: str
) -> None:
    model = Words()
    model.gives = gives
    with pytest.raises(ServiceError, match=f"mine:words gave .*{said}"):
        ModelEmbedder(model).embed_query("walrus")


def test_vectors_of_another_dimension_than_declared_are_refused() -> None:
    model = Words(dimension=3)
    model.gives = [[1.0, 0.0]]
    with pytest.raises(ServiceError, match="mine:words gave vectors of 2 numbers, not 3"):
        ModelEmbedder(model).embed_query("walrus")


@quick
@given(
    st.lists(st.sampled_from(["tide", "boat out", "a b c d e", "x " * 30]), max_size=15),
    st.booleans(),
    st.integers(0, 40),
)
def test_rows_are_in_the_order_of_the_texts_however_they_were_batched(
    texts: list[str], is_padded: bool, tokens: int
) -> None:
    numbered = [f"{text} {number}" for number, text in enumerate(texts)]
    model = Words(is_padded=is_padded, batch_tokens=tokens, dimension=wire.DIMENSION)
    rows = ModelEmbedder(model).embed_passages(numbered)
    assert rows.shape == (len(texts), wire.DIMENSION)
    if texts:
        np.testing.assert_allclose(rows, wire.vectors(numbered), atol=1e-6)
    assert all(len(some) <= 4 for some in model.asked)


def test_a_model_in_this_process_is_asked_by_one_thread_at_a_time() -> None:
    at_once: list[int] = []
    guard = threading.Lock()

    class Slow(Words):
        def encode(self, texts: Sequence[str], *, is_query: bool) -> Any:
            assert guard.acquire(blocking=False)
            at_once.append(1)
            rows = super().encode(texts, is_query=is_query)
            guard.release()
            return rows

    embedder = ModelEmbedder(Slow(), EmbedderOptions(concurrency=8))
    threads = [
        threading.Thread(target=embedder.embed_passages, args=(["tide", "boat"] * 20,))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(at_once) == 60


def test_a_failure_in_this_process_is_not_repeated() -> None:
    class Failing(Words):
        def encode(self, texts: Sequence[str], *, is_query: bool) -> Any:
            self.asked.append(list(texts))
            raise UnreachableError("away")

    model = Failing()
    with pytest.raises(UnreachableError):
        ModelEmbedder(model).embed_query("walrus")
    assert len(model.asked) == 1


def test_prefixes_that_are_set_go_before_the_models_own_and_change_the_revision() -> None:
    plain = ModelEmbedder(Words())
    seen = {plain.revision}
    for options in ({"query_prefix": "q "}, {"passage_prefix": "q "}, {"revision": "second"}):
        embedder = ModelEmbedder(Words(), EmbedderOptions(**options))
        seen.add(embedder.revision)
        assert embedder.facts.query_prefix == options.get("query_prefix", "")
        assert embedder.facts.passage_prefix == options.get("passage_prefix", "")
    assert len(seen) == 4


KNOWN = "the known tide"


def proof_of(model: Words) -> Proof:
    return Proof(ModelEmbedder(model), lambda: (KNOWN, wire.vectors([KNOWN])[0]))


def test_another_model_under_the_same_name_is_noticed_every_time() -> None:
    model = Words()
    proof = proof_of(model)
    model.model = "other words altogether"
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"mine:words.*UNSPOOL_EMBEDDER_REVISION"):
            proof()
    assert not proof.is_given


def test_the_same_model_shows_it_once() -> None:
    model = Words()
    proof = proof_of(model)
    for _ in range(3):
        proof()
    assert model.asked == [[KNOWN]]


def test_nothing_has_to_be_shown_where_nothing_is_known() -> None:
    model = Words()
    proof = Proof(ModelEmbedder(model), lambda: None)
    proof()
    assert proof.is_given
    assert model.asked == []


# Objects that are given


class Given:
    """What LangChain's objects have, without LangChain."""

    model = "words"
    fails: Exception | None = None
    gives: Any = None

    def embed_documents(self, texts: list[str]) -> Any:
        if self.fails is not None:
            raise self.fails
        return wire.vectors(texts).tolist() if self.gives is None else self.gives

    def embed_query(self, text: str) -> Any:
        return self.embed_documents([text])[0]


def test_a_langchain_object_is_named_by_its_class_and_model() -> None:
    assert as_embedder(Given()).name == "langchain:Given:words"


def test_whatever_a_given_object_raises_is_told_by_name_without_its_message() -> None:
    given = Given()
    given.fails = KeyError("sk-secret and the walrus")
    with pytest.raises(ServiceError, match="langchain:Given:words failed with KeyError") as raised:
        as_embedder(given).embed_passages(["walrus"])
    assert "secret" not in str(raised.value)


def test_an_error_of_ours_that_a_given_object_raises_stays_what_it_is() -> None:
    given = Given()
    given.fails = RejectedError("no quota")
    with pytest.raises(RejectedError, match="no quota"):
        as_embedder(given).embed_passages(["walrus"])


@pytest.mark.parametrize(
    "gives",
    [[[1.0, 2.0], [1.0]], [["one"]], [None], "vectors", [[1.0]]],
    ids=["ragged", "words", "none", "text", "count"],
)
def test_vectors_of_a_given_object_that_cannot_be_read_are_refused(gives: Any) -> None:
    given = Given()
    given.gives = gives
    with pytest.raises(ServiceError, match="langchain:Given:words gave"):
        as_embedder(given).embed_passages(["walrus", "tide"])


class Own:
    """As little as an embedder of one's own can be."""

    name, dimension, max_tokens = "own:words", 2, 100

    def embed_passages(self, texts: Sequence[str]) -> Any:
        return [[1.0, 2.0], [1.0]]

    def embed_query(self, text: str) -> Any:
        return [1.0, 2.0]


def test_vectors_of_ones_own_embedder_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ServiceError, match="own:words gave"):
        as_embedder(Own()).embed_passages(["walrus", "tide"])


def test_what_ones_own_embedder_states_is_taken() -> None:
    class Stating(Own):
        revision, alpha = "7", 0.25

    embedder = as_embedder(Stating(), EmbedderOptions(max_tokens=50, over_limit=OverLimit.REFUSE))
    assert (embedder.name, embedder.revision, embedder.alpha, embedder.max_tokens) == (
        "own:words",
        "7",
        0.25,
        50,
    )
    assert embedder.facts.over_limit is OverLimit.REFUSE


class Coroutines(Given):
    """An object that can only be awaited."""

    def embed_documents(self, texts: list[str]) -> Any:
        raise NotImplementedError

    async def aembed_documents(self, texts: list[str]) -> Any:
        await asyncio.sleep(0)
        return wire.vectors(texts).tolist()


def test_an_object_of_coroutines_can_be_used_where_a_loop_is_running() -> None:
    """Waiting for it must not need the loop of the caller."""

    async def inside() -> Any:
        return as_embedder(Coroutines()).embed_passages(["walrus"])

    np.testing.assert_allclose(asyncio.run(inside()), wire.vectors(["walrus"]), atol=1e-6)


def test_the_loop_of_an_object_ends_with_it() -> None:
    embedder = as_embedder(Coroutines())
    embedder.embed_passages(["walrus"])
    [thread] = [one for one in threading.enumerate() if one.name == "unspool-langchain"]
    del embedder
    gc.collect()
    thread.join(wire.WAIT_S)
    assert not thread.is_alive()


ENDING = """
from unspool.embedders import as_embedder
class Coroutines:
    def embed_documents(self, texts): raise NotImplementedError
    def embed_query(self, text): raise NotImplementedError
    async def aembed_documents(self, texts): return [[1.0, 2.0] for _ in texts]
embedder = as_embedder(Coroutines())
print(embedder.embed_passages(["walrus"]).shape)
"""


def test_a_process_that_used_coroutines_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(1, 2)\n", "")


# Calls at once


def test_calls_at_once_give_their_results_in_order_and_are_no_more_than_allowed() -> None:
    now, most, guard = [0], [0], threading.Lock()

    def job(number: int) -> int:
        with guard:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.01)
        with guard:
            now[0] -= 1
        return number

    assert run_all([partial(job, number) for number in range(12)], at_once=3) == list(range(12))
    assert most[0] <= 3


def test_a_call_that_fails_is_told_while_others_are_still_under_way() -> None:
    end = threading.Event()
    begun = []

    def slow() -> None:
        begun.append(1)
        end.wait(20)

    def failing() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        run_all([slow, failing, slow, slow, slow], at_once=2)
    assert not end.is_set()
    assert len(begun) <= 2
    end.set()
