"""JSON of a service, read back into the values that a corpus gives.

docs/json.md describes each key; one that is missing is a `KeyError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from unspool.domain.answers import Answer, Citation, Usage
from unspool.domain.conversations import AuthorKind, Conversation, ConversationRecord, Message
from unspool.domain.documents import Chunk, DocumentRecord, Kind, Lines, Metadata, Passage, Status
from unspool.domain.history import HistoryEntry, HistoryPage, Record, StreamStatus
from unspool.domain.jobs import Job, JobState
from unspool.domain.queries import (
    Form,
    Hit,
    Insights,
    Origin,
    Page,
    Said,
    Served,
    Snippet,
    Source,
    Stability,
)
from unspool.domain.reports import (
    BadRecord,
    Failure,
    IndexReport,
    Masked,
    Progress,
    ProjectStatus,
    RememberReport,
    Skip,
    StoreStatus,
)

Json = Mapping[str, Any]
_T = TypeVar("_T")


def parse_list(key: str, parse: Callable[[Json], _T]) -> Callable[[Json], list[_T]]:
    """Return a parser for the list under a key."""
    return lambda data: [parse(one) for one in data[key]]


def get_value(key: str) -> Callable[[Json], Any]:
    """Return a parser for a plain value under a key."""
    return lambda data: data[key]


def page(data: Json) -> Page:
    """A page of hits, not yet tied to a corpus."""
    insights = data["insights"]
    return Page(
        query=data["query"],
        projects=tuple(data["projects"]),
        hits=tuple(hit(one) for one in data["hits"]),
        sources=tuple(
            Source(**{**one, "best_score": _number(one["best_score"])})
            for one in _drop_unknown_keys(data["sources"], Source)
        ),
        insights=Insights(
            languages=dict(insights["languages"]),
            files=insights["files"],
            earliest=_moment(insights["earliest"]),
            latest=_moment(insights["latest"]),
        ),
        notes=tuple(data["notes"]),
        warnings=tuple(data["warnings"]),
        tokens=data["tokens"],
        tokens_remaining=data["tokens_remaining"],
        alpha=data["alpha"],
        number=data["number"],
        served=Served(data["served"]),
        stability=Stability(data["stability"]),
        remaining=data["remaining"],
        relevance_dropped=data["relevance_dropped"],
        continuation=data["continuation"],
    )


def hit(data: Json) -> Hit:
    """Return a hit with its whole chunk, which the service sends if it is asked for."""
    rest = data["chunk"]
    whole = data["text"] if rest["text"] is None else rest["text"]
    snippet = data["snippet"]
    best = Snippet(
        text=snippet["text"],
        first_line=snippet["first_line"],
        marks=tuple((begin, end) for begin, end in snippet["marks"]),
    )
    return Hit(
        chunk=chunk({**data, **rest, "text": whole}),
        score=_number(data["score"]),
        rank=data["rank"],
        origin=Origin(data["origin"]),
        form=Form(data["form"]),
        tokens=data["tokens"],
        cut=partial(_get_snippet, best),
        reason=data.get("reason", ""),
        changed=data["changed"],
        stale=data["stale"],
        message=None
        if data["message"] is None
        else _parse_statement({**data["message"], "text": whole}),
        before=tuple(map(_parse_statement, data["before"])),
        after=tuple(map(_parse_statement, data["after"])),
        copies=tuple(data["copies"]),
    )


def _get_snippet(snippet: Snippet, _: Chunk) -> Snippet:
    return snippet


def chunk(data: Json) -> Chunk:
    """A chunk as it is stored."""
    return Chunk(
        id=int(data["id"]),
        project=data["project"],
        path=data["path"],
        index=data["index"],
        text=data["text"],
        start=data["start"],
        end=data["end"],
        lines=_lines(data["lines"]),
        token_count=data["token_count"],
        title=data["title"],
        headings=tuple(data["headings"]),
        level=data["level"],
        symbol=data["symbol"],
        defines=tuple(data["defines"]),
        language=data["language"],
        kind=Kind(data["kind"]),
        modified=_moment(data["modified"]),
        status=Status(data["status"]),
        metadata=_metadata(data["metadata"]),
    )


def _parse_statement(data: Json) -> Said:
    return Said(
        number=data["number"],
        speaker=data["speaker"],
        kind=AuthorKind(data["kind"]),
        text=data["text"],
        at=_moment(data["at"]),
        is_cut=data["is_cut"],
    )


def answer(data: Json) -> Answer:
    """An answer whose citations carry their hits."""
    return Answer(
        question=data["question"],
        text=data["text"],
        citations=tuple(
            Citation(number=one["number"], hit=hit(one["hit"])) for one in data["citations"]
        ),
        model=data["model"],
        found=data["found"],
        context=data["context"],
        dropped_citations=data["dropped_citations"],
        usage=next(Usage(**one) for one in _drop_unknown_keys([data["usage"]], Usage)),
        notes=tuple(data["notes"]),
        warnings=tuple(data["warnings"]),
    )


def index_report(data: Json) -> IndexReport:
    """Parse the report of an indexing run."""
    return IndexReport(
        project=data["project"],
        added=data["added"],
        updated=data["updated"],
        unchanged=data["unchanged"],
        removed=data["removed"],
        failed=data["failed"],
        busy=data["busy"],
        chunks=data["chunks"],
        embedded=data["embedded"],
        seconds=data["seconds"],
        skipped=dict(data["skipped"]),
        skips=tuple(Skip(**one) for one in _drop_unknown_keys(data.get("skips", ()), Skip)),
        masked=_parse_masks(data),
        failures=tuple(Failure(**one) for one in _drop_unknown_keys(data["failures"], Failure)),
        warnings=tuple(data["warnings"]),
    )


def remember_report(data: Json) -> RememberReport:
    """Parse the report of imported conversations."""
    return RememberReport(
        project=data["project"],
        added=data["added"],
        updated=data["updated"],
        unchanged=data["unchanged"],
        messages=data["messages"],
        chunks=data["chunks"],
        embedded=data["embedded"],
        duplicates=data["duplicates"],
        bad_count=data["bad_count"],
        bad=tuple(BadRecord(**one) for one in _drop_unknown_keys(data["bad"], BadRecord)),
        seconds=data["seconds"],
        masked=_parse_masks(data),
        warnings=tuple(data["warnings"]),
    )


def _parse_masks(data: Json) -> tuple[Masked, ...]:
    return tuple(Masked(**one) for one in _drop_unknown_keys(data["masked"], Masked))


def document(data: Json) -> DocumentRecord:
    """Parse the record of a document.

    Its number in the catalog is not told to anybody outside: it would say how many others there
    are.
    """
    return DocumentRecord(
        id=0,
        project=data["project"],
        path=data["path"],
        sha256=data["sha256"],
        title=data["title"],
        size_bytes=data["size_bytes"],
        modified=_moment(data["modified"]),
        indexed_at=_moment(data["indexed_at"]),
        chunk_count=data["chunks"],
        status=Status(data["status"]),
        error=data["error"],
        language=data["language"],
        kind=Kind(data["kind"]),
        metadata=_metadata(data["metadata"]),
        version=data["version"],
    )


def passage(data: Json) -> Passage:
    """Some lines of a document."""
    return Passage(
        project=data["project"],
        path=data["path"],
        title=data["title"],
        language=data["language"],
        kind=Kind(data["kind"]),
        lines=_lines(data["lines"]),
        last_line=data["last_line"],
        text=data["text"],
    )


def conversation(data: Json) -> Conversation:
    """A conversation with its messages."""
    return Conversation(
        id=data["id"],
        messages=tuple(map(_message, data["messages"])),
        project=data["project"],
        title=data["title"],
        scenario_title=data["scenario_title"],
        url=data["url"],
        created_at=_moment(data["created_at"]),
        metadata=_metadata(data["metadata"]),
    )


def _message(data: Json) -> Message:
    return Message(
        text=data["text"],
        author=data["author"],
        kind=AuthorKind(data["kind"]),
        at=_moment(data["at"]),
        id=data["id"],
    )


def conversation_record(data: Json) -> ConversationRecord:
    """A conversation in a list."""
    return ConversationRecord(
        project=data["project"],
        id=data["id"],
        title=data["title"],
        scenario_title=data["scenario_title"],
        url=data["url"],
        created_at=datetime.fromisoformat(data["created_at"]),
        updated_at=datetime.fromisoformat(data["updated_at"]),
        messages=data["messages"],
        metadata=_metadata(data["metadata"]),
    )


def record(data: Json) -> Record:
    """A response as it is stored."""
    return Record(
        stream=data["stream"],
        number=data["number"],
        at=datetime.fromisoformat(data["at"]),
        body=data["body"],
        warnings=tuple(data.get("warnings", ())),
    )


def history_page(data: Json) -> HistoryPage:
    """Some responses as an agent gets them."""
    return HistoryPage(
        stream=data["stream"],
        records=tuple(
            HistoryEntry(**{**one, "at": datetime.fromisoformat(one["at"])})
            for one in _drop_unknown_keys(data["records"], HistoryEntry)
        ),
        limit=data["limit"],
        offset=data["offset"],
        has_more=data["has_more"],
    )


def stream_status(data: Json) -> StreamStatus:
    """A stream in a list."""
    return StreamStatus(
        project=data["project"],
        stream=data["stream"],
        records=data["records"],
        newest=_moment(data["newest"]),
    )


def project_status(data: Json) -> ProjectStatus:
    """A project with its counts; a status that no document has is left out, as a corpus does."""
    return ProjectStatus(
        name=data["name"],
        root=data["root"],
        documents={Status(name): count for name, count in data["documents"].items() if count},
        chunks=data["chunks"],
        waiting=data["waiting"],
    )


def store_status(data: Json) -> StoreStatus:
    """A store and what it can do."""
    return StoreStatus(
        name=data["name"], in_use=data["in_use"], capabilities=dict(data["capabilities"])
    )


def job(data: Json) -> Job:
    """A job of the service."""
    progress, error = data["progress"], data["error"] or {}
    return Job(
        id=data["id"],
        project=data["project"],
        source=data["source"],
        state=JobState(data["state"]),
        created_at=datetime.fromisoformat(data["created_at"]),
        started_at=_moment(data["started_at"]),
        finished_at=_moment(data["finished_at"]),
        progress=None
        if progress is None
        else next(Progress(**one) for one in _drop_unknown_keys([progress], Progress)),
        report=data["report"] or {},
        error_code=error.get("code", ""),
        error=error.get("message", ""),
    )


def _drop_unknown_keys(objects: Iterable[Json], kind: Any) -> Iterable[dict[str, Any]]:
    """Objects whose keys are the fields of a class: those of them that this version knows,
    because a newer service may send more.
    """
    names = kind.__dataclass_fields__
    return ({key: value for key, value in one.items() if key in names} for one in objects)


def _lines(data: Iterable[int]) -> Lines:
    first, last = data
    return Lines(first, last)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _number(value: float | None) -> float:
    return math.nan if value is None else value  # JSON has no word for those that are not finite


def _metadata(data: Json) -> Metadata:
    return MappingProxyType(dict(data))
