"""Several who write: at a version that they have seen, or each their own.

Nobody overwrites what he has not read, and nothing is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import unspool
from support import Place, assert_no_orphans, contents, doc, name, open_corpus, paths
from unspool.errors import ConflictError, InputError

TOGETHER = 4


def version_of(corpus: unspool.Corpus, path: str = "a.md", project: str = "notes") -> int:
    (record,) = corpus.documents(project=project, path=path)
    return record.version


def text_of(corpus: unspool.Corpus, path: str = "a.md") -> str:
    (hit,) = corpus.search("walrus", where={"document": path}).hits
    return hit.chunk.text


def at_once(work: Callable[[int], object], count: int = TOGETHER) -> list[object]:
    """What each gives back, or the conflict that it ran into; all begin together."""
    ready = threading.Barrier(count)

    def begin(number: int) -> object:
        ready.wait(timeout=60)
        try:
            return work(number)
        except ConflictError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


# Versions


def test_putting_at_the_version_that_is_shown_succeeds_and_raises_it(
    corpus: unspool.Corpus,
) -> None:
    corpus.put(doc("a.md", "walrus 0"))
    seen = [version_of(corpus)]
    for number in range(1, 4):
        report = corpus.put(doc("a.md", f"walrus {number}", version=seen[-1]))
        assert (report.added, report.updated) == (0, 1)
        assert text_of(corpus) == f"walrus {number}"
        seen.append(version_of(corpus))
    assert seen == sorted(set(seen))
    assert seen[0] > 0


def test_putting_the_same_text_or_without_a_version_raises_it_too(corpus: unspool.Corpus) -> None:
    corpus.put(doc("a.md", "walrus"))
    first = version_of(corpus)
    corpus.put(doc("a.md", "walrus", version=first))
    second = version_of(corpus)
    corpus.put(doc("a.md", "walrus"))
    assert first < second < version_of(corpus)


@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_another_version_is_a_conflict_that_changes_nothing_and_can_be_tried_again(
    corpus: unspool.Corpus, database: Place, off: int
) -> None:
    for number in range(3):
        corpus.put(doc("a.md", f"walrus {number}"))
    now, before = version_of(corpus), contents(database)
    with pytest.raises(ConflictError, match=r"a\.md"):
        corpus.put(doc("a.md", "walrus by somebody else", version=now + off))
    assert (version_of(corpus), contents(database)) == (now, before)
    corpus.put(doc("a.md", "walrus by somebody else", version=version_of(corpus)))
    assert text_of(corpus) == "walrus by somebody else"
    assert_no_orphans(database)


def test_version_0_means_that_it_must_be_new(corpus: unspool.Corpus) -> None:
    assert corpus.put(doc("a.md", "walrus", version=0)).added == 1
    with pytest.raises(ConflictError, match="new"):
        corpus.put(doc("a.md", "another walrus", version=0))
    assert text_of(corpus) == "walrus"
    corpus.forget(project="notes", path="a.md")
    assert corpus.put(doc("a.md", "another walrus", version=0)).added == 1


def test_what_is_gone_cannot_be_put_at_the_version_it_had(corpus: unspool.Corpus) -> None:
    corpus.put(doc("a.md", "walrus"), doc("b.md", "walrus"))
    seen = version_of(corpus)
    corpus.forget(project="notes", path="a.md")
    with pytest.raises(ConflictError, match="does not exist"):
        corpus.put(doc("a.md", "walrus again", version=seen))
    assert [record.path for record in corpus.documents()] == ["b.md"]


def test_a_project_that_a_conflict_would_have_made_is_not_made(corpus: unspool.Corpus) -> None:
    with pytest.raises(ConflictError):
        corpus.put(doc("a.md", "walrus", version=3))
    assert corpus.projects() == []


def test_of_several_documents_with_one_at_another_version_none_is_stored(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.put(doc("a.md", "walrus a"), doc("b.md", "walrus b"))
    before = contents(database)
    changed = [
        doc("a.md", "walrus changed", version=version_of(corpus)),
        doc("b.md", "walrus changed", version=99),
        doc("c.md", "walrus c"),
    ]
    with pytest.raises(ConflictError, match=r"b\.md"):
        corpus.put(*changed)
    assert contents(database) == before


def test_versions_of_other_projects_do_not_matter(corpus: unspool.Corpus) -> None:
    corpus.put(doc("a.md", "walrus one", "one"))
    corpus.put(doc("a.md", "walrus one", "one"))
    assert corpus.put(doc("a.md", "walrus two", "two", version=0)).added == 1
    corpus.put(doc("a.md", "walrus two", "two", version=version_of(corpus, project="two")))


@pytest.mark.parametrize("version", [-1, 1.0, "1", True, [1]])
def test_what_is_no_version_is_refused(version: object) -> None:
    with pytest.raises(InputError, match="version"):
        doc("a.md", "walrus", version=version)


@pytest.mark.parametrize("corpora", ["one corpus", "each his own"])
def test_of_those_who_put_at_the_same_version_at_once_exactly_one_wins(
    database: Place, corpora: str
) -> None:
    with ExitStack() as opened:
        first = opened.enter_context(open_corpus(database))
        writers = [
            first if corpora == "one corpus" else opened.enter_context(open_corpus(database))
            for _ in range(TOGETHER)
        ]
        first.put(doc("a.md", "walrus"))
        for turn in range(4):
            seen = version_of(first)
            texts = [f"walrus {name(turn)} of writer {number}" for number in range(TOGETHER)]
            results = at_once(
                lambda number, texts=texts, seen=seen: writers[number].put(
                    doc("a.md", texts[number], version=seen)
                )
            )  # type: ignore[misc]
            winners = [
                number
                for number, result in enumerate(results)
                if not isinstance(result, ConflictError)
            ]
            assert len(winners) == 1
            assert text_of(first) == texts[winners[0]]
            assert version_of(first) > seen
    assert_no_orphans(database)


def test_of_those_who_make_the_same_document_at_once_exactly_one_does(database: Place) -> None:
    with open_corpus(database) as corpus:
        corpus.put(doc("start.md", "penguin"))
        for turn in range(4):
            path = f"{turn}.md"
            results = at_once(
                lambda number, path=path: corpus.put(
                    doc(path, f"walrus of writer {number}", version=0)
                )
            )  # type: ignore[misc]
            assert sum(isinstance(result, ConflictError) for result in results) == TOGETHER - 1
    assert_no_orphans(database)


def test_a_counter_that_everybody_raises_by_reading_it_again_misses_nobody(database: Place) -> None:
    """The loop that versions are for."""

    def add_one(_: int) -> int:
        tries = 0
        while True:
            tries += 1
            seen = version_of(corpus)
            count = int(text_of(corpus).split()[-1])
            try:
                corpus.put(doc("a.md", f"walrus {count + 1}", version=seen))
            except ConflictError:
                continue
            return tries

    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus 0"))
        # The version is read before the text: were it the other way round, a write in between could
        # be overwritten.
        for _ in range(3):
            assert all(isinstance(tries, int) for tries in at_once(add_one))
        assert text_of(corpus) == f"walrus {3 * TOGETHER}"


# Each his own


@pytest.mark.parametrize("corpora", ["one corpus", "each his own"])
def test_writers_of_different_documents_in_one_project_lose_nothing(
    database: Place, corpora: str
) -> None:
    def write(number: int) -> None:
        for turn in range(6):
            some = [
                doc(f"{number}/{turn}/{at}.md", f"walrus {name(number)} {name(turn)} {name(at)}")
                for at in range(3)
            ]
            writers[number].put(*some)
            assert f"{number}/{turn}/0.md" in paths(
                writers[number].search(f"{name(number)} {name(turn)}", alpha=0, limit=50)
            )
            if turn % 2:
                writers[number].forget(project="notes", path=f"{number}/{turn}/1.md")

    with ExitStack() as opened:
        first = opened.enter_context(open_corpus(database))
        writers = [
            first if corpora == "one corpus" else opened.enter_context(open_corpus(database))
            for _ in range(TOGETHER)
        ]
        assert at_once(write) == [None] * TOGETHER
        expected = {
            f"{number}/{turn}/{at}.md"
            for number in range(TOGETHER)
            for turn in range(6)
            for at in range(3)
            if not (turn % 2 and at == 1)
        }
        for alpha in (0, 1):
            assert set(paths(first.search("walrus", alpha=alpha, limit=100))) == expected
    found = assert_no_orphans(database)
    assert {path for _, path in found.documents} == expected
    assert len(found.chunks) == len(expected)


def test_writers_of_the_same_documents_without_versions_leave_one_of_each(database: Place) -> None:
    def write(number: int) -> None:
        # against each other, so that whoever locks in this order would wait for ever
        order = range(8) if number % 2 else range(7, -1, -1)
        for _ in range(3):
            corpus.put(*(doc(f"{at}.md", f"walrus {name(at)} by {name(number)}") for at in order))

    with open_corpus(database) as corpus:
        assert at_once(write) == [None] * TOGETHER
        hits = corpus.search("walrus", alpha=0, limit=100).hits
        assert sorted(hit.chunk.path for hit in hits) == [f"{at}.md" for at in range(8)]
        assert len({hit.chunk.text.rpartition(" ")[2] for hit in hits}) == 1, (
            "each put is all or nothing, so the last one wrote them all"
        )
    assert len(assert_no_orphans(database).chunks) == 8


def test_writers_of_different_projects_with_the_same_texts_share_their_embeddings(
    database: Place,
) -> None:
    """The texts are the same, so their vectors are stored once, whoever comes first."""

    def write(number: int) -> None:
        order = range(12) if number % 2 else range(11, -1, -1)
        corpus.put(*(doc(f"{at}.md", f"walrus {name(at)}", f"project{number}") for at in order))

    with open_corpus(database) as corpus:
        assert at_once(write) == [None] * TOGETHER
        assert len(corpus.search("walrus", projects="*", limit=100).hits) == 12 * TOGETHER
    found = assert_no_orphans(database)
    assert found.embeddings == 12


def test_one_who_forgets_a_project_while_others_write_into_it_leaves_all_or_nothing(
    database: Place,
) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            if number:
                corpus.put(
                    *(
                        doc(f"{number}/{turn}/{at}.md", f"walrus {name(turn)} {name(at)}")
                        for at in range(3)
                    )
                )
            else:
                try:
                    corpus.forget(project="notes")
                except unspool.errors.NotFoundError:
                    continue

    with open_corpus(database) as corpus:
        corpus.put(doc("start.md", "walrus"))
        at_once(work)
        corpus.put(doc("end.md", "walrus at the end"))
        assert "end.md" in paths(corpus.search("walrus", limit=100))
    found = assert_no_orphans(database)
    whole = {path.rpartition("/")[0] for _, path in found.documents if "/" in path}
    assert {path for _, path in found.documents if "/" in path} == {
        f"{put}/{at}.md" for put in whole for at in range(3)
    }


def test_a_document_that_is_written_again_and_again_is_found_once_by_every_search(
    database: Place,
) -> None:
    """On failure: something is read in two states, and what was replaced between them is lost or
    shown twice.
    """
    with open_corpus(database) as corpus:
        corpus.put(doc("a.md", "walrus 0"))
        is_over = threading.Event()

        def write(number: int) -> None:
            for at in range(60):
                corpus.put(doc("a.md", f"walrus {number} {at}"))

        def search() -> list[int]:
            counts = []
            while not is_over.is_set():
                counts.append(len(corpus.search("walrus", where={"document": "a.md"}).hits))
            return counts

        with ThreadPoolExecutor(4) as pool:
            searches = [pool.submit(search) for _ in range(2)]
            try:
                for done in [pool.submit(write, number) for number in range(2)]:
                    done.result()
            finally:
                is_over.set()
            assert {count for one in searches for count in one.result()} == {1}
