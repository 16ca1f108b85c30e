"""Every embedder does what every embedder has to do: the contract that ships with unspool, over
real weights, objects and a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wire
from models import needed, onnx_folder, torch_folder
from unspool.embedders import as_embedder, open_embedder
from unspool.embedders.base import Embedder
from unspool.embedders.options import EmbedderOptions, OverLimit
from unspool.index.ports import Vectors
from unspool.testing.embedder_contract import TEXTS, EmbedderContract, ModelContract


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real all-MiniLM-L6-v2 as ONNX."""
    return onnx_folder(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server() -> Iterator[wire.WireServer]:
    """Hosted models, without the hosts."""
    needed("httpx2", "pip install 'unspool[hosted]'")
    with wire.WireServer() as opened:
        yield opened


class TestStatic(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return open_embedder("static")


class TestOnnx(ModelContract):
    # weights of 8 bits: what numbers are rounded to depends on all that are in the batch
    same = 0.99

    @pytest.fixture
    def embedder(self, folder: Path) -> Embedder:
        return open_embedder(f"onnx:{folder}")


class TestOnnxThatRefuses(ModelContract):
    """Also with prefixes: they take their share of the limit."""

    same = 0.99

    @pytest.fixture
    def embedder(self, folder: Path) -> Embedder:
        options = EmbedderOptions(
            over_limit=OverLimit.REFUSE,
            max_tokens=64,
            query_prefix="what is asked for: ",
            passage_prefix="found: ",
        )
        return open_embedder(f"onnx:{folder}", options)


class TestFastembed(ModelContract):
    same = 0.99

    @pytest.fixture
    def embedder(self, folder: Path) -> Embedder:
        needed("fastembed", "pip install 'unspool[fastembed]'")
        return open_embedder(f"fastembed:{folder}")


class TestSentenceTransformers(ModelContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return open_embedder(f"sentence-transformers:{torch_folder()}")


class TestLangChain(ModelContract):
    """LangChain's own object; it makes its vectors of the whole text and nothing else."""

    hears_queries = False

    @pytest.fixture
    def embedder(self) -> Embedder:
        needed("langchain_core", "pip install langchain-core")
        from langchain_core.embeddings import DeterministicFakeEmbedding

        return as_embedder(DeterministicFakeEmbedding(size=64))


class TestLangChainOfWords(ModelContract):
    """An object that answers queries in another way than passages."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        needed("langchain_core", "pip install langchain-core")
        from langchain_core.embeddings import Embeddings

        class Words(Embeddings):
            model = "words"

            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                rows: list[list[float]] = wire.vectors(texts).tolist()
                return rows

            def embed_query(self, text: str) -> list[float]:
                return self.embed_documents([f"query {text}"])[0]

        return as_embedder(Words(), EmbedderOptions(over_limit=OverLimit.REFUSE))


@pytest.fixture(scope="module")
def awaited() -> Embedder:
    """An object that can only be awaited, and whose lock belongs to the first event loop that it
    meets.
    """
    needed("langchain_core", "pip install langchain-core")
    from langchain_core.embeddings import Embeddings

    class Coroutines(Embeddings):
        def __init__(self) -> None:
            self.lock = asyncio.Lock()

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise NotImplementedError

        def embed_query(self, text: str) -> list[float]:
            raise NotImplementedError

        async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
            async with self.lock:
                await asyncio.sleep(0)
                rows: list[list[float]] = wire.vectors(texts).tolist()
                return rows

        async def aembed_query(self, text: str) -> list[float]:
            return (await self.aembed_documents([text]))[0]

    return as_embedder(Coroutines(), EmbedderOptions(max_tokens=100))


class TestLangChainOfCoroutines(ModelContract):
    hears_queries = False

    @pytest.fixture
    def embedder(self, awaited: Embedder) -> Embedder:
        return awaited


class Words:
    """As little as an embedder of one's own can be."""

    name = "own:words"
    dimension = wire.DIMENSION
    max_tokens = 200

    def embed_passages(self, texts: Sequence[str]) -> Any:
        return 3 * wire.vectors(texts)

    def embed_query(self, text: str) -> Vectors:
        return wire.vectors([text])[0]


class TestOwn(ModelContract):
    hears_queries = False

    @pytest.fixture
    def embedder(self) -> Embedder:
        return as_embedder(Words())


class TestOpenAI(ModelContract):
    @pytest.fixture
    def embedder(self, server: wire.WireServer) -> Embedder:
        return open_embedder("openai:words", EmbedderOptions(url=server.url, batch=7))


class TestOpenAIWithPrefixes(ModelContract):
    """A server of one's own with a model that wants queries to be marked."""

    @pytest.fixture
    def embedder(self, server: wire.WireServer) -> Embedder:
        return open_embedder(
            "openai:nomic-embed-text", EmbedderOptions(url=server.url, over_limit=OverLimit.REFUSE)
        )


class TestCohere(ModelContract):
    @pytest.fixture
    def embedder(self, server: wire.WireServer) -> Embedder:
        return open_embedder(
            "cohere:words", EmbedderOptions(url=f"{server.address}/v2/embed", key="k")
        )


class TestVoyage(ModelContract):
    @pytest.fixture
    def embedder(self, server: wire.WireServer) -> Embedder:
        return open_embedder(
            "voyage:words",
            EmbedderOptions(url=f"{server.address}/v1/embeddings", key="k", max_tokens=300),
        )


VARIED = (
    *TEXTS,
    "日本語の文章",
    "cafe\u0301 nai\u0308ve 😀",
    "for (int i = 0; i < n; ++i) { sum += values[i]; }",
    "the tide comes in and the boats go out " * 25,
)


def test_one_model_has_the_same_vectors_with_torch_and_without(folder: Path) -> None:
    """Weights of 8 bits against the original ones; wrong pooling, prefixes or special tokens
    would show.
    """
    whole = open_embedder(f"sentence-transformers:{torch_folder()}").embed_passages(VARIED)
    small = open_embedder(f"onnx:{folder}").embed_passages(VARIED)
    assert np.sum(whole * small, axis=1).min() > 0.99


def test_one_folder_has_the_same_vectors_in_fastembed_and_onnxruntime(folder: Path) -> None:
    needed("fastembed", "pip install 'unspool[fastembed]'")
    one, other = (
        open_embedder(f"{provider}:{folder}").embed_passages(VARIED)
        for provider in ("onnx", "fastembed")
    )
    assert np.sum(one * other, axis=1).min() > 0.99
