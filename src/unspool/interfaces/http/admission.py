"""Who is let in: a request's key becomes a view of the corpus, before anything of its body is
read; how often, and how many at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from starlette.types import ASGIApp, Receive, Scope, Send

from unspool.errors import ThrottledError, UnauthenticatedError
from unspool.interfaces.http.errors import CALLER
from unspool.interfaces.http.rooms import Room
from unspool.interfaces.http.service import Caller, Service
from unspool.views import View, admit

PUBLIC = frozenset({"/health", "/ready", "/openapi.json"})
_KEPT = 10_000  # buckets; those that are full again can be forgotten
_REFUSED = (
    "this needs a key that is known here, not revoked and not expired; send it as "
    "`Authorization: Bearer unspool_...`, `unspool key create` makes one"
)


class Buckets:
    """So many calls a minute for each name, at first all at once, then as they come back.

    0 is no bound.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = max(1.0, per_minute) if per_minute else 0.0
        self._per_second = per_minute / 60
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # calls, and when that was

    def wait_s(self, name: str) -> float:
        """Take a call; 0 where there is one, else in how many seconds there will be."""
        if not self._most:
            return 0.0
        now = self._clock()
        left, at = self._left.get(name, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_second)
        if left < 1:
            return (1 - left) / self._per_second
        self._left[name] = (left - 1, now)
        if len(self._left) > _KEPT:
            self._left = {
                one: (count, then)
                for one, (count, then) in self._left.items()
                if count + (now - then) * self._per_second < self._most
            }
        return 0.0


class Admission:
    """Lets in whoever shows a valid key; without keys, everybody.

    The view goes into the scope of the request.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        settings = service.settings
        self._app = app
        self._service = service
        self._calls = Buckets(settings.serve.rate_limit / settings.serve.workers)
        self._failures = Buckets(settings.serve.rate_limit / settings.serve.workers)
        self._entrance = Room(settings.serve.queue, "requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        with ExitStack() as held:
            with self._entrance.place():
                caller = await self._caller(scope, held)
            held.enter_context(self._service.requests.place(caller.view.scope.caller))
            scope[CALLER] = caller
            await self._app(scope, receive, send)

    async def _caller(self, scope: Scope, held: ExitStack) -> Caller:
        key = _key(scope)
        address = (scope.get("client") or ("",))[0]
        try:
            admitted = await self._service.brief.run(admit, self._service.corpus, key)
        except UnauthenticatedError:
            # Only those who have no key wait: behind a proxy everybody has one address, and nobody
            # may lock the others out.
            self._check(self._failures.wait_s(address), "wrong keys were tried from this address")
            raise UnauthenticatedError(_REFUSED) from None
        if admitted.caller:
            scope["state"]["seen"].key = admitted.caller
            self._check(self._calls.wait_s(admitted.caller), "requests were made with this key")
        return Caller(self._service, View(self._service.corpus, admitted), held)

    def _check(self, wait_s: float, what: str) -> None:
        if wait_s:
            raise ThrottledError(
                f"too many {what}; try again in {max(1, round(wait_s))} s", retry_after=wait_s
            )


def _key(scope: Scope) -> str | None:
    """The key that a request shows; None where it shows none.

    What cannot be one is an empty text, which nobody's key is.
    """
    shown: dict[bytes, list[str]] = {b"authorization": [], b"x-api-key": []}
    for name, value in scope["headers"]:
        if name in shown:
            shown[name].append(value.decode("latin-1").strip())
    if any(len(values) > 1 for values in shown.values()):
        return ""  # which of them is meant, others on the way may see differently
    if not shown[b"authorization"]:
        return next(iter(shown[b"x-api-key"]), None)
    scheme, _, key = shown[b"authorization"][0].partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
