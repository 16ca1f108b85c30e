"""What operators look at: whether the service is up, whether it can answer, its metrics, its
stores.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from unspool.errors import UnspoolError
from unspool.interfaces import disclosure, render, shapes
from unspool.interfaces.http.errors import DownError
from unspool.interfaces.http.responses import JsonResponse
from unspool.interfaces.http.routing import Route, gives, router
from unspool.interfaces.http.service import Asking

routes = router("operations")
public = APIRouter(tags=["operations"], route_class=Route)
_METRICS = {"text/plain": {"schema": {"type": "string"}, "example": "unspool_pages_total 3.0\n"}}


class Health(TypedDict):
    """That the service is there."""

    status: str


@public.get(
    "/health",
    operation_id="health",
    summary="Is it up",
    responses=gives(Health, only=(403, 421, 500)),
)
async def health() -> JsonResponse:
    """Answers as long as the process does."""
    return JsonResponse({"status": "ok"})


@public.get(
    "/ready",
    operation_id="ready",
    summary="Can it answer",
    responses=gives(Health, only=(403, 421, 500, 503, 504)),
)
async def ready(request: Request) -> JsonResponse:
    """Answers with 200 if the catalog does."""
    service = request.app.state.service
    try:
        await service.brief.run(service.corpus.keys.are_used)
    # its text names the database, which is nobody's business who has no key
    except UnspoolError as error:
        disclosure.write_down(error)
        raise DownError("the catalog does not answer; the service's log says more") from None
    return JsonResponse({"status": "ready"})


@public.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses=gives(more=_METRICS),
)
async def metrics(request: Request, asking: Asking) -> Response:
    """All metrics of all processes of the service; with keys, for those of admins of every
    project.
    """
    service = asking.service
    asking.view.scope.require_everything("metrics")
    service.observer.jobs(await service.threads.run(service.jobs.count_by_state))
    text, media_type = await service.threads.run(
        service.observer.metrics, request.headers.get("accept", "")
    )
    return Response(text, media_type=media_type)


@routes.get(
    "/stores", operation_id="list_stores", summary="List stores", responses=gives(shapes.Stores)
)
async def list_stores(asking: Asking) -> JsonResponse:
    """The stores of vectors, which one is in use, and what it can do."""
    return await asking.json(lambda view: {"stores": [render.store(one) for one in view.stores()]})
