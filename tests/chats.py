"""Answers to questions in the wire formats of OpenAI and Anthropic, streamed and whole, for
`wire.WireServer`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wire import Answer, Asked, Reply

PROVIDERS = ("openai", "anthropic")
PROMPT_TOKENS, COMPLETION_TOKENS = 321, 17


def is_openai(asked: Asked) -> bool:
    return asked.path.endswith("/chat/completions")


def system_of(asked: Asked) -> str:
    """What a request says about how to answer."""
    return str(asked.body["messages"][0]["content"] if is_openai(asked) else asked.body["system"])


def user_of(asked: Asked) -> str:
    """What a request asks."""
    assert asked.body["messages"][-1]["role"] == "user"
    return str(asked.body["messages"][-1]["content"])


def proper(asked: Asked, says: Sequence[str]) -> Answer:
    """What a server that is well answers, as it was asked for."""
    if not asked.body.get("stream"):
        return Answer(body=whole(asked, "".join(says)))
    return Answer(pieces=list(stream(asked, says)))


def whole(asked: Asked, text: str) -> dict[str, Any]:
    """An answer in one object."""
    if is_openai(asked):
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        usage = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": COMPLETION_TOKENS,
            "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
        }
        return {
            "id": "1",
            "object": "chat.completion",
            "model": asked.body["model"],
            "choices": [choice],
            "usage": usage,
        }
    usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": COMPLETION_TOKENS}
    content = [{"type": "text", "text": text}]
    return {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
        "content": content,
        "stop_reason": "end_turn",
        "usage": usage,
    }


def stream(asked: Asked, says: Iterable[str], *, reason: str = "") -> Iterator[bytes]:
    """The events of an answer."""
    yield from begin(asked)
    for text in says:
        yield piece(asked, text)
    yield from end(asked, reason=reason)


def begin(asked: Asked) -> Iterator[bytes]:
    if is_openai(asked):
        yield event(
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}],
            }
        )
        return
    usage = {"input_tokens": PROMPT_TOKENS - 20, "cache_read_input_tokens": 20, "output_tokens": 1}
    yield event(
        {
            "type": "message_start",
            "message": {
                "id": "1",
                "type": "message",
                "role": "assistant",
                "content": [],
                "usage": usage,
            },
        }
    )
    yield event(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    )
    yield event({"type": "ping"})


def piece(asked: Asked, text: str) -> bytes:
    if is_openai(asked):
        return event(
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
            }
        )
    return event(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    )


def end(asked: Asked, *, reason: str = "") -> Iterator[bytes]:
    if is_openai(asked):
        yield event(
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {}, "finish_reason": reason or "stop"}],
            }
        )
        if "stream_options" in asked.body:
            usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
            yield event(
                {"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage}
            )
        yield b"data: [DONE]\n\n"
        return
    yield event({"type": "content_block_stop", "index": 0})
    yield event(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason or "end_turn"},
            "usage": {"output_tokens": COMPLETION_TOKENS},
        }
    )
    yield event({"type": "message_stop"})


def event(value: Mapping[str, Any]) -> bytes:
    name = f"event: {value['type']}\n" if "type" in value else ""
    return f"{name}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def ending(reason: str) -> Reply:
    """An answer that ends for this reason."""
    return lambda asked: Answer(pieces=list(stream(asked, ["So far [1]."], reason=reason)))


def broken(*says: str) -> Reply:
    """An answer whose connection breaks behind these pieces."""
    return lambda asked: Answer(
        pieces=[*begin(asked), *(piece(asked, text) for text in says)], is_reset=True
    )


def unfinished(asked: Asked) -> Answer:
    """An answer that ends without a word about its end."""
    return Answer(pieces=[*begin(asked), piece(asked, "It is")])


def garbled(asked: Asked) -> Answer:
    """A stream that holds something that is no JSON."""
    return Answer(pieces=[*begin(asked), b"data: {broken\n\n"])


def hanging(hung_up: threading.Event, *says: str) -> Reply:
    """An answer that stops behind these pieces, and waits for whoever asked to go."""
    return lambda asked: Answer(
        pieces=[*begin(asked), *(piece(asked, text) for text in says)], hung_up=hung_up
    )


def dribbling(hung_up: threading.Event) -> Reply:
    """An answer whose pieces come one by one and without end, until whoever asked has gone."""

    def pieces(asked: Asked) -> Iterator[bytes]:
        try:
            yield from begin(asked)
            while not hung_up.wait(0.02):
                yield piece(asked, "and so on ")
        finally:  # what is written to nobody raises, and closes this
            hung_up.set()

    return lambda asked: Answer(pieces=pieces(asked))


def failing_inside(kind: str, message: str) -> Reply:
    """An error in the middle of a stream, before any text."""

    def reply(asked: Asked) -> Answer:
        error = {"type": kind, "message": message}
        return Answer(
            pieces=[
                *begin(asked),
                event({"error": error} if is_openai(asked) else {"type": "error", "error": error}),
            ]
        )

    return reply
