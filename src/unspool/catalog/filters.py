"""Filters as SQL conditions over documents and, for fields inside documents, chunks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from unspool.catalog.conversations import normalize_speaker
from unspool.catalog.feed import read_state
from unspool.catalog.schema import (
    chunks,
    document_fields,
    documents,
    messages,
    projects,
    shorten_field,
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
    get_listed_field,
    list_fields,
)

Condition = sa.ColumnElement[bool]
Glob = Callable[[str], str]
_CACHE_SIZE = 16  # filters
_GROUP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Sorted ids that a filter accepts in one project.

    They are those of documents, or of chunks if the filter has fields inside documents.
    """

    documents: npt.NDArray[np.int64] | None = None
    chunks: npt.NDArray[np.int64] | None = None
    total: int = 0  # number of accepted chunks

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Ids of documents or chunks."""
        chosen = self.documents if self.chunks is None else self.chunks
        assert chosen is not None
        return chosen

    @property
    def is_empty(self) -> bool:
        """True if the filter accepts nothing."""
        return len(self.ids) == 0

    def accepts(
        self, chunk_ids: npt.NDArray[np.int64], document_ids: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the chunks that the filter accepts."""
        if self.chunks is not None:
            return _contains(self.chunks, chunk_ids)
        assert self.documents is not None
        return _contains(self.documents, document_ids)


def _contains(
    sorted_ids: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    if not len(sorted_ids) or not len(ids):
        return np.zeros(len(ids), dtype=np.bool_)
    lowest = min(int(sorted_ids[0]), int(ids.min()))
    highest = max(int(sorted_ids[-1]), int(ids.max()))
    # Document ids are small numbers: a table is ten times faster than a binary search.
    if lowest >= 0 and highest < 16 * len(ids):
        table = np.zeros(highest + 1, dtype=np.bool_)
        table[sorted_ids] = True
        return table[ids]
    at = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    found: npt.NDArray[np.bool_] = sorted_ids[at] == ids
    return found


class SelectionCache:
    """Selections of the last few filters, valid until their projects change. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[int, int, Filter, bool], Selection] = OrderedDict()

    def get(
        self,
        connection: sa.Connection,
        project_id: int,
        condition: Filter,
        *,
        by_chunk: bool = False,
    ) -> Selection:
        """Return the selection of a filter; `by_chunk` selects chunks instead of documents."""
        seq = read_state(connection, project_id).head.seq
        key = (project_id, seq, condition, by_chunk)
        with self._guard:
            known = self._known.get(key)
        if known is not None:
            return known
        selection = run_filter(connection, project_id, condition, by_chunk=by_chunk)
        with self._guard:
            self._known[key] = selection
            if len(self._known) > _CACHE_SIZE:
                self._known.popitem(last=False)
        return selection


def run_filter(
    connection: sa.Connection, project_id: int, condition: Filter, *, by_chunk: bool = False
) -> Selection:
    """Return everything in a project that a filter accepts."""
    # SQLite matches regular expressions with Python's engine.
    glob = globs.translate_atomic if connection.dialect.name == "sqlite" else globs.translate_plain
    allowed = _build_condition(condition, glob)
    if by_chunk or list_fields(condition) & INSIDE:
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


def _build_condition(condition: Filter, glob: Glob) -> Condition:
    if isinstance(condition, Compare):
        return _compare(condition, glob)
    if isinstance(condition, Not):
        return sa.not_(sa.func.coalesce(_build_condition(condition.inner, glob), sa.false()))
    if isinstance(condition, AllOf):
        return _join(sa.and_, sa.true(), [_build_condition(part, glob) for part in condition.parts])
    assert isinstance(condition, AnyOf)
    known = _match_list(condition)
    if known is not None:
        return known
    return _join(sa.or_, sa.false(), [_build_condition(part, glob) for part in condition.parts])


def _match_list(condition: AnyOf) -> Condition | None:
    """Return an IN condition for values of one field; None for any other condition.

    SQLAlchemy takes a second to compile a thousand comparisons.
    """
    field = get_listed_field(condition)
    if not field:
        return None
    values = [part.value for part in condition.parts if isinstance(part, Compare)]
    texts = [value for value in values if isinstance(value, str)]
    known = _match_texts(field, texts)
    if known is not None:
        return known
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    is_text = document_fields.c.text.in_([shorten_field(text) for text in texts])
    return _match_metadata(field, sa.or_(is_text, document_fields.c.number.in_(numbers)))


def _match_texts(field: str, texts: Sequence[str]) -> Condition | None:
    """Return the condition that a field has one of the values; None for a metadata field."""
    match field:
        case "document":
            return documents.c.path.in_(texts)
        case "conversation":
            return sa.and_(documents.c.kind == Kind.CHAT, documents.c.path.in_(texts))
        case "language":
            return documents.c.language.in_(texts)
        case "kind":
            return documents.c.kind.in_(texts)
        case "project":
            named = sa.select(projects.c.id).where(projects.c.name.in_(texts))
            return documents.c.project_id.in_(named)
    return None


def _join(
    join: Callable[..., Condition], empty: Condition, parts: Sequence[Condition]
) -> Condition:
    """Join conditions. Long lists are nested in groups, because SQLite limits expression depth.

    A function call keeps each group together: SQLAlchemy removes redundant brackets.
    """
    while len(parts) > _GROUP:
        parts = [
            sa.func.coalesce(join(*parts[at : at + _GROUP]), sa.false())
            for at in range(0, len(parts), _GROUP)
        ]
    return join(empty, *parts)


def _compare(condition: Compare, glob: Glob) -> Condition:
    value, text = condition.value, str(condition.value)
    match condition.field:
        case "path":
            return documents.c.path.regexp_match(glob(text))
        case "heading":
            is_above = chunks.c.headings.icontains(text, autoescape=True)
            begins = chunks.c.defines.icontains(text, autoescape=True)
            return sa.or_(is_above, sa.and_(documents.c.kind == Kind.DOCS, begins))
        case "speaker":
            name = normalize_speaker(text)
            return _match_message(sa.or_(messages.c.speaker == name, messages.c.kind == name))
        case "time":
            return _match_message(_compare_time(messages.c.at_ns, condition))
        case "modified":
            return _compare_time(documents.c.modified_ns, condition)
    known = _match_texts(condition.field, [text])
    if known is not None:
        return known
    # A boolean is stored as 0 or 1.
    is_match = (
        _apply_operator(document_fields.c.number, condition.op, float(value))
        if isinstance(value, int | float)
        else _apply_operator(document_fields.c.text, condition.op, shorten_field(text))
    )
    return _match_metadata(condition.field, is_match)


def _match_message(condition: Condition) -> Condition:
    """Return a condition on the message of a chunk."""
    is_message = sa.and_(
        documents.c.kind == Kind.CHAT,
        messages.c.document_id == chunks.c.document_id,
        messages.c.number == chunks.c.first_line,
    )
    return sa.exists().where(is_message, condition)


def _compare_time(column: sa.ColumnElement[Any], condition: Compare) -> Condition:
    assert isinstance(condition.value, datetime)
    time_ns = min(max(nanoseconds(condition.value), -(2**63)), 2**63 - 1)
    return _apply_operator(column, condition.op, time_ns)


def _match_metadata(field: str, is_match: Condition) -> Condition:
    return sa.exists().where(
        document_fields.c.document_id == documents.c.id,
        document_fields.c.key == field.removeprefix("metadata."),
        is_match,
    )


def _apply_operator(column: sa.ColumnElement[Any], op: str, value: object) -> Condition:
    return {
        "eq": column == value,
        "lt": column < value,
        "le": column <= value,
        "gt": column > value,
        "ge": column >= value,
    }[op]
