"""What a search sends to PostgreSQL, taken down as it is sent, and sent again by hand."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg.pq import TransactionStatus

# keys that a search makes for what it keeps; sent again, they have to be others
_OWN = ("name", "window", "key", "b_key", "c0")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was sent. `text` is a statement, COMMIT or ROLLBACK."""

    text: Any
    values: Any = None
    # isolation level and whether it only reads, where it is the first of a transaction
    begins: tuple[Any, Any] | None = None
    is_ping: bool = False
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Recording:
    """What was sent since the last `take`, and the seconds that it took, reading the answers
    included.
    """

    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0
    ping_seconds: float = 0.0

    def take(self) -> Recording:
        """What there is, and begin anew."""
        taken = Recording(self.steps, self.seconds, self.ping_seconds)
        self.steps, self.seconds, self.ping_seconds = [], 0.0, 0.0
        return taken

    @property
    def round_trips(self) -> int:
        return sum(1 + (step.begins is not None) for step in self.steps)

    @property
    def pings(self) -> int:
        return sum(step.is_ping for step in self.steps)


@contextmanager
def recording() -> Iterator[Recording]:
    """Everything that psycopg sends, from whichever connection, while the context lasts."""
    log = Recording()
    execute, fetchall, commit, rollback = (
        psycopg.Cursor.execute,
        psycopg.Cursor.fetchall,
        psycopg.Connection.commit,
        psycopg.Connection.rollback,
    )

    def on_execute(cursor: Any, query: Any, params: Any = None, **named: Any) -> Any:
        connection = cursor.connection
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        is_ping = (
            connection.autocommit
            and params is None
            and str(query).strip().rstrip(";").upper() in ("SELECT 1", "")
        )
        begins = (
            (connection.isolation_level, connection.read_only)
            if is_idle and not connection.autocommit
            else None
        )
        begun = time.perf_counter()
        try:
            return execute(cursor, query, params, **named)
        finally:
            spent = time.perf_counter() - begun
            log.seconds += spent
            log.ping_seconds += spent if is_ping else 0.0
            log.steps.append(Step(query, params, begins, is_ping, named))

    def on_fetch(cursor: Any) -> Any:
        begun = time.perf_counter()
        try:
            return fetchall(cursor)
        finally:
            log.seconds += time.perf_counter() - begun

    def ending(original: Any, text: str) -> Any:
        def on_end(connection: Any) -> None:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                log.steps.append(Step(text))
            begun = time.perf_counter()
            try:
                original(connection)
            finally:
                log.seconds += time.perf_counter() - begun

        return on_end

    with ExitStack() as stack:
        stack.enter_context(patch.object(psycopg.Cursor, "execute", on_execute))
        stack.enter_context(patch.object(psycopg.Cursor, "fetchall", on_fetch))
        stack.enter_context(patch.object(psycopg.Connection, "commit", ending(commit, "COMMIT")))
        stack.enter_context(
            patch.object(psycopg.Connection, "rollback", ending(rollback, "ROLLBACK"))
        )
        yield log


def fresh_keys(steps: list[Step]) -> list[Step]:
    """The steps with other keys for what the search kept, so that they can be sent a second
    time.
    """
    others: dict[bytes, bytes] = {}

    def other(value: Any) -> Any:
        if isinstance(value, list):
            return [other(one) for one in value]
        if isinstance(value, psycopg.Binary):
            return psycopg.Binary(other(value.obj))
        return (
            others.setdefault(value, secrets.token_bytes(len(value)))
            if isinstance(value, bytes)
            else value
        )

    kept: list[Step] = []
    for step in steps:
        values = step.values
        if isinstance(values, Mapping) and _is_about_kept(str(step.text)):
            values = {
                name: other(value) if name in _OWN else value for name, value in values.items()
            }
        kept.append(Step(step.text, values, step.begins, step.is_ping, step.named))
    return kept


def _is_about_kept(text: str) -> bool:
    return any(name in text for name in ("windows", "segments", "query_vectors"))


def replay(connection: psycopg.Connection[Any], steps: list[Step]) -> float:
    """Send them over one plain connection, without the pings, and read all rows; returns the
    seconds.
    """
    begun = time.perf_counter()
    for step in steps:
        if step.is_ping:
            continue
        if step.text == "COMMIT":
            connection.commit()
        elif step.text == "ROLLBACK":
            connection.rollback()
        else:
            if step.begins is not None:
                connection.isolation_level, connection.read_only = step.begins
            cursor = connection.cursor()
            cursor.execute(step.text, step.values, **step.named)
            if cursor.description is not None:
                cursor.fetchall()
    return time.perf_counter() - begun
