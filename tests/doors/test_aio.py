"""`unspool.aio` is `Corpus`, awaited."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from unspool import Conversation, Document, Message, aio
from unspool.errors import NotFoundError


def test_conversations_are_saved_continued_and_found(tmp_path: Path) -> None:
    async def story() -> None:
        async with aio.open(f"sqlite:///{tmp_path}/a.db") as corpus:
            await corpus.remember(Conversation(id="c", messages=[Message(text="the walrus swims")]))
            await corpus.conversations.append("c", Message(text="and the penguin walks"))
            assert [
                hit.chunk.location for hit in (await corpus.search("penguin", limit=1)).hits
            ] == ["c:2"]
            kept = await corpus.conversations.get("c", last=1)
            assert kept is not None
            assert [message.text for message in kept.messages] == ["and the penguin walks"]
            assert (await corpus.conversations.exists("c"), await corpus.conversations.count()) == (
                True,
                1,
            )
            assert (
                [one.messages for one in await corpus.conversations.list()]
                == [len(await corpus.conversations.chunks("c"))]
                == [2]
            )
            assert (
                await corpus.conversations.delete("c"),
                await corpus.conversations.delete("c"),
            ) == (True, False)
            lines = tmp_path / "lines.jsonl"
            lines.write_text(
                '{"id": "d", "messages": [{"role": "user", "content": "a walrus again"}]}\n'
            )
            assert (await corpus.remember_files(lines)).added == 1
            assert (await corpus.conversations.load([lines])).unchanged == 1
            assert (
                await corpus.conversations.save(Conversation(id="e", messages=[Message(text="x")]))
            ).added == 1

    anyio.run(story)


def test_responses_are_appended_and_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with aio.open(f"sqlite:///{tmp_path}/a.db") as corpus:
            log = await corpus.history("jobs")

            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(log.append, f"body {number}")
            assert log.stream == "jobs"
            assert sorted(record.body for record in await log.read()) == [
                f"body {number}" for number in range(5)
            ]
            page = await log.page(2, offset=4)
            assert (len(page.records), page.has_more) == (1, False)
            assert [one.records for one in await corpus.streams()] == [await log.count()] == [5]
            assert (await log.prune(), await log.clear(), await log.count()) == (0, 5, 0)

    anyio.run(story)


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
            assert corpus.settings.search.limit == 10
            with pytest.raises(NotFoundError):
                await corpus.forget(project="nope")

    anyio.run(story)
