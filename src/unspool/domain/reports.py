"""What an indexing run did, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from unspool.domain.documents import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A file that was left out, and why: `reason` is one of a few words, `detail` is for people."""

    path: str
    reason: str  # ignored, binary, minified, generated, huge, vendored, unreadable, symlink, empty
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A secret that was masked before anything was stored."""

    path: str
    line: int
    kind: str  # "private key", "aws access key", "password", ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A document that could not be indexed; the run went on without it."""

    path: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What changed in one project.

    `busy` documents were being indexed by another run and left alone.
    """

    project: str
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: int = 0
    busy: int = 0
    chunks: int = 0  # written by this run
    embedded: int = 0  # of those, how many had to be embedded anew
    seconds: float = 0.0
    skipped: Mapping[str, int] = field(default_factory=dict)
    skips: tuple[Skip, ...] = ()
    masked: tuple[Masked, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """Something in an export that could not be read; the rest was."""

    source: str
    position: str  # "line 17", "conversation 3"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberReport:
    """What became of conversations.

    A message that was there already in the same place is not counted.
    """

    project: str
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    messages: int = 0  # new or changed
    chunks: int = 0
    embedded: int = 0
    duplicates: int = 0  # records of an export that were there twice
    bad_count: int = 0
    bad: tuple[BadRecord, ...] = ()  # the first of them
    seconds: float = 0.0
    masked: tuple[Masked, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a long task is. `total` is 0 while it is not known."""

    task: str  # "fetching", "scanning", "indexing", "rebuilding"
    done: int
    total: int
    chunks: int = 0


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """A store of vectors and what it can do."""

    name: str
    in_use: bool
    capabilities: Mapping[str, bool | int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedPlan:
    """What going over to another embedder will cost.

    Tokens are counted as the old one counts them, so about.
    """

    before: str  # the embedder whose vectors are in use; empty for a catalog without any
    after: str
    texts: int  # different texts that have no vector of the new one yet
    tokens: int
    price: float | None = None  # US dollars; None where it is not known
    too_long: int = 0  # chunks that are probably longer than the new one reads

    @property
    def is_done(self) -> bool:
        """Whether the new one is in use already."""
        return self.before == self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedReport:
    """What going over to another embedder came to."""

    before: str
    after: str
    # texts that had to be embedded; those an earlier attempt or the cache had are not among them
    embedded: int = 0
    chunks: int = 0
    seconds: float = 0.0
    kept: tuple[str, ...] = ()  # embedders whose vectors are kept to go back to
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectStatus:
    """A project at a glance. `waiting` chunks are stored but not indexed yet."""

    name: str
    root: str
    documents: Mapping[Status, int]
    chunks: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding of `doctor`: what was looked at, whether it is well, and what to do if not."""

    name: str
    ok: bool
    detail: str
    cure: str = ""
