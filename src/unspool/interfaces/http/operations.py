"""Operations for administrators: health, metrics and stores."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from unspool import wire
from unspool.domain.reports import StoreStatus
from unspool.errors import UnspoolError
from unspool.interfaces import disclosure
from unspool.interfaces.http.errors import DownError
from unspool.interfaces.http.responses import JsonResponse
from unspool.interfaces.http.routing import create_router, list_responses
from unspool.interfaces.http.service import CurrentCaller, read

routes = create_router("operations")
public = create_router("operations", prefix="")
_METRICS = {"text/plain": {"schema": {"type": "string"}, "example": "unspool_pages_total 3.0\n"}}


@public.get(
    "/health",
    summary="Check the process",
    responses=list_responses({"status": str}, only=(403, 421, 500)),
)
async def health() -> JsonResponse:
    """Return 200 as long as the process answers."""
    return JsonResponse({"status": "ok"})


@public.get(
    "/ready",
    summary="Check the catalog",
    responses=list_responses({"status": str}, only=(403, 421, 500, 503, 504)),
)
async def ready(request: Request) -> JsonResponse:
    """Return 200 if the catalog answers."""
    service = request.app.state.service
    try:
        await service.lookups.run(service.corpus.keys.are_used)
    # its text names the database, which callers without a key must not see
    except UnspoolError as error:
        disclosure.write_down(error)
        raise DownError("the catalog does not answer; the service's log has the details") from None
    return JsonResponse({"status": "ready"})


@public.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses=list_responses(more=_METRICS),
)
async def metrics(request: Request, caller: CurrentCaller) -> Response:
    """Return all metrics of all processes of the service. With keys, only admins of every project
    may read them.
    """
    service = caller.service
    caller.corpus.scope.require_everything("metrics")
    service.observer.jobs(await service.reads.run(service.jobs.count_by_state))
    text, media_type = await service.reads.run(
        service.observer.metrics, request.headers.get("accept", "")
    )
    return Response(text, media_type=media_type)


@routes.get(
    "/stores", summary="List stores", responses=list_responses({"stores": list[StoreStatus]})
)
@read
def list_stores(caller: CurrentCaller) -> wire.Json:
    """Return all stores of vectors: capabilities, driver, and what is missing to use each."""
    return wire.encode({"stores": caller.corpus.stores()})
