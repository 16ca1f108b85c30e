"""Answers: search, show the hits to a model, and check every citation in its reply."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Self

from unspool.answering.citations import Citations
from unspool.answering.models import AnswerModel, ReplyFacts
from unspool.answering.options import AnswerOptions
from unspool.answering.prompt import EMPTY, Prompt, build_prompt, build_query
from unspool.domain.answers import Answer, Citation, Usage
from unspool.domain.conversations import Message, check_turns
from unspool.domain.events import AnswerFinished, Outcome
from unspool.domain.queries import Page
from unspool.errors import InputError

NO_MODEL = (
    "no model is set, so this is what one would be shown; set UNSPOOL_ANSWER_MODEL to "
    "openai:NAME or anthropic:NAME and UNSPOOL_ANSWER_KEY "
    "to your key, or for a server of your own UNSPOOL_ANSWER_MODEL=openai:llama3.2 and "
    "UNSPOOL_ANSWER_URL=http://localhost:11434/v1"
)
NOTHING = "Nothing was found about this."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Question with its hits."""

    question: str
    page: Page
    prompt: Prompt  # empty if nothing was found
    model: AnswerModel | None  # None if there is none, or nothing to show to it
    turns: int  # of the conversation, including those that did not fit
    begun: float
    search_s: float


class AnswerStream:
    """Answer as it is written: iterate over its text, then read `answer`.

    `close` ends the request at once and may be called from another thread. Leaving a `with` block
    and dropping the object do the same. A thread that waits for a piece then gets an `InputError`.
    """

    def __init__(
        self, work: _Work, *, max_tokens: int, emit: Callable[[AnswerFinished], None]
    ) -> None:
        self._work = work
        self._emit = emit
        self._guard = threading.Lock()
        self._is_closed = False
        self._is_over = True  # until it has begun
        self._answer: Answer | None = None
        self._text: list[str] = []
        self._first_s: float | None = None
        self._shown = work.prompt.shown
        self._citations = Citations(len(self._shown))
        self._facts = ReplyFacts()
        self._reply: Iterator[str] = iter(() if self._shown else (NOTHING,))
        if work.model is not None:
            self._reply = _check_reply(
                work.model.stream(work.prompt.system, work.prompt.messages, max_tokens=max_tokens)
            )
        self._is_over = False

    @property
    def answer(self) -> Answer:
        """Whole answer. Before its end this raises an `InputError`."""
        if self._answer is None:
            state = (
                "was closed before its end; ask again"
                if self._is_over
                else "is not at its end; iterate over its text first"
            )
            raise InputError(f"the answer {state}")
        return self._answer

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._is_over:
            raise StopIteration
        try:
            text = self._read()
        except CancelledError:
            self._end(Outcome.CANCELLED)
            raise InputError("the answer was closed while it was written; ask again") from None
        except BaseException as error:
            self._stop()
            self._end(Outcome.FAILED if isinstance(error, Exception) else Outcome.CANCELLED)
            raise
        if not text:
            self._finish()
            raise StopIteration
        return text

    def close(self) -> None:
        """End the answer. Its text is lost, unless it was complete."""
        self._is_closed = True
        if not self._is_over:
            self._stop()
            self._end(Outcome.CANCELLED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_over:  # a loop over it was left
            self.close()

    def _read(self) -> str:
        """Return the next text that is certain; '' at the end."""
        text = ""
        while not text:
            piece = next(self._reply, None)
            if self._is_closed:
                raise CancelledError
            if piece is None:
                self._facts = getattr(self._reply, "facts", self._facts)
                text = self._citations.finish()
                self._reply = iter(())
                break
            if not isinstance(piece, str):
                raise InputError(
                    f"the model gave a {type(piece).__name__} instead of text; its `stream` "
                    f"yields pieces of text"
                )
            text = self._citations.feed(_replace_halves(piece))
        if text:
            self._text.append(text)
            self._first_s = self._measure() if self._first_s is None else self._first_s
        return text

    def _finish(self) -> None:
        work = self._work
        outcome, cited = Outcome.ANSWERED, self._citations.used
        if not self._shown:
            outcome = Outcome.NOTHING
        elif work.model is None:
            outcome, cited = Outcome.CONTEXT, [one.number for one in self._shown]
        self._answer = Answer(
            question=work.question,
            text="".join(self._text),
            citations=tuple(
                Citation(number=number, hit=self._shown[number - 1].hit) for number in cited
            ),
            model="" if work.model is None else work.model.name,
            found=bool(self._shown),
            context=work.prompt.context,
            dropped_citations=self._citations.dropped,
            usage=Usage(
                searches=1,
                hits=len(work.page.hits),
                shown=len(self._shown),
                context_tokens=work.prompt.tokens,
                prompt_tokens=self._facts.prompt_tokens,
                completion_tokens=self._facts.completion_tokens,
            ),
            notes=(*work.page.notes, *self._notes()),
            warnings=(
                *work.page.warnings,
                *(self._warnings() if outcome is Outcome.ANSWERED else ()),
            ),
        )
        self._end(outcome)

    def _notes(self) -> Iterator[str]:
        work = self._work
        if not self._shown:
            return
        if left := len(work.page.hits) - len(self._shown):
            yield (
                f"{left} of {len(work.page.hits)} hits did not fit into what the model is shown; "
                f"UNSPOOL_ANSWER_CONTEXT_TOKENS bounds it"
            )
        if left := work.turns - work.prompt.turns:
            yield (
                f"{left} of {work.turns} turns of the conversation did not fit into what the "
                f"model is shown"
            )
        if work.model is None:
            yield NO_MODEL

    def _warnings(self) -> Iterator[str]:
        if self._facts.cut:
            yield self._facts.cut
        if self._citations.dropped:
            yield (
                f"citations of what the model was not shown were taken out: "
                f"{self._citations.dropped}"
            )
        if not "".join(self._text).strip():
            yield "the model wrote nothing; ask again, or in other words"
        elif not self._citations.used:
            yield "the answer cites nothing of what was found; do not rely on it"

    def _stop(self) -> None:
        """End the request, if the model can."""
        close = getattr(self._reply, "close", None)
        if close is not None:
            try:
                close()
            # a generator that another thread is in; it ends with the piece that it is at
            except ValueError:
                return

    def _end(self, outcome: Outcome) -> None:
        """Emit the event of the end, once."""
        with self._guard:
            if self._is_over:
                return
            self._is_over = True
        work = self._work
        self._emit(
            AnswerFinished(
                outcome=outcome,
                model="" if work.model is None else work.model.name,
                projects=len(work.page.projects),
                hits=len(work.page.hits),
                shown=len(self._shown),
                turns=work.prompt.turns,
                citations=len(self._citations.used),
                dropped_citations=self._citations.dropped,
                context_tokens=work.prompt.tokens,
                prompt_tokens=self._facts.prompt_tokens,
                completion_tokens=self._facts.completion_tokens,
                search_s=work.search_s,
                first_s=self._first_s,
                total_s=self._measure(),
            )
        )

    def _measure(self) -> float:
        return time.monotonic() - self._work.begun


def _check_reply(reply: object) -> Iterator[str]:
    """Return the reply of a model as an iterator. Reject any other object of a user's model."""
    if isinstance(reply, Iterable) and not isinstance(reply, str):
        return iter(reply)
    raise InputError(
        f"the model gave a {type(reply).__name__} instead of pieces; its `stream` returns an "
        f"iterator over pieces of text"
    )


def _replace_halves(piece: str) -> str:
    """Return a text without lone surrogates, which a server may escape and no file accepts."""
    return (
        piece
        if piece.isascii()
        else piece.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


class Answers:
    """Answers that are being written in a corpus. Closing it ends them."""

    def __init__(
        self,
        *,
        count_tokens: Callable[[str], int],
        options: AnswerOptions,
        emit: Callable[[AnswerFinished], None],
    ) -> None:
        self._count_tokens = count_tokens
        self._options = options
        self._emit = emit
        self._guard = threading.Lock()
        self._is_closed = False
        self._open: weakref.WeakSet[AnswerStream] = weakref.WeakSet()

    def begin(
        self,
        question: str,
        search: Callable[[str], Page],
        *,
        model: AnswerModel | None,
        turns: Sequence[Message] = (),
    ) -> AnswerStream:
        """Search, and start the model's reply.

        The model is called only if there are hits.
        """
        if not isinstance(question, str) or not question.strip():
            raise InputError("the question is blank; ask something")
        check_turns(turns)
        # no JSON accepts lone surrogates
        question = question.encode("utf-8", "replace").decode()
        begun = time.monotonic()
        page = search(build_query(question, turns))
        search_s = time.monotonic() - begun
        prompt = EMPTY
        if page.hits:
            prompt = build_prompt(
                question,
                page.hits,
                turns,
                budget=self._options.context_tokens,
                count_tokens=self._count_tokens,
                # short, because it is repeated; it is checked that no text contains it
                nonce=secrets.token_hex(4),
            )
        work = _Work(
            question=question,
            page=page,
            prompt=prompt,
            model=model if page.hits else None,
            turns=len(turns),
            begun=begun,
            search_s=search_s,
        )
        stream = AnswerStream(work, max_tokens=self._options.max_tokens, emit=self._emit)
        with self._guard:
            self._open.add(stream)
            is_closed = self._is_closed
        if is_closed:
            stream.close()
            raise InputError("the corpus is closed; open it again")
        return stream

    def close(self) -> None:
        """End every answer that is being written."""
        with self._guard:
            self._is_closed = True
            streams = list(self._open)
        for stream in streams:
            stream.close()
