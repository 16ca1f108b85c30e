"""Events as structured logs: names, counts and durations, never text, paths of documents, queries
or keys.

Records of other libraries go to the same stream. Most libraries may quote data in their sentences,
so only the logger, position and level of their records are written.
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
from typing import Any, NamedTuple, TextIO

from unspool.domain.events import AnswerFinished, Event, IndexFinished, Outcome, PageServed
from unspool.errors import UnspoolError
from unspool.observability.context import (
    DoorEvent,
    ErrorResponse,
    Request,
    ToolCallEvent,
    request_id,
)
from unspool.settings.masking import MASK

_NAMES: Mapping[type[Any], str] = {
    PageServed: "page",
    AnswerFinished: "answer",
    IndexFinished: "index",
    Request: "request",
    ToolCallEvent: "tool",
    ErrorResponse: "error",
}
_PROBES = frozenset({"/health", "/ready", "/metrics"})  # called every few seconds by programs
# their sentences are written: they describe the service, not what is sent
_QUOTED = ("unspool", "uvicorn.error")
# The first writes whole paths and queries, and each request has a record anyway. The other repeats
# itself with every batch of spans.
_SILENCED = ("uvicorn.access", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
# they log every address they call, which may contain a password
_CALLERS = ("httpx", "httpx2", "httpcore", "httpcore2")
_SERVER = ("uvicorn", "uvicorn.error", "uvicorn.access")  # they install their own handlers
_FRAMES = 30
_PLAIN = re.compile(r"[\w.:/{}*@+-]+", re.ASCII)
_SECRET = re.compile(
    r"(://[^\s:/@]*:)[^\s@]*(?=@)|(\bunspool_[0-9a-z]+_)[\w-]+|(\bbearer\s+)\S+|([?&](?:sslpassword|password|api[-_]?key|key|token|sig|code)=)[^&\s]*",
    re.IGNORECASE,
)


class _LogEntry(NamedTuple):
    """Name and fields of a log record."""

    name: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the text for handlers of other programs."""
        return _format_text(self.name, self.fields)


class Logs:
    """Log with a record for every event, written to one stream until it is closed."""

    def __init__(
        self, *, level: str, is_json: bool, slow_s: float, stream: TextIO | None = None
    ) -> None:
        self._slow_s = slow_s
        self._logger = logging.getLogger("unspool")
        self._levels_before = {
            name: logging.getLogger(name).level for name in ("unspool", *_CALLERS)
        }
        self._logger.setLevel(level.upper())
        self._handler = _Handler(stream or sys.stderr, is_json=is_json)
        # one per process: two would write everything twice
        if not any(isinstance(one, _Handler) for one in logging.getLogger().handlers):
            logging.getLogger().addHandler(self._handler)
        for name in _CALLERS:
            other = logging.getLogger(name)
            other.setLevel(max(other.level, logging.WARNING))
        for name in _SILENCED:
            logging.getLogger(name).addFilter(_reject)
        for name in _SERVER:
            other = logging.getLogger(name)
            other.handlers.clear()
            other.propagate = True

    def on_event(self, event: Event | DoorEvent) -> None:
        """Write the record of an event. A page that took too long is a warning."""
        fields: dict[str, Any] = {
            name: _round(getattr(event, name)) for name in event.__dataclass_fields__
        }
        if isinstance(event, ErrorResponse):
            del fields["cause"]
            fields |= {} if event.cause is None else _describe_error(event.cause)
        elif isinstance(event, PageServed):
            fields["slow"] = event.total_s > self._slow_s
        level = logging.WARNING if fields.get("slow") else _choose_level(event)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, _LogEntry(_NAMES[type(event)], fields))

    def close(self) -> None:
        """Stop writing and restore the levels. A second call does nothing."""
        root = logging.getLogger()
        if self._handler not in root.handlers:
            return
        root.removeHandler(self._handler)
        for name, level in self._levels_before.items():
            logging.getLogger(name).setLevel(level)
        for name in _SILENCED:
            logging.getLogger(name).removeFilter(_reject)


def _choose_level(event: Event | DoorEvent) -> int:
    """Return the level of an event. A caller's mistake is information, a bug an error."""
    if isinstance(event, ErrorResponse):
        status = list_statuses().get(event.code)
        if event.cause is not None or event.code == "bug" or status is None:
            return logging.ERROR
        return logging.WARNING if status >= 500 else logging.INFO
    if isinstance(event, Request):
        if event.status >= 500:
            return logging.ERROR
        return logging.DEBUG if event.route in _PROBES else logging.INFO
    if isinstance(event, AnswerFinished) and event.outcome is Outcome.FAILED:
        return logging.WARNING
    return logging.INFO


class _Handler(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO, *, is_json: bool) -> None:
        super().__init__(stream)
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        entry = record.msg if isinstance(record.msg, _LogEntry) else _convert_record(record)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": entry.name,
        }
        current = {"request_id": request_id.get()} if request_id.get() else {}
        if self._is_json:
            return json.dumps({**head, **current, **entry.fields}, ensure_ascii=True, default=str)
        text = _format_text(entry.name, {**current, **entry.fields})
        return f"{head['at']} {head['level']:7} {text}"


def _convert_record(record: logging.LogRecord) -> _LogEntry:
    """Return a record of another library, without anything that may be private."""
    fields: dict[str, Any] = {"logger": record.name, "place": f"{record.module}:{record.lineno}"}
    if record.name.startswith(_QUOTED):
        fields["message"] = _SECRET.sub(
            lambda found: next(filter(None, found.groups())) + MASK, record.getMessage()
        ).strip()
    if record.exc_info and record.exc_info[1] is not None:
        fields |= _describe_error(record.exc_info[1])
    return _LogEntry("log", fields)


def _describe_error(error: BaseException) -> dict[str, Any]:
    """Return the classes of an exception and its causes, and the position where it was raised.

    Its text is left out, because it may quote data.
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
def list_statuses() -> Mapping[str, int]:
    """Return the HTTP status of each error code. Any other code is a bug."""
    return {kind.code: kind.http_status for kind in _list_errors(UnspoolError)}


def _list_errors(root: type[UnspoolError]) -> Iterator[type[UnspoolError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _list_errors(kind)


def _round(value: Any) -> Any:
    """Round a duration to microseconds."""
    return round(value, 6) if isinstance(value, float) else value


def _format_text(name: str, fields: Mapping[str, Any]) -> str:
    pairs = (f"{key}={_quote(value)}" for key, value in fields.items() if value not in ("", None))
    return " ".join((name, *pairs))


def _quote(value: Any) -> str:
    """Return a value on one line, in quotes if it contains a space."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        value = " | ".join(value)
    text = f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _reject(record: logging.LogRecord) -> bool:
    return False
