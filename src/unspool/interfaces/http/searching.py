"""Operations of search and answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from unspool import wire
from unspool.answering.answer import AnswerStream
from unspool.domain.answers import Answer
from unspool.domain.queries import Hit, Page
from unspool.interfaces.http import requests
from unspool.interfaces.http.responses import (
    EVENTS,
    JsonResponse,
    encode,
    encode_event,
    run_until_disconnect,
)
from unspool.interfaces.http.routing import create_router, list_responses
from unspool.interfaces.http.service import ApiCaller, CurrentCaller, read

routes = create_router("search")
answers = create_router("answers")
_EXAMPLE = (
    'event: text\ndata: {"text":"With `open()` [1]."}\n\nevent: answer\ndata: {"question":"How '
    'are sessions opened?","found":true,...}\n\n'
)
_EVENTS = {EVENTS: {"example": _EXAMPLE}}


@routes.post("/search", summary="Search", responses=list_responses(Page, 404, body=True))
@read
def search(caller: CurrentCaller, body: requests.SearchBody) -> wire.Json:
    """Return the best chunks for a query, best first. `continuation` leads to the next page."""
    page = caller.corpus.search(
        body.query,
        projects=body.projects,
        limit=body.limit,
        max_tokens=body.max_tokens,
        alpha=body.alpha,
        where=body.where,
        min_score=body.min_score,
        explain=body.explain,
        max_total_tokens=body.max_total_tokens,
    )
    return wire.encode(page, explain=body.explain, full=body.full)


@routes.post(
    "/more",
    summary="Get the next page",
    responses=list_responses(Page, 404, 410, body=True),
)
@read
def more(caller: CurrentCaller, body: requests.MoreBody) -> wire.Json:
    """Return the page of a continuation: the same one every time.

    A continuation is valid only for the key that received it.
    """
    page = caller.corpus.more(
        body.continuation, limit=body.limit, max_tokens=body.max_tokens, restart=body.restart
    )
    return wire.encode(page, explain=body.explain, full=body.full)


@routes.post(
    "/related",
    operation_id="related",
    summary="Find similar chunks",
    responses=list_responses(Page, 404, body=True),
)
@read
def find_similar(caller: CurrentCaller, body: requests.RelatedBody) -> wire.Json:
    """Return the chunks most similar to the one at a line of a document, without that one."""
    page = caller.corpus.related(body.path, body.line, project=body.project, limit=body.limit)
    return wire.encode(page, full=body.full)


@routes.post(
    "/nearest",
    summary="Search by a vector",
    responses=list_responses({"hits": list[Hit]}, 404, body=True),
)
@read
def nearest(caller: CurrentCaller, body: requests.NearestBody) -> wire.Json:
    """Return the chunks whose vectors are closest, without words and ranking."""
    hits = caller.corpus.nearest(body.vector, k=body.k, projects=body.projects, where=body.where)
    return wire.encode({"hits": hits}, full=body.full)


@routes.post(
    "/embed",
    summary="Embed a text",
    responses=list_responses({"vector": list[float], "embedder": str, "dimension": int}, body=True),
)
@read
def embed(caller: CurrentCaller, body: requests.EmbedBody) -> wire.Json:
    """Return the vector of a text, for `nearest`."""
    vector = caller.corpus.embed(body.text)
    return {"vector": vector, "embedder": caller.corpus.embedder, "dimension": len(vector)}


@routes.post(
    "/count_tokens", summary="Count tokens", responses=list_responses({"tokens": int}, body=True)
)
@read
def count_tokens(caller: CurrentCaller, body: requests.CountTokensBody) -> wire.Json:
    """Return the number of tokens of a text for the embedder, as budgets count them."""
    return {"tokens": caller.corpus.count_tokens(body.text)}


@answers.post(
    "/ask",
    summary="Ask a question",
    responses=list_responses(Answer, 404, body=True, more=_EVENTS),
)
async def ask(request: Request, caller: CurrentCaller, body: requests.AskBody) -> Response:
    """Return a model's answer from the best chunks for a question, with each citation checked.
    Without a model, return the chunks that a model would be given.

    With `stream` the answer comes as events: `text` with each piece, then `answer` with the
    whole, or `error`.
    """
    begin = partial(
        caller.corpus.answering,
        body.question,
        projects=body.projects,
        where=body.where,
        limit=body.limit,
        conversation=requests.create_messages(body.conversation),
    )
    caller.move(caller.service.questions)
    stream = await caller.service.answers.run(begin)
    if body.stream:
        return caller.stream(_stream_answer(caller, stream, full=body.full))
    whole = caller.service.answers.run(_read_answer, stream, body.full)
    return JsonResponse(await run_until_disconnect(request.receive, whole, stream.close))


def _read_answer(stream: AnswerStream, full: bool) -> bytes:
    with stream:
        for _ in stream:
            pass
        return encode(wire.encode(stream.answer, full=full))


async def _stream_answer(
    caller: ApiCaller, stream: AnswerStream, *, full: bool
) -> AsyncGenerator[bytes]:
    """Yield the answer as events."""
    try:
        while (piece := await caller.service.answers.run(next, stream, None)) is not None:
            yield encode_event("text", {"text": piece})
        yield encode_event("answer", wire.encode(stream.answer, full=full))
    except Exception as error:  # noqa: BLE001 - the status is sent, so that an error is an event
        yield caller.report(error)
    finally:
        stream.close()
