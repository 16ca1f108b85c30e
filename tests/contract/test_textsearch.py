"""pg_textsearch, on a server that has it: it finds what is found without it, and is used only where
it knows every chunk.

PyPI has no server with it, so these tests run where one was built: UNSPOOL_TEST_TEXTSEARCH names
the folder of its programs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import servers
from support import doc, name, open_corpus, paths
from unspool.index.words import postgres as words

PROGRAMS = os.environ.get("UNSPOOL_TEST_TEXTSEARCH", "")
pytestmark = pytest.mark.skipif(
    not PROGRAMS,
    reason=(
        "no PostgreSQL with pg_textsearch; build the extension and name the folder of the "
        "server's programs in UNSPOOL_TEST_TEXTSEARCH"
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[servers.PostgresServer]:
    with servers.PostgresServer.start(
        programs=Path(PROGRAMS), settings={"shared_preload_libraries": "pg_textsearch"}
    ) as started:
        yield started


@pytest.fixture
def address(server: servers.PostgresServer) -> Iterator[str]:
    made = server.create_database()
    yield made
    server.drop_database(made)


def make_extension(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("CREATE EXTENSION pg_textsearch")


def formats(address: str) -> list[int]:
    with psycopg.connect(address) as connection:
        return [
            row[0]
            for row in connection.execute(
                "SELECT format FROM unspool.word_formats ORDER BY project_id"
            )
        ]


def documents() -> list[object]:
    return [
        doc(
            f"{number}.md",
            f"{name(number)} and the {'walrus' if number % 3 else 'penguin'} on ice, "
            f"{name(number % 7)}",
        )
        for number in range(60)
    ]


QUERIES = ["walrus ice", "penguin", name(3), f"{name(5)} walrus", "ice", "nothing of it"]


def test_it_finds_what_is_found_without_it(address: str, server: servers.PostgresServer) -> None:
    make_extension(address)
    other = server.create_database()
    with open_corpus(address) as corpus, open_corpus(other) as plain:
        for one in (corpus, plain):
            one.put(*documents())
        assert (formats(address), formats(other)) == ([words.WITH_TOKENS], [words.PLAIN])
        for query in QUERIES:
            found, wanted = (one.search(query, alpha=0, limit=30) for one in (corpus, plain))
            assert paths(found) == paths(wanted)
            assert [hit.score for hit in found.hits] == [hit.score for hit in wanted.hits]
            where = {"document": ["3.md", "4.md", "5.md"]}
            assert paths(corpus.search(query, alpha=0, where=where)) == paths(
                plain.search(query, alpha=0, where=where)
            )
    server.drop_database(other)


def test_made_later_it_is_used_once_a_repair_has_told_it_of_every_chunk(address: str) -> None:
    with open_corpus(address) as corpus:
        corpus.put(*documents())
    make_extension(address)
    with open_corpus(address) as corpus:
        assert paths(corpus.search(name(3), alpha=0))[0] == "3.md"
        assert formats(address) == [words.PLAIN]
        corpus.refresh()
        assert formats(address) == [words.WITH_TOKENS]
        assert paths(corpus.search(name(3), alpha=0))[0] == "3.md"


def test_what_is_written_by_a_process_that_does_not_know_of_it_is_found_all_the_same(
    address: str,
) -> None:
    with open_corpus(address) as before:
        before.put(*documents())
        make_extension(address)
        with open_corpus(address) as corpus:
            corpus.refresh()
            before.put(doc("new.md", "zebra on ice"))
            assert paths(corpus.search("zebra", alpha=0))[0] == "new.md"
            assert formats(address) == [words.PLAIN]
            corpus.refresh()
            assert formats(address) == [words.WITH_TOKENS]
            assert paths(corpus.search("zebra", alpha=0))[0] == "new.md"


def test_projects_are_told_apart_and_what_is_forgotten_is_gone(address: str) -> None:
    make_extension(address)
    with open_corpus(address) as corpus:
        corpus.put(*documents())
        corpus.put(doc("other.md", "walrus in another project", project="other"))
        assert paths(corpus.search("walrus", projects=["other"], alpha=0)) == ["other.md"]
        corpus.forget(project="notes", path="3.md")
        assert "3.md" not in paths(corpus.search(name(3), projects=["notes"], alpha=0, limit=60))
        corpus.forget(project="notes")
        assert paths(corpus.search("walrus", projects=["other"], alpha=0)) == ["other.md"]
