"""What tests of whole corpora need: places for them on any engine, opening one without the
user's settings, looking at what is stored.
"""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import pytest
from filelock import FileLock

import unspool
from servers import NoServer, PostgresServer, RedisServer
from unspool.catalog import Catalog
from unspool.index.embedded import flat, segments

ENGINES = ("sqlite", "postgresql")
# services whose absence is a failure, not a skip; read at once, since tests change the environment
REQUIRED = frozenset(os.environ.get("UNSPOOL_TEST_REQUIRE", "").split(","))
NOWHERE = Path("/nowhere")  # a folder without settings
Server = TypeVar("Server", PostgresServer, RedisServer)
Place = Path | str  # of a catalog: a file for SQLite, an address for a server


class Places:
    """Where catalogs of one engine are: files of a folder, or databases of a server.

    What was made goes at the end.
    """

    def __init__(self, folder: Path, server: PostgresServer | None) -> None:
        self.folder = folder
        self.server = server
        self.engine = "sqlite" if server is None else "postgresql"
        self._made = 0
        self._databases: list[str] = []

    def new(self) -> Place:
        """A place with a catalog that holds nothing and gets an identity of its own when it is
        first opened: making one anew takes far longer.
        """
        if self.server is None:
            target = self._file()
            target.touch(mode=0o600)
            target.write_bytes(_blank_file())
            return target
        return self._database(_blank_database(self.server))

    def bare(self) -> Place:
        """A place where nothing is: whoever opens it first makes the catalog."""
        return self._file() if self.server is None else self._database()

    def copy(self, place: Place) -> Place:
        """Another place with the same content. Nobody may have the first one open."""
        if isinstance(place, Path):
            target = self._file()
            shutil.copy(place, target)
            shutil.copytree(
                place.with_name(place.name + ".derived"), target.with_name(target.name + ".derived")
            )
            return target
        return self._database(place)

    def drop(self, place: Place) -> None:
        """Remove what is at a place before the end."""
        if isinstance(place, Path):
            for found in place.parent.glob(place.name + "*"):
                shutil.rmtree(found) if found.is_dir() else found.unlink()
            return
        assert self.server is not None
        self._databases.remove(place)
        self.server.drop_database(place)

    def _file(self) -> Path:
        self._made += 1
        return self.folder / ("catalog.db" if self._made == 1 else f"catalog{self._made}.db")

    def _database(self, template: str = "template0") -> str:
        assert self.server is not None
        self._databases.append(self.server.create_database(template=template))
        return self._databases[-1]

    def __enter__(self) -> Places:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for place in list(self._databases):
            self.drop(place)


@functools.cache
def _blank_file() -> bytes:
    """A new catalog without an identity, as SQLite keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "blank.db"
        _make_blank(place)
        return place.read_bytes()


@functools.cache
def _blank_database(server: PostgresServer) -> str:
    """The same as a database of a server, made by the first process of the run that asks."""
    made = server.folder / "blank"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            place = server.create_database()
            _make_blank(place)
            made.write_text(place)
    return made.read_text()


def _make_blank(place: Place) -> None:
    Catalog.open(address_of(place)).close()
    with beside(place) as catalog:
        catalog.run("DELETE FROM meta")


def report_missing(service: str, reason: str) -> NoReturn:
    """Skip the test; fail it if `UNSPOOL_TEST_REQUIRE` names the service."""
    if service in REQUIRED:
        pytest.fail(f"{service} is required here: {reason}", pytrace=False)
    pytest.skip(reason)


def required(start: Callable[[], Server]) -> Server:
    """Return a server. If it cannot be started, the test is skipped or fails."""
    try:
        return start()
    except NoServer as error:
        report_missing(error.service, str(error))


def address_of(place: Place) -> str:
    return f"sqlite:///{place}" if isinstance(place, Path) else place


def settings_for(place: Place, **arguments: object) -> unspool.Settings:
    folder = place.parent if isinstance(place, Path) else NOWHERE
    return unspool.Settings.load(
        arguments={"database": address_of(place), **arguments}, environment={}, folder=folder
    )


def open_corpus(place: Place, **arguments: object) -> unspool.Corpus:
    return unspool.open(settings=settings_for(place, **arguments))


class Beside:
    """A connection of one's own to what lies at a place, past unspool; the same statements on
    every engine.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(statement).fetchall()]

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement)


@contextmanager
def beside(place: Place, *, windows: bool = False) -> Iterator[Beside]:
    """Read and write the catalog's tables, or those of its windows, which SQLite has in a file
    of their own. Commits at the end.
    """
    if isinstance(place, Path):
        with closing(
            sqlite3.connect(place.with_name(place.name + ".windows") if windows else place)
        ) as connection:
            yield Beside(connection)
            connection.commit()
        return
    import psycopg

    with psycopg.connect(place, options="-c search_path=unspool,public") as server:
        yield Beside(server)


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
    """What a catalog and what is derived from it hold, read without unspool's own search."""

    # id -> project, path, position, text
    chunks: dict[int, tuple[str, str, int, str]] = field(default_factory=dict)
    words: dict[str, list[int]] = field(default_factory=dict)  # project -> sorted ids, with repeats
    vectors: dict[str, list[int]] = field(default_factory=dict)  # of the embedder in use
    # project, path -> status, sha256, chunk count
    documents: dict[tuple[str, str], tuple[str, str, int]] = field(default_factory=dict)
    embeddings: int = 0

    def ids(self, project: str) -> list[int]:
        return sorted(id_ for id_, row in self.chunks.items() if row[0] == project)

    def texts(self) -> list[tuple[str, str, int, str]]:
        return sorted(self.chunks.values())


def contents(place: Place) -> Contents:
    """Everything that is stored; absorb first, with `corpus.refresh()`, where what is derived
    should agree with the catalog.
    """
    with beside(place) as catalog:
        names = dict(catalog.rows("SELECT id, name FROM projects"))
        rows = catalog.rows(
            "SELECT c.id, c.project_id, d.path, c.position, c.text FROM chunks c JOIN documents "
            "d ON d.id = c.document_id"
        )
        states = catalog.rows("SELECT project_id, path, status, sha256, chunk_count FROM documents")
        embeddings = catalog.rows("SELECT count(*) FROM embeddings")[0][0]
        active = [id_ for (id_,) in catalog.rows("SELECT id FROM spaces WHERE active")]
        if isinstance(place, Path):
            derived = place.with_name(place.name + ".derived")
            words = {name: _word_ids(derived / f"p{id_}" / "words") for id_, name in names.items()}
            vectors = {
                name: _vector_ids(derived / f"p{id_}" / f"vectors-{space}")
                for id_, name in names.items()
                for space in active
            }
        else:
            words, vectors = (
                _held(catalog, names, ["words"]),
                _held(catalog, names, [f"vectors_{space}" for space in active]),
            )
    return Contents(
        chunks={
            id_: (names[project], path, position, text)
            for id_, project, path, position, text in rows
        },
        words=words,
        vectors=vectors,
        documents={
            (names[project], path): (status, sha, count)
            for project, path, status, sha, count in states
        },
        embeddings=embeddings,
    )


def _held(catalog: Beside, names: dict[int, str], tables: list[str]) -> dict[str, list[int]]:
    """The ids of chunks in tables of a server.

    A project that is gone and left something behind is called by its number.
    """
    found: dict[str, list[int]] = {name: [] for name in names.values()}
    for table in tables:
        for project, id_ in catalog.rows(f"SELECT project_id, chunk_id FROM {table}"):
            found.setdefault(names.get(project, f"project number {project}"), []).append(id_)
    return {name: sorted(ids) for name, ids in found.items()}


def _word_ids(folder: Path) -> list[int]:
    state = segments.read_state(folder)
    if state is None:
        return []
    parts = segments.open_view(folder, state).segments
    ids = [
        part.segment.ids.all() if part.live is None else part.segment.ids.all()[part.live]
        for part in parts
    ]
    return sorted(id_ for some in ids for id_ in some.tolist())


def _vector_ids(folder: Path) -> list[int]:
    state = flat.read_state(folder)
    if state is None:
        return []
    view = flat.open_view(folder, state)
    return sorted((view.chunk_ids if view.alive is None else view.chunk_ids[view.alive]).tolist())


def assert_no_orphans(place: Place, **arguments: object) -> Contents:
    """The catalog, the words and the vectors hold the same chunks, each once, and what is counted
    agrees.

    What SQLite derives may be behind and is made to catch up first; on a server nothing may ever
    be, so nothing is mended before looking.
    """
    if isinstance(place, Path):
        with open_corpus(place, **arguments) as corpus:
            corpus.refresh()
    found = contents(place)
    for half in (found.words, found.vectors):
        for project in half:
            assert half[project] == found.ids(project)
    counted: dict[tuple[str, str], int] = dict.fromkeys(found.documents, 0)
    for project, path, _, _ in found.chunks.values():
        counted[(project, path)] += 1
    assert counted == {name: row[2] for name, row in found.documents.items()}
    if not isinstance(place, Path):
        _assert_counted(place)
    return found


def _assert_counted(address: str) -> None:
    """How many chunks hold each term, and how many there are, is what the words themselves say."""
    with beside(address) as catalog:
        chunks: Counter[int] = Counter()
        holding: Counter[tuple[int, int]] = Counter()
        for project, keys in catalog.rows("SELECT project_id, keys FROM words"):
            assert len(keys) == len(set(keys))
            chunks[project] += 1
            holding.update((project, key) for key in keys)
        assert {
            (project, key): count
            for project, key, count in catalog.rows(
                "SELECT project_id, key, sum(chunks) FROM word_counts GROUP BY 1, 2"
            )
            if count
        } == holding
        assert {
            project: count
            for project, count in catalog.rows("SELECT id, chunk_count FROM projects")
            if count
        } == chunks
