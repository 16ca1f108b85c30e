"""`unspool.aio` is `Corpus`, awaited."""

from __future__ import annotations

import inspect
from pathlib import Path

import anyio
import pytest

from unspool import Corpus, Document, History, aio
from unspool.aio import AsyncCorpus, AsyncHistory
from unspool.corpus import open as open_corpus
from unspool.errors import NotFoundError

METHODS = [name for name, member in vars(Corpus).items() if not name.startswith("_") and callable(member)]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_corpus_is_there_with_the_same_signature(name: str) -> None:
    """On failure: copy the changed signature into aio.py; the body is one line."""
    twin = getattr(AsyncCorpus, name)
    assert inspect.iscoroutinefunction(twin) == (name != "observe")  # that one only notes a function down
    assert str(inspect.signature(twin)).replace("AsyncHistory", "History") == str(inspect.signature(getattr(Corpus, name)))


@pytest.mark.parametrize("name", [name for name, member in vars(History).items() if not name.startswith("_") and callable(member)])
def test_every_method_of_a_history_is_there_with_the_same_signature(name: str) -> None:
    twin = getattr(AsyncHistory, name)
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(getattr(History, name))
    assert twin.__doc__ == getattr(History, name).__doc__


def test_responses_are_appended_and_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with aio.open(f"sqlite:///{tmp_path}/a.db") as corpus:
            log = await corpus.history("jobs")

            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(log.append, f"body {number}")
            assert log.stream == "jobs"
            assert sorted(record.body for record in await log.read()) == [f"body {number}" for number in range(5)]
            page = await log.page(2, offset=4)
            assert (len(page.records), page.has_more) == (1, False)
            assert [one.records for one in await corpus.streams()] == [await log.count()] == [5]
            assert (await log.prune(), await log.clear(), await log.count()) == (0, 5, 0)

    anyio.run(story)


def test_there_is_nothing_else() -> None:
    own = {name for name, member in vars(AsyncCorpus).items() if not name.startswith("_") and callable(member)}
    assert own == set(METHODS)


def test_open_takes_what_its_synchronous_twin_takes() -> None:
    assert inspect.signature(aio.open).parameters == inspect.signature(open_corpus).parameters


def test_documents_are_stored_and_found_and_errors_arrive(tmp_path: Path) -> None:
    async def story() -> None:
        async with aio.open(f"sqlite:///{tmp_path}/a.db") as corpus:
            report = await corpus.put(Document(project="p", path="a.md", text="tomatoes want sun"))
            assert report.added == 1
            pages = [await corpus.search("tomatoes")]

            async def ask() -> None:
                pages.append(await corpus.search("tomatoes"))

            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(ask)
            assert [page.hits[0].chunk.path for page in pages] == ["a.md"] * 5
            assert corpus.settings.limit == 10
            with pytest.raises(NotFoundError):
                await corpus.forget(project="nope")

    anyio.run(story)
