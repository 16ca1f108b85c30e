"""Search, and what belongs to it: the next page, what is like a place, raw vectors."""

from __future__ import annotations

from unspool.interfaces import render, shapes
from unspool.interfaces.http import requests
from unspool.interfaces.http.responses import JsonResponse
from unspool.interfaces.http.routing import gives, router
from unspool.interfaces.http.service import Asking
from unspool.views import View

routes = router("search")


@routes.post(
    "/search", operation_id="search", summary="Search", responses=gives(shapes.Page, 404, body=True)
)
async def search(asking: Asking, body: requests.SearchRequest) -> JsonResponse:
    """The best chunks for a query, best first. `continuation` leads to the next page."""

    def found(view: View) -> shapes.Page:
        page = view.search(
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
        return render.page(page, explained=body.explain, full=body.full)

    return await asking.json(found)


@routes.post(
    "/more",
    operation_id="more",
    summary="Get the next page",
    responses=gives(shapes.Page, 404, 410, body=True),
)
async def more(asking: Asking, body: requests.MoreRequest) -> JsonResponse:
    """The page that a continuation leads to: the same one every time.

    It is of use to the key alone that it was given to.
    """

    def found(view: View) -> shapes.Page:
        page = view.more(
            body.continuation, limit=body.limit, max_tokens=body.max_tokens, restart=body.restart
        )
        return render.page(page, explained=body.explain, full=body.full)

    return await asking.json(found)


@routes.post(
    "/related",
    operation_id="related",
    summary="Find what is like a place",
    responses=gives(shapes.Page, 404, body=True),
)
async def related(asking: Asking, body: requests.RelatedRequest) -> JsonResponse:
    """The chunks most like the one at a line of a document, itself left out."""
    return await asking.json(
        lambda view: render.page(
            view.related(body.path, body.line, project=body.project, limit=body.limit),
            full=body.full,
        )
    )


@routes.post(
    "/nearest",
    operation_id="nearest",
    summary="Search by a vector",
    responses=gives(shapes.Hits, 404, body=True),
)
async def nearest(asking: Asking, body: requests.NearestRequest) -> JsonResponse:
    """The chunks whose vectors are closest: no words and no ranking."""

    def found(view: View) -> shapes.Hits:
        hits = view.nearest(body.vector, k=body.k, projects=body.projects, where=body.where)
        return {"hits": [render.hit(one, full=body.full) for one in hits]}

    return await asking.json(found)


@routes.post(
    "/embed",
    operation_id="embed",
    summary="Embed a text",
    responses=gives(shapes.Vector, body=True),
)
async def embed(asking: Asking, body: requests.EmbedRequest) -> JsonResponse:
    """A text's vector, as `nearest` takes it."""

    def made(view: View) -> shapes.Vector:
        vector = view.embed(body.text)
        return {"vector": vector, "embedder": view.embedder, "dimension": len(vector)}

    return await asking.json(made)


@routes.post(
    "/count_tokens",
    operation_id="count_tokens",
    summary="Count tokens",
    responses=gives(shapes.Tokens, body=True),
)
async def count_tokens(asking: Asking, body: requests.CountTokensRequest) -> JsonResponse:
    """How many tokens a text has for the embedder; budgets are counted in these."""
    return await asking.json(lambda view: {"tokens": view.count_tokens(body.text)})
