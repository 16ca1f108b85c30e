"""Events and requests as structured logs: names, counts and durations, never text, paths of
documents, queries or keys.

What other libraries log goes the same way. Of most of them only who, where and how grave is
written: their sentences may quote what was sent.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import PurePath
from typing import Any, TextIO

from unspool.domain.events import AnswerFinished, Event, IndexFinished, Outcome, PageServed
from unspool.errors import UnspoolError
from unspool.observability.context import request_id
from unspool.settings.masking import MASK

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_NAMES = {PageServed: "page", AnswerFinished: "answer", IndexFinished: "index"}
_PROBES = frozenset({"/health", "/ready", "/metrics"})  # asked every few seconds by programs
# whose sentences are written: they speak of the service, not of what is sent
_QUOTED = ("unspool", "uvicorn.error")
# The first writes whole paths and queries, and there is a record of each request anyway; the other
# repeats itself with every batch of spans.
_SILENCED = ("uvicorn.access", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
# they note every address they call, and one may hold a password
_CALLERS = ("httpx", "httpx2", "httpcore", "httpcore2")
_SERVER = ("uvicorn", "uvicorn.error", "uvicorn.access")  # which bring handlers of their own
_FRAMES = 30
_PLAIN = re.compile(r"[\w.:/{}*@+-]+", re.ASCII)
_SECRET = re.compile(
    r"(://[^\s:/@]*:)[^\s@]*(?=@)|(\bunspool_[0-9a-z]+_)[\w-]+|(\bbearer\s+)\S+|([?&](?:sslpassword|password|api[-_]?key|key|token|sig|code)=)[^&\s]*",
    re.IGNORECASE,
)


class _Told:
    """What a record says: an event's name and its fields.

    As text only where somebody else's handler asks for it.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return _as_text(self.name, self.fields)


class Logs:
    """Writes a record for every event, request, call of a tool and error to one stream, until it
    is closed.
    """

    def __init__(
        self, *, level: str, is_json: bool, slow_s: float, stream: TextIO | None = None
    ) -> None:
        self._slow_s = slow_s
        self._logger = logging.getLogger("unspool")
        self._before = (
            self._logger.level,
            {name: logging.getLogger(name).level for name in _CALLERS},
        )
        self._logger.setLevel(_LEVELS[level])
        self._handler = _Handler(stream or sys.stderr, is_json=is_json)
        # one per process: two would write everything twice
        if not any(isinstance(one, _Handler) for one in logging.getLogger().handlers):
            logging.getLogger().addHandler(self._handler)
        for name in _CALLERS:
            other = logging.getLogger(name)
            other.setLevel(max(other.level, logging.WARNING))
        for name in _SILENCED:
            logging.getLogger(name).addFilter(_nothing)
        for name in _SERVER:
            other = logging.getLogger(name)
            other.handlers.clear()
            other.propagate = True

    def on_event(self, event: Event) -> None:
        """A record for an event. A page that took too long is a warning."""
        values = {name: _value(getattr(event, name)) for name in event.__dataclass_fields__}
        level = logging.INFO
        if isinstance(event, PageServed):
            values["slow"] = event.total_s > self._slow_s
            level = logging.WARNING if values["slow"] else logging.INFO
        elif isinstance(event, AnswerFinished) and event.outcome is Outcome.FAILED:
            level = logging.WARNING
        self._write(level, _NAMES[type(event)], values)

    def request(self, method: str, route: str, status: int, seconds: float, key: str) -> None:
        """A record for a request that has ended; status 0 is one that was not answered."""
        level = (
            logging.ERROR if status >= 500 else logging.DEBUG if route in _PROBES else logging.INFO
        )
        self._write(
            level,
            "request",
            {
                "method": method,
                "route": route,
                "status": status,
                "key": key,
                "total_s": _value(seconds),
            },
        )

    def tool(self, name: str, outcome: str, seconds: float) -> None:
        """A record for a call of a tool."""
        self._write(
            logging.INFO, "tool", {"tool": name, "outcome": outcome, "total_s": _value(seconds)}
        )

    def error(self, code: str, cause: BaseException | None = None) -> None:
        """A record for an error that was answered: grave where it is ours or a service's, not
        where the caller was wrong.
        """
        is_bug = cause is not None or code == "bug" or code not in statuses()
        level = (
            logging.ERROR
            if is_bug
            else logging.WARNING
            if statuses()[code] >= 500
            else logging.INFO
        )
        self._write(level, "error", {"code": code, **({} if cause is None else _trace(cause))})

    def close(self) -> None:
        """Write nothing any more, and leave levels as they were. A second time does nothing."""
        root = logging.getLogger()
        if self._handler not in root.handlers:
            return
        root.removeHandler(self._handler)
        level, others = self._before
        self._logger.setLevel(level)
        for name, before in others.items():
            logging.getLogger(name).setLevel(before)
        for name in _SILENCED:
            logging.getLogger(name).removeFilter(_nothing)

    def _write(self, level: int, name: str, values: Mapping[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, _Told(name, values))


class _Handler(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO, *, is_json: bool) -> None:
        super().__init__(stream)
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        told = record.msg if isinstance(record.msg, _Told) else _foreign(record)
        head = {
            "at": _instant(record.created),
            "level": record.levelname.lower(),
            "event": told.name,
        }
        asked = {"request_id": request_id.get()} if request_id.get() else {}
        if self._is_json:
            return json.dumps({**head, **asked, **told.fields}, ensure_ascii=True, default=str)
        return f"{head['at']} {head['level']:7} {_as_text(told.name, {**asked, **told.fields})}"


def _foreign(record: logging.LogRecord) -> _Told:
    """What another library logged, as far as it can hold nothing of anybody's."""
    values: dict[str, Any] = {"logger": record.name, "place": f"{record.module}:{record.lineno}"}
    if record.name.startswith(_QUOTED):
        values["message"] = _SECRET.sub(
            lambda found: next(filter(None, found.groups())) + MASK, record.getMessage()
        ).strip()
    if record.exc_info and record.exc_info[1] is not None:
        values |= _trace(record.exc_info[1])
    return _Told("log", values)


def _trace(error: BaseException) -> dict[str, Any]:
    """An exception and its causes by class, and where it was raised: not what it says, which may
    be what was sent.
    """
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return {
        "error": " < ".join(
            f"{type(one).__module__}.{type(one).__qualname__}".removeprefix("builtins.")
            for one in chain
        ),
        "trace": [
            f"{'/'.join(PurePath(frame.filename).parts[-3:])}:{frame.lineno} {frame.name}"
            for frame in frames
        ],
    }


@cache
def statuses() -> Mapping[str, int]:
    """The HTTP status of each error code that there is; what is none of them is a bug."""
    return {kind.code: kind.http_status for kind in _kinds(UnspoolError)}


def _kinds(root: type[UnspoolError]) -> Iterator[type[UnspoolError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def _value(value: Any) -> Any:
    """As it is written: a duration to the microsecond."""
    return round(value, 6) if isinstance(value, float) else value


def _as_text(name: str, values: Mapping[str, Any]) -> str:
    return " ".join(
        (
            name,
            *(f"{key}={_word(value)}" for key, value in values.items() if value not in ("", None)),
        )
    )


def _word(value: Any) -> str:
    """A value on one line, without a space unless it is in quotes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return _word(" | ".join(value))
    text = f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _instant(seconds: float) -> str:
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _nothing(record: logging.LogRecord) -> bool:
    return False
