"""What the corpus gives back, as plain values for JSON. Every door that speaks JSON goes through here; docs/json.md describes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from unspool.domain.answers import Answer, Citation
from unspool.domain.documents import DocumentRecord, Scalar, Status
from unspool.domain.history import HistoryEntry, HistoryPage, Record, StreamStatus
from unspool.domain.queries import Hit, Page, Said
from unspool.domain.reports import Check, IndexReport, ProjectStatus, ReembedPlan, ReembedReport, RememberReport


def line(value: Mapping[str, Any]) -> str:
    """One object as one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def page(page: Page, *, explained: bool = False) -> dict[str, Any]:
    """A page of hits. With `explained` each hit carries its reason."""
    return {
        "query": page.query,
        "projects": list(page.projects),
        "alpha": page.alpha,
        "hits": [hit(one, explained=explained) for one in page.hits],
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


def hit(hit: Hit, *, explained: bool = False) -> dict[str, Any]:
    """One hit; `text` is what the budget allows to be shown."""
    chunk = hit.chunk
    values = {
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
    return {**values, "reason": hit.reason} if explained else values


def answer(answer: Answer) -> dict[str, Any]:
    """An answer with what it cites."""
    return {
        "question": answer.question,
        "found": answer.found,
        "text": answer.text,
        "model": answer.model,
        "citations": [citation(one) for one in answer.citations],
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


def citation(citation: Citation) -> dict[str, Any]:
    """Where something that was cited stands."""
    chunk = citation.hit.chunk
    return {
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


def said(said: Said, *, with_text: bool = True) -> dict[str, Any]:
    """A message; that of a hit without its text, which the hit has."""
    values = {"number": said.number, "speaker": said.speaker, "kind": said.kind.value, "at": _moment(said.at), "is_cut": said.is_cut}
    return {**values, "text": said.text} if with_text else values


def index_report(report: IndexReport, *, with_skips: bool = False) -> dict[str, Any]:
    """What an indexing run did. With `with_skips` each file that was left out is listed."""
    values: dict[str, Any] = {
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


def remember_report(report: RememberReport) -> dict[str, Any]:
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


def reembed(plan: ReembedPlan, report: ReembedReport) -> dict[str, Any]:
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


def document(record: DocumentRecord) -> dict[str, Any]:
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


def history_page(page: HistoryPage) -> dict[str, Any]:
    """Some records of a stream, and how to ask for the next ones if there are any."""
    return {
        "stream": page.stream,
        "limit": page.limit,
        "offset": page.offset,
        "records": [history_entry(entry) for entry in page.records],
        "has_more": page.has_more,
        "next": page.next,
    }


def history_entry(entry: HistoryEntry) -> dict[str, Any]:
    """A record on a page."""
    return {
        "number": entry.number,
        "at": _moment(entry.at),
        "body": entry.body,
        "length": entry.length,
        "is_truncated": entry.is_truncated,
        "same_as_newer": entry.same_as_newer,
    }


def appended(record: Record) -> dict[str, Any]:
    """A record that was just stored; whoever gave it has its body."""
    return {"appended": {"stream": record.stream, "number": record.number, "at": _moment(record.at), "length": len(record.body)}}


def streams(found: Sequence[StreamStatus]) -> dict[str, Any]:
    """Every stream with its count."""
    rows = [{"project": one.project, "stream": one.stream, "records": one.records, "newest": _moment(one.newest)} for one in found]
    return {"streams": rows}


def status(projects: Sequence[ProjectStatus], *, catalog: str, size_bytes: int) -> dict[str, Any]:
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


def project_status(project: ProjectStatus) -> dict[str, Any]:
    """A project with its counts; every status is there, also those that no document has."""
    return {
        "name": project.name,
        "root": project.root,
        "documents": {one.value: project.documents.get(one, 0) for one in Status},
        "chunks": project.chunks,
        "waiting": project.waiting,
    }


def checks(found: Sequence[Check]) -> dict[str, Any]:
    """The findings of a diagnosis."""
    return {"ok": all(one.ok for one in found), "checks": [check(one) for one in found]}


def check(check: Check) -> dict[str, Any]:
    """One finding."""
    return {"name": check.name, "ok": check.ok, "detail": check.detail, "cure": check.cure}


def settings(rows: Sequence[tuple[str, str, str, str]]) -> dict[str, Any]:
    """Every setting as text, secrets masked."""
    return {"settings": [{"name": name, "value": value, "origin": origin, "about": about} for name, value, origin, about in rows]}


def error(code: str, message: str) -> dict[str, Any]:
    """What went wrong."""
    return {"error": {"code": code, "message": message}}


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no word for the others


def _metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    return {key: _finite(value) if isinstance(value, float) else value for key, value in metadata.items()}
