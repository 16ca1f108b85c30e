"""A hosted model that another one has taken the name of: noticed before anything of it is used,
in each catalog by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import unspool
import wire
from hashing import Words
from support import Place, Places, doc, open_corpus, paths, settings_for
from unspool import session
from unspool.errors import AddressError, ConflictError

TEXT = "The walrus lives on the island."


@pytest.fixture
def server() -> Iterator[wire.WireServer]:
    pytest.importorskip("httpx2", reason="httpx2 is not installed; pip install 'unspool[hosted]'")
    with wire.WireServer() as opened:
        yield opened


@contextmanager
def hosted(place: Place, server: wire.WireServer, **settings: object) -> Iterator[unspool.Corpus]:
    with open_corpus(place, embedder="openai:m", embedder_url=server.url, **settings) as corpus:
        yield corpus


def become_another(server: wire.WireServer) -> None:
    """From now on other vectors come under the same name."""

    def other(body: dict[str, list[dict[str, object]]]) -> None:
        for one in body["data"]:
            one["embedding"] = wire.encoded(wire.vectors([f"another model says {one['index']}"])[0])

    server.always = server.changed(other)


def test_another_model_under_the_same_name_is_noticed_by_searches_and_writers(
    database: Place, server: wire.WireServer
) -> None:
    with hosted(database, server) as corpus:
        corpus.put(doc("a.md", TEXT))
    with hosted(database, server) as corpus:
        assert paths(corpus.search("walrus")) == ["a.md"]
    become_another(server)
    for _ in range(2):
        with hosted(database, server) as corpus:
            with pytest.raises(ConflictError, match="UNSPOOL_EMBEDDER_REVISION"):
                corpus.search("walrus island")
            with pytest.raises(ConflictError, match="UNSPOOL_EMBEDDER_REVISION"):
                corpus.put(doc("b.md", "Penguins."))
            assert [one.path for one in corpus.documents()] == ["a.md"]


def test_a_revision_of_ones_own_leads_out_of_it(database: Place, server: wire.WireServer) -> None:
    with hosted(database, server) as corpus:
        corpus.put(doc("a.md", TEXT))
    become_another(server)
    settings = settings_for(
        database, embedder="openai:m", embedder_url=server.url, embedder_revision="second"
    )
    report = unspool.reembed(settings=settings)
    assert report is not None
    assert report.embedded == 1
    with hosted(database, server, embedder_revision="second") as corpus:
        assert paths(corpus.search("walrus")) == ["a.md"]
    with pytest.raises(ConflictError, match="UNSPOOL_EMBEDDER_REVISION"), hosted(database, server):
        pass


def test_each_catalog_is_looked_at_by_itself(places: Places, server: wire.WireServer) -> None:
    """The embedder is one for all of a process; what one catalog expects of it is not what
    another does.
    """
    old, new = places.new(), places.new()
    with hosted(old, server) as corpus:
        corpus.put(doc("a.md", TEXT))
    become_another(server)
    with hosted(old, server) as first, hosted(new, server) as second:
        with pytest.raises(ConflictError):
            first.put(doc("b.md", "Penguins."))
        second.put(doc("c.md", "Herons."))
        assert paths(second.search("herons")) == ["c.md"]
        with pytest.raises(ConflictError):
            first.put(doc("b.md", "Penguins."))
        assert [one.path for one in first.documents()] == ["a.md"]


def test_nothing_is_asked_of_a_model_for_what_is_known(
    database: Place, server: wire.WireServer, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.md").write_text(TEXT)
    with hosted(database, server) as corpus:
        corpus.index(tmp_path / "tree", project="tree")
    asked = len(server.asked)
    with hosted(database, server) as corpus:
        assert corpus.index(tmp_path / "tree", project="tree").unchanged == 1
        (tmp_path / "tree" / "a.md").rename(tmp_path / "tree" / "b.md")
        assert corpus.index(tmp_path / "tree", project="tree").embedded == 0
    assert len(server.asked) == asked


def test_an_embedder_that_is_wrong_in_one_part_is_told_which(
    database: Place, server: wire.WireServer
) -> None:
    with hosted(database, server) as corpus:
        corpus.put(doc("a.md", TEXT))
    with (
        pytest.raises(ConflictError, match=f"UNSPOOL_EMBEDDER_DIMENSION={wire.DIMENSION}"),
        hosted(database, server, embedder_dimension=7),
    ):
        pass
    with (
        pytest.raises(ConflictError, match="prefix"),
        hosted(database, server, embedder_query_prefix="ask: "),
    ):
        pass


def test_objects_that_have_no_name_of_their_own_share_nothing(database: Place) -> None:
    """Two of a class may be different models."""

    class Embeddings:
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return wire.vectors(texts).tolist()

        def embed_query(self, text: str) -> list[float]:
            return self.embed_documents([text])[0]

    pytest.importorskip("redis", reason="redis is not installed; pip install 'unspool[redis]'")
    settings = settings_for(database, cache="redis://127.0.0.1:9/0")
    nameless, _ = session.open_embedder(settings, Embeddings())
    assert session.open_cache(settings, nameless) is None
    named, _ = session.open_embedder(settings_for(database, embedder_revision="mine"), Embeddings())
    assert session.open_cache(settings, named) is not None
    own, _ = session.open_embedder(settings, Words())
    assert session.open_cache(settings, own) is not None


def test_an_option_that_redis_does_not_know_is_told_at_once(database: Place) -> None:
    pytest.importorskip("redis", reason="redis is not installed; pip install 'unspool[redis]'")
    with pytest.raises(AddressError, match="UNSPOOL_CACHE"):
        open_corpus(database, cache="redis://127.0.0.1:9/0?nonsense=1")
