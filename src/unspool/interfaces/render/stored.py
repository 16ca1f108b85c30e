"""What is stored: documents, conversations, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.domain.conversations import Conversation, ConversationRecord, Message
from unspool.domain.documents import DocumentRecord, Passage
from unspool.domain.reports import IndexReport, ReembedPlan, ReembedReport, RememberReport
from unspool.interfaces.render.values import metadata, moment

if TYPE_CHECKING:
    from unspool.interfaces import shapes


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
        values["skips"] = [
            {"path": one.path, "reason": one.reason, "detail": one.detail} for one in report.skips
        ]
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
        "bad": [
            {"source": one.source, "position": one.position, "reason": one.reason}
            for one in report.bad
        ],
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
        "modified": moment(record.modified),
        "indexed_at": moment(record.indexed_at),
        "metadata": metadata(record.metadata),
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
        "created_at": moment(conversation.created_at),
        "metadata": metadata(conversation.metadata),
        "messages": [message(one) for one in conversation.messages],
    }


def message(message: Message) -> shapes.Message:
    """One turn of a conversation."""
    return {
        "text": message.text,
        "author": message.author,
        "kind": message.kind.value,
        "at": moment(message.at),
        "id": message.id,
    }


def conversation_record(record: ConversationRecord) -> shapes.ConversationRecord:
    """A conversation in a list."""
    return {
        "project": record.project,
        "id": record.id,
        "title": record.title,
        "scenario_title": record.scenario_title,
        "url": record.url,
        "created_at": moment(record.created_at),
        "metadata": metadata(record.metadata),
        "updated_at": record.updated_at.isoformat(),
        "messages": record.messages,
    }
