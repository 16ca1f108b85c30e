"""Several who write conversations at once, and embedders that fail on the way: nothing is lost,
nothing is half done.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hashing import Asked
from support import Place, address_of, contents, doc, name, open_corpus
from talks import PROJECT, assert_whole, numbers, said, talk, texts
from unspool.errors import InputError, NotFoundError, ServiceError
from unspool.indexing import embedding

A = "hashing:a"
AWAY = ServiceError("the model is away; try again")
TOGETHER, EACH = 4, 8


def at_once(work: Callable[[int], object], count: int = TOGETHER) -> list[object]:
    ready = threading.Barrier(count)

    def begin(number: int) -> object:
        ready.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def failing_at(call: int, error: Exception) -> Callable[[Sequence[str]], None]:
    calls = 0

    def before(_: Sequence[str]) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error

    return before


# Failing


@pytest.mark.parametrize(
    ("call", "error"),
    [(1, AWAY), (3, AWAY), (2, InputError("no such text; give another")), (3, KeyboardInterrupt())],
    ids=repr,
)
def test_a_save_that_fails_half_way_leaves_everything_as_it_was(
    database: Place,
    hashing: Asked,
    monkeypatch: pytest.MonkeyPatch,
    call: int,
    error: BaseException,
) -> None:
    monkeypatch.setattr(embedding, "LOCAL_BATCHES", 1)  # so that a dozen messages are several calls
    first = [f"walrus {name(number)}" for number in range(6)]
    with open_corpus(database, embedder=A) as corpus:
        corpus.remember(talk("c", *first, title="T"), talk("d", "penguin"))
        before, said_before = contents(database), corpus.conversations.get("c")
        hashing.before["a"] = failing_at(call, error)  # type: ignore[arg-type]
        edited = [first[0], *(f"tomato {name(number)}" for number in range(20, 32)), *first[3:]]
        with pytest.raises(type(error)):
            corpus.remember(talk("new", "onion"), talk("c", *edited, title="Another"), talk("d"))
        now = contents(database)
        assert (now.chunks, now.documents, now.words) == (
            before.chunks,
            before.documents,
            before.words,
        )
        assert corpus.conversations.get("c") == said_before
        assert not corpus.conversations.exists("new")
        hashing.before["a"] = failing_at(1, error)  # type: ignore[arg-type]
        with pytest.raises(type(error)):
            corpus.conversations.append("c", said("celery"))
        assert corpus.conversations.get("c") == said_before
        del hashing.before["a"]
        corpus.remember(talk("c", *edited, title="Another"))
        assert texts(corpus, "c") == edited
        assert numbers(corpus, name(25), alpha=0)[0] == 7
    assert_whole(database, embedder=A)


# At once


@pytest.mark.parametrize("corpora", ["one corpus", "each his own"])
def test_those_who_append_at_once_lose_nothing_and_leave_no_gap(
    database: Place, corpora: str
) -> None:
    with ExitStack() as opened:
        first = opened.enter_context(open_corpus(database))
        writers = [
            first if corpora == "one corpus" else opened.enter_context(open_corpus(database))
            for _ in range(TOGETHER)
        ]

        def append(number: int) -> None:
            for turn in range(EACH):
                writers[number].conversations.append(
                    "c", said(f"walrus {name(number)} {name(turn)}", id=f"{number}/{turn}")
                )

        at_once(append)
        got = texts(first, "c")
        assert got is not None
        assert sorted(got) == sorted(
            f"walrus {name(number)} {name(turn)}"
            for number in range(TOGETHER)
            for turn in range(EACH)
        )
        for number in range(TOGETHER):
            own = [text for text in got if name(number) == text.split()[1]]
            assert own == [f"walrus {name(number)} {name(turn)}" for turn in range(EACH)], (
                "each one's own in the order he said it"
            )
        assert sorted(numbers(first, "walrus", limit=100)) == list(range(1, TOGETHER * EACH + 1))
    assert_whole(database)


@pytest.mark.parametrize("meanwhile", ["append", "delete", "edit", "cut", "title"])
def test_a_save_that_somebody_overtakes_is_stored_as_it_was_given(
    database: Place, hashing: Asked, meanwhile: str
) -> None:
    """What is stored is looked at before the new messages are embedded; all of that may be out
    of date when they are written.
    """
    first = [f"walrus {name(number)}" for number in range(6)]
    wanted = [*first, "tomato"]

    def overtake(_: Sequence[str]) -> None:
        hashing.before.clear()
        if meanwhile == "append":
            other.conversations.append("c", said("penguin"))
        elif meanwhile == "delete":
            other.conversations.delete("c")
        else:
            now = {"edit": ["penguin", *first[1:]], "cut": first[:2], "title": first}[meanwhile]
            other.remember(talk("c", *now, title="Another" if meanwhile == "title" else ""))

    with open_corpus(database, embedder=A) as corpus, open_corpus(database, embedder=A) as other:
        # of the other's texts none has to be embedded: the model is busy
        corpus.remember(talk("c", *first), talk("known", "penguin"))
        hashing.before["a"] = overtake
        corpus.remember(talk("c", *wanted))
        got = other.conversations.get("c")
        assert got is not None and ([message.text for message in got.messages], got.title) == (
            wanted,
            "",
        )
        assert sorted(
            numbers(other, "walrus tomato penguin", where={"conversation": "c"}, alpha=0, limit=50)
        ) == list(range(1, 8))
    assert_whole(database, embedder=A)


APPEND = """
import json, sys, time
from pathlib import Path
task = json.loads(sys.argv[1])
import unspool
from unspool.domain.conversations import Message
from unspool.embedders import open_embedder
open_embedder("static").embed_query("warm")
Path(task["ready"]).touch()
while not Path(task["go"]).exists():
    time.sleep(0.005)
settings = unspool.Settings.load(arguments={"database": task["database"]}, environment={}, folder=Path(task["go"]).parent)
with unspool.open(settings=settings) as corpus:
    for turn in range(task["each"]):
        corpus.conversations.append("c", Message(text=f"walrus {task['number']} {turn}"))
"""


def test_processes_that_append_at_once_lose_nothing(database: Place, tmp_path: Path) -> None:
    tasks = [
        {
            "number": number,
            "each": EACH,
            "database": address_of(database),
            "ready": str(tmp_path / f"ready{number}"),
            "go": str(tmp_path / "go"),
        }
        for number in range(2)
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", APPEND, json.dumps(task)], stderr=subprocess.PIPE, text=True
        )
        for task in tasks
    ]
    try:
        wait = threading.Event()
        for _ in range(1200):
            if all(Path(str(task["ready"])).exists() for task in tasks):
                break
            wait.wait(0.05)
        (tmp_path / "go").touch()
        ended = [process.communicate(timeout=120)[1] for process in started]
        assert [process.returncode for process in started] == [0, 0], ended
    finally:
        for process in started:
            process.kill()
    with open_corpus(database) as corpus:
        got = texts(corpus, "c")
        assert got is not None and sorted(got) == sorted(
            f"walrus {number} {turn}" for number in range(2) for turn in range(EACH)
        )
    assert_whole(database)


def test_of_those_who_save_the_same_conversation_the_last_is_stored_whole(database: Place) -> None:
    def save(number: int) -> None:
        for turn in range(EACH):
            mine = [f"walrus {name(at)}" for at in range(turn % 3)] + [
                f"penguin {number} {turn} {at}" for at in range(5)
            ]
            corpus.remember(
                talk("c", *mine, title=f"by {number} in {turn}"), talk(f"own {number}", *mine)
            )

    with open_corpus(database) as corpus:
        at_once(save)
        got = corpus.conversations.get("c")
        assert got is not None
        _, number, _, turn = got.title.split()
        expected = [f"walrus {name(at)}" for at in range(int(turn) % 3)] + [
            f"penguin {number} {turn} {at}" for at in range(5)
        ]
        assert [message.text for message in got.messages] == expected
        assert sorted(
            numbers(corpus, "penguin walrus", where={"conversation": "c"}, limit=50)
        ) == list(range(1, len(expected) + 1))
        assert corpus.conversations.count() == TOGETHER + 1
    assert_whole(database)


def test_one_who_saves_while_others_append_never_mixes_with_them(database: Place) -> None:
    """What was appended after the last save is behind it, in order; what was before has gone
    with it.
    """
    base = [f"walrus {name(at)}" for at in range(4)]

    def work(number: int) -> None:
        for turn in range(EACH):
            if number == 0:
                corpus.remember(talk("c", *base, f"saved {turn}"))
            elif number == 1 and turn == 4:
                corpus.conversations.delete("c")
            else:
                corpus.conversations.append("c", said(f"tomato {number} {turn}"))

    with open_corpus(database) as corpus:
        at_once(work)
        got = texts(corpus, "c")
        assert got is not None
        saved = [at for at, text in enumerate(got) if text.startswith("saved")]
        assert saved in ([], [4])
        assert all(text.startswith("tomato") for text in (got[5:] if saved else got))
        assert got[:4] == base or not saved
        assert len(got) == len(set(got))
    assert_whole(database)


def test_forgetting_the_project_while_others_write_into_it_leaves_all_or_nothing(
    database: Place,
) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            if number:
                corpus.remember(
                    *(talk(f"{number}/{turn}/{at}", "walrus", f"tomato {at}") for at in range(3))
                )
            else:
                try:
                    corpus.forget(project=PROJECT)
                except NotFoundError:
                    continue

    with open_corpus(database) as corpus:
        corpus.put(doc("start.md", "walrus", PROJECT))
        at_once(work)
        corpus.remember(talk("end", "walrus at the end"))
        ids = {one.id for one in corpus.conversations.list() if one.id != "end"}
        assert ids == {
            f"{put}/{at}" for put in {id_.rpartition("/")[0] for id_ in ids} for at in range(3)
        }
    assert_whole(database)


@pytest.mark.parametrize("projects", [PROJECT, "*"])
def test_searches_while_others_write_never_fail_and_never_repeat_a_message_on_a_page(
    database: Place, projects: str
) -> None:
    def write(number: int) -> None:
        for turn in range(6):
            edited = [
                f"walrus {name(at)} by {number} in {turn}"
                if (at + turn) % 3
                else f"walrus {name(at)}"
                for at in range(12)
            ]
            corpus.remember(
                talk("c", *edited, title=f"Title {turn % 2}"), talk(f"own {number}", *edited[turn:])
            )
            corpus.conversations.append("c", said(f"walrus appended by {number}"))
            corpus.conversations.delete(f"own {number}")

    def read(_: int) -> None:
        for _turn in range(8):
            page = corpus.search("walrus title", projects=projects, limit=6, explain=True)
            while True:
                shown = [
                    (hit.chunk.project, hit.chunk.path, one.number)
                    for hit in page.hits
                    for one in (*hit.before, *hit.after)
                ]
                own = {
                    (hit.chunk.project, hit.chunk.path, hit.chunk.lines.first) for hit in page.hits
                }
                assert len(shown) == len(set(shown)) and own.isdisjoint(shown)
                assert all(hit.chunk.text.startswith("walrus") for hit in page.hits)
                if page.continuation is None:
                    break
                page = page.more()

    with open_corpus(database) as corpus:
        corpus.remember(talk("c", *(f"walrus {name(at)}" for at in range(12))))
        corpus.remember(talk("c", *(f"walrus {name(at)}" for at in range(12)), project="other"))
        at_once(lambda number: (write if number % 2 else read)(number))
    assert_whole(database)
