"""An example of each response, as the description of the service shows it.

mypy holds them to their shapes.
"""

from __future__ import annotations

from typing import Any

from unspool.interfaces import shapes

_AT = "2026-01-31T12:00:00+00:00"
HIT: shapes.Hit = {
    "rank": 1,
    "score": 0.83,
    "origin": "fused",
    "form": "whole",
    "project": "shop",
    "path": "docs/sessions.md",
    "lines": [1, 3],
    "symbol": "",
    "headings": ["Sessions"],
    "title": "Sessions",
    "language": "markdown",
    "kind": "docs",
    "start": 0,
    "end": 46,
    "text": "# Sessions\n\nA session is opened by `open()`.",
    "snippet": {
        "text": "A session is opened by `open()`.",
        "first_line": 3,
        "marks": [[2, 9], [13, 19]],
    },
    "tokens": 14,
    "modified": _AT,
    "metadata": {"author": "ann"},
    "changed": False,
    "stale": False,
    "copies": [],
    "message": None,
    "before": [],
    "after": [],
}
PAGE: shapes.Page = {
    "query": "how are sessions opened",
    "projects": ["shop"],
    "alpha": 0.5,
    "hits": [HIT],
    "sources": [
        {
            "project": "shop",
            "path": "docs/sessions.md",
            "title": "Sessions",
            "language": "markdown",
            "hits": 1,
            "best_score": 0.83,
        }
    ],
    "insights": {"languages": {"markdown": 1}, "files": 1, "earliest": _AT, "latest": _AT},
    "notes": [],
    "warnings": [],
    "tokens": 14,
    "tokens_remaining": None,
    "number": 1,
    "served": "window",
    "stability": "snapshot",
    "remaining": 4,
    "relevance_dropped": False,
    "continuation": "Ah0CmZqkYr3mKtkKrnwBCgI",
}
ANSWER: shapes.Answer = {
    "question": "How are sessions opened?",
    "found": True,
    "text": "With `open()` [1].",
    "model": "openai:gpt-5-mini",
    "citations": [
        {
            "number": 1,
            "project": "shop",
            "path": "docs/sessions.md",
            "lines": [1, 3],
            "symbol": "",
            "headings": ["Sessions"],
            "start": 0,
            "end": 46,
            "score": 0.83,
        }
    ],
    "dropped_citations": 0,
    "context": "[1] docs/sessions.md:1-3\n# Sessions\n\nA session is opened by `open()`.",
    "usage": {
        "searches": 1,
        "hits": 1,
        "shown": 1,
        "context_tokens": 60,
        "prompt_tokens": 140,
        "completion_tokens": 8,
    },
    "notes": [],
    "warnings": [],
}
REPORT: shapes.IndexReport = {
    "project": "shop",
    "added": 1,
    "updated": 0,
    "unchanged": 0,
    "removed": 0,
    "failed": 0,
    "busy": 0,
    "chunks": 1,
    "embedded": 1,
    "seconds": 0.02,
    "skipped": {},
    "masked": [],
    "failures": [],
    "warnings": [],
}
REMEMBERED: shapes.RememberReport = {
    "project": "shop",
    "added": 1,
    "updated": 0,
    "unchanged": 0,
    "messages": 1,
    "chunks": 1,
    "embedded": 1,
    "duplicates": 0,
    "bad_count": 0,
    "bad": [],
    "seconds": 0.02,
    "masked": [],
    "warnings": [],
}
DOCUMENT: shapes.Document = {
    "project": "shop",
    "path": "docs/sessions.md",
    "title": "Sessions",
    "status": "indexed",
    "error": "",
    "language": "markdown",
    "kind": "docs",
    "size_bytes": 46,
    "chunks": 1,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "version": 1,
    "modified": _AT,
    "indexed_at": _AT,
    "metadata": {"author": "ann"},
}
TEXT: shapes.DocumentText = {
    "document": DOCUMENT,
    "passage": {
        "project": "shop",
        "path": "docs/sessions.md",
        "title": "Sessions",
        "language": "markdown",
        "kind": "docs",
        "lines": [1, 3],
        "last_line": 3,
        "text": "# Sessions\n\nA session is opened by `open()`.",
    },
}
PROJECT: shapes.ProjectStatus = {
    "name": "shop",
    "root": "",
    "documents": {"pending": 0, "indexing": 0, "indexed": 1, "failed": 0, "stale": 0},
    "chunks": 1,
    "waiting": 0,
}
RECORD: shapes.ConversationRecord = {
    "project": "shop",
    "id": "support-17",
    "title": "Sessions",
    "scenario_title": "",
    "url": "",
    "created_at": _AT,
    "metadata": {},
    "updated_at": _AT,
    "messages": 1,
}
CONVERSATION: shapes.Conversation = {
    "project": "shop",
    "id": "support-17",
    "title": "Sessions",
    "scenario_title": "",
    "url": "",
    "created_at": _AT,
    "metadata": {},
    "messages": [
        {"text": "How are sessions opened?", "author": "ann", "kind": "user", "at": _AT, "id": "m1"}
    ],
}
CHUNK: shapes.Chunk = {
    "project": "shop",
    "path": "support-17",
    "lines": [1, 1],
    "symbol": "ann",
    "headings": ["Saturday, 31 January 2026"],
    "title": "Sessions",
    "language": "",
    "kind": "chat",
    "start": 0,
    "end": 24,
    "text": "How are sessions opened?",
    "modified": _AT,
    "metadata": {},
    "id": "461168601842738790",
    "index": 0,
    "level": 0,
    "defines": [],
    "token_count": 5,
    "status": "indexed",
}
HISTORY: shapes.HistoryPage = {
    "stream": "nightly-build",
    "limit": 2,
    "offset": 0,
    "records": [
        {
            "number": 7,
            "at": _AT,
            "body": '{"status": "ok"}',
            "length": 16,
            "is_truncated": False,
            "same_as_newer": False,
        }
    ],
    "has_more": True,
    "next": "older records: limit=2, offset=1",
}
JOB: shapes.Job = {
    "id": "3f9c2a1b4d5e6f70",
    "project": "shop",
    "source": "https://github.com/pallets/click",
    "state": "running",
    "created_at": _AT,
    "started_at": _AT,
    "finished_at": None,
    "progress": {"task": "indexing", "done": 12, "total": 80, "chunks": 150},
    "report": None,
    "error": None,
}
STORE: shapes.Store = {
    "name": "embedded",
    "in_use": True,
    "capabilities": {"exact": False, "max_k": 100_000},
}
_RECORDS: shapes.Records = {
    "records": [{"stream": "nightly-build", "number": 7, "at": _AT, "body": '{"status": "ok"}'}],
    "count": 7,
    "next": 1,
}
_APPENDED: shapes.Appended = {
    "appended": {"stream": "nightly-build", "number": 7, "at": _AT, "length": 16, "warnings": []}
}
_STREAMS: shapes.Streams = {
    "streams": [{"project": "shop", "stream": "nightly-build", "records": 7, "newest": _AT}]
}
_CONVERSATIONS: shapes.Conversations = {"conversations": [RECORD], "count": 1}
_DOCUMENTS: shapes.Documents = {"documents": [DOCUMENT], "next": None}

EXAMPLES: dict[str, Any] = {
    "Page": PAGE,
    "Hits": {"hits": [HIT]},
    "Vector": {"vector": [0.1, -0.2, 0.3], "embedder": "static", "dimension": 3},
    "Tokens": {"tokens": 5},
    "Answer": ANSWER,
    "IndexReport": REPORT,
    "RememberReport": REMEMBERED,
    "Documents": _DOCUMENTS,
    "DocumentText": TEXT,
    "Forgotten": {"forgotten": 1},
    "ProjectStatus": PROJECT,
    "Projects": {"projects": [PROJECT]},
    "Conversations": _CONVERSATIONS,
    "Conversation": CONVERSATION,
    "Chunk": CHUNK,
    "Chunks": {"chunks": [CHUNK]},
    "HistoryPage": HISTORY,
    "Records": _RECORDS,
    "Appended": _APPENDED,
    "Streams": _STREAMS,
    "Cleared": {"cleared": 7},
    "Job": JOB,
    "Jobs": {"jobs": [JOB]},
    "Stores": {"stores": [STORE]},
    "Health": {"status": "ok"},
}


def error_example(code: str) -> shapes.Error:
    """An error of a code."""
    return {
        "error": {
            "code": code,
            "message": "what happened, with which value, and what to do next",
            "request_id": "c2f0e19b7d3a4f58",
        }
    }
