"""Reports and progress of long tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from unspool.domain.documents import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """File that was left out. `reason` is one of a few words, `detail` is for people."""

    path: str
    reason: str  # ignored, binary, minified, generated, huge, vendored, unreadable, symlink, empty
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """Secret that was masked before anything was stored."""

    path: str
    line: int
    kind: str  # "private key", "aws access key", "password", ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Document that could not be indexed. The run continued without it."""

    path: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """Report of an indexing run in a project.

    `busy` documents were skipped, because another run was indexing them.
    """

    project: str
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: int = 0
    busy: int = 0
    chunks: int = 0  # written by this run
    embedded: int = 0  # chunks whose vectors were computed
    seconds: float = 0.0
    skipped: Mapping[str, int] = field(default_factory=dict)
    skips: tuple[Skip, ...] = ()
    masked: tuple[Masked, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """Record of an export that could not be read."""

    source: str
    position: str  # "line 17", "conversation 3"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberReport:
    """Report of an import of conversations."""

    project: str
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    messages: int = 0  # new or changed ones only
    chunks: int = 0
    embedded: int = 0
    duplicates: int = 0  # records of an export that occurred before
    bad_count: int = 0
    bad: tuple[BadRecord, ...] = ()  # only the first
    seconds: float = 0.0
    masked: tuple[Masked, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a long task. `total` is 0 while it is unknown."""

    task: str  # "fetching", "scanning", "indexing", "rebuilding"
    done: int
    total: int
    chunks: int = 0


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """Vector store: its capabilities, driver, server, and what is missing to use it."""

    name: str
    in_use: bool
    capabilities: Mapping[str, bool | int | str | list[str]]  # empty if it cannot be imported
    driver: str = ""  # package and version; empty if the store needs none or it is not installed
    missing: tuple[str, ...] = ()  # packages to install and settings to change before it is used
    server: str = ""  # name and version of the server in use; empty without one
    health: str = ""  # of the server in use: ok, or the code of the error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedPlan:
    """Cost of switching to another embedder.

    Tokens are an estimate, by the tokenizer of the old embedder.
    """

    before: str  # embedder in use; empty for a catalog without vectors
    after: str
    texts: int  # distinct texts without a vector of the new embedder
    tokens: int
    price: float | None = None  # US dollars, if known
    too_long: int = 0  # chunks that probably exceed the limit of the new embedder

    @property
    def is_done(self) -> bool:
        """True if the new embedder is already in use."""
        return self.before == self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedReport:
    """Report of a switch to another embedder."""

    before: str
    after: str
    embedded: int = 0  # texts, without those of an earlier attempt or the cache
    chunks: int = 0
    seconds: float = 0.0
    kept: tuple[str, ...] = ()  # embedders whose vectors are kept
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """Report of a move of vectors or of a catalog. The source is unchanged."""

    setting: str  # environment variable that makes the switch
    projects: int
    chunks: int
    copied: int = 0  # rows of the catalog that were inserted, changed or deleted
    agreement: float = 1.0  # share of the ten best chunks of sampled searches that were found
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectStatus:
    """Status of a project. `waiting` chunks are stored but not indexed yet."""

    name: str
    root: str
    documents: Mapping[Status, int]
    chunks: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check of `doctor`, with a cure if it failed."""

    name: str
    ok: bool
    detail: str
    cure: str = ""
