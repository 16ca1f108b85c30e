"""Filters as SQL: a filter tree becomes a condition over documents and, if it asks for headings,
chunks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import reading
from unspool.catalog.conversations import speaker_key
from unspool.catalog.schema import (
    chunks,
    document_fields,
    documents,
    field_text,
    messages,
    projects,
)
from unspool.domain import globs
from unspool.domain.documents import Kind, nanoseconds
from unspool.domain.filters import (
    INSIDE,
    AllOf,
    AnyOf,
    Compare,
    Filter,
    Not,
    fields_of,
    listed_field,
)

Condition = sa.ColumnElement[bool]
Glob = Callable[[str], str]
_REMEMBERED = 16  # filters
_GROUP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a filter lets through in one project: sorted ids of documents, or of chunks where the
    filter looks inside documents.
    """

    documents: npt.NDArray[np.int64] | None = None
    chunks: npt.NDArray[np.int64] | None = None
    total: int = 0  # how many chunks that comes to

    @property
    def is_empty(self) -> bool:
        chosen = self.documents if self.chunks is None else self.chunks
        return chosen is not None and len(chosen) == 0

    def accepts(
        self, chunk_ids: npt.NDArray[np.int64], document_ids: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which of some chunks the filter accepts, given their ids and those of their
        documents.
        """
        if self.chunks is not None:
            return _contains(self.chunks, chunk_ids)
        assert self.documents is not None
        return _contains(self.documents, document_ids)


def _contains(
    sorted_ids: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    if not len(sorted_ids) or not len(ids):
        return np.zeros(len(ids), dtype=np.bool_)
    lowest, highest = (
        min(int(sorted_ids[0]), int(ids.min())),
        max(int(sorted_ids[-1]), int(ids.max())),
    )
    # document ids are small numbers: a table is ten times faster than a search
    if lowest >= 0 and highest < 16 * len(ids):
        table = np.zeros(highest + 1, dtype=np.bool_)
        table[sorted_ids] = True
        return table[ids]
    at = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    found: npt.NDArray[np.bool_] = sorted_ids[at] == ids
    return found


class Selections:
    """What the last few filters let through, remembered while their projects stay as they are.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[int, int, Filter], Selection] = OrderedDict()

    def get(
        self, connection: Connection, project_id: int, condition: Filter, *, seq: int | None = None
    ) -> Selection:
        """What a filter lets through.

        `seq` is the project's sequence number, where the caller knows it.
        """
        known = None if seq is None else self._remembered(project_id, seq, condition)
        if known is not None:
            return known
        # as this connection sees it, which may be an older state than the caller knows of
        seq, _ = reading.counters(connection, project_id)
        found = self._remembered(project_id, seq, condition) or select(
            connection, project_id, condition
        )
        with self._guard:
            self._known[(project_id, seq, condition)] = found
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    def _remembered(self, project_id: int, seq: int, condition: Filter) -> Selection | None:
        with self._guard:
            return self._known.get((project_id, seq, condition))


def select(connection: Connection, project_id: int, condition: Filter) -> Selection:
    """Everything in a project that a filter lets through."""
    # SQLite asks Python
    allowed = _sql(condition, globs.steady if connection.dialect.name == "sqlite" else globs.plain)
    if fields_of(condition) & INSIDE:
        query = (
            sa.select(chunks.c.id)
            .join(documents, documents.c.id == chunks.c.document_id)
            .where(chunks.c.project_id == project_id, allowed)
        )
        ids = np.sort(np.fromiter((row[0] for row in connection.execute(query)), dtype=np.int64))
        return Selection(chunks=ids, total=len(ids))
    found = connection.execute(
        sa.select(documents.c.id, documents.c.chunk_count).where(
            documents.c.project_id == project_id, allowed
        )
    ).all()
    ids = np.sort(np.fromiter((row[0] for row in found), dtype=np.int64, count=len(found)))
    return Selection(documents=ids, total=sum(row[1] for row in found))


def _sql(condition: Filter, glob: Glob) -> Condition:
    if isinstance(condition, Compare):
        return _compare(condition, glob)
    if isinstance(condition, Not):
        return sa.not_(sa.func.coalesce(_sql(condition.inner, glob), sa.false()))
    if isinstance(condition, AllOf):
        return _together(sa.and_, sa.true(), [_sql(part, glob) for part in condition.parts])
    assert isinstance(condition, AnyOf)
    listed = _listed(condition)
    return (
        listed
        if listed is not None
        else _together(sa.or_, sa.false(), [_sql(part, glob) for part in condition.parts])
    )


def _listed(condition: AnyOf) -> Condition | None:
    """A list of values of one field, where a database can look them up as such: a thousand
    comparisons take a second to write down.
    """
    field = listed_field(condition)
    values = [part.value for part in condition.parts if isinstance(part, Compare)]
    texts = [str(value) for value in values if isinstance(value, str)]
    if field in ("document", "conversation"):
        known: Condition = documents.c.path.in_(texts)
        return known if field == "document" else sa.and_(documents.c.kind == Kind.CHAT, known)
    if field == "language":
        return documents.c.language.in_([text.lower() for text in texts])
    if field == "kind":
        return documents.c.kind.in_(texts)
    if field == "project":
        return documents.c.project_id.in_(
            sa.select(projects.c.id).where(projects.c.name.in_(texts))
        )
    if not field:
        return None
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    known = sa.or_(
        document_fields.c.text.in_([field_text(text) for text in texts]),
        document_fields.c.number.in_(numbers),
    )
    return sa.exists().where(
        document_fields.c.document_id == documents.c.id,
        document_fields.c.key == field.removeprefix("metadata."),
        known,
    )


def _together(
    join: Callable[..., Condition], empty: Condition, parts: Sequence[Condition]
) -> Condition:
    """Conditions as one.

    Many are grouped, by a function because brackets are taken away: to SQLite a row is a tree, and
    one of 1000 too deep.
    """
    while len(parts) > _GROUP:
        parts = [
            sa.func.coalesce(join(*parts[at : at + _GROUP]), sa.false())
            for at in range(0, len(parts), _GROUP)
        ]
    return join(empty, *parts)


def _compare(condition: Compare, glob: Glob) -> Condition:
    field, value = condition.field, condition.value
    if field == "path":
        return documents.c.path.regexp_match(glob(str(value)))
    if field == "document":
        return documents.c.path == str(value)
    if field == "language":
        return documents.c.language == str(value).lower()
    if field == "kind":
        return documents.c.kind == str(value)
    if field == "heading":
        above = chunks.c.headings.icontains(str(value), autoescape=True)
        begins = sa.and_(
            documents.c.kind == Kind.DOCS, chunks.c.defines.icontains(str(value), autoescape=True)
        )
        return sa.or_(above, begins)
    if field == "conversation":
        return sa.and_(documents.c.kind == Kind.CHAT, documents.c.path == str(value))
    if field == "speaker":
        name = speaker_key(str(value))
        return _said(sa.or_(messages.c.speaker == name, messages.c.kind == name))
    if field == "time":
        assert isinstance(value, datetime)
        return _said(_ordered(messages.c.at_ns, condition.op, _nanoseconds(value)))
    if field == "project":
        return documents.c.project_id.in_(
            sa.select(projects.c.id).where(projects.c.name == str(value))
        )
    if field == "modified":
        assert isinstance(value, datetime)
        return _ordered(documents.c.modified_ns, condition.op, _nanoseconds(value))
    return _metadata(field.removeprefix("metadata."), condition)


def _said(condition: Condition) -> Condition:
    """A condition on the message that a chunk is of."""
    here = sa.and_(
        documents.c.kind == Kind.CHAT,
        messages.c.document_id == chunks.c.document_id,
        messages.c.number == chunks.c.first_line,
    )
    return sa.exists().where(here, condition)


def _nanoseconds(value: datetime) -> int:
    return min(max(nanoseconds(value), -(2**63)), 2**63 - 1)


def _metadata(key: str, condition: Compare) -> Condition:
    number = isinstance(condition.value, int | float)  # a boolean is kept as 0 or 1
    column: sa.ColumnElement[object] = (
        document_fields.c.number if number else document_fields.c.text
    )
    value = (
        float(condition.value)
        if isinstance(condition.value, int | float)
        else field_text(str(condition.value))
    )
    return sa.exists().where(
        document_fields.c.document_id == documents.c.id,
        document_fields.c.key == key,
        _ordered(column, condition.op, value),
    )


def _ordered(column: sa.ColumnElement[object], op: str, value: object) -> Condition:
    return {
        "eq": column == value,
        "lt": column < value,
        "le": column <= value,
        "gt": column > value,
        "ge": column >= value,
    }[op]
