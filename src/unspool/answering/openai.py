"""Models behind OpenAI's chat completions, which Ollama, vLLM, LM Studio, llama.cpp and Azure
serve too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unspool.answering.models import ChatMessage
from unspool.answering.options import AnswerOptions
from unspool.answering.replies import CUT, NAMES, Reply, parse_count, parse_error, read_events
from unspool.calling import ModelServer, is_about, key_headers
from unspool.errors import InputError
from unspool.pacing import Backoff
from unspool.streaming import ResponseStream

PROVIDER = "openai"
URL = "https://api.openai.com/v1"
_CUT = {"length": CUT["length"], "content_filter": CUT["refused"]}


class OpenAIChat:
    """Model behind `/chat/completions`.

    A field that the server does not know is not sent again.
    """

    def __init__(self, model: str, options: AnswerOptions) -> None:
        self._server = ModelServer(
            PROVIDER,
            model,
            options,
            url=URL,
            path="/chat/completions",
            example="gpt-5-mini",
            names=NAMES,
            headers=key_headers(options.key, options.url),
            kept=0,
        )
        self.name = self._server.name
        self._model = model
        self._options = options
        self._backoff = Backoff()
        # OpenAI's newer models take only the second, others the first
        self._length = "max_tokens" if options.url else "max_completion_tokens"
        # the server takes `stream_options`, without which a stream has no usage
        self._reports = True

    def stream(self, system: str, messages: Sequence[ChatMessage], *, max_tokens: int) -> Reply:
        """Return the reply, piece by piece."""
        chat = [
            {"role": "system", "content": system},
            *({"role": one.role, "content": one.text} for one in messages),
        ]

        def begin() -> ResponseStream:
            options = {"stream_options": {"include_usage": True}} if self._reports else {}
            return self._server.stream(
                {
                    "model": self._model,
                    "messages": chat,
                    "stream": True,
                    self._length: max_tokens,
                    **options,
                }
            )

        def read(stream: ResponseStream, reply: Reply) -> Iterator[str]:
            for _ in range(2):  # at most two fields can turn out to be unknown
                try:
                    yield from self._read(stream, reply)
                    return
                except InputError as error:
                    if not self._adapt(error):
                        raise
                stream = reply.start(begin())
            yield from self._read(stream, reply)

        return Reply(begin, read, backoff=self._backoff, options=self._options)

    def _adapt(self, error: InputError) -> bool:
        """Rename or omit the field that a server refused. Return False if there is none."""
        if self._reports and is_about(error, "stream_options"):
            self._reports = False
            return True
        if is_about(error, self._length):
            is_old = self._length == "max_tokens"
            self._length = "max_completion_tokens" if is_old else "max_tokens"
            return True
        return False

    def _read(self, stream: ResponseStream, reply: Reply) -> Iterator[str]:
        for event in read_events(self._server, stream, reply):
            if event.get("error"):
                raise parse_error(self._server, event["error"])
            usage = event.get("usage")
            if isinstance(usage, dict):
                reply.note(
                    prompt_tokens=parse_count(usage.get("prompt_tokens")),
                    completion_tokens=parse_count(usage.get("completion_tokens")),
                )
            choices = event.get("choices") or ()
            if not isinstance(choices, list | tuple):
                raise self._server.wrong("sent a piece without text")
            for choice in choices:
                if text := self._get_text(choice):
                    yield text
                if reason := choice.get("finish_reason"):
                    reply.is_done = True
                    reply.note(cut=_CUT.get(reason) if isinstance(reason, str) else None)

    def _get_text(self, choice: Any) -> str:
        try:
            part = choice.get("delta") or choice.get("message") or {}
            text = part.get("content") or ""
        except AttributeError:  # not an object
            text = None
        if not isinstance(text, str):
            raise self._server.wrong("sent a piece without text")
        return text
