"""Comparison of a folder with the catalog. Pure.

- A file without a document is new.
- A document that a live run indexes is left alone.
- An indexed document with the same size, time and recipe is unchanged.
- For any other document with a file, the run compares the SHA-256 of the content.
- A document without a file is removed. Exceptions: its folder could not be listed, it was stored as
  text, or another run indexed it after the scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from unspool.catalog.documents import DocumentState
from unspool.domain.documents import DocumentOrigin, Kind, Status
from unspool.domain.prepared import SkippedFile
from unspool.domain.reports import Skip
from unspool.sources.folders import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFile:
    """A file to read. `known_sha` is set if equal content needs no further work."""

    found: Found
    known_sha: str = ""


@dataclass(slots=True, kw_only=True)
class RunPlan:
    """Work of one run over a folder."""

    new: list[PendingFile] = field(default_factory=list)
    # known documents whose size, time, recipe or status differs
    suspect: list[PendingFile] = field(default_factory=list)
    known: dict[str, DocumentState] = field(default_factory=dict)  # the suspect ones, by path
    removed: set[DocumentState] = field(default_factory=set)
    unchanged: int = 0
    busy: int = 0
    skips: list[Skip] = field(default_factory=list)  # by an earlier run, and still valid
    outdated: list[str] = field(default_factory=list)  # paths of skips of missing files


def plan_run(
    found: Iterable[Found],
    known: Iterable[DocumentState],
    *,
    recipe: str,
    live_runs: frozenset[int],
    unread: Sequence[str] = (),
    scanned_at: datetime | None = None,
    known_skips: Iterable[SkippedFile] = (),
) -> RunPlan:
    """Assign every file and every known document to one of the cases above."""
    plan = RunPlan()
    files = {file.path: file for file in found}
    for state in known:
        file = files.pop(state.path, None)
        if file is None:
            if _is_removable(state, unread, live_runs, scanned_at):
                plan.removed.add(state)
        elif state.kind is Kind.CHAT:
            detail = "a conversation of this project has the same name"
            plan.skips.append(Skip(path=file.path, reason="conversation", detail=detail))
        elif _is_busy(state, live_runs):
            plan.busy += 1
        elif state.status is Status.INDEXED and (
            (state.size_bytes, state.modified_ns, state.recipe)
            == (file.size_bytes, file.modified_ns, recipe)
        ):
            plan.unchanged += 1
        else:
            known_sha = _get_trusted_sha(state, recipe)
            plan.suspect.append(PendingFile(found=file, known_sha=known_sha))
            plan.known[file.path] = state
    for one in known_skips:
        file = files.get(one.path)
        if file is None:
            plan.outdated.append(one.path)
        elif (file.size_bytes, file.modified_ns) == (one.size_bytes, one.modified_ns):
            plan.skips.append(one.skip)
            del files[one.path]
    plan.new += (PendingFile(found=file) for file in files.values())
    plan.suspect.sort(key=lambda file: file.found.path)
    return plan


def _is_busy(state: DocumentState, live_runs: frozenset[int]) -> bool:
    return state.status is Status.INDEXING and state.run_id in live_runs


def _get_trusted_sha(state: DocumentState, recipe: str) -> str:
    """Return the stored SHA-256, or "" if the chunks are incomplete or from another recipe."""
    is_complete = state.recipe == recipe and state.status is not Status.PENDING
    return state.sha256 if is_complete else ""


def _is_removable(
    state: DocumentState,
    unread: Sequence[str],
    live_runs: frozenset[int],
    scanned_at: datetime | None,
) -> bool:
    """Return True for the document of a file that is certainly missing."""
    is_unread = any(
        not folder or state.path.startswith(folder.rstrip("/") + "/") for folder in unread
    )
    is_newer = (
        scanned_at is not None and state.indexed_at is not None and state.indexed_at >= scanned_at
    )
    is_uncertain = is_unread or is_newer or _is_busy(state, live_runs)
    return state.origin is DocumentOrigin.FILE and not is_uncertain
