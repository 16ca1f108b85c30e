"""What the corpus gives back, as plain values for JSON. Every door that speaks JSON goes through here; docs/json.md describes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from unspool.domain.answers import Answer, Citation
from unspool.domain.conversations import Conversation, ConversationRecord, Message
from unspool.domain.documents import Chunk, DocumentRecord, Passage, Scalar, Status
from unspool.domain.history import HistoryEntry, HistoryPage, Record, StreamStatus
from unspool.domain.jobs import Job
from unspool.domain.keys import Key
from unspool.domain.queries import Form, Hit, Page, Said
from unspool.domain.reports import Check, IndexReport, ProjectStatus, ReembedPlan, ReembedReport, RememberReport, StoreStatus

if TYPE_CHECKING:
    from unspool.interfaces import shapes


def line(value: Mapping[str, Any]) -> str:
    """One object as one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def page(page: Page, *, explained: bool = False, full: bool = False) -> shapes.Page:
    """A page of hits. With `explained` each hit carries its reason, with `full` what is stored of its chunk."""
    return {
        "query": page.query,
        "projects": list(page.projects),
        "alpha": page.alpha,
        "hits": [hit(one, explained=explained, full=full) for one in page.hits],
        "sources": [
            {
                "project": source.project,
                "path": source.path,
                "title": source.title,
                "language": source.language,
                "hits": source.hits,
                "best_score": _finite(source.best_score),
            }
            for source in page.sources
        ],
        "insights": {
            "languages": dict(page.insights.languages),
            "files": page.insights.files,
            "earliest": _moment(page.insights.earliest),
            "latest": _moment(page.insights.latest),
        },
        "notes": list(page.notes),
        "warnings": list(page.warnings),
        "tokens": page.tokens,
        "tokens_remaining": page.tokens_remaining,
        "number": page.number,
        "served": page.served.value,
        "stability": page.stability.value,
        "remaining": page.remaining,
        "relevance_dropped": page.relevance_dropped,
        "continuation": page.continuation,
    }


def hit(hit: Hit, *, explained: bool = False, full: bool = False) -> shapes.Hit:
    """One hit; `text` is what the budget allows to be shown. With `full` a program gets the rest of the chunk, too."""
    chunk = hit.chunk
    values: shapes.Hit = {
        "rank": hit.rank,
        "score": _finite(hit.score),
        "origin": hit.origin.value,
        "form": hit.form.value,
        "project": chunk.project,
        "path": chunk.path,
        "lines": [chunk.lines.first, chunk.lines.last],
        "symbol": chunk.symbol,
        "headings": list(chunk.headings),
        "title": chunk.title,
        "language": chunk.language,
        "kind": chunk.kind.value,
        "start": chunk.start,
        "end": chunk.end,
        "text": hit.text,
        "snippet": {"text": hit.snippet.text, "first_line": hit.snippet.first_line, "marks": [list(mark) for mark in hit.snippet.marks]},
        "tokens": hit.tokens,
        "modified": _moment(chunk.modified),
        "metadata": _metadata(chunk.metadata),
        "changed": hit.changed,
        "copies": list(hit.copies),
        "message": None if hit.message is None else said(hit.message, with_text=False),
        "before": [said(one) for one in hit.before],
        "after": [said(one) for one in hit.after],
    }
    if explained:
        values["reason"] = hit.reason
    if full:
        values["chunk"] = {**_unshown(chunk), "text": None if hit.form is Form.WHOLE else chunk.text}
    return values


def chunk(chunk: Chunk) -> shapes.Chunk:
    """A chunk as it is stored."""
    return {
        "project": chunk.project,
        "path": chunk.path,
        "lines": [chunk.lines.first, chunk.lines.last],
        "symbol": chunk.symbol,
        "headings": list(chunk.headings),
        "title": chunk.title,
        "language": chunk.language,
        "kind": chunk.kind.value,
        "start": chunk.start,
        "end": chunk.end,
        "text": chunk.text,
        "modified": _moment(chunk.modified),
        "metadata": _metadata(chunk.metadata),
        **_unshown(chunk),
    }


def _unshown(chunk: Chunk) -> shapes.ChunkRest:
    """What a page does not show of a chunk. Its id is text: not every reader of JSON keeps 63 bits of a number."""
    return {
        "id": str(chunk.id),
        "index": chunk.index,
        "level": chunk.level,
        "defines": list(chunk.defines),
        "token_count": chunk.token_count,
        "status": chunk.status.value,
    }


def answer(answer: Answer, *, full: bool = False) -> shapes.Answer:
    """An answer with what it cites; with `full` each citation carries its hit."""
    return {
        "question": answer.question,
        "found": answer.found,
        "text": answer.text,
        "model": answer.model,
        "citations": [citation(one, full=full) for one in answer.citations],
        "dropped_citations": answer.dropped_citations,
        "context": answer.context,
        "usage": {
            "searches": answer.usage.searches,
            "hits": answer.usage.hits,
            "shown": answer.usage.shown,
            "context_tokens": answer.usage.context_tokens,
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
        },
        "notes": list(answer.notes),
        "warnings": list(answer.warnings),
    }


def citation(citation: Citation, *, full: bool = False) -> shapes.Citation:
    """Where something that was cited stands; with `full` all of it."""
    chunk = citation.hit.chunk
    values: shapes.Citation = {
        "number": citation.number,
        "project": citation.project,
        "path": citation.path,
        "lines": [citation.lines.first, citation.lines.last],
        "symbol": chunk.symbol,
        "headings": list(chunk.headings),
        "start": chunk.start,
        "end": chunk.end,
        "score": _finite(citation.score),
    }
    return {**values, "hit": hit(citation.hit, full=True)} if full else values


def said(said: Said, *, with_text: bool = True) -> shapes.Said:
    """A message; that of a hit without its text, which the hit has."""
    values: shapes.Said = {
        "number": said.number,
        "speaker": said.speaker,
        "kind": said.kind.value,
        "at": _moment(said.at),
        "is_cut": said.is_cut,
    }
    if with_text:
        values["text"] = said.text
    return values


def index_report(report: IndexReport, *, with_skips: bool = False) -> shapes.IndexReport:
    """What an indexing run did. With `with_skips` each file that was left out is listed."""
    values: shapes.IndexReport = {
        "project": report.project,
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "failed": report.failed,
        "busy": report.busy,
        "chunks": report.chunks,
        "embedded": report.embedded,
        "seconds": report.seconds,
        "skipped": dict(report.skipped),
        "masked": [{"path": one.path, "line": one.line, "kind": one.kind} for one in report.masked],
        "failures": [{"path": one.path, "error": one.error} for one in report.failures],
        "warnings": list(report.warnings),
    }
    if with_skips:
        values["skips"] = [{"path": one.path, "reason": one.reason, "detail": one.detail} for one in report.skips]
    return values


def remember_report(report: RememberReport) -> shapes.RememberReport:
    """What became of conversations that were taken in."""
    return {
        "project": report.project,
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "messages": report.messages,
        "chunks": report.chunks,
        "embedded": report.embedded,
        "duplicates": report.duplicates,
        "bad_count": report.bad_count,
        "bad": [{"source": one.source, "position": one.position, "reason": one.reason} for one in report.bad],
        "seconds": report.seconds,
        "masked": [{"path": one.path, "line": one.line, "kind": one.kind} for one in report.masked],
        "warnings": list(report.warnings),
    }


def reembed(plan: ReembedPlan, report: ReembedReport) -> shapes.Reembedding:
    """What going over to another embedder was to cost, and what it came to."""
    return {
        "before": report.before,
        "after": report.after,
        "texts": plan.texts,
        "tokens": plan.tokens,
        "price": plan.price,
        "too_long": plan.too_long,
        "embedded": report.embedded,
        "chunks": report.chunks,
        "seconds": report.seconds,
        "kept": list(report.kept),
        "dropped": list(report.dropped),
        "warnings": list(report.warnings),
    }


def document(record: DocumentRecord) -> shapes.Document:
    """What the catalog knows of a document."""
    return {
        "project": record.project,
        "path": record.path,
        "title": record.title,
        "status": record.status.value,
        "error": record.error,
        "language": record.language,
        "kind": record.kind.value,
        "size_bytes": record.size_bytes,
        "chunks": record.chunk_count,
        "sha256": record.sha256,
        "version": record.version,
        "modified": _moment(record.modified),
        "indexed_at": _moment(record.indexed_at),
        "metadata": _metadata(record.metadata),
    }


def passage(passage: Passage) -> shapes.Passage:
    """Some lines of a document."""
    return {
        "project": passage.project,
        "path": passage.path,
        "title": passage.title,
        "language": passage.language,
        "kind": passage.kind.value,
        "lines": [passage.lines.first, passage.lines.last],
        "last_line": passage.last_line,
        "text": passage.text,
    }


def conversation(conversation: Conversation) -> shapes.Conversation:
    """A conversation with what was said."""
    return {
        "project": conversation.project,
        "id": conversation.id,
        "title": conversation.title,
        "scenario_title": conversation.scenario_title,
        "url": conversation.url,
        "created_at": _moment(conversation.created_at),
        "metadata": _metadata(conversation.metadata),
        "messages": [message(one) for one in conversation.messages],
    }


def message(message: Message) -> shapes.Message:
    """One turn of a conversation."""
    return {"text": message.text, "author": message.author, "kind": message.kind.value, "at": _moment(message.at), "id": message.id}


def conversation_record(record: ConversationRecord) -> shapes.ConversationRecord:
    """A conversation in a list."""
    return {
        "project": record.project,
        "id": record.id,
        "title": record.title,
        "scenario_title": record.scenario_title,
        "url": record.url,
        "created_at": _moment(record.created_at),
        "metadata": _metadata(record.metadata),
        "updated_at": record.updated_at.isoformat(),
        "messages": record.messages,
    }


def record(record: Record) -> shapes.Record:
    """A record of a stream with its whole body."""
    return {"stream": record.stream, "number": record.number, "at": record.at.isoformat(), "body": record.body}


def store(store: StoreStatus) -> shapes.Store:
    """A store of vectors."""
    return {"name": store.name, "in_use": store.in_use, "capabilities": dict(store.capabilities)}


def job(job: Job) -> shapes.Job:
    """A job; its report once it is done, its error once it has failed."""
    progress = job.progress
    return {
        "id": job.id,
        "project": job.project,
        "source": job.source,
        "state": job.state.value,
        "created_at": job.created_at.isoformat(),
        "started_at": _moment(job.started_at),
        "finished_at": _moment(job.finished_at),
        "progress": None if progress is None else {"task": progress.task, "done": progress.done, "total": progress.total, "chunks": progress.chunks},
        "report": cast("shapes.IndexReport", dict(job.report)) if job.report else None,  # as it was kept
        "error": {"code": job.error_code, "message": job.error} if job.error_code else None,
    }


def history_page(page: HistoryPage) -> shapes.HistoryPage:
    """Some records of a stream, and how to ask for the next ones if there are any."""
    return {
        "stream": page.stream,
        "limit": page.limit,
        "offset": page.offset,
        "records": [history_entry(entry) for entry in page.records],
        "has_more": page.has_more,
        "next": page.next,
    }


def history_entry(entry: HistoryEntry) -> shapes.HistoryEntry:
    """A record on a page."""
    return {
        "number": entry.number,
        "at": entry.at.isoformat(),
        "body": entry.body,
        "length": entry.length,
        "is_truncated": entry.is_truncated,
        "same_as_newer": entry.same_as_newer,
    }


def appended(record: Record) -> shapes.Appended:
    """A record that was just stored; whoever gave it has its body."""
    return {"appended": {"stream": record.stream, "number": record.number, "at": record.at.isoformat(), "length": len(record.body)}}


def streams(found: Sequence[StreamStatus]) -> shapes.Streams:
    """Every stream with its count."""
    rows: list[shapes.Stream] = [
        {"project": one.project, "stream": one.stream, "records": one.records, "newest": _moment(one.newest)} for one in found
    ]
    return {"streams": rows}


def key(key: Key, *, text: str = "") -> dict[str, Any]:
    """What is known of a key; with its text only when it is made."""
    values = {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "projects": list(key.projects),
        "created_at": _moment(key.created_at),
        "expires_at": _moment(key.expires_at),
        "revoked_at": _moment(key.revoked_at),
    }
    return {**values, "key": text} if text else values


def status(projects: Sequence[ProjectStatus], *, catalog: str, size_bytes: int) -> shapes.CatalogStatus:
    """All projects, and what they come to."""
    return {
        "catalog": catalog,
        "size_bytes": size_bytes,
        "projects": [project_status(one) for one in projects],
        "totals": {
            "projects": len(projects),
            "documents": sum(sum(one.documents.values()) for one in projects),
            "chunks": sum(one.chunks for one in projects),
            "waiting": sum(one.waiting for one in projects),
        },
    }


def project_status(project: ProjectStatus) -> shapes.ProjectStatus:
    """A project with its counts; every status is there, also those that no document has."""
    count = project.documents
    return {
        "name": project.name,
        "root": project.root,
        "documents": {
            "pending": count.get(Status.PENDING, 0),
            "indexing": count.get(Status.INDEXING, 0),
            "indexed": count.get(Status.INDEXED, 0),
            "failed": count.get(Status.FAILED, 0),
            "stale": count.get(Status.STALE, 0),
        },
        "chunks": project.chunks,
        "waiting": project.waiting,
    }


def checks(found: Sequence[Check]) -> shapes.Checks:
    """The findings of a diagnosis."""
    return {"ok": all(one.ok for one in found), "checks": [check(one) for one in found]}


def check(check: Check) -> shapes.Check:
    """One finding."""
    return {"name": check.name, "ok": check.ok, "detail": check.detail, "cure": check.cure}


def settings(rows: Sequence[tuple[str, str, str, str]]) -> shapes.Settings:
    """Every setting as text, secrets masked."""
    return {"settings": [{"name": name, "value": value, "origin": origin, "about": about} for name, value, origin, about in rows]}


def error(code: str, message: str) -> shapes.Error:
    """What went wrong."""
    return {"error": {"code": code, "message": message}}


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no word for the others


def _metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    return {key: _finite(value) if isinstance(value, float) else value for key, value in metadata.items()}
