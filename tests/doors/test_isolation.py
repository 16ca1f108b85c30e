"""Two keys, two projects: whatever one of them asks, nothing of the other's appears, and what is
the other's is as if it had never been.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import unspool
from neighbours import SEED, Neighbour, Street, settle, settled, street_at, talk_of, turns
from support import ENGINES, Places, open_corpus
from unspool.access.scope import Scope, admit
from unspool.corpus import Corpus
from unspool.domain.conversations import Message
from unspool.domain.queries import Page
from unspool.errors import UnspoolError
from unspool.jobs import JobQueue
from unspool.memory.conversations import Conversations
from unspool.memory.history import History

CALLS = 500


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def street(module_places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    with street_at(module_places.new(), tmp_path_factory.mktemp("street")) as made:
        yield made


# Every method of a view: who asks, whose things are asked for, whose words are used
Asked = Callable[[Corpus, Neighbour, Neighbour, random.Random], object]


def _some(whose: Neighbour, me: Neighbour, chance: random.Random) -> dict[str, object]:
    """Which projects a search is about, and its filter."""
    projects = chance.choice(
        [
            None,
            whose.project,
            [whose.project],
            [me.project, whose.project],
            "*",
            ["*", whose.project],
        ]
    )
    return {"projects": projects, "where": chance.choice(whose.filters())}


def _answer(view: Corpus, whose: Neighbour, me: Neighbour, chance: random.Random) -> object:
    talk = [Message(text=chance.choice(me.queries))]
    with view.answering(
        chance.choice(me.queries), conversation=talk, limit=3, **_some(whose, me, chance)
    ) as stream:  # type: ignore[arg-type]
        return "".join(stream), stream.answer


def _search(view: Corpus, whose: Neighbour, me: Neighbour, chance: random.Random) -> Page:
    page = view.search(
        chance.choice(me.queries),
        limit=chance.choice([1, 3, 50]),
        max_tokens=chance.choice([0, 300]),
        explain=chance.random() < 0.5,
        **_some(whose, me, chance),  # type: ignore[arg-type]
    )
    if page.continuation and whose is me:
        me.continuations.append(page.continuation)
    return page


def _in(whose: Neighbour, chance: random.Random) -> str | None:
    return chance.choice([whose.project, None])


def _into(whose: Neighbour, me: Neighbour, chance: random.Random) -> str | None:
    """The same for what is written: where no project is named it goes into one's own, and counts
    on there.
    """
    return _in(whose, chance) if whose is me else whose.project


VIEW: dict[str, Asked] = {
    "projects": lambda view, whose, me, chance: view.projects(),
    # members for the process that opened the corpus
    "close": lambda view, whose, me, chance: view.close(),
    "keys": lambda view, whose, me, chance: view.keys,
    "observe": lambda view, whose, me, chance: view.observe(print),
    "refresh": lambda view, whose, me, chance: view.refresh(),
    "remember_files": lambda view, whose, me, chance: view.remember_files(
        whose.root, project=whose.project
    ),
    "scoped": lambda view, whose, me, chance: view.scoped(Scope.everything()),
    "size_bytes": lambda view, whose, me, chance: view.size_bytes(),
    "warm": lambda view, whose, me, chance: view.warm(me.queries),
    "conversations.load": lambda view, whose, me, chance: view.conversations.load(
        whose.root, project=whose.project
    ),
    "settings": lambda view, whose, me, chance: view.settings.project,
    "search": _search,
    "more": lambda view, whose, me, chance: view.more(
        chance.choice(whose.continuations),
        limit=chance.choice([None, 2]),
        restart=chance.random() < 0.5,
    ),
    "related": lambda view, whose, me, chance: view.related(
        chance.choice(whose.paths), chance.choice([1, 3]), project=_in(whose, chance)
    ),
    "nearest": lambda view, whose, me, chance: view.nearest(
        view.embed(chance.choice(me.queries)),
        k=chance.choice([1, 100]),
        **_some(whose, me, chance),  # type: ignore[arg-type]
    ),
    "embed": lambda view, whose, me, chance: view.embed(chance.choice(me.queries)),
    "count_tokens": lambda view, whose, me, chance: view.count_tokens(chance.choice(me.queries)),
    "answering": _answer,
    "read": lambda view, whose, me, chance: view.read(
        chance.choice([*whose.paths, *whose.talks]),
        project=_in(whose, chance),
        first=chance.choice([1, 2, 999]),
        last=chance.choice([None, 3]),
    ),
    "documents": lambda view, whose, me, chance: view.documents(
        project=_in(whose, chance),
        status=chance.choice([None, "indexed", "failed"]),
        after=chance.choice([None, "", whose.paths[0]]),
        limit=chance.choice([None, 3]),
    ),
    "document": lambda view, whose, me, chance: view.document(
        chance.choice(whose.paths), project=whose.project
    ),
    "passage": lambda view, whose, me, chance: view.passage(
        chance.choice([*whose.paths, *whose.talks]),
        project=whose.project,
        first=chance.choice([1, 2, 999]),
    ),
    "count": lambda view, whose, me, chance: view.count(project=_in(whose, chance)),
    "status": lambda view, whose, me, chance: view.status(project=_in(whose, chance)),
    "stores": lambda view, whose, me, chance: view.stores(),
    "put": lambda view, whose, me, chance: view.put(
        unspool.Document(
            project=whose.project,
            path=f"extra-{me.mark}path",
            text=f"{me.mark}text {chance.random()}",
        )
    ),
    "forget": lambda view, whose, me, chance: view.forget(
        project=whose.project,
        path=chance.choice([whose.spare("path"), *([] if whose is me else [None])]),
    ),
    "index": lambda view, whose, me, chance: view.index(whose.root, project=whose.project),
    "embedder": lambda view, whose, me, chance: view.embedder,
    "has_stream": lambda view, whose, me, chance: view.has_stream(
        whose.stream, project=whose.project
    ),
    "source_of": lambda view, whose, me, chance: view.source_of(whose.project),
    "ask": lambda view, whose, me, chance: view.ask(
        chance.choice(me.queries),
        limit=3,
        **_some(whose, me, chance),  # type: ignore[arg-type]
    ),
    "remember": lambda view, whose, me, chance: view.remember(
        talk_of(me.mark, whose.project, f"extra-{me.mark}talk")
    ),
    "root_of": lambda view, whose, me, chance: view.root_of(whose.project),
    "project_of": lambda view, whose, me, chance: view.project_of(
        chance.choice([whose.root, f"{whose.root}/a.md", "/etc/passwd"])
    ),
    "scope": lambda view, whose, me, chance: view.scope.check_source(
        chance.choice([whose.root, "/etc/passwd", f"{me.root}/../../etc"])
    ),
    "conversations.save": lambda view, whose, me, chance: view.conversations.save(
        talk_of(me.mark, whose.project, f"extra-{me.mark}talk")
    ),
    "conversations.append": lambda view, whose, me, chance: view.conversations.append(
        f"extra-{me.mark}talk",
        Message(text=f"{me.mark}said {chance.random()}"),
        project=_into(whose, me, chance),
    ),
    "conversations.get": lambda view, whose, me, chance: view.conversations.get(
        chance.choice(whose.talks), project=_in(whose, chance), last=chance.choice([None, 1])
    ),
    "conversations.exists": lambda view, whose, me, chance: view.conversations.exists(
        chance.choice(whose.talks), project=_in(whose, chance)
    ),
    "conversations.list": lambda view, whose, me, chance: view.conversations.list(
        project=_in(whose, chance), skip=chance.choice([0, 1])
    ),
    "conversations.count": lambda view, whose, me, chance: view.conversations.count(
        project=_in(whose, chance)
    ),
    "conversations.chunks": lambda view, whose, me, chance: view.conversations.chunks(
        chance.choice(whose.talks), project=_in(whose, chance)
    ),
    "conversations.chunk": lambda view, whose, me, chance: view.conversations.chunk(
        chance.choice(whose.chunk_ids), project=_in(whose, chance)
    ),
    "conversations.delete": lambda view, whose, me, chance: view.conversations.delete(
        whose.spare("talk"), project=_in(whose, chance)
    ),
    "streams": lambda view, whose, me, chance: view.streams(project=_in(whose, chance)),
    "history.stream": lambda view, whose, me, chance: (
        view.history(whose.stream, project=_in(whose, chance)).stream
    ),
    "history.append": lambda view, whose, me, chance: view.history(
        f"extra-{me.mark}stream", project=_into(whose, me, chance)
    ).append(f"{me.mark}body"),
    "history.read": lambda view, whose, me, chance: view.history(
        whose.stream, project=_in(whose, chance)
    ).read(),
    "history.page": lambda view, whose, me, chance: view.history(
        whose.stream, project=_in(whose, chance)
    ).page(full=chance.random() < 0.5),
    "history.count": lambda view, whose, me, chance: view.history(
        whose.stream, project=_in(whose, chance)
    ).count(),
    "history.prune": lambda view, whose, me, chance: view.history(
        whose.stream, project=_in(whose, chance)
    ).prune(),
    "history.clear": lambda view, whose, me, chance: view.history(
        whose.spare("stream"), project=_in(whose, chance)
    ).clear(),
}


WRITING = {
    "put",
    "forget",
    "index",
    "remember",
    "history.append",
    "history.clear",
    "history.prune",
} | {f"conversations.{name}" for name in ("save", "append", "delete")}


def _answered(ask: Callable[[], object]) -> str:
    """All of an answer, or of an error, as text."""
    try:
        return repr(ask())
    except UnspoolError as error:
        return f"{type(error).__name__} {error.code} {error.http_status}: {error} {vars(error)}"


def _job(street: Street, view: Corpus, whose: Neighbour, chance: random.Random) -> object:
    """Jobs have no view: they take the projects of a scope."""
    mine = view.scope.projects
    ask = chance.choice(["get", "cancel", "list", "count_by_state"])
    if ask in ("get", "cancel"):
        return getattr(street.jobs, ask)(chance.choice(whose.jobs), projects=mine)
    return getattr(street.jobs, ask)(projects=mine)


def test_every_method_of_a_corpus_is_called_here() -> None:
    def methods(kind: type, prefix: str = "") -> set[str]:
        return {prefix + name for name in vars(kind) if not name.startswith("_")} - {
            "conversations",
            "history",
        }

    assert methods(Corpus) | methods(Conversations, "conversations.") | methods(
        History, "history."
    ) | {"scope", "settings"} == set(VIEW)


def test_answers_are_the_same_as_if_there_were_no_neighbour(
    street: Street, module_places: Places
) -> None:
    place, chance = module_places.new(), random.Random(SEED)
    with (
        open_corpus(place, roots=street.corpus.settings.serve.roots, limit=5) as corpus,
        JobQueue(corpus) as jobs,
    ):
        me = settle(corpus, jobs, Path(street.corpus.settings.serve.roots), "gromm")
        views = (
            corpus.scoped(admit(corpus, corpus.keys.create(projects=me.project, role="admin")[1])),
            street.view(me.mark),
        )
        for name in turns(sorted(set(VIEW) - WRITING - {"more"}), 150, chance):
            seed = chance.random()
            alone, beside_another = (
                settled(_answered(partial(VIEW[name], view, me, me, random.Random(seed))), me)
                for view in views
            )
            assert alone == beside_another, name


def test_nothing_of_the_other_project_is_seen_through_a_view(street: Street) -> None:
    chance = random.Random(SEED)
    views = {mark: street.view(mark) for mark in street.own}
    for number, name in enumerate(turns([*VIEW, "jobs"], CALLS, chance)):
        mark = chance.choice(sorted(street.own))
        me, other, view, seed = street.own[mark], street.other(mark), views[mark], chance.random()
        me.is_own, other.is_own = True, False

        def ask(
            whose: Neighbour,
            name: str = name,
            me: Neighbour = me,
            view: Corpus = view,
            seed: float = seed,
        ) -> str:
            dice = random.Random(seed)
            call = (
                (lambda: _job(street, view, whose, dice))
                if name == "jobs"
                else (lambda: VIEW[name](view, whose, me, dice))
            )
            return _answered(call)

        told = f"call {number}, {name} by {mark}"
        if chance.random() < 0.5:
            assert other.mark not in ask(me), told
            continue
        told += ", of what is the other's"
        assert settled(ask(other), other) == settled(ask(street.nobody), street.nobody), told


def test_the_words_of_the_other_project_find_nothing_of_it(street: Street) -> None:
    for mark, me in street.own.items():
        view, other = street.view(mark), street.other(mark)
        for query in other.queries[:3]:
            for projects in (None, "*", me.project):
                page = view.search(query, projects=projects, explain=True, limit=100)
                assert {hit.chunk.project for hit in page.hits} == {me.project}
                assert other.mark not in repr(page).replace(query, "")


def test_what_was_there_is_still_there_and_nobody_wrote_elsewhere(street: Street) -> None:
    street.check()
