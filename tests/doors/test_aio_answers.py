"""Answers in async programs: the same text, and a task that is cancelled ends the request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

import chats
import wire
from models import needed
from unspool import Document, Settings, aio
from unspool.errors import InputError


@pytest.fixture
def server() -> Iterator[wire.WireServer]:
    needed("httpx2", "pip install 'unspool[hosted]'")
    with wire.WireServer() as opened:
        yield opened


@pytest.fixture
def settings(tmp_path: Path, server: wire.WireServer) -> Settings:
    given = {
        "database": f"sqlite:///{tmp_path}/a.db",
        "answer_model": "anthropic:m",
        "answer_url": server.url,
        "answer_timeout_s": 600,
    }
    return Settings.load(arguments=given, environment={}, folder=tmp_path)


DOCUMENT = Document(project="p", path="a.md", text="tomatoes want sun")


def test_an_answer_is_awaited_whole_or_piece_by_piece(
    settings: Settings, server: wire.WireServer
) -> None:
    server.says = ("Sun ", "[1].")

    async def story() -> None:
        async with aio.open(settings=settings) as corpus:
            await corpus.put(DOCUMENT)
            heard: list[str] = []
            answer = await corpus.ask("What do tomatoes want?", on_text=heard.append)
            assert answer.text == "Sun [1]." == "".join(heard)
            async with await corpus.answering("What do tomatoes want?") as stream:
                assert "".join([piece async for piece in stream]) == "Sun [1]."
                assert stream.answer.citations[0].path == "a.md"

    anyio.run(story)


def test_a_task_that_is_cancelled_ends_the_request(
    settings: Settings, server: wire.WireServer
) -> None:
    gone = threading.Event()
    server.script(chats.hanging(gone, "Sun"))

    async def story() -> None:
        async with aio.open(settings=settings) as corpus:
            await corpus.put(DOCUMENT)
            stream = await corpus.answering("What do tomatoes want?")
            async with anyio.create_task_group() as group:

                async def read() -> None:
                    async for _ in stream:
                        group.cancel_scope.cancel()

                group.start_soon(read)
            assert await to_thread.run_sync(gone.wait, wire.WAIT_S)
            with pytest.raises(InputError):
                _ = stream.answer

    anyio.run(story)


def test_an_answer_that_is_closed_ends_the_request(
    settings: Settings, server: wire.WireServer
) -> None:
    gone = threading.Event()
    server.script(chats.hanging(gone, "Sun"))

    async def story() -> None:
        async with aio.open(settings=settings) as corpus:
            await corpus.put(DOCUMENT)
            stream = await corpus.answering("What do tomatoes want?")
            assert await anext(stream) == "Sun"
            await stream.close()
            assert await to_thread.run_sync(gone.wait, wire.WAIT_S)

    anyio.run(story)
