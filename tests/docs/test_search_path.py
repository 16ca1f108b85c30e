"""The architecture page lists the modules and values of a search as they are."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest
from documentation import ROOT

import unspool
from support import doc

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## The path of a search")[1].split("\n## ")[0]


@pytest.fixture
def searched(tmp_path: Path) -> set[str]:
    """Names of our modules in which code runs during one search."""
    modules: set[str] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            modules.add(str(frame.f_globals.get("__name__", "")))

    with unspool.open(f"sqlite:///{tmp_path}/a.db") as corpus:
        corpus.put(*(doc(f"{at}.md", f"walrus number {at}") for at in range(20)))
        corpus.refresh()  # otherwise the tail contains everything, and no index is searched
        corpus.search("walrus", limit=5)
        before = sys.getprofile()
        sys.setprofile(record)
        try:
            corpus.search("walrus number", limit=5)
        finally:
            sys.setprofile(before)
    return modules


def list_modules() -> list[str]:
    rows = [line.split("|")[2] for line in SECTION.splitlines() if re.match(r"\| \d", line)]
    names: list[str] = []
    for row in rows:
        folder = ""
        for path in re.findall(r"`([\w/]+)\.py`", row):
            folder = path.rpartition("/")[0] or folder
            names.append(
                "unspool." + f"{folder}/{path.rpartition('/')[2]}".strip("/").replace("/", ".")
            )
    return names


def test_every_listed_module_takes_part_in_a_search(searched: set[str]) -> None:
    listed = list_modules()
    assert len(listed) == len(set(listed)) <= 18
    assert [name for name in listed if name not in searched] == []


def test_every_module_of_search_and_index_is_listed_or_named_as_a_leaf(searched: set[str]) -> None:
    own = {one for one in searched if one.startswith(("unspool.search.", "unspool.session"))}
    named = {path.rpartition("/")[2] for path in re.findall(r"`([\w/]+)\.py`", PAGE)}
    assert [one for one in sorted(own) if one.rpartition(".")[2] not in named] == []


def test_the_values_exist() -> None:
    from unspool.catalog import chunks, projects
    from unspool.domain import continuations
    from unspool.domain import queries as results
    from unspool.index import ports
    from unspool.search import plan, queries, ranking, request, retrieve, windows

    known = {
        name
        for module in (
            chunks,
            projects,
            continuations,
            results,
            ports,
            plan,
            queries,
            ranking,
            request,
            retrieve,
            windows,
        )
        for name in vars(module)
    }
    values = re.findall(r"`(\w+)`", SECTION.split("values pass between the modules:")[1])
    assert len(values) <= 15
    assert [name for name in values if name not in known] == []
