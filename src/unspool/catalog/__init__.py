"""The catalog: the truth, in SQL. `Catalog` opens the database; the modules beside it contain the
statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspool.catalog.database import Catalog

__all__ = ["Catalog"]


def __getattr__(name: str) -> Any:
    """Import `Catalog` on first use: settings import the options beside it without SQLAlchemy."""
    if name != "Catalog":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from unspool.catalog.database import Catalog

    return Catalog
