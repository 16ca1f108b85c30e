"""Search requests: everything a caller asked, validated once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from unspool.catalog.projects import ProjectRow, ProjectVersion
from unspool.domain import filters
from unspool.domain.filters import Filter
from unspool.errors import InputError
from unspool.search.options import SearchOptions
from unspool.search.plan import QueryPlan, make_plan

MAX_LIMIT = 1000
MAX_TOTAL_TOKENS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A validated search with every default filled in, enough to run it again."""

    plan: QueryPlan
    projects: tuple[ProjectVersion, ...]
    limit: int
    depth: int  # candidates that the first page ranks; 0 means that there is no second page
    max_tokens: int = 0
    max_total_tokens: int = 0
    where: Mapping[str, Any] | None = None
    filter: Filter | None = None  # `where`, parsed
    min_score: float | None = None
    explain: bool = False
    space_id: int = 0

    @property
    def versions(self) -> dict[int, int]:
        """Sequence number of each project."""
        return {project.id: project.seq for project in self.projects}

    def encode(self) -> str:
        """Return the request as JSON."""
        values = {
            "query": self.plan.query,
            "projects": self.projects,
            "alpha": self.plan.alpha,
            "limit": self.limit,
            "depth": self.depth,
            "max_tokens": self.max_tokens,
            "max_total_tokens": self.max_total_tokens,
            "where": self.where,
            "min_score": self.min_score,
            "explain": self.explain,
            "space_id": self.space_id,
        }
        return json.dumps(values, separators=(",", ":"), default=_encode_value)

    @classmethod
    def decode(cls, text: str) -> SearchRequest:
        """Return the request that `encode` wrote."""
        values = json.loads(text)
        query, alpha = values.pop("query"), values.pop("alpha")
        projects = tuple(ProjectVersion(*project) for project in values.pop("projects"))
        return cls(
            plan=make_plan(query, alpha=alpha, limit=values["limit"], depth=values["depth"]),
            projects=projects,
            filter=filters.parse(values["where"]),
            **values,
        )


def build_request(
    query: str,
    projects: Sequence[ProjectRow],
    options: SearchOptions,
    *,
    best_alpha: float,
    where: Mapping[str, Any] | None = None,
    min_score: float | None = None,
    explain: bool = False,
) -> SearchRequest:
    """Validate the arguments of a search. `best_alpha` is the embedder's own default."""
    limit, total = options.limit, options.max_total_tokens
    check_page_size(limit, options.max_tokens)
    if min_score is not None and not (
        isinstance(min_score, int | float) and math.isfinite(min_score)
    ):
        raise InputError(f"min_score is {min_score!r}; give a number")
    if not (isinstance(total, int) and 0 <= total <= MAX_TOTAL_TOKENS):
        raise InputError(
            f"max_total_tokens is {total}; give 0 for no budget, or up to {MAX_TOTAL_TOKENS} for "
            f"all pages together"
        )
    return SearchRequest(
        plan=make_plan(
            query, alpha=options.alpha, best_alpha=best_alpha, limit=limit, depth=options.window
        ),
        projects=list_versions(projects),
        limit=limit,
        depth=options.window,
        max_tokens=options.max_tokens,
        max_total_tokens=total,
        where=where,
        filter=filters.parse(where),
        min_score=min_score,
        explain=explain,
    )


def list_versions(rows: Sequence[ProjectRow]) -> tuple[ProjectVersion, ...]:
    """Return the projects at their current sequence numbers."""
    return tuple(ProjectVersion(row.id, row.name, row.seq, row.chunk_count) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Size of one page: the most hits, and the token budget; 0 means no budget."""

    limit: int
    max_tokens: int

    @classmethod
    def create(
        cls, request: SearchRequest, *, limit: int | None = None, max_tokens: int | None = None
    ) -> PageRequest:
        """Return the size that a search asked for, with the caller's changes for one page."""
        return cls(
            limit=request.limit if limit is None else limit,
            max_tokens=request.max_tokens if max_tokens is None else max_tokens,
        )


def check_page_size(limit: int, max_tokens: int) -> None:
    """Reject a page without hits, one that is too large, and a negative budget."""
    if not (isinstance(limit, int) and 1 <= limit <= MAX_LIMIT):
        raise InputError(f"limit is {limit!r}; give a whole number from 1 to {MAX_LIMIT}")
    if not (isinstance(max_tokens, int) and max_tokens >= 0):
        raise InputError(
            f"max_tokens is {max_tokens!r}; give 0 for no budget, or the number of tokens a page "
            f"may take"
        )


def _encode_value(value: object) -> object:
    """Return a filter value that JSON does not know as one that it does."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.isoformat() if isinstance(value, date) else list(value)  # type: ignore[call-overload]
