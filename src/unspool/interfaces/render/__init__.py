"""What the corpus gives back, as plain values for JSON. Every door that speaks JSON goes through
here; docs/json.md describes it.
"""

from __future__ import annotations

from unspool.interfaces.render.found import answer, chunk, citation, hit, page, said
from unspool.interfaces.render.service import (
    appended,
    check,
    checks,
    error,
    history_entry,
    history_page,
    job,
    key,
    project_status,
    record,
    settings,
    status,
    store,
    streams,
    trust,
    trusted_folders,
)
from unspool.interfaces.render.stored import (
    conversation,
    conversation_record,
    document,
    index_report,
    message,
    passage,
    reembed,
    remember_report,
)
from unspool.interfaces.render.values import line

__all__ = [
    "answer",
    "appended",
    "check",
    "checks",
    "chunk",
    "citation",
    "conversation",
    "conversation_record",
    "document",
    "error",
    "history_entry",
    "history_page",
    "hit",
    "index_report",
    "job",
    "key",
    "line",
    "message",
    "page",
    "passage",
    "project_status",
    "record",
    "reembed",
    "remember_report",
    "said",
    "settings",
    "status",
    "store",
    "streams",
    "trust",
    "trusted_folders",
]
