"""List of the vector stores: capabilities, driver, and what is missing to use each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import metadata

from unspool.domain.reports import StoreStatus
from unspool.errors import UnspoolError
from unspool.index import vectors
from unspool.index.options import VectorOptions
from unspool.index.ports import Capabilities, Versioned
from unspool.index.vectors import Adapter

# of the catalog's own database, by engine
_BUILT_IN = {
    "sqlite": (
        "embedded",
        Adapter("unspool.index.vectors.flat:FlatIndex", address="sqlite:///FILE"),
    ),
    "postgresql": (
        "postgresql",
        Adapter(
            "unspool.index.vectors.pgvector:PgvectorIndex",
            driver="psycopg",
            extra="postgres",
            address="postgresql://USER@HOST/DATABASE",
        ),
    ),
}


def list_stores(options: VectorOptions, database: str) -> list[StoreStatus]:
    """Return all stores for the settings of vectors and the address of a catalog.

    Only the server in use is called. A store without its driver or server is listed, too.
    """
    own = "sqlite" if database.startswith("sqlite") else "postgresql"
    scheme = vectors.get_adapter_name(options.address)
    stores = []
    for engine, (name, adapter) in _BUILT_IN.items():
        settings = [] if engine == own else [f"UNSPOOL_DATABASE={adapter.address}"]
        if scheme:
            settings.append("UNSPOOL_VECTORS=")
        stores.append(_describe(name, adapter, settings))
    for name, adapter in vectors.list_adapters().items():
        settings = [] if name == scheme else [f"UNSPOOL_VECTORS={adapter.address or f'{name}://'}"]
        status = _describe(name, adapter, settings)
        stores.append(_add_health(status, options) if status.in_use else status)
    return stores


def _add_health(status: StoreStatus, options: VectorOptions) -> StoreStatus:
    """Ask the server for its version. The code of an error tells no address to strangers."""
    try:
        index = vectors.open_vectors(options, collection="unspool_health", dimension=1)
        try:
            server = index.read_version() if isinstance(index, Versioned) else ""
        finally:
            index.close()
    except UnspoolError as error:
        return replace(status, health=error.code)
    return replace(status, server=server, health="ok")


def _describe(name: str, adapter: Adapter, settings: list[str]) -> StoreStatus:
    """Return the status of a store. It is in use if no setting is missing."""
    capabilities: Mapping[str, bool | int | str | list[str]] = {}
    driver, missing = _find_version(adapter), list(settings)
    if adapter.driver and not driver:
        missing.insert(0, f"pip install 'unspool[{adapter.extra}]'")
    else:
        try:
            capabilities = _encode(adapter.capabilities)
        except (ImportError, AttributeError) as error:  # in the package of another author
            missing.insert(0, f"{adapter.target} cannot be imported: {error}")
    return StoreStatus(
        name=name,
        in_use=not settings,
        capabilities=capabilities,
        driver=driver,
        missing=tuple(missing),
    )


def _encode(facts: Capabilities) -> dict[str, bool | int | str | list[str]]:
    """Return capabilities as JSON values. Sets become sorted lists."""
    values = {one.name: getattr(facts, one.name) for one in fields(facts)}
    return {
        name: sorted(map(str, value)) if isinstance(value, frozenset) else value
        for name, value in values.items()
    }


def _find_version(adapter: Adapter) -> str:
    """Return the package of the driver with its version; empty if it needs none or lacks it."""
    packages = [adapter.package] if adapter.package else []
    if adapter.driver:
        packages = metadata.packages_distributions().get(adapter.driver, [])[:1]
    return "".join(f"{package} {metadata.version(package)}" for package in packages)
