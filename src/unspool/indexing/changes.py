"""What a run has to do, decided from what is on disk and what the catalog knows. Pure.

- on disk, not known: new, pending
- being indexed by a live run: left alone
- same size and time, indexed, same recipe: unchanged
- anything else that is known: looked at; if the content's SHA-256 is the same it is unchanged, else
  stale
- known, not on disk: removed, unless its folder could not be listed, it was given as text, or
  another run indexed it since the scan
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from unspool.catalog.documents import DocumentState
from unspool.domain.documents import Origin, Status
from unspool.domain.reports import Skip
from unspool.sources.folders import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A file to look at.

    `known_sha` is what the catalog holds of it, '' where its content must be taken in anyway.
    """

    found: Found
    known_sha: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a run has to do."""

    new: tuple[Work, ...]
    suspect: tuple[Work, ...]  # known, but its size, time, recipe or status says to look again
    unchanged: int
    busy: tuple[str, ...]
    removed: tuple[DocumentState, ...]
    skips: tuple[Skip, ...]  # as an earlier run decided, still so


def plan(
    found: Sequence[Found],
    known: Mapping[str, DocumentState],
    *,
    recipe: str,
    live_runs: frozenset[int],
    unread: Sequence[str] = (),
    scanned_at: datetime | None = None,
    known_skips: Mapping[str, tuple[int, int, Skip]] | None = None,
) -> Changes:
    """Sort every file and every known document into one of the cases above."""
    new: list[Work] = []
    suspect: list[Work] = []
    busy: list[str] = []
    skips: list[Skip] = []
    unchanged = 0
    for file in found:
        state = known.get(file.path)
        if state is None:
            skip = (known_skips or {}).get(file.path)
            if skip is not None and skip[:2] == (file.size_bytes, file.modified_ns):
                skips.append(skip[2])
            else:
                new.append(Work(found=file))
        elif state.is_conversation:
            skips.append(
                Skip(
                    path=file.path,
                    reason="conversation",
                    detail="a conversation of this project has the same name",
                )
            )
        elif state.status is Status.INDEXING and state.run_id in live_runs:
            busy.append(file.path)
        elif state.status is Status.INDEXED and (
            state.size_bytes,
            state.modified_ns,
            state.recipe,
        ) == (file.size_bytes, file.modified_ns, recipe):
            unchanged += 1
        else:
            suspect.append(Work(found=file, known_sha=_trusted_sha(state, recipe)))
    here = {file.path for file in found}
    gone = tuple(
        state
        for path, state in known.items()
        if path not in here
        and not _below(path, unread)
        and _from_here(state, live_runs, scanned_at)
    )
    return Changes(
        new=tuple(new),
        suspect=tuple(suspect),
        unchanged=unchanged,
        busy=tuple(busy),
        removed=gone,
        skips=tuple(skips),
    )


def _trusted_sha(state: DocumentState, recipe: str) -> str:
    """The fingerprint that makes reading on unnecessary.

    A document that was never finished, or was cut otherwise, has none.
    """
    finished = state.recipe == recipe and state.status in (
        Status.INDEXED,
        Status.STALE,
        Status.INDEXING,
        Status.FAILED,
    )
    return state.sha256 if finished else ""


def _below(path: str, unread: Sequence[str]) -> bool:
    return any(not folder or path.startswith(folder.rstrip("/") + "/") for folder in unread)


def _from_here(
    state: DocumentState, live_runs: frozenset[int], scanned_at: datetime | None
) -> bool:
    """Came from a file that was there before the scan began, and no live run is at work on it."""
    newer = (
        scanned_at is not None and state.indexed_at is not None and state.indexed_at >= scanned_at
    )
    return (
        state.origin is Origin.FILE
        and not newer
        and not (state.status is Status.INDEXING and state.run_id in live_runs)
    )
