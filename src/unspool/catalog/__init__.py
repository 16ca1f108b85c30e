"""The catalog: the truth, in SQL. `Catalog` holds the database; the modules beside it hold the
statements.
"""

from __future__ import annotations

from unspool.catalog.database import Catalog

__all__ = ["Catalog"]
