"""A ranking, frozen: what was asked, the entries in the order in which pages hand them out, and
where retrieval stands behind them. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.domain.queries import Served

Ids = npt.NDArray[np.int64]

# One row per chunk. The copies of a text stand behind the one that is shown. `document` and
# `position` find what replaced a chunk.
ENTRY = np.dtype(
    [
        ("id", "<i8"),
        ("text_key", "<i8"),
        ("document", "<i8"),
        ("position", "<i4"),
        ("score", "<f4"),
        ("is_copy", "?"),
    ]
)
Entries = npt.NDArray[np.void]
NO_IDS: Ids = np.zeros(0, dtype=np.int64)
NO_ENTRIES: Entries = np.zeros(0, dtype=ENTRY)


class AskedProject(NamedTuple):
    """A project as it was when it was asked. `seq` tells whether anything has changed since."""

    id: int
    name: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, with every choice made: enough to ask again."""

    query: str
    projects: tuple[AskedProject, ...]
    alpha: float
    limit: int
    max_tokens: int = 0
    max_total_tokens: int = 0
    where: Mapping[str, Any] | None = None
    min_score: float | None = None
    explain: bool = False
    space_id: int = 0

    def as_json(self) -> str:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return json.dumps(values, separators=(",", ":"), default=_plain)

    @classmethod
    def from_json(cls, text: str) -> Question:
        values = json.loads(text)
        return cls(
            **{
                **values,
                "projects": tuple(AskedProject(*project) for project in values["projects"]),
            }
        )


def _plain(value: object) -> object:
    """What a filter may hold and JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.isoformat() if isinstance(value, date) else list(value)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What both retrievers found in a project and nobody has ranked yet, best first."""

    project: int
    near: Ids = field(default_factory=lambda: NO_IDS)
    named: Ids = field(default_factory=lambda: NO_IDS)

    def __len__(self) -> int:
        return len(self.near) + len(self.named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Where retrieval stands behind a segment: how to go on."""

    depth: int  # how many each retriever was asked for in each project
    exhausted: bool  # they had no more to give
    scale: tuple[float, ...]  # how scores were brought together, so that later ones are comparable
    majority: str = ""  # what most candidates are: a language, or talk
    reserve: tuple[Reserve, ...] = ()
    waiting: int = 0  # how many different chunks are in reserve
    # by project; opaque, the vector index's own
    hints: Mapping[int, str] = field(default_factory=dict)
    hinted: bool = False  # the reserve came by a hint
    # the projects' sequence numbers when they were asked
    seqs: Mapping[int, int] = field(default_factory=dict)
    short: bool = False  # the vector index stopped looking before it had found enough

    @property
    def is_end(self) -> bool:
        return self.exhausted and not any(map(len, self.reserve))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a frozen ranking.

    The first is the window; those that a walk past it needed follow.
    """

    number: int
    start: int  # the position of its first entry in the whole ranking
    served: Served
    entries: Entries
    frontier: Frontier
    best: float = 0.0  # the score of the very first entry
    low: float | None = None  # the lowest score so far; what follows is shown with no higher one
    # found, but nothing new: copies and new forms of what earlier segments hold
    dropped: Ids = field(default_factory=lambda: NO_IDS)
    repeats: int = 0  # copies of what earlier segments hold; left out of this one
    lost: int = 0  # found, but replaced or removed before they could be ranked; not kept
    reasons: tuple[str, ...] = ()  # one per entry, if asked for

    @property
    def stop(self) -> int:
        return self.start + len(self.entries)

    def pack(self) -> PackedSegment:
        """As a database takes it."""
        frontier = self.frontier
        state = {
            "served": self.served.value,
            "best": self.best,
            "low": self.low,
            "dropped": len(self.dropped),
            "repeats": self.repeats,
            "reasons": list(self.reasons),
            "depth": frontier.depth,
            "exhausted": frontier.exhausted,
            "scale": list(frontier.scale),
            "majority": frontier.majority,
            "waiting": frontier.waiting,
            "reserve": [[one.project, len(one.near), len(one.named)] for one in frontier.reserve],
            "hints": list(frontier.hints.items()),
            "hinted": frontier.hinted,
            "seqs": list(frontier.seqs.items()),
            "short": frontier.short,
        }
        lists = [
            self.dropped,
            *(part for one in frontier.reserve for part in (one.near, one.named)),
        ]
        return PackedSegment(
            number=self.number,
            start=self.start,
            stop=self.stop,
            entries=self.entries.tobytes(),
            ids=b"".join(part.astype("<i8").tobytes() for part in lists),
            state=json.dumps(state, separators=(",", ":")),
        )


class PackedSegment(NamedTuple):
    """A segment as bytes and text."""

    number: int
    start: int
    stop: int
    entries: bytes
    ids: bytes
    state: str

    def unpack(self) -> Segment:
        state = json.loads(self.state)
        ids = np.frombuffer(self.ids, dtype="<i8").astype(np.int64)
        return Segment(
            number=self.number,
            start=self.start,
            served=Served(state["served"]),
            entries=np.frombuffer(self.entries, dtype=ENTRY),
            best=state["best"],
            low=state["low"],
            dropped=ids[: state["dropped"]],
            repeats=state["repeats"],
            reasons=tuple(state["reasons"]),
            frontier=Frontier(
                depth=state["depth"],
                exhausted=state["exhausted"],
                scale=tuple(state["scale"]),
                majority=state["majority"],
                waiting=state["waiting"],
                reserve=tuple(_reserves(state["reserve"], ids[state["dropped"] :])),
                hints=dict(state["hints"]),
                hinted=state["hinted"],
                seqs=dict(state["seqs"]),
                short=state.get("short", False),  # not there in what was kept by earlier versions
            ),
        )


def _reserves(shape: Sequence[Sequence[int]], ids: Ids) -> list[Reserve]:
    out = []
    for project, near, named in shape:
        out.append(Reserve(project=project, near=ids[:near], named=ids[near : near + named]))
        ids = ids[near + named :]
    return out
