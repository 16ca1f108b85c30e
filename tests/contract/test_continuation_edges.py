"""Continuations at their edges: what a careful reader found, and must not come back."""

from __future__ import annotations

import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import unspool
from servers import PostgresServer
from support import Place, Places, address_of, beside, doc, name, open_corpus
from unspool.catalog.window_file import get_window_path
from unspool.domain import continuations
from unspool.domain.continuations import Cursor
from unspool.errors import InputError, MalformedContinuationError
from unspool.interfaces.cli import main
from unspool.search.windows import unpack_segment


def filled(database: Place, count: int, **settings: object) -> unspool.Corpus:
    corpus = open_corpus(database, **settings)
    corpus.put(
        *(doc(f"{name(at)}.txt", f"{name(at)} walrus {'moon ' * (at % 7)}") for at in range(count))
    )
    return corpus


def walked(page: unspool.Page) -> list[unspool.Page]:
    pages = [page]
    while pages[-1].continuation is not None:
        pages.append(pages[-1].more())
    return pages


def ids(pages: list[unspool.Page]) -> list[int]:
    return [hit.chunk.id for page in pages for hit in page.hits]


@pytest.mark.parametrize("kind", ["stored", "signed"])
@pytest.mark.parametrize("min_score", [-5.0, 0.05, 0.3])
def test_a_least_score_cuts_a_walk_where_the_scores_on_show_reach_it(
    database: Place, kind: str, min_score: float
) -> None:
    with filled(database, 450, continuations=kind) as corpus:
        everything = [
            hit for page in walked(corpus.search("walrus moon", limit=30)) for hit in page.hits
        ]
        cut = walked(corpus.search("walrus moon", limit=30, min_score=min_score))
        reached = [hit.chunk.id for hit in everything if hit.score >= min_score]
        if kind == "stored":
            assert ids(cut) == reached
        assert set(ids(cut)) >= set(reached)
        assert len(ids(cut)) == len(set(ids(cut)))
        assert all(hit.score >= min_score for page in cut for hit in page.hits)


def test_a_place_inside_a_hit_is_refused_and_does_not_hang(corpus: unspool.Corpus) -> None:
    corpus.put(
        *(doc(f"{at}.txt", f"walrus {name(at)}") for at in range(5)),
        *(doc(f"copy{at}.txt", "moon and stars") for at in range(5)),
    )
    token = corpus.search("walrus", alpha=1, limit=2).continuation
    assert token is not None
    key, catalog = corpus._resources.catalog.signing_key, corpus._resources.catalog.identity
    window, _ = continuations.read(token, catalog=catalog, key=key)
    entries = unpack_segment(corpus._resources.windows.list_segments(window)[0]).entries
    inside = next(at for at, is_copy in enumerate(entries["is_copy"].tolist()) if is_copy)
    forged = continuations.write(
        window, Cursor(position=inside, number=2, shown=1), catalog=catalog, key=key
    )
    assert forged is not None
    with pytest.raises(MalformedContinuationError):
        corpus.more(forged)


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_the_drop_of_relevance_is_said_once_whatever_the_size_of_pages(
    database: Place, limit: int
) -> None:
    with filled(database, 120) as corpus:
        pages = walked(corpus.search("walrus moon", limit=limit))
        assert any(page.relevance_dropped for page in pages)
        assert sum("relevance has dropped" in note for page in pages for note in page.notes) == 1


@pytest.mark.parametrize("kind", ["stored", "signed"])
def test_repeated_texts_are_counted_once(database: Place, kind: str) -> None:
    with filled(database, 250, continuations=kind) as corpus:
        page = corpus.search("walrus", alpha=1, limit=50)
        shown = [hit.chunk.text for hit in page.hits]
        corpus.put(*(doc(f"again{at}.txt", text) for at, text in enumerate(shown[:20])))
        pages = walked(page)
        counts = [
            int(note.rpartition(": ")[2].split()[0])
            for one in pages
            for note in one.notes
            if "earlier pages show the same text" in note
        ]
        assert sum(counts) == 20


def test_a_hook_may_search_itself_and_need_not_be_hashable(corpus: unspool.Corpus) -> None:
    class Hook:
        calls = 0

        def __eq__(self, other: object) -> bool:
            return NotImplemented

        def __call__(self, event: unspool.PageServed) -> None:
            self.calls += 1
            if inside.acquire(blocking=False):
                corpus.search("walrus")
            raise RuntimeError

    corpus.put(doc("a.md", "walrus"))
    inside = threading.Semaphore(8)
    hook = Hook()
    stop = corpus.observe(hook)
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: corpus.search("walrus"), range(8), timeout=30))
    stop()
    assert all(page.hits for page in pages)
    assert hook.calls == 16


def test_a_file_that_is_damaged_inside_is_begun_anew(catalog_file: Path) -> None:
    with filled(catalog_file, 30) as corpus:
        walked(corpus.search("walrus", limit=5))
    file = get_window_path(catalog_file)
    with beside(file) as kept:
        kept.run("PRAGMA wal_checkpoint(TRUNCATE)")
    data = file.read_bytes()
    file.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    with open_corpus(catalog_file) as corpus:
        for _ in range(3):
            pages = walked(corpus.search("walrus", limit=5))
            assert len(ids(pages)) == 30
        assert len(pages[0].continuation or "") <= 32
    assert file.with_name(file.name + ".damaged").exists()


def test_a_page_with_something_rewritten_does_not_wait_for_the_file(catalog_file: Path) -> None:
    with filled(catalog_file, 30) as corpus:
        page = corpus.search("walrus", limit=5)
        rewritten = corpus.search("walrus", limit=10).hits[7].chunk.path
        corpus.put(doc(rewritten, "walrus in another form"))
        get_window_path(catalog_file).chmod(0o400)
        token = page.continuation
        assert token is not None
        changed = [hit for hit in corpus.more(token).hits if hit.changed]
        assert [hit.chunk.path for hit in changed] == [rewritten]


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 2.5},
        {"limit": "3"},
        {"max_tokens": 1.5},
        {"min_score": "x"},
        {"min_score": float("nan")},
        {"alpha": "x"},
        {"caller": 5},
        {"max_total_tokens": 2.5},
        {"max_total_tokens": -1},
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(corpus: unspool.Corpus, wrong: dict) -> None:
    corpus.put(doc("a.md", "walrus"))
    with pytest.raises(InputError):
        corpus.search("walrus", **wrong)


@pytest.mark.parametrize("query", [5, "", " ", "x" * 30_000])
def test_what_cannot_be_asked_cannot_be_warmed(corpus: unspool.Corpus, query: object) -> None:
    with pytest.raises(InputError):
        corpus.warm([query])  # type: ignore[list-item]
    assert corpus.warm(["\ud800 walrus"]) == 1


def test_a_closed_corpus_stays_closed(database: Place) -> None:
    corpus = filled(database, 30)
    page = corpus.search("walrus", limit=5)
    corpus.close()
    for call in (page.more, lambda: corpus.search("walrus")):
        with pytest.raises(InputError, match="closed"):
            call()
    corpus.close()


def test_a_closed_corpus_connects_to_nothing(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with Places(tmp_path, postgres_server) as places:
        place = places.new()
        corpus = filled(place, 3)
        corpus.close()
        try:
            with pytest.raises(InputError, match="closed"):
                corpus.search("walrus")
            with beside(place) as own:
                assert own.rows(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                ) == [(1,)]
        finally:
            corpus.close()


def test_a_catalog_that_lost_its_signing_key_gets_another(database: Place) -> None:
    filled(database, 3).close()
    with beside(database) as catalog:
        catalog.run("DELETE FROM meta WHERE key = 'signing key'")
    with open_corpus(database) as corpus:
        assert len(walked(corpus.search("walrus", limit=1))) == 3


def test_the_line_that_leads_on_names_the_catalog_if_a_flag_did(
    catalog_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(catalog_file, 3).close()
    monkeypatch.setenv("UNSPOOL_DATABASE", f"sqlite:///{catalog_file.with_name('another.db')}")
    first = CliRunner().invoke(
        main, ["search", "walrus", "--limit", "1", "--database", address_of(catalog_file)]
    )
    line = first.stderr.splitlines()[-1]
    assert line.startswith("more: unspool more ")
    assert CliRunner().invoke(main, shlex.split(line)[2:]).exit_code == 0


def test_the_line_that_leads_on_holds_no_password(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Places(tmp_path, postgres_server) as places:
        place = places.new()
        filled(place, 3).close()
        first = CliRunner().invoke(
            main, ["search", "walrus", "--limit", "1", "--database", address_of(place)]
        )
        line = first.stderr.splitlines()[-1]
        assert postgres_server.password not in first.output
        monkeypatch.setenv("UNSPOOL_DATABASE", address_of(place))
        assert CliRunner().invoke(main, shlex.split(line)[2:]).exit_code == 0
