"""Going on from page to page: what a continuation is, what it gives, and what becomes of it."""

from __future__ import annotations

import json
import pickle
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unspool
from support import Place, Places, address_of, beside, doc, name, open_corpus
from unspool import aio
from unspool.domain.queries import Form, Served, Stability
from unspool.errors import (
    ContinuationError,
    DeniedContinuationError,
    ExpiredContinuationError,
    ForeignContinuationError,
    InputError,
    MalformedContinuationError,
    OutdatedContinuationError,
    SweptContinuationError,
)

ALPHAS = {"meaning": 1.0, "word": 0.0, "hybrid": 0.4}
# an index of a server may approximate
PAST_WINDOW = {"sqlite": Stability.DETERMINISTIC, "postgresql": Stability.BEST_EFFORT}


def walruses(count: int, project: str = "notes", start: int = 0) -> list[unspool.Document]:
    """Documents of one chunk each, no two alike; every third says nothing of a walrus."""
    about = ("walrus", "walrus fish", "violin")
    return [
        doc(f"{name(at)}.txt", f"{name(at)} {about[at % 3]} island {name(at % 17)} coast", project)
        for at in range(start, start + count)
    ]


def pages_of(page: unspool.Page) -> list[unspool.Page]:
    """This page and all that follow."""
    out = [page]
    while out[-1].continuation is not None:
        assert len(out) < 2000
        out.append(out[-1].more())
    return out


def found(pages: list[unspool.Page]) -> list[str]:
    return [hit.chunk.path for page in pages for hit in page.hits]


def kept_in(database: Path) -> Path:
    return database.with_name(database.name + ".windows")


def change(database: Place, *statements: str) -> None:
    """Write where windows are kept, past unspool."""
    with beside(database, windows=True) as kept:
        kept.run(*statements)


def windows_in(database: Place) -> int:
    if isinstance(database, Path):
        if not kept_in(database).exists():
            return 0
        with beside(database, windows=True) as kept:
            if kept.rows("SELECT count(*) FROM sqlite_master WHERE name='windows'") == [(0,)]:
                return 0
    with beside(database, windows=True) as kept:
        return int(kept.rows("SELECT count(*) FROM windows")[0][0])


@pytest.fixture(scope="module")
def shelf(module_places: Places) -> Place:
    """A catalog of 700 documents that no test writes to."""
    database = module_places.new()
    with open_corpus(database) as corpus:
        corpus.put(*walruses(700))
        corpus.put(*walruses(40, "others", start=2000))
        corpus.refresh()
    return database


@pytest.fixture
def library(shelf: Place) -> Iterator[unspool.Corpus]:
    with open_corpus(shelf, project="notes") as corpus:
        yield corpus


# What it is


def test_a_continuation_is_short_and_safe_to_paste(library: unspool.Corpus) -> None:
    given_out = {
        page.continuation
        for _ in range(20)
        for page in pages_of(library.search("walrus", limit=200, alpha=0.0))[:-1]
    }
    assert len(given_out) >= 40
    assert all(
        text and len(text) <= 32 and re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]*", text)
        for text in given_out
    )


def test_two_searches_never_have_the_same_one(library: unspool.Corpus) -> None:
    texts = [library.search("walrus", limit=5).continuation or "" for _ in range(50)]
    assert len({text[:13] for text in texts}) == 50


def test_a_change_of_one_character_never_gives_another_page(library: unspool.Corpus) -> None:
    chance = random.Random(5)
    text = library.search("walrus", limit=5).continuation or ""
    for place, was in enumerate(text):
        other = chance.choice(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".replace(was, "")
        )
        with pytest.raises(ContinuationError):
            library.more(text[:place] + other + text[place + 1 :])
    for size in range(len(text)):
        with pytest.raises(ContinuationError):
            library.more(text[:size])


@given(
    text=st.text()
    | st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape"))
    | st.from_regex("[A-Za-z0-9_-]{18,40}")
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_text_is_a_continuation_error(library: unspool.Corpus, text: str) -> None:
    for restart in (False, True):
        with pytest.raises(ContinuationError):
            library.more(text, restart=restart)


def test_white_space_around_it_does_not_matter(library: unspool.Corpus) -> None:
    page = library.search("walrus", limit=5)
    assert library.more(f"  {page.continuation}\n").hits == page.more().hits


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"max_tokens": -1}])
def test_a_page_that_nobody_can_want_is_refused(
    library: unspool.Corpus, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        library.more(library.search("walrus", limit=5).continuation or "", **wrong)


# Pages


@pytest.mark.parametrize("prefetch", ["on", "off"])
@pytest.mark.parametrize("alpha", ALPHAS.values(), ids=ALPHAS)
def test_the_same_continuation_gives_the_same_page_also_after_later_ones(
    shelf: Place, alpha: float, prefetch: str
) -> None:
    chance = random.Random(3)
    with (
        open_corpus(shelf, prefetch=prefetch) as one,
        open_corpus(shelf, prefetch=prefetch) as other,
    ):
        pages = pages_of(one.search("walrus fish", projects="notes", limit=60, alpha=alpha))
        for corpus in (one, other):
            for at in chance.sample(range(1, len(pages)), len(pages) - 1):
                again = corpus.more(pages[at - 1].continuation or "")
                assert again.hits == pages[at].hits
                assert (again.number, again.served, again.continuation) == (
                    at + 1,
                    pages[at].served,
                    pages[at].continuation,
                )


@pytest.mark.parametrize("kind", ["stored", "signed"])
@pytest.mark.parametrize("alpha", ALPHAS.values(), ids=ALPHAS)
def test_pages_count_on_and_scores_only_fall(
    shelf: Place, engine: str, alpha: float, kind: str
) -> None:
    with open_corpus(shelf, continuations=kind) as corpus:
        pages = pages_of(
            corpus.search("walrus fish", projects="notes", limit=45, alpha=alpha, explain=True)
        )
    hits = [hit for page in pages for hit in page.hits]
    assert [page.number for page in pages] == list(range(1, len(pages) + 1))
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert all(later.score <= earlier.score for earlier, later in pairwise(hits))
    assert all(len(page.hits) == 45 for page in pages[:-1])
    assert all(hit.reason for hit in hits)
    assert all(
        page.stability
        is (Stability.SNAPSHOT if page.served is Served.WINDOW else PAST_WINDOW[engine])
        for page in pages
    )
    assert pages[-1].remaining == 0


def test_another_limit_or_budget_changes_that_page_alone(library: unspool.Corpus) -> None:
    page = library.search("walrus fish", limit=10)
    usual = page.more()
    short = library.more(page.continuation or "", limit=3)
    assert short.hits == usual.hits[:3]
    assert found(pages_of(short)[:3]) == found(pages_of(usual)[:3])[: 3 + 10 + 10]
    tight = library.more(page.continuation or "", max_tokens=60)
    assert tight.tokens <= 60 < usual.tokens
    assert tight.more().tokens > 60


def test_a_budget_that_fits_nothing_shows_a_location_and_says_so(library: unspool.Corpus) -> None:
    page = library.search("walrus fish", limit=10, max_tokens=1)
    for turned in (page, page.more()):
        assert [hit.form for hit in turned.hits] == [Form.LOCATION]
        assert turned.warnings
    assert found([page, page.more()]) == found([library.search("walrus fish", limit=2)])


def test_a_page_too_small_for_a_location_does_not_end_a_walk_with_tokens_left(
    library: unspool.Corpus,
) -> None:
    page = library.search("walrus fish", limit=10, max_tokens=1, max_total_tokens=500)
    assert page.hits
    assert page.continuation is not None


@pytest.mark.parametrize("total", [1, 30, 200, 1000])
@pytest.mark.parametrize("max_tokens", [0, 50])
def test_the_tokens_of_a_whole_walk_are_never_exceeded(
    library: unspool.Corpus, total: int, max_tokens: int
) -> None:
    pages = pages_of(
        library.search("walrus fish", limit=7, max_tokens=max_tokens, max_total_tokens=total)
    )
    assert sum(page.tokens for page in pages) <= total
    left = total
    for page in pages:
        left -= page.tokens
        assert page.tokens_remaining == left
    assert left < 60


def test_no_walk_without_a_total_tells_what_is_left_of_it(library: unspool.Corpus) -> None:
    assert library.search("walrus").tokens_remaining is None


def test_without_a_window_there_is_no_second_page(shelf: Place) -> None:
    with open_corpus(shelf, window=0) as corpus:
        before = windows_in(shelf)
        page = corpus.search("walrus", limit=5, projects="notes")
        assert (len(page.hits), page.continuation) == (5, None)
        assert windows_in(shelf) == before
        with pytest.raises(InputError):
            page.more()


def test_a_search_with_one_page_keeps_nothing(corpus: unspool.Corpus, database: Place) -> None:
    corpus.put(*walruses(5))
    assert corpus.search("walrus", limit=10).continuation is None
    assert windows_in(database) == 0


def test_the_last_page_has_no_next(library: unspool.Corpus) -> None:
    last = pages_of(library.search("walrus", limit=300, alpha=0.0))[-1]
    with pytest.raises(InputError):
        last.more()


def test_a_copy_of_a_page_can_be_sent_and_says_how_to_go_on(library: unspool.Corpus) -> None:
    page = library.search("walrus", limit=5)
    copy = pickle.loads(pickle.dumps(page))
    assert copy == page
    assert [hit.snippet for hit in copy.hits] == [hit.snippet for hit in page.hits]
    with pytest.raises(InputError, match=r"corpus\.more"):
        copy.more()
    assert library.more(copy.continuation).hits == page.more().hits


def test_a_filter_and_a_least_score_hold_on_later_pages(library: unspool.Corpus) -> None:
    half = sorted(document.path for document in walruses(700))[::2]
    pages = pages_of(
        library.search("walrus fish", limit=100, alpha=1.0, where={"document": {"in": half}})
    )
    assert sorted(found(pages)) == half
    least = library.search("walrus fish", limit=100, alpha=1.0).hits[-1].score
    pages = pages_of(library.search("walrus fish", limit=30, alpha=1.0, min_score=least))
    assert all(hit.score >= least for page in pages for hit in page.hits)
    assert len(found(pages)) >= 100


# Past the window


def test_without_an_index_that_approximates_pages_past_the_window_are_certain(shelf: Place) -> None:
    with open_corpus(shelf, vector_index="exact", window=20) as corpus:
        pages = pages_of(corpus.search("walrus fish", projects="notes", limit=90, alpha=1.0))
    assert {page.stability for page in pages} == {Stability.SNAPSHOT, Stability.DETERMINISTIC}


HOW = {
    "stored": {},
    "not looking ahead": {"prefetch": "off"},
    "signed": {"continuations": "signed"},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("window", [20, 200])
@pytest.mark.parametrize("mode", ALPHAS)
def test_past_the_window_everything_comes_exactly_once(
    shelf: Place, mode: str, window: int, how: str
) -> None:
    everything = sorted(
        document.path for document in walruses(700) if mode != "word" or "walrus" in document.text
    )
    with open_corpus(shelf, window=window, **HOW[how]) as corpus:
        pages = pages_of(
            corpus.search("walrus fish", projects="notes", limit=37, alpha=ALPHAS[mode])
        )
    assert sorted(found(pages)) == everything
    assert pages[0].served is Served.WINDOW
    assert pages[-1].served is Served.WIDER
    kinds = [page.served for page in pages]
    assert kinds == sorted(kinds, key=[Served.WINDOW, Served.WIDER].index)
    assert all(page.hits for page in pages)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("mode", ALPHAS)
def test_past_the_window_of_several_projects_everything_comes_exactly_once(
    shelf: Place, mode: str, how: str
) -> None:
    everything = [
        document
        for document in (*walruses(700), *walruses(40, "others", start=2000))
        if mode != "word" or "walrus" in document.text
    ]
    with open_corpus(shelf, window=20, **HOW[how]) as corpus:
        pages = pages_of(corpus.search("walrus fish", projects="*", limit=61, alpha=ALPHAS[mode]))
    assert sorted(
        (hit.chunk.project, hit.chunk.path) for page in pages for hit in page.hits
    ) == sorted((one.project, one.path) for one in everything)


@pytest.mark.parametrize("end", [400, 467])
def test_a_page_across_the_end_of_what_a_process_remembers_is_whole(shelf: Place, end: int) -> None:
    """Another process has made the walk longer meanwhile, up to its end; this one remembers the
    window alone.
    """
    how = {"prefetch": "off", "project": "notes", "window": 20}
    with open_corpus(shelf, **how) as one, open_corpus(shelf, **how) as other:
        page = one.search("walrus fish", limit=150, alpha=0.0)
        pages = pages_of(other.more(page.continuation or "", limit=end - 150))
        assert len(found(pages)) == 467 - 150
        again = one.more(page.continuation or "", limit=end - 150)
        assert again.hits == pages[0].hits
        assert len(found(pages_of(again))) == 467 - 150


@pytest.mark.parametrize("how", HOW)
def test_what_is_added_is_found_past_the_window(
    corpus: unspool.Corpus, database: Place, how: str
) -> None:
    corpus.put(*walruses(450))
    with open_corpus(database, window=20, **HOW[how]) as other:
        page = other.search("walrus fish", limit=20, alpha=1.0)
        corpus.put(doc("new.txt", "A new walrus fish tale."))
        pages = pages_of(page)
    assert sorted(found(pages)) == sorted(
        [*(document.path for document in walruses(450)), "new.txt"]
    )
    assert all(
        later.score <= earlier.score
        for earlier, later in pairwise(hit for turned in pages for hit in turned.hits)
    )


@pytest.mark.parametrize("kind", ["stored", "signed"])
def test_what_was_shown_and_then_rewritten_does_not_come_again(database: Place, kind: str) -> None:
    with open_corpus(database, window=20, continuations=kind, prefetch="off") as corpus:
        corpus.put(*walruses(450))
        page = corpus.search("walrus fish", limit=100, alpha=1.0)
        second = page.more()
        shown = found([page, second])
        corpus.put(*(doc(path, f"{path} now about a walrus and a fish") for path in shown[::10]))
        third = second.more()
        assert not set(shown) & set(found(pages_of(third)))


@pytest.mark.parametrize("kind", ["stored", "signed"])
def test_what_was_shown_rewritten_and_is_rewritten_again_does_not_come_again(
    database: Place, kind: str
) -> None:
    with open_corpus(database, window=20, continuations=kind, prefetch="off") as corpus:
        corpus.put(*walruses(450))
        page = corpus.search("walrus fish", limit=50, alpha=1.0)
        corpus.put(*(doc(path, f"{path} walrus and fish") for path in found([page.more()])[::10]))
        second = page.more()
        rewritten = [hit.chunk.path for hit in second.hits if hit.changed]
        assert len(rewritten) == 5
        corpus.put(*(doc(path, f"{path} fish and walrus") for path in rewritten))
        assert not set(found([page, second])) & set(found(pages_of(second.more())))


def test_scores_do_not_rise_past_a_stretch_of_which_nothing_is_left(database: Place) -> None:
    """Behind the window come copies of what was shown, more than are ranked at once, then what
    has a name that is asked for.
    """
    with open_corpus(database, window=20, prefetch="off") as corpus:
        corpus.put(*(doc(f"{name(at)}.txt", f"walrus fish coast {name(at)}") for at in range(200)))
        corpus.put(
            *(
                doc(f"walrus/{name(at)}/fish.txt", f"walrus fish coast violin {name(at)}")
                for at in range(300, 360)
            )
        )
        page = corpus.search("walrus fish coast", limit=200, alpha=1.0)
        corpus.put(*(doc(f"copies/{hit.chunk.path}", hit.chunk.text) for hit in page.hits[:150]))
        hits = [hit for turned in pages_of(page) for hit in turned.hits]
        assert len(hits) == 260
        assert all(later.score <= earlier.score for earlier, later in pairwise(hits))


@pytest.mark.parametrize("limit", [10, 300])
@pytest.mark.parametrize("projects", [["notes"], ["notes", "others"]])
def test_a_project_that_is_forgotten_on_the_way_leaves_the_walk(
    database: Place, projects: list[str], limit: int
) -> None:
    with open_corpus(database, prefetch="off") as corpus:
        corpus.put(*walruses(450))
        corpus.put(*walruses(450, "others", start=1000))
        page = corpus.search("walrus fish", projects=projects, limit=limit, alpha=0.4)
        corpus.forget(project="notes")
        rest = pages_of(page)[1:]
        left = [hit.chunk.path for hit in page.hits if hit.chunk.project == "others"] + found(rest)
        assert all(hit.chunk.project == "others" for turned in rest for hit in turned.hits)
        assert sorted(left) == sorted(
            document.path
            for document in walruses(450, "others", start=1000)
            if "others" in projects
        )


# While somebody writes


def test_what_is_deleted_is_stepped_over_and_the_page_is_filled(corpus: unspool.Corpus) -> None:
    corpus.put(*walruses(40))
    page = corpus.search("walrus fish", limit=5, alpha=1.0)
    second, third = page.more(), page.more().more()
    for hit in second.hits[1:4]:
        corpus.forget(project="notes", path=hit.chunk.path)
    again = page.more()
    assert found([again]) == [
        second.hits[0].chunk.path,
        second.hits[4].chunk.path,
        *found([third])[:3],
    ]
    assert [hit.rank for hit in again.hits] == [6, 7, 8, 9, 10]
    assert again.notes


def test_what_is_rewritten_keeps_its_place_and_is_marked(corpus: unspool.Corpus) -> None:
    corpus.put(*walruses(40))
    page = corpus.search("walrus fish", limit=5, alpha=1.0)
    second = page.more()
    path = second.hits[2].chunk.path
    corpus.put(doc(path, "Violins and bridges."))
    again = page.more()
    assert found([again]) == found([second])
    assert [hit.changed for hit in again.hits] == [False, False, True, False, False]
    assert again.hits[2].text == "Violins and bridges."
    corpus.put(doc(path, "Rewritten a second time."))
    assert page.more().hits[2].text == "Rewritten a second time."
    corpus.put(doc(path, second.hits[2].chunk.text))
    assert page.more().hits == second.hits


def test_what_is_put_again_as_it_was_is_not_changed(corpus: unspool.Corpus) -> None:
    corpus.put(*walruses(40))
    page = corpus.search("walrus fish", limit=5)
    second = page.more()
    corpus.put(*(doc(hit.chunk.path, hit.chunk.text) for hit in second.hits))
    assert page.more().hits == second.hits


WINDOWS = {"all of it": 600, "not all of it": 420}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_what_is_rewritten_in_the_last_part_of_the_window_is_not_lost(
    database: Place, window: int
) -> None:
    """Only the first part of a window is ranked with page one, the rest when it is needed."""
    with open_corpus(database, window=window) as corpus:
        corpus.put(*walruses(450))
        order = found(pages_of(corpus.search("walrus fish", limit=10, alpha=1.0)))
        page = corpus.search("walrus fish", limit=10, alpha=1.0)
        corpus.put(*(doc(path, f"{path} walrus fish tale") for path in order[250:400:50]))
        assert sorted(found(pages_of(page))) == sorted(order)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_what_is_rewritten_in_the_last_part_of_the_window_is_marked(
    database: Place, window: int
) -> None:
    with open_corpus(database, window=window) as corpus:
        corpus.put(*walruses(450))
        rewritten = found(pages_of(corpus.search("walrus fish", limit=10, alpha=1.0)))[250:400:50]
        page = corpus.search("walrus fish", limit=10, alpha=1.0)
        corpus.put(*(doc(path, f"{path} walrus fish tale") for path in rewritten))
        hits = {hit.chunk.path: hit for turned in pages_of(page) for hit in turned.hits}
        assert [
            (path, hits[path].changed, hits[path].text) for path in rewritten if path in hits
        ] == [(path, True, f"{path} walrus fish tale") for path in rewritten]


# Copies


def test_copies_are_one_hit_that_names_the_other_places(corpus: unspool.Corpus) -> None:
    corpus.put(
        doc("a.txt", "The walrus eats fish."),
        doc("b.txt", "The walrus eats fish."),
        doc("c.txt", "The walrus eats fish."),
        *walruses(10),
    )
    corpus.put(
        doc("two.txt", "Violin strings break\nin cold rooms."),
        doc("too.txt", "Violin strings break\nin cold rooms."),
    )
    for alpha in ALPHAS.values():
        hits = pages_of(corpus.search("the walrus eats fish", limit=3, alpha=alpha))[0].hits
        assert sorted([hits[0].chunk.location, *hits[0].copies]) == [
            "a.txt:1",
            "b.txt:1",
            "c.txt:1",
        ]
        strings = corpus.search("violin strings break in cold rooms", limit=1, alpha=alpha).hits[0]
        assert sorted([strings.chunk.location, *strings.copies]) == ["too.txt:1-2", "two.txt:1-2"]
        everything = found(pages_of(corpus.search("walrus violin", limit=4, alpha=alpha)))
        assert len(everything) == len(set(everything)) == 12


def test_the_same_text_in_another_project_is_a_hit_of_its_own(corpus: unspool.Corpus) -> None:
    corpus.put(
        doc("a.txt", "The walrus eats fish.", "one"), doc("b.txt", "The walrus eats fish.", "one")
    )
    corpus.put(doc("a.txt", "The walrus eats fish.", "two"))
    hits = corpus.search("walrus fish", projects=["one", "two"]).hits
    assert sorted((hit.chunk.project, len(hit.copies)) for hit in hits) == [("one", 1), ("two", 0)]


@pytest.mark.parametrize("kind", ["stored", "signed"])
def test_where_the_shown_one_is_deleted_a_copy_is_shown_unmarked(
    database: Place, kind: str
) -> None:
    with open_corpus(database, continuations=kind) as corpus:
        corpus.put(*walruses(20), *(doc(f"copy{at}.txt", "A violin of copper.") for at in range(3)))
        pages = pages_of(corpus.search("walrus island coast", limit=1, alpha=1.0))
        at, lead = next(
            (at, hit) for at, turned in enumerate(pages) for hit in turned.hits if hit.copies
        )
        assert at > 0
        gone = [lead.chunk.path]
        for left in (1, 0):
            corpus.forget(project="notes", path=gone[-1])
            hit = corpus.more(pages[at - 1].continuation or "").hits[0]
            assert (hit.changed, hit.text, len(hit.copies), hit.rank) == (
                False,
                "A violin of copper.",
                left,
                lead.rank,
            )
            assert not {hit.chunk.path, *(place.partition(":")[0] for place in hit.copies)} & set(
                gone
            )
            gone.append(hit.chunk.path)


def test_copies_of_what_was_shown_are_left_out_past_the_window(database: Place) -> None:
    with open_corpus(database, window=20, prefetch="off") as corpus:
        corpus.put(*walruses(450))
        page = corpus.search("walrus fish", limit=100, alpha=1.0)
        shown = page.hits[0].chunk
        corpus.put(doc("copy.txt", shown.text))
        rest = found(pages_of(page)[1:])
        assert "copy.txt" not in rest
        assert len(rest) == 350


# Several projects


def zebras() -> tuple[list[unspool.Document], list[unspool.Document]]:
    about = [
        doc(f"{name(at)}.txt", f"zebra zebra stripes {name(at)} " + "zebra herd " * (at + 1), "a")
        for at in range(5)
    ]
    filler = (
        "river bridge glass paper engine piston valve orchid lantern harbour sail anchor mast "
        "rope salt pepper flour oven bread honey"
    )
    passing = [
        doc(
            f"{name(at)}.txt",
            f"{filler} {name(at)} {'zebra' if at % 60 == 0 else 'honey'} {filler} {name(at + 7)}",
            "b",
        )
        for at in range(100, 400)
    ]
    return about, passing


def test_a_project_about_a_word_ranks_above_passing_mentions_in_another(
    corpus: unspool.Corpus,
) -> None:
    about, passing = zebras()
    corpus.put(*about)
    corpus.put(*passing)
    page = corpus.search("zebra", projects=["a", "b"], limit=50, alpha=0.0)
    assert [hit.chunk.project for hit in page.hits] == ["a"] * 5 + ["b"] * 5
    for alpha in ALPHAS.values():
        one, other = (
            corpus.search("zebra herd", projects=order, limit=30, alpha=alpha)
            for order in (["a", "b"], ["b", "a"])
        )
        assert [hit.chunk.id for hit in one.hits] == [hit.chunk.id for hit in other.hits]
        assert found(pages_of(one)) == found(pages_of(other))


def test_several_projects_rank_nearly_as_one_that_holds_them_all(corpus: unspool.Corpus) -> None:
    about, passing = zebras()
    corpus.put(*about)
    corpus.put(*passing)
    corpus.put(*(doc(one.path, one.text, "both") for one in (*about, *passing)))
    for query, alpha in (("zebra", 0.0), ("zebra herd", 0.0), ("zebra herd", 1.0)):
        apart = found([corpus.search(query, projects=["a", "b"], limit=10, alpha=alpha)])
        together = found([corpus.search(query, projects=["both"], limit=10, alpha=alpha)])
        assert apart[:5] == together[:5]
        assert len(set(apart) & set(together)) >= 9 or alpha == 0.0
        assert set(apart) == set(together) or alpha == 1.0


# What becomes of it


def test_one_of_another_catalog_is_foreign(library: unspool.Corpus, places: Places) -> None:
    text = library.search("walrus", limit=5).continuation or ""
    codes = set()
    # one catalog in 256 has the same fingerprint; and one of those has the same signature: then the
    # window is just not known
    for _ in range(4):
        with open_corpus(places.new()) as other:
            other.put(*walruses(3))
            for restart in (False, True):
                with pytest.raises((ForeignContinuationError, SweptContinuationError)) as caught:
                    other.more(text, restart=restart)
                codes.add(caught.value.code)
    assert "continuation_foreign" in codes


@pytest.fixture
def asked(database: Place) -> unspool.Page:
    """The first page of a search by somebody who is gone."""
    return ask(database)


def ask(database: Place) -> unspool.Page:
    with open_corpus(database) as corpus:
        corpus.put(*walruses(30))
        corpus.refresh()
        return corpus.search("walrus fish", limit=4, max_total_tokens=5000, caller="ann")


BROKEN = {
    ExpiredContinuationError: ("UPDATE windows SET expires_at=1",),
    SweptContinuationError: ("DELETE FROM segments",),
    OutdatedContinuationError: (
        "UPDATE windows SET request=replace(request, '\"space_id\":1', '\"space_id\":99')",
    ),
}


@pytest.mark.parametrize("error", BROKEN)
def test_one_that_cannot_be_followed_any_more_says_why_and_can_begin_again(
    database: Place, asked: unspool.Page, error: type[ContinuationError]
) -> None:
    change(database, *BROKEN[error])
    text = asked.continuation or ""
    with open_corpus(database) as corpus:
        with pytest.raises(error):
            corpus.more(text, caller="ann")
        page = corpus.more(text, restart=True, caller="ann")
        assert (page.number, page.hits, page.query, page.tokens_remaining) == (
            1,
            asked.hits,
            asked.query,
            asked.tokens_remaining,
        )
        assert page.warnings
        assert page.more().number == 2
        assert len(corpus.more(text, restart=True, caller="ann", limit=2).hits) == 2
        with pytest.raises(ContinuationError) as caught:
            corpus.more(text, restart=True, caller="bob")
        assert caught.value.code == "continuation_denied"


def test_one_that_is_well_is_not_begun_again(database: Place, asked: unspool.Page) -> None:
    with open_corpus(database) as corpus:
        page = corpus.more(asked.continuation or "", restart=True, caller="ann")
        assert (page.number, page.warnings) == (2, ())


def test_one_that_is_not_known_any_more_cannot_begin_again(
    database: Place, asked: unspool.Page
) -> None:
    change(database, "DELETE FROM segments", "DELETE FROM windows")
    assert_unknown(database, asked)


def test_one_whose_file_is_gone_cannot_begin_again(catalog_file: Path) -> None:
    page = ask(catalog_file)
    for file in catalog_file.parent.glob("*.windows*"):
        file.unlink()
    assert_unknown(catalog_file, page)


def assert_unknown(database: Place, asked: unspool.Page) -> None:
    with open_corpus(database) as corpus:
        for restart in (False, True):
            with pytest.raises(SweptContinuationError):
                corpus.more(asked.continuation or "", restart=restart, caller="ann")


@pytest.mark.parametrize("caller", ["", "bob", "Ann", "ann "])
def test_one_of_another_caller_is_denied(database: Place, asked: unspool.Page, caller: str) -> None:
    with open_corpus(database) as corpus:
        for restart in (False, True):
            with pytest.raises(DeniedContinuationError):
                corpus.more(asked.continuation or "", restart=restart, caller=caller)
        assert corpus.more(asked.continuation or "", caller="ann").number == 2


def test_the_pages_of_a_caller_go_on_by_themselves(database: Place, asked: unspool.Page) -> None:
    with open_corpus(database) as corpus:
        assert (
            len(found(pages_of(corpus.search("walrus fish", limit=4, alpha=1.0, caller="ann"))))
            == 30
        )


def test_a_caller_is_not_written_down(database: Place, asked: unspool.Page) -> None:
    with beside(database, windows=True) as kept:
        callers = [caller for (caller,) in kept.rows("SELECT caller FROM windows")]
    assert len(callers) == 1
    assert "ann" not in callers[0]


def test_the_codes_are_those_that_are_documented(database: Place, asked: unspool.Page) -> None:
    classes = (
        MalformedContinuationError,
        ForeignContinuationError,
        ExpiredContinuationError,
        SweptContinuationError,
        OutdatedContinuationError,
        DeniedContinuationError,
    )
    assert [one.code for one in classes] == [
        f"continuation_{end}"
        for end in ("malformed", "foreign", "expired", "swept", "outdated", "denied")
    ]
    assert all(issubclass(one, ContinuationError) for one in classes)
    assert json.dumps([one.http_status for one in classes]) == "[404, 404, 410, 404, 410, 403]"


@pytest.mark.parametrize("prefetch", ["on", "off"])
def test_a_window_that_is_swept_while_a_process_walks_it_is_a_continuation_error(
    database: Place, prefetch: str
) -> None:
    with open_corpus(database, window=20, prefetch=prefetch) as corpus:
        corpus.put(*walruses(450))
        page = corpus.search("walrus fish", limit=50, alpha=1.0).more()
        change(database, "DELETE FROM segments")
        with pytest.raises(ContinuationError):
            pages_of(page)


def test_a_window_that_is_swept_while_its_text_is_rewritten_is_a_page_or_a_continuation_error(
    database: Place,
) -> None:
    with open_corpus(database) as corpus:
        corpus.put(*walruses(60))
        page = corpus.search("walrus fish", limit=5, alpha=1.0)
        path = page.more().hits[0].chunk.path
        change(database, "DELETE FROM segments")
        corpus.put(doc(path, "Rewritten."))
        try:
            again = page.more()
        except ContinuationError:
            return
        assert (again.hits[0].chunk.path, again.hits[0].text, again.hits[0].changed) == (
            path,
            "Rewritten.",
            True,
        )


# Those that carry their walk


def test_signed_ones_keep_nothing_and_go_on_in_the_same_order(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.put(*walruses(150))
    with open_corpus(database, continuations="signed") as signed:
        pages = pages_of(signed.search("walrus fish", limit=20, alpha=0.4))
        assert windows_in(database) == 0
        assert (
            found(pages)[:60]
            == found(pages_of(corpus.search("walrus fish", limit=20, alpha=0.4)))[:60]
        )
        assert sorted(found(pages)) == sorted(document.path for document in walruses(150))
        chance = random.Random(4)
        for at in chance.sample(range(1, len(pages)), len(pages) - 1):
            assert signed.more(pages[at - 1].continuation or "").hits == pages[at].hits
        # the key is the catalog's own
        assert corpus.more(pages[0].continuation or "").hits == pages[1].hits


def test_signed_ones_show_what_was_rewritten_and_not_what_was_deleted(database: Place) -> None:
    with open_corpus(database, continuations="signed") as corpus:
        corpus.put(*walruses(40))
        page = corpus.search("walrus fish", limit=5, alpha=1.0)
        second, third = page.more(), page.more().more()
        corpus.put(doc(second.hits[0].chunk.path, "Violins."))
        corpus.forget(project="notes", path=second.hits[1].chunk.path)
        again = page.more()
        assert found([again]) == [
            *(hit.chunk.path for hit in second.hits if hit is not second.hits[1]),
            third.hits[0].chunk.path,
        ]
        assert (again.hits[0].changed, again.hits[0].text) == (True, "Violins.")


def test_a_change_anywhere_in_a_signed_one_is_seen(shelf: Place) -> None:
    chance = random.Random(6)
    with open_corpus(shelf, continuations="signed") as corpus:
        text = corpus.search("walrus", projects="notes", limit=5).continuation or ""
        assert re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]*", text)
        places = [0, 1, 2, len(text) - 2, len(text) - 1, *chance.sample(range(len(text)), 200)]
        for place in places:
            other = chance.choice(
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".replace(
                    text[place], ""
                )
            )
            with pytest.raises(ContinuationError):
                corpus.more(text[:place] + other + text[place + 1 :])


def test_signed_ones_are_bound_to_their_key_their_caller_and_their_catalog(
    shelf: Place, places: Places
) -> None:
    with open_corpus(
        shelf, continuations="signed", continuation_key="one", project="notes"
    ) as corpus:
        text = corpus.search("walrus", limit=5, caller="ann").continuation or ""
        assert corpus.more(text, caller="ann").number == 2
        for caller in ("", "bob"):
            with pytest.raises(DeniedContinuationError):
                corpus.more(text, restart=True, caller=caller)
    with open_corpus(shelf, continuation_key="one") as same:
        assert same.more(text, caller="ann").number == 2
    for key in ("two", ""):
        with (
            open_corpus(shelf, continuations="signed", continuation_key=key) as other,
            pytest.raises(ForeignContinuationError),
        ):
            other.more(text, restart=True, caller="ann")
    with open_corpus(places.new(), continuation_key="one") as elsewhere:
        elsewhere.put(*walruses(30))
        with pytest.raises(ContinuationError):
            elsewhere.more(text, caller="ann")


@pytest.mark.parametrize("obstacle", ["folder", "other program"])
def test_where_no_window_can_be_kept_one_can_go_on_all_the_same(
    catalog_file: Path, obstacle: str
) -> None:
    if obstacle == "folder":
        kept_in(catalog_file).mkdir()
    else:
        with closing(sqlite3.connect(kept_in(catalog_file))) as connection:
            connection.execute("CREATE TABLE theirs (a INTEGER)")
            connection.execute("PRAGMA application_id=77")
    before = None if obstacle == "folder" else kept_in(catalog_file).read_bytes()
    with open_corpus(catalog_file) as corpus:
        corpus.put(*walruses(250))
        pages = pages_of(corpus.search("walrus fish", limit=30, alpha=1.0))
    assert sorted(found(pages)) == sorted(document.path for document in walruses(250))
    assert before is None or kept_in(catalog_file).read_bytes() == before


# Embedding a query once, and events


def watched(corpus: unspool.Corpus) -> list[Any]:
    events: list[Any] = []
    corpus.observe(events.append)
    return events


def test_a_walk_embeds_its_query_once_and_later_processes_not_at_all(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.put(*walruses(450))
    events = watched(corpus)
    page = corpus.search("walrus fish", limit=40, alpha=1.0)
    assert len(pages_of(page)) >= 10
    assert [event.embedding for event in events].count("computed") == 1
    assert events[0].embedding == "computed"
    with open_corpus(database) as other:
        events = watched(other)
        pages_of(other.search("walrus fish", limit=40, alpha=1.0))
        pages_of(other.more(page.continuation or ""))
        assert {event.embedding for event in events} <= {"cached", "unneeded"}


def test_words_alone_need_no_embedding(library: unspool.Corpus) -> None:
    events = watched(library)
    pages_of(library.search("walrus fish", limit=100, alpha=0.0))
    assert {event.embedding for event in events} == {"unneeded"}


def test_warmed_queries_are_not_embedded_again(corpus: unspool.Corpus, database: Place) -> None:
    corpus.put(*walruses(10))
    assert corpus.warm(["walrus tale", "fish tale", "walrus tale"]) == 2
    assert corpus.warm("fish tale") == 0
    with open_corpus(database) as other:
        for one in (corpus, other):
            events = watched(one)
            one.search("walrus tale", alpha=1.0)
            one.search("fish tale")
            one.search("something else")
            assert [event.embedding for event in events][:2] == ["cached", "cached"]
        assert other.warm(["walrus tale", "fish tale"]) == 0
    with pytest.raises(InputError):
        corpus.warm(["", "a"])


def test_every_page_is_told_to_who_watches(library: unspool.Corpus) -> None:
    events = watched(library)
    pages = pages_of(library.search("walrus fish", limit=50, alpha=0.4))
    assert len(events) == len(pages)
    for event, page in zip(events, pages, strict=True):
        assert (event.number, event.served, event.stability, event.hits, event.tokens) == (
            page.number,
            page.served,
            page.stability,
            len(page.hits),
            page.tokens,
        )
        assert (event.is_last, event.projects) == (page.continuation is None, 1)
        assert min(event.embed_s, event.search_s, event.hydrate_s) >= 0
        assert event.embed_s + event.search_s + event.hydrate_s <= event.total_s
    assert events[0].searched
    assert not events[1].searched
    assert events[1].search_s == 0
    assert any(event.served is Served.WIDER for event in events)


def test_without_looking_ahead_pages_past_the_window_search(shelf: Place) -> None:
    with open_corpus(shelf, prefetch="off", window=20) as corpus:
        events = watched(corpus)
        pages_of(corpus.search("walrus fish", projects="notes", limit=150, alpha=1.0))
        assert any(
            event.searched and event.search_s > 0
            for event in events
            if event.served is Served.WIDER
        )


def test_a_hook_that_fails_breaks_nothing_and_one_that_left_hears_nothing(
    library: unspool.Corpus,
) -> None:
    heard: list[Any] = []

    def fail(event: object) -> None:
        raise RuntimeError("a hook failed")

    library.observe(fail)
    leave = library.observe(heard.append)
    page = library.search("walrus", limit=5)
    assert page.more().number == 2
    assert len(heard) == 2
    leave()
    leave()
    assert library.search("walrus").hits
    assert len(heard) == 2


def test_events_hold_no_text(library: unspool.Corpus) -> None:
    events = watched(library)
    page = library.search("walrus fish", limit=5)
    assert "walrus" not in repr(events)
    assert (page.continuation or "") not in repr(events)


# Awaited


def test_pages_go_on_when_awaited(shelf: Place) -> None:
    async def story() -> None:
        async with aio.open(address_of(shelf)) as corpus:
            page = await corpus.search("walrus fish", projects="notes", limit=5)
            second = await corpus.more(page.continuation or "")
            assert (second.number, len(second.hits)) == (2, 5)
            assert not set(found([page])) & set(found([second]))
            assert (await corpus.more(page.continuation or "", limit=2)).hits == second.hits[:2]
            assert await corpus.warm(["walrus fish"]) == 0
            with pytest.raises(MalformedContinuationError):
                await corpus.more("nonsense")

    anyio.run(story)
