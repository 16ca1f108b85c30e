"""Vector indexes: a table of adapters by the scheme of an address.

Other packages add theirs under the entry-point group `unspool.vectors`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from unspool.errors import AddressError, MissingDependencyError
from unspool.index.options import VectorOptions
from unspool.index.ports import Capabilities, VectorIndex

GROUP = "unspool.vectors"


@dataclass(frozen=True, slots=True)
class Adapter:
    """Class of a vector index as `module:Class`, and the package that it needs."""

    target: str
    driver: str = ""  # module that is imported
    extra: str = ""  # extra of unspool that installs it
    address: str = ""  # pattern of its addresses
    package: str = ""  # package of another author that contains it

    def load(self) -> Any:
        """Import the class. Only a missing driver is the user's concern."""
        module, _, name = self.target.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if not self.driver or error.name is None or error.name.split(".")[0] != self.driver:
                raise
            raise MissingDependencyError(
                f"this vector index needs {self.driver}; run: pip install 'unspool[{self.extra}]'"
            ) from error

    @property
    def capabilities(self) -> Capabilities:
        """Facts about the index."""
        capabilities: Capabilities = self.load().capabilities
        return capabilities


ADAPTERS: dict[str, Adapter] = {
    "memory": Adapter("unspool.index.vectors.memory:MemoryIndex", address="memory://NAME"),
    "chroma": Adapter(
        "unspool.index.vectors.chroma:ChromaIndex",
        driver="chromadb",
        extra="chroma",
        address="chroma+http://HOST:8000/DATABASE",
    ),
    "pinecone": Adapter(
        "unspool.index.vectors.pinecone:PineconeIndex",
        driver="pinecone",
        extra="pinecone",
        address="pinecone:///INDEX",
    ),
    "qdrant": Adapter(
        "unspool.index.vectors.qdrant:QdrantIndex",
        driver="qdrant_client",
        extra="qdrant",
        address="qdrant+http://HOST:6333",
    ),
    "weaviate": Adapter(
        "unspool.index.vectors.weaviate:WeaviateIndex",
        driver="weaviate",
        extra="weaviate",
        address="weaviate+http://HOST:PORT/PREFIX",
    ),
}


def list_adapters() -> dict[str, Adapter]:
    """Return the adapters of this and of other packages, by scheme. Ours take precedence."""
    found = {
        point.name: Adapter(point.value, package=point.dist.name if point.dist else "")
        for point in metadata.entry_points(group=GROUP)
    }
    return {**found, **ADAPTERS}


def get_adapter_name(address: str) -> str:
    """Return the scheme of an address without its transport, such as `+https`."""
    return address.partition("://")[0].partition("+")[0]


def get_adapter(address: str) -> Adapter:
    """Return the adapter of an address; reject an unknown scheme."""
    scheme = get_adapter_name(address)
    known = list_adapters()
    if "://" not in address or scheme not in known:
        raise AddressError(
            f"UNSPOOL_VECTORS begins with {scheme[:40]!r}; leave it empty to keep vectors beside "
            f"the catalog, or use one of: {', '.join(f'{name}://' for name in known)}"
        )
    return known[scheme]


def open_vectors(options: VectorOptions, *, collection: str, dimension: int) -> VectorIndex:
    """Open the vector index of an address. A collection contains one vector space of a catalog."""
    adapter = get_adapter(options.address)
    index: VectorIndex = adapter.load().open(
        options.address, collection=collection, dimension=dimension, options=options
    )
    return index
