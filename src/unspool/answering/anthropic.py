"""Models of Anthropic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unspool.answering.models import ChatMessage
from unspool.answering.options import AnswerOptions
from unspool.answering.replies import CUT, NAMES, Reply, parse_count, parse_error, read_events
from unspool.calling import ModelServer
from unspool.pacing import Backoff
from unspool.streaming import ResponseStream

PROVIDER = "anthropic"
URL = "https://api.anthropic.com"
VERSION = "2023-06-01"  # of the API; the one that its documentation names in November 2026
_CUT = {
    "max_tokens": CUT["length"],
    "model_context_window_exceeded": CUT["length"],
    "refusal": CUT["refused"],
}
_INPUT_TOKENS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class AnthropicChat:
    """Model behind `/v1/messages`."""

    def __init__(self, model: str, options: AnswerOptions) -> None:
        has_version = options.url.partition("?")[0].rstrip("/").endswith("/v1")
        self._server = ModelServer(
            PROVIDER,
            model,
            options,
            url=URL,
            path="/messages" if has_version else "/v1/messages",
            example="claude-sonnet-4-5",
            names=NAMES,
            headers={
                "anthropic-version": VERSION,
                **({"x-api-key": options.key} if options.key else {}),
            },
            kept=0,
        )
        self.name = self._server.name
        self._model = model
        self._options = options
        self._backoff = Backoff()

    def stream(self, system: str, messages: Sequence[ChatMessage], *, max_tokens: int) -> Reply:
        """Return the reply, piece by piece."""
        body = {
            "model": self._model,
            "system": system,
            "messages": [{"role": one.role, "content": one.text} for one in messages],
            "max_tokens": max_tokens,
            "stream": True,
        }
        return Reply(
            lambda: self._server.stream(body),
            self._read,
            backoff=self._backoff,
            options=self._options,
        )

    def _read(self, stream: ResponseStream, reply: Reply) -> Iterator[str]:
        for event in read_events(self._server, stream, reply):
            kind = event.get("type")
            delta = _get_object(event, "delta")
            if kind == "error":
                raise parse_error(self._server, event.get("error"))
            if kind == "message_start":
                self._note(reply, _get_object(event, "message"))
            elif kind == "content_block_delta":
                if delta.get("type") == "text_delta":  # others are about thinking and tools
                    yield self._get_text(delta)
            elif kind == "message_delta":
                self._note(reply, event)
                self._note(reply, delta)
            elif kind == "message_stop":
                reply.is_done = True
            elif kind == "message":  # a server that does not stream
                self._note(reply, event)
                blocks = event.get("content")
                for block in blocks if isinstance(blocks, list) else ():
                    if isinstance(block, dict) and block.get("type") == "text":
                        yield self._get_text(block)
                reply.is_done = True

    def _get_text(self, part: dict[str, Any]) -> str:
        if not isinstance(part.get("text"), str):
            raise self._server.wrong("sent a piece without text")
        return str(part["text"])

    def _note(self, reply: Reply, part: dict[str, Any]) -> None:
        usage = _get_object(part, "usage")
        counts = [parse_count(usage.get(name)) for name in _INPUT_TOKENS]
        reason = part.get("stop_reason")
        reply.note(
            prompt_tokens=None if counts[0] is None else sum(one or 0 for one in counts),
            completion_tokens=parse_count(usage.get("output_tokens")),
            cut=_CUT.get(reason) if isinstance(reason, str) else None,
        )


def _get_object(event: dict[str, Any], name: str) -> dict[str, Any]:
    found = event.get(name)
    return found if isinstance(found, dict) else {}
