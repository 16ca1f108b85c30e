"""Chunk ids are unique within a project. Two projects may have the same id."""

from __future__ import annotations

import shutil
from pathlib import Path

from support import Place, beside, doc, open_corpus


def test_two_projects_may_have_a_chunk_of_the_same_id(database: Place) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "the walrus eats clams", project="one"))
        corpus.put(doc("b.md", "the penguin dives for fish", project="two"))
    with beside(database) as catalog:
        (first,), (second,) = catalog.rows("SELECT id FROM chunks ORDER BY project_id")
        tables = {"chunks": "id"}
        if not isinstance(database, Path):
            tables |= {"words": "chunk_id", "vectors_1": "chunk_id"}
        catalog.run(
            *(
                f"UPDATE {table} SET {column} = {first} WHERE {column} = {second}"
                for table, column in tables.items()
            )
        )
    if isinstance(database, Path):
        shutil.rmtree(database.with_name(database.name + ".derived"), ignore_errors=True)
    with open_corpus(database) as corpus:
        for project, text in (("one", "walrus"), ("two", "penguin")):
            for alpha in (0.0, 0.5, 1.0):
                (hit,) = corpus.search(text, projects=project, alpha=alpha).hits
                assert hit.chunk.id == first
                assert text in hit.chunk.text
        assert corpus.forget(project="one") == 1
        assert "penguin" in corpus.search("penguin", projects="two").hits[0].chunk.text
