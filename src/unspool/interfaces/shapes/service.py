"""What a service keeps and says of itself: histories, projects, jobs, stores, errors."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from unspool.interfaces.shapes.stored import IndexReport

JobState = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]


class HistoryEntry(TypedDict):
    """A record on a page."""

    number: int
    at: str
    body: str | None
    length: int
    is_truncated: bool
    same_as_newer: bool


class HistoryPage(TypedDict):
    """Some records of a stream, newest first."""

    stream: str
    limit: int
    offset: int
    records: list[HistoryEntry]
    has_more: bool
    next: str | None


class Record(TypedDict):
    """A record as it is stored."""

    stream: str
    number: int
    at: str
    body: str


class Records(TypedDict):
    """Whole records of a stream, newest first, how many there are in all, and the offset of
    those that follow.
    """

    records: list[Record]
    count: int
    next: int | None


class AppendedRecord(TypedDict):
    """A record that was just stored, without its body."""

    stream: str
    number: int
    at: str
    length: int
    warnings: list[str]


class Appended(TypedDict):
    """What was appended to a stream."""

    appended: AppendedRecord


class Cleared(TypedDict):
    """How many records went."""

    cleared: int


class Stream(TypedDict):
    """A stream in a list."""

    project: str
    stream: str
    records: int
    newest: str | None


class Streams(TypedDict):
    """Every stream with its count."""

    streams: list[Stream]


class DocumentCounts(TypedDict):
    """How many documents stand where."""

    pending: int
    indexing: int
    indexed: int
    failed: int
    stale: int


class ProjectStatus(TypedDict):
    """A project with its counts."""

    name: str
    root: str
    documents: DocumentCounts
    chunks: int
    waiting: int


class Projects(TypedDict):
    """The projects that there are for whoever asks."""

    projects: list[ProjectStatus]


class Totals(TypedDict):
    """What all projects come to."""

    projects: int
    documents: int
    chunks: int
    waiting: int


class CatalogStatus(TypedDict):
    """All projects, and what they come to."""

    catalog: str
    size_bytes: int
    projects: list[ProjectStatus]
    totals: Totals


class Store(TypedDict):
    """A store of vectors and what it can do."""

    name: str
    in_use: bool
    capabilities: dict[str, bool | int | str]


class Stores(TypedDict):
    """The stores that there are."""

    stores: list[Store]


class Key(TypedDict):
    """What is known of a key; `key` is its text, there only when it is made."""

    id: str
    name: str
    role: Literal["read", "write", "admin"]
    projects: list[str]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    key: NotRequired[str]


class Progress(TypedDict):
    """How far a job is; `total` is 0 while it is not known."""

    task: str
    done: int
    total: int
    chunks: int


class JobError(TypedDict):
    """Why a job failed."""

    code: str
    message: str


class Job(TypedDict):
    """A run over a source."""

    id: str
    project: str
    source: str
    state: JobState
    created_at: str
    started_at: str | None
    finished_at: str | None
    progress: Progress | None
    report: IndexReport | None
    error: JobError | None


class Jobs(TypedDict):
    """Jobs, newest first."""

    jobs: list[Job]


class Check(TypedDict):
    """One finding of a diagnosis."""

    name: str
    ok: bool
    detail: str
    cure: str


class Checks(TypedDict):
    """The findings of a diagnosis."""

    ok: bool
    checks: list[Check]


class Setting(TypedDict):
    """A setting as text, secrets masked."""

    name: str
    value: str
    origin: str
    about: str


class IgnoredEntry(TypedDict):
    """Setting of a folder's file that does not count.

    `name` is empty where the whole file is ignored.
    """

    name: str
    value: str
    file: str
    reason: str


class Settings(TypedDict):
    """Every setting, and those of the folder's files that do not count."""

    settings: list[Setting]
    ignored: list[IgnoredEntry]


class ReviewedEntry(TypedDict):
    """Setting of a folder's file, secrets masked."""

    name: str
    value: str
    file: str
    state: str


class Trust(TypedDict):
    """Folder and the settings that count, or would count, if it is trusted."""

    folder: str
    trusted: bool
    settings: list[ReviewedEntry]


class TrustedEntry(TypedDict):
    """Trusted folder and its state."""

    folder: str
    state: str
    trusted_at: str


class TrustedFolders(TypedDict):
    """All trusted folders."""

    folders: list[TrustedEntry]


class ErrorDetail(TypedDict):
    """What went wrong. `request_id` is there over HTTP: the service's log knows more under it."""

    code: str
    message: str
    request_id: NotRequired[str]


class Error(TypedDict):
    """An error."""

    error: ErrorDetail
