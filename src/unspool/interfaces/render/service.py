"""What a service keeps and says of itself: histories, projects, keys, jobs, stores, findings,
errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from unspool.domain.documents import Status
from unspool.domain.history import HistoryEntry, HistoryPage, Record, StreamStatus
from unspool.domain.jobs import Job
from unspool.domain.keys import Key
from unspool.domain.reports import Check, ProjectStatus, StoreStatus
from unspool.interfaces.render.values import moment

if TYPE_CHECKING:
    from pathlib import Path

    from unspool.interfaces import shapes
    from unspool.settings.folders import IgnoredSetting
    from unspool.settings.trust import FolderState, ReviewedSetting, TrustedFolder


def record(record: Record) -> shapes.Record:
    """A record of a stream with its whole body."""
    return {
        "stream": record.stream,
        "number": record.number,
        "at": record.at.isoformat(),
        "body": record.body,
    }


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
        "started_at": moment(job.started_at),
        "finished_at": moment(job.finished_at),
        "progress": None
        if progress is None
        else {
            "task": progress.task,
            "done": progress.done,
            "total": progress.total,
            "chunks": progress.chunks,
        },
        # as it was kept
        "report": cast("shapes.IndexReport", dict(job.report)) if job.report else None,
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
    """Render a record that was just stored, without its body, which the caller has."""
    return {
        "appended": {
            "stream": record.stream,
            "number": record.number,
            "at": record.at.isoformat(),
            "length": len(record.body),
            "warnings": list(record.warnings),
        }
    }


def streams(found: Sequence[StreamStatus]) -> shapes.Streams:
    """Every stream with its count."""
    rows: list[shapes.Stream] = [
        {
            "project": one.project,
            "stream": one.stream,
            "records": one.records,
            "newest": moment(one.newest),
        }
        for one in found
    ]
    return {"streams": rows}


def key(key: Key, *, text: str = "") -> shapes.Key:
    """What is known of a key; with its text only when it is made."""
    values: shapes.Key = {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "projects": list(key.projects),
        "created_at": key.created_at.isoformat(),
        "expires_at": moment(key.expires_at),
        "revoked_at": moment(key.revoked_at),
    }
    if text:
        values["key"] = text
    return values


def status(
    projects: Sequence[ProjectStatus], *, catalog: str, size_bytes: int
) -> shapes.CatalogStatus:
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


def settings(
    rows: Sequence[tuple[str, str, str, str]], ignored: Sequence[IgnoredSetting]
) -> shapes.Settings:
    """Encode every setting, and the ignored ones, as text with secrets masked."""
    return {
        "settings": [
            {"name": name, "value": value, "origin": origin, "about": about}
            for name, value, origin, about in rows
        ],
        "ignored": [
            {"name": one.name, "value": one.value, "file": one.file, "reason": one.reason}
            for one in ignored
        ],
    }


def trust(folder: Path, reviewed: Sequence[ReviewedSetting], *, is_trusted: bool) -> shapes.Trust:
    """Encode a folder and the settings of its files."""
    return {
        "folder": str(folder),
        "trusted": is_trusted,
        "settings": [
            {"name": one.name, "value": one.value, "file": one.file, "state": one.state}
            for one in reviewed
        ],
    }


def trusted_folders(folders: Sequence[tuple[TrustedFolder, FolderState]]) -> shapes.TrustedFolders:
    """Encode the list of trusted folders."""
    return {
        "folders": [
            {"folder": one.folder, "state": str(state), "trusted_at": one.trusted_at.isoformat()}
            for one, state in folders
        ]
    }


def error(code: str, message: str) -> shapes.Error:
    """What went wrong."""
    return {"error": {"code": code, "message": message}}
