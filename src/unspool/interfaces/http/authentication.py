"""Authentication: the key of a request becomes a scoped corpus before the body is read."""

from __future__ import annotations

from contextlib import ExitStack

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from unspool.access.scope import admit
from unspool.corpus import Corpus
from unspool.errors import UnauthenticatedError
from unspool.interfaces.http.errors import CALLER
from unspool.interfaces.http.limits import ConcurrencyLimit, RateLimit
from unspool.interfaces.http.service import ApiCaller, ServiceState
from unspool.settings.options import ServeOptions

PUBLIC = frozenset({"/health", "/ready", "/openapi.json"})
_INVALID = (
    "a valid key is required, neither revoked nor expired; send it as "
    "`Authorization: Bearer unspool_...`, `unspool key create` makes one"
)


class Authentication:
    """Middleware that admits requests with a valid key; without keys, all of them.

    It also limits the requests per minute and at once.
    """

    def __init__(self, app: ASGIApp, options: ServeOptions) -> None:
        self._app = app
        per_process = options.rate_limit / options.workers
        self._calls = RateLimit(per_process, "requests with this key")
        self._failures = RateLimit(per_process, "wrong keys from this address")
        self._lookups = ConcurrencyLimit(options.queue, "requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        service: ServiceState = scope["app"].state.service
        with ExitStack() as slots:
            with self._lookups.acquire():
                corpus = await self._authenticate(scope, service)
            slots.enter_context(service.requests.acquire(corpus.scope.caller))
            scope[CALLER] = ApiCaller(service, corpus, slots)
            await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope, service: ServiceState) -> Corpus:
        key = _read_key(Headers(scope=scope))
        try:
            admitted = await service.lookups.run(admit, service.corpus, key)
        except UnauthenticatedError:
            # Only callers without a valid key are limited by address: behind a proxy all share
            # one, and nobody may lock out the others.
            self._failures.acquire((scope.get("client") or ("",))[0])
            raise UnauthenticatedError(_INVALID) from None
        if admitted.caller:
            scope["state"]["seen"].key = admitted.caller
            self._calls.acquire(admitted.caller)
        return service.corpus.scoped(admitted)


def _read_key(headers: Headers) -> str | None:
    """Return the key of a request, or None without one.

    An unusable header gives an empty key, which is never valid.
    """
    tokens, keys = headers.getlist("authorization"), headers.getlist("x-api-key")
    if len(tokens) > 1 or len(keys) > 1:
        return ""  # proxies may disagree about which of them counts
    if not tokens:
        return keys[0].strip() if keys else None
    scheme, _, key = tokens[0].strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
