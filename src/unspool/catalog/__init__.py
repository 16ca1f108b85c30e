"""The catalog: documents, chunks, vectors, conversations, keys and jobs in SQL.

`Catalog` is the open database. The modules beside it contain the statements.
"""

from __future__ import annotations

from unspool.catalog.database import Catalog

__all__ = ["Catalog"]
