"""Calls are sent, and flows are run: once for programs that wait, once for those that await."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from typing import Any, TypeVar

import anyio
import httpx2
from anyio import to_thread

from unspool.calling import Stream, trusted
from unspool.client.call import Call
from unspool.client.flows import Flow, Pause
from unspool.client.service import Service
from unspool.errors import InputError, UnspoolError

ENDING_S = 5.0  # for what a flow still has to say after it was cancelled
_T = TypeVar("_T")


class Sender:
    """Connections to a service. Safe to use from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._is_closed = False
        self._client = httpx2.Client(**_manner(service))
        # One connection for each answer: how to reach its socket, and end it from another thread,
        # is known only while it is made.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._apart = httpx2.Client(**_manner(service), limits=limits)
        weakref.finalize(self, self._client.close)
        weakref.finalize(self, self._apart.close)
        _be_quiet()

    def close(self) -> None:
        """Let go of every connection."""
        self._is_closed = True
        self._client.close()
        self._apart.close()

    def run(self, flow: Flow[_T]) -> _T:
        """What a flow comes to."""
        step: Callable[[], Call[Any] | Pause] = partial(next, flow)
        while True:
            try:
                wanted = step()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                given = self._done(wanted)
            except BaseException as error:  # noqa: BLE001 - the flow says what becomes of it, and mostly raises it again
                step = partial(flow.throw, error)
            else:
                step = partial(flow.send, given)

    def send(self, call: Call[_T]) -> _T:
        """What a call gives, made again as long as that may help."""
        return self.repeated(call, partial(self._once, call))

    def repeated(self, call: Call[Any], once: Callable[[], _T]) -> _T:
        """What one attempt at a call gives, or another one."""
        for attempt in count(1):
            try:
                return once()
            except UnspoolError as error:
                pause = self.service.pause(call, error, attempt)
                if pause is None:
                    raise
            time.sleep(pause)
        raise AssertionError("unreachable")

    def stream(self, call: Call[Any]) -> Stream:
        """What comes back in bytes, as they come."""
        _check_open(self._is_closed)
        url, content = self.service.url(call), call.content()
        return Stream(
            self.service,
            lambda extensions: self._apart.stream(
                call.method, url, content=content, headers=_typed(content), extensions=extensions
            ),
        )

    def _done(self, wanted: Call[Any] | Pause) -> Any:
        if isinstance(wanted, Call):
            return self.send(wanted)
        time.sleep(wanted.seconds)
        return None

    def _once(self, call: Call[_T]) -> _T:
        _check_open(self._is_closed)
        content = call.content()
        deadline = time.monotonic() + self.service.request_s
        try:
            with self._client.stream(
                call.method, self.service.url(call), content=content, headers=_typed(content)
            ) as coming:
                data = bytearray()
                for some in coming.iter_bytes():
                    data += some
                    # the client only bounds the wait for each piece
                    if time.monotonic() > deadline:
                        raise self.service.late()
        except httpx2.TimeoutException as error:
            raise self.service.late() from error
        except httpx2.HTTPError as error:
            _check_open(self._is_closed)
            raise self.service.away(error) from error
        return self.service.value(call, _whole(coming, data))


class AsyncSender:
    """The same for async programs."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._is_closed = False
        self._client = httpx2.AsyncClient(**_manner(service))
        _be_quiet()

    async def close(self) -> None:
        """Let go of every connection."""
        self._is_closed = True
        await self._client.aclose()

    async def run(self, flow: Flow[_T], *, in_thread: bool = False) -> _T:
        """What a flow comes to; `in_thread` where its own part takes long.

        One that is cancelled may still send what ends it.
        """
        step: Callable[[], Call[Any] | Pause | _End] = partial(_next, flow, partial(next, flow))
        is_ending = False
        while True:
            wanted = await to_thread.run_sync(step) if in_thread and not is_ending else step()
            if isinstance(wanted, _End):
                return wanted.value  # type: ignore[no-any-return]
            given = None
            try:
                with anyio.CancelScope(
                    shield=is_ending,
                    deadline=anyio.current_time() + ENDING_S if is_ending else float("inf"),
                ):
                    given = await self._done(wanted)
            except BaseException as error:  # noqa: BLE001 - the same
                is_ending = is_ending or isinstance(error, anyio.get_cancelled_exc_class())
                step = partial(_next, flow, partial(flow.throw, error))
            else:
                step = partial(_next, flow, partial(flow.send, given))

    async def send(self, call: Call[_T]) -> _T:
        """What a call gives, made again as long as that may help."""
        return await self.repeated(call, partial(self._once, call))

    async def repeated(self, call: Call[Any], once: Callable[[], Awaitable[_T]]) -> _T:
        """What one attempt at a call gives, or another one."""
        for attempt in count(1):
            try:
                return await once()
            except UnspoolError as error:
                pause = self.service.pause(call, error, attempt)
                if pause is None:
                    raise
            await anyio.sleep(pause)
        raise AssertionError("unreachable")

    def stream(self, call: Call[Any]) -> AbstractAsyncContextManager[httpx2.Response]:
        """What comes back, not read yet."""
        _check_open(self._is_closed)
        content = call.content()
        return self._client.stream(
            call.method, self.service.url(call), content=content, headers=_typed(content)
        )

    async def _done(self, wanted: Call[Any] | Pause) -> Any:
        if isinstance(wanted, Call):
            return await self.send(wanted)
        await anyio.sleep(wanted.seconds)
        return None

    async def _once(self, call: Call[_T]) -> _T:
        data = bytearray()
        try:
            with anyio.fail_after(self.service.request_s):
                async with self.stream(call) as coming:
                    async for some in coming.aiter_bytes():
                        data += some
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self.service.late() from error
        except httpx2.HTTPError as error:
            _check_open(self._is_closed)
            raise self.service.away(error) from error
        return self.service.value(call, _whole(coming, data))


class _End:
    """The end of a flow: a `StopIteration` does not get out of a thread."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _next(flow: Flow[Any], step: Callable[[], Call[Any] | Pause]) -> Call[Any] | Pause | _End:
    try:
        return step()
    except StopIteration as end:
        return _End(end.value)


def _manner(service: Service) -> dict[str, Any]:
    """How every client speaks to a service.

    A proxy that the environment names reads all that is not encrypted, the key with it.
    """
    return {
        "timeout": service.patience,
        "headers": service.headers,
        "verify": trusted(),
        "trust_env": service.is_encrypted,
    }


def _check_open(is_closed: bool) -> None:
    if is_closed:
        raise InputError("the corpus is closed; open it again")


def _typed(content: bytes | None) -> dict[str, str]:
    return {} if content is None else {"Content-Type": "application/json"}


def _whole(coming: httpx2.Response, data: bytearray) -> httpx2.Response:
    """An answer with all that it says, unpacked."""
    headers = coming.headers.copy()
    headers.pop("content-encoding", None)
    return httpx2.Response(coming.status_code, headers=headers, content=bytes(data))


def _be_quiet() -> None:
    # it notes every address it calls, and with it what was asked for
    logging.getLogger("httpx2").setLevel(logging.WARNING)
