"""What tests of whole corpora need: opening one without the user's settings, and looking at what lies on disk."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import tantivy

import unspool
from unspool.embedded import flat


def settings_for(database: Path, **arguments: object) -> unspool.Settings:
    return unspool.Settings.load(arguments={"database": f"sqlite:///{database}", **arguments}, environment={}, folder=database.parent)


def open_corpus(database: Path, **arguments: object) -> unspool.Corpus:
    return unspool.open(settings=settings_for(database, **arguments))


def doc(path: str, text: str, project: str = "notes", **more: object) -> unspool.Document:
    return unspool.Document(project=project, path=path, text=text, **more)  # type: ignore[arg-type]


def name(number: int) -> str:
    """A word of letters alone that no other number has."""
    return "q" + "".join(chr(ord("a") + int(digit)) for digit in str(number)) + "z"


def paths(page: unspool.Page) -> list[str]:
    """The documents of the hits, best first, each once."""
    return list(dict.fromkeys(hit.chunk.path for hit in page.hits))


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a catalog and its derived folder hold on disk, read without unspool's own search."""

    chunks: dict[int, tuple[str, str, int, str]] = field(default_factory=dict)  # id -> project, path, position, text
    words: dict[str, list[int]] = field(default_factory=dict)  # project -> sorted ids, with repeats
    vectors: dict[str, list[int]] = field(default_factory=dict)
    documents: dict[tuple[str, str], tuple[str, str, int]] = field(default_factory=dict)  # project, path -> status, sha256, chunk count
    embeddings: int = 0

    def ids(self, project: str) -> list[int]:
        return sorted(id_ for id_, row in self.chunks.items() if row[0] == project)

    def texts(self) -> list[tuple[str, str, int, str]]:
        return sorted(self.chunks.values())


def contents(database: Path) -> Contents:
    """Everything on disk; absorb first, with `corpus.refresh()`, where the two halves should agree with the catalog."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        names = dict(connection.execute("SELECT id, name FROM projects"))
        rows = connection.execute(
            "SELECT c.id, c.project_id, d.path, c.position, c.text FROM chunks c JOIN documents d ON d.id = c.document_id"
        ).fetchall()
        states = connection.execute("SELECT project_id, path, status, sha256, chunk_count FROM documents").fetchall()
        embeddings = connection.execute("SELECT count(*) FROM embeddings").fetchone()[0]
    finally:
        connection.close()
    derived = database.with_name(database.name + ".derived")
    return Contents(
        chunks={id_: (names[project], path, position, text) for id_, project, path, position, text in rows},
        words={name: _word_ids(derived / f"p{id_}" / "words") for id_, name in names.items()},
        vectors={name: _vector_ids(derived / f"p{id_}" / "vectors") for id_, name in names.items()},
        documents={(names[project], path): (status, sha, count) for project, path, status, sha, count in states},
        embeddings=embeddings,
    )


def _word_ids(folder: Path) -> list[int]:
    if not (folder / "meta.json").exists():
        return []
    searcher = tantivy.Index.open(str(folder)).searcher()
    if not searcher.num_docs:
        return []
    hits = searcher.search(tantivy.Query.all_query(), limit=searcher.num_docs).hits
    return sorted(searcher.fast_field_values("id", [address for _, address in hits]))


def _vector_ids(folder: Path) -> list[int]:
    state = flat.read_state(folder)
    if state is None:
        return []
    view = flat.open_view(folder, state)
    return sorted((view.chunk_ids if view.alive is None else view.chunk_ids[view.alive]).tolist())


def assert_no_orphans(database: Path) -> Contents:
    """Once all is absorbed, the catalog, the word index and the vectors hold the same chunks, each once, and counts agree."""
    with unspool.open(f"sqlite:///{database}") as corpus:
        corpus.refresh()
    found = contents(database)
    for project in found.words:
        assert found.words[project] == found.ids(project)
        assert found.vectors[project] == found.ids(project)
    counted: dict[tuple[str, str], int] = dict.fromkeys(found.documents, 0)
    for project, path, _, _ in found.chunks.values():
        counted[(project, path)] += 1
    assert counted == {name: row[2] for name, row in found.documents.items()}
    return found
