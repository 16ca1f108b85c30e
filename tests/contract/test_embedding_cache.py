"""No text is embedded twice: what the catalog, or a Redis server, knows is not asked for again,
and nothing depends on that server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import unspool
from hashing import BATCH, Asked, Words, vector
from servers import RedisServer
from support import (
    Place,
    Places,
    address_of,
    assert_no_orphans,
    contents,
    doc,
    name,
    open_corpus,
    paths,
    required,
    settings_for,
    write,
)
from unspool.catalog import Catalog, spaces
from unspool.domain.prepared import hash_text
from unspool.embedders import open_embedder
from unspool.embedders.cache import AWAY_S, RedisCache, TextRole
from unspool.embedders.options import CacheOptions
from unspool.errors import AddressError, InputError, MissingDependencyError, UnreachableError
from unspool.indexing import embedding
from unspool.indexing.reembedding import rebuild_passage

pytestmark = pytest.mark.usefixtures("hashing")

A = "hashing:a"
PORTION = BATCH * embedding.LOCAL_BATCHES  # texts that are embedded and kept together


def files(count: int) -> dict[str, str]:
    return {
        f"d{number % 3}/{number}.md": f"# Note {number}\n\nThe walrus called {name(number)} swims."
        for number in range(count)
    }


@pytest.fixture
def corpus(database: Place) -> Iterator[unspool.Corpus]:
    with open_corpus(database, embedder=A) as opened:
        yield opened


# In the catalog


def test_indexing_again_asks_for_nothing(
    corpus: unspool.Corpus, database: Place, hashing: Asked, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", files(10))
    assert corpus.index(tree).embedded == hashing.count("a") == 10
    hashing.reset()
    assert corpus.index(tree).unchanged == 10
    for number in range(10):
        os.utime(tree / f"d{number % 3}/{number}.md", (1, 1))
    assert corpus.index(tree).embedded == 0
    with open_corpus(database, embedder=A) as other:
        assert other.index(tree).embedded == 0
    assert hashing.passages == {}


def test_a_second_clone_and_a_renamed_file_ask_for_nothing(
    corpus: unspool.Corpus, hashing: Asked, tmp_path: Path
) -> None:
    tree = write(tmp_path / "one" / "tree", files(10))
    corpus.index(tree)
    hashing.reset()
    shutil.copytree(tree, tmp_path / "two" / "tree")
    second = corpus.index(tmp_path / "two" / "tree")
    assert (second.added, second.chunks, second.embedded) == (10, 10, 0)
    (tree / "d0" / "0.md").rename(tree / "moved.md")
    assert corpus.index(tree).added == 1
    assert hashing.passages == {}
    assert "moved.md" in paths(corpus.search(name(0), projects="tree", alpha=1))


def test_putting_what_is_known_asks_for_nothing(corpus: unspool.Corpus, hashing: Asked) -> None:
    corpus.put(doc("a.md", "The walrus swims."))
    hashing.reset()
    assert corpus.put(doc("a.md", "The walrus swims.")).embedded == 0
    assert (
        corpus.put(doc("b.md", "The walrus swims."), doc("c.md", "The walrus swims.")).embedded == 0
    )
    assert corpus.put(doc("a.md", "The walrus swims.", "other")).embedded == 0
    assert hashing.passages == {}


def test_what_was_put_once_costs_nothing_after_it_was_removed_by_path(
    corpus: unspool.Corpus, hashing: Asked
) -> None:
    corpus.put(doc("a.md", "The walrus swims."), doc("b.md", "The penguin walks."))
    corpus.forget(project="notes", path="a.md")
    hashing.reset()
    assert corpus.put(doc("a.md", "The walrus swims.")).embedded == 0
    assert hashing.passages == {}


def test_a_run_that_failed_has_not_paid_in_vain(
    corpus: unspool.Corpus, database: Place, hashing: Asked, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", files(2 * PORTION + 9))

    def fail(texts: Sequence[str]) -> None:
        if hashing.count("a") >= PORTION:
            raise UnreachableError("the provider is away; try again")

    hashing.before["a"] = fail
    with pytest.raises(UnreachableError):
        corpus.index(tree)
    assert contents(database).embeddings == PORTION
    hashing.before.clear()
    report = corpus.index(tree)
    assert (report.failed, report.busy, report.embedded) == (0, 0, PORTION + 9)
    assert hashing.count("a") == len(set(hashing.passages["a"])) == 2 * PORTION + 9
    assert len(assert_no_orphans(database, embedder=A).chunks) == 2 * PORTION + 9


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import hashing, unspool
hashing.register()

def end(texts):
    if hashing.ASKED.count("a") >= int(sys.argv[4]):
        os._exit(9)

hashing.ASKED.before["a"] = end
given = {"database": sys.argv[2], "embedder": "hashing:a"}
with unspool.open(settings=unspool.Settings.load(arguments=given, environment={})) as corpus:
    corpus.index(sys.argv[3])
"""


def test_a_run_that_was_killed_has_not_paid_in_vain(
    database: Place, hashing: Asked, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", files(2 * PORTION + 9))
    arguments = [
        str(Path(__file__).parent.parent),
        address_of(database),
        str(tree),
        str(2 * PORTION),
    ]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 9, done.stderr
    with open_corpus(database, embedder=A) as corpus:
        report = corpus.index(tree)
    assert (report.failed, report.busy) == (0, 0)
    # The run is killed within a portion, unless a portion ends exactly there.
    assert 9 <= hashing.count("a") == report.embedded < PORTION + 9
    assert len(assert_no_orphans(database, embedder=A).chunks) == 2 * PORTION + 9


# Texts that an embedder refuses


def refuse(*words: str) -> Words:
    def before(texts: Sequence[str]) -> None:
        if any(word in text for text in texts for word in words):
            raise InputError("that text is not for me; leave it out")

    return Words("picky", before=before)


def test_a_document_that_is_refused_fails_alone(database: Place, tmp_path: Path) -> None:
    tree = write(
        tmp_path / "tree", {**files(12), "poison.md": "The poison.", "more.md": "More poison."}
    )
    with unspool.open(settings=settings_for(database), embedder=refuse("poison")) as corpus:
        report = corpus.index(tree)
        assert (report.added, report.failed) == (12, 2)
        assert {failure.path for failure in report.failures} == {"poison.md", "more.md"}
        assert all("not for me" in failure.error for failure in report.failures)
        assert len(corpus.search("walrus", alpha=1, limit=50).hits) == 12
        (tree / "poison.md").write_text("The cure.", encoding="utf-8")
        again = corpus.index(tree)
        assert (again.added, again.failed, again.unchanged) == (1, 1, 12)


def test_an_embedder_that_refuses_everything_ends_the_run(database: Place, tmp_path: Path) -> None:
    with unspool.open(settings=settings_for(database), embedder=refuse("walrus")) as corpus:
        with pytest.raises(InputError, match="not for me"):
            corpus.index(write(tmp_path / "tree", files(5)))
        assert corpus.count() == 0
        assert [
            record for record in corpus.documents() if record.status is unspool.Status.FAILED
        ] == []


def test_a_put_that_is_refused_stores_nothing(database: Place) -> None:
    with unspool.open(settings=settings_for(database), embedder=refuse("poison")) as corpus:
        with pytest.raises(InputError):
            corpus.put(doc("a.md", "The walrus."), doc("b.md", "The poison."))
        assert (corpus.projects(), corpus.documents()) == ([], [])


# What was embedded can be told from what is stored


VARIED = {
    "deep.md": "# One\n\nintro\n\n## Two\n\ntext\n\n### Three\n\n#### Four\n\n##### Five "
    + "long " * 30
    + "\n\nunder five\n\n#\n\nunder nothing\n",
    "setext.md": "A title\nof two lines\n=======\n\nBody.\n\nSecond\n------\n\nMore body.\n",
    "code.py": (
        '"""Sessions."""\n\n\nclass Session:\n    """One."""\n\n    def open(self, name):\n      '
        "  return name\n\n"
    )
    + "    x = 1\n" * 400,
    "cache.go": (
        "package deep\n\n// Evict drops the oldest entry.\nfunc Evict(cache map[string]int) {\n"
        "\tdelete(cache, oldest(cache))\n}\n"
    ),
    "plain.txt": "Some prose. " * 500,
    "data.json": '{"walrus": [1, 2, 3], "island": {"name": "one"}}\n',
    "windows.md": "# Heading  \r\n\r\nText with a carriage return.\r\n\r\n## Next\t\r\n\r\nMore.\r\n",
    "umlaut.md": "# Übergrößenträger\n\nStraße, naïve, 日本語のテキスト, \U0001f427.\n",
}


def test_the_text_that_was_embedded_is_put_together_again_from_what_is_stored(
    corpus: unspool.Corpus, database: Place, tmp_path: Path
) -> None:
    corpus.index(write(tmp_path / "tree", VARIED))
    corpus.put(
        doc("titled.md", "# Heading\n\nbody\n\n## Sub\n\nbody", title="A title " * 30),
        doc("same.md", "# Same\n\nbody", title="Same"),
        doc("lines.txt", "body", title="two\nlines"),
        doc("odd.txt", "a\u200b\u2028b \x0b\x0c c\x85d", title="\u2029 title\x0b"),
        doc("spaces.txt", "  body  \n", title="  title  "),
    )
    catalog = Catalog.open(address_of(database), create=False)
    try:
        with catalog.read() as connection:
            stored = spaces.list_missing(connection, -1, limit=1000)
    finally:
        catalog.close()
    assert len(stored) == corpus.count() > 20
    wrong = [one for one in stored if hash_text(rebuild_passage(one)) != one.text_sha]
    assert wrong == []
    assert (
        any(one.headings for one in stored)
        and any(one.symbol for one in stored)
        and any(one.title for one in stored)
    )


# In Redis


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with required(RedisServer.start) as server:
        yield server


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[RedisServer]:
    """A server with nothing in it, that the test may stop."""
    with client(redis_server) as connection:
        connection.flushall()
    yield redis_server
    redis_server.kill()
    redis_server.start_again()


def client(server: RedisServer):  # type: ignore[no-untyped-def]
    from redis import Redis

    return Redis.from_url(server.address)


def keys(server: RedisServer, kind: TextRole) -> list[bytes]:
    with client(server) as connection:
        return sorted(connection.keys(f"unspool:{kind}:*"))


def test_a_second_catalog_embeds_nothing_that_the_first_did(
    places: Places, hashing: Asked, redis: RedisServer, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", files(PORTION + 5))
    found = []
    for expected in (PORTION + 5, 0):
        hashing.reset()
        with open_corpus(places.new(), embedder=A, cache=redis.address) as corpus:
            assert corpus.index(tree).embedded == hashing.count("a") == expected
            page = corpus.search(name(3), alpha=1, limit=100)
            found.append([(hit.chunk.id, hit.score) for hit in page.hits])
    assert found[0] == found[1] and len(found[0]) == PORTION + 5
    assert len(keys(redis, TextRole.PASSAGE)) == PORTION + 5


def test_a_query_that_another_corpus_asked_is_not_embedded_again(
    places: Places, hashing: Asked, redis: RedisServer
) -> None:
    for expected in (["walrus"], []):
        hashing.reset()
        with open_corpus(places.new(), embedder=A, cache=redis.address) as corpus:
            corpus.put(doc("a.md", "The walrus swims."))
            assert paths(corpus.search("walrus", alpha=1)) == ["a.md"]
        assert hashing.queries.get("a", []) == expected
    assert len(keys(redis, TextRole.QUERY)) == 1


def test_going_over_takes_from_it_what_another_catalog_embedded(
    places: Places, hashing: Asked, redis: RedisServer
) -> None:
    documents = [doc(f"{number}.md", f"The walrus called {name(number)}.") for number in range(5)]
    with open_corpus(places.new(), embedder="hashing:b", cache=redis.address) as corpus:
        corpus.put(*documents)
    place = places.new()
    with open_corpus(place, embedder=A) as corpus:
        corpus.put(*documents)
    report = unspool.reembed(
        settings=settings_for(place, embedder="hashing:b", cache=redis.address)
    )
    assert report is not None and (report.embedded, report.chunks) == (0, 5)


def test_what_is_there_is_forgotten_after_a_while(database: Place, redis: RedisServer) -> None:
    with open_corpus(database, embedder=A, cache=redis.address, cache_s=100) as corpus:
        corpus.put(doc("a.md", "The walrus swims."))
        corpus.search("walrus")
    found = [*keys(redis, TextRole.PASSAGE), *keys(redis, TextRole.QUERY)]
    assert len(found) == 2
    with client(redis) as connection:
        assert all(0 < connection.pttl(key) <= 100_000 for key in found)


def test_another_model_or_another_revision_shares_nothing(
    places: Places, redis: RedisServer
) -> None:
    first, renamed, revised, wider = (
        Words("mine"),
        Words("other"),
        Words("mine"),
        Words("mine", dimension=24),
    )
    revised.revision = "2"  # type: ignore[attr-defined]
    for own in (first, renamed, revised, wider):
        with unspool.open(
            settings=settings_for(places.new(), cache=redis.address), embedder=own
        ) as corpus:
            corpus.put(doc("a.md", "The walrus swims."))
            assert paths(corpus.search("walrus", alpha=1)) == ["a.md"]
        assert (own.asked, own.queries) == (["The walrus swims."], ["walrus"])
    assert (len(keys(redis, TextRole.PASSAGE)), len(keys(redis, TextRole.QUERY))) == (4, 4)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"short",
        np.full(16, np.nan, dtype="<f4").tobytes(),
        np.zeros(16, dtype="<f4").tobytes(),
        np.full(16, 1e30, dtype="<f4").tobytes(),
    ],
    ids=["empty", "of another length", "not a number", "zeros", "too long a vector"],
)
def test_damaged_values_are_embedded_anew(
    places: Places, hashing: Asked, redis: RedisServer, value: bytes
) -> None:
    for _ in range(2):
        hashing.reset()
        with open_corpus(places.new(), embedder=A, cache=redis.address) as corpus:
            corpus.put(doc("a.md", "The walrus swims."), doc("b.md", "The penguin walks."))
            best = corpus.search("The walrus swims.", alpha=1).hits[0]
            assert (best.chunk.path, round(best.score, 3)) == ("a.md", 1.0)
        assert (hashing.count("a"), len(hashing.queries["a"])) == (2, 1)
        with client(redis) as connection:
            for key in (*keys(redis, TextRole.PASSAGE), *keys(redis, TextRole.QUERY)):
                connection.set(key, value)


def test_a_server_that_goes_away_in_the_middle_fails_nothing(
    database: Place, hashing: Asked, redis: RedisServer, tmp_path: Path
) -> None:
    def kill(texts: Sequence[str]) -> None:
        if hashing.count("a") >= PORTION:
            redis.kill()

    hashing.before["a"] = kill
    with open_corpus(database, embedder=A, cache=redis.address) as corpus:
        report = corpus.index(write(tmp_path / "tree", files(2 * PORTION + 5)))
        assert (report.failed, report.embedded, report.warnings) == (0, 2 * PORTION + 5, ())
        assert len(corpus.search("walrus", alpha=1, limit=200).hits) == 2 * PORTION + 5
    assert_no_orphans(database, embedder=A)


def test_nothing_fails_where_the_password_is_wrong_or_nobody_is_there(
    database: Place, redis: RedisServer
) -> None:
    for address in (redis.address.replace(redis.password, "wrong"), "redis://127.0.0.1:1/0"):
        with open_corpus(database, embedder=A, cache=address) as corpus:
            corpus.put(doc("a.md", f"The walrus of {address} swims."))
            assert paths(corpus.search("walrus")) == ["a.md"]
    assert keys(redis, TextRole.PASSAGE) == []


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


SHA = b"\1" * 32
UNIT = (vector("walrus", "a") / np.linalg.norm(vector("walrus", "a"))).astype("<f4").tobytes()


@pytest.mark.parametrize("end", ["kill", "freeze"])
def test_a_server_that_failed_is_left_alone_for_a_while_and_then_used_again(
    redis: RedisServer, end: str
) -> None:
    clock = Clock()
    cache = RedisCache(
        CacheOptions(address=redis.address, lifetime_s=100), open_embedder(A), clock=clock
    )
    cache.put(TextRole.PASSAGE, {SHA: UNIT})
    assert cache.get(TextRole.PASSAGE, [SHA, b"\2" * 32]) == {SHA: UNIT}
    getattr(redis, end)()
    assert cache.get(TextRole.PASSAGE, [SHA]) == {}
    assert cache.is_away
    redis.thaw() if end == "freeze" else redis.start_again()
    clock.now += AWAY_S - 1
    cache.put(TextRole.PASSAGE, {b"\3" * 32: UNIT})
    assert cache.get(TextRole.PASSAGE, [SHA]) == {}
    assert len(keys(redis, TextRole.PASSAGE)) == (1 if end == "freeze" else 0), (
        "it was asked again too soon"
    )
    clock.now += 2
    assert not cache.is_away
    cache.put(TextRole.PASSAGE, {SHA: UNIT})
    assert cache.get(TextRole.PASSAGE, [SHA]) == {SHA: UNIT}
    cache.close()


def test_a_password_is_shown_nowhere(database: Place, redis: RedisServer) -> None:
    settings = settings_for(database, cache=redis.address)
    shown = {row[0]: row[1] for row in settings.rows()}
    assert shown["cache"].startswith("redis://:") and redis.password not in str(shown)
    for address in (
        "redis://me:topsecret@host:port/0",
        "http://me:topsecret@host/0",
        "redis://me:topsecret@host/0?db=topsecret",
    ):
        with pytest.raises(AddressError, match="UNSPOOL_CACHE") as caught:
            RedisCache(CacheOptions(address=address, lifetime_s=100), open_embedder(A))
        assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["http://localhost:6379", "localhost:6379", "memcached://localhost", "redis"]
)
def test_what_is_no_address_of_a_redis_server_is_refused_by_name(
    database: Place, address: str
) -> None:
    with pytest.raises(AddressError, match=r"UNSPOOL_CACHE .* redis://host:6379/0"):
        open_corpus(database, embedder=A, cache=address)


def test_the_package_that_is_missing_is_named_with_its_cure(
    database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'unspool\[redis\]'"):
        open_corpus(database, embedder=A, cache="redis://localhost:6379/0")
