"""OpenAI's chat completions, and those of every server that speaks the same: Ollama, vLLM, LM
Studio, llama.cpp, Azure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unspool.answering.models import ChatMessage
from unspool.answering.options import AnswerOptions
from unspool.answering.replies import CUT, NAMES, Reply, count, failure, objects
from unspool.calling import Server, Stream, check_access, endpoint, is_about, key_headers
from unspool.errors import InputError
from unspool.pacing import Pace

PROVIDER = "openai"
URL = "https://api.openai.com/v1"
_CUT = {"length": CUT["length"], "content_filter": CUT["refused"]}


class OpenAIChat:
    """A model behind `/chat/completions`.

    What a server says it does not know is not sent to it again.
    """

    def __init__(self, model: str, options: AnswerOptions) -> None:
        check_access(
            PROVIDER, model, url=options.url, key=options.key, example="gpt-5-mini", names=NAMES
        )
        self.name = f"{PROVIDER}:{model}"
        self._model = model
        self._options = options
        self._pace = Pace()
        self._server = Server(
            endpoint(options.url or URL, "/chat/completions", NAMES),
            name=self.name,
            key=options.key,
            timeout_s=options.timeout_s,
            headers=key_headers(options.key, options.url),
            names=NAMES,
            kept=0,
        )
        # OpenAI's newer models take only the second, others the first
        self._length = "max_tokens" if options.url else "max_completion_tokens"
        # takes `stream_options`, without which the usage of a stream is not told
        self._reports = True

    def stream(self, system: str, messages: Sequence[ChatMessage], *, max_tokens: int) -> Reply:
        """The reply, piece by piece."""
        said = [
            {"role": "system", "content": system},
            *({"role": one.role, "content": one.text} for one in messages),
        ]

        def body() -> dict[str, Any]:
            options = {"stream_options": {"include_usage": True}} if self._reports else {}
            return {
                "model": self._model,
                "messages": said,
                "stream": True,
                self._length: max_tokens,
                **options,
            }

        def read(stream: Stream, reply: Reply) -> Iterator[str]:
            for _ in range(2):  # at most two things can turn out to be unknown
                try:
                    yield from self._read(stream, reply)
                    return
                except InputError as error:
                    if not self._learns(error):
                        raise
                stream = reply.started(self._server.stream(body()))
            yield from self._read(stream, reply)

        return Reply(
            lambda: self._server.stream(body()), read, pace=self._pace, options=self._options
        )

    def _learns(self, error: InputError) -> bool:
        """Whether a refusal is about something that can be sent in another way, or left out."""
        if self._reports and is_about(error, "stream_options"):
            self._reports = False
            return True
        other = "max_completion_tokens" if self._length == "max_tokens" else "max_tokens"
        if is_about(error, self._length):
            self._length = other
            return True
        return False

    def _read(self, stream: Stream, reply: Reply) -> Iterator[str]:
        is_done = is_begun = False
        for event in objects(self._server, stream):
            is_begun = True
            if event.get("error"):
                raise failure(self._server, event["error"])
            usage = event.get("usage")
            if isinstance(usage, dict):
                reply.note(
                    prompt_tokens=count(usage.get("prompt_tokens")),
                    completion_tokens=count(usage.get("completion_tokens")),
                )
            choices = event.get("choices") or ()
            if not isinstance(choices, list | tuple):
                raise self._server.wrong("sent a piece that holds no text")
            for choice in choices:
                part = (
                    choice.get("delta") or choice.get("message") or {}
                    if isinstance(choice, dict)
                    else None
                )
                if not isinstance(part, dict) or not isinstance(part.get("content") or "", str):
                    raise self._server.wrong("sent a piece that holds no text")
                if part.get("content"):
                    yield part["content"]
                if reason := choice.get("finish_reason"):
                    is_done = True
                    reply.note(cut=_CUT.get(reason) if isinstance(reason, str) else None)
        if not is_done:
            raise self._server.wrong(
                "stopped in the middle of its answer"
                if is_begun
                else "sent no answer; is that the address of its API?"
            )
