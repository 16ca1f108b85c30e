"""Finding what was said: by words, by who, when and where; with what was said around it, within
a budget, page by page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unspool
from support import Place, Places, doc, name, open_corpus
from talks import NOON, answer, found, numbers, said, talk
from unspool.domain.conversations import AuthorKind
from unspool.domain.queries import Said
from unspool.errors import FilterError
from unspool.search import budget, exchanges

FILL = [
    "Good morning everybody",
    "The coffee is cold again",
    "Who has the minutes of last week",
    "I sent them yesterday",
    "Traffic was terrible today",
    "Let us begin",
    "My window does not close",
    "The printer is out of paper",
    "See you after lunch",
    "Did the plants get water",
    "It rained the whole night",
    "The lift is stuck",
]


@pytest.fixture(scope="module")
def shared(module_places: Places) -> Iterator[unspool.Corpus]:
    """Conversations that the tests of this module only read."""
    with open_corpus(module_places.new()) as corpus:
        corpus.remember(
            talk(
                "office",
                *FILL[:4],
                said("Which colour did we choose for the remote control casing?", "Ann"),
                answer("Yellow, I think."),
                *FILL[4:8],
            ),
            talk("garden", *FILL[8:], said("Tomatoes want sun.", "Björn"), title="Vegetable patch"),
            talk(
                "diary",
                *(
                    said(
                        f"Entry {name(day)}",
                        "Ann" if day % 2 else "Bob",
                        at=NOON + timedelta(days=day),
                    )
                    for day in range(12)
                ),
                said("an entry without a time", "Ann"),
                answer("noted", author="Helper", at=NOON + timedelta(days=12)),
            ),
            talk("short", "the only message about zebras"),
        )
        yield corpus


# Neighbours


def test_the_answer_beside_the_question_is_found_though_it_has_none_of_its_words(
    shared: unspool.Corpus,
) -> None:
    hits = found(shared.search("colour of the remote control casing", alpha=0, limit=5))
    assert hits[0] == ("office", 5)
    assert ("office", 6) in hits[:3]
    assert {number for path, number in hits if path == "office"} <= set(range(1, 10)), (
        "no farther than the reach of a message"
    )


def test_what_stands_far_from_every_match_is_not_found(shared: unspool.Corpus) -> None:
    assert ("office", 10) not in found(
        shared.search("colour of the remote control casing", alpha=0, limit=50)
    )
    assert found(shared.search("zebras", alpha=0)) == [("short", 1)]


def test_messages_with_the_same_text_are_hits_of_their_own(corpus: unspool.Corpus) -> None:
    corpus.remember(talk("a", "yes walrus", "no", "yes walrus"), talk("b", "yes walrus"))
    page = corpus.search("yes walrus", alpha=0)
    assert sorted(found(page)) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    assert sorted(found(corpus.search("yes walrus", alpha=0, where={"speaker": "user"}))) == [
        ("a", 1),
        ("a", 3),
        ("b", 1),
    ]
    assert all(hit.copies == () for hit in page.hits)


def test_the_title_of_a_conversation_finds_it(shared: unspool.Corpus) -> None:
    assert {path for path, _ in found(shared.search("vegetable patch", alpha=0, limit=20))} == {
        "garden"
    }


@pytest.mark.parametrize(
    "query", ["what happened on 4 May 2024", "saturday 4 may", "Entry of May 4th"]
)
def test_a_question_that_names_a_day_finds_what_was_said_on_it(
    shared: unspool.Corpus, query: str
) -> None:
    best = shared.search(query, alpha=0, limit=1).hits[0]
    assert best.message is not None and best.message.at is not None
    assert best.message.at.date() == date(2024, 5, 4)


def test_a_question_that_names_a_month_finds_what_was_said_in_it(corpus: unspool.Corpus) -> None:
    for month in range(1, 13):
        corpus.remember(talk(f"m{month}", said("Entry", at=datetime(2023, month, 15, tzinfo=UTC))))
    assert found(corpus.search("the entry of october 2023", alpha=0))[0] == ("m10", 1)


# Filters


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"conversation": "garden"}, {("garden", number) for number in range(1, 6)}),
        ({"conversation": "nobody"}, set()),
        (
            {"conversation": "diary", "speaker": "bob"},
            {("diary", number) for number in range(1, 13, 2)},
        ),
        ({"speaker": "BJÖRN"}, {("garden", 5)}),
        ({"speaker": "assistant"}, {("office", 6), ("diary", 14)}),
        ({"speaker": "helper"}, {("diary", 14)}),
        ({"speaker": ["björn", "helper"]}, {("garden", 5), ("diary", 14)}),
        ({"time": {"ge": "2024-05-11"}}, {("diary", number) for number in (11, 12, 14)}),
        ({"time": {"gt": "2024-05-11T12:00:00Z"}}, {("diary", number) for number in (12, 14)}),
        ({"time": {"ge": date(2024, 5, 3), "lt": date(2024, 5, 5)}}, {("diary", 3), ("diary", 4)}),
        ({"time": {"lt": "2024-05-02T14:00:00+02:00"}}, {("diary", 1)}),
        ({"time": {"le": datetime(2024, 5, 2, 12, tzinfo=UTC)}}, {("diary", 1), ("diary", 2)}),
        ({"time": NOON}, {("diary", 1)}),
        (
            {"time": {"ge": "1500-01-01"}, "speaker": "ann"},
            {("diary", number) for number in range(2, 13, 2)},
        ),
        ({"conversation": "diary", "not": {"time": {"ge": "1500-01-01"}}}, {("diary", 13)}),
        ({"conversation": "diary", "speaker": {"not": ["ann", "bob"]}}, {("diary", 14)}),
        (
            {"any": [{"conversation": "short"}, {"speaker": "helper"}]},
            {("short", 1), ("diary", 14)},
        ),
    ],
)
@pytest.mark.parametrize("alpha", [0.4, 1])
def test_a_filter_lets_exactly_through_what_matches_and_no_neighbour(
    shared: unspool.Corpus, where: dict[str, object], expected: set[tuple[str, int]], alpha: float
) -> None:
    for query in ("Entry noted tomatoes casing zebras", "Yellow noted"):
        hits = found(shared.search(query, where=where, alpha=alpha, limit=100))
        assert len(hits) == len(set(hits))
        assert set(hits) == expected


def test_a_neighbour_that_a_filter_leaves_out_still_lends_its_score(shared: unspool.Corpus) -> None:
    where = {"conversation": "office", "speaker": {"not": "ann"}}
    best = numbers(shared, "colour of the remote control casing", alpha=0, where=where, limit=5)
    assert best == [], "by words alone none of those that are left is found"
    best = numbers(shared, "colour of the remote control casing", alpha=1, where=where, limit=5)
    assert 5 not in best and set(best[:2]) == {4, 6}, (
        "without the question itself, those right beside it come first"
    )


@pytest.mark.parametrize(
    ("where", "cure"),
    [
        ({"speaker": 5}, "give a string"),
        ({"speaker": {"gt": "a"}}, "has no order"),
        ({"conversation": ""}, "give a string"),
        ({"time": "yesterday"}, "give a time such as"),
        ({"speakers": "ann"}, "did you mean 'speaker'"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_with_the_cure(
    shared: unspool.Corpus, where: dict[str, object], cure: str
) -> None:
    with pytest.raises(FilterError, match=cure):
        shared.search("walrus", where=where)


# The exchange around a hit


def shown(hit: unspool.Hit) -> tuple[list[int], int, list[int]]:
    assert hit.message is not None
    return [one.number for one in hit.before], hit.message.number, [one.number for one in hit.after]


def test_a_hit_is_shown_with_what_was_said_right_before_and_after(shared: unspool.Corpus) -> None:
    def best(query: str) -> unspool.Hit:
        return shared.search(query, alpha=0, limit=1, max_tokens=0, projects="conversations").hits[
            0
        ]

    middle = best("colour of the casing")
    assert shown(middle) == ([4], 5, [6])
    assert (middle.message, middle.text) == (
        Said(number=5, speaker="Ann", kind=AuthorKind.USER, text=middle.chunk.text),
        "Which colour did we choose for the remote control casing?",
    )
    assert [(one.speaker, one.kind, one.text) for one in (*middle.before, *middle.after)] == [
        ("user", AuthorKind.USER, FILL[3]),
        ("assistant", AuthorKind.ASSISTANT, "Yellow, I think."),
    ]
    assert shown(best("zebras")) == ([], 1, [])
    assert shown(best("good morning everybody")) == ([], 1, [2])
    assert shown(best("tomatoes sun")) == ([4], 5, [])
    last = best("noted helper")
    assert last.message is not None
    assert (shown(last), last.message.at, last.before[0].at) == (
        ([13], 14, []),
        NOON + timedelta(days=12),
        None,
    )


def test_no_message_is_on_a_page_twice(shared: unspool.Corpus) -> None:
    for limit in (1, 2, 3, 5, 9, 40):
        page = shared.search("entry of ann and bob, coffee and tomatoes", limit=limit, max_tokens=0)
        every = [
            (hit.chunk.path, number)
            for hit in page.hits
            for part in shown(hit)
            for number in ([part] if isinstance(part, int) else part)
        ]
        assert len(every) == len(set(every))


def test_a_long_message_beside_a_hit_is_cut_and_says_so(corpus: unspool.Corpus) -> None:
    corpus.remember(talk("c", "long  before\n" * 100, "walrus", " ", "after"))
    hit = corpus.search("walrus", alpha=0, limit=1, max_tokens=0).hits[0]
    (before,) = hit.before
    assert before.is_cut and before.text.endswith("…") and "\n" not in before.text
    assert len(before.text) <= exchanges.MOST + 1
    assert hit.after == (), "a blank message is not shown"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    max_tokens=st.integers(1, 2000),
    limit=st.integers(1, 40),
    query=st.sampled_from(["entry of ann", "tomatoes casing coffee"]),
)
def test_a_page_costs_what_it_shows_and_never_more_than_allowed(
    shared: unspool.Corpus, max_tokens: int, limit: int, query: str
) -> None:
    page = shared.search(query, max_tokens=max_tokens, limit=limit)
    assert page.tokens == sum(hit.tokens for hit in page.hits)
    for hit in page.hits:
        context = "\n".join(one.line for one in (*hit.before, *hit.after))
        cost = sum(
            shared.count_tokens(text)
            for text in (budget.format_header(hit.chunk), hit.text, context)
            if text
        )
        assert hit.tokens == cost
        assert not context or hit.form is unspool.Form.WHOLE
    assert page.tokens <= max_tokens or (len(page.hits) == 1 and page.warnings)


def test_what_is_left_of_a_budget_goes_to_the_exchange_and_hits_come_first(
    shared: unspool.Corpus,
) -> None:
    def search(max_tokens: int) -> unspool.Page:
        return shared.search("tomatoes casing coffee zebras", limit=6, max_tokens=max_tokens)

    bare = sum(
        shared.count_tokens(budget.format_header(hit.chunk)) + hit.chunk.token_count
        for hit in search(0).hits
    )
    assert all(
        hit.form is unspool.Form.WHOLE and not (hit.before or hit.after)
        for hit in search(bare).hits
    )
    assert any(hit.before or hit.after for hit in search(bare + 40).hits)
    assert search(5000).tokens == search(0).tokens


# Page by page


@pytest.fixture
def mixed(corpus: unspool.Corpus) -> unspool.Corpus:
    """Documents and conversations in three projects; everything holds the word that is asked
    for, or stands beside it.
    """
    for project in ("one", "two", "three"):
        corpus.put(
            *(
                doc(f"{number}.md", f"walrus {name(number)} of {project}", project)
                for number in range(15)
            )
        )
        for number in range(4):
            messages = [
                f"walrus {name(turn)}" if turn % 3 == 0 else FILL[turn % len(FILL)] + f" {turn}"
                for turn in range(12)
            ]
            corpus.remember(talk(f"c{number}", *messages, project=project, title=f"Talk {number}"))
    return corpus


def walked(corpus: unspool.Corpus, query: str, **more: object) -> list[unspool.Hit]:
    page = corpus.search(query, **more)  # type: ignore[arg-type]
    hits = list(page.hits)
    while page.continuation is not None:
        page = page.more()
        hits += page.hits
    return hits


def keys(hits: list[unspool.Hit]) -> list[tuple[str, str, int]]:
    return [(hit.chunk.project, hit.chunk.path, hit.chunk.lines.first) for hit in hits]


@pytest.mark.parametrize(("limit", "max_tokens"), [(7, 0), (40, 150), (100, 0)])
def test_paging_through_everything_gives_each_message_once_in_the_same_order(
    mixed: unspool.Corpus, limit: int, max_tokens: int
) -> None:
    runs = [
        walked(mixed, "walrus", projects="*", limit=limit, max_tokens=max_tokens) for _ in range(3)
    ]
    assert keys(runs[0]) == keys(runs[1]) == keys(runs[2])
    expected = {
        (project, f"{number}.md", 1) for project in ("one", "two", "three") for number in range(15)
    }
    expected |= {
        (project, f"c{number}", turn)
        for project in ("one", "two", "three")
        for number in range(4)
        for turn in range(1, 13)
    }
    assert Counter(keys(runs[0])) == Counter(expected)
    scores = [hit.score for hit in runs[0]]
    assert scores == sorted(scores, reverse=True)
    assert [hit.rank for hit in runs[0]] == list(range(1, len(scores) + 1))


def test_a_walk_past_its_window_gives_each_message_once(corpus: unspool.Corpus) -> None:
    """With more messages than a window holds, later ones come from deeper searches, and
    neighbours come with the first that needs them.
    """
    corpus.remember(
        *(
            talk(
                f"c{number}",
                *(f"walrus {name(turn)}" if turn % 2 else f"penguin {turn}" for turn in range(40)),
            )
            for number in range(16)
        )
    )
    page = corpus.search("walrus", limit=90, alpha=0.4)
    pages = [page]
    while page.continuation is not None:
        page = page.more()
        pages.append(page)
    hits = [hit for one in pages for hit in one.hits]
    assert pages[-1].served is not unspool.Served.WINDOW
    assert not [note for one in pages for note in one.notes if "earlier pages" in note], (
        "nothing was ranked that had been given"
    )
    for number, one in enumerate(pages):
        assert one.remaining <= sum(len(later.hits) for later in pages[number + 1 :])
    assert Counter(keys(hits)) == Counter(
        {("conversations", f"c{number}", turn): 1 for number in range(16) for turn in range(1, 41)}
    )
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_a_walk_goes_on_after_somebody_appended_edited_and_deleted(mixed: unspool.Corpus) -> None:
    page = mixed.search("walrus", projects="one", limit=10)
    mixed.conversations.append("c1", said("walrus appended"), project="one")
    mixed.conversations.delete("c2", project="one")
    hits = list(page.hits)
    while page.continuation is not None:
        page = page.more()
        hits += page.hits
    seen = keys(hits)
    assert len(seen) == len(set(seen))
    assert {key for key in seen[10:] if key[1] == "c2"} == set()
    assert {("one", f"c{number}", turn) for number in (0, 1, 3) for turn in range(1, 13)} <= set(
        seen
    )
    assert keys(walked(mixed, "walrus appended", projects="one", alpha=0))[0] == ("one", "c1", 13)


def test_a_search_in_several_projects_or_one_says_where_each_message_is_from(
    mixed: unspool.Corpus,
) -> None:
    assert {
        hit.chunk.project
        for hit in mixed.search("walrus", projects=["one", "three"], limit=100).hits
    } == {"one", "three"}
    page = mixed.search("walrus", projects="two", where={"kind": "chat"}, limit=100)
    assert {hit.chunk.project for hit in page.hits} == {"two"} and all(
        hit.message is not None for hit in page.hits
    )
    documents = mixed.search("walrus", projects="two", where={"kind": "docs"}, limit=100)
    assert len(documents.hits) == 15 and all(
        hit.message is None and hit.before == hit.after == () for hit in documents.hits
    )


def test_the_reason_of_a_message_can_be_asked_for(shared: unspool.Corpus) -> None:
    for alpha in (0, 0.4, 1):
        page = shared.search("colour of the casing", alpha=alpha, explain=True, limit=20)
        assert page.hits and all(hit.reason for hit in page.hits)


def test_a_least_score_holds_for_messages_with_their_neighbours_part(
    shared: unspool.Corpus,
) -> None:
    every = shared.search("colour of the casing", limit=50)
    least = every.hits[3].score
    assert [
        hit.chunk.id
        for hit in shared.search("colour of the casing", limit=50, min_score=least).hits
    ] == [hit.chunk.id for hit in every.hits if hit.score >= least]
    assert every.hits[0].score <= 1


def test_what_is_near_or_related_is_shown_with_its_exchange(database: Place) -> None:
    with open_corpus(database) as corpus:
        corpus.remember(
            talk(
                "c",
                said("walrus", "Ann"),
                said("violin concert tonight", "Bob"),
                said("penguin", "Ann"),
            )
        )
        [hit] = corpus.nearest(corpus.embed("violin concert tonight"), k=1)
        assert hit.message is not None and (hit.message.number, hit.message.speaker) == (2, "Bob")
        assert ([one.text for one in hit.before], [one.text for one in hit.after]) == (
            ["walrus"],
            ["penguin"],
        )
        related = corpus.related("c", 1, limit=1).hits
        assert related[0].message is not None
        assert related[0].message.number == related[0].chunk.lines.first


def test_a_day_finds_what_was_said_on_it(database: Place) -> None:
    with open_corpus(database) as corpus:
        corpus.remember(
            talk("c", said("walrus one", at=NOON), said("walrus two", at=NOON + timedelta(days=1)))
        )
        assert [
            hit.chunk.text
            for hit in corpus.search("walrus", where={"time": NOON.date().isoformat()}).hits
        ] == ["walrus one"]
