"""Comparison of a folder with the catalog. Pure.

- A file without a document is new.
- A document that a live run indexes is left alone.
- An indexed document with the same size, time and recipe is unchanged.
- For any other document with a file, the run compares the SHA-256 of the content.
- A document without a file is removed. Exceptions: its folder could not be listed, it was stored as
  text, or another run indexed it after the scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from unspool.catalog.documents import DocumentState
from unspool.domain.documents import Origin, Status
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

    removed: list[DocumentState]
    new: list[PendingFile] = field(default_factory=list)
    # known documents whose size, time, recipe or status differs
    suspect: list[PendingFile] = field(default_factory=list)
    unchanged: int = 0
    busy: list[str] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)  # by an earlier run, and still valid


def plan_run(
    found: Sequence[Found],
    known: Mapping[str, DocumentState],
    *,
    recipe: str,
    live_runs: frozenset[int],
    unread: Sequence[str] = (),
    scanned_at: datetime | None = None,
    known_skips: Mapping[str, tuple[int, int, Skip]] | None = None,
) -> RunPlan:
    """Assign every file and every known document to one of the cases above."""
    paths = {file.path for file in found}
    plan = RunPlan(
        removed=[
            state
            for path, state in known.items()
            if path not in paths and _is_removable(state, unread, live_runs, scanned_at)
        ]
    )
    for file in found:
        state = known.get(file.path)
        if state is None:
            skip = (known_skips or {}).get(file.path)
            if skip is not None and skip[:2] == (file.size_bytes, file.modified_ns):
                plan.skips.append(skip[2])
            else:
                plan.new.append(PendingFile(found=file))
        elif state.is_conversation:
            detail = "a conversation of this project has the same name"
            plan.skips.append(Skip(path=file.path, reason="conversation", detail=detail))
        elif _is_busy(state, live_runs):
            plan.busy.append(file.path)
        elif state.status is Status.INDEXED and (
            (state.size_bytes, state.modified_ns, state.recipe)
            == (file.size_bytes, file.modified_ns, recipe)
        ):
            plan.unchanged += 1
        else:
            known_sha = _get_trusted_sha(state, recipe)
            plan.suspect.append(PendingFile(found=file, known_sha=known_sha))
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
    return state.origin is Origin.FILE and not is_uncertain
