"""Answers, whole or as they are written. Whoever goes away ends the call of the model."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from unspool.answering.answer import AnswerStream
from unspool.interfaces import render, shapes
from unspool.interfaces.http import requests
from unspool.interfaces.http.responses import EVENTS, JsonResponse, encoded, event, unless_gone
from unspool.interfaces.http.routing import gives, router
from unspool.interfaces.http.service import Asking, Caller

routes = router("answers")
_EXAMPLE = (
    'event: text\ndata: {"text":"With `open()` [1]."}\n\nevent: answer\ndata: {"question":"How '
    'are sessions opened?","found":true,...}\n\n'
)
_EVENTS = {EVENTS: {"example": _EXAMPLE}}


@routes.post(
    "/ask",
    operation_id="ask",
    summary="Ask a question",
    responses=gives(shapes.Answer, 404, body=True, more=_EVENTS),
)
async def ask(request: Request, asking: Asking, body: requests.AskRequest) -> Response:
    """What a model answers from the best chunks for a question, each citation checked. Without a
    model, what one would be shown.

    With `stream` it comes as events: `text` with each piece, then `answer` with the whole, or
    `error`.
    """
    told = requests.values_of(body.conversation)
    begin = lambda: asking.view.answering(  # noqa: E731 - it runs in a thread
        body.question, projects=body.projects, where=body.where, limit=body.limit, conversation=told
    )
    asking.move(asking.service.questions)
    stream = await asking.service.answers.run(begin)
    if body.stream:
        return asking.stream(_told(asking, stream, full=body.full))
    whole = asking.service.answers.run(_whole, stream, body.full)
    return JsonResponse(await unless_gone(request.receive, whole, stream.close))


def _whole(stream: AnswerStream, full: bool) -> bytes:
    with stream:
        for _ in stream:
            pass
        return encoded(render.answer(stream.answer, full=full))


async def _told(asking: Caller, stream: AnswerStream, *, full: bool) -> AsyncIterator[bytes]:
    """The answer as events."""
    try:
        while (piece := await asking.service.answers.run(next, stream, None)) is not None:
            yield event("text", {"text": piece})
        yield event("answer", render.answer(stream.answer, full=full))
    except Exception as error:  # noqa: BLE001 - the status is out, so that an error is an event
        yield event("error", asking.failed(error))
    finally:
        stream.close()
