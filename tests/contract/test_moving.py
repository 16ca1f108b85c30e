"""Moving vectors to another store, and catalogs to another database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unspool
import vector_server
from hashing import Asked
from servers import PostgresServer
from support import Place, address_of, assert_no_orphans, doc, name, open_corpus, settings_for
from unspool.catalog import Catalog, copying
from unspool.errors import AddressError, ConflictError, UnreachableError
from vector_server import VectorServer

EMBEDDER = "hashing:a"
COUNT = 60

pytestmark = pytest.mark.usefixtures("hashing")


@pytest.fixture
def server() -> Iterator[VectorServer]:
    vector_server.register()
    with VectorServer() as started:
        yield started
    vector_server.unregister()


@pytest.fixture
def place(database: Place) -> Place:
    """Return a catalog with every kind of content."""
    with open_corpus(database, embedder=EMBEDDER) as corpus:
        corpus.put(
            *(
                doc(f"{number}.md", f"{name(number)} walrus", metadata={"n": number, "tag": "x"})
                for number in range(COUNT)
            )
        )
        corpus.put(doc("a.md", "penguin", "other"))
        corpus.remember(
            unspool.Conversation(
                project="chats",
                id="c1",
                messages=[unspool.Message(author="Ann", text="the walrus swims")],
            )
        )
        corpus.history("endpoint").append("body one")
        corpus.history("endpoint").append("body two")
    return database


def move(place: Place, to: str, **arguments: object) -> unspool.MoveReport:
    return unspool.move(to=to, settings=settings_for(place, embedder=EMBEDDER, **arguments))


def list_top(place: Place, **arguments: object) -> list[Any]:
    with open_corpus(place, embedder=EMBEDDER, **arguments) as corpus:
        queries = [name(number) for number in range(0, COUNT, 7)]
        pages = [corpus.search(query, projects="notes") for query in queries]
        return [[(hit.chunk.path, round(hit.score, 4)) for hit in page.hits] for page in pages]


def list_rows(place: Place) -> dict[str, list[Any]]:
    """Return every copied row, by table."""
    catalog = Catalog.open(address_of(place), create=False)
    try:
        with catalog.read() as connection:
            return {
                table.name: sorted(
                    repr(row._asdict() | {"floor": 0})
                    for page in copying._read_pages(connection, table)
                    for row in page
                )
                for table in copying._TABLES
                if table not in copying._FEED
            }
    finally:
        catalog.close()


# Vectors


def test_vectors_move_to_a_store_and_back_without_embedding(
    place: Place, server: VectorServer, hashing: Asked
) -> None:
    expected = list_top(place)
    hashing.reset()
    report = move(place, server.address)
    assert (report.setting, report.projects, report.agreement) == ("UNSPOOL_VECTORS", 4, 1.0)
    assert list_top(place, vectors=server.address) == expected
    with open_corpus(place, embedder=EMBEDDER, vectors=server.address) as corpus:
        corpus.forget(project="notes", path="0.md")
    back = move(place, "catalog", vectors=server.address)
    assert (back.chunks, back.agreement) == (report.chunks - 1, 1.0)
    assert list_top(place) == list_top(place, vectors=server.address)
    assert hashing.passages == {}
    assert_no_orphans(place, embedder=EMBEDDER)


def test_a_move_to_a_store_that_is_away_changes_nothing(place: Place, server: VectorServer) -> None:
    expected = list_top(place)
    server.kill()
    with pytest.raises(UnreachableError):
        move(place, server.address)
    assert list_top(place) == expected
    server.start()
    assert move(place, server.address).agreement == 1.0


@pytest.mark.parametrize("to", ["nosuch://x", "mysql://h/x", "", "notes.db"])
def test_a_wrong_target_is_named(place: Place, to: str) -> None:
    with pytest.raises(AddressError, match="neither a store nor a database"):
        move(place, to)


# Catalogs


@pytest.fixture(params=["sqlite", "postgresql"])
def target(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: PostgresServer
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/target.db"
        return
    address = postgres_server.create_database()
    yield address
    postgres_server.drop_database(address)


def find_place(address: str) -> Place:
    """Return an address as support.py wants it: a path for SQLite."""
    return Path(address.removeprefix("sqlite:///")) if address.startswith("sqlite") else address


def test_a_catalog_moves_with_everything(place: Place, target: str, hashing: Asked) -> None:
    expected, rows = list_top(place), list_rows(place)
    hashing.reset()
    report = move(place, target)
    assert (report.setting, report.projects, report.agreement) == ("UNSPOOL_DATABASE", 4, 1.0)
    assert report.copied > 300
    assert hashing.passages == {}
    assert list_rows(target) == rows == list_rows(place)
    assert list_top(target) == expected
    with open_corpus(target, embedder=EMBEDDER) as corpus:
        assert [one.body for one in corpus.history("endpoint").read()] == [
            "body two",
            "body one",
        ]
        assert corpus.search("swims", projects="chats").hits[0].message.speaker == "Ann"
        corpus.put(doc("new.md", "a new walrus"))  # ids continue behind the copied ones
        corpus.history("endpoint").append("body three")
    assert_no_orphans(find_place(target), embedder=EMBEDDER)


def test_a_second_move_brings_the_copy_up_to_date(place: Place, target: str) -> None:
    move(place, target)
    with open_corpus(place, embedder=EMBEDDER) as corpus:
        corpus.forget(project="notes", path="1.md")
        corpus.forget(project="other")
        corpus.put(doc("2.md", "a changed walrus"), doc("new.md", "a new walrus"))
    report = move(place, target)
    assert 0 < report.copied < 40
    assert list_rows(target) == list_rows(place)
    assert list_top(target) == list_top(place)
    assert_no_orphans(find_place(target), embedder=EMBEDDER)
    assert move(place, target).copied == 0


def test_an_interrupted_copy_is_resumed(
    place: Place, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_PAGE", 7)

    def interrupt(progress: unspool.Progress) -> None:
        if progress.task == "copying" and progress.done > progress.total // 2:
            raise KeyboardInterrupt

    settings = settings_for(place, embedder=EMBEDDER)
    with pytest.raises(KeyboardInterrupt):
        unspool.move(to=target, settings=settings, on_progress=interrupt)
    total = sum(map(len, list_rows(place).values()))
    assert 0 < move(place, target).copied < total
    assert list_rows(target) == list_rows(place)


def test_a_database_with_another_catalog_is_rejected(place: Place, target: str) -> None:
    with open_corpus(target, embedder=EMBEDDER) as corpus:
        corpus.put(doc("own.md", "a seal"))
    with pytest.raises(ConflictError, match="contains another catalog"):
        move(place, target)
    with open_corpus(target, embedder=EMBEDDER) as corpus:
        assert corpus.count(project="notes") == 1


def test_a_catalog_is_not_moved_onto_itself(place: Place) -> None:
    with pytest.raises(ConflictError, match="the same catalog"):
        move(place, address_of(place))
