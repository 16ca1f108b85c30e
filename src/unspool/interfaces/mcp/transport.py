"""The stdio transport.

The SDK writes; messages are read here, because the SDK drops those that it cannot parse.
"""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import BinaryIO

import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage

from unspool.interfaces.mcp.messages import MessageError, read_message

Incoming = SessionMessage | Exception  # as the SDK has it; no exception is ever sent


@asynccontextmanager
async def connect_stdio() -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[Incoming], WriteStream[SessionMessage]]
]:
    """Yield the streams of messages from stdin and to stdout.

    An invalid message is answered at once.
    """
    sender, incoming = anyio.create_memory_object_stream[Incoming](0)
    with take_stdin() as stdin:
        async with stdio_server(anyio.wrap_file(io.StringIO())) as (unused, write):
            await unused.aclose()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_receive, stdin, sender, write)
                yield incoming, write


async def _receive(
    stdin: BinaryIO,
    sender: MemoryObjectSendStream[Incoming],
    write: WriteStream[SessionMessage],
) -> None:
    """Forward messages until stdin is closed."""
    async with sender:
        while True:
            try:
                message = await anyio.to_thread.run_sync(read_message, stdin)
                if message is None:
                    return
                await sender.send(SessionMessage(message))
            except MessageError as error:
                await write.send(SessionMessage(error.response))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the server has ended


@contextmanager
def take_stdin() -> Iterator[BinaryIO]:
    """Yield stdin for the protocol alone.

    Programs that are started meanwhile read an empty file instead.
    """
    own = os.dup(0)
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    try:
        # It is never closed: a thread may still read from it when the server has ended.
        yield os.fdopen(own, "rb", closefd=False)
    finally:
        os.dup2(own, 0)
