"""Going over from one embedder to another, on every engine: nothing is lost, nobody waits, and
no answer mixes two of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import unspool
from hashing import BATCH, Asked, Words
from support import (
    Place,
    Places,
    address_of,
    assert_no_orphans,
    beside,
    contents,
    doc,
    name,
    open_corpus,
    paths,
    settings_for,
    write,
)
from unspool.catalog import Catalog
from unspool.catalog.spaces import prepare_space
from unspool.embedders import open_embedder
from unspool.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    OutdatedContinuationError,
    ServiceError,
    UnreachableError,
)
from unspool.indexing import embedding, reembedding

pytestmark = pytest.mark.usefixtures("hashing")

A, B, C = "hashing:a", "hashing:b", "hashing:c"
PORTION = BATCH * embedding.LOCAL_BATCHES  # texts that are embedded and kept together
SUBJECTS = "walrus penguin tomato harvest session cache eviction token island compiler".split()
QUERIES = (
    "walrus near the island",
    "how to evict a cache",
    "tomato harvest in August",
    "session token",
)
ALPHAS = (0.0, 0.5, 1.0)


def text(number: int) -> str:
    first, second = SUBJECTS[number % 10], SUBJECTS[number * 7 % 10]
    return (
        f"Note {number} on {first} and {second}, called {name(number)}.\n\nThe {first} of "
        f"{number} knows {second}."
    )


def notes(*numbers: int, project: str = "notes") -> list[unspool.Document]:
    return [doc(f"{number}.md", text(number), project) for number in numbers]


def filled(place: Place, embedder: str = A, *, count: int = 40) -> None:
    with open_corpus(place, embedder=embedder) as corpus:
        corpus.put(*notes(*range(count)))


def go_over(place: Place, embedder: object, **more: object) -> unspool.ReembedReport:
    """As `unspool.reembed`, without the user's settings."""
    named = {"embedder": embedder} if isinstance(embedder, str) else {}
    report = unspool.reembed(settings=settings_for(place, **named), embedder=embedder, **more)  # type: ignore[arg-type]
    assert report is not None
    return report


def drop_old(place: Place) -> list[str]:
    return unspool.drop_old(settings=settings_for(place))


def answers(corpus: unspool.Corpus) -> list[list[tuple[int, float]]]:
    """What a corpus says to some questions, by words, by meaning and by both: ids in order, with
    their scores.
    """
    found = [
        corpus.search(query, projects="*", alpha=alpha, limit=200)
        for query in QUERIES
        for alpha in ALPHAS
    ]
    return [[(hit.chunk.id, round(hit.score, 5)) for hit in page.hits] for page in found]


def as_sets(found: list[list[tuple[int, float]]]) -> list[object]:
    """The same for catalogs with another history: how rare a word is counts what was removed
    until that is tidied up, and ties may turn.
    """
    return [
        sorted(answer, key=lambda hit: (-hit[1], hit[0]))
        if at % len(ALPHAS) == 2
        else {id_ for id_, _ in answer}
        for at, answer in enumerate(found)
    ]


def answers_at(place: Place, embedder: str) -> list[list[tuple[int, float]]]:
    with open_corpus(place, embedder=embedder) as corpus:
        return answers(corpus)


def spaces(place: Place) -> list[tuple[str, bool]]:
    with beside(place) as catalog:
        return [
            (embedder, bool(active))
            for embedder, active in catalog.rows("SELECT embedder, active FROM spaces ORDER BY id")
        ]


def vector_count(place: Place, embedder: str) -> int:
    with beside(place) as catalog:
        query = (
            f"SELECT count(*) FROM embeddings e JOIN spaces s ON s.id = e.space_id WHERE "
            f"s.embedder = '{embedder}'"
        )
        return catalog.rows(query)[0][0]


def kept_vectors(place: Place) -> set[str]:
    """The tables, or the folders, in which vectors are searched."""
    if isinstance(place, Path):
        return {
            folder.name.replace("-", "_")
            for folder in place.with_name(place.name + ".derived").glob("p*/vectors*")
            if folder.is_dir()
        }
    with beside(place) as catalog:
        found = catalog.rows(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'unspool' AND tablename LIKE "
            "'vectors%'"
        )
        return {table for (table,) in found}


@pytest.fixture
def reference(places: Places) -> Callable[..., list[list[tuple[int, float]]]]:
    """What a catalog that never knew another embedder answers."""

    def ask(embedder: str, documents: Sequence[unspool.Document]) -> list[list[tuple[int, float]]]:
        with open_corpus(places.new(), embedder=embedder) as corpus:
            corpus.put(*documents)
            return answers(corpus)

    return ask


# Which embedder a catalog belongs to


@pytest.mark.parametrize(
    "other", [B, "hashing:wide"], ids=["of the same dimension", "of another dimension"]
)
def test_opening_with_another_embedder_is_a_conflict_that_names_both_and_the_ways_out(
    database: Place, other: str
) -> None:
    filled(database, count=2)
    with pytest.raises(ConflictError) as caught:
        open_corpus(database, embedder=other)
    message = str(caught.value)
    for part in (A, other, f"UNSPOOL_EMBEDDER={A}", f"unspool reembed --embedder {other}"):
        assert part in message
    with open_corpus(database, embedder=A) as corpus:
        assert corpus.search("walrus").hits


def test_two_corpora_of_an_empty_catalog_cannot_fill_it_with_different_embedders(
    database: Place,
) -> None:
    with open_corpus(database, embedder=A) as first, open_corpus(database, embedder=B) as second:
        first.put(*notes(0))
        for use in (lambda: second.put(*notes(1)), lambda: second.search("walrus")):
            with pytest.raises(ConflictError, match="unspool reembed"):
                use()
        assert first.count() == 1


def test_an_object_that_answers_to_the_same_name_with_other_vectors_stores_nothing(
    database: Place,
) -> None:
    settings = settings_for(database)
    with unspool.open(settings=settings, embedder=Words("mine", seed="one")) as corpus:
        corpus.put(*notes(0, 1))
    before = contents(database)
    with unspool.open(settings=settings, embedder=Words("mine", seed="two")) as corpus:
        for _ in range(2):
            with pytest.raises(ConflictError, match="another model has that name"):
                corpus.put(*notes(2))
    assert contents(database) == before
    with unspool.open(settings=settings, embedder=Words("mine", seed="one")) as corpus:
        assert corpus.put(*notes(2)).added == 1


# What the change comes to


def test_searches_give_what_a_catalog_of_the_new_embedder_gives(
    database: Place, reference: Callable[..., list[list[tuple[int, float]]]]
) -> None:
    filled(database)
    before = answers_at(database, A)
    report = go_over(database, B)
    assert (report.embedded, report.chunks) == (40, 40)
    assert (
        report.before.startswith(A)
        and report.after.startswith(B)
        and [kept.split()[0] for kept in report.kept] == [A]
    )
    after = answers_at(database, B)
    assert after == reference(B, notes(*range(40)))
    assert after != before
    with pytest.raises(ConflictError):
        open_corpus(database, embedder=A)


def test_documents_and_chunks_stay_as_they_are(database: Place, tmp_path: Path) -> None:
    tree = write(
        tmp_path / "tree",
        {
            "a.py": '"""Module."""\n\n\ndef alpha(path):\n    return path\n',
            "b.md": "# One\n\ntext\n\n## Two\n\nmore text\n",
        },
    )
    with open_corpus(database, embedder=A) as corpus:
        corpus.index(tree, project="tree")
        corpus.put(*notes(*range(5)))
    before = assert_no_orphans(database, embedder=A)
    go_over(database, "hashing:wide")
    after = assert_no_orphans(database, embedder="hashing:wide")
    assert (after.chunks, after.documents) == (before.chunks, before.documents)
    assert after.vectors == before.vectors
    with open_corpus(database, embedder="hashing:wide") as corpus:
        assert corpus.index(tree, project="tree").unchanged == 2


def test_each_project_is_found_in_its_own(database: Place) -> None:
    with open_corpus(database, embedder=A) as corpus:
        for number in range(3):
            corpus.put(*notes(*range(number, 12, 3), project=f"p{number}"))
    go_over(database, B)
    with open_corpus(database, embedder=B) as corpus:
        for number in range(3):
            found = corpus.search("walrus", projects=f"p{number}", alpha=1, limit=50)
            assert sorted(paths(found)) == sorted(f"{n}.md" for n in range(number, 12, 3))
        assert len(corpus.search("walrus", projects="*", alpha=1, limit=50).hits) == 12
    assert_no_orphans(database, embedder=B)


def test_where_there_is_no_catalog_none_is_made(places: Places) -> None:
    with pytest.raises(NotFoundError):
        go_over(places.bare(), A)


def test_what_was_killed_between_making_and_using_the_first_space_does_not_stop_the_next(
    database: Place,
) -> None:
    open_corpus(database, embedder=A).close()
    with closing(Catalog.open(address_of(database))) as catalog, catalog.write() as connection:
        prepare_space(connection, open_embedder(A), A)
    with open_corpus(database, embedder=A) as corpus:
        corpus.put(*notes(0))
        assert paths(corpus.search("walrus")) == ["0.md"]


def test_a_text_that_is_refused_is_named_and_the_others_are_kept(
    database: Place, hashing: Asked
) -> None:
    filled(database)

    def refuse(texts: Sequence[str]) -> None:
        if any(text(7) in one for one in texts):
            raise InputError("no")

    hashing.before["b"] = refuse
    with pytest.raises(InputError, match=r"7\.md from line 1"):
        go_over(database, B)
    assert len(set(hashing.passages["b"])) == 39
    hashing.before.clear()
    assert go_over(database, B).embedded == 1


def test_an_empty_catalog_goes_over_at_once(database: Place) -> None:
    open_corpus(database, embedder=A).close()
    for embedder, before in ((A, ""), (B, A)):
        report = go_over(database, embedder)
        assert (report.embedded, report.chunks, report.before.partition(" ")[0]) == (0, 0, before)
    with pytest.raises(ConflictError), open_corpus(database, embedder=A) as corpus:
        corpus.put(*notes(0))
    with open_corpus(database, embedder=B) as corpus:
        corpus.put(*notes(0))
        assert paths(corpus.search("walrus")) == ["0.md"]


def test_going_over_to_the_one_in_use_does_nothing(database: Place, hashing: Asked) -> None:
    filled(database, count=6)
    hashing.reset()
    report = go_over(database, A)
    assert (report.embedded, report.chunks, report.kept, report.before) == (0, 6, (), report.after)
    assert hashing.count("a") == 0
    assert spaces(database) == [(A, True)]


def test_equal_texts_are_embedded_once(database: Place) -> None:
    with open_corpus(database, embedder=A) as corpus:
        corpus.put(*(doc(f"{number}.txt", "The same walrus everywhere.") for number in range(10)))
    report = go_over(database, B)
    assert (report.embedded, report.chunks) == (1, 10)
    assert vector_count(database, B) == 1


def test_an_object_of_ones_own_is_gone_over_to_and_followed_by_nobody(database: Place) -> None:
    filled(database, count=6)
    own = Words("mine")
    with open_corpus(database, embedder=A) as corpus:
        report = go_over(database, own)
        assert report.after.startswith("mine (revision 1, 16 dimensions)")
        with pytest.raises(
            ConflictError, match=r"switched to embedder mine .* open it again with that one"
        ):
            corpus.search("walrus")
    with unspool.open(settings=settings_for(database), embedder=own) as corpus:
        assert len(corpus.search("walrus", alpha=1, limit=50).hits) == 6
    with pytest.raises(ConflictError, match="open it with that one"):
        open_corpus(database, embedder=A)


# What it will cost


def plan_of(place: Place, embedder: str) -> unspool.ReembedPlan:
    plans: list[unspool.ReembedPlan] = []
    named = settings_for(place, embedder=embedder)
    assert unspool.reembed(settings=named, confirm=lambda plan: bool(plans.append(plan))) is None
    return plans[0]


def test_who_says_no_has_changed_nothing(database: Place, hashing: Asked) -> None:
    filled(database, count=6)
    before = contents(database)
    assert plan_of(database, B).texts == 6
    assert contents(database) == before
    assert spaces(database) == [(A, True)]
    assert hashing.count("b") == 0


def test_the_plan_counts_different_texts_and_tokens_and_says_what_they_cost(
    database: Place,
) -> None:
    with open_corpus(database, embedder=A) as corpus:
        corpus.put(
            doc("one.md", "One walrus."),
            doc("two.md", "One walrus."),
            doc("long.md", "island " * 100),
        )
        tokens = corpus.count_tokens("One walrus.") + corpus.count_tokens(("island " * 100).strip())
    plan = plan_of(database, B)
    assert (plan.before.partition(" ")[0], plan.after.partition(" ")[0], plan.is_done) == (
        A,
        B,
        False,
    )
    assert (plan.texts, plan.tokens, plan.price, plan.too_long) == (
        2,
        pytest.approx(tokens, abs=2),
        None,
        0,
    )
    assert plan_of(database, "hashing:dear").price == pytest.approx(plan.tokens * 20 / 1_000_000)
    assert plan_of(database, "hashing:free").price == 0
    assert plan_of(database, "hashing:short").too_long == 1
    done = plan_of(database, A)
    assert (done.is_done, done.texts, done.tokens) == (True, 0, 0)


def test_the_plan_of_going_back_counts_only_what_came_since(database: Place) -> None:
    filled(database, count=6)
    go_over(database, B)
    with open_corpus(database, embedder=B) as corpus:
        corpus.put(*notes(6))
    assert plan_of(database, A).texts == 1


def test_what_the_new_one_does_not_read_to_the_end_is_said(database: Place) -> None:
    with open_corpus(database, embedder=A) as corpus:
        corpus.put(doc("short.md", "One walrus."), doc("long.md", "island " * 100))
    report = go_over(database, "hashing:short")
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith("1 passages are longer than the 40 tokens")
    with open_corpus(database, embedder="hashing:short") as corpus:
        assert sorted(paths(corpus.search("island", alpha=1))) == ["long.md", "short.md"]


def test_a_text_that_the_new_one_refuses_leaves_the_old_in_use(database: Place) -> None:
    with open_corpus(database, embedder=A) as corpus:
        corpus.put(doc("short.md", "One walrus."), doc("long.md", "island " * 100))
    settings = settings_for(database, embedder="hashing:short", embedder_over_limit="refuse")
    with pytest.raises(InputError, match="UNSPOOL_EMBEDDER_OVER_LIMIT"):
        unspool.reembed(settings=settings)
    with open_corpus(database, embedder=A) as corpus:
        assert corpus.search("island").hits


# When it goes wrong


def test_a_provider_that_fails_in_the_middle_is_asked_only_for_the_rest_next_time(
    database: Place, hashing: Asked
) -> None:
    filled(database, count=100)

    def fail(texts: Sequence[str]) -> None:
        if hashing.count("b") >= 2 * PORTION:
            raise UnreachableError("the provider is away; try again")

    hashing.before["b"] = fail
    with pytest.raises(UnreachableError):
        go_over(database, B)
    assert spaces(database) == [(A, True), (B, False)]
    with open_corpus(database, embedder=A) as corpus:
        assert len(corpus.search("walrus", alpha=1, limit=200).hits) == 100
    assert vector_count(database, B) == 2 * PORTION
    hashing.reset()
    report = go_over(database, B)
    assert report.embedded == 100 - 2 * PORTION
    assert hashing.count("b") == report.embedded + reembedding.SAMPLE
    with open_corpus(database, embedder=B) as corpus:
        assert len(corpus.search("walrus", alpha=1, limit=200).hits) == 100


class Fickle(Words):
    """Gives the same text another vector the second time."""

    def embed_passages(self, texts: Sequence[str]) -> object:
        rows = super().embed_passages(texts)
        self.seed += "'"
        return rows


def test_an_embedder_that_changes_its_mind_is_not_gone_over_to(database: Place) -> None:
    filled(database, count=6)
    before = answers_at(database, A)
    with pytest.raises(ServiceError, match="nothing was switched"):
        go_over(database, Fickle("mine"))
    assert spaces(database) == [(A, True), ("mine", False)]
    assert answers_at(database, A) == before
    assert [dropped.partition(" ")[0] for dropped in drop_old(database)] == ["mine"]
    go_over(database, Words("mine"))
    assert spaces(database)[-1] == ("mine", True)


def test_it_is_found_out_also_where_others_wrote_meanwhile(database: Place) -> None:
    filled(database, count=6)
    with open_corpus(database, embedder=A) as corpus:
        waiting = [6]

        def write_once(progress: unspool.Progress) -> None:
            if waiting:
                corpus.put(*notes(waiting.pop()))  # so that the first round lacks something

        with pytest.raises(ServiceError, match="nothing was switched"):
            go_over(database, Fickle("mine"), on_progress=write_once)
        assert not waiting
        assert len(corpus.search("walrus", alpha=1, limit=50).hits) == 7
    assert ("mine", False) in spaces(database)


def test_two_at_once_are_a_conflict_and_the_first_goes_on(database: Place, hashing: Asked) -> None:
    filled(database, count=6)
    seen: list[str] = []

    def meanwhile(texts: Sequence[str]) -> None:
        hashing.before.clear()
        for attempt in (lambda: go_over(database, C), lambda: drop_old(database)):
            with pytest.raises(ConflictError) as caught:
                attempt()
            seen.append(str(caught.value))

    hashing.before["b"] = meanwhile
    go_over(database, B)
    assert len(seen) == 2 and all("wait until it is done" in message for message in seen)
    assert spaces(database) == [(A, False), (B, True)]


# Corpora that are open meanwhile


def test_an_open_corpus_answers_from_the_old_until_the_switch_and_from_the_new_after_it(
    database: Place, hashing: Asked, reference: Callable[..., list[list[tuple[int, float]]]]
) -> None:
    filled(database)
    old, new = reference(A, notes(*range(40))), reference(B, notes(*range(40)))
    with open_corpus(database, embedder=A) as corpus:
        assert answers(corpus) == old
        during: list[list[list[tuple[int, float]]]] = []
        go_over(database, B, on_progress=lambda progress: during.append(answers(corpus)))
        assert len(during) >= 2 and all(answer == old for answer in during)
        assert answers(corpus) == new
        corpus.put(*notes(50))
        assert paths(corpus.search(name(50), alpha=0)) == ["50.md"]
        assert "50.md" in paths(corpus.search(text(50), alpha=1, limit=1))


@pytest.mark.parametrize(
    "write_first", [True, False], ids=["which writes first", "which searches first"]
)
def test_what_an_open_corpus_writes_after_the_switch_lands_in_the_new_space(
    database: Place, tmp_path: Path, write_first: bool
) -> None:
    filled(database, count=10)
    tree = write(
        tmp_path / "tree", {"a.md": "# Walrus\n\nIt swims.\n", "b.md": "# Penguin\n\nIt walks.\n"}
    )
    with open_corpus(database, embedder=A) as corpus:
        go_over(database, B)
        if not write_first:
            assert corpus.search("walrus").hits
        assert corpus.put(*notes(10, 11)).embedded == 2
        assert corpus.index(tree, project="tree").embedded == 2
        assert corpus.forget(project="notes", path="0.md") == 1
        assert vector_count(database, B) == 14 and vector_count(database, A) == 10
        found = corpus.search("walrus", projects="*", alpha=1, limit=50)
        assert len(found.hits) == 13 and "0.md" not in paths(found)
        assert corpus.forget(project="tree") == 2
    assert_no_orphans(database, embedder=B)


def test_forgetting_is_the_first_thing_that_an_open_corpus_may_do(database: Place) -> None:
    filled(database, count=10)
    with (
        open_corpus(database, embedder=A) as document,
        open_corpus(database, embedder=A) as project,
    ):
        go_over(database, B)
        assert document.forget(project="notes", path="0.md") == 1
        assert_no_orphans(database, embedder=B)
        assert project.forget(project="notes") == 9
        with pytest.raises(NotFoundError):
            document.search("walrus", projects="notes")
    assert_no_orphans(database, embedder=B)


@pytest.mark.parametrize("drop", [False, True], ids=["the old is kept", "the old is dropped"])
def test_a_put_that_is_under_way_at_the_switch_is_repeated_in_the_new_space(
    database: Place, hashing: Asked, drop: bool
) -> None:
    filled(database, count=10)
    with open_corpus(database, embedder=A) as corpus:

        def switch(texts: Sequence[str]) -> None:
            hashing.before.clear()
            go_over(database, B, drop_old=drop)

        hashing.before["a"] = switch
        report = corpus.put(*notes(10))
        assert (report.added, report.embedded) == (1, 1)
        assert paths(corpus.search(text(10), alpha=1, limit=1)) == ["10.md"]
    assert vector_count(database, B) == 11
    assert_no_orphans(database, embedder=B)


def test_a_run_that_is_under_way_at_the_switch_is_repeated_in_the_new_space(
    database: Place, hashing: Asked, tmp_path: Path
) -> None:
    filled(database, count=2)
    tree = write(tmp_path / "tree", {f"{number}.md": text(number) for number in range(20, 30)})
    with open_corpus(database, embedder=A) as corpus:

        def switch(texts: Sequence[str]) -> None:
            hashing.before.clear()
            go_over(database, B)

        hashing.before["a"] = switch
        report = corpus.index(tree, project="tree")
        assert (
            report.failed,
            report.busy,
            len(corpus.documents(project="tree", status="indexed")),
        ) == (0, 0, 10)
        assert len(corpus.search("walrus", projects="tree", alpha=1, limit=50).hits) == 10
    assert_no_orphans(database, embedder=B)


@pytest.mark.parametrize("drop", [False, True], ids=["the old is kept", "the old is dropped"])
def test_a_search_that_is_under_way_at_the_switch_gives_a_whole_answer(
    database: Place,
    hashing: Asked,
    drop: bool,
    reference: Callable[..., list[list[tuple[int, float]]]],
) -> None:
    filled(database)
    query, whole = QUERIES[0], []
    for embedder in (A, B):
        at = QUERIES.index(query) * len(ALPHAS) + ALPHAS.index(0.5)
        whole.append(reference(embedder, notes(*range(40)))[at])
    with open_corpus(database, embedder=A) as corpus:

        def switch(texts: Sequence[str]) -> None:
            hashing.before_query.clear()
            go_over(database, B, drop_old=drop)

        hashing.before_query["a"] = switch
        page = corpus.search(query, alpha=0.5, limit=200)
        assert [(hit.chunk.id, round(hit.score, 5)) for hit in page.hits] in whole
        assert [
            (hit.chunk.id, round(hit.score, 5))
            for hit in corpus.search(query, alpha=0.5, limit=200).hits
        ] == whole[1]


def test_a_vector_made_by_an_open_corpus_is_one_of_the_space_that_it_searches(
    database: Place,
) -> None:
    filled(database, count=10)
    with open_corpus(database, embedder=A) as corpus, open_corpus(database, embedder=A) as other:
        assert corpus.nearest(corpus.embed(text(3)), k=1)[0].chunk.path == "3.md"
        go_over(database, B)
        assert corpus.nearest(corpus.embed(text(3)), k=1)[0].chunk.path == "3.md"
        go_over(database, "hashing:wide")
        assert other.nearest(corpus.embed(text(3)), k=1)[0].chunk.path == "3.md"
        assert [hit.chunk.path for hit in other.related("3.md", limit=5).hits]


def test_refreshing_a_corpus_that_was_open_before_loses_nothing_that_came_after(
    database: Place,
) -> None:
    filled(database, count=10)
    with open_corpus(database, embedder=A) as corpus:
        assert corpus.search("walrus").hits
        go_over(database, B)
        with open_corpus(database, embedder=B) as other:
            other.put(*notes(10, 11))
        corpus.refresh()
        assert paths(corpus.search(name(10), alpha=0)) == ["10.md"]
        assert [status.waiting for status in corpus.status()] == [0]
    assert_no_orphans(database, embedder=B)


def test_what_takes_in_too_late_for_the_old_space_does_no_harm_to_the_new(
    database: Place, hashing: Asked
) -> None:
    """A search of the old space is under way while the catalog goes over and much is put; then
    it takes in what it finds in the catalog.
    """
    filled(database, count=10)
    with open_corpus(database, embedder=A) as corpus:

        def switch(texts: Sequence[str]) -> None:
            hashing.before_query.clear()
            go_over(database, B)
            with open_corpus(database, embedder=B) as other:
                for start in range(100, 400, 150):
                    # more than is scored without being taken in
                    other.put(*notes(*range(start, start + 150)))

        hashing.before_query["a"] = switch
        corpus.search("walrus")
    with open_corpus(database, embedder=B) as corpus:
        for number in (100, 399):
            assert paths(corpus.search(name(number), alpha=0)) == [f"{number}.md"]
            assert f"{number}.md" in paths(corpus.search(text(number), alpha=1, limit=1))
    assert_no_orphans(database, embedder=B)


def test_a_corpus_does_not_take_a_new_space_for_one_that_was_dropped(database: Place) -> None:
    filled(database, count=10)
    go_over(database, B)
    with open_corpus(database, embedder=B) as corpus:
        assert corpus.search("walrus").hits
        go_over(database, A, drop_old=True)
        go_over(database, C)
        assert paths(corpus.search(text(3), alpha=1, limit=1)) == ["3.md"]
        assert paths(corpus.search(text(4), alpha=1, limit=1)) == ["4.md"]


# Walks


@pytest.mark.parametrize("continuations", ["stored", "signed"])
def test_a_walk_does_not_go_on_in_another_space(database: Place, continuations: str) -> None:
    filled(database)
    with open_corpus(database, embedder=A, continuations=continuations) as corpus:
        page = corpus.search("walrus", limit=5)
        assert page.continuation is not None
        go_over(database, B)
        first = corpus.search("walrus", limit=5)
        with pytest.raises(OutdatedContinuationError):
            corpus.more(page.continuation)
        again = corpus.more(page.continuation, restart=True)
        assert [hit.chunk.id for hit in again.hits] == [hit.chunk.id for hit in first.hits]
        assert (again.number, len(again.warnings)) == (1, 1)
        assert again.warnings[0].endswith("this is the first page again")
    with (
        open_corpus(database, embedder=B, continuations=continuations) as corpus,
        pytest.raises(OutdatedContinuationError),
    ):
        corpus.more(page.continuation)


# Writers meanwhile


def test_what_others_write_change_and_delete_during_the_build_is_right_after_it(
    database: Place, hashing: Asked, reference: Callable[..., list[list[tuple[int, float]]]]
) -> None:
    """Three threads, each with documents of its own, and an embedder that lets each write
    between its portions.
    """
    filled(database, count=90)
    turns = threading.Semaphore(0)
    over = threading.Event()
    expected = {number: text(number) for number in range(90)}
    hashing.before["b"] = lambda texts: turns.release(3)

    def writer(which: int) -> None:
        with open_corpus(database, embedder=A) as corpus:
            for turn in range(30):
                turns.acquire()
                if over.is_set():
                    return
                number = turn * 3 + which
                if turn % 3 == 0:
                    corpus.put(
                        doc(
                            f"{number}.md",
                            f"Rewritten {name(number)} about the {SUBJECTS[turn % 10]}.",
                        )
                    )
                    expected[number] = f"Rewritten {name(number)} about the {SUBJECTS[turn % 10]}."
                elif turn % 3 == 1:
                    corpus.forget(project="notes", path=f"{number}.md")
                    del expected[number]
                else:
                    corpus.put(*notes(1000 + number))
                    expected[1000 + number] = text(1000 + number)

    with ThreadPoolExecutor(3) as threads:
        writers = [threads.submit(writer, which) for which in range(3)]
        try:
            go_over(database, B)
        finally:
            hashing.before.clear()
            over.set()
            turns.release(90)
        for one in writers:
            one.result()
    assert len(expected.keys() - set(range(90))) >= 3 and len(expected) < 90 + 30, (
        "hardly anything was written meanwhile"
    )
    assert_no_orphans(database, embedder=B)
    wanted = [doc(f"{number}.md", content) for number, content in expected.items()]
    assert as_sets(answers_at(database, B)) == as_sets(reference(B, wanted))


def test_writers_who_never_rest_cannot_keep_it_from_ending(database: Place) -> None:
    filled(database, count=6)
    written: list[int] = []
    with open_corpus(database, embedder=A) as corpus:

        def write_more(progress: unspool.Progress) -> None:
            if progress.task == "embedding" and len(written) < 80:
                written.append(100 + len(written))
                corpus.put(*notes(written[-1]))

        go_over(database, B, on_progress=write_more)
        assert len(written) < 80, "it only ended when the writer did"
        assert len(corpus.search("walrus", alpha=1, limit=200).hits) == 6 + len(written)
    assert_no_orphans(database, embedder=B)


# Going back


def test_going_back_costs_nothing_for_what_is_unchanged(database: Place, hashing: Asked) -> None:
    filled(database)
    before = answers_at(database, A)
    go_over(database, B)
    hashing.reset()
    report = go_over(database, A)
    assert (report.embedded, report.chunks) == (0, 40)
    assert hashing.count("a") <= reembedding.SAMPLE, "some are embedded again to verify"
    assert answers_at(database, A) == before
    assert [kept.partition(" ")[0] for kept in report.kept] == [B]


def test_going_back_embeds_what_came_since_and_knows_what_went(
    database: Place, hashing: Asked, reference: Callable[..., list[list[tuple[int, float]]]]
) -> None:
    filled(database)
    go_over(database, B)
    with open_corpus(database, embedder=B) as corpus:
        corpus.put(doc("0.md", "Rewritten about the walrus."), *notes(40, 41))
        corpus.forget(project="notes", path="1.md")
        corpus.refresh()
        corpus.forget(project="notes", path="2.md")
    assert go_over(database, A).embedded == 3
    wanted = [doc("0.md", "Rewritten about the walrus."), *notes(*range(3, 42))]
    assert as_sets(answers_at(database, A)) == as_sets(reference(A, wanted))
    assert_no_orphans(database, embedder=A)


def test_a_document_that_was_forgotten_and_put_again_is_found_by_filters_after_going_back(
    database: Place,
) -> None:
    filled(database, count=10)
    go_over(database, B)
    with open_corpus(database, embedder=B) as corpus:
        corpus.forget(project="notes", path="3.md")
        corpus.put(*notes(3))
    go_over(database, A)
    with open_corpus(database, embedder=A) as corpus:
        assert paths(corpus.search("walrus", alpha=1, where={"path": "3.md"})) == ["3.md"]
    assert_no_orphans(database, embedder=A)


def test_a_project_that_was_forgotten_while_another_space_was_in_use_is_gone_from_both(
    database: Place,
) -> None:
    with open_corpus(database, embedder=A) as corpus:
        corpus.put(*notes(0, 1, project="one"))
        corpus.put(*notes(2, 3, project="two"))
    go_over(database, B)
    with open_corpus(database, embedder=B) as corpus:
        corpus.forget(project="one")
        corpus.put(*notes(0, project="one"))
    go_over(database, A)
    found = assert_no_orphans(database, embedder=A)
    assert set(found.vectors) == {"one", "two"}
    with open_corpus(database, embedder=A) as corpus:
        assert paths(corpus.search("walrus", projects="one", alpha=1)) == ["0.md"]


def test_the_old_can_be_dropped_at_once_or_later_and_only_the_one_in_use_stays(
    database: Place, hashing: Asked
) -> None:
    filled(database)
    with open_corpus(database, embedder=A) as corpus:
        corpus.refresh()
    go_over(database, B)
    old, both = kept_vectors(database) - {_newest(kept_vectors(database))}, kept_vectors(database)
    assert (len(old), len(both)) == (1, 2)
    before = answers_at(database, B)
    assert [dropped.partition(" ")[0] for dropped in drop_old(database)] == [A]
    assert drop_old(database) == []
    assert kept_vectors(database) == both - old
    assert (vector_count(database, A), spaces(database)) == (0, [(B, True)])
    assert answers_at(database, B) == before
    hashing.reset()
    report = go_over(database, A, drop_old=True)
    assert (
        report.embedded,
        report.kept,
        [dropped.partition(" ")[0] for dropped in report.dropped],
    ) == (40, (), [B])
    assert len(kept_vectors(database)) == 1 and not kept_vectors(database) & both
    assert spaces(database) == [(A, True)]
    assert_no_orphans(database, embedder=A)


def _newest(names: set[str]) -> str:
    return max(names, key=lambda one: int(one.rpartition("_")[2]))
