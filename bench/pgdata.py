"""A PostgreSQL server to measure, and what it is filled with: this Python's own source files,
since made-up words are all alike to a vector index.
"""

from __future__ import annotations

import random
import secrets
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psycopg
from pgvector.psycopg import register_vector

import trees
from common import HERE, tell
from unspool.catalog import postgres, postgres_server
from unspool.catalog.options import DatabaseOptions
from unspool.corpus import Corpus
from unspool.settings import Settings

sys.path.append(str(HERE.parent / "tests"))
from servers import PostgresServer

BUFFERS: Mapping[str, str] = MappingProxyType({"shared_buffers": "1GB"})
_BYTES_PER_CHUNK = 800  # to begin with; measured as soon as something is indexed
_NO_INDEX = 10_000_000  # while it is filled, so that the index is built once, at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the measured catalog is, and room for others."""

    address: str
    server: PostgresServer | None  # None where somebody else's was given

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The address of an empty place for a catalog, gone afterwards: a database of the own
        server, a schema of one that was given.
        """
        if self.server is not None:
            address = self.server.create_database()
            try:
                yield address
            finally:
                self.server.drop_database(address)
            return
        address = postgres_server.replace_schema(self.address, f"bench_{secrets.token_hex(4)}")
        try:
            yield address
        finally:
            postgres.drop_catalog(address, options=DatabaseOptions())


def add_options(options: ArgumentParser) -> None:
    """What the scripts that need a server have in common."""
    options.add_argument(
        "--server",
        metavar="ADDRESS",
        help="measure on this PostgreSQL database; what was filled in stays for the next time",
    )


@contextmanager
def place(given: str | None, settings: Mapping[str, str] = BUFFERS) -> Iterator[Place]:
    """The server that was given, or one of our own on disk that waits for every commit to get
    there.
    """
    if given is not None:
        yield Place(address=given, server=None)
        return
    tell("starting a server")
    with PostgresServer.start(durable=True, settings=settings) as server:
        yield Place(address=server.create_database("bench"), server=server)


@contextmanager
def by_hand(
    address: str, *, autocommit: bool = False
) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A plain connection that sees the catalog's tables and knows pgvector's types."""
    target = postgres_server.parse_address(address)
    plain = target.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(
            "SELECT set_config('search_path', %s || ', public', false)", (target.schema,)
        )
        if connection.execute("SELECT to_regtype('vector') IS NOT NULL").fetchone() == (True,):
            register_vector(connection)
        connection.autocommit = autocommit
        yield connection


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledProject:
    """A project of real source files. `seconds` is 0 where it was there already."""

    name: str
    id: int
    wanted: int
    chunks: int
    seconds: float
    build_seconds: float

    @property
    def note(self) -> str:
        """How many there really are, where it is less than what was asked for."""
        return (
            ""
            if self.chunks >= 0.98 * self.wanted
            else f"{self.chunks} chunks, not {self.wanted}: this Python has no more files"
        )


def fill(address: str, folder: Path, *, chunks: int, seed: int) -> FilledProject:
    """A project of about so many chunks with its index, unless it is there already."""
    name = f"bench-{chunks}"
    seconds = 0.0
    with Corpus(Settings.of(database=address, exact_below=_NO_INDEX)) as corpus:
        there = corpus.count(project=name) if name in corpus.projects() else 0
        if there < 0.98 * chunks:
            tell(f"filling {name}")
            begun = time.perf_counter()
            there = _index(corpus, folder / name, name, chunks, seed)
            seconds = time.perf_counter() - begun
    with Corpus(Settings.of(database=address)) as corpus:
        id_ = corpus._access.resolve_one(name, "measure").id
        begun = time.perf_counter()
        corpus._resources.session.indexes.finish_run(id_)
        build_seconds = time.perf_counter() - begun
    if seconds:
        with by_hand(address, autocommit=True) as connection:
            # as the server does by itself, some time in the next minutes
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
    return FilledProject(
        name=name, id=id_, wanted=chunks, chunks=there, seconds=seconds, build_seconds=build_seconds
    )


def _index(corpus: Corpus, tree: Path, name: str, chunks: int, seed: int) -> int:
    files = sorted(trees.python_files())
    random.Random(seed).shuffle(files)
    left = iter(files)
    size = there = 0
    per_chunk = float(_BYTES_PER_CHUNK)
    for share in (0.3, 1.005, 1.005, 1.005):
        wanted = int((share * chunks - there) * per_chunk)
        if there >= 0.99 * chunks or not trees.copy_files(left, tree, total_bytes=wanted):
            break
        size += wanted
        corpus.index(tree, project=name)
        there = corpus.count(project=name)
        per_chunk = size / max(there, 1)
        tell(f"  {there} chunks")
    return there


def texts(count: int, seed: int, *, length: int = 2_000) -> list[str]:
    """The beginnings of so many source files."""
    files = [file for _, file in sorted(trees.python_files()) if file.stat().st_size >= length // 2]
    chosen = random.Random(seed).sample(files, min(count, len(files)))
    return [
        file.read_text(encoding="utf-8", errors="replace").replace("\x00", "")[:length]
        for file in chosen
    ]


def recall(found: Sequence[float], exact: Sequence[float]) -> float:
    """The share of the best scores that was found.

    Equal texts have equal vectors: which of them is found does not matter.
    """
    if not exact:
        return 1.0
    least = exact[-1] - 1e-5
    return min(len(exact), sum(1 for score in found if score >= least)) / len(exact)
