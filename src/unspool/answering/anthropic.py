"""Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unspool.answering.models import ChatMessage
from unspool.answering.options import AnswerOptions
from unspool.answering.replies import CUT, NAMES, Reply, count, failure, objects
from unspool.calling import Server, Stream, check_access, endpoint
from unspool.pacing import Pace

PROVIDER = "anthropic"
URL = "https://api.anthropic.com"
VERSION = "2023-06-01"  # of the API; the one that its documentation names in November 2026
_CUT = {
    "max_tokens": CUT["length"],
    "model_context_window_exceeded": CUT["length"],
    "refusal": CUT["refused"],
}


class AnthropicChat:
    """A model behind `/v1/messages`."""

    def __init__(self, model: str, options: AnswerOptions) -> None:
        check_access(
            PROVIDER,
            model,
            url=options.url,
            key=options.key,
            example="claude-sonnet-4-5",
            names=NAMES,
        )
        self.name = f"{PROVIDER}:{model}"
        self._model = model
        self._options = options
        self._pace = Pace()
        url = options.url or URL
        ends_with_version = url.partition("?")[0].rstrip("/").endswith("/v1")
        self._server = Server(
            endpoint(url, "/messages" if ends_with_version else "/v1/messages", NAMES),
            name=self.name,
            key=options.key,
            timeout_s=options.timeout_s,
            headers={
                "anthropic-version": VERSION,
                **({"x-api-key": options.key} if options.key else {}),
            },
            names=NAMES,
            kept=0,
        )

    def stream(self, system: str, messages: Sequence[ChatMessage], *, max_tokens: int) -> Reply:
        """The reply, piece by piece."""
        body = {
            "model": self._model,
            "system": system,
            "messages": [{"role": one.role, "content": one.text} for one in messages],
            "max_tokens": max_tokens,
            "stream": True,
        }
        return Reply(
            lambda: self._server.stream(body), self._read, pace=self._pace, options=self._options
        )

    def _read(self, stream: Stream, reply: Reply) -> Iterator[str]:
        is_done = is_begun = False
        for event in objects(self._server, stream):
            is_begun = True
            kind = event.get("type")
            if kind == "error":
                raise failure(self._server, event.get("error"))
            if kind == "message_start":
                self._note(reply, _inside(event, "message"))
            elif kind == "content_block_delta":
                delta = _inside(event, "delta")
                if delta.get("type") == "text_delta":  # others are about thinking and tools
                    yield self._text(delta)
            elif kind == "message_delta":
                self._note(reply, event)
                self._note(reply, _inside(event, "delta"))
            elif kind == "message_stop":
                is_done = True
            elif kind == "message":  # a server that does not stream
                self._note(reply, event)
                blocks = event.get("content")
                for block in blocks if isinstance(blocks, list) else ():
                    if isinstance(block, dict) and block.get("type") == "text":
                        yield self._text(block)
                is_done = True
        if not is_done:
            raise self._server.wrong(
                "stopped in the middle of its answer"
                if is_begun
                else "sent no answer; is that the address of its API?"
            )

    def _text(self, part: dict[str, Any]) -> str:
        if not isinstance(part.get("text"), str):
            raise self._server.wrong("sent a piece that holds no text")
        return str(part["text"])

    def _note(self, reply: Reply, part: dict[str, Any]) -> None:
        usage = _inside(part, "usage")
        read = [
            count(usage.get(name))
            for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        ]
        prompt = sum(one or 0 for one in read) if read[0] is not None else None
        reason = part.get("stop_reason")
        cut = _CUT.get(reason) if isinstance(reason, str) else None
        reply.note(
            prompt_tokens=prompt, completion_tokens=count(usage.get("output_tokens")), cut=cut
        )


def _inside(event: dict[str, Any], name: str) -> dict[str, Any]:
    found = event.get(name)
    return found if isinstance(found, dict) else {}
