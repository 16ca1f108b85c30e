"""Every vector index fulfils the contract that ships with unspool."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from store_servers import SERVERS, get_server
from support import required
from unspool.index.vectors import ADAPTERS
from unspool.index.vectors.memory import MemoryIndex
from unspool.testing.vector_contract import VectorContract

PAGE = Path(__file__).parents[2] / "docs" / "write-a-store.md"


class TestMemory(VectorContract):
    adapter = MemoryIndex

    @pytest.fixture
    def address(self) -> str:
        return "memory://contract"


def make_suite(name: str) -> type:
    """Return the contract for an adapter whose server the tests start."""

    class Suite(VectorContract):
        @pytest.fixture
        def address(self) -> str:
            return required(lambda: get_server(name)).address

        @pytest.fixture
        def key(self) -> str:
            return get_server(name).key

    Suite.adapter = ADAPTERS[name].load()
    return Suite


class TestChromaFolder(VectorContract):
    adapter = ADAPTERS["chroma"].load()

    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return f"chroma://{tmp_path}/chroma"


globals().update({f"Test{name.title()}": make_suite(name) for name in SERVERS})


def test_every_adapter_is_tested() -> None:
    assert ADAPTERS.keys() == SERVERS.keys() | {"memory"}


def load_example() -> type:
    """Return the suite on the page `docs/write-a-store.md`, for the adapter on that page."""
    text = PAGE.read_text(encoding="utf-8")
    module = ModuleType("tiny_store")
    sys.modules["tiny_store"] = module  # a corpus imports the adapter by name
    for marker, names in (("run", vars(module)), ("test", globals())):
        body = re.findall(rf"<!-- python: {marker} -->\n```python\n(.*?)^```$", text, re.M | re.S)
        exec(compile(body[0], str(PAGE), "exec"), names)
    suite: type = globals()["TestTiny"]
    return suite


TestTiny = load_example()
