"""Flat vectors: files beside an SQLite catalog that a search scans from end to end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unspool.catalog import Catalog
from unspool.catalog.feed import ChunkPoint, Position
from unspool.catalog.filters import Selection
from unspool.domain.queries import Stability
from unspool.index.embedded import flat
from unspool.index.embedded.flat import VectorRows, VectorState, VectorView
from unspool.index.embedded.folder import FolderIndex, Part
from unspool.index.ports import Candidates, Capabilities, Ids, Points, Vectors, Within

MAX_IDS = 2**31  # the scan reads any list


class FlatIndex(FolderIndex[VectorView, ChunkPoint]):
    """Vectors in the folder of an SQLite catalog.

    Each vector space has its own files, so that one is filled while another is searched.
    """

    capabilities = Capabilities(max_k=100_000, max_ids=MAX_IDS, stability=Stability.DETERMINISTIC)

    def __init__(self, catalog: Catalog, *, space_id: int, space: str, dimension: int) -> None:
        def create_empty(source: str) -> VectorView:
            state = VectorState(source=f"{source} {dimension} {space}", dimension=dimension)
            return flat.open_view(self.folder, state)

        super().__init__(catalog, f"vectors-{space_id}", flat, create_empty)
        self._dimension = dimension

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        within: Within | None = None,
        min_similarity: float | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest by cosine."""
        with self.open_view(project) as view:
            chosen = None
            if within is not None:
                selection = Selection(documents=within.documents, chunks=within.chunks)
                chosen = selection.accepts(view.chunk_ids, view.document_ids)
            return flat.search(view, vector, k, chosen)

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the cosine of each id; NaN for an absent one."""
        with self.open_view(project) as view:
            return flat.score(view, vector, ids)

    def append(
        self,
        part: Part[VectorView],
        rows: Sequence[ChunkPoint],
        removed: Sequence[int],
        position: Position,
    ) -> VectorState:
        """Write a commit and return its state."""
        points = Points.from_rows(rows, self._dimension)
        return flat.append(
            part.folder,
            part.view,
            VectorRows(ids=points.ids, documents=points.documents, vectors=points.vectors),
            removed=np.array(removed, dtype=np.int64),
            position=position,
        )
